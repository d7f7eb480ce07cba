//! As much of a regular expression's grammar as it takes to see a repeat inside of a repeat that divides the same text
//! in many ways.
//!
//! What is repeated is suspicious when some part of it is repeated too, and whatever else is in it may be empty or
//! is made of bytes that the part takes as well: then it is ambiguous where one round ends and the next begins. Atomic
//! groups and possessive repeats give nothing back and are safe. Where the grammar is not understood, nothing is
//! reported.

use std::ops::Range;

/// The first part of `text` that can take exponential time.
pub(super) fn explosive(text: &[u8]) -> Option<Range<usize>> {
    let mut parser = PatternParser { text, at: 0, depth: 0, found: None };
    let whole = parser.alternatives();
    whole.filter(|_| parser.at == text.len()).and(parser.found)
}

/// Bytes of a set, one bit each.
type ByteSet = [u64; 4];

#[derive(Clone, Copy)]
struct PatternItem {
    /// What may be in it.
    set: ByteSet,
    /// It may be empty.
    nullable: bool,
    /// It has no upper bound, in itself or inside, and gives back what it took.
    unbounded: bool,
    /// One byte exactly.
    single: bool,
}

struct PatternParser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    found: Option<Range<usize>>,
}

impl PatternParser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    /// Alternatives up to a `)` or the end; `None` when they are not understood.
    fn alternatives(&mut self) -> Option<Vec<Vec<PatternItem>>> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let mut all = vec![Vec::new()];
        while let Some(byte) = self.peek().filter(|byte| *byte != b')') {
            if byte == b'|' {
                self.at += 1;
                all.push(Vec::new());
                continue;
            }
            let start = self.at;
            let atom = self.atom()?;
            if let Some(item) = self.repeated(atom, start)? {
                all.last_mut()?.push(item);
            }
        }
        self.depth -= 1;
        Some(all)
    }

    /// An atom and, for a group, what is in it. A zero-width one is `None` inside.
    fn atom(&mut self) -> Option<Option<(PatternItem, Vec<Vec<PatternItem>>)>> {
        let byte = self.peek()?;
        self.at += 1;
        let single = |set| {
            Some(Some((PatternItem { set, nullable: false, unbounded: false, single: true }, Vec::new())))
        };
        match byte {
            b'^' | b'$' => Some(None),
            b'.' => single(ALL),
            b'\\' => match self.escape()? {
                Some(set) => single(set),
                None => Some(None),
            },
            b'[' => single(self.class()?),
            b'(' => self.group(),
            b'*' | b'+' | b'?' => None,
            byte => single(of(byte)),
        }
    }

    fn group(&mut self) -> Option<Option<(PatternItem, Vec<Vec<PatternItem>>)>> {
        let mut atomic = false;
        if self.take(b'?') {
            match self.peek()? {
                b':' => self.at += 1,
                b'>' => {
                    self.at += 1;
                    atomic = true;
                }
                b'<' | b'P' | b'\'' => self.name()?,
                // Looking around, options, conditions.
                _ => return None,
            }
        }
        let inside = self.alternatives()?;
        if !self.take(b')') {
            return None;
        }
        let set = inside.iter().flatten().fold([0; 4], |set, item| union(set, item.set));
        let item = PatternItem {
            set,
            nullable: inside.iter().any(|items| items.iter().all(|item| item.nullable)),
            unbounded: !atomic && inside.iter().flatten().any(|item| item.unbounded),
            single: false,
        };
        Some(Some((item, if atomic { Vec::new() } else { inside })))
    }

    /// `<name>`, `P<name>`, `'name'`
    fn name(&mut self) -> Option<()> {
        self.take(b'P');
        let open = self.peek()?;
        let close = if open == b'<' { b'>' } else { open };
        if matches!(self.text.get(self.at + 1), Some(b'=' | b'!')) {
            return None;
        }
        let rest = self.text.get(self.at + 1..)?;
        self.at += 2 + rest.iter().position(|byte| *byte == close)?;
        Some(())
    }

    /// What `atom`, which began at `start`, is with the repeat after it.
    fn repeated(
        &mut self,
        atom: Option<(PatternItem, Vec<Vec<PatternItem>>)>,
        start: usize,
    ) -> Option<Option<PatternItem>> {
        let (least, unbounded) = match self.peek() {
            Some(b'*') => (0, true),
            Some(b'+') => (1, true),
            Some(b'?') => (0, false),
            Some(b'{') => match self.braces() {
                Some(bounds) => bounds,
                None => return Some(atom.map(|(item, _)| item)),
            },
            _ => return Some(atom.map(|(item, _)| item)),
        };
        if self.peek() != Some(b'{') {
            self.at += usize::from(
                matches!(self.peek(), Some(b'*' | b'+' | b'?')) && self.text[self.at - 1] != b'}',
            );
        }
        let possessive = self.take(b'+');
        self.take(b'?');
        let Some((item, inside)) = atom else { return Some(None) };
        if unbounded && !possessive && self.found.is_none() && ambiguous(&inside) {
            self.found = Some(start..self.at);
        }
        let unbounded = (unbounded || item.unbounded) && !possessive;
        Some(Some(PatternItem { nullable: item.nullable || least == 0, unbounded, single: false, ..item }))
    }

    /// `{n}`, `{n,}`, `{n,m}`: the least number and whether there is no greatest; `None`: braces are text.
    fn braces(&mut self) -> Option<(u32, bool)> {
        let rest = self.text.get(self.at + 1..)?;
        let end = rest.iter().position(|byte| *byte == b'}')?;
        let inside = std::str::from_utf8(&rest[..end]).ok()?;
        let (least, unbounded) = match inside.split_once(',') {
            None => (inside.parse().ok()?, false),
            Some((least, "")) => (least.parse().ok()?, true),
            Some((least, most)) => {
                most.parse::<u32>().ok()?;
                (least.parse().ok()?, false)
            }
        };
        self.at += end + 2;
        Some((least, unbounded))
    }

    /// After a backslash; `None` inside for what has no width.
    fn escape(&mut self) -> Option<Option<ByteSet>> {
        let byte = self.peek()?;
        self.at += 1;
        let class =
            |test: fn(u8) -> bool| (0..=255).filter(|b| test(*b)).fold([0; 4], |set, b| union(set, of(b)));
        Some(Some(match byte {
            b'd' => class(|b| b.is_ascii_digit()),
            b'D' => class(|b| !b.is_ascii_digit()),
            b'w' => class(|b| b.is_ascii_alphanumeric() || b == b'_'),
            b'W' => class(|b| !(b.is_ascii_alphanumeric() || b == b'_')),
            b's' => class(|b| b.is_ascii_whitespace()),
            b'S' => class(|b| !b.is_ascii_whitespace()),
            b'b' | b'B' | b'A' | b'z' | b'Z' => return Some(None),
            byte if byte.is_ascii_alphanumeric() => return None,
            byte => of(byte),
        }))
    }

    /// After a `[`.
    fn class(&mut self) -> Option<ByteSet> {
        let negated = self.take(b'^');
        let mut set = [0; 4];
        let first = self.at;
        loop {
            let byte = self.peek()?;
            self.at += 1;
            let low = match byte {
                b']' if self.at - 1 > first => break,
                b'[' if self.peek() == Some(b':') => return None,
                b'\\' => {
                    set = union(set, self.escape()??);
                    continue;
                }
                byte => byte,
            };
            set = match (self.peek(), self.text.get(self.at + 1)) {
                (Some(b'-'), Some(&high)) if high != b']' && high != b'\\' => {
                    self.at += 2;
                    (low..=high).fold(set, |set, byte| union(set, of(byte)))
                }
                _ => union(set, of(low)),
            };
        }
        Some(if negated { set.map(|bits| !bits) } else { set })
    }
}

