//! References to resources of HTTP, as `Location` and `X-Reproxy-URL` have them (RFC 3986 section 4.1): relative ones, and
//! URLs of `http` and `https`.
//!
//! What is read here may lead this server to another one. So it is read strictly: a reference that two programs could
//! understand in two ways (control bytes, user names, other schemes, a host of unusual bytes) is none.

use std::net::Ipv6Addr;

use memchr::{memchr, memrchr};

/// A reference, in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpReference<'r> {
    /// Whether the scheme is `https`; `None`: that of the base.
    pub https: Option<bool>,
    /// The server; `None`: that of the base.
    pub authority: Option<HttpAuthority>,
    /// The path as written, which may be relative or empty.
    pub path: &'r [u8],
    /// What follows `?`; `None` without it.
    pub query: Option<&'r [u8]>,
}

/// The server of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpAuthority {
    /// `host[:port]`
    Host {
        /// A name or address in lower case; one of IPv6 has its brackets.
        name: Vec<u8>,
        /// `None` where none is written.
        port: Option<u16>,
    },
    /// `[unix:/path]`, as H2O has it: the path of a socket.
    Unix(Vec<u8>),
}

/// Why a text is no reference to a resource of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadReference {
    /// It is empty, or has blanks or control bytes.
    Text,
    /// Its scheme is neither `http` nor `https`.
    Scheme,
    /// Its host or port is invalid, or there is a user name.
    Authority,
}

impl<'r> HttpReference<'r> {
    /// Reads a reference; a fragment is left out.
    ///
    /// # Errors
    /// [`BadReference`]
    pub fn parse(text: &'r [u8]) -> Result<HttpReference<'r>, BadReference> {
        if text.is_empty() || text.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
            return Err(BadReference::Text);
        }
        let text = memchr(b'#', text).map_or(text, |end| &text[..end]);
        let (https, rest) = scheme(text)?;
        let (authority, rest) = match rest.strip_prefix(b"//") {
            Some(rest) => {
                let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?'));
                let end = match rest.strip_prefix(b"[unix:") {
                    Some(inner) => memchr(b']', inner).map(|close| b"[unix:".len() + close + 1),
                    None => end,
                };
                let (authority, rest) = rest.split_at(end.unwrap_or(rest.len()));
                (Some(HttpAuthority::parse(authority)?), rest)
            }
            None if https.is_some() => return Err(BadReference::Authority),
            None => (None, rest),
        };
        let (path, query) = match memchr(b'?', rest) {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        };
        if authority.is_some() && !matches!(path.first(), None | Some(b'/')) {
            return Err(BadReference::Authority);
        }
        Ok(HttpReference { https, authority, path, query })
    }

    /// The path and query that the reference means where `path` and `query` are the base's (RFC 3986 section 5.2.2). The
    /// path begins with `/` and has neither `.` nor `..` as a segment.
    pub fn target(&self, path: &[u8], query: Option<&[u8]>) -> Vec<u8> {
        let (mut out, query) = match self.path {
            [] if self.authority.is_none() => (without_dots(path), self.query.or(query)),
            [b'/', ..] | [] => (without_dots(self.path), self.query),
            _ => {
                let directory = memrchr(b'/', path).map_or(&b"/"[..], |at| &path[..=at]);
                (without_dots(&[directory, self.path].concat()), self.query)
            }
        };
        if let Some(query) = query {
            out.push(b'?');
            out.extend_from_slice(query);
        }
        out
    }
}

/// The scheme, if there is one, and what follows its colon.
fn scheme(text: &[u8]) -> Result<(Option<bool>, &[u8]), BadReference> {
    let end = text.iter().position(|byte| matches!(byte, b':' | b'/' | b'?'));
    let Some(at) = end.filter(|at| text[*at] == b':') else { return Ok((None, text)) };
    let (name, rest) = (&text[..at], &text[at + 1..]);
    match name {
        name if name.eq_ignore_ascii_case(b"http") => Ok((Some(false), rest)),
        name if name.eq_ignore_ascii_case(b"https") => Ok((Some(true), rest)),
        _ => Err(BadReference::Scheme),
    }
}

