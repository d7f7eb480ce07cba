//! The kernel's accounts of threads and of the process: /proc, readable without privilege.

use std::fs;
use std::io;

/// What the kernel accounts to one thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUse {
    /// The thread's number.
    pub tid: i32,
    /// Its state as the kernel names it: `R`, `S`, `D`, ...
    pub state: u8,
    /// Time on a CPU, in nanoseconds.
    pub cpu_ns: u64,
    /// Time ready to run and without a CPU, in nanoseconds: the run queue.
    pub run_queue_ns: u64,
    /// Number of context switches because it waited.
    pub switches_voluntary: u64,
    /// Number of context switches because its time slice was over.
    pub switches_forced: u64,
    /// Number of page faults without reading from disk.
    pub faults_minor: u64,
    /// Number of page faults that read from disk.
    pub faults_major: u64,
    /// Bytes read from disk for it; 0 where the kernel does not report it.
    pub disk_read: u64,
    /// Bytes it caused to be written to disk.
    pub disk_written: u64,
}

impl ThreadUse {
    /// Reads the account of a thread of this process: five small files, some 50 µs.
    ///
    /// # Errors
    /// There is no such thread (any more), or no /proc.
    pub fn read(tid: i32) -> io::Result<ThreadUse> {
        let file = |name: &str| fs::read_to_string(format!("/proc/self/task/{tid}/{name}"));
        let mut this = ThreadUse { tid, ..ThreadUse::default() };
        this.stat(&file("stat")?);
        // What a kernel was built without reads as zero.
        this.schedstat(&file("schedstat").unwrap_or_default());
        let status = file("status").unwrap_or_default();
        this.switches_voluntary = field(&status, "voluntary_ctxt_switches:");
        this.switches_forced = field(&status, "nonvoluntary_ctxt_switches:");
        let io = file("io").unwrap_or_default();
        this.disk_read = field(&io, "read_bytes:");
        this.disk_written = field(&io, "write_bytes:");
        Ok(this)
    }

    fn stat(&mut self, text: &str) {
        let fields = stat_fields(text);
        let number = |n: usize| fields.get(n).and_then(|field| field.parse().ok()).unwrap_or(0);
        self.state = fields.first().and_then(|field| field.bytes().next()).unwrap_or(b'?');
        (self.faults_minor, self.faults_major) = (number(7), number(9));
    }

    fn schedstat(&mut self, text: &str) {
        let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().unwrap_or(0));
        self.cpu_ns = numbers.next().unwrap_or(0);
        self.run_queue_ns = numbers.next().unwrap_or(0);
    }
}

/// What the kernel accounts to the whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUse {
    /// Bytes of memory in RAM.
    pub resident: u64,
    /// Bytes of address space.
    pub virtual_size: u64,
    /// The most bytes that were in RAM at once.
    pub resident_peak: u64,
    /// Threads of the process.
    pub threads: u64,
    /// Maximum number of open descriptors (soft limit); `u64::MAX` for no limit.
    pub descriptors_limit: u64,
    /// Number of open descriptors.
    pub descriptors: u64,
    /// Bytes read from disk; 0 where the kernel does not report it.
    pub disk_read: u64,
    /// Bytes written to disk.
    pub disk_written: u64,
    /// Bytes asked for by read calls, sockets included.
    pub read: u64,
    /// Bytes given to write calls.
    pub written: u64,
}

impl ProcessUse {
    /// Reads the account of this process.
    ///
    /// # Errors
    /// There is no /proc.
    pub fn read() -> io::Result<ProcessUse> {
        let status = fs::read_to_string("/proc/self/status")?;
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let descriptors = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64;
        let limit = weir_rt::process::limit(weir_rt::process::ResourceLimit::OpenFiles);
        Ok(ProcessUse {
            resident: field(&status, "VmRSS:") * 1024,
            virtual_size: field(&status, "VmSize:") * 1024,
            resident_peak: field(&status, "VmHWM:") * 1024,
            threads: field(&status, "Threads:"),
            descriptors_limit: limit.map_or(0, |(soft, _)| soft),
            // The one that the directory was read through was among them.
            descriptors: descriptors.saturating_sub(1),
            disk_read: field(&io, "read_bytes:"),
            disk_written: field(&io, "write_bytes:"),
            read: field(&io, "rchar:"),
            written: field(&io, "wchar:"),
        })
    }
}

