//! The nearest known name of a mistyped one.

/// The name of `names` with the fewest edits from `name`, if a typing error explains the difference: at most one
/// edit in a name of up to four letters, two up to eight, three above.
///
/// An edit is an inserted, deleted or changed letter, or two neighbours swapped (Damerau-Levenshtein, each place
/// edited once). Of equally near names the first one wins.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    if length > LONGEST {
        return None;
    }
    let allowed = match length {
        0..=1 => return None,
        2..=4 => 1,
        5..=8 => 2,
        _ => 3,
    };
    let mut best: Option<(usize, &str)> = None;
    for candidate in names.filter(|candidate| candidate.len().abs_diff(name.len()) <= 4 * allowed) {
        let edits = distance(name, candidate);
        if edits <= allowed && best.is_none_or(|(fewest, _)| edits < fewest) {
            best = Some((edits, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// `did you mean "gzip"?`, of the [`nearest`] name.
pub fn did_you_mean<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    nearest(name, names).map(|near| format!("did you mean \"{near}\"?"))
}

/// Edits between two words, with three rows of the usual table.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut two_above = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let changed = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = changed.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(two_above[j - 2] + 1);
            }
        }
        two_above = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

/// Longer words are no mistyped names; it also bounds the work.
const LONGEST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_each_kind_of_edit_once() {
        for (a, b, edits) in [
            ("gzip", "gzip", 0),
            ("gzp", "gzip", 1),
            ("gziip", "gzip", 1),
            ("gzap", "gzip", 1),
            ("gizp", "gzip", 1),
            ("", "abc", 3),
            ("proxy_past", "proxy_pass", 1),
            ("ca", "abc", 3),
        ] {
            assert_eq!((distance(a, b), distance(b, a)), (edits, edits), "{a} {b}");
        }
    }

    #[test]
    fn a_typing_error_finds_its_name_and_a_stranger_none() {
        let names = ["root", "listen", "location", "proxy_pass", "proxy_pass_header"];
        let near = |name| nearest(name, names.into_iter());
        assert_eq!(near("lisen"), Some("listen"));
        assert_eq!(near("locatoin"), Some("location"));
        assert_eq!(near("proxypass"), Some("proxy_pass"));
        assert_eq!(near("\u{feff}root"), Some("root"));
        assert_eq!(near("rewrite"), None);
        assert_eq!(near("x"), None);
        assert_eq!(near(&"a".repeat(10_000)), None);
    }
}
