//! What a request's head says, checked: target, host, the virtual server, and what no request may have.

use weir_http::h1::BadRequest;
use weir_http::{Field, KnownField, Method, Span, Version, host, resembles_framing, uri};

use crate::exchange::Exchange;
use crate::exchange::known_heads;
use crate::log::LogLevel;
use crate::plan::server::VirtualServer;
use crate::regex::GivenUp;
use crate::settings::server::{InvalidValues, has_control};
use crate::transport::ClientConnection;
use crate::transport::keepalive;
use crate::transport::wire::ClientWire;

/// Why there is no request to respond to.
pub enum HeadFailure {
    /// Respond with this status and close.
    Refuse(u16),
    /// Close without a response; log a line with this status.
    Silent(u16),
    /// Nothing was asked: close, log nothing.
    Nothing,
}

/// A connection ended in the middle of the head: the log shows what of its line has come.
pub fn keep_line<J: ClientJudge>(x: &mut Exchange, wire: &ClientWire) {
    let input = wire.input.borrow();
    let bytes = input.bytes();
    keep_beginning(x, bytes);
    drop(input);
    let fields = x.request.head.fields.last().map_or(0, |field| field.value.end);
    x.request.head.len = line_end(x, fields.max(x.request.head.line.end)) as usize;
    salvage::<J>(x);
}

/// Takes over what a bad head said before it went wrong, as nginx does field by field: the target, and the host with
/// its server, whose log and error pages count.
fn salvage<J: ClientJudge>(x: &mut Exchange) {
    let target_end = x.request.head.target.end as usize;
    if target_end == 0 || target_end > x.arena.mark() as usize || target(x).is_err() {
        return;
    }
    let host = x.request.span(KnownField::Host).filter(|host| host.end <= x.arena.mark());
    let authority = target_authority(x).or(host);
    if authority.is_some_and(|authority| check_host(x, authority).is_ok()) {
        let _another = choose_server::<J>(x);
    }
}

/// `$request_length` of a bad head: how far nginx reads it.
fn reached(x: &Exchange, bad: BadRequest) -> usize {
    let kept = x.arena.get(Span { start: 0, end: x.arena.mark() });
    let offending = x.request.head.offending.start;
    match bad {
        BadRequest::ContentLengthInvalid
        | BadRequest::BothLengths
        | BadRequest::TransferEncodingUnknown
        | BadRequest::TransferEncodingHttp10 => {
            let end = kept.windows(4).position(|four| four == b"\r\n\r\n");
            end.map_or(kept.len(), |end| end + 4)
        }
        BadRequest::RepeatedHost | BadRequest::ContentLengthRepeated | BadRequest::RepeatedField(_) => {
            line_end(x, offending) as usize
        }
        _ if x.request.head.target.end == 0 => 0,
        _ => offending as usize,
    }
}

/// After the end of the line that `at` is in.
fn line_end(x: &Exchange, at: u32) -> u32 {
    let end = x.arena.mark();
    let rest = x.arena.get(Span { start: at.min(end), end });
    rest.iter().position(|byte| *byte == b'\n').map_or(end, |len| at + len as u32 + 1)
}

/// The arena takes the beginning of a head that could not be read, for the log.
fn keep_beginning(x: &mut Exchange, bytes: &[u8]) {
    x.arena.push(bytes.get(..bytes.len().min(KEPT_OF_BAD)).unwrap_or_default());
    first_line(x);
}

/// `$request` of a head that could not be read: what there is of its first line.
fn first_line(x: &mut Exchange) {
    let line = x.request.head.line;
    // Of a line that is whole and longer than what is stored the beginning is shown.
    if line.start != line.end && line.end <= x.arena.mark() {
        return;
    }
    let kept = x.arena.get(Span { start: 0, end: x.arena.mark() });
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let start = kept.iter().position(|byte| !is_end(byte)).unwrap_or(kept.len());
    let len = kept.iter().skip(start).position(is_end).unwrap_or(kept.len() - start);
    x.request.head.line = Span { start: start as u32, end: (start + len) as u32 };
}

/// Refuses a head that can't be parsed, of which `bytes` have come: the log shows their beginning.
pub fn refuse_bad<J: ClientJudge>(x: &mut Exchange, bytes: &[u8], bad: BadRequest) -> HeadFailure {
    keep_beginning(x, bytes);
    x.request.head.len = reached(x, bad);
    salvage::<J>(x);
    refuse(x, bad)
}

