//! Setters of the core's location directives that need more than a stock one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use weir_conf::{LineCx, Result, parse_number, parse_size, parse_time_s};
use weir_http::mime::MediaTypeTable;

use super::{CacheSize, DocumentRoot, HttpCoreConf, TempPaths};
use crate::conf::LocationMatcher;
use crate::conf::registry::ConfRegistry;
use crate::log::{ErrorLog, LogSpec};
use crate::resolver::kept::CacheFolder;
use crate::settings::location::{AliasedPart, DisableSymlinks, ErrorPage};
use crate::variable::ValueScript;

/// `root path`
pub(super) fn root(conf: &mut HttpCoreConf, line: &mut LineCx<'_>) -> Result {
    vacant_root(conf, line)?;
    let path = directory(line, LastSlash::Removed)?;
    conf.root = Some(DocumentRoot { path, alias: None });
    Ok(())
}

/// `alias path`
pub(super) fn alias(conf: &mut HttpCoreConf, line: &mut LineCx<'_>) -> Result {
    vacant_root(conf, line)?;
    let alias = match &conf.matcher {
        Some(LocationMatcher::Exact(path) | LocationMatcher::Prefix(path, _)) => {
            AliasedPart::Prefix(path.len())
        }
        Some(LocationMatcher::Named(_)) => {
            return Err(line.fail("the \"alias\" directive cannot be used inside the named location"));
        }
        Some(LocationMatcher::Regex(_)) | None => AliasedPart::Whole,
    };
    let path = directory(line, LastSlash::Kept)?;
    conf.root = Some(DocumentRoot { path, alias: Some(alias) });
    Ok(())
}

/// `root` and `alias` fill one slot.
fn vacant_root(conf: &HttpCoreConf, line: &LineCx<'_>) -> Result {
    let Some(root) = &conf.root else { return Ok(()) };
    let (name, earlier) = (line.name(), if root.alias.is_some() { "alias" } else { "root" });
    if name == earlier {
        return Err(line.refuse("is duplicate"));
    }
    Err(line
        .fail(format!("\"{name}\" directive is duplicate, \"{earlier}\" directive was specified earlier")))
}

/// What becomes of a slash at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastSlash {
    /// `root`: the URI brings its own.
    Removed,
    /// `alias`
    Kept,
}

/// The path of `root` or `alias`: below the prefix unless it is absolute or begins with a variable.
fn directory(line: &mut LineCx<'_>, last: LastSlash) -> Result<ValueScript> {
    let text = line.bytes(0);
    for name in ["document_root", "realpath_root"].into_iter().filter(|_| text.contains(&b'$')) {
        let has = |form: String| text.windows(form.len()).any(|part| part == form.as_bytes());
        if has(format!("${name}")) || has(format!("${{{name}}}")) {
            let message = format!("the ${name} variable cannot be used in the \"{}\" directive", line.name());
            return Err(line.fail_arg(0, message));
        }
    }
    let full = match text.first() {
        Some(b'$') => text.to_vec(),
        _ => line.paths().prefix.join(OsStr::from_bytes(text)).into_os_string().into_encoded_bytes(),
    };
    let slash = last == LastSlash::Removed && text.ends_with(b"/");
    let end = full.len() - usize::from(slash);
    ValueScript::compile_text(line, 0, &full[..end])
}

/// `types { type extension ...; }`
pub(super) fn types(conf: &mut HttpCoreConf, line: &mut LineCx<'_>) -> Result {
    let types = Arc::make_mut(conf.types.get_or_insert_with(|| Arc::new(MediaTypeTable::new())));
    for entry in line.entries()? {
        let mut line = line.entry(entry);
        let name = entry.name.bytes();
        for (i, extension) in entry.args.iter().enumerate() {
            if let Some(old) = types.find(extension.bytes()) {
                let old = String::from_utf8_lossy(old).into_owned();
                line.warn_arg(i, format!(
                    "duplicate extension \"{extension}\", content type: \"{}\", previous content type: \"{old}\"",
                    entry.name
                ));
            }
            types.insert(extension.bytes(), name);
        }
    }
    Ok(())
}

/// `default_type type`
pub(super) fn default_type(conf: &mut HttpCoreConf, line: &mut LineCx<'_>) -> Result {
    line.once(&mut conf.default_type, Arc::from(line.bytes(0)))
}

