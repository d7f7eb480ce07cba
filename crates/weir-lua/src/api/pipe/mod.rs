//! `ngx.pipe`: other programs, whose pipes and ends coroutines wait for.
//!
//! Checks of arguments are in the library (`library.lua`); here are the processes ([`PipedProcess`]) and the
//! pipes to them ([`ProcessPipe`]). What is there already is returned at once; else the coroutine waits for it.

mod stream;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use weir_engine::log::LogLevel;
use weir_rt::file::errno_text;
use weir_rt::process::watch::{WatchInterest, WatchedDescriptor};
use weir_rt::process::{ChildProcess, ProcessEnd, ProgramCall, spawn};

use crate::luajit::state::LuaState;
use crate::luajit::sys::kind;
use crate::run::function::{
    ApiFunction, CallDone, CallOutcome, LuaRaise, expect_number, expect_string, fail, function,
};
use crate::run::lend;
use crate::run::op::{PushResults, ThreadOp};
use crate::vm::phase::YIELDABLE;
use stream::{PipeBusy, ProcessPipe, ReadKind};

pub(crate) const TABLE: &[ApiFunction] = &[
    function("_pipe.spawn", 0, start),
    function("_pipe.pid", 0, |l| {
        l.push_number(f64::from(of(l)?.pid));
        Ok(CallDone::Results(1))
    }),
    function("_pipe.read", YIELDABLE, read),
    function("_pipe.write", YIELDABLE, write),
    function("_pipe.wait", YIELDABLE, wait),
    function("_pipe.kill", 0, kill),
    function("_pipe.shutdown", 0, shutdown),
];

/// A process that a script has started. One that is forgotten before it has ended is killed.
struct PipedProcess {
    pid: u32,
    child: RefCell<Option<ChildProcess>>,
    stdin: Rc<ProcessPipe>,
    stdout: Rc<ProcessPipe>,
    /// Unless it is merged into the other.
    stderr: Option<Rc<ProcessPipe>>,
    /// How it has ended.
    end: Cell<Option<ProcessEnd>>,
    /// Its status was returned.
    reported: Cell<bool>,
    waited: Rc<Cell<bool>>,
}

impl Drop for PipedProcess {
    fn drop(&mut self) {
        if let Some(child) = self.child.take()
            && let Err(error) = child.forsake()
        {
            let pid = self.pid;
            weir_engine::log::cycle(
                LogLevel::Error,
                &format!("lua pipe failed to kill process pid:{pid}: {error}"),
            );
        }
    }
}

/// The process in the first argument.
fn of(l: LuaState) -> Result<Rc<PipedProcess>, LuaRaise> {
    l.owned(1).ok_or_else(|| LuaRaise::text("not a process instance"))
}

/// The texts of a list.
fn list(l: LuaState, at: i32) -> Option<Vec<Vec<u8>>> {
    if l.kind(at) != kind::TABLE {
        return None;
    }
    let mut list = Vec::new();
    loop {
        l.raw_get_index(at, list.len() + 1);
        let text = l.bytes(-1).map(<[u8]>::to_vec);
        l.pop(1);
        match text {
            Some(text) => list.push(text),
            None => return Some(list),
        }
    }
}

