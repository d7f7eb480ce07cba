//! Server names: their forms.

use std::sync::Arc;

use crate::regex::RegexPattern;

/// A name of a server. Lower case, as hosts are when they are looked up.
#[derive(Clone)]
pub enum ServerName {
    /// `www.example.com`; empty for requests without a host.
    Exact(Vec<u8>),
    /// `*.example.com`, stored as `.example.com`.
    Head(Vec<u8>),
    /// `.example.com`: the name itself and what ends in it.
    Dot(Vec<u8>),
    /// `www.example.*`, stored as `www.example.`
    Tail(Vec<u8>),
    /// `~pattern`
    Regex(Arc<RegexPattern>),
}

impl ServerName {
    /// Reads a word of `server_name` that is not a pattern: an exact name, `*.example.com`, `.example.com` or
    /// `www.example.*`, in any letter case.
    pub fn parse(text: &[u8]) -> ServerName {
        let text = text.to_ascii_lowercase();
        match &*text {
            [b'*', rest @ ..] if rest.len() > 1 && rest[0] == b'.' => ServerName::Head(rest.to_vec()),
            [b'.', _, ..] => ServerName::Dot(text),
            [_, .., b'.', b'*'] => ServerName::Tail(text[..text.len() - 1].to_vec()),
            _ => ServerName::Exact(text),
        }
    }

    /// Whether it is a name for `host`, which is in lower case and not empty; `is_match` says so of a pattern.
    pub fn matches(&self, host: &[u8], is_match: impl FnOnce(&RegexPattern) -> bool) -> bool {
        match self {
            ServerName::Exact(name) => name == host,
            ServerName::Head(rest) => host.len() > rest.len() && host.ends_with(rest),
            ServerName::Dot(rest) => host.ends_with(rest) || rest.get(1..) == Some(host),
            ServerName::Tail(start) => host.len() > start.len() && host.starts_with(start),
            ServerName::Regex(pattern) => is_match(pattern),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_hosts() {
        let is_of =
            |name: &str, host: &str| ServerName::parse(name.as_bytes()).matches(host.as_bytes(), |_| false);
        let rows = [
            ("a.test", "a.test", true),
            ("a.test", "b.a.test", false),
            ("*.a.test", "b.a.test", true),
            ("*.a.test", "a.test", false),
            ("*.a.test", "xa.test", false),
            (".a.test", "a.test", true),
            (".a.test", "b.a.test", true),
            (".a.test", "xa.test", false),
            ("www.a.*", "www.a.org", true),
            ("www.a.*", "www.ab.org", false),
            ("www.a.*", "www.a.", false),
            ("_", "a.test", false),
            ("", "a.test", false),
        ];
        for (name, host, expected) in rows {
            assert_eq!(is_of(name, host), expected, "{name} {host}");
        }
    }
}