/// What a thread does in the kernel at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InKernel {
    /// As in [`ThreadUse::state`]; 0 if it can't be read.
    pub(super) state: u8,
    /// The number of the system call it is in.
    pub(super) syscall: Option<u32>,
    /// The kernel function it sleeps in; empty if it does not.
    pub(super) wait_channel: String,
}

impl InKernel {
    /// Looks at a thread of this process. What is refused stays empty.
    pub(super) fn read(tid: i32) -> InKernel {
        let file =
            |name: &str| fs::read_to_string(format!("/proc/self/task/{tid}/{name}")).unwrap_or_default();
        let state = stat_fields(&file("stat")).first().and_then(|field| field.bytes().next());
        let wait_channel = file("wchan");
        InKernel {
            state: state.unwrap_or(0),
            syscall: syscall(&file("syscall")),
            wait_channel: if wait_channel == "0" { String::new() } else { wait_channel },
        }
    }
}

/// The fields of a stat file after the name, which may hold anything, also parentheses.
fn stat_fields(text: &str) -> Vec<&str> {
    let after = text.rsplit_once(')').map_or("", |(_, after)| after);
    after.split_ascii_whitespace().collect()
}

/// `running`, or the number and its arguments; -1 is a thread that is stopped elsewhere in the kernel.
fn syscall(text: &str) -> Option<u32> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// The number after `name` at the beginning of a line.
fn field(text: &str, name: &str) -> u64 {
    let of = |line: &str| line.strip_prefix(name)?.split_ascii_whitespace().next()?.parse().ok();
    text.lines().find_map(of).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let text = "7 (a) b (c)) S 1 2 3 4 5 6 700 8 900 10 11 12";
        let mut thread = ThreadUse::default();
        thread.stat(text);
        assert_eq!((thread.state, thread.faults_minor, thread.faults_major), (b'S', 700, 900));
        thread.stat("");
        assert_eq!((thread.state, thread.faults_minor), (b'?', 0));
        thread.schedstat("123 456 7\n");
        assert_eq!((thread.cpu_ns, thread.run_queue_ns), (123, 456));
        let status =
            "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t6\nVmRSS:\t  77 kB\n";
        assert_eq!(field(status, "voluntary_ctxt_switches:"), 5);
        assert_eq!(field(status, "nonvoluntary_ctxt_switches:"), 6);
        assert_eq!((field(status, "VmRSS:"), field(status, "VmHWM:")), (77, 0));
    }

    #[test]
    fn the_syscall_is_the_first_number() {
        assert_eq!(syscall("61 0x1 0x2 0x7ffe\n"), Some(61));
        assert_eq!((syscall("running\n"), syscall("-1 0x7ff 0x0\n"), syscall("")), (None, None, None));
    }

    #[test]
    fn this_very_thread_can_be_read() {
        let before = ProcessUse::read().expect("/proc");
        assert!(before.resident > 0 && before.threads > 0 && before.descriptors > 2);
        // A thread that is given a stack that was used before may have no fault of its own: this is one.
        std::hint::black_box(vec![1u8; 16 << 20]);
        let tid: i32 = std::path::Path::new("/proc/thread-self")
            .read_link()
            .ok()
            .and_then(|link| link.file_name()?.to_str()?.parse().ok())
            .expect("a number");
        let thread = ThreadUse::read(tid).expect("it lives");
        assert_eq!((thread.tid, thread.state), (tid, b'R'));
        assert!(thread.faults_minor > 0);
        assert!(ThreadUse::read(i32::MAX).is_err());
        assert_eq!(InKernel::read(tid).state, b'R');
    }
}
