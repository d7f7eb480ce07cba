//! What differs, as text to read.

use std::fmt::Write;

use crate::compare::side::Outcome;
use crate::compare::table::{Differs, Request};
use crate::compare::version::Version;

/// Counts and differences of one configuration.
pub(crate) struct Report {
    name: String,
    version: Version,
    asked: usize,
    skipped: Vec<String>,
    meant: Vec<String>,
    wrong: Vec<String>,
}

impl Report {
    pub(crate) fn new(name: &str, version: Version) -> Report {
        Report {
            name: name.to_owned(),
            version,
            asked: 0,
            skipped: Vec::new(),
            meant: Vec::new(),
            wrong: Vec::new(),
        }
    }

    /// A request that is not for this version.
    pub(crate) fn skip(&mut self, request: &Request) {
        self.skipped.push(request.line.clone());
    }

    /// Compares what both sides made of the requests; both have those that were asked, in the same order.
    pub(crate) fn compare(&mut self, requests: &[Request], theirs: &[Outcome], ours: &[Outcome]) {
        self.asked = theirs.len();
        for (theirs, ours) in theirs.iter().zip(ours) {
            let request =
                requests.iter().find(|request| request.number == theirs.number).expect("it was asked");
            let (answer, log) = (same_answer(theirs, ours), theirs.log == ours.log);
            match (&request.differs, answer, log) {
                (Differs::No, true, true) => {}
                (Differs::Answer(_), false, _) | (Differs::Log(_), true, false) => {
                    self.meant.push(request.line.clone());
                }
                (Differs::Answer(_) | Differs::Log(_), true, true) => {
                    self.wrong.push(format!(
                        "{}.req:{}: the same now: {}",
                        self.name, request.number, request.line
                    ));
                }
                _ => self.wrong.push(self.describe(request, theirs, ours)),
            }
        }
    }

    fn describe(&self, request: &Request, theirs: &Outcome, ours: &Outcome) -> String {
        let mut text = format!("{}.req:{}: {}\n", self.name, request.number, request.line);
        if !same_answer(theirs, ours) {
            text.push_str(&pieces("nginx", theirs, &ours.bytes));
            text.push_str(&pieces("weir", ours, &theirs.bytes));
        }
        if theirs.log != ours.log {
            for (side, lines) in [("nginx", &theirs.log), ("weir", &ours.log)] {
                writeln!(text, "  log of {side}: {lines:#?}").expect("writing to a string");
            }
        }
        text
    }

    /// Prints everything.
    ///
    /// # Panics
    /// When something differs that is not meant to.
    pub(crate) fn finish(self) {
        let Report { name, version, asked, skipped, meant, wrong } = self;
        for text in &wrong {
            eprintln!("{text}");
        }
        for text in &meant {
            eprintln!("{name}: meant to differ: {text}");
        }
        let (skipped, meant, count) = (skipped.len(), meant.len(), wrong.len());
        eprintln!(
            "{name}: {asked} requests, {skipped} of other versions than {version}, {meant} meant to differ, {count} wrong"
        );
        assert!(wrong.is_empty(), "{name}: {count} of {asked} requests: see above");
        assert!(asked >= ENOUGH, "{name}: {asked} requests only");
    }
}

fn same_answer(theirs: &Outcome, ours: &Outcome) -> bool {
    (theirs.late, &theirs.bytes) == (ours.late, &ours.bytes)
}

/// What one side sent: all of it if it is short, else what is around the first byte that differs.
fn pieces(side: &str, outcome: &Outcome, other: &[u8]) -> String {
    let bytes = &outcome.bytes;
    let first = bytes.iter().zip(other).position(|(a, b)| a != b).unwrap_or(bytes.len().min(other.len()));
    let from = first.saturating_sub(AROUND);
    let to = (first + AROUND).min(bytes.len());
    let mut text = format!("  {side}, {} bytes, from {from}, first difference at {first}", bytes.len());
    if let Some(trouble) = &outcome.trouble {
        write!(text, " ({trouble})").expect("writing to a string");
    }
    text.push('\n');
    for line in bytes[from..to].split_inclusive(|byte| *byte == b'\n') {
        writeln!(text, "    {}", line.escape_ascii()).expect("writing to a string");
    }
    text
}

/// Bytes shown before and after the first difference.
const AROUND: usize = 700;
/// Minimum number of requests for each configuration.
const ENOUGH: usize = 200;
