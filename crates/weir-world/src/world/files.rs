//! The server's files: which descriptors are which, and which calls fail as the plan says.

use std::collections::BTreeMap;

use weir_sim::draw::Draw;
use weir_sim::files::SimFileKind;

use super::{BEGIN, MICROSECOND, SimDisk, World};

/// A call that touches a file, as far as faults differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileCall {
    Open,
    /// A file or a directory is made.
    Make,
    Read,
    Write,
    Look,
    Rename,
    Remove,
    Sync,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileFate {
    Goes,
    /// It takes so many bytes of what was asked for.
    Takes(usize),
    Fails(i32),
    /// It takes so many bytes, or is not made for 0, and the server ends then.
    Ends(usize),
}

/// The files of the server that the plan knows.
#[derive(Debug)]
pub(crate) struct SimFiles {
    /// The server's directory.
    directory: String,
    kinds: BTreeMap<i32, SimFileKind>,
    draw: Draw,
}

impl SimFiles {
    pub(super) fn new(directory: &str, draw: Draw) -> SimFiles {
        SimFiles { directory: directory.trim_end_matches('/').to_owned(), kinds: BTreeMap::new(), draw }
    }

    /// What the file at a path is for; `None`: nothing that fails.
    pub(crate) fn kind_at(&self, path: &[u8]) -> Option<SimFileKind> {
        let path = std::str::from_utf8(path).ok()?.strip_prefix(&self.directory)?;
        SimFileKind::of(path.strip_prefix('/')?.trim_start_matches('/'))
    }

    /// What an open file is for.
    pub(crate) fn kind(&self, fd: i32) -> Option<SimFileKind> {
        self.kinds.get(&fd).copied()
    }

    /// How many descriptors there are of such files.
    pub(super) fn count(&self, kind: SimFileKind) -> usize {
        self.kinds.values().filter(|one| **one == kind).count()
    }

    /// A descriptor is another file now, or none that fails.
    pub(crate) fn set(&mut self, fd: i32, kind: Option<SimFileKind>) {
        match kind {
            Some(kind) => self.kinds.insert(fd, kind),
            None => self.kinds.remove(&fd),
        };
    }
}

impl World {
    /// What becomes of a call that asks for `length` bytes.
    pub(crate) fn file_fate(
        &mut self,
        now: u64,
        kind: SimFileKind,
        call: FileCall,
        length: usize,
    ) -> FileFate {
        if self.is_last_step(now) {
            return FileFate::Ends(self.files_of_plan.draw.below(length.max(1) as u64 + 1) as usize);
        }
        let plan = &self.plan.files;
        if !self.is_open || self.is_over || plan.is_idle() {
            return FileFate::Goes;
        }
        let since = (now.saturating_sub(BEGIN)) / MICROSECOND;
        let draw = &mut self.files_of_plan.draw;
        let part = |draw: &mut Draw| FileFate::Takes(draw.between(1, length as u64) as usize);
        let is_full = plan.full.is_some_and(|time| time.has(since));
        let mut errno = 0;
        if is_full && matches!(call, FileCall::Make | FileCall::Write) {
            if call == FileCall::Write && length > 1 && draw.chance(1, 4) {
                return part(draw);
            }
            errno = libc::ENOSPC;
        }
        for fault in plan.faults.iter().filter(|fault| fault.kind == kind && fault.time.has(since)) {
            if errno == 0 && draw.chance(fault.of_thousand, 1000) {
                errno = *draw.one_of(errors(call));
            }
        }
        if errno != 0 {
            let word = kind.word();
            self.note(format_args!("f kind={word} call={call:?} errno={errno} t={}", now / MICROSECOND));
            return FileFate::Fails(errno);
        }
        let is_transfer = matches!(call, FileCall::Read | FileCall::Write);
        if is_transfer && length > 1 && draw.chance(plan.short, 1000) {
            return part(draw);
        }
        FileFate::Goes
    }

    /// What the disk has, where it may lose some.
    pub(crate) fn disk(&mut self) -> Option<&mut SimDisk> {
        self.disk.as_mut()
    }

    /// Whether a read that must not wait for the disk would have to.
    pub(crate) fn is_cold(&mut self) -> bool {
        self.is_open && !self.is_over && self.files_of_plan.draw.chance(self.plan.files.cold, 1000)
    }

    /// Whether other threads may run meanwhile: only where the seed draws something of files.
    pub(crate) fn has_slow_files(&self) -> bool {
        self.is_open && (!self.plan.files.is_idle() || self.plan.crash.is_some())
    }
}

/// Why such a call may fail.
fn errors(call: FileCall) -> &'static [i32] {
    match call {
        FileCall::Open => &[libc::EIO, libc::EMFILE, libc::ENFILE],
        FileCall::Make => &[libc::EIO, libc::EMFILE, libc::ENFILE, libc::ENOSPC],
        FileCall::Read => &[libc::EIO, libc::EIO, libc::EINTR],
        FileCall::Write => &[libc::EIO, libc::ENOSPC, libc::EINTR],
        FileCall::Look | FileCall::Remove | FileCall::Sync => &[libc::EIO],
        FileCall::Rename => &[libc::EIO, libc::ENOSPC],
    }
}
