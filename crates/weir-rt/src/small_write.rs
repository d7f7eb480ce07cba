//! A write to a file: on a thread of the pool, or, if it is small and its file system has shown that it does not wait, on
//! the loop.
//!
//! A trip to the pool switches threads three times, which costs more than to open a file, to write 64 KB to it and to
//! rename it. So a small file is written where its bytes are, as long as the recent writes to its file system
//! were quick ([`Disk`]). A write that stalls holds up its worker once; then threads write for a growing time, and until
//! their writes are quick again. Nothing is known of a file system at first: threads write.

use std::cell::{Cell, RefCell};
use std::future::ready;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use crate::clock;
use crate::file::FileHandle;
use crate::file::disk::{Disk, WriteClock, WriteKind};
use crate::file::own_handle::own_or_here;
use crate::{blocking, yield_now};

/// Which threads write small files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SmallWrites {
    /// The loop where the file system is quick, else threads.
    #[default]
    Auto,
    /// Threads of the pool.
    Threads,
    /// The loop, whatever the file system.
    Loop,
}

/// Bytes that a file may have to be written on the loop: some 60 us of copying.
const SMALL_FILE: u64 = 128 * 1024;

/// Where a write is to be made. Decided anew for each.
#[derive(Debug)]
pub struct FileWrite {
    way: WriteWay,
    kind: WriteKind,
    small: bool,
}

/// What was measured is remembered of this.
#[derive(Clone, Copy)]
struct WriteSubject {
    disk: &'static Disk,
    kind: WriteKind,
    small: bool,
}

#[derive(Debug)]
enum WriteWay {
    Loop(Option<&'static Disk>),
    Thread(Option<&'static Disk>),
    /// A thread, which looks at these directories first.
    Unknown(Vec<PathBuf>),
}

impl FileWrite {
    /// A write by a thread that nothing is learned from.
    pub const fn by_thread() -> FileWrite {
        FileWrite { way: WriteWay::Thread(None), kind: WriteKind::New, small: false }
    }

    /// A write that makes a file of `bytes` in one of `directories`, and may rename it to where there is none in others of them.
    ///
    /// # Panics
    /// Outside a runtime.
    pub fn new(policy: SmallWrites, directories: &[&Path], bytes: u64) -> FileWrite {
        FileWrite::of_kind(WriteKind::New, policy, directories, bytes)
    }

    /// As [`FileWrite::new`], of a file that takes the place of another, or of a change of one.
    ///
    /// # Panics
    /// Outside a runtime.
    pub fn replacing(policy: SmallWrites, directories: &[&Path], bytes: u64) -> FileWrite {
        FileWrite::of_kind(WriteKind::Replacing, policy, directories, bytes)
    }

    fn of_kind(kind: WriteKind, policy: SmallWrites, directories: &[&Path], bytes: u64) -> FileWrite {
        let small = bytes <= SMALL_FILE;
        let way = match policy {
            SmallWrites::Threads => WriteWay::Thread(None),
            SmallWrites::Loop if small => WriteWay::Loop(None),
            SmallWrites::Loop => WriteWay::Thread(None),
            SmallWrites::Auto => match known(directories) {
                None => WriteWay::Unknown(directories.iter().map(|path| path.to_path_buf()).collect()),
                Some(Some(disk)) if small && disk.is_quick(kind, crate::now_ms()) => {
                    WriteWay::Loop(Some(disk))
                }
                Some(disk) => WriteWay::Thread(disk.filter(|disk| disk.is_cached())),
            },
        };
        FileWrite { way, kind, small }
    }

    /// As [`FileWrite::new`], of a file that is made in `directory` and renamed to `place`. Looks whether something has that
    /// place, where this waits for no other machine.
    ///
    /// # Panics
    /// Outside a runtime.
    pub fn toward(policy: SmallWrites, directory: &Path, place: &Path, bytes: u64) -> FileWrite {
        let Some(parent) = place.parent() else { return FileWrite::by_thread() };
        let directories = [directory, parent];
        let write = FileWrite::new(policy, &directories, bytes);
        match write.way {
            WriteWay::Loop(Some(_)) | WriteWay::Thread(Some(_)) if crate::file::stat(place).is_ok() => {
                FileWrite::replacing(policy, &directories, bytes)
            }
            _ => write,
        }
    }

    /// Makes the write, `job`, to `file`: as [`on_pool`](crate::file::on_pool) where a thread makes it.
    ///
    /// # Errors
    /// Those of `job`, and others of dup(2) than `EMFILE`.
    pub fn on<T: Send + 'static>(
        self,
        file: &FileHandle,
        job: impl FnOnce(&FileHandle) -> io::Result<T> + Send + 'static,
    ) -> Pin<Box<dyn Future<Output = io::Result<T>>>> {
        match own_or_here(file.try_clone(), file, job) {
            Ok((own, job)) => Box::pin(self.run(move || job(&own))),
            Err(done) => Box::pin(ready(done)),
        }
    }

    /// Makes the write, `job`. A panic of it goes on in the waiting task; if that has been dropped after `job` went to a
    /// thread, it still runs to its end.
    pub async fn run<T: Send + 'static>(self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let FileWrite { way, kind, small } = self;
        let subject = move |disk| WriteSubject { disk, kind, small };
        match way {
            WriteWay::Loop(disk) => {
                while !has_time() {
                    yield_now().await;
                }
                // It may have stalled meanwhile.
                if disk.is_none_or(|disk| disk.is_quick(kind, crate::now_ms())) {
                    return on_loop(disk.map(subject), job);
                }
                on_thread(disk.map(subject), job).await
            }
            WriteWay::Thread(disk) => on_thread(disk.map(subject), job).await,
            WriteWay::Unknown(directories) => look_and_write(directories, job).await,
        }
    }
}

