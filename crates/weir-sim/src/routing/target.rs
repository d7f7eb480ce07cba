//! What a request's target and Host come to before a server and a location are looked for.

/// A target: path and arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TargetParts {
    /// Decoded, without dots and double slashes.
    pub(super) path: String,
    /// As they were sent.
    pub(super) arguments: String,
    /// Whether the path had an escape or a plus.
    pub(super) was_escaped: bool,
}

impl TargetParts {
    /// Reads a target in origin form; `None`: it is a bad request.
    pub(super) fn parse(target: &str) -> Option<TargetParts> {
        let target = target.split('#').next().unwrap_or("");
        let (path, arguments) = target.split_once('?').unwrap_or((target, ""));
        Some(TargetParts {
            path: without_dots(&decoded(path)?)?,
            arguments: arguments.to_owned(),
            was_escaped: path.contains(['%', '+']),
        })
    }
}

fn decoded(path: &str) -> Option<String> {
    let mut rest = path;
    let mut text = String::new();
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        let code = u8::from_str_radix(rest.get(at + 1..at + 3)?, 16).ok()?;
        if code == 0 {
            return None;
        }
        text.push(char::from(code));
        rest = &rest[at + 3..];
    }
    Some(text + rest)
}

/// `None`: it leads above the root.
fn without_dots(path: &str) -> Option<String> {
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_open = true;
    for segment in path.strip_prefix('/')?.split('/') {
        ends_open = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => (),
            ".." => drop(kept.pop()?),
            name => kept.push(name),
        }
    }
    let slash = if ends_open && !kept.is_empty() { "/" } else { "" };
    Some(format!("/{}{slash}", kept.join("/")))
}

/// The name of a host: small letters, without port and the dot at its end. `None`: it is a bad request.
pub(super) fn host_name(host: &str) -> Option<String> {
    let name = host.split(':').next().unwrap_or("");
    if name.contains('/') || name.contains("..") {
        return None;
    }
    Some(name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase())
}

/// A capture in arguments or in a redirect.
pub(super) fn escaped(text: &str) -> String {
    let is_special =
        |one: char| matches!(one, ' ' | '#' | '%' | '&' | '+' | ';' | '?') || !one.is_ascii_graphic();
    text.chars()
        .map(|one| if is_special(one) { format!("%{:02X}", u32::from(one)) } else { one.to_string() })
        .collect()
}

/// The target of a redirect: before its arguments, what need not be escaped is not, and what only looks like an escape is
/// left out.
pub(super) fn redirect_form(text: &str) -> String {
    let mut rest = text.chars();
    let mut out = String::new();
    while let Some(one) = rest.next() {
        if one == '?' {
            return out + "?" + rest.as_str();
        }
        if one != '%' {
            out.push(one);
            continue;
        }
        let first = rest.next().unwrap_or_default();
        let Some(high) = first.to_digit(16) else {
            out.push_str(first.encode_utf8(&mut [0; 4]).trim_end_matches('\0'));
            continue;
        };
        let second = rest.next().unwrap_or_default();
        let Some(low) = second.to_digit(16) else { continue };
        match char::from_u32(16 * high + low).unwrap_or_default() {
            '?' => return out + "?" + rest.as_str(),
            plain @ '&'..='~' => out.push(plain),
            _ => out.extend(['%', first, second]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalised() {
        for (target, wanted) in [
            ("/", Some(("/", ""))),
            ("/a/../b?x=/../", Some(("/b", "x=/../"))),
            ("/a//b/./c/", Some(("/a/b/c/", ""))),
            ("/a/..", Some(("/", ""))),
            ("/a/b/..", Some(("/a/", ""))),
            ("/a/.", Some(("/a/", ""))),
            ("/%61%2Fb", Some(("/a/b", ""))),
            ("/a/%2e%2e/b", Some(("/b", ""))),
            ("/a%3Fb%23c%25", Some(("/a?b#c%", ""))),
            ("/a#b?c", Some(("/a", ""))),
            ("/..a/.b", Some(("/..a/.b", ""))),
            ("/../a", None),
            ("/a/../..", None),
            ("/%", None),
            ("/%zz", None),
            ("/%00", None),
        ] {
            let parts = TargetParts::parse(target);
            let parts = parts.as_ref().map(|parts| (parts.path.as_str(), parts.arguments.as_str()));
            assert_eq!(parts, wanted, "{target}");
        }
    }

    #[test]
    fn hosts_are_names() {
        for (host, wanted) in [
            ("A.Test", Some("a.test")),
            ("a.test:80", Some("a.test")),
            ("a.test.", Some("a.test")),
            ("a..test", None),
            ("a/b", None),
        ] {
            assert_eq!(host_name(host).as_deref(), wanted, "{host}");
        }
    }

    #[test]
    fn redirects_lose_escapes_that_they_do_not_need() {
        assert_eq!(redirect_form("/a%2Fb%20c%25?x=%2F"), "/a/b%20c%25?x=%2F");
        assert_eq!(redirect_form("/c%d/e%zf%3F%2F"), "/cezf?%2F");
        assert_eq!(escaped("a b/c?d"), "a%20b/c%3Fd");
    }
}
