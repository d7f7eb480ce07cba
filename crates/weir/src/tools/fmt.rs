//! `weir fmt`: configurations in one layout.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use weir::check::is_lua_block;
use weir_conf::{ConfFiles, RealFiles, format, is_h2o_language};
use weir_see::commands::{CommandLine as ToolLine, TextStyle};

use super::TROUBLE;
use crate::{diff, rewrite};

/// `weir fmt [--check] [--diff] FILE...|-`
pub(super) fn run(asked: &ToolLine) -> Result<ExitCode, String> {
    if asked.words.is_empty() {
        return Err("which file? \"-\" is standard input; try \"weir fmt --help\"".to_owned());
    }
    let options = FmtOptions { check: asked.has("--check"), diff: asked.has("--diff") };
    let (mut differs, mut failed) = (false, false);
    for name in &asked.words {
        match format_one(name, options) {
            Ok(changed) => differs |= changed,
            Err(message) => {
                say!("weir: {message}");
                failed = true;
            }
        }
    }
    Ok(match (failed, differs && options.check) {
        (true, _) => ExitCode::from(TROUBLE),
        (false, true) => ExitCode::FAILURE,
        (false, false) => ExitCode::SUCCESS,
    })
}

#[derive(Clone, Copy)]
struct FmtOptions {
    /// `--check`: nothing is written, the exit status says whether something would be.
    check: bool,
    /// `--diff`: nothing is written, the difference is shown.
    diff: bool,
}

/// Formats the file `name`, or standard input; returns whether that changes it.
fn format_one(name: &str, options: FmtOptions) -> Result<bool, String> {
    let path = Path::new(name);
    let is_input = name == "-";
    let shown = if is_input { "standard input" } else { name };
    let failed = |error: io::Error| format!("\"{shown}\": {error}");
    let text = if is_input { standard_input() } else { RealFiles.read(path) }.map_err(failed)?;
    if is_h2o_language(path, &text) {
        return Err(format!("\"{name}\" is in H2O's language; \"weir fmt\" formats nginx's"));
    }
    let out = format(Path::new(shown), &text, is_lua_block).map_err(|failure| {
        let source = &failure.tree.source;
        let errors: Vec<_> = failure.errors.0.iter().map(|error| error.render(source)).collect();
        errors.join("\nweir: ")
    })?;
    let changed = out != text;
    if options.diff && changed {
        print(&diff::unified(shown, [&text, &out], TextStyle::of_stdout()))?;
    } else if options.check && changed {
        print(format!("{shown}\n").as_bytes())?;
    }
    if !options.check && !options.diff {
        match is_input {
            true => print(&out)?,
            false if changed => rewrite::rewrite(path, &text, &out).map_err(failed)?,
            false => {}
        }
    }
    Ok(changed)
}

/// All of standard input, up to what a file may have.
fn standard_input() -> io::Result<Vec<u8>> {
    use std::os::fd::AsFd;
    let mut text = Vec::new();
    File::from(io::stdin().as_fd().try_clone_to_owned()?).take(LONGEST + 1).read_to_end(&mut text)?;
    match text.len() as u64 > LONGEST {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(text),
    }
}

/// Writes to standard output; a reader that has left is no error.
fn print(text: &[u8]) -> Result<(), String> {
    match io::stdout().write_all(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("standard output: {error}")),
        _ => Ok(()),
    }
}

/// As of a configuration file.
const LONGEST: u64 = 64 << 20;
