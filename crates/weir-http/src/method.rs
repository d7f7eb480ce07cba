//! Request methods (RFC 9110 section 9, RFC 5789, RFC 4918): those nginx knows by name.

/// A request method; a name outside this list is [`Method::Other`] and its text stays in the request line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// `GET`.
    #[default]
    Get,
    /// `HEAD`: the response is that of `GET` without its body.
    Head,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `DELETE`.
    Delete,
    /// `OPTIONS`.
    Options,
    /// `CONNECT`: its target is an authority, not a path.
    Connect,
    /// `TRACE`.
    Trace,
    /// `PATCH`.
    Patch,
    /// `MKCOL` (WebDAV).
    Mkcol,
    /// `COPY` (WebDAV).
    Copy,
    /// `MOVE` (WebDAV).
    Move,
    /// `PROPFIND` (WebDAV).
    Propfind,
    /// `PROPPATCH` (WebDAV).
    Proppatch,
    /// `LOCK` (WebDAV).
    Lock,
    /// `UNLOCK` (WebDAV).
    Unlock,
    /// Any other well-formed name.
    Other,
}

impl Method {
    /// All methods that have a name, in declaration order.
    pub const ALL: [Method; 16] = [
        Method::Get,
        Method::Head,
        Method::Post,
        Method::Put,
        Method::Delete,
        Method::Options,
        Method::Connect,
        Method::Trace,
        Method::Patch,
        Method::Mkcol,
        Method::Copy,
        Method::Move,
        Method::Propfind,
        Method::Proppatch,
        Method::Lock,
        Method::Unlock,
    ];

    /// The method called `name`; case matters (RFC 9110 section 9.1), unknown names are `Other`.
    pub fn parse(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            b"CONNECT" => Method::Connect,
            b"TRACE" => Method::Trace,
            b"PATCH" => Method::Patch,
            b"MKCOL" => Method::Mkcol,
            b"COPY" => Method::Copy,
            b"MOVE" => Method::Move,
            b"PROPFIND" => Method::Propfind,
            b"PROPPATCH" => Method::Proppatch,
            b"LOCK" => Method::Lock,
            b"UNLOCK" => Method::Unlock,
            _ => Method::Other,
        }
    }

    /// The name as it is in a request line; `"UNKNOWN"` for [`Method::Other`].
    pub const fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
            Method::Connect => "CONNECT",
            Method::Trace => "TRACE",
            Method::Patch => "PATCH",
            Method::Mkcol => "MKCOL",
            Method::Copy => "COPY",
            Method::Move => "MOVE",
            Method::Propfind => "PROPFIND",
            Method::Proppatch => "PROPPATCH",
            Method::Lock => "LOCK",
            Method::Unlock => "UNLOCK",
            Method::Other => "UNKNOWN",
        }
    }

    /// Whether sending it twice has the effect of sending it once (RFC 9110 section 9.2.2), so that a failed
    /// upstream attempt may be repeated; nginx's `non_idempotent` are POST, LOCK and PATCH, and unknown names.
    pub const fn is_idempotent(self) -> bool {
        !matches!(self, Method::Post | Method::Lock | Method::Patch | Method::Other)
    }
}

/// Whether `byte` is allowed in a method name; nginx takes `A`-`Z`, `_` and `-` and refuses lower case.
pub(crate) const fn is_method_byte(byte: u8) -> bool {
    matches!(byte, b'A'..=b'Z' | b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        for method in Method::ALL {
            assert_eq!(Method::parse(method.as_str().as_bytes()), method);
            assert!(method.as_str().bytes().all(is_method_byte));
        }
    }

    #[test]
    fn case_and_length_matter() {
        for name in ["get", "GETS", "GE", "", "PROPFINDS", "UNKNOWN"] {
            assert_eq!(Method::parse(name.as_bytes()), Method::Other, "{name}");
        }
    }
}