/// Runs `job` here and now.
fn on_loop<T>(subject: Option<WriteSubject>, job: impl FnOnce() -> T) -> T {
    let clock = WriteClock::begin();
    let result = job();
    let (ns, speed) = clock.end();
    if let Some(WriteSubject { disk, kind, .. }) = subject {
        disk.wrote_on_loop(kind, speed, clock::monotonic_ms());
    }
    TURN.set(TurnTime { spent_ns: TURN.get().spent_ns + ns, ..TURN.get() });
    crate::wrote_small_file(ns);
    result
}

async fn on_thread<T: Send + 'static>(
    subject: Option<WriteSubject>,
    job: impl FnOnce() -> T + Send + 'static,
) -> T {
    blocking(move || measured(subject, job)).await
}

fn measured<T>(subject: Option<WriteSubject>, job: impl FnOnce() -> T) -> T {
    let Some(WriteSubject { disk, kind, small }) = subject else { return job() };
    let clock = WriteClock::begin();
    let result = job();
    disk.wrote_on_thread(kind, clock.end().1, small, clock::monotonic_ms());
    result
}

/// A thread looks at the directories, too: to look may take as long as to write. Nothing is learned from this write.
async fn look_and_write<T: Send + 'static>(
    directories: Vec<PathBuf>,
    job: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (result, found) = blocking(move || {
        let found = directories.into_iter().map(|path| (Disk::of(&path), path)).collect::<Vec<_>>();
        (job(), found)
    })
    .await;
    found.into_iter().for_each(|(disk, path)| remember(path, disk));
    result
}

/// Whether this turn of the loop may write more: what comes after [`TURN_NS`] waits for the next one, so that other
/// requests have their turn.
fn has_time() -> bool {
    let turn = crate::turn();
    if TURN.get().turn != turn {
        TURN.set(TurnTime { turn, spent_ns: 0 });
    }
    TURN.get().spent_ns < TURN_NS
}

