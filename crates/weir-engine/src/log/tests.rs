//! From a message to the bytes in a file, through the log thread; and what happens when the file takes none.

use std::cell::RefCell;
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use zlib_rs::{InflateConfig, ReturnCode, decompress_slice};

use super::writer::{INTERRUPTIONS, LineBatch, LogWriter, MOST_QUEUED, WriterQueue};
use super::*;
use crate::conf::{self, CORE_MODULES};
use crate::counters::WorkerCounters;
use crate::error::{EngineError, EngineErrorKind, FaultSide};
use crate::request_log;
use crate::testing::run;

/// A file name of its own, removed at the end of the test.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Temporary {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("weir-log-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        Temporary(std::env::temp_dir().join(name))
    }

    fn open(&self, buffering: Option<LogBuffering>) -> LogFile {
        LogFile::open(&LogTarget::File(self.0.clone()), buffering).expect("a temporary file")
    }

    fn read(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.0).unwrap_or_default()).into_owned()
    }

    fn renamed(&self) -> Temporary {
        let to = Temporary::new();
        fs::rename(&self.0, &to.0).expect("the same folder");
        to
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0); // some tests rename it
    }
}

fn hand_over(file: &LogFile, line: &str) {
    file.hand_over(LogLevel::Info, line.as_bytes());
}

#[test]
fn levels_have_nginx_names_and_order() {
    for (name, level) in LogLevel::NAMES {
        assert_eq!(LogLevel::parse(name.as_bytes()), Some(level));
        assert_eq!(level.name(), name);
    }
    assert!(LogLevel::Emerg < LogLevel::Alert && LogLevel::Info < LogLevel::Debug);
    assert_eq!(LogLevel::parse(b"debug_http"), Some(LogLevel::Debug));
    assert_eq!(LogLevel::parse(b"stderr"), None);
}

#[test]
fn a_log_takes_its_level_and_graver_ones() {
    let (all, grave) = (Temporary::new(), Temporary::new());
    let sinks = [(&all, LogLevel::Info), (&grave, LogLevel::Error)];
    let log = ErrorLog::of(sinks.map(|(path, limit)| LogSink { file: path.open(None), limit }).into());
    assert!(log.enabled(LogLevel::Info) && !log.enabled(LogLevel::Debug));
    log.put(LogLevel::Info, b"info\n", LineReach::ByLevel);
    log.put(LogLevel::Error, b"error\n", LineReach::ByLevel);
    log.put(LogLevel::Emerg, b"emerg\n", LineReach::ByLevel);
    // Written at once: even before lines that the thread has at hand, so that order says nothing.
    assert!(grave.read().lines().any(|line| line == "emerg"), "written at once");
    flush();
    for (file, expected) in [(&all, &["emerg", "error", "info"][..]), (&grave, &["emerg", "error"])] {
        let text = file.read();
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, expected);
    }
}

#[test]
fn a_request_is_named_as_nginx_does() {
    let file = Temporary::new();
    let server = format!("server {{ server_name one.test; error_log {} info; }}", file.0.display());
    let head = "GET /t?a=1 HTTP/1.1\r\nHost: One.Test:80\r\nReferer: http://from/\r\n\r\n";
    let number = run(&server, head, async |x| {
        x.log_error(&"open() \"/t\" failed (2: No such file or directory)");
        request_log::broken(
            x,
            EngineError { kind: EngineErrorKind::Closed, side: FaultSide::Client, errno: Some(104) },
        );
        request_log::broken(x, EngineError::CLIENT_TIMED_OUT);
        x.log(LogLevel::Debug, &"not wanted");
        x.connection.log(LogLevel::Info, &"client sent nothing");
        x.worker.logs.flush_all();
        x.connection.number
    });
    let text = file.read();
    let lines: Vec<&str> = text.lines().collect();
    let context = ", client: 192.0.2.1, server: one.test, request: \"GET /t?a=1 HTTP/1.1\", host: \"One.Test:80\", \
        referrer: \"http://from/\"";
    let expect = [
        ("error", format!("open() \"/t\" failed (2: No such file or directory){context}")),
        (
            "info",
            format!(
                "writev() failed (104: Connection reset by peer) while sending response to client{context}"
            ),
        ),
        (
            "info",
            format!("client timed out (110: Connection timed out) while sending response to client{context}"),
        ),
    ];
    for (level, message) in &expect {
        let line =
            lines.iter().find(|line| line.ends_with(message)).unwrap_or_else(|| panic!("{message}\n{text}"));
        assert_prefix(line, level, number, message);
    }
    assert!(
        lines
            .iter()
            .any(|line| line
                .contains(&format!(": *{number} client sent nothing, client: 192.0.2.1, server: "))),
        "{text}"
    );
    assert_eq!(lines.len(), 4, "{text}");
}

