//! Regular expressions as far as drawn configurations have them: characters, `.`, `[0-9]`, `*` and `+`, groups with alternatives
//! and with names, `^` and `$`. Tried one possibility after the other, as PCRE does: the leftmost match, greedy.

/// A compiled expression.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    alternatives: Vec<Vec<PatternPiece>>,
    names: Vec<Option<String>>,
    ignores_case: bool,
}

#[derive(Clone, Debug)]
enum PatternPiece {
    Start,
    End,
    One(Characters),
    /// At least so many.
    Many(Characters, usize),
    /// The number of its capture.
    Group(usize, Vec<Vec<PatternPiece>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Characters {
    Any,
    Digit,
    Just(char),
}

/// What was captured: the whole match first. Named ones come with their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PatternMatch {
    /// `$0`, `$1`, …
    pub(super) captures: Vec<String>,
    /// Names of captures, and what they are.
    pub(super) named: Vec<(String, String)>,
}

impl Pattern {
    /// Compiles an expression that this program has drawn itself.
    pub(super) fn new(text: &str, ignores_case: bool) -> Pattern {
        let text: Vec<char> = text.chars().collect();
        let mut parser = PatternParser { text: &text, at: 0, names: vec![None] };
        let alternatives = parser.alternatives();
        Pattern { alternatives, names: parser.names, ignores_case }
    }

    /// The leftmost match.
    pub(super) fn find(&self, text: &str) -> Option<PatternMatch> {
        let text: Vec<char> = text.chars().collect();
        (0..=text.len()).find_map(|from| {
            let mut attempt = MatchAttempt {
                text: &text,
                ignores_case: self.ignores_case,
                spans: vec![None; self.names.len()],
            };
            let mut end = 0;
            let is_match = attempt.any(&self.alternatives, from, &mut |_, at| {
                end = at;
                true
            });
            is_match.then(|| {
                attempt.spans[0] = Some((from, end));
                self.matched(&text, &attempt.spans)
            })
        })
    }

    fn matched(&self, text: &[char], spans: &[Option<(usize, usize)>]) -> PatternMatch {
        let part =
            |span: &Option<(usize, usize)>| span.map_or(String::new(), |(a, b)| text[a..b].iter().collect());
        let captures: Vec<String> = spans.iter().map(part).collect();
        let named = self.names.iter().zip(&captures);
        let named = named.filter_map(|(name, value)| Some((name.clone()?, value.clone()))).collect();
        PatternMatch { captures, named }
    }
}

struct PatternParser<'t> {
    text: &'t [char],
    at: usize,
    names: Vec<Option<String>>,
}

impl PatternParser<'_> {
    fn next(&mut self) -> Option<char> {
        self.at += 1;
        self.text.get(self.at - 1).copied()
    }

    fn skip(&mut self, what: &str) -> bool {
        let what: Vec<char> = what.chars().collect();
        let is_there = self.text[self.at.min(self.text.len())..].starts_with(&what);
        self.at += if is_there { what.len() } else { 0 };
        is_there
    }

    /// To the end of the group, or of the text.
    fn alternatives(&mut self) -> Vec<Vec<PatternPiece>> {
        let mut all = vec![Vec::new()];
        loop {
            let piece = match self.next() {
                None | Some(')') => return all,
                Some('|') => {
                    all.push(Vec::new());
                    continue;
                }
                Some('^') => PatternPiece::Start,
                Some('$') => PatternPiece::End,
                Some('(') => self.group(),
                Some('\\') => self.repeated(|parser| Characters::Just(parser.next().unwrap_or('\\'))),
                Some('.') => self.repeated(|_| Characters::Any),
                Some('[') => self.repeated(|parser| {
                    assert!(parser.skip("0-9]"), "no other class is drawn");
                    Characters::Digit
                }),
                Some(one) => self.repeated(|_| Characters::Just(one)),
            };
            all.last_mut().expect("it begins with one").push(piece);
        }
    }

    fn group(&mut self) -> PatternPiece {
        let name = self.skip("?<").then(|| {
            let name = self.text[self.at..].iter().take_while(|one| **one != '>').collect::<String>();
            self.at += name.len() + 1;
            name
        });
        let number = self.names.len();
        self.names.push(name);
        PatternPiece::Group(number, self.alternatives())
    }

    fn repeated(&mut self, read: impl FnOnce(&mut Self) -> Characters) -> PatternPiece {
        let characters = read(self);
        match () {
            () if self.skip("*") => PatternPiece::Many(characters, 0),
            () if self.skip("+") => PatternPiece::Many(characters, 1),
            () => PatternPiece::One(characters),
        }
    }
}

