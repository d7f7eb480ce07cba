//! LMDB: environments of key-value databases in a file that is mapped to memory, shared by threads and processes.
//!
//! What is wrong with a call is an [`LmdbError`] with LMDB's own words. Transactions end with the function that they are given to:
//! those that read may run beside each other and beside the one that writes.

use std::ffi::{CStr, CString, c_int, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::{PoisonError, RwLock};

use lmdb_master_sys as sys;

/// Why a call has failed: a number of LMDB's or an errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LmdbError(c_int);

impl LmdbError {
    /// The key, or the database, does not exist.
    pub const NOT_FOUND: LmdbError = LmdbError(sys::MDB_NOTFOUND);

    /// LMDB's words, which live as long as the program; the C library's for an errno.
    pub fn text(self) -> &'static CStr {
        if self.0 >= 0 {
            return errno_text(self.0);
        }
        // SAFETY: the text of one of LMDB's own numbers is a constant.
        unsafe { CStr::from_ptr(sys::mdb_strerror(self.0)) }
    }

    /// The files are no LMDB's, or another version's.
    pub fn is_of_files(self) -> bool {
        matches!(self.0, sys::MDB_INVALID | sys::MDB_VERSION_MISMATCH | libc::ENOTDIR)
    }
}

/// The texts of those errnos that LMDB gives back, which `strerror` would write where another thread may write, too.
fn errno_text(errno: c_int) -> &'static CStr {
    match errno {
        libc::EINVAL => c"Invalid argument",
        libc::EACCES => c"Permission denied",
        libc::ENOENT => c"No such file or directory",
        libc::ENOTDIR => c"Not a directory",
        libc::ENOSPC => c"No space left on device",
        libc::ENOMEM => c"Cannot allocate memory",
        libc::EIO => c"Input/output error",
        libc::EROFS => c"Read-only file system",
        libc::EAGAIN => c"Resource temporarily unavailable",
        _ => c"system error",
    }
}

fn done(code: c_int) -> Result<(), LmdbError> {
    if code == 0 { Ok(()) } else { Err(LmdbError(code)) }
}

/// How an environment is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LmdbLimits {
    /// Bytes of the map: the most that it can have.
    pub map_size: usize,
    /// Named databases.
    pub databases: u32,
    /// Transactions that read at a time, of all processes.
    pub readers: u32,
}

/// An environment: a directory with its databases. A process has at most one of a directory open at a time.
#[derive(Debug)]
pub struct LmdbEnvironment {
    handle: *mut sys::MDB_env,
    /// The database without a name, whose keys are the names of the others.
    unnamed: u32,
    /// Held exclusively while a database's handle is closed, which no transaction may see.
    handles: RwLock<()>,
}

// SAFETY: LMDB's environments may be used by any thread; what may not be done beside other transactions is kept apart by `handles`.
unsafe impl Send for LmdbEnvironment {}
// SAFETY: as above.
unsafe impl Sync for LmdbEnvironment {}

/// What is known of an environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LmdbFigures {
    /// Bytes of the map.
    pub map_size: usize,
    /// Bytes of a page.
    pub page_size: u32,
    /// Slots for transactions that read.
    pub max_readers: u32,
    /// Those that were ever used.
    pub num_readers: u32,
    /// Pages of the file.
    pub allocated_pages: u32,
    /// Pages of the unnamed database.
    pub in_use_pages: usize,
    /// Its entries: the named databases.
    pub entries: u32,
}

