//! The head of a response on its way to the client: what is hidden, acted on, changed, or sent instead.

use weir_http::{Field, KnownField, Span, date};

use crate::config::directives::{UpstreamSettings, ignored};
use crate::error_log::READING_HEAD;
use crate::location::upstream_location::UpstreamLocation;
use crate::protocol::IncomingHead;
use crate::request::attempt_state::Attempt;
use weir_engine::exchange::{Exchange, HeaderName, ResponseHeader};
use weir_engine::log::LogLevel;
use weir_engine::output::interim::is_framing;
use weir_engine::phase::Verdict;
use weir_engine::redirect::InternalRedirect;
use weir_engine::text::Text;

/// Passes an interim response (103) on where `early_hints` says so and the client speaks HTTP/1.1 or newer: the fields of
/// `head` that are not hidden, at once; none if there are no such fields. Other interim responses are of no use to clients.
pub(crate) fn interim(x: &mut Exchange, up: &UpstreamLocation, incoming: &IncomingHead, head: &[u8]) {
    if incoming.status != 103 || !x.takes_hints() || x.wants_hints() != Some(true) {
        return;
    }
    let hidden = &up.settings.hidden;
    let shown = incoming
        .fields
        .iter()
        .filter(|field| !is_framing(field.known) && !hidden.has(field.known, field.name.of(head)))
        .map(|field| (field.name.of(head), field.value.of(head)));
    x.send_hints(shown);
}

impl Attempt {
    /// Whether an interim response of `len` bytes may pass to the client: all of them together may be as long as the buffer. The
    /// log has it once that more came.
    pub(crate) fn takes_hints(&mut self, x: &Exchange, len: usize) -> bool {
        let (before, most) = (self.hints, self.up.settings.buffer_size as usize);
        self.hints += len;
        if before <= most && self.hints > most {
            x.log(LogLevel::Info, &format_args!("upstream sent too big early hints while {READING_HEAD}"));
        }
        self.hints <= most
    }
}

/// What the client gets instead of this response: the goal of `X-Accel-Redirect`, or an error page.
pub(crate) fn instead(x: &mut Exchange, up: &UpstreamLocation, incoming: &IncomingHead) -> Option<Verdict> {
    if up.settings.ignore_headers & ignored::REDIRECT == 0
        && let Some(field) = incoming.fields.iter().find(|field| field.known == KnownField::XAccelRedirect)
    {
        return Some(accel(x, up, incoming, field.value));
    }
    let status = incoming.status;
    if status == 404 && up.settings.intercept_404 {
        return Some(Verdict::Status(status));
    }
    if status < 300 || !up.settings.intercept_errors || status == 304 {
        return None;
    }
    x.plan.core.error_pages.iter().find(|page| page.status == status)?;
    if status == 401 {
        for field in incoming.fields.iter().filter(|field| field.known == KnownField::WwwAuthenticate) {
            x.response.add(KnownField::WwwAuthenticate, field.value);
        }
    }
    Some(Verdict::Status(status))
}

/// `X-Accel-Redirect: /uri?args` or `@name`. The fields that are about the client, not about this body, stay, those that are
/// hidden otherwise among them; what the others ask of this server is done, and cookies are changed, as without a redirect.
fn accel(x: &mut Exchange, up: &UpstreamLocation, incoming: &IncomingHead, goal: Span) -> Verdict {
    let mut seen = 0;
    for (at, field) in incoming.fields.iter().enumerate() {
        if is_dropped(x, incoming, at, &mut seen) {
            continue;
        }
        act(x, up, field);
        match field.known {
            KnownField::SetCookie
            | KnownField::Expires
            | KnownField::CacheControl
            | KnownField::ContentDisposition => {
                let value = up.protocol.field(x, field).unwrap_or(Text::Span(field.value));
                x.response.add(field.known, value);
            }
            KnownField::ContentType => content_type(x, field.value),
            _ => {}
        }
    }
    let goal = x.arena.get(goal).to_vec();
    let Some(redirect) = InternalRedirect::checked(x, &goal) else { return Verdict::Status(404) };
    if let InternalRedirect::Uri { .. } = redirect {
        x.request.head.method = match x.request.head.method {
            weir_http::Method::Head => weir_http::Method::Head,
            _ => {
                x.request.head.method_span = x.arena.push(b"GET");
                weir_http::Method::Get
            }
        };
    }
    redirect.into()
}

/// Where the head of a response comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderOrigin {
    /// A server. What is cached may be used for ranges and conditions of this client, too.
    Server { keeps: bool },
    /// The cache.
    Cache,
}

