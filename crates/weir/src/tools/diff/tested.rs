//! Values that lines only test, as a `map` or an `if` does: what counts of such a value is how the tests end. Agents, of which
//! a log has a hundred thousand, then come to a few classes.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use weir_conf::DirectiveLine;
use weir_sys::regex::{Matcher, Regex, RegexFlags};

use crate::tools::plan::lines;

/// What one line tests a value for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ValueTest {
    /// Texts that the value may be, with what it then comes to.
    texts: Vec<(String, String)>,
    /// Texts match without regard to case.
    is_caseless: bool,
    /// Patterns; the first that matches counts.
    patterns: Vec<TestPattern>,
    /// What every other value comes to.
    default: String,
}

/// A regular expression with what a match comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TestPattern {
    text: String,
    is_caseless: bool,
    outcome: String,
}

impl ValueTest {
    /// That of a `map` of a variable alone: the variable, and the test. `None` where it looks at anything else.
    pub(super) fn of_map(map: &DirectiveLine) -> Option<(String, ValueTest)> {
        let variable = lone_variable(map.args.first()?.str())?;
        let mut test = ValueTest { is_caseless: true, ..ValueTest::default() };
        for entry in lines(map) {
            match (entry.name.str(), &entry.args[..]) {
                ("hostnames", []) => return None,
                ("volatile", []) | ("include", _) => {}
                (key, [value]) => test.entry(key, value.str().to_owned()),
                _ => return None,
            }
        }
        Some((variable, test))
    }

    fn entry(&mut self, key: &str, outcome: String) {
        match (key, key.strip_prefix("~*"), key.strip_prefix('~')) {
            ("default", ..) => self.default = outcome,
            (_, Some(text), _) => self.pattern(text, true, outcome),
            (_, None, Some(text)) => self.pattern(text, false, outcome),
            (text, None, None) => {
                self.texts.push((text.strip_prefix('\\').unwrap_or(text).to_ascii_lowercase(), outcome));
            }
        }
    }

    /// That of the condition of an `if`, in the same way.
    pub(super) fn of_condition(line: &DirectiveLine) -> Option<(String, ValueTest)> {
        let mut words: Vec<&str> = line.args.iter().map(|word| word.str()).collect();
        // A parenthesis may be a word of its own.
        words[0] = words.first()?.strip_prefix('(')?;
        if words[0].is_empty() {
            words.remove(0);
        }
        match words.pop()? {
            ")" => {}
            last => words.push(last.strip_suffix(')')?),
        }
        let mut test = ValueTest::default();
        let holds = || "holds".to_owned();
        match words[..] {
            [_] => test.texts = vec![(String::new(), holds()), ("0".to_owned(), holds())],
            [_, "=" | "!=", text] if !text.contains('$') => test.texts.push((text.to_owned(), holds())),
            [_, "~" | "!~", pattern] => test.pattern(pattern, false, holds()),
            [_, "~*" | "!~*", pattern] => test.pattern(pattern, true, holds()),
            _ => return None,
        }
        Some((lone_variable(words[0])?, test))
    }

    /// That of `gzip_disable`, on the agent.
    pub(super) fn of_gzip_disable(line: &DirectiveLine) -> ValueTest {
        let mut test = ValueTest::default();
        for word in &line.args {
            match word.str() {
                "msie6" => test.pattern("^(.*MSIE .*)", false, String::new()),
                pattern => test.pattern(pattern, false, "holds".to_owned()),
            }
        }
        test
    }

    /// That of `valid_referers`, on the referrer: its scheme and host, where no path and no pattern counts.
    pub(super) fn of_referers(line: &DirectiveLine) -> Option<ValueTest> {
        if line.args.iter().any(|word| word.str().contains(['/', '~'])) {
            return None;
        }
        let mut test = ValueTest::default();
        // What is shorter is no address for that directive.
        test.pattern("^(https?://[^/]{4,})", true, String::new());
        test.pattern("^(https?://.*)", true, String::new());
        Some(test)
    }

    fn pattern(&mut self, text: &str, is_caseless: bool, outcome: String) {
        self.patterns.push(TestPattern { text: text.to_owned(), is_caseless, outcome });
    }
}

/// The name of the variable that `text` is, in small letters; `None`: it is more or less than one.
fn lone_variable(text: &str) -> Option<String> {
    let name = text.strip_prefix('$')?;
    let name = name.strip_prefix('{').map_or(Some(name), |name| name.strip_suffix('}'))?;
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then(|| name.to_lowercase())
}

/// Two hashes of how tests end: one class in 10^38 is taken for another.
pub(super) type ValueClass = (u64, u64);

/// Sorts the values of a variable into classes: values of one class end all tests alike.
pub(super) struct ValueClasses {
    tests: Vec<ReadyTest>,
    matcher: Option<Matcher>,
    keys: [RandomState; 2],
    /// The classes of values by two hashes of each.
    known: HashMap<(u64, u64), ValueClass>,
}

/// A test with its patterns compiled.
struct ReadyTest {
    is_caseless: bool,
    texts: HashMap<String, String>,
    patterns: Vec<(Option<Regex>, String)>,
    default: String,
}

impl ValueClasses {
    /// By all of these tests.
    pub(super) fn new(tests: &[ValueTest]) -> ValueClasses {
        let tests = tests.iter().map(ReadyTest::new).collect();
        ValueClasses { tests, matcher: Matcher::new().ok(), keys: Default::default(), known: HashMap::new() }
    }