/// What was written on this loop in a turn.
#[derive(Clone, Copy)]
struct TurnTime {
    turn: u64,
    spent_ns: u64,
}

/// A directory that was looked at.
struct KnownDirectory {
    path: PathBuf,
    /// `None`: it could not be.
    disk: Option<&'static Disk>,
    looked_ms: u64,
}

thread_local! {
    static TURN: Cell<TurnTime> = const { Cell::new(TurnTime { turn: 0, spent_ns: 0 }) };
    /// Of this loop, so that requests take no lock.
    static KNOWN: RefCell<Vec<KnownDirectory>> = const { RefCell::new(Vec::new()) };
}

/// The file system of all `directories`; `Some(None)`: there is no such, `None`: one of them must be looked at first.
fn known(directories: &[&Path]) -> Option<Option<&'static Disk>> {
    let now = crate::now_ms();
    KNOWN.with_borrow(|known| {
        let mut all: Option<Option<&'static Disk>> = None;
        for path in directories {
            let found = known.iter().find(|entry| entry.path == *path)?;
            if now.saturating_sub(found.looked_ms) >= LOOK_AGAIN_MS {
                return None;
            }
            all = Some(match all {
                None => found.disk,
                Some(before) => {
                    before.filter(|disk| found.disk.is_some_and(|found| std::ptr::eq(*disk, found)))
                }
            });
        }
        Some(all.flatten())
    })
}

fn remember(path: PathBuf, disk: Option<&'static Disk>) {
    let looked_ms = crate::now_ms();
    KNOWN.with_borrow_mut(|known| {
        known.retain(|entry| entry.path != path);
        if known.len() >= DIRECTORIES {
            known.remove(0);
        }
        known.push(KnownDirectory { path, disk, looked_ms });
    });
}

