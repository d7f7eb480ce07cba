//! What is done for each source, on the [thread](weir_engine::services) of what Weir does of its own accord.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use weir_rt::notify::either;

use crate::block::upstream::Upstream;
use crate::discovery::server_list::ServerEntry;
use crate::discovery::source::ServerSource;
use crate::discovery::source::reader::SourceReader;
use weir_engine::log::{self, LogLevel};
use weir_engine::services;

/// Begins to follow the source of `group`, if it has one. It ends with the upstream.
pub(crate) fn follow(upstream: &Arc<Upstream>) {
    let Some(source) = upstream.source.clone().filter(|source| !source.begun.swap(true, Relaxed)) else {
        return;
    };
    let weak = Arc::downgrade(upstream);
    let begun = services::run(move || {
        weir_rt::spawn(run(weak, source));
    });
    if let Err(error) = begun {
        let name = &upstream.name;
        log::cycle(
            LogLevel::Alert,
            &format_args!("no thread for the source of upstream \"{name}\": {error}"),
        );
    }
}

async fn run(upstream: Weak<Upstream>, source: Arc<ServerSource>) {
    let mut reader = SourceReader::new(&source.config);
    let mut failures = 0;
    loop {
        let Some(result) = either(reader.next(&source.config), gone(&upstream)).await else { return };
        let result = match result {
            Ok(list) => take(&upstream, &source, list).await,
            Err(why) => Err(why),
        };
        match result {
            Ok(()) => failures = 0,
            Err(why) => {
                tell(&upstream, &source, why);
                failures += 1;
                let pause =
                    Duration::from_millis(AGAIN.0 << failures.min(4)).min(Duration::from_millis(AGAIN.1));
                if either(weir_rt::sleep(pause), gone(&upstream)).await.is_none() {
                    return;
                }
            }
        }
    }
}

/// Ready when nothing refers to the upstream any more.
async fn gone(upstream: &Weak<Upstream>) {
    while upstream.strong_count() > 0 {
        weir_rt::sleep(LOOK).await;
    }
}

async fn take(
    upstream: &Weak<Upstream>,
    source: &Arc<ServerSource>,
    list: Vec<ServerEntry>,
) -> Result<(), String> {
    let Some(upstream) = upstream.upgrade() else { return Ok(()) };
    let (count, before) = (list.len(), upstream.version());
    upstream.take_list(list).map_err(|refusal| refusal.to_string())?;
    let again = source.note(None);
    if again || upstream.version() != before {
        let (name, place) = (&upstream.name, source.place());
        log::cycle(LogLevel::Notice, &format_args!("upstream \"{name}\" has {count} servers from {place}"));
    }
    // The disk may take its time.
    weir_rt::blocking(move || upstream.keep_list()).await;
    Ok(())
}

/// The first failure of several alike is logged.
fn tell(upstream: &Weak<Upstream>, source: &ServerSource, why: String) {
    let Some(upstream) = upstream.upgrade() else { return };
    let (name, place) = (&upstream.name, source.place());
    let message = format!("upstream \"{name}\" keeps its servers, {place}: {why}");
    if source.note(Some(why)) {
        log::cycle(LogLevel::Error, &message);
    }
}

/// Milliseconds between attempts: after the first that failed, and at most.
const AGAIN: (u64, u64) = (100, 2_000);
/// How often is looked whether an upstream is still there.
const LOOK: Duration = Duration::from_millis(500);
