//! File name patterns, as `include` takes them: those of glob(7).

/// Whether a path has a pattern in it, by nginx's test.
pub(crate) fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|b| matches!(b, b'*' | b'?' | b'['))
}

/// Paths that match `pattern`, sorted by their bytes. `list` names the entries of a directory, empty if it is not one;
/// `exists` says whether a path is there.
pub(crate) fn expand(
    pattern: &[u8],
    list: &dyn Fn(&[u8]) -> Vec<Vec<u8>>,
    exists: &dyn Fn(&[u8]) -> bool,
) -> Vec<Vec<u8>> {
    let mut found = vec![Vec::new()];
    for (i, part) in pattern.split(|&b| b == b'/').enumerate() {
        if i > 0 {
            found.iter_mut().for_each(|path| path.push(b'/'));
        }
        if is_pattern(part) {
            found = found.iter().flat_map(|directory| matching(directory, part, list)).collect();
        } else {
            let name = unescape(part);
            found.iter_mut().for_each(|path| path.extend_from_slice(&name));
        }
    }
    found.retain(|path| exists(path));
    found.sort();
    found
}

fn matching(directory: &[u8], part: &[u8], list: &dyn Fn(&[u8]) -> Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let names = list(directory).into_iter().filter(|name| name_matches(part, name));
    names.map(|name| [directory, &name].concat()).collect()
}

/// Whether `name` matches `pattern`; a leading dot is matched by a dot alone.
fn name_matches(pattern: &[u8], name: &[u8]) -> bool {
    let hidden = name.first() == Some(&b'.') && pattern.first() != Some(&b'.');
    !hidden && matches(pattern, name)
}

/// Matches with one place to return to, the last `*`: linear in the usual case, never worse than length times
/// length.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, n));
            p += 1;
        } else if let Some(length) = one(&pattern[p..], name[n]) {
            (p, n) = (p + length, n + 1);
        } else if let Some((after, from)) = star {
            (p, n) = (after, from + 1);
            star = Some((after, from + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

/// The length of the pattern's first element, if it matches `byte`.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', set @ ..] => match class(set, byte) {
            Some((length, found)) => found.then_some(length + 1),
            None => (byte == b'[').then_some(1),
        },
        [letter, ..] => (*letter == byte).then_some(1),
    }
}

/// The length of the set after a `[`, and whether `byte` is in it; `None` if no `]` ends it.
fn class(set: &[u8], byte: u8) -> Option<(usize, bool)> {
    let negated = matches!(set.first(), Some(b'!' | b'^'));
    let (mut i, mut found) = (usize::from(negated), false);
    let first = i;
    loop {
        match &set[i..] {
            [] => return None,
            [b']', ..] if i > first => return Some((i + 1, found != negated)),
            [b'[', b':', rest @ ..] if named_class(rest).is_some() => {
                let (length, is_in) = named_class(rest)?;
                found |= is_in(&byte);
                i += 2 + length;
            }
            [low, b'-', high, ..] if *high != b']' => {
                found |= (*low..=*high).contains(&byte);
                i += 3;
            }
            [b'\\', letter, ..] => {
                found |= *letter == byte;
                i += 2;
            }
            [letter, ..] => {
                found |= *letter == byte;
                i += 1;
            }
        }
    }
}

type IsIn = fn(&u8) -> bool;

/// The class of `[:digit:]`, from after the first colon, and the length of `digit:]`.
fn named_class(text: &[u8]) -> Option<(usize, IsIn)> {
    const CLASSES: [(&[u8], IsIn); 7] = [
        (b"alnum:]", u8::is_ascii_alphanumeric),
        (b"alpha:]", u8::is_ascii_alphabetic),
        (b"digit:]", u8::is_ascii_digit),
        (b"lower:]", u8::is_ascii_lowercase),
        (b"punct:]", u8::is_ascii_punctuation),
        (b"upper:]", u8::is_ascii_uppercase),
        (b"xdigit:]", u8::is_ascii_hexdigit),
    ];
    CLASSES.iter().find(|(name, _)| text.starts_with(name)).map(|(name, is_in)| (name.len(), *is_in))
}

fn unescape(part: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(part.len()), part);
    while let [first, tail @ ..] = rest {
        let (byte, after) = match (first, tail) {
            (b'\\', [escaped, after @ ..]) => (escaped, after),
            other => other,
        };
        out.push(*byte);
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (pattern, name, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf~", false),
            ("*.conf", ".conf", false),
            ("*.conf", ".a.conf", false),
            (".*", ".a", true),
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[ab]1", "b1", true),
            ("[!ab]1", "b1", false),
            ("[^ab]1", "c1", true),
            ("[0-9][0-9]-*", "05-x", true),
            ("[0-9][0-9]-*", "0x-x", false),
            ("[]]", "]", true),
            ("[a-]", "-", true),
            ("[[:digit:]x]*", "5a", true),
            ("[[:digit:]x]*", "x", true),
            ("[[:digit:]x]*", "y", false),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("*******a", "bbbbbbbbbbbbbbbbbbbbbb", false),
        ] {
            assert_eq!(name_matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn directories_expand_part_by_part_in_byte_order() {
        let files = ["/etc/b/1.conf", "/etc/a/2.conf", "/etc/a/1.conf", "/etc/a/x", "/etc/.h/1.conf"];
        let list = |directory: &[u8]| {
            let rest = files.iter().filter_map(|f| f.as_bytes().strip_prefix(directory));
            rest.filter_map(|r| r.split(|&b| b == b'/').next())
                .map(<[u8]>::to_vec)
                .collect::<std::collections::BTreeSet<_>>()
                .into_iter()
                .collect()
        };
        let exists = |path: &[u8]| files.iter().any(|f| f.as_bytes() == path);
        let found = |pattern: &str| {
            expand(pattern.as_bytes(), &list, &exists)
                .into_iter()
                .map(|p| String::from_utf8(p).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(found("/etc/*/*.conf"), ["/etc/a/1.conf", "/etc/a/2.conf", "/etc/b/1.conf"]);
        assert_eq!(found("/etc/?/x"), ["/etc/a/x"]);
        assert_eq!(found("/none/*"), Vec::<String>::new());
    }
}