/// `internal`
pub(super) fn internal(conf: &mut HttpCoreConf, line: &mut LineCx<'_>) -> Result {
    line.once(&mut conf.internal, true)
}

/// `error_page code ... [=[response]] uri`
pub(super) fn error_page(conf: &mut HttpCoreConf, line: &mut LineCx<'_>) -> Result {
    let target = line.args().len() - 1;
    let response = target - 1;
    let (overwrite, codes) = match line.bytes(response) {
        [b'=', ..] if response == 0 => return Err(line.invalid_value(response)),
        [b'='] => (Some(0), response),
        [b'=', code @ ..] => (Some(status(line, response, code)?), response),
        _ => (None, target),
    };
    let target = ValueScript::compile(line, target)?;
    let mut pages = Vec::with_capacity(codes);
    for i in 0..codes {
        let status = error_status(line, i)?;
        // nginx's internal codes for what is sent as 400: head too large, and TLS on the wrong side.
        let overwrite = overwrite.or((494..=497).contains(&status).then_some(400));
        pages.push(ErrorPage { status, overwrite, target: target.clone() });
    }
    conf.error_pages.get_or_insert_default().extend(pages);
    Ok(())
}

fn error_status(line: &LineCx<'_>, i: usize) -> Result<u16> {
    let code = status(line, i, line.bytes(i))?;
    match code {
        499 => Err(line.invalid_value(i)),
        300..=599 => Ok(code),
        _ => Err(line.fail_arg(i, format!("value \"{}\" must be between 300 and 599", line.arg(i)))),
    }
}

fn status(line: &LineCx<'_>, i: usize, text: &[u8]) -> Result<u16> {
    parse_number(text).and_then(|code| u16::try_from(code).ok()).ok_or_else(|| line.invalid_value(i))
}

/// `keepalive_timeout timeout [header_timeout]`
pub(super) fn keepalive_timeout(conf: &mut HttpCoreConf, line: &mut LineCx<'_>) -> Result {
    line.time_ms(&mut conf.keepalive_timeout)?;
    if line.args().len() == 2 {
        let seconds = parse_time_s(line.bytes(1)).ok_or_else(|| line.refuse_arg(1, "invalid value"))?;
        conf.keepalive_header = Some(seconds);
    }
    Ok(())
}

/// `open_file_cache off | max=N [inactive=time]`
pub(super) fn open_file_cache(conf: &mut HttpCoreConf, line: &mut LineCx<'_>) -> Result {
    vacant(line, conf.open_file_cache.is_some())?;
    let (mut off, mut max, mut inactive) = (false, None, 60_000);
    for i in 0..line.args().len() {
        let failed =
            || line.fail_arg(i, format!("invalid \"open_file_cache\" parameter \"{}\"", line.arg(i)));
        match line.bytes(i) {
            b"off" => off = true,
            [b'm', b'a', b'x', b'=', number @ ..] => {
                let number = parse_number(number).filter(|n| *n > 0).ok_or_else(failed)?;
                max = Some(usize::try_from(number).unwrap_or(usize::MAX));
            }
            text => {
                let time = text.strip_prefix(b"inactive=").and_then(parse_time_s);
                inactive = time.ok_or_else(failed)?.saturating_mul(1000);
            }
        }
    }
    conf.open_file_cache = match (off, max) {
        (true, _) => Some(None),
        (false, Some(max)) => Some(Some(CacheSize { max, inactive })),
        (false, None) => return Err(line.fail("\"open_file_cache\" must have the \"max\" parameter")),
    };
    Ok(())
}