fn refuse(x: &mut Exchange, bad: BadRequest) -> HeadFailure {
    let kept = x.arena.get(Span { start: 0, end: x.arena.mark() });
    let message = x.request.head.log_message(bad, kept);
    let message = String::from_utf8_lossy(&message);
    x.log(LogLevel::Info, &format_args!("{message} while {}", bad.action()));
    x.keep_alive = false;
    // No content follows the head of a response to HEAD (RFC 9110, 9.3.2), also where the rest of the line is wrong.
    let line =
        kept.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).map_or(&[][..], |start| &kept[start..]);
    if line.starts_with(b"HEAD ") {
        x.request.head.method = Method::Head;
    }
    if x.request.head.version == Version::V09 {
        // nginx responds to what it can't read in its own version.
        x.request.head.version = Version::V10;
    }
    HeadFailure::Refuse(bad.status())
}

/// Judges the client of a request that came on an address with TLS, for the side that accepts connections.
pub trait ClientJudge {
    /// Whether the request may go on.
    ///
    /// # Errors
    /// The status that refuses it.
    fn check(x: &mut Exchange) -> Result<(), u16>;

    /// Whether all clients of `connection` may have what `server` has, whatever they showed of themselves: neither
    /// [`check`](ClientJudge::check) nor [`is_misdirected`](ClientJudge::is_misdirected) would refuse one.
    fn is_open(connection: &ClientConnection, server: &VirtualServer) -> bool;

    /// Whether a server that the request's host names must not respond, since the handshake named another.
    fn is_misdirected(x: &Exchange) -> bool;
}

/// Normalises target and host and finds the server, in nginx's order: what is wrong with the line is the default
/// server's to respond to, and its `merge_slashes` counts.
///
/// # Errors
/// [`HeadFailure::Refuse`] with the status of the response: 400 and the like for a bad target, host or field, 405 for
/// `TRACE`, or what [`ClientJudge`] says of the client.
pub fn check<J: ClientJudge>(x: &mut Exchange) -> Result<(), HeadFailure> {
    target(x)?;
    let (named, host) = (target_authority(x), x.request.span(KnownField::Host));
    if let Some(authority) = named.or(host) {
        check_host(x, authority)?;
    }
    if let Err(status) = choose_server::<J>(x) {
        x.keep_alive = false;
        return Err(HeadFailure::Refuse(status));
    }
    if let (Some(_), Some(host)) = (named, host)
        && host::validate(x.arena.get(host)).is_err()
    {
        return Err(bad_host(x, host));
    }
    if let Err(bad) = x.request.head.require_host() {
        return Err(refuse(x, bad));
    }
    known_heads::keep(x);
    drop_invalid(x);
    judge_values(x)?;
    match x.request.head.method {
        Method::Connect => return connect(x),
        Method::Trace => {
            x.log(LogLevel::Info, &"client sent TRACE method while reading client request headers");
            x.keep_alive = false;
            return Err(HeadFailure::Refuse(405));
        }
        Method::Options if asks_server(x) => return Err(server_options::<J>(x)),
        _ => {}
    }
    x.keep_alive = x.request.head.keep_alive() && keepalive::possible(x);
    J::check(x).map_err(HeadFailure::Refuse)
}

/// The rest of [`check`] for a request that was recalled ([`known_heads::recall`]): what follows from its head is known,
/// and good.
///
/// # Errors
/// As [`check`], but for what is wrong with target, host and fields.
pub fn check_again<J: ClientJudge>(x: &mut Exchange) -> Result<(), HeadFailure> {
    if let Err(status) = choose_server::<J>(x) {
        x.keep_alive = false;
        return Err(HeadFailure::Refuse(status));
    }
    judge_values(x)?;
    x.keep_alive = x.request.head.keep_alive() && keepalive::possible(x);
    J::check(x).map_err(HeadFailure::Refuse)
}

/// Of `OPTIONS *` what is asked for is the server, no resource of it (RFC 9110 section 9.3.7). nginx refuses it.
fn asks_server(x: &Exchange) -> bool {
    x.arena.get(x.request.head.path()) == b"*"
}

fn server_options<J: ClientJudge>(x: &mut Exchange) -> HeadFailure {
    // Nothing reads what would follow the head.
    let has_body = x.request.head.content_length.unwrap_or(0) > 0 || x.request.head.chunked;
    x.keep_alive = x.request.head.keep_alive() && keepalive::possible(x) && !has_body;
    HeadFailure::Refuse(J::check(x).err().unwrap_or(200))
}

