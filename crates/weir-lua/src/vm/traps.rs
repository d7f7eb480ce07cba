//! What a script does to the worker it runs on: calls that block it, globals that requests share, limits that it runs
//! into. All are counted by place; of the first two each place is logged when it is first reached, and at every
//! thousandth time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// How often each place was come by, and for what, of all workers; what has no room here is not reported.
static SEEN: Mutex<Option<HashMap<(String, String), u64>>> = Mutex::new(None);

/// Number of places that are remembered.
const MOST: usize = 4096;

/// How often scripts have done what where, most often first: `(times, what, file:line)`.
pub(crate) fn seen() -> Vec<(u64, String, String)> {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let line = |((place, what), times): (&(String, String), &u64)| {
        (*times, what.clone(), place.trim_end_matches([':', ' ']).to_owned())
    };
    let mut list: Vec<_> = seen.iter().flatten().map(line).collect();
    list.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.cmp(other)));
    list
}

/// Counts that scripts do `what` at `place` (`file:line: `, if that is known). How often they have by now; `None` where there
/// is no room for the place.
pub(crate) fn count(what: &str, place: &str) -> Option<u64> {
    let key = (place.to_owned(), what.to_owned());
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = seen.get_or_insert_default();
    if seen.len() >= MOST && !seen.contains_key(&key) {
        return None;
    }
    let times = seen.entry(key).or_insert(0);
    *times += 1;
    Some(*times)
}
