//! The HTTP version of a request or response (RFC 9110 section 2.5).

/// Version a message was sent in. Ordered: `version >= Version::V11` is a meaningful question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// `GET /path` and nothing else; nginx responds without a head.
    V09,
    /// HTTP/1.0.
    V10,
    /// HTTP/1.1, and every HTTP/1.x above it, as RFC 9110 section 2.5 asks.
    #[default]
    V11,
    /// HTTP/2, never produced by the HTTP/1 parser.
    V20,
    /// HTTP/3, never produced by the HTTP/1 parser.
    V30,
}

impl Version {
    /// nginx's spelling in `$server_protocol`: two digits also for HTTP/2 and HTTP/3.
    pub const fn as_str(self) -> &'static str {
        match self {
            Version::V09 => "HTTP/0.9",
            Version::V10 => "HTTP/1.0",
            Version::V11 => "HTTP/1.1",
            Version::V20 => "HTTP/2.0",
            Version::V30 => "HTTP/3.0",
        }
    }

    /// Whether a connection stays open unless a side sends `close` (RFC 9112 section 9.3).
    pub(crate) const fn keeps_alive_by_default(self) -> bool {
        matches!(self, Version::V11 | Version::V20 | Version::V30)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_and_spelled_as_nginx_does() {
        let all = [Version::V09, Version::V10, Version::V11, Version::V20, Version::V30];
        assert!(all.is_sorted());
        assert_eq!(all.map(Version::as_str).join(" "), "HTTP/0.9 HTTP/1.0 HTTP/1.1 HTTP/2.0 HTTP/3.0");
        assert_eq!(all.map(Version::keeps_alive_by_default), [false, false, true, true, true]);
    }
}