/// How long it is believed which file system a directory is in: something else may be mounted there.
const LOOK_AGAIN_MS: u64 = 1_000;
/// Directories that a loop remembers.
const DIRECTORIES: usize = 64;
/// Nanoseconds of a turn that go to writes: requests that need no disk wait for these at most, and for one write more.
const TURN_NS: u64 = 500_000;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::rc::Rc;
    use std::task::Poll;
    use std::thread::ThreadId;

    use super::*;
    use crate::file::disk::WriteSpeed;
    use crate::{DriverChoice, Runtime, RuntimeOptions};

    /// Of this process alone, in memory: tests run beside each other, and share what is known of the file system.
    struct QuickDirectory(PathBuf);

    impl QuickDirectory {
        fn new(name: &str) -> QuickDirectory {
            let path = PathBuf::from(format!("/dev/shm/weir-rt-small-{}-{name}", crate::process::pid()));
            fs::create_dir_all(&path).expect("writable");
            QuickDirectory(path)
        }
    }

    impl Drop for QuickDirectory {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).expect("ours");
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let options = RuntimeOptions { driver: DriverChoice::Epoll, buffers: 8, ..RuntimeOptions::default() };
        Runtime::new(&options).expect("epoll is everywhere").block_on(test);
    }

    async fn thread_of(write: FileWrite) -> ThreadId {
        write.run(|| std::thread::current().id()).await
    }

    /// Writes until the loop does.
    async fn until_trusted(write: impl Fn() -> FileWrite) {
        let own = std::thread::current().id();
        for _ in 0..10_000 {
            if thread_of(write()).await == own {
                return;
            }
        }
        panic!("threads write all the time");
    }

    #[test]
    fn threads_write_first_and_the_loop_goes_on() {
        let directory = QuickDirectory::new("first");
        run(async {
            let own = std::thread::current().id();
            let new = |policy, bytes| FileWrite::new(policy, &[&directory.0], bytes);
            assert_ne!(thread_of(new(SmallWrites::Auto, 5)).await, own, "nothing is known");
            until_trusted(|| new(SmallWrites::Auto, SMALL_FILE)).await;
            assert_ne!(thread_of(new(SmallWrites::Auto, SMALL_FILE + 1)).await, own, "it is large");
            assert_ne!(thread_of(new(SmallWrites::Threads, 5)).await, own);
            assert_ne!(thread_of(FileWrite::by_thread()).await, own);
            assert_eq!(thread_of(new(SmallWrites::Loop, 5)).await, own);
            let two = |path: &str| FileWrite::new(SmallWrites::Auto, &[&directory.0, Path::new(path)], 5);
            for _ in 0..20 {
                assert_ne!(thread_of(two("/proc")).await, own, "another file system");
                assert_ne!(thread_of(two("/no/such")).await, own);
            }
        });
    }

    #[test]
    fn where_a_file_goes_says_what_it_does() {
        let directory = QuickDirectory::new("toward");
        run(async {
            let there = directory.0.join("there");
            fs::write(&there, "x").expect("writable");
            let toward = |place: &Path| FileWrite::toward(SmallWrites::Auto, &directory.0, place, 5);
            until_trusted(|| toward(&directory.0.join("new"))).await;
            assert_eq!(toward(&directory.0.join("new")).kind, WriteKind::New);
            assert_eq!(toward(&there).kind, WriteKind::Replacing);
            for elsewhere in ["/proc/version", "/proc/new", "/no/such/directory", "/"] {
                let own = std::thread::current().id();
                assert_ne!(thread_of(toward(Path::new(elsewhere))).await, own, "{elsewhere}");
                let write = toward(Path::new(elsewhere));
                assert!(matches!(write.way, WriteWay::Thread(None)), "{elsewhere}: {write:?}");
            }
        });
    }

    #[test]
    fn a_turn_writes_for_a_while_and_leaves_the_rest_to_the_next() {
        let directory = QuickDirectory::new("turn");
        run(async {
            let turns = Rc::new(RefCell::new(Vec::new()));
            for _ in 0..6 {
                let (turns, path) = (turns.clone(), directory.0.clone());
                crate::spawn(async move {
                    let write = FileWrite::new(SmallWrites::Loop, &[&path], 5);
                    let long = || {
                        let begun = std::time::Instant::now();
                        while begun.elapsed().as_nanos() < u128::from(TURN_NS) {}
                    };
                    write.run(long).await;
                    turns.borrow_mut().push(crate::turn());
                });
            }
            while turns.borrow().len() < 6 {
                yield_now().await;
            }
            let turns = turns.take();
            assert!(turns.is_sorted_by(|before, after| before < after), "one a turn: {turns:?}");
        });
    }

    #[test]
    fn a_panic_goes_on_in_the_task_and_a_stall_is_seen() {
        let directory = QuickDirectory::new("panic");
        run(async {
            for policy in [SmallWrites::Loop, SmallWrites::Threads] {
                let job: fn() = || std::panic::resume_unwind(Box::new("quiet"));
                let mut write = pin!(FileWrite::new(policy, &[&directory.0], 5).run(job));
                let caught = poll_fn(|cx| match crate::task::catch(|| write.as_mut().poll(cx)) {
                    Some(polled) => polled.map(|()| false),
                    None => Poll::Ready(true),
                });
                assert!(caught.await, "{policy:?}");
            }
        });
        // Not the file system's own entry, which other tests use.
        let disk: &'static Disk = Box::leak(Box::new(Disk::new(0, true)));
        let subject = |kind| Some(WriteSubject { disk, kind, small: true });
        run(async move {
            (0..40).for_each(|_| disk.wrote_on_thread(WriteKind::New, WriteSpeed::Quick, true, 1));
            assert!(disk.is_quick(WriteKind::New, crate::now_ms()));
            on_loop(subject(WriteKind::New), || std::thread::sleep(std::time::Duration::from_millis(2)));
            assert!(!disk.is_quick(WriteKind::New, crate::now_ms()));
        });
    }
}