impl HttpAuthority {
    /// Reads `host`, `host:port` or `[unix:/path]`.
    ///
    /// # Errors
    /// [`BadReference::Authority`]
    pub fn parse(text: &[u8]) -> Result<HttpAuthority, BadReference> {
        if let Some(path) = text.strip_prefix(b"[unix:").and_then(|rest| rest.strip_suffix(b"]")) {
            let is_path =
                path.starts_with(b"/") && !path.iter().any(|byte| matches!(byte, b':' | b'[' | b']'));
            return if is_path {
                Ok(HttpAuthority::Unix(path.to_vec()))
            } else {
                Err(BadReference::Authority)
            };
        }
        let (name, port) = match text.first() {
            Some(b'[') => {
                let close = memchr(b']', text).ok_or(BadReference::Authority)?;
                let inner = std::str::from_utf8(&text[1..close]).map_err(|_| BadReference::Authority)?;
                inner.parse::<Ipv6Addr>().map_err(|_| BadReference::Authority)?;
                text.split_at(close + 1)
            }
            _ => {
                let end = memchr(b':', text).unwrap_or(text.len());
                let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
                if end == 0 || !text[..end].iter().all(is_name) {
                    return Err(BadReference::Authority);
                }
                text.split_at(end)
            }
        };
        let port = match port {
            [] => None,
            [b':', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => {
                let digits = std::str::from_utf8(digits).map_err(|_| BadReference::Authority)?;
                let port = digits.parse::<u16>().ok().filter(|port| *port > 0);
                Some(port.ok_or(BadReference::Authority)?)
            }
            _ => return Err(BadReference::Authority),
        };
        Ok(HttpAuthority::Host { name: name.to_ascii_lowercase(), port })
    }

    /// Appends it as `proxy_pass` has it: `host`, `host:port` or `unix:/path:`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            HttpAuthority::Host { name, port } => {
                out.extend_from_slice(name);
                if let Some(port) = port {
                    out.extend_from_slice(format!(":{port}").as_bytes());
                }
            }
            HttpAuthority::Unix(path) => {
                out.extend_from_slice(b"unix:");
                out.extend_from_slice(path);
                out.push(b':');
            }
        }
    }
}

