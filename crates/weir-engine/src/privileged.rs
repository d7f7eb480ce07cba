//! What a configuration takes from outside of its own text and what the server process may see differently from its
//! master: small files that only root may read, as keys are; the addresses of names; whether the start was root's.
//!
//! A module asks here ([`read`], [`look_up`], [`is_root`]), never by itself. A master remembers what it found while it
//! built a configuration ([`collect`]) and passes it with the configuration; the server process, which is another user
//! by then, builds the same from that ([`give`]).

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, LocalKey};
use std::time::{Duration, Instant};

use weir_rt::file::O_NONBLOCK;
use weir_rt::process;

/// What a build has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildFindings {
    /// Contents by path, in bytes.
    pub files: HashMap<PathBuf, Vec<u8>>,
    /// The addresses of names with `port`, in the system's order; none of a name that was not found, as a build may put up
    /// with.
    pub names: HashMap<(String, u16), Vec<SocketAddr>>,
}

/// The whole of a file, or what was given for it.
///
/// # Errors
/// Those of the file system.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    if let Some(given) = mode().given.as_ref().and_then(|given| given.files.get(path)) {
        return Ok(given.clone());
    }
    let content = whole(path)?;
    if let Some(collected) = &mut mode().collected {
        collected.add(path, &content);
    }
    Ok(content)
}

/// Bytes of a file that a configuration names: lists of revoked certificates are the largest, of some 100 MB.
const MOST: u64 = 256 << 20;

/// The whole of a file, which may be a pipe (`<(command)` of a shell). One that is longer, or has no end, is EFBIG, and a FIFO
/// that is not written to ETIMEDOUT: a master that waits for one serves no signal.
fn whole(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::options().read(true).custom_flags(O_NONBLOCK).open(path)?;
    let mut content = Vec::new();
    if file.metadata()?.file_type().is_fifo() {
        drain(&mut file, &mut content)?;
    } else {
        file.take(MOST + 1).read_to_end(&mut content)?;
    }
    if content.len() as u64 > MOST {
        return Err(io::Error::from_raw_os_error(EFBIG));
    }
    Ok(content)
}

/// Reads a FIFO up to the end that its writers make.
fn drain(fifo: &mut File, content: &mut Vec<u8>) -> io::Result<()> {
    // What is only looked at waits for nothing.
    let until = Instant::now() + if NAMES_UNASKED.get() { Duration::ZERO } else { WRITERS };
    let mut piece = [0; 16 * 1024];
    while content.len() as u64 <= MOST {
        match fifo.read(&mut piece) {
            // Before the first writer has come a FIFO looks as if the last one had left, and poll(2) waits for neither.
            Ok(0) if content.is_empty() && Instant::now() < until => thread::sleep(PAUSE),
            Ok(0) if content.is_empty() => return Err(io::Error::from_raw_os_error(ETIMEDOUT)),
            Ok(0) => return Ok(()),
            Ok(count) => content.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if Instant::now() < until => thread::sleep(PAUSE),
            Err(_) => return Err(io::Error::from_raw_os_error(ETIMEDOUT)),
        }
    }
    Ok(())
}

/// How long a FIFO's writers are waited for.
const WRITERS: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);
const EFBIG: i32 = 27;
const ETIMEDOUT: i32 = 110;

/// The addresses that the system knows for a name, or those that were given for it, with `port`. Waits: for building
/// only.
///
/// # Errors
/// Those of getaddrinfo(3).
pub fn look_up(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = name.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let key = (name.to_owned(), port);
    if let Some(given) = mode().given.as_ref().and_then(|given| given.names.get(&key)) {
        return match given.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(given.clone()),
        };
    }
    if NAMES_UNASKED.get() {
        return Ok(vec![SocketAddr::new(stand_in(name), port)]);
    }
    // Not below the lock: a name server may take its time.
    let found = (name, port).to_socket_addrs().map(Iterator::collect::<Vec<SocketAddr>>);
    if let Some(collected) = &mut mode().collected {
        collected.names.insert(key, found.as_ref().map_or(Vec::new(), Clone::clone));
    }
    found
}