/// Fills the head of the client's response from the server's.
pub(crate) fn copy(x: &mut Exchange, up: &UpstreamLocation, incoming: &IncomingHead, origin: HeaderOrigin) {
    x.response.status = incoming.status;
    x.response.reason = incoming.reason.map(Text::Span);
    x.response.content_length = incoming.content_length;
    x.response.force_ranges = up.settings.force_ranges;
    x.response.disable_not_modified = origin == HeaderOrigin::Server { keeps: false };
    if up.settings.force_ranges {
        x.response.allow_ranges = true;
        x.response.single_range = origin != HeaderOrigin::Cache;
    }
    let (mut seen, mut again) = (0, true);
    for (at, field) in incoming.fields.iter().enumerate() {
        if is_dropped(x, incoming, at, &mut seen) {
            again = false;
        } else {
            take_field(x, up, field, origin);
        }
    }
    // What such fields come to is more than the head, or depends on more: variables, the log.
    if !again || seen & JUDGED != 0 {
        x.forget_head();
    }
    if up.protocol.speaks_for_server() {
        leave_out(x, up, seen);
    }
}

/// `Server` and `Date` that are not hidden are the upstream server's: where it sent none (they are not among `seen`), the
/// client gets none.
fn leave_out(x: &mut Exchange, up: &UpstreamLocation, seen: u128) {
    let is_left_out = |known: KnownField| seen & bit(known) == 0 && !up.settings.hidden.has(known, b"");
    if is_left_out(KnownField::Server) {
        x.response.server = Some(Text::EMPTY);
    }
    if is_left_out(KnownField::Date) {
        x.response.date = Some(Text::EMPTY);
    }
}

/// Whether the field at `at` is one too many of those that may be there once; it is logged. `seen` has a bit for each name.
fn is_dropped(x: &Exchange, incoming: &IncomingHead, at: usize, seen: &mut u128) -> bool {
    let Some(field) = incoming.fields.get(at) else { return true };
    if is_again(field, seen)
        && let Some(before) = earlier(x, incoming, at)
    {
        let message = duplicate(x, field, before);
        x.log(LogLevel::Warn, &format_args!("{message}, ignored while {READING_HEAD}"));
        return true;
    }
    false
}

/// Why the head of a response is invalid though each of its lines is valid: a length that is there twice.
pub(crate) fn refused(x: &Exchange, incoming: &IncomingHead) -> Option<String> {
    let lengths = |field: &&Field| field.known == KnownField::ContentLength;
    let mut lengths = incoming.fields.iter().filter(lengths);
    let (first, second) = (lengths.next()?, lengths.next()?);
    Some(duplicate(x, second, first))
}

/// Whether `field` may be there once only, and was there before; `seen` has a bit for each name.
fn is_again(field: &Field, seen: &mut u128) -> bool {
    let bit = bit(field.known);
    let again = *seen & bit != 0;
    *seen |= bit;
    again && SINGLE.contains(&field.known)
}

const fn bit(known: KnownField) -> u128 {
    1 << known as u8
}

/// The first field with the name of the one at `at`, if that is another one.
fn earlier<'i>(x: &Exchange, incoming: &'i IncomingHead, at: usize) -> Option<&'i Field> {
    let name = x.arena.get(incoming.fields.get(at)?.name);
    incoming.fields.iter().take(at).find(|before| x.arena.get(before.name).eq_ignore_ascii_case(name))
}

fn duplicate(x: &Exchange, field: &Field, before: &Field) -> String {
    let text = |span| String::from_utf8_lossy(x.arena.get(span));
    let line = |field: &Field| format!("{}: {}", text(field.name), text(field.value));
    format!("upstream sent duplicate header line: \"{}\", previous value: \"{}\"", line(field), line(before))
}

/// Fields that nginx takes from a response once; the same name again is logged and does not reach the client.
const SINGLE: [KnownField; 16] = [
    KnownField::ContentType,
    KnownField::Date,
    KnownField::LastModified,
    KnownField::Etag,
    KnownField::Server,
    KnownField::Location,
    KnownField::Expires,
    KnownField::AcceptRanges,
    KnownField::ContentEncoding,
    KnownField::Refresh,
    KnownField::Status,
    KnownField::XAccelRedirect,
    KnownField::XAccelExpires,
    KnownField::XAccelLimitRate,
    KnownField::XAccelBuffering,
    KnownField::XAccelCharset,
];
/// Fields that are acted on or rewritten.
const JUDGED: u128 = bit(KnownField::Location)
    | bit(KnownField::Refresh)
    | bit(KnownField::SetCookie)
    | bit(KnownField::XAccelLimitRate)
    | bit(KnownField::XAccelCharset);
const _: () = assert!(KnownField::COUNT <= 128, "a bit for each name");

