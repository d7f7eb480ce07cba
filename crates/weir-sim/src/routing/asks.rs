//! Draws requests for the servers of routing.

use super::plan::RoutedAsk;
use crate::draw::Draw;

const HOSTS: [&str; 20] = [
    "one.test",
    "ONE.test",
    "a.one.test",
    "b.a.one.test",
    "c.one.test.",
    "two.test:8090",
    "two.org",
    "a.two.net",
    "a.two.test",
    "x.two.test",
    "12.num.test",
    "x.num.test",
    "three.test",
    "server0.test",
    "server1.test",
    "127.0.0.1",
    "else.example",
    "variables.test",
    "dot.test",
    "a.b.dot.test",
];
const SEGMENTS: [&str; 14] =
    ["a", "b", "ab", "A", "data", "x.txt", "pic.png", "1", "23", "err", "X.TXT", "%61", "a%2Fb", "s0l1"];
const ODD_SEGMENTS: [&str; 12] =
    ["", ".", "..", "%2e%2e", "a%20b", "c%25d", "e%3Ff", "B%23", "+", "%2E", "a;b", "x&y"];
const ARGUMENTS: [&str; 8] = ["", "", "?m=1", "?m=0", "?m=", "?x=%20&m=2", "?", "?m=a%2Fb&m=1"];
/// Targets that are a bad request.
const BAD_TARGETS: [&str; 5] = ["/../a", "/a/%zz", "/a/%", "/%00", "/a/../../b?m=1"];

impl RoutedAsk {
    /// What `draw` draws. `may_be_bad`: after it the connection may end.
    pub(crate) fn drawn(draw: &mut Draw, may_be_bad: bool) -> RoutedAsk {
        let target = match may_be_bad && draw.chance(1, 6) {
            true => (*draw.one_of(&BAD_TARGETS)).to_owned(),
            false => drawn_target(draw),
        };
        let is_odd = may_be_bad && draw.chance(1, 12);
        RoutedAsk {
            host: (if is_odd { *draw.one_of(&["a..test", "a/b"]) } else { *draw.one_of(&HOSTS) }).to_owned(),
            target,
            absolute: draw.chance(1, 12).then(|| (*draw.one_of(&HOSTS)).to_owned()),
            mark: draw.chance(1, 3).then(|| (*draw.one_of(&["1", "2", "one.test"])).to_owned()),
        }
    }

    /// Whether it may be refused before its fields are read.
    pub(crate) fn may_be_bad(&self) -> bool {
        BAD_TARGETS.contains(&self.target.as_str()) || self.host.contains("..") || self.host.contains('/')
    }
}

fn drawn_target(draw: &mut Draw) -> String {
    let mut target = String::new();
    let mut depth = 0;
    for _ in 0..draw.between(0, 4) {
        let mut segment =
            if draw.chance(1, 5) { *draw.one_of(&ODD_SEGMENTS) } else { *draw.one_of(&SEGMENTS) };
        match segment {
            ".." | "%2e%2e" if depth == 0 => segment = "a",
            ".." | "%2e%2e" => depth -= 2,
            "" | "." | "%2E" => depth -= 1,
            "a%2Fb" => depth += 1,
            _ => (),
        }
        depth += 1;
        target.push('/');
        target.push_str(segment);
    }
    if target.is_empty() || draw.chance(1, 4) {
        target.push('/');
    }
    target + *draw.one_of(&ARGUMENTS)
}