/// Whether a tunnel may be asked for: only where one may be had, by HTTP/1.1, and without a body.
fn connect(x: &mut Exchange) -> Result<(), HeadFailure> {
    x.keep_alive = false;
    let (status, message) = match () {
        () if !x.server.settings.accepts_connect || x.request.head.version < Version::V11 => {
            (405, "client sent CONNECT method")
        }
        () if x.request.head.content_length.is_some() || x.request.head.chunked => {
            (400, "client sent CONNECT request with body")
        }
        () => return Ok(()),
    };
    x.log(LogLevel::Info, &format_args!("{message} while reading client request headers"));
    Err(HeadFailure::Refuse(status))
}

/// Points `x` at its server.
///
/// # Errors
/// 421: the name of the TLS handshake chose another server, and this one must not respond. 500: the pattern of a name
/// was given up, so that which server is meant is not known.
fn choose_server<J: ClientJudge>(x: &mut Exchange) -> Result<(), u16> {
    if x.connection.hosts.borrow().is_single() {
        return Ok(());
    }
    let connection = x.connection.clone();
    let hosts = connection.hosts.borrow().clone();
    hosts.choose(x).map_err(|GivenUp| 500_u16)?;
    match connection.named() {
        Some((_, name)) if x.arena.get(x.request.host) != name.as_bytes() && J::is_misdirected(x) => Err(421),
        _ => Ok(()),
    }
}

/// The authority in the target: that of an absolute URI, or all of what CONNECT asks for.
fn target_authority(x: &Exchange) -> Option<Span> {
    let head = &x.request.head;
    match head.method {
        // In HTTP/2 the authority is a field of its own.
        Method::Connect if head.version < Version::V20 => Some(head.target),
        _ => head.absolute.map(|absolute| absolute.authority),
    }
}

fn check_host(x: &mut Exchange, authority: Span) -> Result<(), HeadFailure> {
    let Some(parts) = host_of(x, authority) else { return Err(bad_host(x, authority)) };
    let name = Span { start: authority.start + parts.name.start, end: authority.start + parts.name.end };
    x.request.host = name;
    if parts.upper {
        let lower = x.arena.copy(name);
        x.arena.get_mut(lower).make_ascii_lowercase();
        x.request.host = lower;
    }
    if parts.port.is_some_and(|port| port != 0)
        && let Some(colon) = x.arena.get(authority).iter().rposition(|b| *b == b':')
    {
        x.request.port = Span { start: authority.start + colon as u32 + 1, end: authority.end };
    }
    Ok(())
}

/// The parts of `authority`, if it is one.
#[inline]
fn host_of(x: &Exchange, authority: Span) -> Option<host::Host> {
    let text = x.arena.get(authority);
    if let Some(known) = x.worker.authorities.borrow().find(text) {
        return Some(*known);
    }
    let host = host::validate(text).ok()?;
    x.worker.authorities.borrow_mut().keep(text, host);
    Some(host)
}

fn bad_host(x: &mut Exchange, place: Span) -> HeadFailure {
    x.log(
        LogLevel::Info,
        &match target_authority(x) {
            Some(authority) if authority == place => {
                "client sent invalid host in request line while reading client request line"
            }
            _ => "client sent invalid host header while reading client request headers",
        },
    );
    x.keep_alive = false;
    x.request.head.len = line_end(x, place.end) as usize;
    HeadFailure::Refuse(400)
}

/// Fields with unusual names are no part of the request, as `ignore_invalid_headers` and `underscores_in_headers` have
/// it, nor are those that a server may take for a length, whatever these say (nginx passes them); nothing after this
/// sees them.
fn drop_invalid(x: &mut Exchange) {
    if x.request.head.fields.iter().all(|field| field.valid) {
        return;
    }
    let ignored = x.server.settings.ignored_fields();
    let Exchange { arena, request, .. } = x;
    let is_dropped =
        |field: &Field| ignored.has(field) || (!field.valid && resembles_framing(arena.get(field.name)));
    let dropped: Vec<Field> = request.head.fields.iter().filter(|field| is_dropped(field)).copied().collect();
    for field in &dropped {
        let line = x.arena.get(Span { start: field.name.start, end: field.value.end });
        let line = String::from_utf8_lossy(line);
        let action = "while reading client request headers";
        x.log(LogLevel::Info, &format_args!("client sent invalid header line: \"{line}\" {action}"));
    }
    x.request.head.retain_fields(|field| !dropped.contains(field));
}

