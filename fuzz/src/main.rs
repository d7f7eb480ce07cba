//! Bounded fuzz run of every parser, on stable Rust: `cargo run -p weir-fuzz`.
//!
//! The same seed gives the same inputs, so a failure in CI repeats at home. A failing input is printed as a Rust byte
//! string, ready to become a seed or a test, and the process exits with 1.

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use weir_fuzz::mutate::{Mutator, Random};
use weir_fuzz::{TARGETS, Target};

const USAGE: &str = "\
usage: weir-fuzz [--iterations N | --seconds N] [--seed N] [--target NAME]... [--file PATH] [--list]
  --iterations N  inputs per target (20000)
  --seconds N     inputs for so long per target, in place of a number of them
  --seed N        start of the random numbers (1)
  --target NAME   only this target; may be repeated
  --file PATH     run the chosen targets on the bytes of this file only
  --list          names of all targets";

/// The command line, read.
struct Options {
    iterations: u64,
    seconds: Option<u64>,
    seed: u64,
    targets: Vec<&'static Target>,
    file: Option<String>,
    list: bool,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if options.list {
        options.targets.iter().for_each(|target| println!("{}", target.name));
        return ExitCode::SUCCESS;
    }
    let run = |target: &&Target| match &options.file {
        Some(path) => run_file(target, path),
        None => run_target(target, &options),
    };
    // All targets run, so that one report holds every failure.
    let failed = options.targets.iter().filter(|target| !run(target)).count();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options =
        Options { iterations: 20_000, seconds: None, seed: 1, targets: Vec::new(), file: None, list: false };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--iterations" => options.iterations = number(&value()?)?,
            "--seconds" => options.seconds = Some(number(&value()?)?),
            "--seed" => options.seed = number(&value()?)?,
            "--target" => options.targets.push(target(&value()?)?),
            "--file" => options.file = Some(value()?),
            "--list" => options.list = true,
            _ => return Err(format!("unknown option {word}")),
        }
    }
    if options.targets.is_empty() {
        options.targets.extend(TARGETS);
    }
    Ok(options)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|error| format!("{text}: {error}"))
}

fn target(name: &str) -> Result<&'static Target, String> {
    TARGETS.iter().find(|target| target.name == name).ok_or(format!("no target {name}; see --list"))
}

/// Runs one target on its seeds and then on inputs made of them; reports, and says whether all passed.
fn run_target(target: &Target, options: &Options) -> bool {
    let started = Instant::now();
    let mut mutator = Mutator::new(Random::new(options.seed), target.seeds, target.tokens);
    let mut slowest = Slowest::default();
    for seed in target.seeds {
        if !passes(target, seed, &mut slowest) {
            return false;
        }
    }
    let budget = options.seconds.map(Duration::from_secs);
    let goes_on = |done: u64| match budget {
        Some(budget) => started.elapsed() < budget,
        None => done < options.iterations,
    };
    let mut iteration = 0;
    while goes_on(iteration) {
        if !passes(target, mutator.next_input(), &mut slowest) {
            eprintln!("iteration {iteration} of --target {} --seed {}", target.name, options.seed);
            return false;
        }
        iteration += 1;
    }
    let runs = iteration + target.seeds.len() as u64;
    println!(
        "{:<16} {runs} inputs in {} ms, slowest {} us ({} bytes)",
        target.name,
        started.elapsed().as_millis(),
        slowest.time.as_micros(),
        slowest.len
    );
    true
}

fn run_file(target: &Target, path: &str) -> bool {
    match std::fs::read(path) {
        Ok(input) => passes(target, &input, &mut Slowest::default()),
        Err(error) => {
            eprintln!("{path}: {error}");
            false
        }
    }
}

/// The input that took longest; a parser gone quadratic shows here.
#[derive(Default)]
struct Slowest {
    time: Duration,
    len: usize,
}

fn passes(target: &Target, input: &[u8], slowest: &mut Slowest) -> bool {
    let started = Instant::now();
    let passed = catch_unwind(|| (target.run)(input)).is_ok();
    let time = started.elapsed();
    if time > slowest.time {
        *slowest = Slowest { time, len: input.len() };
    }
    if !passed {
        eprintln!("{} fails on b\"{}\"", target.name, input.escape_ascii());
    }
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Options, String> {
        options(words.iter().map(|&word| word.to_owned()))
    }

    #[test]
    fn a_panic_is_a_failure_and_the_run_goes_on() {
        let target =
            Target { name: "odd", run: |data| assert!(data.len() % 2 == 0), seeds: &[], tokens: &[] };
        let mut slowest = Slowest::default();
        assert!(passes(&target, b"ab", &mut slowest));
        assert!(!passes(&target, b"abc", &mut slowest));
        let options = read(&["--iterations", "1000"]).expect("good words");
        assert!(!run_target(&Target { seeds: &[b"ab"], ..target }, &options));
    }

    #[test]
    fn the_command_line_chooses() {
        let options = read(&["--seed", "7", "--target", "range", "--target", "host"]).expect("good words");
        assert_eq!((options.seed, options.iterations), (7, 20_000));
        assert_eq!(options.targets.iter().map(|target| target.name).collect::<Vec<_>>(), ["range", "host"]);
        assert_eq!(read(&[]).map(|options| options.targets.len()), Ok(TARGETS.len()));
        assert_eq!(read(&["--seconds", "0"]).map(|options| options.seconds), Ok(Some(0)));
        for wrong in [["--seed", "x"].as_slice(), &["--seed"], &["--target", "none"], &["--wrong"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
