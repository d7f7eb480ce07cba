//! Runs simulations: `weir-sim --seeds 0..300`, `weir-sim --minutes 60`, `weir-sim --seed 17 --keep`.
#![forbid(unsafe_code)]

mod arguments;
mod run;

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use arguments::Arguments;
use run::{Programs, SimulatedRun};

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
    let began = Instant::now();
    let seeds = Mutex::new(arguments.seeds.clone());
    let tally = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs {
            scope.spawn(|| {
                loop {
                    let is_over =
                        arguments.minutes.is_some_and(|minutes| began.elapsed().as_secs() >= minutes * 60);
                    let next = seeds.lock().map_or(None, |mut seeds| seeds.next());
                    let Some(seed) = next.filter(|_| !is_over) else { return };
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
