//! Setters of the module's directives.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use weir_conf::{Error, LineCx, Result, parse_number, parse_size, parse_time_ms, parse_time_s};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::log::{LogBuffering, LogTarget};
use weir_engine::variable::ValueScript;

use super::cache::LogCacheSize;
use super::format::LogFormats;
use super::{LogBuffers, LogConf, LogPath, WrittenLog};

/// `access_log path [format [buffer=size] [gzip[=level]] [flush=time] [if=condition]]`, `access_log off`
pub(super) fn access_log(conf: &mut LogConf, line: &mut LineCx<'_>) -> Result {
    if line.bytes(0) == b"off" {
        conf.off = true;
        return if line.args().len() == 1 { Ok(()) } else { Err(line.invalid_parameter(1)) };
    }
    let path = path(line)?;
    if line.args().len() < 2 && line.ext::<ConfRegistry>().is_stream {
        return Err(line.fail("log format is not specified"));
    }
    let (name, at) = if line.args().len() > 1 { (line.bytes(1), 1) } else { (&b"combined"[..], 0) };
    let span = line.args().get(at).map_or(line.line().name.span, |word| word.span);
    let format = LogFormats::find(line.ext(), name, span);
    let format =
        format.ok_or_else(|| line.fail_arg(at, format!("unknown log format \"{}\"", line.arg(at))))?;
    let mut parameters = LogParameters::default();
    for i in 2..line.args().len() {
        parameters.set(line, i)?;
    }
    if let Some(buffering) = parameters.buffering(line)? {
        buffer(line, &path, buffering)?;
    }
    let span = line.args().first().map(|word| word.span);
    conf.written.push(WrittenLog { path, format, condition: parameters.condition, span });
    Ok(())
}

fn path(line: &mut LineCx<'_>) -> Result<LogPath> {
    let text = line.bytes(0);
    if SOCKETS.iter().any(|kind| text.starts_with(kind)) || !text.contains(&b'$') {
        return Ok(LogPath::Fixed(LogTarget::parse(line)?));
    }
    let full = line.paths().prefix.join(OsStr::from_bytes(text)).into_os_string().into_encoded_bytes();
    Ok(LogPath::Script(ValueScript::compile_text(line, 0, &full)?))
}

#[derive(Default)]
struct LogParameters {
    size: Option<usize>,
    flush: Option<u64>,
    gzip: Option<u8>,
    condition: Option<ValueScript>,
}

impl LogParameters {
    fn set(&mut self, line: &mut LineCx<'_>, i: usize) -> Result {
        let fail = |what: &str, text: &[u8]| {
            line.fail_arg(i, format!("{what} \"{}\"", String::from_utf8_lossy(text)))
        };
        match line.bytes(i) {
            [b'b', b'u', b'f', b'f', b'e', b'r', b'=', text @ ..] => {
                let size =
                    parse_size(text).and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0);
                self.size = Some(size.ok_or_else(|| fail("invalid buffer size", text))?);
            }
            [b'f', b'l', b'u', b's', b'h', b'=', text @ ..] => {
                let time = parse_time_ms(text).filter(|time| *time > 0);
                self.flush = Some(time.ok_or_else(|| fail("invalid flush time", text))?);
            }
            b"gzip" => self.compress(1),
            [b'g', b'z', b'i', b'p', b'=', text @ ..] => {
                let level = parse_number(text).filter(|level| (1..=9).contains(level));
                self.compress(level.ok_or_else(|| fail("invalid compression level", text))? as u8);
            }
            [b'i', b'f', b'=', text @ ..] => self.condition = Some(ValueScript::compile_text(line, i, text)?),
            _ => return Err(line.invalid_parameter(i)),
        }
        Ok(())
    }

    fn compress(&mut self, level: u8) {
        self.size.get_or_insert(GZIP_BUFFER);
        self.gzip = Some(level);
    }

    fn buffering(&self, line: &LineCx<'_>) -> Result<Option<LogBuffering>> {
        let Some(size) = self.size else {
            return match self.flush {
                Some(_) => Err(line.fail(format!("no buffer is defined for access_log \"{}\"", line.arg(0)))),
                None => Ok(None),
            };
        };
        Ok(Some(LogBuffering { size, flush: self.flush, gzip: self.gzip }))
    }
}

