//! The other arguments of `listen`.

use weir_conf::{Error, LineCx, Result, parse_number, parse_size, parse_time_s};
use weir_rt::net::{ListenOptions, TcpKeepalive};

use super::ListenLine;

/// Records argument `i`.
pub(super) fn set(listen: &mut ListenLine, line: &mut LineCx<'_>, i: usize) -> Result {
    match line.bytes(i) {
        b"default_server" | b"default" => listen.default_server = true,
        b"proxy_protocol" => listen.proxy_protocol = true,
        b"ssl" => listen.ssl = true,
        b"http2" => {
            listen.http2 = true;
            let instead = "use the \"http2\" directive instead";
            line.warn(format!("the \"listen ... http2\" directive is deprecated, {instead}"));
        }
        b"quic" => listen.quic = true,
        text => {
            socket(listen, line, i, text)?;
            listen.bind = true;
        }
    }
    Ok(())
}

/// Parameters that are options of the socket.
fn socket(listen: &mut ListenLine, line: &LineCx<'_>, i: usize, text: &[u8]) -> Result {
    let options = &mut listen.options;
    match text {
        b"bind" => {}
        b"deferred" => options.deferred = true,
        b"reuseport" => options.reuseport = true,
        b"ipv6only=on" => options.ipv6only = Some(true),
        b"ipv6only=off" => options.ipv6only = Some(false),
        _ => {
            let mut parts = text.splitn(2, |b| *b == b'=');
            let (name, value) = (parts.next().unwrap_or_default(), parts.next());
            match (name, value) {
                (b"backlog", Some(value)) => {
                    options.backlog =
                        number(value).filter(|n| *n > 0).ok_or_else(|| wrong(line, i, "backlog"))?;
                }
                (b"fastopen", Some(value)) => {
                    options.fastopen = Some(number(value).ok_or_else(|| wrong(line, i, "fastopen"))?);
                }
                (b"rcvbuf", Some(value)) => {
                    options.rcvbuf = Some(size(value).ok_or_else(|| wrong(line, i, "rcvbuf"))?);
                }
                (b"sndbuf", Some(value)) => {
                    options.sndbuf = Some(size(value).ok_or_else(|| wrong(line, i, "sndbuf"))?);
                }
                (b"so_keepalive", Some(value)) => options.keepalive = Some(so_keepalive(line, i, value)?),
                (b"ipv6only", Some(value)) if value.starts_with(b"o") => {
                    let value = String::from_utf8_lossy(value);
                    return Err(line.fail_arg(i, format!("invalid ipv6only flags \"{value}\"")));
                }
                (b"accept_filter", Some(_)) => {
                    let message = "are not supported on this platform, ignored";
                    return Err(line.fail_arg(i, format!("accept filters \"{}\" {message}", line.arg(i))));
                }
                _ => return Err(line.invalid_parameter(i)),
            }
        }
    }
    Ok(())
}

/// `on`, `off`, or `[idle]:[interval]:[count]` with at least one of them.
fn so_keepalive(line: &LineCx<'_>, i: usize, value: &[u8]) -> Result<TcpKeepalive> {
    let invalid = || {
        let value = String::from_utf8_lossy(value);
        line.fail_arg(i, format!("invalid so_keepalive value: \"{value}\""))
    };
    match value {
        b"on" => return Ok(TcpKeepalive { on: true, ..TcpKeepalive::default() }),
        b"off" => return Ok(TcpKeepalive::default()),
        _ => {}
    }
    let mut parts = value.split(|b| *b == b':');
    let mut part = |parse: fn(&[u8]) -> Option<u64>| match parts.next() {
        None | Some(b"") => Ok(None),
        Some(text) => positive(parse(text)).map(Some).ok_or_else(invalid),
    };
    let (idle, interval, count) = (part(parse_time_s)?, part(parse_time_s)?, part(parse_number)?);
    if parts.next().is_some() || (idle, interval, count) == (None, None, None) {
        return Err(invalid());
    }
    Ok(TcpKeepalive { on: true, idle, interval, count })
}

fn number(text: &[u8]) -> Option<u32> {
    parse_number(text).and_then(|n| u32::try_from(n).ok())
}

fn size(text: &[u8]) -> Option<u32> {
    parse_size(text).and_then(|n| u32::try_from(n).ok())
}

fn positive(value: Option<u64>) -> Option<u32> {
    value.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0)
}

/// `invalid backlog "backlog=x"`
fn wrong(line: &LineCx<'_>, i: usize, name: &str) -> Error {
    line.fail_arg(i, format!("invalid {name} \"{}\"", line.arg(i)))
}

/// What QUIC has no use for, in nginx's words.
pub(super) fn check_quic(listen: &ListenLine, line: &LineCx<'_>) -> Result {
    let options = &listen.options;
    let usual = ListenOptions::default();
    let wrong = [
        ("fastopen", options.fastopen.is_some()),
        ("backlog", options.backlog != usual.backlog),
        ("deferred", options.deferred),
        ("ssl", listen.ssl),
        ("http2", listen.http2),
        ("so_keepalive", options.keepalive.is_some()),
        ("proxy_protocol", listen.proxy_protocol),
    ];
    match wrong.iter().find(|(_, given)| listen.quic && *given) {
        Some((name, _)) => Err(line.refuse(format!("\"{name}\" parameter is incompatible with \"quic\""))),
        None => Ok(()),
    }
}