/// Whether repeating one of `alternatives` again and again divides a text in many ways.
fn ambiguous(alternatives: &[Vec<PatternItem>]) -> bool {
    let within = alternatives.iter().any(|items| {
        items.iter().enumerate().any(|(at, item)| {
            let others = items.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, item)| item);
            item.unbounded && others.clone().all(|other| other.nullable || overlap(other.set, item.set))
        })
    });
    let singles =
        || alternatives.iter().enumerate().filter(|(_, items)| matches!(&items[..], [item] if item.single));
    let between = singles().any(|(at, items)| {
        singles().any(|(other, others)| other > at && overlap(items[0].set, others[0].set))
    });
    within || between
}

fn of(byte: u8) -> ByteSet {
    let mut set = [0; 4];
    set[usize::from(byte >> 6)] = 1 << (byte & 63);
    set
}

fn union(a: ByteSet, b: ByteSet) -> ByteSet {
    std::array::from_fn(|i| a[i] | b[i])
}

fn overlap(a: ByteSet, b: ByteSet) -> bool {
    a.iter().zip(b).any(|(a, b)| a & b != 0)
}

const ALL: ByteSet = [u64::MAX; 4];
/// Groups inside of groups.
const DEEPEST: usize = 100;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(text: &str) -> Option<&str> {
        explosive(text.as_bytes()).map(|part| &text[part])
    }

    #[test]
    fn repeats_that_divide_the_same_text_in_many_ways() {
        for (text, expected) in [
            ("^(a+)+$", "(a+)+"),
            ("x(?:a*)*", "(?:a*)*"),
            ("(a|a)*b", "(a|a)*"),
            ("(\\d|\\w){2,}b", "(\\d|\\w){2,}"),
            ("([a-z]+,?)+;", "([a-z]+,?)+"),
            ("(.*,)+x", "(.*,)+"),
            ("((a+)b?)+c", "((a+)b?)+"),
            ("(a{1,})+?b", "(a{1,})+?"),
        ] {
            assert_eq!(part(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn repeats_that_do_not() {
        for text in [
            "",
            "a+b*c?",
            "(/[^/]+)+",
            "(a+)?b",
            "(a+){3}",
            "(a+)++b",
            "(?>a+)+b",
            "(a++)+",
            "(a|b)*",
            "(\\d+\\.)+",
            "^[\\w.-]+$",
            "(?=a+)+",
            "a{x}+",
            "[[:alpha:]]+",
            "(a",
            "a)",
            "*a",
            "\\",
            "[",
            "(?<n",
            "a{",
            "(?<=a+)b",
        ] {
            assert_eq!(part(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_looked_at(text in proptest::collection::vec(prop_oneof![proptest::sample::select(b"()[]{}*+?|\\^$<>:,-ab1.".to_vec()), any::<u8>()], 0..40)) {
            if let Some(part) = explosive(&text) {
                prop_assert!(part.start < part.end && part.end <= text.len());
            }
        }
    }
}
