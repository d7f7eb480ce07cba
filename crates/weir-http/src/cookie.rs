//! Look-ups inside field values and arguments: `$cookie_name`, `$arg_name`, directives of a list field.

/// The value of the cookie `name` among the values of all `Cookie` fields, in order. As nginx, names are compared
/// without case, spaces around `=` are skipped, and quotes are part of the value. Unlike nginx, a bare `name` without
/// `=` does not hide the cookie after it.
pub fn find<'a>(values: impl IntoIterator<Item = &'a [u8]>, name: &[u8]) -> Option<&'a [u8]> {
    values.into_iter().find_map(|value| element(value, name, b';'))
}

/// The value of `name` in a comma-separated field such as `Cache-Control: max-age=60`, over all its lines: bytes up to
/// the next comma, quotes included. Names are compared without case. `None` when no line has `name` followed by `=`.
pub fn directive<'a>(values: impl IntoIterator<Item = &'a [u8]>, name: &[u8]) -> Option<&'a [u8]> {
    values.into_iter().find_map(|value| element(value, name, b','))
}

/// Whether a comma-separated field such as `Cache-Control: no-store` holds the bare token `name` on any of its lines.
pub fn has_token<'a>(values: impl IntoIterator<Item = &'a [u8]>, name: &[u8]) -> bool {
    values
        .into_iter()
        .flat_map(|value| value.split(|&byte| byte == b','))
        .any(|part| strip_name(trim_start(part), name).is_some_and(|rest| trim_start(rest).is_empty()))
}

/// The value of a `Set-Cookie` field when it sets `name`, without the attributes.
pub fn set_cookie<'a>(value: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    assigned(value.split(|&byte| byte == b';').next()?, name)
}

/// The raw value of the argument `name` (compared without case, as nginx) in a query string. An argument without `=`
/// has no value.
pub fn arg<'a>(args: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    if name.is_empty() {
        return None;
    }
    args.split(|&byte| byte == b'&').find_map(|part| strip_name(part, name)?.strip_prefix(b"="))
}

fn element<'a>(value: &'a [u8], name: &[u8], separator: u8) -> Option<&'a [u8]> {
    value.split(|&byte| byte == separator).find_map(|part| assigned(trim_start(part), name))
}

/// `name = value`.
fn assigned<'a>(part: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    trim_start(strip_name(part, name)?).strip_prefix(b"=").map(trim_start)
}

fn strip_name<'a>(part: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = part.split_at_checked(name.len())?;
    head.eq_ignore_ascii_case(name).then_some(rest)
}

fn trim_start(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|&&byte| byte == b' ').count();
    text.get(spaces..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: Option<&[u8]>) -> Option<&str> {
        value.map(|bytes| std::str::from_utf8(bytes).expect("ASCII in these tests"))
    }

    #[test]
    fn cookies_are_found_over_all_fields() {
        let fields = ["a=1; b = 2;c=\"3\"", "d; e=;f=x=y", "B=other", "ab=4"].map(str::as_bytes);
        for (name, expected) in [
            ("a", Some("1")),
            ("b", Some("2")),
            ("B", Some("2")),
            ("c", Some("\"3\"")),
            ("d", None),
            ("e", Some("")),
            ("f", Some("x=y")),
            ("ab", Some("4")),
            ("x", None),
            ("=", None),
        ] {
            assert_eq!(text(find(fields, name.as_bytes())), expected, "{name}");
        }
    }

    #[test]
    fn lists_have_values_and_tokens() {
        let fields = ["public, max-age=60", "No-Store , s-maxage = 5"].map(str::as_bytes);
        assert_eq!(text(directive(fields, b"max-age")), Some("60"));
        assert_eq!(text(directive(fields, b"S-Maxage")), Some("5"));
        assert_eq!(text(directive(fields, b"public")), None);
        assert!(has_token(fields, b"no-store"));
        assert!(has_token(fields, b"public"));
        assert!(!has_token(fields, b"max-age"));
        assert!(!has_token(fields, b"pub"));
    }

    #[test]
    fn a_set_cookie_ends_at_its_attributes() {
        assert_eq!(text(set_cookie(b"a=1; Path=/", b"a")), Some("1"));
        assert_eq!(text(set_cookie(b"a=1; Path=/", b"path")), None);
        assert_eq!(text(set_cookie(b"a", b"a")), None);
    }

    #[test]
    fn arguments_are_raw_and_compare_without_case() {
        let args = b"a=1&bb=2&B=%41&c&d=&a=3&=x";
        for (name, expected) in [
            ("a", Some("1")),
            ("A", Some("1")),
            ("b", Some("%41")),
            ("bb", Some("2")),
            ("c", None),
            ("d", Some("")),
            ("e", None),
            ("", None),
        ] {
            assert_eq!(text(arg(args, name.as_bytes())), expected, "{name}");
        }
    }
}
