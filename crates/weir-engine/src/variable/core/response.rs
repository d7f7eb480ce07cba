//! The response: its status, how much of it left, and those of its fields that are no list entries.

use weir_http::KnownField;

use super::{copied, fields, number};
use crate::exchange::Exchange;
use crate::log::LogLevel;
use crate::text::Text;
use crate::transport::redirect_target;

/// `$status`, in three digits: what `error_page` was entered with comes first, `000` means none yet.
pub(super) fn status(x: &mut Exchange) -> Option<Text> {
    let status = match x.response.err_status {
        0 => x.response.status,
        status => status,
    };
    let digit = |power| b'0' + (status / power % 10) as u8;
    copied(x, &[digit(100), digit(10), digit(1)])
}

pub(super) fn bytes_sent(x: &mut Exchange) -> Option<Text> {
    let sent = x.bytes_sent();
    number(x, sent)
}

pub(super) fn body_bytes_sent(x: &mut Exchange) -> Option<Text> {
    let sent = x.body_bytes_sent();
    number(x, sent)
}

/// `$request_completion`: `OK` once the whole response was handed over, else empty. A subrequest has no response of its
/// own: empty, as in nginx.
pub(super) fn completion(x: &mut Exchange) -> Option<Text> {
    Some(if x.is_complete() && !x.is_subrequest() { Text::Static(b"OK") } else { Text::EMPTY })
}

/// `$limit_rate`, bytes a second: what the request was given, else the location's.
pub(super) fn limit_rate(x: &mut Exchange) -> Option<Text> {
    let rate = match x.limit_rate {
        Some(rate) => rate,
        None => {
            let plan = x.plan.clone();
            let value = plan.core.limit_rate.as_ref().map(|script| script.value(x));
            value.and_then(|value| weir_conf::parse_size(x.text(&value))).unwrap_or(0)
        }
    };
    number(x, rate)
}

/// `set $limit_rate`: a size, as in the directive.
pub(super) fn set_limit_rate(x: &mut Exchange, value: &[u8]) {
    match weir_conf::parse_size(value) {
        Some(rate) => x.limit_rate = Some(rate),
        None => {
            x.log(
                LogLevel::Error,
                &format_args!("invalid $limit_rate \"{}\"", String::from_utf8_lossy(value)),
            );
        }
    }
}

/// `$sent_http_content_type`; with the charset once the head is out, as nginx has it.
pub(super) fn content_type(x: &mut Exchange) -> Option<Text> {
    let Some(kind) = x.response.content_type.clone() else {
        return fields::response_field(x, "content_type");
    };
    if x.response.not_modified {
        return None;
    }
    // What an upstream wrote is seen as it is from the beginning.
    if let Some(whole) = x.response.as_written() {
        return Some(Text::Span(whole));
    }
    let charset = if x.response.header_sent { x.response.charset.clone() } else { None };
    let Some(charset) = charset else { return Some(kind) };
    let start = x.arena.mark();
    x.arena.append(&kind);
    x.arena.push(b"; charset=");
    x.arena.append(&charset);
    Some(Text::Span(x.arena.since(start)))
}

pub(super) fn content_length(x: &mut Exchange) -> Option<Text> {
    match x.response.content_length {
        Some(_) if x.response.not_modified => None,
        Some(length) => number(x, length),
        None => fields::response_field(x, "content_length"),
    }
}

/// `$sent_http_location`; absolute once the head is out, if that is how it went.
pub(super) fn location(x: &mut Exchange) -> Option<Text> {
    let Some(location) = x.response.location.clone() else { return fields::response_field(x, "location") };
    if !x.response.header_sent {
        return Some(location);
    }
    let mut target = Vec::new();
    redirect_target(x, &location, &mut target);
    copied(x, &target)
}

pub(super) fn last_modified(x: &mut Exchange) -> Option<Text> {
    match (x.response.header(KnownField::LastModified), x.response.last_modified) {
        (Some(value), _) => Some(value.clone()),
        (None, Some(seconds)) => copied(x, &weir_http::date::http(seconds)),
        (None, None) => None,
    }
}

pub(super) fn connection(x: &mut Exchange) -> Option<Text> {
    if let Some(own) = x.response.header(KnownField::Connection) {
        return Some(own.clone());
    }
    Some(Text::Static(match (x.response.status, x.keep_alive) {
        (101, _) => b"upgrade",
        (_, true) => b"keep-alive",
        (_, false) => b"close",
    }))
}

/// `$sent_http_keep_alive`: what the second argument of `keepalive_timeout` makes of it.
pub(super) fn keep_alive(x: &mut Exchange) -> Option<Text> {
    let seconds = x.plan.core.keepalive_header;
    if !x.keep_alive || seconds == 0 {
        return None;
    }
    Some(Text::Span(x.arena.write(|out| {
        out.extend_from_slice(b"timeout=");
        weir_http::h1::number(out, seconds);
    })))
}

pub(super) fn transfer_encoding(x: &mut Exchange) -> Option<Text> {
    x.response.chunked.then_some(Text::Static(b"chunked"))
}
