//! Hosts that `reproxy` may ask: the patterns after its location.

use weir_http::uri_reference::HttpAuthority;

/// A word of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AllowedHost {
    /// `*`: every host with every port, and no socket of this machine.
    Any,
    /// `name`, `name:port`, `name:*`
    Named(Vec<u8>, AllowedPort),
    /// `*.name`: what ends in it, stored with the dot; the name itself is not meant.
    Below(Vec<u8>, AllowedPort),
    /// `unix:/path`
    Socket(Vec<u8>),
    /// `unix:*`
    AnySocket,
}

/// Which ports of a host are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllowedPort {
    /// That of the scheme.
    Usual,
    /// This one.
    Exactly(u16),
    Any,
}

impl AllowedHost {
    /// Reads a word of the list; `None`: it is invalid.
    pub(super) fn parse(text: &[u8]) -> Option<AllowedHost> {
        match text {
            b"*" => return Some(AllowedHost::Any),
            b"unix:*" => return Some(AllowedHost::AnySocket),
            _ => {}
        }
        if text.starts_with(b"unix:") {
            let socket = HttpAuthority::parse(&[b"[", text, b"]"].concat()).ok()?;
            let HttpAuthority::Unix(path) = socket else { return None };
            return Some(AllowedHost::Socket(path));
        }
        let (text, is_any) = text.strip_suffix(b":*").map_or((text, false), |text| (text, true));
        let (text, is_below) = text.strip_prefix(b"*").map_or((text, false), |text| (text, true));
        if is_below && !matches!(text, [b'.', rest @ ..] if !rest.starts_with(b".")) {
            return None;
        }
        let Ok(HttpAuthority::Host { name, port }) = HttpAuthority::parse(text) else { return None };
        // Of labels that are empty no host has a name.
        if name == b"." || name.windows(2).any(|pair| pair == b"..") || (!is_below && name.starts_with(b"."))
        {
            return None;
        }
        let port = match (port, is_any) {
            (None, false) => AllowedPort::Usual,
            (None, true) => AllowedPort::Any,
            (Some(port), false) => AllowedPort::Exactly(port),
            (Some(_), true) => return None,
        };
        Some(if is_below { AllowedHost::Below(name, port) } else { AllowedHost::Named(name, port) })
    }

    /// Whether a URL of `authority` may be asked for.
    pub(super) fn allows(&self, https: bool, authority: &HttpAuthority) -> bool {
        match (self, authority) {
            (AllowedHost::Any, HttpAuthority::Host { .. }) => true,
            (AllowedHost::AnySocket, HttpAuthority::Unix(_)) => true,
            (AllowedHost::Socket(path), HttpAuthority::Unix(asked)) => path == asked,
            (AllowedHost::Named(name, ports), HttpAuthority::Host { name: asked, port }) => {
                name == asked && ports.has(https, *port)
            }
            (AllowedHost::Below(rest, ports), HttpAuthority::Host { name, port }) => {
                name.len() > rest.len() && name.ends_with(rest) && ports.has(https, *port)
            }
            _ => false,
        }
    }
}

impl AllowedPort {
    fn has(self, https: bool, port: Option<u16>) -> bool {
        let usual = if https { 443 } else { 80 };
        match self {
            AllowedPort::Usual => port.is_none_or(|port| port == usual),
            AllowedPort::Exactly(allowed) => port.unwrap_or(usual) == allowed,
            AllowedPort::Any => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(word: &str, url: &str) -> bool {
        let allowed = AllowedHost::parse(word.as_bytes()).expect(word);
        let reference = weir_http::uri_reference::HttpReference::parse(url.as_bytes()).expect(url);
        allowed.allows(reference.https == Some(true), &reference.authority.expect(url))
    }

    #[test]
    fn only_what_is_named_is_allowed() {
        let rows = [
            ("a.test", "http://A.test/", true),
            ("A.test", "http://a.test:80/", true),
            ("a.test", "https://a.test:443/", true),
            ("a.test", "https://a.test:80/", false),
            ("a.test", "http://a.test:22/", false),
            ("a.test", "http://b.a.test/", false),
            ("a.test", "http://a.test.evil/", false),
            ("a.test:8080", "http://a.test:8080/", true),
            ("a.test:8080", "http://a.test/", false),
            ("a.test:80", "http://a.test/", true),
            ("a.test:*", "http://a.test:22/", true),
            ("*.a.test", "http://b.a.test/", true),
            ("*.a.test", "http://c.b.a.test/", true),
            ("*.a.test", "http://a.test/", false),
            ("*.a.test", "http://xa.test/", false),
            ("*.a.test:8080", "http://b.a.test:8080/", true),
            ("*.a.test:*", "http://b.a.test:22/", true),
            ("[::1]", "http://[::1]/", true),
            ("[::1]:8080", "http://[::1]:8080/", true),
            ("127.0.0.1", "http://127.0.0.1/", true),
            ("127.0.0.1", "http://2130706433/", false),
            ("*", "http://a.test:22/", true),
            ("*", "http://[unix:/run/a.sock]/", false),
            ("unix:/run/a.sock", "http://[unix:/run/a.sock]/", true),
            ("unix:/run/a.sock", "http://[unix:/run/b.sock]/", false),
            ("unix:*", "http://[unix:/run/b.sock]/", true),
            ("unix:*", "http://a.test/", false),
        ];
        for (word, url, expected) in rows {
            assert_eq!(allows(word, url), expected, "{word} {url}");
        }
        for wrong in [
            "", ".", "*.", "*.:80", "a..b", ".a", "*a", "**", "*.*", "a:0", "a:80:*", "a/b", "u@a", "unix:",
            "unix:a", "http://a", "a b", "*..a", "[::1",
        ] {
            assert_eq!(AllowedHost::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
