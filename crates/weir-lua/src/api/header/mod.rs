//! `ngx.header`, and how scripts read and write fields.

pub(crate) mod ffi;
pub(crate) mod fields;

use std::borrow::Cow;

use weir_engine::exchange::FieldPattern;
use weir_engine::log::LogLevel;
use weir_engine::{Exchange, Text};
use weir_http::header::is_token_byte;
use weir_http::{KnownField, classify};

use crate::api::{control, encode};
use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, expect_string, function};
use crate::run::lend;
use crate::run::settings::{ScriptSettings, TypeRemoved};
use crate::vm::phase::{REQUEST, ScriptPhase};

pub(super) const TABLE: &[ApiFunction] =
    &[function("_header_get", REQUEST, get), function("_header_set", REQUEST, set)];

pub(crate) type HeaderField = (Vec<u8>, Vec<u8>);

/// The type, and the charset with it.
fn content_type(x: &Exchange) -> Option<Vec<u8>> {
    x.response.typed_whole(&x.arena)
}

/// The response's fields as scripts see them.
pub(crate) fn response_fields(x: &mut Exchange) -> Vec<HeaderField> {
    let text = |text: &Text| x.text(text).to_vec();
    let response = &x.response;
    let mut fields = Vec::new();
    if let Some(kind) = content_type(x) {
        fields.push((b"content-type".to_vec(), kind));
    }
    if let Some(length) = response.content_length {
        fields.push((b"content-length".to_vec(), length.to_string().into_bytes()));
    }
    if let Some(seconds) = response.last_modified {
        fields.push((b"last-modified".to_vec(), weir_http::date::http(seconds).to_vec()));
    }
    let composed: [(&[u8], _); 3] =
        [(b"location", &response.location), (b"Server", &response.server), (b"Date", &response.date)];
    for (name, value) in composed {
        if let Some(value) = value.as_ref().map(text).filter(|value| !value.is_empty()) {
            fields.push((name.to_vec(), value));
        }
    }
    for header in &response.headers {
        fields.push((header.name.bytes(&x.arena).to_vec(), text(&header.value)));
    }
    let close = if x.keep_alive { &b"keep-alive"[..] } else { b"close" };
    fields.push((b"connection".to_vec(), close.to_vec()));
    fields
}

/// The field's name in the first argument, with hyphens for underscores where the location wants that.
fn field_name(l: LuaState, function: &str) -> Result<Vec<u8>, LuaRaise> {
    Ok(response_name(&expect_string(&l, 1, function)?)?.into_owned())
}

/// The name that a field of the response has for scripts.
pub(crate) fn response_name(name: &[u8]) -> Result<Cow<'_, [u8]>, LuaRaise> {
    if !name.contains(&b'_')
        || !lend::exchange(|x| x.plan.kept::<ScriptSettings>().is_none_or(|kept| kept.underscores))?
    {
        return Ok(Cow::Borrowed(name));
    }
    let mut name = name.to_vec();
    name.iter_mut().filter(|byte| **byte == b'_').for_each(|byte| *byte = b'-');
    Ok(Cow::Owned(name))
}

/// A field that scripts have given a value; one without it is not sent.
fn shown(x: &Exchange, value: Option<&Text>) -> Vec<Vec<u8>> {
    value.map(|value| x.text(value).to_vec()).filter(|value| !value.is_empty()).into_iter().collect()
}

/// The values of the response's field.
fn response_values(name: &[u8]) -> Result<Vec<Vec<u8>>, LuaRaise> {
    lend::exchange(|x| match classify(name) {
        KnownField::ContentType => content_type(x).into_iter().collect(),
        KnownField::ContentLength => {
            x.response.content_length.iter().map(|l| l.to_string().into_bytes()).collect()
        }
        KnownField::LastModified => {
            x.response.last_modified.iter().map(|seconds| weir_http::date::http(*seconds).to_vec()).collect()
        }
        KnownField::Location if x.response.location.is_some() => {
            x.response.location.iter().map(|value| x.text(value).to_vec()).collect()
        }
        KnownField::Server => shown(x, x.response.server.as_ref()),
        KnownField::Date => shown(x, x.response.date.as_ref()),
        _ => {
            let headers = x.response.headers.iter();
            let named = headers.filter(|header| header.name.bytes(&x.arena).eq_ignore_ascii_case(name));
            named.map(|header| x.text(&header.value).to_vec()).collect()
        }
    })
}

fn get(l: LuaState) -> CallOutcome {
    let found = response_values(&field_name(l, "__index")?)?;
    match &found[..] {
        [] => l.push_nil(),
        [one] => l.push_bytes(one),
        many => {
            l.new_table(many.len(), 0);
            for (at, value) in many.iter().enumerate() {
                l.push_bytes(value);
                l.raw_set_index(-2, at + 1);
            }
        }
    }
    Ok(CallDone::Results(1))
}

/// As [`listed`] but without empty values.
pub(crate) fn values(l: LuaState, at: i32) -> Result<Vec<Vec<u8>>, LuaRaise> {
    let mut list = listed(l, at)?;
    list.retain(|value| !value.is_empty());
    Ok(list)
}

