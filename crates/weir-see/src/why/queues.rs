//! Who waits for workers, and what workers wait for: accept queues, uneven shares, processors.

use super::figures::WhyFigures;
use super::{ACCEPT_QUEUE, Finding, NO_CORE, UNEVEN};

/// Accept queues that are full, or nearly.
pub(super) fn listeners(figures: &WhyFigures) -> Vec<Finding> {
    let full = figures
        .listeners
        .iter()
        .filter(|listener| listener.room > 0 && listener.waiting as f64 >= listener.room as f64 * FULL);
    let (open, most) = figures.connections;
    let why = if figures.no_descriptor > 0 {
        "; there are no free descriptors: raise worker_rlimit_nofile".to_owned()
    } else if most > 0 && open >= most {
        format!("; {open} connections are open and worker_connections allows no more")
    } else {
        String::new()
    };
    let finding = |listener: &super::figures::ListenerLoad| Finding {
        kind: ACCEPT_QUEUE,
        weight: 1.0 + listener.waiting as f64 / listener.room as f64,
        says: format!(
            "the accept queue of {} is full: {} connections wait, {} may{why}",
            listener.name, listener.waiting, listener.room
        ),
        subject: listener.name.clone(),
        line: String::new(),
        command: "weir queue".to_owned(),
    };
    full.map(finding).collect()
}

/// A worker that has many more connections than others.
pub(super) fn uneven(figures: &WhyFigures) -> Vec<Finding> {
    let workers = &figures.workers;
    let all: u64 = workers.iter().map(|worker| worker.connections).sum();
    let count = workers.len() as u64;
    let Some(most) = workers.iter().max_by_key(|worker| worker.connections).filter(|_| count > 1) else {
        return Vec::new();
    };
    let times = most.connections as f64 * count as f64 / all.max(1) as f64;
    // Of two workers the most that one can have is twice the mean.
    if all < FEW * count || times < UNEVEN_TIMES.min(1.0 + (count - 1) as f64 * 0.6) {
        return Vec::new();
    }
    vec![Finding {
        kind: UNEVEN,
        weight: (times - 1.0) * most.busy.max(0.1),
        says: format!(
            "worker {} has {} of {all} connections, {times:.1} times the mean of {count} workers",
            most.worker, most.connections
        ),
        subject: format!("worker {}", most.worker),
        line: String::new(),
        command: "weir top workers".to_owned(),
    }]
}

/// A worker that could run and has no core.
pub(super) fn no_core(figures: &WhyFigures) -> Vec<Finding> {
    let worst = figures.workers.iter().max_by(|one, other| one.run_queue.total_cmp(&other.run_queue));
    let finding = |worst: &super::figures::WorkerLoad| {
        let late =
            if worst.late > 0 { format!(", {} of its turns were late", worst.late) } else { String::new() };
        Finding {
            kind: NO_CORE,
            weight: worst.run_queue,
            says: format!(
                "worker {} was ready and had no processor for {:.0}% of the time{late}: other programs or workers have it, \
                 or a quota (cpu.max) is used up; times of running include that",
                worst.worker,
                worst.run_queue * 100.0
            ),
            subject: format!("worker {}", worst.worker),
            line: String::new(),
            command: "weir top workers".to_owned(),
        }
    };
    worst.filter(|worst| worst.run_queue >= LOST).map(finding).into_iter().collect()
}

/// The share of its room from which on an accept queue is full.
const FULL: f64 = 0.8;
/// Connections a worker, on average, from which on shares are judged.
const FEW: u64 = 16;
/// The largest share over the mean from which on shares are uneven.
const UNEVEN_TIMES: f64 = 1.6;
/// The share of the time without a core from which on it is lost.
pub(super) const LOST: f64 = 0.2;