/// `spawn(args, merge_stderr, buffer_size, environ)`
fn start(l: LuaState) -> CallOutcome {
    let args = list(l, 1).unwrap_or_default();
    let environ = list(l, 4).filter(|environ| !environ.is_empty());
    let program = ProgramCall { args: &args, environ: environ.as_deref(), merge_stderr: l.boolean(2) };
    let size = expect_number(l, 3, "spawn")? as usize;
    let spawned = spawn(&program).or_else(|error| {
        let errno = error.raw_os_error().unwrap_or_default();
        if !matches!(errno, ENOENT | EACCES | ENOEXEC | ENOTDIR | ELOOP) {
            return Err(error);
        }
        let name = String::from_utf8_lossy(args.first().map_or(&[], Vec::as_slice)).into_owned();
        let reason = errno_text(errno);
        let message = format!("lua pipe child execvp() failed while executing {name} ({errno}: {reason})");
        lend::log_plain(LogLevel::Emerg, &message);
        // In OpenResty this is determined in a process that is there already, and ends with 1.
        let gone = [b"/bin/sh".to_vec(), b"-c".to_vec(), b"exit 1".to_vec()];
        spawn(&ProgramCall { args: &gone, environ: None, merge_stderr: program.merge_stderr })
    });
    let process = spawned.and_then(|spawned| {
        let pipe = |fd| Ok::<_, std::io::Error>(Rc::new(ProcessPipe::new(WatchedDescriptor::new(fd)?, size)));
        Ok(PipedProcess {
            pid: spawned.child.pid(),
            child: RefCell::new(Some(spawned.child)),
            stdin: pipe(spawned.stdin)?,
            stdout: pipe(spawned.stdout)?,
            stderr: spawned.stderr.map(pipe).transpose()?,
            end: Cell::new(None),
            reported: Cell::new(false),
            waited: Rc::default(),
        })
    });
    match process {
        Ok(process) => {
            let process = Rc::new(process);
            let (at, pid, merged) =
                (Rc::as_ptr(&process).addr(), process.pid, u8::from(program.merge_stderr));
            debug(&format_args!(
                "lua pipe spawn process:{at:X} pid:{pid} merge_stderr:{merged} buffer_size:{size}"
            ));
            l.push_owned(process, c"weir.pipe");
            Ok(CallDone::Results(1))
        }
        Err(error) => {
            fail(l, &format!("fork failed: {}", errno_text(error.raw_os_error().unwrap_or_default())))
        }
    }
}

const ENOENT: i32 = 2;
const ENOEXEC: i32 = 8;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;
const ELOOP: i32 = 40;

fn debug(message: &dyn std::fmt::Display) {
    lend::log_plain(LogLevel::Debug, message);
}

/// A limit of milliseconds; none for 0.
fn limit(l: LuaState, at: i32) -> Result<Option<Duration>, LuaRaise> {
    let ms = expect_number(l, at, "set_timeouts")?;
    Ok((ms > 0.0).then(|| Duration::from_secs_f64(ms / 1000.0)))
}

/// Logs it at `debug`, as OpenResty does.
fn tell(process: &PipedProcess, doing: &str, limit: Option<Duration>) {
    let (at, pid) = (std::ptr::from_ref(process), process.pid);
    if let Some(limit) = limit {
        let ms = limit.as_millis();
        debug(&format_args!("lua pipe add timer for {doing}: {ms}(ms) process:{at:p} pid:{pid}"));
    }
    let doing = doing.strip_suffix("ing").map_or(doing, |stem| if stem == "writ" { "write" } else { stem });
    debug(&format_args!("lua pipe {doing} yielding process:{at:p} pid:{pid}"));
}

/// Lets the coroutine wait.
fn yields(wait: impl Future<Output = PushResults> + 'static) -> CallOutcome {
    lend::run(|run| run.op = Some(ThreadOp::Wait(Box::pin(wait))))?;
    Ok(CallDone::Yield(0))
}

/// `nil, message`, later.
fn refusal(message: &'static str) -> PushResults {
    Box::new(move |l| {
        l.push_nil();
        l.push_bytes(message.as_bytes());
        2
    })
}

