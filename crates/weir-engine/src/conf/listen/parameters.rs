//! The other arguments of `listen`.

use weir_conf::{Contexts, Error, LineCx, NamedParameter, Result, parse_number, parse_size, parse_time_s};
use weir_rt::net::TcpKeepalive;
use weir_rt::process;

use super::ListenLine;

/// Records argument `i`.
pub(super) fn set(listen: &mut ListenLine, line: &mut LineCx<'_>, i: usize) -> Result {
    let text = line.bytes(i);
    let Some((parameter, value)) = ListenParameter::find(&PARAMETERS, text) else {
        return Err(unknown(line, i, text));
    };
    let ListenSetter { is_socket, set } = parameter.set;
    listen.bind |= is_socket;
    set(listen, line, i, value)
}

type ListenParameter = NamedParameter<ListenSetter>;

/// What a parameter sets.
#[derive(Clone, Copy)]
struct ListenSetter {
    /// It is an option of the socket: only one line of an address may have such.
    is_socket: bool,
    /// Records the value of argument `i`.
    set: fn(&mut ListenLine, &mut LineCx<'_>, usize, &[u8]) -> Result,
}

const fn of_line(
    name: &'static str,
    set: fn(&mut ListenLine, &mut LineCx<'_>, usize, &[u8]) -> Result,
) -> ListenParameter {
    ListenParameter::new(name, ListenSetter { is_socket: false, set })
}

const fn of_socket(
    name: &'static str,
    set: fn(&mut ListenLine, &mut LineCx<'_>, usize, &[u8]) -> Result,
) -> ListenParameter {
    ListenParameter::new(name, ListenSetter { is_socket: true, set })
}

/// What may follow the address.
const PARAMETERS: [ListenParameter; 22] = [
    of_line("default_server", |listen, _, _, _| {
        listen.default_server = true;
        Ok(())
    }),
    of_line("default", |listen, _, _, _| {
        listen.default_server = true;
        Ok(())
    }),
    of_line("ssl", |listen, _, _, _| {
        listen.ssl = true;
        Ok(())
    }),
    of_line("http2", |listen, line, _, _| {
        listen.http2 = true;
        let instead = "use the \"http2\" directive instead";
        line.warn(format!("the \"listen ... http2\" directive is deprecated, {instead}"));
        Ok(())
    }),
    of_line(QUIC, |listen, _, _, _| {
        listen.quic = true;
        Ok(())
    }),
    of_line("proxy_protocol", |listen, _, _, _| {
        listen.proxy_protocol = true;
        Ok(())
    }),
    of_line(UDP, |listen, line, i, _| {
        if line.here() != Contexts::STREAM_SERVER {
            return Err(unknown(line, i, UDP.as_bytes()));
        }
        listen.options.udp = true;
        Ok(())
    }),
    of_socket("bind", |_, _, _, _| Ok(())),
    of_socket("deferred", |listen, _, _, _| {
        listen.options.deferred = true;
        Ok(())
    }),
    of_socket("reuseport", |listen, _, _, _| {
        listen.options.reuseport = true;
        Ok(())
    }),
    of_socket("ipv6only=on", |listen, _, _, _| {
        listen.options.ipv6only = Some(true);
        Ok(())
    }),
    of_socket("ipv6only=off", |listen, _, _, _| {
        listen.options.ipv6only = Some(false);
        Ok(())
    }),
    of_socket("backlog=", |listen, line, i, value| {
        let backlog = number(value).filter(|n| *n > 0);
        listen.has_backlog = true;
        backlog.map(|n| listen.options.backlog = n).ok_or_else(|| wrong(line, i, "backlog"))
    }),
    of_socket("fastopen=", |listen, line, i, value| {
        number(value).map(|n| listen.options.fastopen = Some(n)).ok_or_else(|| wrong(line, i, "fastopen"))
    }),
    of_socket("rcvbuf=", |listen, line, i, value| {
        size(value).map(|n| listen.options.rcvbuf = Some(n)).ok_or_else(|| wrong(line, i, "rcvbuf"))
    }),
    of_socket("sndbuf=", |listen, line, i, value| {
        size(value).map(|n| listen.options.sndbuf = Some(n)).ok_or_else(|| wrong(line, i, "sndbuf"))
    }),
    of_socket("so_keepalive=on", |listen, _, _, _| {
        listen.options.keepalive = Some(TcpKeepalive { on: true, ..TcpKeepalive::default() });
        Ok(())
    }),
    of_socket("so_keepalive=off", |listen, _, _, _| {
        listen.options.keepalive = Some(TcpKeepalive::default());
        Ok(())
    }),
    of_socket("mode=", |listen, line, i, value| {
        let text = String::from_utf8_lossy(value);
        let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= 0o777);
        listen.options.mode = mode.ok_or_else(|| wrong(line, i, "mode"))?;
        of_unix_socket(listen, line, i)
    }),
    of_socket("owner=", |listen, line, i, value| {
        let user = process::user(&String::from_utf8_lossy(value));
        let user = user.ok().flatten().ok_or_else(|| wrong(line, i, "owner"))?;
        // As with `user`, the group is the user's own unless it is named.
        let (owner, group) = &mut listen.options.owner;
        (*owner, *group) = (Some(user.uid), group.or(Some(user.gid)));
        of_unix_socket(listen, line, i)
    }),
    of_socket("group=", |listen, line, i, value| {
        let group = process::group(&String::from_utf8_lossy(value));
        listen.options.owner.1 = Some(group.ok().flatten().ok_or_else(|| wrong(line, i, "group"))?);
        of_unix_socket(listen, line, i)
    }),
    of_socket("so_keepalive=", |listen, line, i, value| {
        so_keepalive(line, i, value).map(|keepalive| listen.options.keepalive = Some(keepalive))
    }),
];

/// Permissions are those of a file.
fn of_unix_socket(listen: &ListenLine, line: &LineCx<'_>, i: usize) -> Result {
    match listen.addrs.iter().all(|address| address.ip().is_none()) {
        true => Ok(()),
        false => Err(line.fail_arg(i, format!("\"{}\" is of unix sockets alone", line.arg(i)))),
    }
}

/// nginx's words for an argument that is not in the table.
fn unknown(line: &LineCx<'_>, i: usize, text: &[u8]) -> Error {
    if let Some(value) = text.strip_prefix(b"ipv6only=").filter(|value| value.starts_with(b"o")) {
        let value = String::from_utf8_lossy(value);
        return line.fail_arg(i, format!("invalid ipv6only flags \"{value}\""));
    }
    if text.starts_with(b"accept_filter=") {
        let message = "are not supported on this platform, ignored";
        return line.fail_arg(i, format!("accept filters \"{}\" {message}", line.arg(i)));
    }
    // The older name of default_server is read, and proposed to no one.
    line.unknown_parameter(
        i,
        ListenParameter::names(&PARAMETERS).filter(|name| !["default", UDP].contains(name)),
    )
}

/// `[idle]:[interval]:[count]` with at least one of them.
fn so_keepalive(line: &LineCx<'_>, i: usize, value: &[u8]) -> Result<TcpKeepalive> {
    let invalid = || {
        let value = String::from_utf8_lossy(value);
        line.fail_arg(i, format!("invalid so_keepalive value: \"{value}\""))
    };
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

/// What UDP has no use for, in nginx's words and order.
pub(super) fn check_udp(listen: &ListenLine, line: &LineCx<'_>) -> Result {
    let options = &listen.options;
    let wrong = [
        ("fastopen", options.fastopen.is_some()),
        ("backlog", listen.has_backlog),
        ("deferred", options.deferred),
        ("ssl", listen.ssl),
        ("so_keepalive", options.keepalive.is_some()),
        ("proxy_protocol", listen.proxy_protocol),
    ];
    incompatible(line, UDP, options.udp, &wrong)?;
    has_addresses(UDP, options.udp, listen, line)
}

/// Refuses UNIX-domain sockets for datagrams.
fn has_addresses(of: &str, is_of: bool, listen: &ListenLine, line: &LineCx<'_>) -> Result {
    if is_of && listen.addrs.iter().any(|addr| addr.ip().is_none()) {
        let why = "its clients have no address to reply to";
        return Err(line.refuse(format!("\"{of}\" is not supported for a UNIX-domain socket: {why}")));
    }
    Ok(())
}

/// Refuses a line `of` something that has the first of the `wrong` parameters that is given.
fn incompatible(line: &LineCx<'_>, of: &str, is_of: bool, wrong: &[(&str, bool)]) -> Result {
    match wrong.iter().find(|(_, given)| is_of && *given) {
        Some((name, _)) => Err(line.refuse(format!("\"{name}\" parameter is incompatible with \"{of}\""))),
        None => Ok(()),
    }
}

/// The parameter of `stream`.
const UDP: &str = "udp";
/// The parameter of `http`.
const QUIC: &str = "quic";

/// What QUIC has no use for, in nginx's words.
pub(super) fn check_quic(listen: &ListenLine, line: &LineCx<'_>) -> Result {
    let options = &listen.options;
    let wrong = [
        ("fastopen", options.fastopen.is_some()),
        ("backlog", listen.has_backlog),
        ("deferred", options.deferred),
        ("ssl", listen.ssl),
        ("http2", listen.http2),
        ("so_keepalive", options.keepalive.is_some()),
        ("proxy_protocol", listen.proxy_protocol),
    ];
    incompatible(line, QUIC, listen.quic, &wrong)?;
    has_addresses(QUIC, listen.quic, listen, line)
}