    /// The class of `value`; of a request that has none, that of `None`.
    pub(super) fn class(&mut self, value: Option<&str>) -> ValueClass {
        let key = self.hashes(&value);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let mut ends = Vec::new();
        for test in value.iter().flat_map(|value| self.tests.iter().map(move |test| (value, test))) {
            test.1.end(self.matcher.as_mut(), test.0, &mut ends);
        }
        let class = self.hashes(&(value.is_some(), &ends));
        if self.known.len() == MOST_VALUES {
            self.known.clear();
        }
        self.known.insert(key, class);
        class
    }

    fn hashes(&self, value: &impl std::hash::Hash) -> (u64, u64) {
        let [first, second] = &self.keys;
        (first.hash_one(value), second.hash_one(value))
    }
}

impl ReadyTest {
    fn new(test: &ValueTest) -> ReadyTest {
        let compiled = |pattern: &TestPattern| {
            let flags = RegexFlags { caseless: pattern.is_caseless, ..RegexFlags::default() };
            (Regex::new(pattern.text.as_bytes(), flags).ok(), pattern.outcome.clone())
        };
        ReadyTest {
            is_caseless: test.is_caseless,
            texts: test.texts.iter().cloned().collect(),
            patterns: test.patterns.iter().map(compiled).collect(),
            default: test.default.clone(),
        }
    }

    /// Adds to `ends` what `value` comes to: the outcome, and what groups of the pattern captured. Where a match is given
    /// up, the value itself.
    fn end(&self, mut matcher: Option<&mut Matcher>, value: &str, ends: &mut Vec<String>) {
        let found = match self.is_caseless {
            true => self.texts.get(&value.to_ascii_lowercase()),
            false => self.texts.get(value),
        };
        if let Some(outcome) = found {
            return ends.extend([outcome.clone(), "0".to_owned()]);
        }
        for (pattern, outcome) in &self.patterns {
            let captures = match (pattern, matcher.as_deref_mut()) {
                (Some(pattern), Some(matcher)) => pattern.captures(matcher, value.as_bytes()).ok(),
                _ => None,
            };
            let Some(captures) = captures else { return ends.push(value.to_owned()) };
            let Some(captures) = captures else { continue };
            ends.extend([outcome.clone(), captures.len().to_string()]);
            let captured = |number| captures.bytes(number, value.as_bytes()).map(String::from_utf8_lossy);
            ends.extend((1..captures.len()).map(|number| captured(number).unwrap_or_default().into_owned()));
            return;
        }
        ends.extend([self.default.clone(), "0".to_owned()]);
    }
}

/// How many values are remembered: some 40 MB. Beyond it remembering begins again.
const MOST_VALUES: usize = 1 << 19;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weir_conf::read_one;

    use super::*;

    fn classes(text: &str) -> ValueClasses {
        let tree = read_one(Path::new("n.conf"), text.as_bytes(), |_| false);
        let tree = tree.unwrap_or_else(|failure| panic!("{:?}", failure.errors));
        let test = |line: &DirectiveLine| match line.name.str() {
            "map" => ValueTest::of_map(line).expect("a test").1,
            "if" => ValueTest::of_condition(line).expect("a test").1,
            "gzip_disable" => ValueTest::of_gzip_disable(line),
            _ => ValueTest::of_referers(line).expect("a test"),
        };
        ValueClasses::new(&tree.lines.iter().map(test).collect::<Vec<_>>())
    }

    /// Whether values are of one class.
    fn alike(text: &str, values: [Option<&str>; 2]) -> bool {
        let mut classes = classes(text);
        let [one, other] = values.map(|value| classes.class(value));
        assert_eq!(classes.class(values[0]), one, "it is remembered");
        one == other
    }

    #[test]
    fn values_are_of_one_class_if_every_test_ends_alike() {
        let map = "map $http_a $b { default 0; ~*bot 1; spider 1; ~(x|y)z 1; '' 2; \\~a 3; }";
        for (text, one, other, expected) in [
            (map, "Bot/1", "bot/2", true),
            // A match of a pattern forgets what groups of an earlier one captured, that of a text does not.
            (map, "Bot/1", "SPIDER", false),
            (map, "spider", "SPIDER", true),
            (map, "any", "other", true),
            (map, "any", "bot", false),
            (map, "xz", "axz", true),
            (map, "xz", "yz", false),
            (map, "", "any", false),
            (map, "~A", "any", false),
            ("if ($http_a = x) { }", "x", "X", false),
            ("if ($http_a = x) { }", "X", "y", true),
            ("if ($http_a) { }", "", "0", true),
            ("if ($http_a) { }", "", "1", false),
            ("if ($http_a !~ ^a ) { }", "ab", "ac", true),
            ("if ( $http_a ~* ^a) { }", "ab", "b", false),
            ("gzip_disable msie6 foo;", "foo", "afoo", true),
            ("gzip_disable msie6;", "Opera 9", "Chrome", true),
            ("gzip_disable msie6;", "a (MSIE 6.0; SV1)", "a (MSIE 6.0)", false),
            ("valid_referers none a.test;", "http://a.test/x", "http://a.test/y", true),
            ("valid_referers none a.test;", "http://a.test/x", "http://b.test/x", false),
            ("valid_referers none a.test;", "http://a/x", "http://a/xyz", false),
            ("valid_referers none a.test;", "a", "b", true),
        ] {
            assert_eq!(alike(text, [Some(one), Some(other)]), expected, "{text}: {one} {other}");
        }
        assert!(!alike(map, [None, Some("")]) && alike(map, [None, None]));
    }

    #[test]
    fn a_value_that_a_pattern_gives_up_on_is_a_class_of_its_own() {
        let text = "map $http_a $b { ~^(a+)+(b|c)+\\1$ 1; }";
        let [one, other] = ["ad", "ae"].map(|end| format!("{}{end}", "a".repeat(4000)));
        assert!(!alike(text, [Some(&one), Some(&other)]) || alike(text, [Some("d"), Some(&one)]));
    }
}
