//! Locations whose responses are errors, with what the error log says of them.

use super::figures::{ErrorLoad, WhyFigures};
use super::{ERRORS, Finding};

/// Locations that fail: some responses of 500 and above, or nearly nothing but refusals that the error log has lines of.
pub(super) fn find(figures: &WhyFigures) -> Vec<Finding> {
    figures.errors.iter().filter_map(|load| of_location(load, figures.seconds)).collect()
}

fn of_location(load: &ErrorLoad, seconds: f64) -> Option<Finding> {
    let share = |count: u64| count as f64 / load.responses.max(1) as f64;
    let fails = load.failed >= FEW && share(load.failed) >= LITTLE;
    let refuses = load.refused >= MANY && share(load.refused) >= NEARLY_ALL && !load.message.is_empty();
    let (count, class) = match (fails, refuses) {
        (true, _) => (load.failed, "5xx"),
        (false, true) => (load.refused, "4xx"),
        (false, false) => return None,
    };
    let status = load.status.map_or(class.to_owned(), |status| status.to_string());
    let why = match (load.message.is_empty(), load.message.contains(&load.line)) {
        (true, _) => "; the error log says nothing of them".to_owned(),
        (false, true) => format!(": {}", load.message),
        (false, false) => format!(": {} at {}", load.message, load.line),
    };
    let each = count as f64 / seconds.max(1e-9);
    Some(Finding {
        kind: ERRORS,
        // Clients see these: before anything that only takes time.
        weight: SEEN + share(count),
        says: format!(
            "{:.0}% of the responses of {} are {status}, {each:.1} a second{why}",
            share(count) * 100.0,
            load.location
        ),
        subject: load.location.clone(),
        line: load.line.clone(),
        command: format!("weir slow --match 'location={} status={class}'", load.location),
    })
}

/// More than anything weighs that clients do not see.
const SEEN: f64 = 1000.0;
/// Failed responses in a window, and their share, from which on a location fails.
const FEW: u64 = 3;
const LITTLE: f64 = 0.05;
/// Refused requests in a window, and their share, from which on a location is taken for broken rather than for asked wrongly.
const MANY: u64 = 20;
const NEARLY_ALL: f64 = 0.9;

/// What a line of an error log says: without time, process and connection before, and without the request after it.
pub(crate) fn message(line: &str) -> &str {
    let line = line.lines().next().unwrap_or("");
    let line = line.split_once("] ").map_or(line, |(_, rest)| rest);
    let line = match line.split_once(": ") {
        Some((thread, rest)) if thread.bytes().all(|byte| byte.is_ascii_digit() || byte == b'#') => rest,
        _ => line,
    };
    let line = match line.strip_prefix('*').and_then(|line| line.split_once(' ')) {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => line,
    };
    let line = line.split(", client: ").next().unwrap_or(line);
    LUA.iter().fold(line, |line, known| line.strip_prefix(known).unwrap_or(line))
}

/// The first `file:line` in a message; empty where there is none.
pub(crate) fn place(message: &str) -> String {
    let words = message.split([' ', '(', ')', '"', '\'', '[', ']', ',', '\t']);
    let place = |word: &str| {
        let (file, rest) = word.split_once(':')?;
        let line = rest.split(':').next().filter(|line| !line.is_empty())?;
        // A host and its port look alike.
        let is_file = file.ends_with(".lua") || file.ends_with(".conf");
        (is_file && line.bytes().all(|byte| byte.is_ascii_digit())).then(|| format!("{file}:{line}"))
    };
    words.filter_map(place).next().unwrap_or_default()
}

/// What ngx_lua says before each error of a script.
const LUA: [&str; 3] = ["lua entry thread aborted: ", "failed to run ", "runtime error: "];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_reduced_to_what_it_says() {
        for (line, says, at) in [
            (
                "2026/11/28 18:50:16 [error] 12#14: *5 lua entry thread aborted: runtime error: /srv/user.lua:4: attempt to index \
                 local 'user' (a nil value)\nstack traceback:\n, client: 127.0.0.1, server: , request: \"GET / HTTP/1.1\"",
                "/srv/user.lua:4: attempt to index local 'user' (a nil value)",
                "/srv/user.lua:4",
            ),
            (
                "2026/11/28 18:50:16 [error] 12#14: *5 open() \"/srv/a b\" failed (2: No such file or directory), client: ::1",
                "open() \"/srv/a b\" failed (2: No such file or directory)",
                "",
            ),
            ("2026/11/28 18:50:16 [alert] 1#1: told", "told", ""),
            (
                "access_by_lua(weir.conf:12):1: module 'audit' not found",
                "access_by_lua(weir.conf:12):1: module 'audit' not found",
                "weir.conf:12",
            ),
            ("connect() to a.example:80 failed", "connect() to a.example:80 failed", ""),
            ("", "", ""),
        ] {
            assert_eq!((message(line), &*place(message(line))), (says, at));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_line_is_taken(line in ".{0,200}") {
            let text = message(&line).to_owned();
            proptest::prop_assert!(line.contains(&text));
            let _ = place(&text);
        }
    }
}
