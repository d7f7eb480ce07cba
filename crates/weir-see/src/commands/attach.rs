//! `weir attach`: the trees of a running nginx.

use std::time::{Duration, Instant};

use weir_trace::{AverageWatch, KeptRequest, SiteTable, TraceWatch, render};

use super::control_calls::print;
use super::help::CommandOption;
use super::options::CommandLine;
use super::selector::LocateSocket;
use crate::attach::{self, AttachOutcome, AttachedProbes, ProbeTarget, RequestNaming};
use crate::filter::{RequestFilter, duration_ns};
use crate::responses::trace::json;
use crate::source::scale;

pub(super) const CHOICES: &[CommandOption] = &[
    CommandOption::new("-n", "N", "number of requests (default: 1)"),
    CommandOption::new("--avg", "N", "the mean tree of the next N requests"),
    CommandOption::new("--save", "FILE", "with --avg: write the mean to FILE, for weir diff"),
    CommandOption::new("--match", "WORDS", "which requests: /path, path=, method=, status=5xx, over=20ms"),
    CommandOption::new("-t", "TIME", "longest time (default: 1m)"),
    CommandOption::new("--list", "", "list the functions that would be probed, and why"),
];

pub(super) fn run(asked: &CommandLine, _: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(2)?;
    if asked.has("--save") && !asked.has("--avg") {
        return Err("--save goes with --avg: what is saved is an average".to_owned());
    }
    let pid = asked.words.first().ok_or("which process? weir attach PID")?;
    let pid = pid.parse().map_err(|_| format!("\"{pid}\" is no process"))?;
    let words = asked.words.get(1).map(String::as_str).or(asked.value("--match")).unwrap_or("");
    let filter = RequestFilter::parse(words)?;
    let limit = Duration::from_nanos(duration_ns(asked.value("-t").unwrap_or("1m"))?);
    let pid = attach::worker(pid)?;
    let target = ProbeTarget::of(pid)?;
    if asked.has("--list") {
        return print(target.list().as_bytes()).map_err(|error| error.to_string());
    }
    let attached = target.attach()?;
    eprintln!(
        "weir: {} probes; each call costs nginx {} ns, which are left out of all times",
        attached.count(),
        attached.cost_of_call()
    );
    match number(asked, "--avg")? {
        Some(count) => average(asked, attached, filter, words.is_empty(), count, limit),
        None => trees(asked, pid, attached, filter, number(asked, "-n")?.unwrap_or(1), limit),
    }
}

fn number(asked: &CommandLine, name: &str) -> Result<Option<usize>, String> {
    let Some(text) = asked.value(name) else { return Ok(None) };
    text.parse().ok().filter(|count| *count > 0).map(Some).ok_or_else(|| format!("\"{text}\" is no number"))
}

/// Headline and tree. How many bytes left is not known, and a process is no worker of ours.
fn text(kept: &KeptRequest, pid: u32) -> String {
    let sites = SiteTable::global();
    let headline = render::headline(kept.record(), sites, &scale);
    let headline = headline.replacen("  0 B  worker 0", &format!("  process {pid}"), 1);
    format!("{headline}\n{}", render::tree(&kept.tree(), sites, &scale))
}

/// Prints each tree as its request ends.
fn trees(
    asked: &CommandLine,
    pid: u32,
    attached: AttachedProbes,
    filter: RequestFilter,
    count: usize,
    limit: Duration,
) -> Result<(), String> {
    let show = |kept: &KeptRequest| if asked.has("--json") { json(kept) } else { text(kept, pid) };
    let (watch, kept) =
        TraceWatch::channel(count, move |record| attach::is_named(record) && filter.takes(record));
    let mut recorder = attach::recorder();
    recorder.watch(watch.clone());
    let until = Instant::now() + limit;
    let mut failed = None;
    let outcome = attached.follow(
        &mut recorder,
        &mut || {
            failed = kept.try_iter().find_map(|kept| print(show(&kept).as_bytes()).err());
            failed.is_some() || watch.left() == 0 || Instant::now() > until
        },
        RequestNaming::Read,
    )?;
    if let Some(error) = failed {
        return Err(error.to_string());
    }
    if watch.left() == count {
        return Err(nothing(&outcome));
    }
    said(&outcome);
    Ok(())
}

/// Prints or saves the mean of the next ones.
fn average(
    asked: &CommandLine,
    attached: AttachedProbes,
    filter: RequestFilter,
    takes_all: bool,
    count: usize,
    limit: Duration,
) -> Result<(), String> {
    let watch = AverageWatch::new(count, SiteTable::global(), move |record| {
        takes_all || (attach::is_named(record) && filter.takes(record))
    });
    let mut recorder = attach::recorder();
    recorder.average(watch.clone());
    let until = Instant::now() + limit;
    let naming = if takes_all { RequestNaming::Unneeded } else { RequestNaming::Read };
    let outcome =
        attached.follow(&mut recorder, &mut || watch.left() == 0 || Instant::now() > until, naming)?;
    let average = recorder.take_average(&watch).filter(|average| average.requests() > 0);
    let average = average.ok_or_else(|| nothing(&outcome))?;
    said(&outcome);
    let sites = SiteTable::global();
    match asked.value("--save") {
        Some(file) => {
            let text = render::average_json(&average, sites, &scale) + "\n";
            std::fs::write(file, text).map_err(|error| format!("\"{file}\": {error}"))?;
            println!("{file}: {} requests", average.requests());
            Ok(())
        }
        None => {
            let text = match asked.has("--json") {
                true => render::average_json(&average, sites, &scale) + "\n",
                false => render::average(&average, sites, &scale),
            };
            print(text.as_bytes()).map_err(|error| error.to_string())
        }
    }
}

fn nothing(outcome: &AttachOutcome) -> String {
    format!(
        "no such request in time ({} others ended, {} of them unknown)",
        outcome.requests, outcome.unnamed
    )
}

/// What is to be known of the figures.
fn said(outcome: &AttachOutcome) {
    let each = outcome.probing / outcome.requests.max(1) / 1000;
    eprintln!("weir: {} requests; {each} us of probes each were left out", outcome.requests);
    if outcome.lost > 0 {
        eprintln!(
            "weir: {} hits were lost, and with them the requests under way: less traffic helps",
            outcome.lost
        );
    }
}
