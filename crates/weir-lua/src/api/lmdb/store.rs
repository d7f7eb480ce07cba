//! The environment of a configuration: opened once for all of its workers, and shared with the configuration before it.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use weir_engine::Configuration;
use weir_engine::log::{self, LogLevel};
use weir_sys::lmdb::{HandleUse, LmdbEnvironment, LmdbError, LmdbLimits, LmdbTransaction};

/// `lmdb_*`, as values that the configuration shares.
#[derive(Debug, Default)]
pub(crate) struct LmdbSettings {
    /// `lmdb_environment_path`
    pub(crate) path: Option<PathBuf>,
    /// `lmdb_max_databases`
    pub(crate) databases: Option<u64>,
    /// `lmdb_map_size`, bytes.
    pub(crate) map_size: Option<u64>,
    /// `lmdb_validation_tag`
    pub(crate) tag: Option<String>,
    opened: OnceLock<Result<Arc<LmdbEnvironment>, String>>,
}

/// Environments that are open, by their directories: a process may not open one twice.
static OPEN: Mutex<Vec<(PathBuf, LmdbLimits, Weak<LmdbEnvironment>)>> = Mutex::new(Vec::new());

impl LmdbSettings {
    /// The environment, opened if it was not; `None`: there is no `lmdb_environment_path`.
    ///
    /// # Errors
    /// It can't be opened, in the words of lua-resty-lmdb's module.
    pub(crate) fn environment(&self, of: &Configuration) -> Result<Option<Arc<LmdbEnvironment>>, String> {
        let Some(path) = &self.path else { return Ok(None) };
        let opened = self.opened.get_or_init(|| self.open(path, of));
        opened.clone().map(Some)
    }

    fn open(&self, path: &Path, of: &Configuration) -> Result<Arc<LmdbEnvironment>, String> {
        let limits = LmdbLimits {
            map_size: usize::try_from(self.map_size.unwrap_or(MAP_SIZE)).unwrap_or(usize::MAX),
            databases: u32::try_from(self.databases.unwrap_or(1)).unwrap_or(u32::MAX),
            readers: u32::try_from(of.main.workers() + MORE_READERS).unwrap_or(u32::MAX).max(READERS),
        };
        // A server has made it before it gave up its rights, `weir lua` has not.
        if let Err(error) = fs::DirBuilder::new().mode(0o700).create(path)
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            return Err(format!("mkdir() \"{}\" failed ({error})", path.display()));
        }
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(.., environment)| environment.strong_count() > 0);
        let known = open.iter_mut().find(|(known, ..)| *known == place);
        if let Some((_, before, environment)) = known
            && let Some(environment) = environment.upgrade()
        {
            adapt(&environment, before, &limits)?;
            self.validate_open(&environment)?;
            return Ok(environment);
        }
        let environment = Arc::new(self.validated(&place, &limits)?);
        if let Some((user, _)) = of.main.run_as() {
            give(&place, user.uid);
        }
        open.push((place, limits, Arc::downgrade(&environment)));
        Ok(environment)
    }

    /// Opens the environment; what other software has left, or another tag's, is removed.
    fn validated(&self, path: &Path, limits: &LmdbLimits) -> Result<LmdbEnvironment, String> {
        let environment = match LmdbEnvironment::open(path, limits) {
            Err(error) if error.is_of_files() => {
                log::cycle(LogLevel::Warn, &"LMDB database is corrupted or incompatible, removing");
                remove_files(path);
                LmdbEnvironment::open(path, limits)
            }
            opened => opened,
        };
        let environment = environment.map_err(unopened)?;
        tell_stale(&environment);
        let Some(tag) = &self.tag else { return Ok(environment) };
        if has_tag(&environment, tag) {
            return Ok(environment);
        }
        drop(environment);
        remove_files(path);
        let environment = LmdbEnvironment::open(path, limits).map_err(unopened)?;
        write_tag(&environment, tag)?;
        Ok(environment)
    }

    /// As [`LmdbSettings::validated`], of one that others have open: it is emptied.
    fn validate_open(&self, environment: &LmdbEnvironment) -> Result<(), String> {
        let Some(tag) = &self.tag else { return Ok(()) };
        if has_tag(environment, tag) {
            return Ok(());
        }
        let emptied: Result<(), LmdbError> = environment.write(HandleUse::Kept, |transaction| {
            for name in names(transaction)? {
                let Ok(name) = std::ffi::CString::new(name) else { continue };
                // Keys of the unnamed database that are no databases.
                if let Ok(database) = transaction.open_database(&name, false) {
                    transaction.clear(database)?;
                }
            }
            Ok(())
        });
        emptied.map_err(|error| format!("unable to empty LMDB database: {}", text(error)))?;
        write_tag(environment, tag)
    }
}