/// What begins a name that is no path.
const SOCKETS: [&[u8]; 5] = [b"|", b"syslog:", b"tcp://", b"udp://", b"unix:"];

/// Notes the buffer of a file, which all logs to it share.
fn buffer(line: &mut LineCx<'_>, path: &LogPath, buffering: LogBuffering) -> Result {
    let path = match path {
        LogPath::Fixed(LogTarget::Remote(_)) if buffering.gzip.is_some() => {
            return Err(line.fail_arg(0, "logs to a socket cannot be compressed"));
        }
        LogPath::Fixed(target @ (LogTarget::File(_) | LogTarget::Program(_) | LogTarget::Remote(_))) => {
            target.clone()
        }
        LogPath::Script(_) => return Err(line.fail_arg(0, "buffered logs cannot have variables in name")),
        LogPath::Fixed(_) => return Err(line.fail_arg(0, "logs to syslog cannot be buffered")),
    };
    let conflict = line
        .fail_arg(0, format!("access_log \"{}\" already defined with conflicting parameters", line.arg(0)));
    let buffers = line.ext::<ConfRegistry>().shared::<LogBuffers>();
    match buffers.0.iter().find(|(known, _)| *known == path) {
        Some((_, known)) if *known != buffering => Err(conflict),
        Some(_) => Ok(()),
        None => {
            buffers.0.push((path, buffering));
            Ok(())
        }
    }
}

/// `log_format name [escape=default|json|none] text ...`
pub(super) fn log_format(_conf: &mut LogConf, line: &mut LineCx<'_>) -> Result {
    LogFormats::define(line)
}

/// `open_log_file_cache max=N [inactive=time] [min_uses=N] [valid=time]`, `open_log_file_cache off`
pub(super) fn open_log_file_cache(conf: &mut LogConf, line: &mut LineCx<'_>) -> Result {
    if conf.cache.is_some() {
        return Err(line.refuse("is duplicate"));
    }
    let mut off = false;
    let mut size = LogCacheSize { max: 0, inactive: 10_000, min_uses: 1, valid: 60_000 };
    for i in 0..line.args().len() {
        let failed =
            || line.fail_arg(i, format!("invalid \"open_log_file_cache\" parameter \"{}\"", line.arg(i)));
        let (name, value) = split(line.bytes(i));
        let number = || parse_number(value).ok_or_else(failed);
        let time = || parse_time_s(value).map(|seconds| seconds.saturating_mul(1000)).ok_or_else(failed);
        match name {
            b"max=" => size.max = usize::try_from(number()?).map_err(|_| failed())?,
            b"inactive=" => size.inactive = time()?,
            b"min_uses=" => size.min_uses = number()?,
            b"valid=" => size.valid = time()?,
            b"off" => off = true,
            _ => return Err(failed()),
        }
    }
    conf.cache = match (off, size.max) {
        (true, _) => Some(None),
        (false, 0) => return Err(no_max(line)),
        (false, _) => Some(Some(Arc::new(size))),
    };
    Ok(())
}

fn no_max(line: &LineCx<'_>) -> Error {
    line.fail("\"open_log_file_cache\" must have \"max\" parameter")
}

/// `name=` and what follows.
fn split(parameter: &[u8]) -> (&[u8], &[u8]) {
    let at = parameter.iter().position(|byte| *byte == b'=').map_or(parameter.len(), |at| at + 1);
    parameter.split_at(at)
}

/// The buffer of compressed logs that name none.
const GZIP_BUFFER: usize = 64 << 10;
