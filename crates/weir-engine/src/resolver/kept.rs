//! `resolver_cache`: what is known of names outlives the process, in a directory with a file for each different
//! `resolver`. A server that starts while no name server responds goes on with the addresses the last run knew.

use std::cell::Cell;
use std::fs::File;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use weir_resolver::Resolver;
use weir_rt::{clock, file};

use super::ResolverConfig;
use crate::log::{self, LogLevel};

/// The directory that a configuration names.
#[derive(Debug, Default)]
pub struct CacheFolder(pub Option<Arc<PathBuf>>);

/// From here on resolvers keep what they know in `folder`.
pub fn keep_in(directory: Option<Arc<PathBuf>>) {
    *FOLDER.lock().unwrap_or_else(PoisonError::into_inner) = directory;
}

/// That of the configuration that came into force last: resolvers are the process', not a configuration's.
static FOLDER: Mutex<Option<Arc<PathBuf>>> = Mutex::new(None);

/// The file of the resolver with this configuration, if there is a directory.
fn file(config: &ResolverConfig) -> Option<PathBuf> {
    let directory = FOLDER.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
    // The same in each process: this hasher has no key.
    let number = BuildHasherDefault::<DefaultHasher>::default().hash_one(format!("{config:?}"));
    Some(directory.join(format!("{number:016x}.names")))
}

/// Gives the engine what was stored for it. Once for each resolver, before its first question.
pub(super) fn recall(config: &ResolverConfig, engine: &mut Resolver) {
    let Some(path) = file(config) else { return };
    match read(&path) {
        Ok(text) => {
            let count = engine.recall(clock::monotonic_ms(), unix_ms(), &text);
            log::cycle(
                LogLevel::Notice,
                &format_args!("{count} names are known from \"{}\"", path.display()),
            );
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => complain("read", &path, &error),
    }
}

/// Whole, if it is not far larger than what is ever written.
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MOST).read_to_string(&mut text)?;
    Ok(text)
}

/// When and what a resolver writes.
#[derive(Default)]
pub(super) struct ResolverWriter {
    /// How many changes of the engine have been written, and when the last time was.
    written: u64,
    at: u64,
    /// A write is under way.
    busy: Rc<Cell<bool>>,
}

impl ResolverWriter {
    /// Begins to write what has changed, at most once in a second; when there will be something to write.
    pub(super) fn follow(&mut self, now: u64, config: &ResolverConfig, engine: &Resolver) -> Option<u64> {
        if engine.changes() == self.written {
            return None;
        }
        let due = self.at + INTERVAL;
        if now < due || self.busy.get() {
            return Some(due.max(now + INTERVAL / 10));
        }
        (self.written, self.at) = (engine.changes(), now);
        let path = file(config)?;
        let (text, busy) = (engine.keep(now, unix_ms()), self.busy.clone());
        busy.set(true);
        // Not on this thread: look-ups do not wait for a disk.
        weir_rt::spawn(async move {
            let (result, path) = weir_rt::blocking(move || (replace(&path, &text), path)).await;
            busy.set(false);
            if let Err(error) = result {
                complain("written", &path, &error);
            }
        });
        None
    }
}

/// Replaces the file as a whole: a reader finds the old text or the new one.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("names.new");
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&beside, path)
}

fn complain(what: &str, path: &Path, error: &io::Error) {
    let reason = error
        .raw_os_error()
        .map_or_else(|| error.to_string(), |errno| format!("{errno}: {}", file::errno_text(errno)));
    log::cycle(
        LogLevel::Error,
        &format_args!("names kept in \"{}\" can't be {what} ({reason})", path.display()),
    );
}

fn unix_ms() -> u64 {
    let (seconds, ms) = clock::unix_time();
    seconds * 1000 + u64::from(ms)
}

/// Milliseconds between two writes.
const INTERVAL: u64 = 1_000;
/// Bytes: 10,000 names take a twentieth of it.
const MOST: u64 = 16 << 20;