/// `read(process, from_stderr, kind, length, timeout)`
fn read(l: LuaState) -> CallOutcome {
    let process = of(l)?;
    let length = expect_number(l, 4, "read")? as usize;
    let kind = match expect_number(l, 3, "read")? as u32 {
        0 => ReadKind::All,
        1 => ReadKind::Bytes(length),
        2 => ReadKind::Line,
        _ => ReadKind::Any(length),
    };
    let limit = limit(l, 5)?;
    debug(&format_args!("lua pipe read process:{:p} pid:{}", Rc::as_ptr(&process), process.pid));
    if process.reported.get() {
        return fail(l, "closed");
    }
    let from_stderr = l.boolean(2);
    let pipe = if from_stderr { process.stderr.clone() } else { Some(process.stdout.clone()) };
    let Some(pipe) = pipe else { return fail(l, "merged to stdout") };
    if pipe.is_closed() {
        return fail(l, "closed");
    }
    let Some(busy) = PipeBusy::begin(&pipe.busy) else { return fail(l, "pipe busy reading") };
    if let Some(wanted) = pipe.read(kind) {
        return Ok(CallDone::Results(wanted.push(l)));
    }
    tell(&process, "reading", limit);
    let busy = busy.or_say(match from_stderr {
        true => "lua pipe proc read stderr cleanup",
        false => "lua pipe proc read stdout cleanup",
    });
    yields(async move {
        let read = within(limit, poll_fn(|cx| pipe.poll_read(cx, kind))).await;
        let wanted = read.unwrap_or_else(|| pipe.rest("timeout", kind));
        busy.done();
        drop(process);
        Box::new(move |l| wanted.push(l)) as PushResults
    })
}

/// `write(process, data, timeout)`
fn write(l: LuaState) -> CallOutcome {
    let process = of(l)?;
    let data = expect_string(&l, 2, "write")?;
    let limit = limit(l, 3)?;
    let pipe = process.stdin.clone();
    if process.reported.get() || pipe.is_closed() {
        return fail(l, "closed");
    }
    let Some(busy) = PipeBusy::begin(&pipe.busy) else { return fail(l, "pipe busy writing") };
    let (length, mut sent) = (data.len(), 0);
    if let Some(written) = pipe.write(&data, &mut sent) {
        return Ok(CallDone::Results(push_written(l, written, length)));
    }
    tell(&process, "writing", limit);
    let busy = busy.or_say("lua pipe proc write cleanup");
    yields(async move {
        let written = within(limit, poll_fn(|cx| pipe.poll_write(cx, &data, &mut sent))).await;
        busy.done();
        drop(process);
        match written {
            Some(written) => Box::new(move |l| push_written(l, written, length)) as PushResults,
            None => refusal("timeout"),
        }
    })
}

fn push_written(l: LuaState, written: Result<(), String>, length: usize) -> i32 {
    match written {
        Ok(()) => {
            l.push_number(length as f64);
            1
        }
        Err(why) => {
            l.push_nil();
            l.push_bytes(why.as_bytes());
            2
        }
    }
}

