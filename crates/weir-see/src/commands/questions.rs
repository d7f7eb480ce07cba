//! Commands that ask one question and print what comes.

use super::ask::{gather, print, show};
use super::options::{Asked, Choice};
use super::selector::Locate;
use crate::compare::Measured;
use crate::control::protocol::Question;

pub(super) const MATCH: Choice = Choice {
    name: "--match",
    value: "WHAT",
    about: "which requests: /path, path=, method=, status=404|5xx, location=, over=20ms; several in quotes",
};

/// `weir trace`
pub(super) const TRACE: &[Choice] = &[
    MATCH,
    Choice { name: "-n", value: "N", about: "how many; one without" },
    Choice { name: "--avg", value: "N", about: "the mean of so many requests instead of each" },
    Choice { name: "--save", value: "FILE", about: "with --avg: into this file, for weir diff" },
    Choice { name: "--flow", value: "", about: "every boundary by itself, in order" },
    Choice { name: "--once", value: "", about: "the next one: what happens without options" },
    Choice { name: "--sites", value: "", about: "the figures of every site since the server began" },
    Choice { name: "--level", value: "LEVEL", about: "as weir profile level" },
];

pub(super) fn trace(asked: &Asked, locate: Locate<'_>) -> Result<(), String> {
    if asked.has("--save") && !asked.has("--avg") {
        return Err("--save goes with --avg: what is saved is an average".to_owned());
    }
    let question = if asked.has("--sites") {
        Question::new("sites")
    } else if let Some(level) = asked.value("--level") {
        Question::new("level").with("set", level)
    } else if let Some(count) = asked.value("--avg") {
        let question = matching(asked, Question::new("average"))?.with("n", count);
        if let Some(file) = asked.value("--save") {
            return save(asked, locate, &question, file);
        }
        question
    } else {
        let question = matching(asked, Question::new("trace"))?;
        let question = question.with("n", asked.value("-n").unwrap_or("1"));
        if asked.has("--flow") { question.with("flow", "") } else { question }
    };
    show(asked, locate, &question).map(drop)
}

/// Puts the average into a file, and says how many requests it is of.
fn save(asked: &Asked, locate: Locate<'_>, question: &Question, file: &str) -> Result<(), String> {
    let out = gather(asked, locate, &question.clone().with("json", ""))?;
    let requests = Measured::parse(&out)?.requests();
    std::fs::write(file, &out).map_err(|error| format!("\"{file}\": {error}"))?;
    print(format!("{requests} requests in {file}\n").as_bytes()).map_err(|error| error.to_string())
}

/// `weir slow`
pub(super) const SLOW: &[Choice] = &[MATCH, Choice { name: "-n", value: "N", about: "how many; 20 without" }];

pub(super) fn slow(asked: &Asked, locate: Locate<'_>) -> Result<(), String> {
    let question = matching(asked, Question::new("slow"))?;
    show(asked, locate, &question.with("n", asked.value("-n").unwrap_or("20"))).map(drop)
}

/// `weir explain`
pub(super) const EXPLAIN: &[Choice] =
    &[Choice { name: "--flow", value: "", about: "every boundary by itself, in order" }];

pub(super) fn explain(asked: &Asked, locate: Locate<'_>) -> Result<(), String> {
    asked.at_most(1)?;
    let id = asked.words.first().ok_or("which request? weir slow lists ids")?;
    let question = Question::new("explain").with("id", id);
    let question = if asked.has("--flow") { question.with("flow", "") } else { question };
    show(asked, locate, &question).map(drop)
}

/// `weir profile`
pub(super) const PROFILE: &[Choice] =
    &[Choice { name: "--for", value: "TIME", about: "then as before: 30s, 10m; for good without" }];

pub(super) fn profile(asked: &Asked, locate: Locate<'_>) -> Result<(), String> {
    asked.at_most(2)?;
    let words: Vec<&str> = asked.words.iter().map(String::as_str).collect();
    let question = match words[..] {
        [] | ["level"] => Question::new("level"),
        ["level", level] => Question::new("level").with("set", level),
        ["handshakes", _] if asked.has("--for") => return Err("--for goes with a level".to_owned()),
        ["handshakes", switch] => Question::new("level").with("cpu", switch),
        _ => return Err(format!("\"{}\" is nothing to profile with: level and handshakes are", words[0])),
    };
    let question = match asked.value("--for") {
        Some(time) => question.with("for", time),
        None => question,
    };
    show(asked, locate, &question).map(drop)
}

/// `weir reqs`
pub(super) const REQS: &[Choice] = &[
    Choice { name: "--over", value: "TIME", about: "those that have lasted this long" },
    Choice { name: "-n", value: "N", about: "how many at most" },
];

pub(super) fn reqs(asked: &Asked, locate: Locate<'_>) -> Result<(), String> {
    asked.at_most(0)?;
    show(asked, locate, &options(asked, Question::new("reqs"), &[("--over", "over"), ("-n", "n")])).map(drop)
}

/// `weir lua`
pub(super) fn lua(asked: &Asked, locate: Locate<'_>) -> Result<(), String> {
    asked.at_most(1)?;
    let question = Question::new("lua").with("of", asked.words.first().map_or("gc", String::as_str));
    show(asked, locate, &question).map(drop)
}

/// `weir dict`
pub(super) fn dict(asked: &Asked, locate: Locate<'_>) -> Result<(), String> {
    asked.at_most(0)?;
    show(asked, locate, &Question::new("dict")).map(drop)
}

/// `weir queue`
pub(super) const QUEUE: &[Choice] = &[
    Choice { name: "-t", value: "TIME", about: "watch for how long: 1s without" },
    Choice { name: "--all", value: "", about: "what was noted since the server began, instead of watching" },
];

pub(super) fn queue(asked: &Asked, locate: Locate<'_>) -> Result<(), String> {
    asked.at_most(0)?;
    let question = options(asked, Question::new("queue"), &[("-t", "every")]);
    let question = if asked.has("--all") { question.with("all", "") } else { question };
    show(asked, locate, &question).map(drop)
}

/// `weir use`
pub(super) const USE: &[Choice] = &[Choice { name: "-t", value: "TIME", about: "over how long: 1s without" }];

pub(super) fn usage(asked: &Asked, locate: Locate<'_>) -> Result<(), String> {
    asked.at_most(0)?;
    show(asked, locate, &options(asked, Question::new("use"), &[("-t", "every")])).map(drop)
}

/// `question` with the options that were given.
pub(super) fn options(asked: &Asked, question: Question, given: &[(&str, &str)]) -> Question {
    given.iter().fold(question, |question, (option, key)| match asked.value(option) {
        Some(value) => question.with(key, value),
        None => question,
    })
}

/// With the requests that are meant: by `--match` or by one word.
pub(super) fn matching(asked: &Asked, question: Question) -> Result<Question, String> {
    asked.at_most(1)?;
    let words: Vec<&str> =
        asked.value("--match").into_iter().chain(asked.words.first().map(String::as_str)).collect();
    Ok(if words.is_empty() { question } else { question.with("match", words.join(" ")) })
}