thread_local! {
    /// Names get stand-ins for addresses: see [`without_name_servers`].
    static NAMES_UNASKED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `build` without asking a name server: each name gets an address of its own that no host has. Nor does it wait for
/// writers of a FIFO.
/// What is built so is for looking at, not for use. Holds for this thread.
pub fn without_name_servers<R>(build: impl FnOnce() -> R) -> R {
    set_during(&NAMES_UNASKED, build)
}

/// Runs `run` with `flag` set, and gives it back as it was: after a panic, too.
pub(crate) fn set_during<R>(flag: &'static LocalKey<Cell<bool>>, run: impl FnOnce() -> R) -> R {
    struct Before(&'static LocalKey<Cell<bool>>, bool);
    impl Drop for Before {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    let _before = Before(flag, flag.replace(true));
    run()
}

/// The loopback address for names that are always its own (RFC 6761 6.3), one of 2001:db8::/32 (RFC 3849) for others.
fn stand_in(name: &str) -> IpAddr {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    if name == "localhost" || name.ends_with(".localhost") {
        return Ipv4Addr::LOCALHOST.into();
    }
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(hasher.finish())).into()
}

/// Whether root has started the program. A process that has become another user since, and one that was forked by a
/// master, builds what root's would be: the first call, which is for the first configuration, decides.
pub fn is_root() -> bool {
    static ROOT: OnceLock<bool> = OnceLock::new();
    *ROOT.get_or_init(process::is_root)
}

/// Runs `build`, and returns with its result what it has found. Not to be nested, nor for two threads at once: a process
/// builds one configuration at a time.
pub fn collect<R>(build: impl FnOnce() -> R) -> (R, BuildFindings) {
    mode().collected = Some(CollectedFindings::default());
    let result = build();
    let collected = mode().collected.take().unwrap_or_default();
    (result, collected.findings())
}

/// What was found so far. Contents lie one after the other: pieces of their own would leave holes between what a
/// configuration keeps of very many of them.
#[derive(Default)]
struct CollectedFindings {
    bytes: Vec<u8>,
    places: HashMap<PathBuf, Range<usize>>,
    names: HashMap<(String, u16), Vec<SocketAddr>>,
}

impl CollectedFindings {
    fn add(&mut self, path: &Path, content: &[u8]) {
        if self.places.get(path).is_some_and(|place| self.bytes[place.clone()] == *content) {
            return;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(content);
        self.places.insert(path.to_path_buf(), start..self.bytes.len());
    }

    fn findings(self) -> BuildFindings {
        let CollectedFindings { bytes, places, names } = self;
        let files = places.into_iter().map(|(path, place)| (path, bytes[place].to_vec())).collect();
        BuildFindings { files, names }
    }
}

/// Until the result is dropped, these are what is found.
pub fn give(findings: BuildFindings) -> GivenFindings {
    mode().given = Some(findings);
    GivenFindings(())
}

/// Findings are given while it lives; see [`give`].
#[must_use = "the findings are given while it lives"]
pub struct GivenFindings(());

impl Drop for GivenFindings {
    fn drop(&mut self) {
        mode().given = None;
    }
}

struct BuildMode {
    collected: Option<CollectedFindings>,
    given: Option<BuildFindings>,
}

fn mode() -> MutexGuard<'static, BuildMode> {
    static MODE: Mutex<BuildMode> = Mutex::new(BuildMode { collected: None, given: None });
    MODE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_can_be_given() {
        let directory = weir_test::TempDir::new();
        let path = directory.path().join("key");
        std::fs::write(&path, "key").expect("ours");
        let (content, collected) = collect(|| {
            look_up("localhost", 1).expect("every system knows it");
            assert!(look_up("a.invalid", 1).is_err());
            read(&path).expect("there")
        });
        assert_eq!(content, b"key");
        // What other tests have read meanwhile is there, too.
        assert_eq!(collected.files.get(&path).map(Vec::as_slice), Some(&b"key"[..]));
        std::fs::remove_file(&path).expect("ours");
        assert!(read(&path).is_err());
        let key = ("localhost".to_owned(), 1);
        assert!(collected.names[&key].iter().all(|at| at.ip().is_loopback()), "{:?}", collected.names);
        let address: SocketAddr = "192.0.2.1:1".parse().expect("an address");
        let unknown = ("a.invalid".to_owned(), 1);
        assert_eq!(collected.names[&unknown], [], "not asked again");
        let elsewhere = [(key, vec![address]), (unknown, Vec::new())].into();
        let given = give(BuildFindings { names: elsewhere, ..collected });
        assert_eq!(look_up("localhost", 1).expect("given"), [address]);
        assert_eq!(look_up("a.invalid", 1).map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
        assert_eq!(read(&path).expect("given"), b"key");
        drop(given);
        assert!(read(&path).is_err());
    }

    #[test]
    fn names_have_stand_ins_where_no_name_server_is_asked() {
        let found = |name: &str| look_up(name, 80).map(|found| found[0].to_string());
        without_name_servers(|| {
            assert_eq!(found("a.invalid").expect("a stand-in"), found("A.invalid.").expect("the same"));
            assert_ne!(found("a.invalid").expect("a stand-in"), found("b.invalid").expect("another"));
            assert!(found("a.invalid").expect("a stand-in").starts_with("[2001:db8:"));
            assert_eq!(found("localhost").expect("known"), "127.0.0.1:80");
            assert_eq!(found("192.0.2.7").expect("an address"), "192.0.2.7:80");
        });
        assert!(found("a.invalid").is_err(), "asked again");
    }
}
