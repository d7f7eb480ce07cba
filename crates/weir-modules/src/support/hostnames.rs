//! Values by host name: exact names and such with a star at an end, as `map` and `valid_referers` have them.

use weir_engine::name_map::NameMap;

/// A table of names; the longest wildcard counts, those at the start of a name before those at its end.
pub(crate) struct HostTable<V> {
    /// By name, in lower case.
    exact: NameMap<V>,
    /// By what follows the star, its dot included.
    heads: NameMap<V>,
    /// By what precedes the star, its dot included.
    tails: NameMap<V>,
}

impl<V> Default for HostTable<V> {
    fn default() -> Self {
        HostTable { exact: NameMap::default(), heads: NameMap::default(), tails: NameMap::default() }
    }
}

impl<V: Clone> HostTable<V> {
    /// Adds a name; `false`: it, or a part of what it matches, has a value already, which is replaced.
    pub(crate) fn insert(&mut self, key: HostKey<'_>, value: V) -> bool {
        match key {
            HostKey::Exact(text) => self.exact.insert(text.into(), value).is_none(),
            HostKey::Head(rest) => self.heads.insert(rest.into(), value).is_none(),
            HostKey::Tail(rest) => self.tails.insert(rest.into(), value).is_none(),
            HostKey::Dot(rest) => {
                let own = self.exact.insert(rest[1..].into(), value.clone());
                self.heads.insert(rest.into(), value).is_none() && own.is_none()
            }
        }
    }

    /// The value of `name`, in any case of letters.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&V> {
        let mut buffer = [0; ORDINARY];
        match buffer.get_mut(..name.len()) {
            Some(lower) => {
                lower.copy_from_slice(name);
                lower.make_ascii_lowercase();
                self.of_lower(lower)
            }
            None => self.of_lower(&name.to_ascii_lowercase()),
        }
    }

    /// No name is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.heads.is_empty() && self.tails.is_empty()
    }

    fn of_lower(&self, name: &[u8]) -> Option<&V> {
        if let Some(value) = self.exact.get(name) {
            return Some(value);
        }
        if !self.heads.is_empty() {
            let dots = name.iter().enumerate().filter(|(_, byte)| **byte == b'.');
            if let Some(value) = dots.map(|(at, _)| &name[at..]).find_map(|rest| self.heads.get(rest)) {
                return Some(value);
            }
        }
        if !self.tails.is_empty() {
            let dots = name.iter().enumerate().rev().filter(|(_, byte)| **byte == b'.');
            return dots.map(|(at, _)| &name[..=at]).find_map(|rest| self.tails.get(rest));
        }
        None
    }
}

/// A host name as a key, in lower case.
pub(crate) enum HostKey<'k> {
    /// The name itself.
    Exact(&'k [u8]),
    /// `*.example.com`, from the dot on.
    Head(&'k [u8]),
    /// `.example.com`: the name itself, too.
    Dot(&'k [u8]),
    /// `www.example.*`, up to the dot.
    Tail(&'k [u8]),
}

impl<'k> HostKey<'k> {
    /// One star at most, at an end beside a dot; no empty label, no NUL.
    pub(crate) fn parse(name: &'k [u8]) -> Option<HostKey<'k>> {
        let (key, inner) = match name {
            [b'*', rest @ ..] if rest.len() > 1 && rest[0] == b'.' => (HostKey::Head(rest), rest),
            [rest @ .., b'*'] if rest.len() > 1 && rest.ends_with(b".") => (HostKey::Tail(rest), rest),
            [b'.', rest @ ..] if !rest.is_empty() => (HostKey::Dot(name), rest),
            name => (HostKey::Exact(name), name),
        };
        let wrong = inner.iter().any(|byte| matches!(byte, b'*' | 0)) || name.windows(2).any(|w| w == b"..");
        (!wrong).then_some(key)
    }
}

/// Longer names are put into a vector to be folded.
const ORDINARY: usize = 128;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_name_counts_and_heads_before_tails() {
        let mut names = HostTable::default();
        for (at, name) in
            ["a.b.c", "*.b.c", "*.c", "a.*", "a.b.*", ".dot.c", "*.dot.d"].into_iter().enumerate()
        {
            assert!(names.insert(HostKey::parse(name.as_bytes()).expect(name), at), "{name}");
        }
        for (name, value) in [
            ("A.b.C", Some(0)),
            ("x.b.c", Some(1)),
            ("b.c", Some(2)),
            ("a.x", Some(3)),
            ("a.b.x", Some(4)),
            ("dot.c", Some(5)),
            ("x.dot.c", Some(5)),
            ("dot.d", None),
            ("c", None),
        ] {
            assert_eq!(names.find(name.as_bytes()).copied(), value, "{name}");
        }
        assert!(!names.insert(HostKey::Exact(b"dot.c"), 9));
    }

    proptest! {
        #[test]
        fn no_name_makes_it_panic(key in "[a-c.*\\x00]{0,9}", name in "[a-cA-C.]{0,200}") {
            let mut names = HostTable::default();
            if let Some(key) = HostKey::parse(key.as_bytes()) {
                names.insert(key, ());
            }
            names.find(name.as_bytes());
        }
    }
}