/// What is configured otherwise than it was when the environment was opened.
fn adapt(environment: &LmdbEnvironment, before: &mut LmdbLimits, now: &LmdbLimits) -> Result<(), String> {
    if before.map_size != now.map_size {
        environment
            .resize(now.map_size)
            .map_err(|error| format!("unable to set map size for LMDB: {}", text(error)))?;
        before.map_size = now.map_size;
    }
    if before.databases < now.databases {
        let message = "\"lmdb_max_databases\" takes effect when the server is started the next time";
        log::cycle(LogLevel::Warn, &message);
    }
    Ok(())
}

/// The keys of the unnamed database: names of databases, and the tag.
fn names(transaction: &LmdbTransaction<'_>) -> Result<Vec<Vec<u8>>, LmdbError> {
    let database = transaction.unnamed();
    let mut names = Vec::new();
    transaction.from(database, b"\0", |key, _| {
        names.push(key.to_vec());
        true
    })?;
    Ok(names)
}

/// Whether the environment is of this tag; why not, is logged.
fn has_tag(environment: &LmdbEnvironment, tag: &str) -> bool {
    let known = environment.read(|transaction| {
        let database = transaction.unnamed();
        Ok::<_, LmdbError>(transaction.get(database, TAG)?.map(<[u8]>::to_vec))
    });
    let level = match known {
        Ok(Some(known)) if known == tag.as_bytes() => return true,
        Ok(Some(known)) => {
            let known = String::from_utf8_lossy(&known).into_owned();
            let message =
                format_args!("LMDB validation tag \"{known}\" did not match configured tag \"{tag}\"");
            log::cycle(LogLevel::Warn, &message);
            LogLevel::Warn
        }
        Ok(None) => {
            log::cycle(LogLevel::Notice, &"LMDB validation tag does not exist, assuming empty database");
            LogLevel::Notice
        }
        Err(error) => {
            let message = format_args!("unable to get LMDB validation tag: {}", text(error));
            log::cycle(LogLevel::Error, &message);
            LogLevel::Warn
        }
    };
    log::cycle(level, &"LMDB validation tag mismatch, wiping the database");
    false
}

fn write_tag(environment: &LmdbEnvironment, tag: &str) -> Result<(), String> {
    let written: Result<(), LmdbError> = environment.write(HandleUse::Kept, |transaction| {
        let database = transaction.unnamed();
        transaction.put(database, TAG, tag.as_bytes())
    });
    written.map_err(|error| format!("unable to set LMDB validation tag: {}", text(error)))
}

/// Removes the files of an environment that is not open. Its path is made a directory if it is a file, which Kong's tests name that
/// `os.tmpname` has made.
fn remove_files(path: &Path) {
    if fs::metadata(path).is_ok_and(|known| !known.is_dir()) {
        let made = fs::remove_file(path).and_then(|()| fs::DirBuilder::new().mode(0o700).create(path));
        if let Err(error) = made {
            let message = format_args!("mkdir() \"{}\" failed ({error})", path.display());
            log::cycle(LogLevel::Warn, &message);
        }
        return;
    }
    for name in FILES {
        let file = path.join(name);
        if let Err(error) = fs::remove_file(&file)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            let message = format_args!("unlink() \"{}\" failed ({error})", file.display());
            log::cycle(LogLevel::Warn, &message);
        }
    }
}

/// Slots of processes that have ended while they read would keep old pages.
fn tell_stale(environment: &LmdbEnvironment) {
    match environment.clear_stale_readers() {
        Ok(0) => {}
        Ok(count) => {
            let message = format_args!("found and cleared {count} stale readers from LMDB");
            log::cycle(LogLevel::Warn, &message);
        }
        Err(error) => {
            let message = format_args!("unable to check LMDB reader slots: {}", text(error));
            log::cycle(LogLevel::Crit, &message);
        }
    }
}

/// Makes the files the user's that the server runs as.
fn give(path: &Path, uid: u32) {
    for file in FILES.iter().map(|name| path.join(name)) {
        if fs::metadata(&file).is_ok_and(|known| known.uid() != uid)
            && let Err(error) = chown(&file, Some(uid), None)
        {
            let message = format_args!("chown(\"{}\", {uid}) failed ({error})", file.display());
            log::cycle(LogLevel::Warn, &message);
        }
    }
}

fn unopened(error: LmdbError) -> String {
    format!("unable to open LMDB environment: {}", text(error))
}

fn text(error: LmdbError) -> String {
    error.text().to_string_lossy().into_owned()
}

/// LMDB's files in a directory.
const FILES: [&str; 2] = ["data.mdb", "lock.mdb"];
/// The key of `lmdb_validation_tag` in the unnamed database.
const TAG: &[u8] = b"validation_tag";
/// Without `lmdb_map_size`: LMDB's own.
const MAP_SIZE: u64 = 1_048_576;
/// Slots for transactions that read: LMDB's own, and more where there are more workers.
const READERS: u32 = 126;
const MORE_READERS: usize = 16;
