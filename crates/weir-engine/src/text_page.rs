//! `text_error_pages`: the pages of errors and redirects in H2O's form, which its clients and its tests know: a line of
//! plain text, and for redirects a link.

use weir_http::escape;

/// A page in H2O's form.
pub(crate) struct TextPage {
    /// The reason phrase; `None`: the usual one of the status.
    pub(crate) reason: Option<&'static str>,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
}

/// The page of `code`; `location` is where a redirect leads. `None`: the status has no body.
pub(crate) fn text_page(code: u16, location: Option<&[u8]>) -> Option<TextPage> {
    if let (301..=303 | 307 | 308, Some(location)) = (code, location) {
        return Some(moved(code, location));
    }
    let (reason, body) = match TEXTS.iter().find(|(known, ..)| *known == code) {
        Some((_, reason, body)) => (Some(*reason), *body),
        None if code >= 400 => (None, weir_http::status::reason(code)),
        None => return None,
    };
    Some(TextPage { reason, content_type: "text/plain; charset=utf-8", body: body.as_bytes().to_vec() })
}

fn moved(code: u16, location: &[u8]) -> TextPage {
    let mut body = b"<!DOCTYPE html><TITLE>Moved</TITLE><P>The document has moved <A HREF=\"".to_vec();
    escape::html(&mut body, location);
    body.extend_from_slice(b"\">here</A>");
    let reason = if code == 302 { Some("Found") } else { None };
    TextPage { reason, content_type: "text/html; charset=utf-8", body }
}

/// Status, reason phrase and body, where H2O's are not the usual phrase.
const TEXTS: &[(u16, &str, &str)] = &[
    (400, "Bad Request", "Bad Request"),
    (401, "Unauthorized", "Authorization required"),
    (403, "Access Forbidden", "access forbidden"),
    (404, "File Not Found", "not found"),
    (405, "Method Not Allowed", "method not allowed"),
    (413, "Request Entity Too Large", "request entity is too large"),
    (416, "Request Range Not Satisfiable", "requested range not satisfiable"),
    (500, "Internal Server Error", "internal server error"),
    (502, "Gateway Error", "connection failed"),
    (503, "Service Unavailable", "please try again later"),
    (504, "Gateway Timeout", "I/O timeout"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_a_line_and_redirects_a_link() {
        let page = text_page(404, None).expect("it has one");
        assert_eq!((page.reason, &page.body[..]), (Some("File Not Found"), &b"not found"[..]));
        let page = text_page(302, Some(b"/a?b&\"")).expect("it has one");
        assert!(String::from_utf8_lossy(&page.body).ends_with("<A HREF=\"/a?b&amp;&quot;\">here</A>"));
        assert_eq!((page.reason, page.content_type), (Some("Found"), "text/html; charset=utf-8"));
        assert!(text_page(204, None).is_none() && text_page(304, None).is_none());
        let other = text_page(429, None).expect("it has one");
        assert_eq!((other.reason, &other.body[..]), (None, &b"Too Many Requests"[..]));
    }
}
