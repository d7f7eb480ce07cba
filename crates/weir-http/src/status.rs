//! Status codes: nginx's reason phrases and the words of its built-in error pages. The only table of them in Weir.
//!
//! The phrase on the wire and the title of the page differ in places (302, 401), and codes nginx has no words for go
//! out with an empty phrase, as nginx sends them.

/// The header section did not fit the buffers; sent as 400 with its own page.
pub(crate) const HEADER_TOO_LARGE: u16 = 494;
/// The client certificate did not verify; sent as 400.
pub(crate) const CERT_ERROR: u16 = 495;
/// No client certificate was sent though one is required; sent as 400.
pub(crate) const NO_CERT: u16 = 496;
/// A plain HTTP request on an HTTPS port; sent as 400.
pub(crate) const TO_HTTPS: u16 = 497;
/// The client closed before a response could be sent; only ever seen in logs.
pub const CLIENT_CLOSED: u16 = 499;

/// Code and phrase as they are in a status line, `"404 Not Found"`; `None` when nginx has no words for the code.
/// Meant for precomputing status lines.
pub fn line(status: u16) -> Option<&'static str> {
    Some(match status {
        100 => "100 Continue",
        101 => "101 Switching Protocols",
        103 => "103 Early Hints",
        200 => "200 OK",
        201 => "201 Created",
        202 => "202 Accepted",
        204 => "204 No Content",
        206 => "206 Partial Content",
        301 => "301 Moved Permanently",
        302 => "302 Moved Temporarily",
        303 => "303 See Other",
        304 => "304 Not Modified",
        307 => "307 Temporary Redirect",
        308 => "308 Permanent Redirect",
        400 => "400 Bad Request",
        401 => "401 Unauthorized",
        402 => "402 Payment Required",
        403 => "403 Forbidden",
        404 => "404 Not Found",
        405 => "405 Not Allowed",
        406 => "406 Not Acceptable",
        407 => "407 Proxy Authentication Required",
        408 => "408 Request Time-out",
        409 => "409 Conflict",
        410 => "410 Gone",
        411 => "411 Length Required",
        412 => "412 Precondition Failed",
        413 => "413 Request Entity Too Large",
        414 => "414 Request-URI Too Large",
        415 => "415 Unsupported Media Type",
        416 => "416 Requested Range Not Satisfiable",
        421 => "421 Misdirected Request",
        429 => "429 Too Many Requests",
        500 => "500 Internal Server Error",
        501 => "501 Not Implemented",
        502 => "502 Bad Gateway",
        503 => "503 Service Temporarily Unavailable",
        504 => "504 Gateway Time-out",
        505 => "505 HTTP Version Not Supported",
        507 => "507 Insufficient Storage",
        _ => return None,
    })
}

/// The reason phrase alone, `"Not Found"`; empty for a code without one.
pub fn reason(status: u16) -> &'static str {
    line(status).and_then(|line| line.get(4..)).unwrap_or("")
}

/// The words of a built-in error page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorPageText {
    /// The text of `<title>`.
    pub title: &'static str,
    /// The text of `<h1>`.
    pub heading: &'static str,
    /// One more line below the heading (494 to 497); `None` for other statuses.
    pub detail: Option<&'static str>,
}

/// The built-in page of a status; `None` when nginx has none and sends an empty body.
pub fn page(status: u16) -> Option<ErrorPageText> {
    let special = |title: &'static str| ErrorPageText {
        title,
        heading: "400 Bad Request",
        // The title is "400 " and the detail.
        detail: title.get(4..),
    };
    let title = match status {
        HEADER_TOO_LARGE => return Some(special("400 Request Header Or Cookie Too Large")),
        CERT_ERROR => return Some(special("400 The SSL certificate error")),
        NO_CERT => return Some(special("400 No required SSL certificate was sent")),
        TO_HTTPS => return Some(special("400 The plain HTTP request was sent to HTTPS port")),
        302 => "302 Found",
        401 => "401 Authorization Required",
        301..=599 if status != 304 => line(status)?,
        _ => return None,
    };
    Some(ErrorPageText { title, heading: title, detail: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_begins_with_its_code() {
        for status in 0..1000 {
            if let Some(line) = line(status) {
                assert_eq!(line.get(..4), Some(format!("{status} ").as_str()));
                assert_eq!(reason(status), line.get(4..).unwrap_or_default());
            }
        }
    }

    #[test]
    fn words_are_those_of_nginx_not_of_the_rfc() {
        for (status, words) in [
            (302, "Moved Temporarily"),
            (405, "Not Allowed"),
            (408, "Request Time-out"),
            (413, "Request Entity Too Large"),
            (494, ""),
            (497, ""),
            (418, ""),
            (444, ""),
            (499, ""),
        ] {
            assert_eq!(reason(status), words, "{status}");
        }
    }

    #[test]
    fn pages_differ_from_status_lines_where_nginx_does() {
        let title = |status| page(status).map(|page| page.title);
        assert_eq!(title(302), Some("302 Found"));
        assert_eq!(title(401), Some("401 Authorization Required"));
        assert_eq!(title(404), Some("404 Not Found"));
        assert_eq!(title(304), None);
        assert_eq!(title(204), None);
        assert_eq!(title(418), None);
        assert_eq!(
            page(HEADER_TOO_LARGE),
            Some(ErrorPageText {
                title: "400 Request Header Or Cookie Too Large",
                heading: "400 Bad Request",
                detail: Some("Request Header Or Cookie Too Large"),
            })
        );
    }
}