/// `2026/11/21 05:45:41 [error] PID#TID: *NUMBER MESSAGE`
fn assert_prefix(line: &str, level: &str, number: u64, message: &str) {
    let prefix = line.strip_suffix(message).expect("it ends so");
    let (time, rest) = prefix.split_at(19);
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000/00/00 00:00:00");
    let ids = rest
        .strip_prefix(&format!(" [{level}] "))
        .and_then(|rest| rest.strip_suffix(&format!(": *{number} ")));
    let (pid, tid) = ids.and_then(|ids| ids.split_once('#')).unwrap_or_else(|| panic!("{line}"));
    assert_eq!(pid, std::process::id().to_string());
    assert!(Path::new(&format!("/proc/{pid}/task/{tid}")).exists(), "{tid} is this thread");
}

#[test]
fn a_line_ends_after_2048_bytes() {
    let line = compose(&now(), LogLevel::Error, None, &"x".repeat(5000), |out| out.push(b'y'));
    assert_eq!(line.len(), 2048);
    assert!(line.ends_with(b"x\n"));
}

#[test]
fn debug_lines_have_no_context() {
    let line = |level| compose(&now(), level, Some(7), &"told", |out| out.extend_from_slice(b", client"));
    assert!(line(LogLevel::Info).ends_with(b": *7 told, client\n"));
    assert!(line(LogLevel::Debug).ends_with(b": *7 told\n"));
}