fn take_field(x: &mut Exchange, up: &UpstreamLocation, field: &Field, origin: HeaderOrigin) {
    let value = field.value;
    match field.known {
        // The filter of ranges says so to clients itself, where it may cut.
        KnownField::AcceptRanges if up.settings.force_ranges => return,
        KnownField::AcceptRanges if origin != (HeaderOrigin::Server { keeps: false }) => {
            x.response.allow_ranges = true;
            x.response.single_range = origin != HeaderOrigin::Cache;
            return;
        }
        KnownField::Connection
        | KnownField::KeepAlive
        | KnownField::TransferEncoding
        | KnownField::ContentLength => return,
        KnownField::ContentType if up.settings.hidden.has(KnownField::ContentType, b"Content-Type") => return,
        KnownField::ContentType => return content_type(x, value),
        _ => {}
    }
    act(x, up, field);
    if up.settings.hidden.has(field.known, x.arena.get(field.name)) {
        return;
    }
    let changed = up.protocol.field(x, field);
    if field.known == KnownField::Location && changed.is_some() {
        // A path alone is completed as one of this server's own.
        x.response.location = changed;
        return;
    }
    let value = changed.unwrap_or(Text::Span(value));
    match field.known {
        KnownField::Server => x.response.server = Some(value),
        KnownField::Date => x.response.date = Some(value),
        KnownField::Other => x.response.add_named(Text::Span(field.name), value),
        known => {
            if known == KnownField::LastModified {
                x.response.last_modified = date::parse(x.arena.get(field.value));
            }
            // Written as the server wrote it, but for those that filters look for.
            let name = match matters(known) {
                true => HeaderName::Known(known),
                false => HeaderName::written(known, Text::Span(field.name), &x.arena),
            };
            x.response.headers.push(ResponseHeader { name, value });
        }
    }
}

/// Fields that filters look for by what they are.
fn matters(known: KnownField) -> bool {
    matches!(
        known,
        KnownField::Etag
            | KnownField::LastModified
            | KnownField::ContentEncoding
            | KnownField::AcceptRanges
            | KnownField::ContentRange
            | KnownField::Vary
            | KnownField::CacheControl
            | KnownField::Expires
            | KnownField::WwwAuthenticate
    )
}

/// The type and its charset apart, as nginx keeps them.
fn content_type(x: &mut Exchange, value: Span) {
    let text = x.arena.get(value);
    let cut = charset(text);
    let (kind, charset) = match cut {
        None => (value, None),
        Some((end, start, stop)) => {
            let at = |offset: usize| value.start + offset as u32;
            (Span { start: value.start, end: at(end) }, Some(Span { start: at(start), end: at(stop) }))
        }
    };
    x.response.content_type = Some(Text::Span(kind));
    if let Some(charset) = charset {
        x.response.charset = Some(Text::Span(charset));
        x.response.written_type = Some(value);
    }
}

/// Where the type with its other parameters ends, and where its charset begins and ends; `None` without a charset.
fn charset(text: &[u8]) -> Option<(usize, usize, usize)> {
    let semicolons = text.iter().enumerate().filter(|(_, byte)| **byte == b';').map(|(at, _)| at);
    for semicolon in semicolons {
        let rest = text.get(semicolon + 1..)?;
        let blanks = rest.iter().take_while(|byte| **byte == b' ').count();
        let name = rest.get(blanks..)?;
        if !name.get(..8).is_some_and(|name| name.eq_ignore_ascii_case(b"charset=")) {
            continue;
        }
        let start = semicolon + 1 + blanks + 8;
        let value = text.get(start..)?;
        let quoted = value.first() == Some(&b'"') && value.len() > 1 && value.last() == Some(&b'"');
        let (start, end) = if quoted { (start + 1, text.len() - 1) } else { (start, text.len()) };
        return Some((semicolon, start, end));
    }
    None
}

/// Whether the response is read as fast as it comes: by the configuration, or as its `X-Accel-Buffering` says.
pub(crate) fn buffering(x: &Exchange, settings: &UpstreamSettings, incoming: &IncomingHead) -> bool {
    if settings.ignore_headers & ignored::BUFFERING != 0 {
        return settings.buffering;
    }
    let field = incoming.fields.iter().find(|field| field.known == KnownField::XAccelBuffering);
    match field.map(|field| x.arena.get(field.value)) {
        Some(value) if value.eq_ignore_ascii_case(b"no") => false,
        Some(value) if value.eq_ignore_ascii_case(b"yes") => true,
        _ => settings.buffering,
    }
}

/// What a field asks of this server.
fn act(x: &mut Exchange, up: &UpstreamLocation, field: &Field) {
    let ignore = up.settings.ignore_headers;
    match field.known {
        KnownField::XAccelLimitRate if ignore & ignored::LIMIT_RATE == 0 => limit_rate(x, field.value),
        KnownField::XAccelCharset if ignore & ignored::CHARSET == 0 => {
            x.response.override_charset = Some(Text::Span(field.value));
        }
        _ => {}
    }
}

fn limit_rate(x: &mut Exchange, value: Span) {
    if let Some(rate) = weir_http::header::decimal(x.arena.get(value)) {
        x.limit_rate = Some(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::charset;

    #[test]
    fn a_charset_is_told_from_its_type() {
        let parts = |text: &'static str| {
            charset(text.as_bytes()).map(|(end, start, stop)| (&text[..end], &text[start..stop]))
        };
        assert_eq!(parts("text/html"), None);
        assert_eq!(parts("text/html; charset=utf-8"), Some(("text/html", "utf-8")));
        assert_eq!(parts("text/html;charset=\"utf-8\""), Some(("text/html", "utf-8")));
        assert_eq!(parts("multipart/mixed; boundary=x"), None);
        assert_eq!(parts("text/html; a=b;charset=c"), Some(("text/html; a=b", "c")));
        assert_eq!(parts("text/html; char"), None);
    }
}