/// `invalid_header_values` for what the client has sent.
fn judge_values(x: &mut Exchange) -> Result<(), HeadFailure> {
    let setting = x.server.settings.invalid_received;
    if setting == InvalidValues::Off {
        return Ok(());
    }
    let Exchange { arena, request, .. } = x;
    let bad = |field: &Field| has_control(arena.get(field.value));
    if !request.head.fields.iter().any(bad) {
        return Ok(());
    }
    request.head.fields.retain(|field| !bad(field));
    let head = &mut request.head;
    head.host = head.fields.iter().position(|field| field.known == KnownField::Host).map(|at| at as u16);
    x.log(
        LogLevel::Info,
        &"client sent control bytes in the value of a header field while reading client request headers",
    );
    if setting == InvalidValues::Drop {
        return Ok(());
    }
    x.keep_alive = false;
    Err(HeadFailure::Refuse(400))
}

/// Splits and normalises the target. `host:port` has no path, and means the root.
fn target(x: &mut Exchange) -> Result<(), HeadFailure> {
    let target = x.request.head.path();
    match x.request.head.method {
        Method::Connect => {
            x.request.uri = x.arena.push(b"/");
            x.request.unparsed_uri = x.request.uri;
            return Ok(());
        }
        Method::Options if asks_server(x) => {
            (x.request.uri, x.request.unparsed_uri) = (target, target);
            return Ok(());
        }
        _ => {}
    }
    let known = x.worker.targets.borrow().find(x.arena.get(target)).copied();
    if let Some(found) = known {
        normal(x, target, &found);
        return Ok(());
    }
    let merge = x.server.settings.merge_slashes;
    let mut path = std::mem::take(&mut *x.worker.scratch.borrow_mut());
    let absolute = x.request.head.absolute.is_some();
    let text = x.arena.get(target);
    let result = if absolute {
        uri::normalize_absolute(text, merge, &mut path)
    } else {
        uri::normalize(text, merge, &mut path)
    };
    let done = match result {
        Ok(found) if !found.changed => {
            // What is normal with slashes merged is normal without.
            if !absolute && merge {
                x.worker.targets.borrow_mut().keep(text, found);
            }
            normal(x, target, &found);
            Ok(())
        }
        Ok(found) => {
            let uri = x.arena.push(&path);
            x.request.unparsed_uri = target;
            x.request.uri = uri;
            x.request.uri_is_plain = true;
            x.request.exten = found.exten.map_or_else(Span::default, |span| shift(span, uri.start));
            x.request.args = found.args.map_or_else(Span::default, |span| shift(span, target.start));
            if absolute && x.arena.get(target).first() != Some(&b'/') {
                let start = x.arena.mark();
                x.arena.push(b"/");
                x.arena.copy(target);
                x.request.unparsed_uri = x.arena.since(start);
            }
            Ok(())
        }
        Err(bad) => {
            refuse_target(x);
            Err(HeadFailure::Refuse(bad.status()))
        }
    };
    *x.worker.scratch.borrow_mut() = path;
    done
}

#[cold]
fn refuse_target(x: &mut Exchange) {
    // nginx has not seen the fields at this point.
    x.request.head.fields.clear();
    x.log(LogLevel::Info, &"client sent invalid request while reading client request line");
    x.keep_alive = false;
    x.request.head.len = line_end(x, x.request.head.line.end) as usize;
    x.request.uri = x.arena.push(b"");
}

/// The path of `target` is normal as it was sent.
#[inline]
fn normal(x: &mut Exchange, target: Span, found: &uri::NormalizedUri) {
    x.request.unparsed_uri = target;
    x.request.uri = Span { start: target.start, end: target.start + found.path_len as u32 };
    x.request.uri_is_plain = true;
    let place = |span: Option<Span>| span.map_or_else(Span::default, |span| shift(span, target.start));
    (x.request.exten, x.request.args) = (place(found.exten), place(found.args));
}

fn shift(span: Span, by: u32) -> Span {
    Span { start: by + span.start, end: by + span.end }
}

/// Of a bad head this many bytes are retained for the log.
const KEPT_OF_BAD: usize = 8192;
