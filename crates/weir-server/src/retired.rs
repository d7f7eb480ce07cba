//! Configurations that a reload has taken out of force: a large one is freed aside, once nothing uses it.
//!
//! Freeing the settings of a hundred thousand locations takes as long as reading them. The worker that ends the last request
//! under them must not do it on its loop.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use weir_engine::Configuration;
use weir_engine::log::{self, LogLevel};
use weir_engine::worker::generation::WorkerGeneration;
use weir_rt::process;

/// Frees `configuration` on a thread of its own when it is the last to have it, and gives the memory back to the system. A small
/// one is freed by the worker that lets go of it last: the next reload takes its memory.
pub(crate) fn retire(configuration: Arc<Configuration>) {
    if WorkerGeneration::is_built_at_once(&configuration) {
        return;
    }
    let freed = thread::Builder::new().name("weir retire".to_owned()).spawn(move || free(configuration));
    if let Err(error) = freed {
        log::cycle(LogLevel::Warn, &format_args!("no thread frees the configuration before: {error}"));
    }
}

fn free(configuration: Arc<Configuration>) {
    let mut pause = FIRST_PAUSE;
    while Arc::strong_count(&configuration) > 1 {
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    drop(configuration);
    process::trim_memory();
}

/// Between looks whether anything still uses a configuration: at first, and after some.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