/// `disable_symlinks off | on | if_not_owner [from=part]`
pub(super) fn disable_symlinks(conf: &mut HttpCoreConf, line: &mut LineCx<'_>) -> Result {
    vacant(line, conf.disable_symlinks.is_some())?;
    let (mut mode, mut from) = (None, None);
    for i in 0..line.args().len() {
        match line.bytes(i) {
            [b'f', b'r', b'o', b'm', b'=', part @ ..] => {
                from = Some(ValueScript::compile_text(line, i, part)?);
            }
            name @ (b"off" | b"on" | b"if_not_owner") => mode = Some(name),
            _ => return Err(line.invalid_parameter(i)),
        }
    }
    let Some(mode) = mode else {
        return Err(line.fail("\"disable_symlinks\" must have \"off\", \"on\" or \"if_not_owner\" parameter"));
    };
    if line.args().len() == 2 && from.is_none() {
        return Err(line.fail_arg(1, format!("duplicate parameters \"{} {}\"", line.arg(0), line.arg(1))));
    }
    conf.disable_symlinks = Some(match mode {
        b"off" if from.is_some() => return Err(line.fail("\"from=\" cannot be used with \"off\" parameter")),
        b"off" => DisableSymlinks::Off,
        b"on" => DisableSymlinks::On(from),
        _ => DisableSymlinks::IfNotOwner(from),
    });
    Ok(())
}

/// A time in seconds, stored in milliseconds.
pub(super) fn seconds(line: &LineCx<'_>, slot: &mut Option<u64>) -> Result {
    let mut seconds = slot.map(|ms| ms / 1000);
    line.time_s(&mut seconds)?;
    *slot = seconds.map(|s| s.saturating_mul(1000));
    Ok(())
}

/// A size that may have variables in it.
pub(super) fn size_script(line: &mut LineCx<'_>, slot: &mut Option<ValueScript>) -> Result {
    vacant(line, slot.is_some())?;
    let script = ValueScript::compile(line, 0)?;
    if script.constant().is_some_and(|text| parse_size(text).is_none()) {
        return Err(line.refuse_arg(0, "invalid value"));
    }
    line.once(slot, script)
}

/// `early_hints value ...`; several lines add up.
pub(super) fn early_hints(conf: &mut HttpCoreConf, line: &mut LineCx<'_>) -> Result {
    for i in 0..line.args().len() {
        let value = ValueScript::compile(line, i)?;
        conf.early_hints.get_or_insert_default().push(value);
    }
    Ok(())
}

/// `directio size | off`
pub(super) fn directio(conf: &mut HttpCoreConf, line: &mut LineCx<'_>) -> Result {
    match line.bytes(0) {
        b"off" => line.once(&mut conf.accepted.directio, u64::MAX),
        _ => line.offset(&mut conf.accepted.directio),
    }
}

/// `aio on | off | threads[=pool]`
pub(super) fn aio(conf: &mut HttpCoreConf, line: &mut LineCx<'_>) -> Result {
    let text = line.bytes(0).to_vec();
    let threads = text == b"threads" || text.starts_with(b"threads=");
    line.once(&mut conf.aio_threads, threads)?;
    if threads || text == b"on" || text == b"off" { Ok(()) } else { Err(line.refuse_arg(0, "invalid value")) }
}

/// `error_log file [level]`; several in a block write to all.
pub(super) fn error_log(conf: &mut HttpCoreConf, line: &mut LineCx<'_>) -> Result {
    conf.error_log.get_or_insert_default().push(LogSpec::parse(line)?);
    Ok(())
}

/// nginx looks for a second line before it looks at the values.
fn vacant(line: &LineCx<'_>, filled: bool) -> Result {
    if filled { Err(line.refuse("is duplicate")) } else { Ok(()) }
}

impl HttpCoreConf {
    /// Opens what the block's own `error_log` lines name; without any, and without a block around that has some, the
    /// main context's logs are taken.
    pub(super) fn open_error_log(&mut self, registry: &ConfRegistry) -> Result {
        if self.error_log_open.is_some() {
            return Ok(());
        }
        self.error_log_open = match &self.error_log {
            Some(specs) => Some(ErrorLog::open(specs)?),
            None => registry.main.error_log_open.clone(),
        };
        Ok(())
    }
}

/// `resolver_cache path | off`
pub(super) fn resolver_cache(slot: &mut Option<Option<Arc<PathBuf>>>, line: &mut LineCx<'_>) -> Result {
    if line.bytes(0) == b"off" {
        return line.once(slot, None);
    }
    let mut path = None;
    line.path(&mut path)?;
    let path = path.map(Arc::new);
    line.once(slot, path.clone())?;
    let registry = line.ext::<ConfRegistry>();
    if let Some(path) = &path {
        registry.shared::<TempPaths>().add(path);
    }
    registry.shared::<CacheFolder>().0 = path;
    Ok(())
}