/// RFC 3986 section 5.2.4; what is not absolute becomes so.
fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len() + 1);
    let mut segments = path.strip_prefix(b"/").unwrap_or(path).split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"." => {}
            b".." => {
                out.truncate(memrchr(b'/', &out).unwrap_or(0));
            }
            segment => {
                out.push(b'/');
                out.extend_from_slice(segment);
                continue;
            }
        }
        if is_last {
            out.push(b'/');
        }
    }
    if out.is_empty() {
        out.push(b'/');
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(name: &str, port: Option<u16>) -> Option<HttpAuthority> {
        Some(HttpAuthority::Host { name: name.into(), port })
    }

    #[test]
    fn urls_are_read_strictly() {
        let read = |text: &'static str| {
            HttpReference::parse(text.as_bytes())
                .map(|read| (read.https, read.authority, read.path, read.query))
        };
        assert_eq!(
            read("http://A.example/x?y#z"),
            Ok((Some(false), host("a.example", None), &b"/x"[..], Some(&b"y"[..])))
        );
        assert_eq!(read("HTTPS://a:8443"), Ok((Some(true), host("a", Some(8443)), &b""[..], None)));
        assert_eq!(read("//[::1]:80/"), Ok((None, host("[::1]", Some(80)), &b"/"[..], None)));
        assert_eq!(read("a/b:c"), Ok((None, None, &b"a/b:c"[..], None)));
        assert_eq!(read("?a:b"), Ok((None, None, &b""[..], Some(&b"a:b"[..]))));
        let unix = Some(HttpAuthority::Unix(b"/run/a.sock".to_vec()));
        assert_eq!(read("http://[unix:/run/a.sock]/x"), Ok((Some(false), unix, &b"/x"[..], None)));
        for text in ["", " /a", "/a b", "/a\r\nX: y", "/a\0", "\x7f"] {
            assert_eq!(read(text), Err(BadReference::Text), "{text:?}");
        }
        for text in ["ftp://a/", "file:///etc/passwd", "a:b", ":/a", "javascript:x", "http2://a/"] {
            assert_eq!(read(text), Err(BadReference::Scheme), "{text:?}");
        }
        let wrong = [
            "http:",
            "http:/a",
            "http:a",
            "http://",
            "http:///a",
            "http://u@a/",
            "http://u:p@a/",
            "http://a:0/",
            "http://a:65536/",
            "http://a:/",
            "http://a:+80/",
            "http://a%2eb/",
            "http://a\\@b/",
            "http://[::1/",
            "http://[::1]x/",
            "http://[fe80::1%25eth0]/",
            "http://[v1.a]/",
            "http://\u{e4}/",
            "http://[unix:a]/",
            "http://[unix:/a:b]/",
            "http://[unix:/a]:80/",
            "http://[unix:/a",
            "//",
            "http://[unix:/a]b",
        ];
        for text in wrong {
            assert_eq!(read(text), Err(BadReference::Authority), "{text:?}");
        }
    }

    /// The examples of RFC 3986 section 5.4 whose scheme is not written.
    #[test]
    fn relative_references_are_resolved() {
        let rows = [
            ("g", "/b/c/g"),
            ("./g", "/b/c/g"),
            ("g/", "/b/c/g/"),
            ("/g", "/g"),
            ("?y", "/b/c/d;p?y"),
            ("g?y", "/b/c/g?y"),
            ("#s", "/b/c/d;p?q"),
            ("g#s", "/b/c/g"),
            (";x", "/b/c/;x"),
            ("g;x=1/../y", "/b/c/y"),
            (".", "/b/c/"),
            ("./", "/b/c/"),
            ("..", "/b/"),
            ("../", "/b/"),
            ("../g", "/b/g"),
            ("../..", "/"),
            ("../../g", "/g"),
            ("../../../g", "/g"),
            ("/./g", "/g"),
            ("/../g", "/g"),
            ("g.", "/b/c/g."),
            ("..g", "/b/c/..g"),
            ("./../g", "/b/g"),
            ("g/./h", "/b/c/g/h"),
            ("g?y/../x", "/b/c/g?y/../x"),
            ("//g", "/"),
            ("//g?y", "/?y"),
            ("http://g/a/..", "/"),
            ("/", "/"),
        ];
        for (text, target) in rows {
            let read = HttpReference::parse(text.as_bytes()).expect(text);
            assert_eq!(read.target(b"/b/c/d;p", Some(b"q")).escape_ascii().to_string(), target, "{text}");
        }
    }

    #[test]
    fn an_authority_is_written_as_proxy_pass_has_it() {
        for (text, written) in [("A:80", "a:80"), ("[::1]", "[::1]"), ("[unix:/a]", "unix:/a:")] {
            let mut out = Vec::new();
            HttpAuthority::parse(text.as_bytes()).expect(text).write(&mut out);
            assert_eq!(out, written.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn a_target_is_absolute_and_has_no_dots(
            text in r"(https?://|//)?[a-c.:@\[\]/?#%2e\\]{0,24}",
            base in "/[a-c./]{0,12}",
        ) {
            let Ok(read) = HttpReference::parse(text.as_bytes()) else { return Ok(()) };
            let target = read.target(base.as_bytes(), None);
            let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
            prop_assert!(path.starts_with(b"/"));
            let dots = |segment: &[u8]| matches!(segment, b"." | b"..");
            prop_assert!(!path.split(|byte| *byte == b'/').any(dots));
            let again = HttpReference::parse(&target);
            // What begins with two slashes is an authority if it is read again.
            if !target.starts_with(b"//") {
                let again = again.expect("it was read from one");
                prop_assert_eq!(again.target(b"/x", None), target.clone());
            }
        }
    }
}
