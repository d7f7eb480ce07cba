//! `weir serve`: the files of a directory.

use std::path::Path;
use std::process::ExitCode;

use weir_see::commands::CommandLine as ToolLine;

use crate::cli::{CommandLine, DIRECTORY_ADDRESS, EmbeddedConf};
use crate::run::{self, ProgramPath};

/// `weir serve [DIRECTORY]`
pub(super) fn run(asked: &ToolLine) -> Result<ExitCode, String> {
    asked.at_most(1)?;
    let directory = Path::new(asked.words.first().map_or(".", String::as_str));
    let address = asked.value("--listen").map_or_else(|| Ok(DIRECTORY_ADDRESS.to_owned()), address)?;
    let line = CommandLine {
        prefix: Some(checked(directory)?),
        embedded: EmbeddedConf::Directory(address),
        ..CommandLine::default()
    };
    Ok(run::run(&line, ProgramPath { name: "weir".into(), arguments: Vec::new() }))
}

/// The full path of a directory that can be served.
fn checked(directory: &Path) -> Result<std::path::PathBuf, String> {
    let failed = |error: std::io::Error| format!("\"{}\": {error}", directory.display());
    let path = directory.canonicalize().map_err(failed)?;
    std::fs::read_dir(&path).map_err(failed)?;
    Ok(path)
}

/// What `listen` takes, of an address or a port alone.
fn address(text: &str) -> Result<String, String> {
    let fits = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:[]-_/".contains(&byte));
    match text.parse::<u16>() {
        Ok(port) => Ok(format!("127.0.0.1:{port}")),
        Err(_) if fits && !text.is_empty() => Ok(text.to_owned()),
        Err(_) => Err(format!("\"{text}\" is no address: 3000 and 0.0.0.0:3000 are")),
    }
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn a_port_alone_is_one_of_this_machine() {
        assert_eq!(address("3000"), Ok("127.0.0.1:3000".to_owned()));
        assert_eq!(address("[::]:80"), Ok("[::]:80".to_owned()));
        assert!(address("80; user root").is_err() && address("").is_err());
    }
}
