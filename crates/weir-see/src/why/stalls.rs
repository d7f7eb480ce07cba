//! What blocks workers: calls that sleep, locks, disks.

use super::compute::rate;
use super::figures::{StallCause, WhyFigures};
use super::{BLOCKED, DISK, Finding, LOCK, at, waited};

/// Stalls of one cause, location and line.
#[derive(Clone, Debug)]
pub(super) struct StallGroup {
    pub(super) location: String,
    pub(super) by: String,
    pub(super) line: String,
    pub(super) times: u64,
    pub(super) ns: u64,
    pub(super) waited: u64,
    pub(super) waited_ns: u64,
    longest: u64,
}

impl StallGroup {
    /// Seconds lost in a second, by the worker and by requests that waited.
    pub(super) fn weight(&self, figures: &WhyFigures) -> f64 {
        (self.ns + self.waited_ns) as f64 / 1e9 / figures.seconds.max(1e-9)
    }

    /// Whether it is no accident: it comes again, or takes much of the time.
    fn counts(&self, figures: &WhyFigures) -> bool {
        let share = self.ns as f64 / 1e9 / figures.seconds.max(1e-9);
        self.times >= OFTEN && share >= LITTLE || share >= MUCH
    }
}

/// Stalls of that cause that are no accident, the heaviest first.
pub(super) fn group(figures: &WhyFigures, cause: StallCause) -> Vec<StallGroup> {
    let mut groups: Vec<StallGroup> = Vec::new();
    // Of what is nowhere there is nothing to say.
    let known = |stall: &&super::figures::StallLoad| stall.location != "-" || !stall.line.is_empty();
    for stall in figures.stalls.iter().filter(|stall| stall.cause == cause).filter(known) {
        let place = |line: &str, by: &str| if line.is_empty() { by.to_owned() } else { line.to_owned() };
        let same = |group: &StallGroup| {
            group.location == stall.location && place(&group.line, &group.by) == place(&stall.line, &stall.by)
        };
        let group = match groups.iter().position(same) {
            Some(at) => &mut groups[at],
            None => {
                groups.push(StallGroup {
                    location: stall.location.clone(),
                    by: stall.by.clone(),
                    line: stall.line.clone(),
                    times: 0,
                    ns: 0,
                    waited: 0,
                    waited_ns: 0,
                    longest: 0,
                });
                groups.last_mut().expect("one was pushed")
            }
        };
        group.times += 1;
        group.ns += stall.ns;
        group.waited += stall.waited;
        group.waited_ns += stall.waited_ns;
        if stall.ns > group.longest {
            (group.longest, group.by) = (stall.ns, stall.by.clone());
        }
    }
    groups.retain(|group| group.counts(figures));
    groups.sort_by(|one, other| other.weight(figures).total_cmp(&one.weight(figures)));
    groups
}

/// Calls that sleep while the loop waits.
pub(super) fn calls(figures: &WhyFigures) -> Vec<Finding> {
    let finding = |group: StallGroup| {
        says(figures, &group, BLOCKED, |group| {
            format!("{}{} blocked a worker", group.by, inside(&group.location))
        })
    };
    group(figures, StallCause::Sleeps).into_iter().map(finding).collect()
}

/// Waits for a lock.
pub(super) fn locks(figures: &WhyFigures) -> Vec<Finding> {
    let finding = |group: StallGroup| {
        says(figures, &group, LOCK, |group| {
            format!("a worker waited for a lock{}, {}", inside(&group.location), group.by)
        })
    };
    group(figures, StallCause::Locked).into_iter().map(finding).collect()
}

/// Files that are slow: on the loop, and in the threads for files.
pub(super) fn disk(figures: &WhyFigures) -> Vec<Finding> {
    let finding = |group: StallGroup| {
        says(figures, &group, DISK, |group| {
            format!("a worker waited for a file{}, {}", inside(&group.location), group.by)
        })
    };
    let mut found: Vec<Finding> = group(figures, StallCause::Disk).into_iter().map(finding).collect();
    let files = &figures.files;
    let count = files.done + files.running;
    let mean = if files.done > 0 { files.ns / count.max(1) } else { files.oldest_ns };
    if count >= OFTEN && mean >= SLOW_FILE_NS {
        let seconds = figures.seconds.max(1e-9);
        found.push(Finding {
            kind: DISK,
            weight: files.ns as f64 / 1e9 / seconds,
            says: format!(
                "the disk is slow: file operations take {} each, {} a second, {} run now",
                crate::table::time(mean),
                rate(files.done, figures),
                files.running
            ),
            subject: "files".to_owned(),
            line: String::new(),
            command: "weir use".to_owned(),
        });
    }
    found
}

fn says(
    figures: &WhyFigures,
    group: &StallGroup,
    kind: &'static str,
    what: impl Fn(&StallGroup) -> String,
) -> Finding {
    let line = if group.by.contains(&group.line) { String::new() } else { at(&group.line) };
    Finding {
        kind,
        weight: group.weight(figures),
        says: format!(
            "{}{line} {} times a second, {} each{}",
            what(group),
            rate(group.times, figures),
            crate::table::time(group.ns / group.times.max(1)),
            waited(group.waited, group.waited_ns)
        ),
        subject: group.location.clone(),
        line: group.line.clone(),
        command: "weir blocked".to_owned(),
    }
}

/// ` in LOCATION`; nothing where none is known.
pub(super) fn inside(location: &str) -> String {
    if matches!(location, "" | "-") { String::new() } else { format!(" in {location}") }
}

/// The command that shows the stacks of a location; of all where none is known.
pub(super) fn flame(location: &str) -> String {
    if matches!(location, "" | "-") {
        return "weir flame cpu".to_owned();
    }
    format!("weir flame cpu --route {}", command(location))
}

/// A word of a command line.
pub(super) fn command(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@%+=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// From this many on, stalls are no accident.
const OFTEN: u64 = 3;
/// But if they take less than this share of the time, they hurt nobody.
const LITTLE: f64 = 0.02;
/// One that takes this share of the time counts by itself.
const MUCH: f64 = 0.15;
/// A file operation that takes longer is slow.
const SLOW_FILE_NS: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::{command, flame};

    #[test]
    fn words_are_quoted_where_a_shell_would_read_more() {
        assert_eq!(command("/api/"), "/api/");
        assert_eq!(command("~ \\.php$"), "'~ \\.php$'");
        assert_eq!((&*flame("/a b"), &*flame("-")), ("weir flame cpu --route '/a b'", "weir flame cpu"));
        assert_eq!((command("it's"), command("")), ("'it'\\''s'".to_owned(), "''".to_owned()));
    }
}
