//! `weir compare`: two sides on the same traffic, in rounds.
//!
//! Two locations (or other choices of requests) of one server are watched at once. With `--load` this command makes the
//! requests, all over one connection, so that one worker serves them, and a coin decides for each which side it is for.
//! Two servers are watched and loaded in turn, each first in every other round.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use super::control_calls::note;
use super::diff::{FAIL_OVER, SAME, WAIT, finish};
use super::help::CommandOption;
use super::load::{LoadConnection, LoadUrl};
use super::options::CommandLine;
use super::questions::MATCH;
use super::selector::{LocateSocket, ServerSelector};
use crate::compare::{MeasuredNode, SideName, SideNames};
use crate::control::client::ControlClient;
use crate::control::protocol::ControlQuestion;

pub(super) const CHOICES: &[CommandOption] = &[
    CommandOption::new(
        "--load",
        "URL",
        "send the requests to http://HOST:PORT, with the paths A and B; with two servers to A",
    ),
    CommandOption::new("--load-b", "URL", "with two servers: the URL for the requests to B"),
    CommandOption::new("--rounds", "N", "number of rounds (default: 30)"),
    CommandOption::new("-n", "N", "requests of each side in a round (default: 100)"),
    CommandOption::new("-t", "TIME", "longest time of a round (default: 10s)"),
    MATCH,
    FAIL_OVER,
    WAIT,
    SAME,
];

pub(super) fn run(asked: &CommandLine, locate: LocateSocket<'_>) -> Result<(), String> {
    asked.at_most(2)?;
    let [a, b] = &asked.words[..] else {
        return Err(
            "two sides are needed: paths of one server, or configurations or sockets of two".to_owned()
        );
    };
    let load = |name| asked.value(name).map(LoadUrl::parse).transpose();
    let (load, load_b) = (load("--load")?, load("--load-b")?);
    // What is asked for by one address are paths, whatever this machine's files are called.
    let servers = match (&load, &load_b) {
        (Some(_), None) => (None, None),
        (None, Some(_)) => return Err("--load-b goes with --load".to_owned()),
        _ => (server(a, locate)?, server(b, locate)?),
    };
    let sides = match servers {
        (Some(a), Some(b)) => {
            let filter = asked.value(MATCH.name).unwrap_or("").to_owned();
            let a = ComparedServer { socket: a, filter: filter.clone(), load };
            ComparedSides::Two([a, ComparedServer { socket: b, filter, load: load_b }])
        }
        (None, None) if load_b.is_some() => {
            return Err("--load-b is for two servers: configurations, prefixes or control sockets".to_owned());
        }
        (None, None) => {
            let socket = match &asked.place.socket {
                Some(socket) => socket.clone(),
                None => locate(&asked.place)?,
            };
            one(socket, [a, b], asked.value(MATCH.name), load)?
        }
        _ => return Err(format!("\"{a}\" and \"{b}\" are not of one kind: two paths, or two servers")),
    };
    compare(asked, &sides, [a, b])
}

/// One of two servers: its control socket, what is matched, and what is asked for.
struct ComparedServer {
    socket: PathBuf,
    filter: String,
    load: Option<LoadUrl>,
}

/// What is compared.
enum ComparedSides {
    /// Requests of one server: its socket, what is matched, and what is asked for.
    One(PathBuf, [String; 2], Option<[LoadUrl; 2]>),
    /// Two servers.
    Two([ComparedServer; 2]),
}

/// One server with two choices of requests.
fn one(
    socket: PathBuf,
    words: [&String; 2],
    all: Option<&str>,
    load: Option<LoadUrl>,
) -> Result<ComparedSides, String> {
    let all = all.unwrap_or("");
    let Some(load) = load else {
        return Ok(ComparedSides::One(socket, words.map(|word| format!("{word} {all}")), None));
    };
    if let Some(word) = words.iter().find(|word| !word.starts_with('/')) {
        return Err(format!("\"{word}\" is no path that could be asked for"));
    }
    // Exactly what is asked for, not all that begins so.
    let matched = words.map(|word| format!("path={word} {all}"));
    Ok(ComparedSides::One(socket, matched, Some(words.map(|word| load.with_path(word)))))
}

/// The control socket of the server that `word` names: a socket, a configuration, or a prefix.
fn server(word: &str, locate: LocateSocket<'_>) -> Result<Option<PathBuf>, String> {
    let path = Path::new(word);
    let Ok(meta) = std::fs::metadata(path) else { return Ok(None) };
    // `/` and other paths of a site may be directories here, too: those of a server are marked by `./` or a name alone.
    if meta.is_dir() {
        let place = ServerSelector { prefix: Some(path.to_path_buf()), ..ServerSelector::default() };
        return if word.ends_with('/') && word.starts_with('/') {
            Ok(None)
        } else {
            locate(&place).map(Some)
        };
    }
    if meta.is_file() {
        let conf = std::path::absolute(path).map_err(|error| format!("\"{word}\": {error}"))?;
        // Its prefix is found as for all other commands.
        let place = ServerSelector { conf: Some(conf), ..ServerSelector::default() };
        return locate(&place).map(Some);
    }
    Ok(Some(path.to_path_buf()))
}

