//! Commands that ask one question and print what comes.

use super::control_calls::{gather, print, show};
use super::help::CommandOption;
use super::options::CommandLine;
use super::selector::LocateSocket;
use crate::compare::MeasuredNode;
use crate::control::protocol::ControlQuestion;

pub(super) const MATCH: CommandOption = CommandOption::new(
    "--match",
    "WHAT",
    "which requests: /path, path=, method=, status=404|5xx, location=, over=20ms; several in quotes",
);

const FLOW: CommandOption = CommandOption::new("--flow", "", "list every step in order, not a tree of sums");
const ALL_STEPS: CommandOption = CommandOption::new("--all", "", "list steps that took no time, too");

/// The question, with the form of the tree that is asked for.
fn drawn(asked: &CommandLine, question: ControlQuestion) -> ControlQuestion {
    let forms = [("--flow", "flow"), ("--all", "all")];
    let wanted = forms.iter().filter(|(option, _)| asked.has(option));
    wanted.fold(question, |question, (_, form)| question.with(form, ""))
}

/// `weir trace`
pub(super) const TRACE: &[CommandOption] = &[
    MATCH,
    CommandOption::new("-n", "N", "number of requests (default: 1)"),
    CommandOption::new("-t", "TIME", "give up when they have not come after TIME (default: 1h)"),
    CommandOption::new("--avg", "N", "the mean tree of the next N requests"),
    CommandOption::new("--save", "FILE", "with --avg: write the mean to FILE, for weir diff"),
    CommandOption::new(
        "--deep",
        "",
        "also what runs below modules: variables, maps, regular expressions by pattern, files by path",
    ),
    FLOW,
    ALL_STEPS,
    CommandOption::new("--once", "", "the next request (the default)"),
    CommandOption::new("--sites", "", "totals of each phase, handler and filter since the server began"),
    CommandOption::new("--level", "LEVEL", "set the level, as weir profile level does"),
];

pub(super) fn trace(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    if asked.has("--save") && !asked.has("--avg") {
        return Err("--save goes with --avg: what is saved is an average".to_owned());
    }
    if asked.has("--deep") && ["--sites", "--level"].iter().any(|option| asked.has(option)) {
        return Err("--deep goes with traces and averages".to_owned());
    }
    if asked.has("-t") && ["--avg", "--sites", "--level"].iter().any(|option| asked.has(option)) {
        return Err("-t goes with traces of single requests".to_owned());
    }
    let question = if asked.has("--sites") {
        ControlQuestion::new("sites")
    } else if let Some(level) = asked.value("--level") {
        ControlQuestion::new("level").with("set", level)
    } else if let Some(count) = asked.value("--avg") {
        let question = deep(asked, matching(asked, ControlQuestion::new("average"))?.with("n", count));
        if let Some(file) = asked.value("--save") {
            return save(asked, locate, &question, file);
        }
        question
    } else {
        let question = deep(asked, matching(asked, ControlQuestion::new("trace"))?);
        let question = options(asked, question.with("n", asked.value("-n").unwrap_or("1")), &[("-t", "for")]);
        drawn(asked, question)
    };
    show(asked, locate, &question).map(drop)
}

/// With what runs below modules, where that is asked for.
fn deep(asked: &CommandLine, question: ControlQuestion) -> ControlQuestion {
    if asked.has("--deep") { question.with("deep", "") } else { question }
}

/// Puts the average into a file, and says how many requests it is of.
fn save(
    asked: &CommandLine,
    locate: LocateSocket<'_>,
    question: &ControlQuestion,
    file: &str,
) -> Result<(), String> {
    let out = gather(asked, locate, &question.clone().with("json", ""))?;
    let requests = MeasuredNode::parse(&out)?.requests();
    std::fs::write(file, &out).map_err(|error| format!("\"{file}\": {error}"))?;
    print(format!("{requests} requests in {file}\n").as_bytes()).map_err(|error| error.to_string())
}

/// `weir slow`
pub(super) const SLOW: &[CommandOption] =
    &[MATCH, CommandOption::new("-n", "N", "number of requests (default: 20)")];

pub(super) fn slow(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    let question = matching(asked, ControlQuestion::new("slow"))?;
    show(asked, locate, &question.with("n", asked.value("-n").unwrap_or("20"))).map(drop)
}

/// `weir explain`
pub(super) const EXPLAIN: &[CommandOption] = &[FLOW, ALL_STEPS];

pub(super) fn explain(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(1)?;
    let id = asked.words.first().ok_or("which request? weir slow lists ids")?;
    let question = drawn(asked, ControlQuestion::new("explain").with("id", id));
    show(asked, locate, &question).map(drop)
}