struct MatchAttempt<'t> {
    text: &'t [char],
    ignores_case: bool,
    spans: Vec<Option<(usize, usize)>>,
}

/// What is tried after a piece has matched up to a place.
type Next<'n> = &'n mut dyn FnMut(&mut MatchAttempt<'_>, usize) -> bool;

impl MatchAttempt<'_> {
    fn any(&mut self, alternatives: &[Vec<PatternPiece>], at: usize, next: Next<'_>) -> bool {
        alternatives.iter().any(|pieces| self.all(pieces, at, next))
    }

    fn all(&mut self, pieces: &[PatternPiece], at: usize, next: Next<'_>) -> bool {
        let Some((piece, rest)) = pieces.split_first() else { return next(self, at) };
        match piece {
            PatternPiece::Start => at == 0 && self.all(rest, at, next),
            PatternPiece::End => at == self.text.len() && self.all(rest, at, next),
            PatternPiece::One(one) => self.is_one(*one, at) && self.all(rest, at + 1, next),
            PatternPiece::Many(one, least) => {
                let most = (at..self.text.len()).take_while(|at| self.is_one(*one, *at)).count();
                (*least..=most).rev().any(|count| self.all(rest, at + count, next))
            }
            PatternPiece::Group(number, alternatives) => self.any(alternatives, at, &mut |attempt, end| {
                let before = attempt.spans[*number].replace((at, end));
                let is_match = attempt.all(rest, end, next);
                if !is_match {
                    attempt.spans[*number] = before;
                }
                is_match
            }),
        }
    }

    fn is_one(&self, what: Characters, at: usize) -> bool {
        let Some(one) = self.text.get(at) else { return false };
        match what {
            Characters::Any => *one != '\n',
            Characters::Digit => one.is_ascii_digit(),
            Characters::Just(wanted) if self.ignores_case => wanted.eq_ignore_ascii_case(one),
            Characters::Just(wanted) => wanted == *one,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_are_those_of_pcre() {
        for (pattern, text, captures) in [
            ("^/a/(.*)$", "/a/x/y", Some(vec!["/a/x/y", "x/y"])),
            ("^/a/(.*)$", "/b/a/x", None),
            ("/b(.+)/", "/a/b1/b2/c", Some(vec!["/b1/b2/", "1/b2"])),
            (r"\.(txt|png)$", "/a.png", Some(vec![".png", "png"])),
            (r"\.(txt|png)$", "/apng", None),
            ("([0-9]+)(.*)", "/12a3", Some(vec!["12a3", "12", "a3"])),
            ("a|b", "xb", Some(vec!["b"])),
            ("(.*)(.*)", "ab", Some(vec!["ab", "ab", ""])),
            ("b+$", "abbab", Some(vec!["b"])),
        ] {
            let found = Pattern::new(pattern, false).find(text).map(|found| found.captures);
            assert_eq!(found, captures.map(|all| all.into_iter().map(str::to_owned).collect()), "{pattern}");
        }
        assert!(Pattern::new("^/A", true).find("/a").is_some());
        assert!(Pattern::new("^/A", false).find("/a").is_none());
        let named = Pattern::new(r"^(?<sub>.+)\.num\.test$", true).find("x.12.num.test").expect("it is one");
        assert_eq!(named.named, [("sub".to_owned(), "x.12".to_owned())]);
    }
}