impl LmdbEnvironment {
    /// Opens the environment in `directory`, whose files are created, for this user alone.
    ///
    /// # Errors
    /// The directory does not exist or may not be written to; the files are no LMDB's.
    pub fn open(directory: &Path, limits: &LmdbLimits) -> Result<LmdbEnvironment, LmdbError> {
        let path = CString::new(directory.as_os_str().as_bytes()).map_err(|_| LmdbError(libc::EINVAL))?;
        let mut handle = ptr::null_mut();
        // SAFETY: the handle is written where it is asked for; of a failed call there is none.
        done(unsafe { sys::mdb_env_create(&mut handle) })?;
        // Closed when it is dropped, also where something fails from here on.
        let mut environment = LmdbEnvironment { handle, unnamed: 0, handles: RwLock::new(()) };
        // SAFETY: the environment was made, and is not open yet; the path is a C string.
        unsafe {
            done(sys::mdb_env_set_mapsize(handle, limits.map_size))?;
            done(sys::mdb_env_set_maxdbs(handle, limits.databases))?;
            done(sys::mdb_env_set_maxreaders(handle, limits.readers))?;
            done(sys::mdb_env_open(handle, path.as_ptr(), sys::MDB_NOTLS, MODE))?;
        }
        let unnamed = LmdbTransaction::begin(&environment, sys::MDB_RDONLY)?.database(None, false)?;
        environment.unnamed = unnamed;
        Ok(environment)
    }

    /// Makes the map as large as that, once no transaction of this process runs.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn resize(&self, map_size: usize) -> Result<(), LmdbError> {
        let _alone = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the environment is open, and no transaction of the process runs, since each holds the lock.
        done(unsafe { sys::mdb_env_set_mapsize(self.handle, map_size) })
    }

    /// Frees the slots of processes that have ended while they read; how many there were.
    ///
    /// # Errors
    /// The table of slots can't be locked.
    pub fn clear_stale_readers(&self) -> Result<usize, LmdbError> {
        let mut dead: c_int = 0;
        // SAFETY: the environment is open; the count is written where it is asked for.
        done(unsafe { sys::mdb_reader_check(self.handle, &mut dead) })?;
        Ok(usize::try_from(dead).unwrap_or(0))
    }

    /// What is known of it.
    ///
    /// # Errors
    /// LMDB's own.
    pub fn figures(&self) -> Result<LmdbFigures, LmdbError> {
        // SAFETY: both are plain numbers and pointers, for which zeros are values.
        let (mut stat, mut info): (sys::MDB_stat, sys::MDB_envinfo) = unsafe { std::mem::zeroed() };
        // SAFETY: the environment is open; both are written where they are asked for.
        unsafe {
            done(sys::mdb_env_stat(self.handle, &mut stat))?;
            done(sys::mdb_env_info(self.handle, &mut info))?;
        }
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Ok(LmdbFigures {
            map_size: info.me_mapsize,
            page_size: stat.ms_psize,
            max_readers: info.me_maxreaders,
            num_readers: info.me_numreaders,
            allocated_pages: small(info.me_last_pgno + 1),
            in_use_pages: stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages,
            entries: small(stat.ms_entries),
        })
    }

    /// Runs `read` in a transaction that sees the databases as they are now.
    ///
    /// # Errors
    /// There is no slot left; what `read` returns.
    pub fn read<T, E: From<LmdbError>>(
        &self,
        read: impl FnOnce(&LmdbTransaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let _shared = self.handles.read().unwrap_or_else(PoisonError::into_inner);
        let transaction = LmdbTransaction::begin(self, sys::MDB_RDONLY)?;
        read(&transaction)
    }

    /// Runs `write` in the one transaction that writes, for whose end others wait, those of other processes included; what it has
    /// done counts if it succeeds, and then all of it. `closes`: it may close databases.
    ///
    /// # Errors
    /// What `write` returns; the map is full, the disk is.
    pub fn write<T, E: From<LmdbError>>(
        &self,
        closes: HandleUse,
        write: impl FnOnce(&mut LmdbTransaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let (_shared, _alone) = match closes {
            HandleUse::Kept => (Some(self.handles.read().unwrap_or_else(PoisonError::into_inner)), None),
            HandleUse::Closed => (None, Some(self.handles.write().unwrap_or_else(PoisonError::into_inner))),
        };
        let mut transaction = LmdbTransaction::begin(self, 0)?;
        transaction.closes = closes == HandleUse::Closed;
        let result = write(&mut transaction)?;
        transaction.commit()?;
        Ok(result)
    }
}

/// Whether a transaction closes handles of databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleUse {
    /// None.
    Kept,
    /// It removes databases, so that nothing else may run meanwhile.
    Closed,
}