#[test]
fn a_worker_hands_lines_over_by_itself_and_in_order() {
    let file = Temporary::new();
    let log = file.open(None);
    run("server { }", "GET / HTTP/1.0\r\n\r\n", async |x| {
        let write = |line: &str| {
            x.worker.log_line(&log, None, |out| out.extend_from_slice(line.as_bytes()));
        };
        write("1\n");
        write("2\n");
        let until = Instant::now() + Duration::from_secs(60);
        while file.read() != "1\n2\n" && Instant::now() < until {
            weir_rt::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(file.read(), "1\n2\n");
        // What composes a line may log a line.
        x.worker.log_line(&log, None, |out| {
            write("inner\n");
            out.extend_from_slice(b"outer\n");
        });
        write("3\n");
        x.worker.logs.flush_all();
        assert_eq!(file.read(), "1\n2\nouter\ninner\n3\n");
        write("4\n");
        flush();
        assert!(file.read().ends_with("3\n4\n"), "after the end of the loop too");
    });
}

#[test]
fn a_full_disk_costs_lines_and_nothing_else() {
    let full = LogFile::open(&LogTarget::File("/dev/full".into()), None).expect("a device");
    let file = Temporary::new();
    let good = file.open(None);
    let before = lost();
    run("server { }", "GET / HTTP/1.0\r\n\r\n", async |x| {
        for log in [&full, &good] {
            x.worker.log_line(log, None, |out| out.extend_from_slice(b"1\n2\n"));
        }
        x.worker.logs.flush_all();
        assert!(x.worker.counters.log_lost.get() >= 2);
    });
    assert!(lost() >= before + 2);
    assert_eq!(file.read(), "1\n2\n");
    // An urgent line is not waited for, nor is it silent.
    full.write_now(LogLevel::Emerg, b"3\n");
    assert!(lost() >= before + 3);
}

#[test]
fn lines_lost_are_reported_of_each_log_as_soon_as_they_can_be() {
    static WRITER: LogWriter = LogWriter::new();
    let (one, other) = (Temporary::new(), Temporary::new());
    let (one, other) = (one.open(None), other.open(None));
    let full = std::io::Error::from_raw_os_error(28);
    let said = RefCell::new(Vec::new());
    let mut spoken = 0;
    WriterQueue::with(&WRITER, |queue| queue.fail(&one.0, &full, 2));
    WRITER.speak(&mut spoken, true, |_| false);
    WriterQueue::with(&WRITER, |queue| {
        queue.fail(&other.0, &full, 5);
        queue.fail(&one.0, &full, 1);
    });
    WRITER.speak(&mut spoken, true, |trouble| {
        said.borrow_mut().push((trouble.target.clone(), trouble.lines));
        true
    });
    WRITER.speak(&mut spoken, true, |_| panic!("it was said"));
    let mut said = said.into_inner();
    said.sort_by_key(|(_, lines)| *lines);
    assert_eq!(said, [(one.0.target.clone(), 3), (other.0.target.clone(), 5)]);
}

#[test]
fn a_log_that_is_too_far_behind_loses_lines() {
    static WRITER: LogWriter = LogWriter::new();
    let (slow, other) = (Temporary::new(), Temporary::new());
    let (slow, other) = (slow.open(None), other.open(None));
    let batch =
        |file: &LogFile, bytes: &[u8]| LineBatch { file: file.0.clone(), bytes: bytes.to_vec(), kept: None };
    WriterQueue::with(&WRITER, |queue| {
        queue.push(batch(&slow, &vec![b'x'; MOST_QUEUED]));
        assert_eq!(queue.unclaimed(), 0);
        queue.push(batch(&slow, b"1\n2\n3\n"));
        assert_eq!(queue.unclaimed(), 3);
        queue.push(batch(&other, b"1\n"));
        assert_eq!(queue.unclaimed(), 3, "other logs are not its victims");
    });
}

#[test]
fn buffered_lines_are_written_with_a_flush_and_with_the_last_handle() {
    let (kept, dropped) = (Temporary::new(), Temporary::new());
    let how = Some(LogBuffering { size: 4096, flush: None, gzip: None });
    let (log, gone) = (kept.open(how), dropped.open(how));
    hand_over(&log, "1\n");
    hand_over(&gone, "2\n");
    flush();
    assert_eq!((kept.read(), dropped.read()), ("1\n".to_owned(), "2\n".to_owned()));
    hand_over(&gone, "3\n");
    drop(gone);
    let until = Instant::now() + Duration::from_secs(60);
    while dropped.read() != "2\n3\n" && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(dropped.read(), "2\n3\n");
}

#[test]
fn a_line_wakes_the_thread_after_handovers_of_nothing() {
    let file = Temporary::new();
    let log = file.open(None);
    for line in ["1\n", "2\n", "3\n"] {
        flush();
        // Most likely the thread sleeps again after each of the two.
        std::thread::sleep(Duration::from_millis(5));
        writer::push_all(&mut Vec::new(), &WorkerCounters::default());
        std::thread::sleep(Duration::from_millis(5));
        hand_over(&log, line);
        let until = Instant::now() + Duration::from_secs(60);
        while !file.read().ends_with(line) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(file.read().ends_with(line));
    }
}

/// A response does not wait until the thread has gathered; a flood of them does.
#[test]
fn callers_that_wait_end_the_gathering_until_they_are_a_flood() {
    static WRITER: LogWriter = LogWriter::new();
    let left = || WriterQueue::with(&WRITER, |queue| queue.interruptions());
    for expected in (0..INTERRUPTIONS).rev() {
        WriterQueue::with(&WRITER, WriterQueue::set_waiter);
        WRITER.gather();
        assert_eq!(left(), expected, "no end of the time, of which there is more with each");
    }
    WriterQueue::with(&WRITER, WriterQueue::set_waiter);
    WRITER.gather();
    assert_eq!(left(), INTERRUPTIONS, "it gathered for the whole time");
}

#[test]
fn flush_time_is_kept() {
    let file = Temporary::new();
    let log = file.open(Some(LogBuffering { size: 4096, flush: Some(20), gzip: None }));
    hand_over(&log, "1\n");
    let until = Instant::now() + Duration::from_secs(60);
    while file.read().is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(file.read(), "1\n");
}

#[test]
fn batches_are_members_of_a_gzip_file() {
    let file = Temporary::new();
    let log = file.open(Some(LogBuffering { size: 64 << 10, flush: None, gzip: Some(6) }));
    let lines = "GET / 200\n".repeat(1000);
    hand_over(&log, &lines);
    flush();
    let packed = fs::read(&file.0).expect("written");
    assert!(packed.len() < lines.len() / 10);
    assert_eq!(unpacked(&packed), lines);
}

#[test]
fn gzip_takes_any_size_and_level() {
    for (size, level) in [(1, 1), (100, 9), (255, 6), (600, 1), (70_000, 9), (300_000, 3)] {
        let batch: String = (0..size).map(|i: u64| char::from(b'a' + (i % 199 * i % 23) as u8)).collect();
        let member = gzip::member(batch.as_bytes(), level).expect("compressed");
        assert_eq!(unpacked(&member), batch, "{size} {level}");
    }
}

fn unpacked(member: &[u8]) -> String {
    let mut out = vec![0; 1 << 20];
    let (text, code) = decompress_slice(&mut out, member, InflateConfig { window_bits: 15 + 16 });
    assert_eq!(code, ReturnCode::Ok);
    String::from_utf8_lossy(text).into_owned()
}

#[test]
fn renamed_logs_are_opened_anew() {
    let file = Temporary::new();
    let log = file.open(None);
    assert!(file.open(None) == log, "opened once");
    hand_over(&log, "1\n");
    flush();
    let old = file.renamed();
    assert!(file.open(None) != log, "the path leads elsewhere");
    hand_over(&log, "2\n");
    reopen();
    hand_over(&log, "3\n");
    flush();
    assert_eq!((old.read(), file.read()), ("1\n2\n".to_owned(), "3\n".to_owned()));
}

#[test]
fn syslog_gets_datagrams() {
    let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
    server.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let address = server.local_addr().expect("bound");
    let text = format!("error_log syslog:server={address},facility=local0,tag=weir,nohostname warn;");
    let conf = conf::test::load(&text, &CORE_MODULES).unwrap_or_else(|errors| panic!("{errors}"));
    let log = conf.main.error_log_open.expect("opened");
    for level in [LogLevel::Warn, LogLevel::Emerg] {
        log.put(level, b"2026/11/21 05:45:41 [x] 1#1: said\n", LineReach::ByLevel);
        let mut datagram = [0; 512];
        let len = server.recv(&mut datagram).expect("sent");
        let datagram = String::from_utf8_lossy(&datagram[..len]).into_owned();
        let priority = 16 * 8 + level as u8 - 1;
        assert!(datagram.starts_with(&format!("<{priority}>")), "{datagram}");
        assert!(datagram.ends_with(" weir: 2026/11/21 05:45:41 [x] 1#1: said"), "{datagram}");
    }
}

#[test]
fn parameters_are_refused_in_nginx_words() {
    for (arguments, message) in [
        ("/dev/null foo", "invalid log level \"foo\""),
        ("/dev/null warn error", "duplicate log level \"error\""),
        ("memory:1m", "nginx was built without debug support"),
        ("syslog:tag=a", "no syslog server specified"),
        ("syslog:server=127.0.0.1,server=127.0.0.1", "duplicate syslog \"server\""),
        ("syslog:server=127.0.0.1,facility=x", "unknown syslog facility \"x\""),
        ("syslog:server=127.0.0.1,severity=x", "unknown syslog severity \"x\""),
        (
            "syslog:server=127.0.0.1,tag=a-b",
            "syslog \"tag\" only allows alphanumeric characters and underscore",
        ),
        ("syslog:server=127.0.0.1,tag=aaaaaaaaaabbbbbbbbbbccccccccccddd", "syslog tag length exceeds 32"),
        ("syslog:server=127.0.0.1,color=red", "unknown syslog parameter \"color=red\""),
        ("/nonexistent/e.log", "open() \"/nonexistent/e.log\" failed (2: No such file or directory)"),
    ] {
        let text = format!("error_log {arguments};");
        let errors = conf::test::headlines(&text, &CORE_MODULES);
        assert_eq!(errors[0].split(" in weir.conf").next(), Some(message), "{arguments}");
    }
    for arguments in [
        "syslog:server=[::1]",
        "syslog:server=[::1]:1",
        "syslog:server=unix:/x",
        "stderr debug_http debug_core",
    ] {
        assert!(conf::test::load(&format!("error_log {arguments};"), &CORE_MODULES).is_ok(), "{arguments}");
    }
}