/// A field's value or values; control characters are escaped.
pub(crate) fn listed(l: LuaState, at: i32) -> Result<Vec<Vec<u8>>, LuaRaise> {
    let one = |at: i32| -> Result<Vec<u8>, LuaRaise> {
        let text = match l.kind(at) {
            kind::STRING | kind::NUMBER => {
                l.push_value(at);
                let text = l.bytes(-1).unwrap_or_default().to_vec();
                l.pop(1);
                text
            }
            kind::BOOLEAN if l.boolean(at) => b"true".to_vec(),
            kind::BOOLEAN => b"false".to_vec(),
            _ => return Err(LuaRaise::text(format!("bad header value type: {}", l.kind_name(at)))),
        };
        Ok(safe_value(text))
    };
    let mut list = Vec::new();
    match l.kind(at) {
        kind::NIL | kind::NONE => {}
        kind::TABLE => {
            for index in 1..=l.sequence(at).unwrap_or(0) {
                l.raw_get_index(at, index);
                let value = one(-1);
                l.pop(1);
                list.push(value?);
            }
        }
        _ => list.push(one(at)?),
    }
    Ok(list)
}

pub(crate) fn add_response(x: &mut Exchange, name: &[u8], value: &[u8]) {
    let span = x.arena.push(value);
    x.add_response_field(name, Text::Span(span));
}

fn set(l: LuaState) -> CallOutcome {
    let name = field_name(l, "__newindex")?;
    set_response(&name, listed(l, 2)?)?;
    Ok(CallDone::Results(0))
}

/// Whether scripts may write the field now. How the body is framed is the server's business.
fn is_written(name: &[u8], known: KnownField) -> bool {
    if control::is_sent() && lend::phase() != ScriptPhase::HeaderFilter {
        lend::log(LogLevel::Error, &"attempt to set ngx.header.HEADER after sending out response headers");
        return false;
    }
    !name.is_empty() && known != KnownField::TransferEncoding
}

/// Whether a response has such a field once: of several values the last counts.
fn has_one_value(name: &[u8]) -> bool {
    ONE_VALUE.iter().any(|one| one.eq_ignore_ascii_case(name))
}

/// Fields that ngx_lua gives one value.
const ONE_VALUE: [&[u8]; 11] = [
    b"Accept-Ranges",
    b"Content-Encoding",
    b"Content-Length",
    b"Content-Range",
    b"Content-Type",
    b"Date",
    b"ETag",
    b"Expires",
    b"Last-Modified",
    b"Refresh",
    b"Server",
];

/// Adds fields of that name, one for each value that is not empty.
pub(crate) fn add_values(name: &[u8], mut values: Vec<Vec<u8>>) -> Result<(), LuaRaise> {
    let safe = safe_name(name);
    values.retain(|value| !value.is_empty());
    let known = classify(&safe);
    if has_one_value(&safe) || known == KnownField::Location {
        return match values.pop() {
            Some(last) => set_response(name, vec![last]),
            None => Ok(()),
        };
    }
    if !is_written(&safe, known) {
        return Ok(());
    }
    lend::exchange(|x| values.iter().for_each(|value| add_response(x, &safe, value)))
}

/// Gives the response's field these values, none for an absent one.
fn set_response(name: &[u8], mut list: Vec<Vec<u8>>) -> Result<(), LuaRaise> {
    let safe = safe_name(name);
    let known = classify(&safe);
    if !is_written(&safe, known) {
        return match known {
            KnownField::TransferEncoding => want_chunks(&list),
            _ => Ok(()),
        };
    }
    list.retain(|value| !value.is_empty());
    if list.len() > 1 && has_one_value(&safe) {
        list.drain(..list.len() - 1);
    }
    if let (KnownField::ContentLength, [length, ..]) = (known, &list[..])
        && !length.iter().all(u8::is_ascii_digit)
    {
        return Err(LuaRaise::text("failed to set header"));
    }
    lend::exchange(|x| match &list[..] {
        [] => {
            x.state::<TypeRemoved>().0 |= known == KnownField::ContentType;
            x.remove_response_fields(FieldPattern::Exactly(&safe));
        }
        [path] if known == KnownField::Location && path.starts_with(b"/") => relative_location(x, path),
        [one] => {
            let span = x.arena.push(one);
            x.set_known_response_field(known, &safe, Text::Span(span));
        }
        many => {
            x.remove_response_fields(FieldPattern::Exactly(&safe));
            many.iter().for_each(|value| add_response(x, &safe, value));
        }
    })
}

/// `Transfer-Encoding: chunked` has the body sent in chunks although its length may be known before the head is sent; OpenResty, where it
/// is not, has the field twice then. Other values are not taken: what is sent is what the server does.
fn want_chunks(list: &[Vec<u8>]) -> Result<(), LuaRaise> {
    let wanted = matches!(list, [value] if value.eq_ignore_ascii_case(b"chunked"));
    let is_open = !control::is_sent() || lend::phase() == ScriptPhase::HeaderFilter;
    lend::exchange(|x| x.response.expect_trailers |= wanted && is_open)
}

/// A location of this server, which goes out as it is: `absolute_redirect` has no say.
pub(crate) fn relative_location(x: &mut Exchange, path: &[u8]) {
    x.remove_response_fields(FieldPattern::Exactly(b"Location"));
    let span = x.arena.push(path);
    x.response.add(KnownField::Location, Text::Span(span));
}

/// A field's name with the bytes that are not allowed in one escaped.
pub(crate) fn safe_name(name: &[u8]) -> Cow<'_, [u8]> {
    // Nearly all are without.
    if name.iter().copied().all(is_token_byte) {
        return Cow::Borrowed(name);
    }
    let mut safe = Vec::with_capacity(name.len());
    encode::escape(name, is_token_byte, &mut safe);
    Cow::Owned(safe)
}

/// A field's value with the bytes that are not allowed in one escaped.
pub(crate) fn safe_value(value: Vec<u8>) -> Vec<u8> {
    if !value.iter().any(|byte| *byte < 0x20 || *byte == 0x7f) {
        return value;
    }
    let mut safe = Vec::new();
    encode::escape(&value, |byte| byte >= 0x20 && byte != 0x7f || byte == b'\t', &mut safe);
    safe
}