fn compare(asked: &CommandLine, sides: &ComparedSides, words: [&String; 2]) -> Result<(), String> {
    let number = |name, usual: usize| match asked.value(name) {
        Some(text) => {
            text.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("\"{text}\" is no number of them"))
        }
        None => Ok(usual),
    };
    let (count, wanted) = (number("--rounds", 30)?, number("-n", 100)?);
    let ask = RoundQuestion { requests: wanted, limit: asked.value("-t").unwrap_or("10s").to_owned() };
    let mut rounds = Vec::new();
    let mut coin = RandomCoin::new();
    for round in 0..count {
        note(format!("round {} of {count}", round + 1).as_bytes()).map_err(|error| error.to_string())?;
        let (a, b) = match sides {
            ComparedSides::One(socket, filters, load) => {
                at_once(socket, filters, load.as_ref(), &ask, &mut coin)?
            }
            ComparedSides::Two([a, b]) if round % 2 == 0 => {
                let a = alone(a, &ask)?;
                (a, alone(b, &ask)?)
            }
            ComparedSides::Two([a, b]) => {
                let b = alone(b, &ask)?;
                (alone(a, &ask)?, b)
            }
        };
        for (side, word) in [(&a, words[0]), (&b, words[1])] {
            if side.requests() == 0 {
                return Err(format!("no request of \"{word}\" came in {}", ask.limit));
            }
        }
        rounds.push((a, b));
    }
    note(b"").map_err(|error| error.to_string())?;
    let total = |of: fn(&(MeasuredNode, MeasuredNode)) -> &MeasuredNode| {
        rounds.iter().map(|round| of(round).requests()).sum()
    };
    let names = SideNames {
        a: SideName::new(words[0], total(|round| &round.0)),
        b: SideName::new(words[1], total(|round| &round.1)),
        rounds: rounds.len(),
    };
    finish(asked, &rounds, &names)
}

/// What a round asks of a server.
struct RoundQuestion {
    requests: usize,
    limit: String,
}

impl RoundQuestion {
    /// The average of the requests that `filter` takes.
    fn average(&self, socket: &Path, filter: &str) -> Result<MeasuredNode, String> {
        let question = ControlQuestion::new("average").with("n", self.requests).with("for", &self.limit);
        let question = question.with("match", filter.trim()).with("json", "");
        MeasuredNode::parse(ControlClient::connect(socket)?.text(&question)?.as_bytes())
    }
}

/// A round of both sides of one server.
fn at_once(
    socket: &Path,
    filters: &[String; 2],
    load: Option<&[LoadUrl; 2]>,
    ask: &RoundQuestion,
    coin: &mut RandomCoin,
) -> Result<(MeasuredNode, MeasuredNode), String> {
    while_loaded(
        |done| match load {
            Some(targets) => {
                let mut loader = LoadConnection::new(&targets[0]);
                while !done() {
                    loader.get(&targets[usize::from(coin.toss())].path)?;
                }
                Ok(())
            }
            None => Ok(()),
        },
        || {
            std::thread::scope(|scope| {
                let a = scope.spawn(|| ask.average(socket, &filters[0]));
                let b = ask.average(socket, &filters[1])?;
                Ok((a.join().map_err(|_| "the thread that asked has panicked")??, b))
            })
        },
    )
}

/// A round of one of two servers.
fn alone(server: &ComparedServer, ask: &RoundQuestion) -> Result<MeasuredNode, String> {
    while_loaded(
        |done| match &server.load {
            Some(target) => {
                let mut loader = LoadConnection::new(target);
                while !done() {
                    loader.get(&target.path)?;
                }
                Ok(())
            }
            None => Ok(()),
        },
        || ask.average(&server.socket, &server.filter),
    )
}

/// What `measure` gives, while `load` runs until it is stopped.
fn while_loaded<T>(
    load: impl FnOnce(&dyn Fn() -> bool) -> Result<(), String> + Send,
    measure: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| load(&|| done.load(Relaxed)));
        let measured = measure();
        done.store(true, Relaxed);
        // Why nothing could be asked for is why nothing was measured.
        loading.join().map_err(|_| "the thread that makes requests has panicked")??;
        measured
    })
}

/// Heads or tails; not to be foreseen by rhythms of the load (xorshift64).
struct RandomCoin(u64);

impl RandomCoin {
    fn new() -> RandomCoin {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        RandomCoin(time | 1)
    }

    fn toss(&mut self) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 63 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coin_is_fair_and_has_no_rhythm() {
        let mut coin = RandomCoin(0x9E37_79B9_7F4A_7C15);
        let tosses: Vec<bool> = (0..10_000).map(|_| coin.toss()).collect();
        let heads = tosses.iter().filter(|heads| **heads).count();
        let changes = tosses.windows(2).filter(|pair| pair[0] != pair[1]).count();
        // Four standard deviations; the seed is fixed.
        assert!((4_800..=5_200).contains(&heads) && (4_800..=5_200).contains(&changes), "{heads} {changes}");
    }

    #[test]
    fn a_word_is_a_path_of_the_site_or_a_server() {
        let locate = |place: &ServerSelector| Ok(place.prefix.clone().unwrap_or_default().join("socket"));
        assert_eq!(server("/no/such/path", &locate), Ok(None));
        assert_eq!(server("/", &locate), Ok(None));
        let directory = std::env::temp_dir();
        let word = directory.to_str().expect("text").trim_end_matches('/').to_owned();
        assert_eq!(server(&word, &locate), Ok(Some(Path::new(&word).join("socket"))));
        assert_eq!(server(&format!("{word}/"), &locate), Ok(None));
        let paths = ["/a".to_owned(), "location=/b/".to_owned()];
        let load = LoadUrl::parse("http://a").expect("an address");
        assert!(one("s".into(), paths.each_ref(), None, Some(load)).is_err(), "a location is no path");
    }
}
