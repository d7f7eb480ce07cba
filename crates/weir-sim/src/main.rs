//! Runs simulations: `weir-sim --seeds 0..300`, `weir-sim --minutes 60`, `weir-sim --seed 17 --keep`.
#![forbid(unsafe_code)]

mod arguments;
mod minimise;
mod run;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use arguments::Arguments;
use run::{Programs, SimulatedRun};
use weir_sim::plan::Plan;

/// Threads that compute beside disturbed runs.
const BURNERS: usize = 8;
/// Faults that are shown of a seed.
const SHOWN: usize = 5;

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("weir-sim: {message}\n{}", arguments::USAGE);
            return ExitCode::from(2);
        }
    };
    let programs = match Programs::find(&arguments) {
        Ok(programs) => programs,
        Err(message) => {
            eprintln!("weir-sim: {message}");
            return ExitCode::from(2);
        }
    };
    if arguments.is_minimised {
        return smaller(&programs, &arguments);
    }
    let began = Instant::now();
    let seeds = Mutex::new(arguments.seeds.clone());
    let tally = Mutex::new(Tally::default());
    let running = AtomicUsize::new(arguments.jobs);
    std::thread::scope(|scope| {
        for _ in 0..if arguments.is_disturbed { BURNERS } else { 0 } {
            scope.spawn(|| {
                while running.load(Relaxed) > 0 {
                    std::hint::spin_loop();
                }
            });
        }
        for _ in 0..arguments.jobs {
            scope.spawn(|| {
                let _job = RunningJob(&running);
                loop {
                    let is_over =
                        arguments.minutes.is_some_and(|minutes| began.elapsed().as_secs() >= minutes * 60);
                    let next = seeds.lock().map_or(None, |mut seeds| seeds.next());
                    let Some(seed) = next.filter(|_| !is_over) else { return };
                    let plan = Plan::new(seed);
                    if !arguments.features.iter().all(|feature| feature.is_in(&plan)) {
                        continue;
                    }
                    let runs = SimulatedRun::of(seed, &programs, &arguments);
                    if let Ok(mut tally) = tally.lock() {
                        tally.add(seed, &runs);
                    }
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap_or_default();
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{} seeds, {} requests, {:.1} simulated hours in {seconds:.0} s: {} with faults",
        tally.seeds,
        tally.requests,
        tally.microseconds as f64 / 3.6e9,
        tally.failed
    );
    if tally.failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// A thread that runs seeds; it has ended when this is dropped.
struct RunningJob<'a>(&'a AtomicUsize);

impl Drop for RunningJob<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Makes the first seed smaller, and says what is left of it.
fn smaller(programs: &Programs, arguments: &Arguments) -> ExitCode {
    let seed = arguments.seeds.start;
    let whole = SimulatedRun::of(seed, programs, arguments);
    let Some(first) = whole.faults.first() else {
        eprintln!("weir-sim: seed {seed} has no faults");
        return ExitCode::from(2);
    };
    println!("seed {seed}: {first}");
    let wanted = kind_of(first);
    let (cut, runs) = minimise::minimised(seed, |cut| {
        let run = SimulatedRun::of(seed, programs, &Arguments { cut: cut.clone(), ..arguments.clone() });
        run.faults.iter().any(|fault| kind_of(fault) == wanted)
    });
    let text = cut.text();
    println!("{runs} runs; once more: cargo run -p weir-sim -- --seed {seed} --cut {text:?} --keep");
    ExitCode::FAILURE
}

/// A fault without what differs from run to run: numbers, and what is quoted.
fn kind_of(fault: &str) -> String {
    let words = fault.split(['{', '"']).next().unwrap_or(fault);
    words.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// What all seeds have come to.
#[derive(Debug, Default)]
struct Tally {
    seeds: u64,
    requests: usize,
    microseconds: u64,
    failed: u64,
}

impl Tally {
    fn add(&mut self, seed: u64, run: &SimulatedRun) {
        self.seeds += 1;
        self.requests += run.requests;
        self.microseconds += run.microseconds;
        if run.faults.is_empty() {
            return;
        }
        self.failed += 1;
        println!(
            "seed {seed}: {} faults; once more: cargo run -p weir-sim -- --seed {seed} --keep",
            run.faults.len()
        );
        for fault in run.faults.iter().take(SHOWN) {
            println!("    {fault}");
        }
    }
}