/// `weir profile`
pub(super) const PROFILE: &[CommandOption] =
    &[CommandOption::new("--for", "TIME", "restore the level after TIME, such as 10m (default: never)")];

pub(super) fn profile(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(2)?;
    let words: Vec<&str> = asked.words.iter().map(String::as_str).collect();
    let question = match words[..] {
        [] | ["level"] => ControlQuestion::new("level"),
        ["level", level] => ControlQuestion::new("level").with("set", level),
        ["handshakes", _] if asked.has("--for") => return Err("--for goes with a level".to_owned()),
        ["handshakes", switch] => ControlQuestion::new("level").with("cpu", switch),
        _ => return Err(format!("\"{}\" is nothing to profile with: level and handshakes are", words[0])),
    };
    let question = match asked.value("--for") {
        Some(time) => question.with("for", time),
        None => question,
    };
    show(asked, locate, &question).map(drop)
}

/// `weir reqs`
pub(super) const REQS: &[CommandOption] = &[
    CommandOption::new("--over", "TIME", "only those in flight for at least TIME"),
    CommandOption::new("-n", "N", "at most N requests"),
];

pub(super) fn reqs(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(0)?;
    show(asked, locate, &options(asked, ControlQuestion::new("reqs"), &[("--over", "over"), ("-n", "n")]))
        .map(drop)
}

/// `weir lua`
pub(super) fn lua(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(1)?;
    let question = ControlQuestion::new("lua").with("of", asked.words.first().map_or("gc", String::as_str));
    show(asked, locate, &question).map(drop)
}

/// `weir dict`
pub(super) fn dict(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(0)?;
    show(asked, locate, &ControlQuestion::new("dict")).map(drop)
}

/// `weir queue`
pub(super) const QUEUE: &[CommandOption] = &[
    CommandOption::new("-t", "TIME", "how long to watch (default: 1s)"),
    CommandOption::new("--all", "", "totals since the server began, without watching"),
];

pub(super) fn queue(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(0)?;
    let question = options(asked, ControlQuestion::new("queue"), &[("-t", "every")]);
    let question = if asked.has("--all") { question.with("all", "") } else { question };
    show(asked, locate, &question).map(drop)
}

/// `weir use`
pub(super) const USE: &[CommandOption] =
    &[CommandOption::new("-t", "TIME", "how long to measure (default: 1s)")];

pub(super) fn usage(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(0)?;
    show(asked, locate, &options(asked, ControlQuestion::new("use"), &[("-t", "every")])).map(drop)
}

/// `weir perf`
pub(super) const PERF: &[CommandOption] = &[
    CommandOption::new("-t", "TIME", "how long to count (default: 5s)"),
    CommandOption::new("--location", "NAME", "only that location"),
];

pub(super) fn perf(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(1)?;
    let given = [("-t", "every"), ("--location", "location")];
    let question = options(asked, ControlQuestion::new("perf"), &given);
    let question = match (asked.words.first(), asked.value("--location")) {
        (Some(_), Some(_)) => return Err("one location at a time".to_owned()),
        (Some(location), None) => question.with("location", location),
        (None, _) => question,
    };
    show(asked, locate, &question).map(drop)
}

/// `weir why`
pub(super) const WHY: &[CommandOption] = &[
    CommandOption::new("-t", "TIME", "how long to look (default: 2s)"),
    CommandOption::new("-n", "N", "at most N findings (default: 5)"),
];

pub(super) fn why(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(0)?;
    show(asked, locate, &options(asked, ControlQuestion::new("why"), &[("-t", "every"), ("-n", "n")]))
        .map(drop)
}

/// `weir tls`
pub(super) const TLS: &[CommandOption] =
    &[CommandOption::new("-t", "TIME", "how long to count for rates (default: 1s); 0: without rates")];

pub(super) fn tls(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(1)?;
    let question = options(asked, ControlQuestion::new("tls"), &[("-t", "every")]);
    let question = match asked.words.first() {
        Some(table) => question.with("of", table),
        None => question,
    };
    show(asked, locate, &question).map(drop)
}

/// `question` with the options that were given.
pub(super) fn options(
    asked: &CommandLine,
    question: ControlQuestion,
    given: &[(&str, &str)],
) -> ControlQuestion {
    given.iter().fold(question, |question, (option, key)| match asked.value(option) {
        Some(value) => question.with(key, value),
        None => question,
    })
}

/// With the requests that are meant: by `--match` or by one word.
pub(super) fn matching(asked: &CommandLine, question: ControlQuestion) -> Result<ControlQuestion, String> {
    asked.at_most(1)?;
    let words: Vec<&str> =
        asked.value("--match").into_iter().chain(asked.words.first().map(String::as_str)).collect();
    Ok(if words.is_empty() { question } else { question.with("match", words.join(" ")) })
}