/// What `future` gives, unless `limit` is over before.
async fn within<T>(limit: Option<Duration>, future: impl Future<Output = T>) -> Option<T> {
    let Some(limit) = limit else { return Some(future.await) };
    let (mut future, mut late) = (std::pin::pin!(future), std::pin::pin!(weir_rt::sleep(limit)));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        std::task::Poll::Ready(value) => std::task::Poll::Ready(Some(value)),
        std::task::Poll::Pending => late.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// `wait(process, timeout)`
fn wait(l: LuaState) -> CallOutcome {
    let process = of(l)?;
    let limit = limit(l, 2)?;
    if process.reported.get() {
        return fail(l, "exited");
    }
    let Some(busy) = PipeBusy::begin(&process.waited) else { return fail(l, "pipe busy waiting") };
    if let Some(end) = process.ended().filter(|_| !process.is_read()) {
        return Ok(CallDone::Results(process.tell_end(l, end)));
    }
    let handle = process.child.borrow().as_ref().map(ChildProcess::handle);
    // One that has ended has none, and needs none.
    let watched = match handle {
        None => None,
        Some(Err(_)) => return fail(l, "no file descriptor to wait with"),
        Some(Ok(handle)) => match WatchedDescriptor::new(handle) {
            Ok(watched) => Some(watched),
            Err(_) => return fail(l, "no thread to wait with"),
        },
    };
    tell(&process, "waiting", limit);
    let busy = busy.or_say("lua pipe proc wait cleanup");
    yields(async move {
        let over = poll_fn(|cx| {
            loop {
                if let Some(end) = process.ended() {
                    if !process.is_read() {
                        return std::task::Poll::Ready(Some(end));
                    }
                    cx.waker().wake_by_ref();
                    return std::task::Poll::Pending;
                }
                let Some(watched) = &watched else { return std::task::Poll::Ready(None) };
                match watched.poll_ready(cx, WatchInterest::Read) {
                    std::task::Poll::Ready(Ok(())) => {}
                    std::task::Poll::Ready(Err(_)) => return std::task::Poll::Ready(None),
                    std::task::Poll::Pending => return std::task::Poll::Pending,
                }
            }
        });
        let end = within(limit, over).await;
        busy.done();
        match end {
            Some(Some(end)) => Box::new(move |l| process.tell_end(l, end)) as PushResults,
            Some(None) => refusal("no thread to wait with"),
            None => refusal("timeout"),
        }
    })
}

impl PipedProcess {
    /// How it has ended, if it has.
    fn ended(&self) -> Option<ProcessEnd> {
        if self.end.get().is_none() {
            let mut child = self.child.borrow_mut();
            let end = child.as_ref().and_then(ChildProcess::ended)?;
            self.end.set(Some(end));
            *child = None;
        }
        self.end.get()
    }

    /// Whether others receive what it has left in its pipes: they go first, since these are closed when its end is
    /// reported.
    fn is_read(&self) -> bool {
        let errors = self.stderr.as_ref().is_some_and(|pipe| pipe.has_news());
        self.stdout.has_news() || errors
    }

    /// What `wait` returns; from now on there is nothing left of it.
    fn tell_end(&self, l: LuaState, end: ProcessEnd) -> i32 {
        self.reported.set(true);
        self.stdin.close("closed");
        self.stdout.close("closed");
        self.stderr.iter().for_each(|pipe| pipe.close("closed"));
        let (reason, status) = match end {
            ProcessEnd::Exited(status) => ("exit", status),
            ProcessEnd::Killed(signal, _) => ("signal", signal),
        };
        l.push_boolean(status == 0);
        l.push_bytes(reason.as_bytes());
        l.push_number(f64::from(status));
        3
    }
}

/// `kill(process, signal)`
fn kill(l: LuaState) -> CallOutcome {
    let process = of(l)?;
    let signal = expect_number(l, 2, "kill")?;
    // A program that has ended and was not waited for is gone, too.
    if process.ended().is_some() {
        return fail(l, "exited");
    }
    let sent = match &*process.child.borrow() {
        Some(child) => child.signal(signal as i32),
        None => return fail(l, "exited"),
    };
    match sent.map_err(|error| error.raw_os_error().unwrap_or_default()) {
        Ok(()) => {
            l.push_boolean(true);
            Ok(CallDone::Results(1))
        }
        Err(ESRCH) => fail(l, "exited"),
        Err(EINVAL) => fail(l, "invalid signal"),
        Err(errno) => fail(l, errno_text(errno)),
    }
}

const ESRCH: i32 = 3;
const EINVAL: i32 = 22;

/// `shutdown(process, direction)`
fn shutdown(l: LuaState) -> CallOutcome {
    let process = of(l)?;
    let pipe = match l.bytes(2) {
        Some(b"stdin") => Some(&process.stdin),
        Some(b"stdout") => Some(&process.stdout),
        _ => process.stderr.as_ref(),
    };
    if process.reported.get() {
        return fail(l, "closed");
    }
    let Some(pipe) = pipe else { return fail(l, "merged to stdout") };
    if pipe.is_closed() {
        return fail(l, "closed");
    }
    pipe.close("aborted");
    l.push_boolean(true);
    Ok(CallDone::Results(1))
}