impl Drop for LmdbEnvironment {
    fn drop(&mut self) {
        // SAFETY: made by `open`; no transaction is left, since each borrows the environment.
        unsafe { sys::mdb_env_close(self.handle) };
    }
}

/// A transaction; it is aborted when it is dropped. Databases are known by numbers, which are valid for the environment.
pub struct LmdbTransaction<'e> {
    handle: *mut sys::MDB_txn,
    /// It may close handles.
    closes: bool,
    environment: &'e LmdbEnvironment,
}

impl LmdbTransaction<'_> {
    fn begin(environment: &LmdbEnvironment, flags: c_uint) -> Result<LmdbTransaction<'_>, LmdbError> {
        let mut handle = ptr::null_mut();
        // SAFETY: the environment is open as long as it is borrowed; the handle is written where it is asked for.
        done(unsafe { sys::mdb_txn_begin(environment.handle, ptr::null_mut(), flags, &mut handle) })?;
        Ok(LmdbTransaction { handle, closes: false, environment })
    }

    fn commit(self) -> Result<(), LmdbError> {
        let handle = std::mem::ManuallyDrop::new(self).handle;
        // SAFETY: begun and not ended, since `self` is not dropped; from here on nobody has it.
        done(unsafe { sys::mdb_txn_commit(handle) })
    }

    /// The database without a name, whose keys are the names of the others.
    pub fn unnamed(&self) -> u32 {
        self.environment.unnamed
    }

    /// Opens a database; `create`: it is made where it does not exist. Only the one transaction that writes can: databases are opened
    /// one after another.
    ///
    /// # Errors
    /// It does not exist; there are as many as there may be.
    pub fn open_database(&mut self, name: &CStr, create: bool) -> Result<u32, LmdbError> {
        self.database(Some(name), create)
    }

    fn database(&self, name: Option<&CStr>, create: bool) -> Result<u32, LmdbError> {
        let mut database = 0;
        let flags = if create { sys::MDB_CREATE } else { 0 };
        let name = name.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: the transaction is not over, and nobody else opens a database: it is the one that writes, or the environment is
        // just being opened. The name is a C string or null; the number is written where it is asked for.
        done(unsafe { sys::mdb_dbi_open(self.handle, name, flags, &mut database) })?;
        Ok(database)
    }

    /// The value of `key`; `None`: there is none.
    ///
    /// # Errors
    /// The key is empty or longer than 511 bytes; there is no such database.
    pub fn get(&self, database: u32, key: &[u8]) -> Result<Option<&[u8]>, LmdbError> {
        let (mut key, mut value) = (borrowed(key), borrowed(&[]));
        // SAFETY: the transaction is not over; the key's bytes are only read. A number that is no database's is an error.
        match done(unsafe { sys::mdb_get(self.handle, database, &mut key, &mut value) }) {
            // SAFETY: what LMDB gives back stays as it is until the transaction writes or ends, which borrows do not outlive.
            Ok(()) => Ok(Some(unsafe { bytes_of(value) })),
            Err(LmdbError::NOT_FOUND) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives `key` this value.
    ///
    /// # Errors
    /// As [`LmdbTransaction::get`]; the map is full; the transaction only reads.
    pub fn put(&mut self, database: u32, key: &[u8], value: &[u8]) -> Result<(), LmdbError> {
        let (mut key, mut value) = (borrowed(key), borrowed(value));
        // SAFETY: the transaction is not over; the bytes are only read, since no space is reserved.
        done(unsafe { sys::mdb_put(self.handle, database, &mut key, &mut value, 0) })
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// As [`LmdbTransaction::put`]; [`LmdbError::NOT_FOUND`] where there is no such key.
    pub fn delete(&mut self, database: u32, key: &[u8]) -> Result<(), LmdbError> {
        let mut key = borrowed(key);
        // SAFETY: the transaction is not over; the key's bytes are only read, all of its values go.
        done(unsafe { sys::mdb_del(self.handle, database, &mut key, ptr::null_mut()) })
    }

    /// Empties a database.
    ///
    /// # Errors
    /// There is no such database.
    pub fn clear(&mut self, database: u32) -> Result<(), LmdbError> {
        // SAFETY: the transaction is not over; the handle stays.
        done(unsafe { sys::mdb_drop(self.handle, database, 0) })
    }

    /// Removes a database; its number is nobody's from then on. For transactions that close handles alone.
    ///
    /// # Errors
    /// There is no such database; the transaction is not one of [`HandleUse::Closed`].
    pub fn remove(&mut self, database: u32) -> Result<(), LmdbError> {
        if !self.closes {
            return Err(LmdbError(libc::EINVAL));
        }
        // SAFETY: the transaction is not over, and no other runs in this process, since it holds the environment's lock.
        done(unsafe { sys::mdb_drop(self.handle, database, 1) })
    }

    /// Calls `each` with the keys from `start` on, in order, and their values, until it returns false.
    ///
    /// # Errors
    /// There is no such database; the key is longer than 511 bytes.
    pub fn from(
        &self,
        database: u32,
        start: &[u8],
        mut each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), LmdbError> {
        let mut cursor = ptr::null_mut();
        // SAFETY: the transaction is not over; the cursor is written where it is asked for.
        done(unsafe { sys::mdb_cursor_open(self.handle, database, &mut cursor) })?;
        let cursor = LmdbCursor(cursor);
        let (mut key, mut value) = (borrowed(start), borrowed(&[]));
        let mut step = sys::MDB_SET_RANGE;
        loop {
            // SAFETY: cursor and transaction are not over; the key's bytes are only read.
            match done(unsafe { sys::mdb_cursor_get(cursor.0, &mut key, &mut value, step) }) {
                // SAFETY: both stay as they are until the transaction writes or ends, which it does not meanwhile.
                Ok(()) if each(unsafe { bytes_of(key) }, unsafe { bytes_of(value) }) => step = sys::MDB_NEXT,
                Ok(()) | Err(LmdbError::NOT_FOUND) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for LmdbTransaction<'_> {
    fn drop(&mut self) {
        // SAFETY: begun and not ended: `commit` forgets it.
        unsafe { sys::mdb_txn_abort(self.handle) };
    }
}

/// A cursor, closed before its transaction ends.
struct LmdbCursor(*mut sys::MDB_cursor);

impl Drop for LmdbCursor {
    fn drop(&mut self) {
        // SAFETY: opened by `from`, which ends before the transaction does.
        unsafe { sys::mdb_cursor_close(self.0) };
    }
}

fn borrowed(bytes: &[u8]) -> sys::MDB_val {
    sys::MDB_val { mv_size: bytes.len(), mv_data: bytes.as_ptr().cast_mut().cast() }
}

/// # Safety
/// LMDB has given `value` back, and its bytes stay as they are as long as the result is used.
unsafe fn bytes_of<'a>(value: sys::MDB_val) -> &'a [u8] {
    if value.mv_size == 0 {
        return &[];
    }
    // SAFETY: this function's contract.
    unsafe { std::slice::from_raw_parts(value.mv_data.cast(), value.mv_size) }
}

/// Of new files.
const MODE: sys::mdb_mode_t = 0o600;

#[cfg(test)]
mod tests {
    use super::*;

    struct Directory(std::path::PathBuf);

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn directory(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("weir-lmdb-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }

    const LIMITS: LmdbLimits = LmdbLimits { map_size: 1 << 20, databases: 4, readers: 126 };

    type Outcome<T = ()> = Result<T, LmdbError>;

    #[test]
    fn what_is_committed_stays_and_the_rest_does_not() {
        let place = directory("stays");
        {
            let environment = LmdbEnvironment::open(&place.0, &LIMITS).expect("opened");
            let database = environment
                .write(HandleUse::Kept, |transaction| {
                    let database = transaction.open_database(c"a", true)?;
                    transaction.put(database, b"k1", b"one")?;
                    transaction.put(database, b"k2", b"")?;
                    Outcome::Ok(database)
                })
                .expect("written");
            let failed: Outcome = environment.write(HandleUse::Kept, |transaction| {
                transaction.put(database, b"k3", b"lost")?;
                transaction.delete(database, b"nothing")
            });
            assert_eq!(failed, Err(LmdbError::NOT_FOUND));
            assert_eq!(
                LmdbError::NOT_FOUND.text().to_bytes(),
                b"MDB_NOTFOUND: No matching key/data pair found"
            );
            assert_eq!(environment.figures().map(|it| (it.entries, it.map_size)), Ok((1, 1 << 20)));
        }
        let environment = LmdbEnvironment::open(&place.0, &LIMITS).expect("opened again");
        environment
            .write(HandleUse::Kept, |transaction| {
                let database = transaction.open_database(c"a", false)?;
                assert_eq!(transaction.get(database, b"k1")?, Some(&b"one"[..]));
                assert_eq!(transaction.get(database, b"k2")?, Some(&b""[..]));
                assert_eq!(transaction.get(database, b"k3")?, None);
                let mut keys = Vec::new();
                transaction.from(database, b"k", |key, _| {
                    keys.push(key.to_vec());
                    true
                })?;
                assert_eq!(keys, [b"k1", b"k2"]);
                assert_eq!(transaction.open_database(c"b", false), Err(LmdbError::NOT_FOUND));
                Outcome::Ok(())
            })
            .expect("read");
    }

    #[test]
    fn what_is_wrong_is_an_error() {
        let place = directory("wrong");
        let missing = LmdbEnvironment::open(&place.0.join("no"), &LIMITS).expect_err("no directory");
        assert_eq!(missing.text().to_bytes(), b"No such file or directory");
        std::fs::write(place.0.join("data.mdb"), [7; 9000]).expect("written");
        assert!(LmdbEnvironment::open(&place.0, &LIMITS).expect_err("no database").is_of_files());
        std::fs::remove_file(place.0.join("data.mdb")).expect("removed");
        let environment = LmdbEnvironment::open(&place.0, &LIMITS).expect("opened");
        let written: Outcome = environment.read(|transaction| transaction.get(99, b"k").map(drop));
        assert_eq!(written, Err(LmdbError(libc::EINVAL)));
        let removed: Outcome = environment.write(HandleUse::Kept, |transaction| {
            let database = transaction.open_database(c"a", true)?;
            for key in [&b""[..], &[b'x'; 512]] {
                assert!(transaction.put(database, key, b"").is_err());
            }
            transaction.remove(database)
        });
        assert_eq!(removed, Err(LmdbError(libc::EINVAL)));
        let full: Outcome = environment.write(HandleUse::Kept, |transaction| {
            let database = transaction.open_database(c"a", true)?;
            (0..=u32::MAX).try_for_each(|at| transaction.put(database, &at.to_be_bytes(), &[0; 2000]))
        });
        assert!(full.expect_err("full").text().to_bytes().starts_with(b"MDB_MAP_FULL"));
    }

    #[test]
    fn removed_beside_readers() {
        let place = directory("removed");
        let environment = LmdbEnvironment::open(&place.0, &LIMITS).expect("opened");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let _: Outcome<Option<usize>> = environment
                            .read(|transaction| transaction.get(2, b"k").map(|value| value.map(<[u8]>::len)));
                    }
                });
            }
            for _ in 0..100 {
                environment
                    .write(HandleUse::Closed, |transaction| {
                        let database = transaction.open_database(c"a", true)?;
                        transaction.put(database, b"k", b"value")?;
                        transaction.remove(database)
                    })
                    .expect("made and removed");
            }
        });
    }
}
