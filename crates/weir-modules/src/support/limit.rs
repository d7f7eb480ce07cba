//! What `limit_req` and `limit_conn` have in common.

use std::sync::Arc;

use weir_conf::{Error, LineCx, Result, parse_size};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::log::LogLevel;
use weir_engine::variable::ValueScript;
use weir_engine::zone::{SharedZone, SharedZones};
use weir_engine::{Exchange, Text, inherit};

/// The settings that both have, of one block.
#[derive(Default)]
pub(crate) struct RefusalConf {
    pub(crate) log_level: Option<LogLevel>,
    pub(crate) status: Option<u16>,
    pub(crate) dry_run: Option<bool>,
}

impl RefusalConf {
    pub(crate) fn inherit(&mut self, parent: &RefusalConf) {
        inherit!(self, parent, log_level, status, dry_run);
    }

    pub(crate) fn set_log_level(&mut self, line: &mut LineCx<'_>) -> Result {
        line.one_of(&mut self.log_level, LEVELS)
    }

    /// The range is nginx's.
    pub(crate) fn set_status(&mut self, line: &mut LineCx<'_>) -> Result {
        line.number(&mut self.status, 400..=599)
    }

    pub(crate) fn set_dry_run(&mut self, line: &mut LineCx<'_>) -> Result {
        line.flag(&mut self.dry_run)
    }

    pub(crate) fn level(&self) -> LogLevel {
        self.log_level.unwrap_or(LogLevel::Error)
    }

    pub(crate) fn refusal(&self) -> u16 {
        self.status.unwrap_or(503)
    }

    pub(crate) fn is_dry(&self) -> bool {
        self.dry_run.unwrap_or(false)
    }
}

/// The zone `name` of the configuration, whether or not its declaration came already.
pub(crate) fn zone(
    line: &mut LineCx<'_>,
    argument: usize,
    owner: &'static str,
    name: &[u8],
) -> Result<Arc<SharedZone>> {
    let name = String::from_utf8_lossy(name);
    let zone = line.ext::<ConfRegistry>().shared::<SharedZones>().named(owner, &name);
    zone.map_err(|message| line.fail_arg(argument, message))
}

/// `name:size` of argument `i`, after its `zone=`.
pub(crate) fn zone_size<'a>(line: &LineCx<'_>, i: usize, text: &'a [u8]) -> Result<(&'a [u8], u64)> {
    let invalid = || line.fail_arg(i, format!("invalid zone size \"{}\"", line.arg(i)));
    let colon = text.iter().position(|byte| *byte == b':').ok_or_else(invalid)?;
    let size = parse_size(&text[colon + 1..]).ok_or_else(invalid)?;
    if size < SMALLEST {
        return Err(line.fail_arg(i, format!("zone \"{}\" is too small", line.arg(i))));
    }
    Ok((&text[..colon], size))
}

/// `"x" must have "zone" parameter`
pub(crate) fn no_zone(line: &LineCx<'_>) -> Error {
    line.fail(format!("\"{}\" must have \"zone\" parameter", line.name()))
}

/// The key of a limit in `x`; `None` for one that is not limited: an empty key, or one longer than `longest`, which
/// is logged.
pub(crate) fn key(x: &mut Exchange, script: &ValueScript, written: &str, longest: usize) -> Option<Text> {
    let key = script.value(x);
    let bytes = x.text(&key);
    if bytes.len() > longest {
        let shown = String::from_utf8_lossy(bytes).into_owned();
        x.log_error(&format_args!(
            "the value of the \"{written}\" key is more than {longest} bytes: \"{shown}\""
        ));
        return None;
    }
    (!bytes.is_empty()).then_some(key)
}

/// The levels that may be chosen.
const LEVELS: &[(&str, LogLevel)] = &[
    ("info", LogLevel::Info),
    ("notice", LogLevel::Notice),
    ("warn", LogLevel::Warn),
    ("error", LogLevel::Error),
];

/// nginx's smallest zone: eight pages.
const SMALLEST: u64 = 8 * 4096;
