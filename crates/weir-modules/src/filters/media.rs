//! What the filters that change bodies share: for which media types they do (`..._types`), and what becomes of the
//! fields that described the body as it was.

use weir_conf::{LineCx, Result};
use weir_engine::{Exchange, Text};
use weir_http::KnownField;

/// A set of media types, as a `..._types` directive gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MediaTypes {
    /// `*`: every response, also one without type.
    All,
    /// These, in lower case.
    Some(Vec<Box<[u8]>>),
}

impl MediaTypes {
    /// The default of a filter.
    pub(crate) fn of(names: &[&str]) -> MediaTypes {
        MediaTypes::Some(names.iter().map(|name| Box::from(name.as_bytes())).collect())
    }

    /// Those of a filter that changes HTML by default.
    pub(crate) fn or_html(types: &Option<MediaTypes>) -> MediaTypes {
        types.clone().unwrap_or_else(|| MediaTypes::of(&[HTML]))
    }

    /// Adds the words of a line to `types`; text/html always belongs to them.
    ///
    /// # Errors
    /// None; a type that is there already is a warning.
    pub(crate) fn set(types: &mut Option<MediaTypes>, line: &mut LineCx<'_>) -> Result {
        let types = types.get_or_insert_with(|| MediaTypes::of(&[HTML]));
        for (at, word) in line.args().iter().enumerate() {
            let MediaTypes::Some(names) = types else { return Ok(()) };
            let name = word.bytes().to_ascii_lowercase();
            if name == b"*" {
                *types = MediaTypes::All;
            } else if names.iter().any(|known| **known == *name) {
                let message = format!("duplicate MIME type \"{}\"", String::from_utf8_lossy(&name));
                line.warn_arg(at, message);
            } else {
                names.push(name.into());
            }
        }
        Ok(())
    }

    /// Whether the response's type, with its parameters but for a charset, is one of them.
    pub(crate) fn has(&self, x: &Exchange) -> bool {
        let MediaTypes::Some(names) = self else { return true };
        let Some(kind) = &x.response.content_type else { return false };
        let kind = x.text(kind);
        names.iter().any(|name| name.eq_ignore_ascii_case(kind))
    }
}

/// `Content-Length` is no longer that of the body.
pub(crate) fn clear_length(x: &mut Exchange) {
    x.response.content_length = None;
    x.response.remove(KnownField::ContentLength);
}

/// The validators of the body (`Last-Modified`, `ETag`) no longer hold.
pub(crate) fn clear_validators(x: &mut Exchange) {
    x.response.last_modified = None;
    x.response.remove(KnownField::LastModified);
    x.response.remove(KnownField::Etag);
}

/// The body means the same but is not the same bytes (RFC 9110 section 8.8.1); an invalid `ETag` is removed.
pub(crate) fn weaken_etag(x: &mut Exchange) {
    let Some(tag) = x.response.etag().cloned() else { return };
    let bytes = x.text(&tag);
    if bytes.starts_with(b"W/") {
        return;
    }
    if !bytes.starts_with(b"\"") {
        return x.response.remove(KnownField::Etag);
    }
    let weak = [b"W/", bytes].concat();
    let weak = Text::Span(x.arena.push(&weak));
    crate::filters::headers::replace(x, KnownField::Etag, weak);
}

/// The type of which all of nginx's filters are by default.
pub(crate) const HTML: &str = "text/html";
