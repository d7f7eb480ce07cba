//! `weir init`: a configuration to begin with.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use weir_conf::did_you_mean;
use weir_see::commands::CommandLine as ToolLine;

use super::print;

/// `weir init KIND [FILE]`
pub(super) fn run(asked: &ToolLine) -> Result<ExitCode, String> {
    asked.at_most(2)?;
    let kinds = KINDS.map(|(kind, _)| kind);
    let Some(kind) = asked.words.first() else {
        return Err(format!("which configuration? {}", kinds.join(", ")));
    };
    let Some((_, text)) = KINDS.iter().find(|(known, _)| known == kind) else {
        let hint = did_you_mean(kind, kinds.into_iter()).unwrap_or_else(|| kinds.join(", "));
        return Err(format!("there is no configuration \"{kind}\"; {hint}"));
    };
    let Some(file) = asked.words.get(1) else { return print(text) };
    write_new(Path::new(file), text).map_err(|error| format!("\"{file}\": {error}"))?;
    let next = text.replace(&format!("{kind}.conf"), file);
    let next = next.lines().filter_map(|line| line.strip_prefix("# ")).skip(1).take(3);
    print(&format!("{file} is written.\n{}\n", next.collect::<Vec<_>>().join("\n")))
}

/// Writes a file that is not there yet; a link that leads nowhere counts as one that is.
fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

/// Names and texts.
const KINDS: [(&str, &str); 6] = [
    ("proxy", include_str!("../../assets/init/proxy.conf")),
    ("static", include_str!("../../assets/init/static.conf")),
    ("spa", include_str!("../../assets/init/spa.conf")),
    ("php", include_str!("../../assets/init/php.conf")),
    ("lua", include_str!("../../assets/init/lua.conf")),
    ("gateway", include_str!("../../assets/init/gateway.conf")),
];
