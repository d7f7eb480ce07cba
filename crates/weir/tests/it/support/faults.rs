//! Faults that are put into servers, and the commands that look for them.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use weir_test::{Backend, Server, require_program};

/// What the program prints, asking that server.
pub(crate) fn weir(server: &Server, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(words).args(["-c", "nginx.conf", "-p"]).arg(server.dir().path());
    let out = command.output().expect("the program runs");
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).expect("text")
}

/// What goes on until it is dropped: clients, and what else a fault needs.
#[derive(Default)]
pub(crate) struct FaultLoad {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    pub(crate) children: Vec<Child>,
}

impl FaultLoad {
    /// `work` again and again, in a thread of its own.
    pub(crate) fn with(mut self, mut work: impl FnMut() + Send + 'static) -> FaultLoad {
        let stop = self.stop.clone();
        self.threads.push(thread::spawn(move || {
            while !stop.load(SeqCst) {
                work();
            }
        }));
        self
    }

    /// Clients that ask for `path`, one request after the other, with a pause between.
    pub(crate) fn clients(self, server: &Server, count: usize, path: &str, pause: Duration) -> FaultLoad {
        (0..count).fold(self, |load, _| {
            let (mut client, path) = (server.client(), path.to_owned());
            load.with(move || {
                // What is broken is what is looked for.
                client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
                let _ = client.try_response();
                thread::sleep(pause);
            })
        })
    }
}

/// A server that resets its connection instead of a fifth response.
pub(crate) fn resetting_backend() -> Backend {
    Backend::start(|visit| {
        let mut count = 0;
        while visit.head().is_some() {
            count += 1;
            if count == 5 {
                return visit.reset();
            }
            visit.answer("well");
        }
    })
}

impl Drop for FaultLoad {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Makes a library that makes reading of files slow, as if each were cold and the disk took 30 ms.
pub(crate) fn slow_files(directory: &Path) -> Option<String> {
    let cc = require_program("cc")?;
    let (source, library) = (directory.join("slow.c"), directory.join("slow.so"));
    std::fs::write(&source, SLOW_C).expect("the directory is ours");
    let made = Command::new(cc).args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).status();
    assert!(made.expect("cc runs").success());
    Some(library.to_string_lossy().into_owned())
}

const SLOW_C: &str = "#define _GNU_SOURCE
#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
static int served(int fd) { struct stat of; return fstat(fd, &of) == 0 && of.st_size == 100000; }
ssize_t preadv2(int fd, const struct iovec *iov, int n, off_t at, int flags) {
    if (served(fd)) {
        if (flags & 8) { errno = EAGAIN; return -1; }
        usleep(30000);
    }
    return syscall(SYS_preadv2, fd, iov, (long)n, (long)at, 0L, (long)flags);
}
ssize_t preadv64v2(int fd, const struct iovec *iov, int n, off_t at, int flags) { return preadv2(fd, iov, n, at, flags); }
ssize_t pread(int fd, void *to, size_t n, off_t at) { if (served(fd)) usleep(30000); return syscall(SYS_pread64, fd, to, n, at); }
ssize_t pread64(int fd, void *to, size_t n, off_t at) { return pread(fd, to, n, at); }
";
