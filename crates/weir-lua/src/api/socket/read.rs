//! `receive`, `receiveany`, `receiveuntil`.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use weir_engine::log::LogLevel;
use weir_rt::{LONG_RECEIVE, RecvOutcome};
use weir_trace::WaitKind;

use crate::api::socket::conn::{SocketConnection, SocketInput};
use crate::api::socket::tcp::{
    SocketBusy, SocketDirection, TcpSocket, bad_argument, closed, errno_words, not_busy, place, socket, wait,
};
use crate::api::socket::until::{UntilPattern, UntilProgress, UntilSearch};
use crate::luajit::state::LuaState;
use crate::luajit::sys::{self, kind};
use crate::run::function::push_with;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, LuaRaise, fail, function};
use crate::run::lend;
use crate::run::log_notes::LogNotes;
use crate::run::op::{BodyPiece, PushResults, ThreadOp};

pub(super) const TABLE: &[ApiFunction] = &[
    function("_socket.receive", 0, receive),
    function("_socket.receiveany", 0, receive_any),
    function("_socket.receiveuntil", 0, receive_until),
];

/// What is wanted of the bytes that come.
enum ReceiveGoal {
    /// Up to the next line feed.
    Line,
    /// All up to the end.
    All,
    Count(usize),
    /// What there is, this many bytes at most.
    Any(usize),
    /// Up to a pattern; this many bytes at a time, if that is said.
    Until(Rc<UntilReader>, Option<usize>),
}

/// A pattern that an iterator looks for, and how far it has come.
struct UntilReader {
    pattern: UntilPattern,
    progress: Cell<UntilProgress>,
    /// What [`SocketInput::turn`] was when it came so far.
    turn: Cell<u64>,
    /// The pattern was found, which the next call returns.
    ended: Cell<bool>,
}

/// A receive that is under way.
struct SocketReading {
    want: ReceiveGoal,
    /// Bytes that were looked at, of a line.
    seen: usize,
}

/// How a receive ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadEnd {
    /// This many bytes are given, and this many are taken.
    Whole(usize, usize),
    Closed,
    TimedOut,
    Failed(i32),
    /// The client has left in the middle of its body.
    Aborted,
}

/// Where bytes come from.
enum ReadSource {
    Conn(Rc<SocketConnection>),
    /// The request's body.
    Body(Rc<RefCell<SocketInput>>),
}

impl SocketReading {
    fn new(want: ReceiveGoal) -> SocketReading {
        SocketReading { want, seen: 0 }
    }

    /// Whether what came so far is enough.
    fn step(&mut self, input: &mut SocketInput) -> Option<ReadEnd> {
        let rest = input.rest();
        match &self.want {
            ReceiveGoal::Line => match memchr::memchr(b'\n', &rest[self.seen..]) {
                Some(at) => Some(ReadEnd::Whole(self.seen + at, self.seen + at + 1)),
                None => {
                    self.seen = rest.len();
                    None
                }
            },
            ReceiveGoal::All => None,
            ReceiveGoal::Count(count) => (rest.len() >= *count).then_some(ReadEnd::Whole(*count, *count)),
            ReceiveGoal::Any(_) if rest.is_empty() => None,
            ReceiveGoal::Any(most) => {
                let count = rest.len().min(*most);
                Some(ReadEnd::Whole(count, count))
            }
            ReceiveGoal::Until(search, most) => search.step(input, *most),
        }
    }

    /// Pushes what a receive returns that has ended.
    fn finish(&self, l: LuaState, socket: &TcpSocket, input: &mut SocketInput, ended: ReadEnd) -> i32 {
        let (given, taken) = match ended {
            ReadEnd::Whole(given, taken) => (given, taken),
            // With the end of all, all is what was wanted.
            ReadEnd::Closed if matches!(self.want, ReceiveGoal::All) => {
                (input.rest().len(), input.rest().len())
            }
            _ => self.partial(input),
        };
        let failed = match ended {
            ReadEnd::Whole(..) => None,
            // The next receive will find the end again.
            ReadEnd::Closed if matches!(self.want, ReceiveGoal::All) => None,
            ReadEnd::Closed => {
                socket.read_closed.set(true);
                Some("closed".to_owned())
            }
            ReadEnd::TimedOut => Some("timeout".to_owned()),
            ReadEnd::Failed(errno) => {
                socket.read_closed.set(true);
                Some(errno_words(errno))
            }
            ReadEnd::Aborted => {
                socket.read_closed.set(true);
                Some("client aborted".to_owned())
            }
        };
        let mut count = 1;
        if let Some(reason) = failed {
            l.push_nil();
            l.push_bytes(reason.as_bytes());
            count = 3;
        }
        match self.want {
            ReceiveGoal::Line => push_line(l, &input.rest()[..given]),
            _ => l.push_bytes(&input.rest()[..given]),
        }
        input.take(taken);
        if !matches!(self.want, ReceiveGoal::Until(..)) {
            input.turn += 1;
        }
        count
    }

    /// What is given of a receive that failed: all but what may be a pattern's beginning.
    fn partial(&self, input: &SocketInput) -> (usize, usize) {
        match &self.want {
            ReceiveGoal::Until(search, _) => {
                let UntilProgress { given, matched } = search.progress.get();
                search.progress.set(UntilProgress { given: 0, matched });
                (given, given)
            }
            _ => (input.rest().len(), input.rest().len()),
        }
    }
}

impl UntilReader {
    fn step(&self, input: &mut SocketInput, most: Option<usize>) -> Option<ReadEnd> {
        if self.turn.get() != input.turn {
            // Others have taken bytes meanwhile; and from now on they begin again.
            input.turn += 1;
            self.turn.set(input.turn);
            self.progress.set(UntilProgress::default());
        }
        let mut progress = self.progress.get();
        let search = self.pattern.search(&mut progress, input.rest(), most);
        let UntilProgress { given, matched } = progress;
        match search {
            UntilSearch::More => {
                self.progress.set(progress);
                None
            }
            UntilSearch::Enough => {
                self.progress.set(UntilProgress { given: 0, matched });
                Some(ReadEnd::Whole(given, given))
            }
            UntilSearch::Found => {
                self.progress.set(UntilProgress::default());
                self.ended.set(most.is_some());
                let whole = given + self.pattern.len();
                Some(ReadEnd::Whole(if self.pattern.inclusive { whole } else { given }, whole))
            }
        }
    }
}

/// Takes a line, or so many bytes (`count`), that have come already, if that is what a receive would come to, and calls
/// `give` with them. Left to [`receive`] are lines with carriage returns inside, and more bytes than `most`.
pub(super) fn take_buffered(
    conn: &SocketConnection,
    count: Option<usize>,
    most: usize,
    give: impl FnOnce(&[u8]),
) -> bool {
    let mut input = conn.input.borrow_mut();
    let rest = input.rest();
    let (given, taken) = match count {
        None => match memchr::memchr(b'\n', rest) {
            Some(at) => (rest[..at].strip_suffix(b"\r").unwrap_or(&rest[..at]), at + 1),
            None => return false,
        },
        Some(count) if count <= rest.len() => (&rest[..count], count),
        Some(_) => return false,
    };
    if given.len() > most || (count.is_none() && memchr::memchr(b'\r', given).is_some()) {
        return false;
    }
    give(given);
    input.take(taken);
    input.turn += 1;
    true
}

/// Pushes a line without its carriage returns, wherever they are.
fn push_line(l: LuaState, line: &[u8]) {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if memchr::memchr(b'\r', line).is_none() {
        return l.push_bytes(line);
    }
    let bare: Vec<u8> = line.iter().copied().filter(|byte| *byte != b'\r').collect();
    l.push_bytes(&bare);
}

/// Receives: at once, or by a wait.
fn read(l: LuaState, socket: Rc<TcpSocket>, source: ReadSource, reading: SocketReading) -> CallOutcome {
    let timeout = socket.timeouts.get().read;
    lend::log_plain(LogLevel::Debug, &format_args!("lua tcp socket read timeout: {timeout}"));
    match source {
        ReadSource::Conn(conn) => read_conn(l, socket, conn, reading),
        ReadSource::Body(input) => read_body(l, socket, input, reading),
    }
}

/// Receives from the request's body: what has come of it, or what its task reads.
fn read_body(
    l: LuaState,
    socket: Rc<TcpSocket>,
    input: Rc<RefCell<SocketInput>>,
    mut reading: SocketReading,
) -> CallOutcome {
    let ended = reading.step(&mut input.borrow_mut());
    if let Some(ended) = ended {
        return Ok(CallDone::Results(reading.finish(l, &socket, &mut input.borrow_mut(), ended)));
    }
    let (timeout, logs) = (socket.timeouts.get().read, socket.logs_errors());
    let mut waiting = Some((SocketBusy::new(&socket, SocketDirection::Read), reading));
    lend::run(|run| {
        let notes = run.notes();
        let take = move |piece| {
            let (_, reading) = waiting.as_mut()?;
            let ended = match piece {
                BodyPiece::Bytes(bytes) => {
                    let mut input = input.borrow_mut();
                    input.add(&bytes);
                    reading.step(&mut input)?
                }
                BodyPiece::End => ReadEnd::Closed,
                BodyPiece::Failed => ReadEnd::Aborted,
                BodyPiece::TimedOut => {
                    if logs {
                        notes.push(LogLevel::Error, "lua tcp socket read timed out".to_owned());
                    }
                    ReadEnd::TimedOut
                }
            };
            let (busy, reading) = waiting.take()?;
            let socket = busy.socket.clone();
            busy.over();
            let input = input.clone();
            let finish = move |l: LuaState| reading.finish(l, &socket, &mut input.borrow_mut(), ended);
            Some(Box::new(finish) as PushResults)
        };
        run.wait = WaitKind::ClientRead;
        run.op = Some(ThreadOp::Pieces(timeout, Box::new(take)));
    })?;
    Ok(CallDone::Yield(0))
}

fn read_conn(
    l: LuaState,
    socket: Rc<TcpSocket>,
    conn: Rc<SocketConnection>,
    mut reading: SocketReading,
) -> CallOutcome {
    let ended = {
        let mut input = conn.input.borrow_mut();
        at_once(&conn, &mut input, &mut reading)
            .map(|ended| (reading.finish(l, &socket, &mut input, ended), ended))
    };
    if let Some((count, ended)) = ended {
        if let ReadEnd::Failed(errno) = ended {
            lend::log_plain(LogLevel::Error, &failed(errno));
        }
        return Ok(CallDone::Results(count));
    }
    let busy = SocketBusy::new(&socket, SocketDirection::Read);
    wait(|notes| Box::pin(receiving(busy, conn, reading, notes)))
}

/// What can be had without waiting.
fn at_once(conn: &SocketConnection, input: &mut SocketInput, reading: &mut SocketReading) -> Option<ReadEnd> {
    loop {
        if let Some(ended) = reading.step(input) {
            return Some(ended);
        }
        let received = conn.stream().try_recv()?;
        conn.ends_by(&received);
        match received {
            RecvOutcome::Data(bytes) => input.add(&bytes),
            RecvOutcome::Eof => return Some(ReadEnd::Closed),
            RecvOutcome::TimedOut => return Some(ReadEnd::TimedOut),
            RecvOutcome::Err(errno) => return Some(ReadEnd::Failed(errno)),
        }
    }
}

fn failed(errno: i32) -> String {
    format!("recv() failed ({errno}: {})", weir_rt::file::errno_text(errno))
}

async fn receiving(
    busy: SocketBusy,
    conn: Rc<SocketConnection>,
    mut reading: SocketReading,
    notes: LogNotes,
) -> PushResults {
    let socket = busy.socket.clone();
    conn.read_timer.touch(socket.timeouts.get().read);
    let ended = poll_fn(|cx| poll(cx, &socket, &conn, &mut reading)).await;
    conn.read_timer.disarm();
    busy.over();
    match ended {
        ReadEnd::TimedOut if socket.logs_errors() => {
            notes.push(LogLevel::Error, format!("lua tcp socket read timed out{}", conn.peer));
        }
        ReadEnd::Failed(errno) => notes.push(LogLevel::Error, failed(errno)),
        _ => {}
    }
    Box::new(move |l| reading.finish(l, &socket, &mut conn.input.borrow_mut(), ended))
}

fn poll(
    cx: &mut Context<'_>,
    socket: &TcpSocket,
    conn: &SocketConnection,
    reading: &mut SocketReading,
) -> Poll<ReadEnd> {
    loop {
        // Of what is long, more at a time than a buffer of the event loop's has.
        let received = match reading.want {
            ReceiveGoal::All | ReceiveGoal::Count(LONG..) => {
                conn.stream().poll_recv_long(cx, Some(&conn.read_timer), LONG_RECEIVE)
            }
            _ => conn.stream().poll_recv(cx, Some(&conn.read_timer)),
        };
        let Poll::Ready(received) = received else { return Poll::Pending };
        conn.ends_by(&received);
        match received {
            RecvOutcome::Data(bytes) => {
                let mut input = conn.input.borrow_mut();
                input.add(&bytes);
                conn.read_timer.touch(socket.timeouts.get().read);
                if let Some(ended) = reading.step(&mut input) {
                    return Poll::Ready(ended);
                }
            }
            RecvOutcome::Eof => return Poll::Ready(ReadEnd::Closed),
            RecvOutcome::TimedOut => return Poll::Ready(ReadEnd::TimedOut),
            RecvOutcome::Err(errno) => return Poll::Ready(ReadEnd::Failed(errno)),
        }
    }
}

/// Receives of this many bytes are made in long pieces.
const LONG: usize = 16 * 1024;

/// Where the socket receives from, unless nothing more can come.
fn source(socket: &TcpSocket) -> Option<ReadSource> {
    if let (Some(input), false) = (&*socket.body.borrow(), socket.read_closed.get()) {
        return Some(ReadSource::Body(input.clone()));
    }
    socket.open(&socket.read_closed).map(ReadSource::Conn)
}

/// Where to receive from, for a coroutine that may.
fn receiver(l: LuaState, socket: Option<Rc<TcpSocket>>) -> Result<(Rc<TcpSocket>, ReadSource), CallOutcome> {
    if let Some(busy) = socket.as_ref().and_then(|socket| socket.busy(&[SocketDirection::Dial])) {
        return Err(fail(l, busy));
    }
    let found = socket.as_ref().and_then(|socket| source(socket));
    let (Some(socket), Some(conn)) = (socket.clone(), found) else {
        return Err(closed(l, "receive", socket.as_ref()));
    };
    socket.check_owner().map_err(Err)?;
    match socket.busy(&[SocketDirection::Read]) {
        Some(busy) => Err(fail(l, busy)),
        None => Ok((socket, conn)),
    }
}

fn receive(l: LuaState) -> CallOutcome {
    let top = l.top();
    if !(1..=2).contains(&top) {
        return Err(LuaRaise::text(format!(
            "expecting 1 or 2 arguments (including the object), but got {top}"
        )));
    }
    lend::log_plain(LogLevel::Debug, &"lua tcp socket calling receive() method");
    let (socket, conn) = match receiver(l, socket(l)?) {
        Ok(both) => both,
        Err(outcome) => return outcome,
    };
    let want = if top == 1 { ReceiveGoal::Line } else { wanted(l)? };
    if matches!(want, ReceiveGoal::Count(0)) {
        l.push_bytes(b"");
        return Ok(CallDone::Results(1));
    }
    read(l, socket, conn, SocketReading::new(want))
}

/// What the second argument of `receive` says.
fn wanted(l: LuaState) -> Result<ReceiveGoal, LuaRaise> {
    if let Some(number) = l.number(2) {
        return match number {
            0.0.. => Ok(ReceiveGoal::Count(number as usize)),
            _ => Err(bad_argument(l, 2, "bad number argument")),
        };
    }
    if l.kind(2) != kind::STRING {
        return Err(bad_argument(l, 2, "bad argument"));
    }
    match l.bytes(2) {
        Some(b"*l") => Ok(ReceiveGoal::Line),
        Some(b"*a") => Ok(ReceiveGoal::All),
        Some([b'*', _]) => Err(bad_argument(l, 2, "bad pattern argument")),
        _ => Err(bad_argument(l, 2, &format!("bad pattern argument: {}", l.lossy(2)))),
    }
}

fn receive_any(l: LuaState) -> CallOutcome {
    if l.top() != 2 {
        let top = l.top();
        return Err(LuaRaise::text(format!("expecting 2 arguments (including the object), but got {top}")));
    }
    let (socket, conn) = match receiver(l, socket(l)?) {
        Ok(both) => both,
        Err(outcome) => return outcome,
    };
    let most = match l.number(2) {
        Some(number @ 1.0..) => number as usize,
        _ => return Err(bad_argument(l, 2, "bad max argument")),
    };
    let message = format_args!("lua tcp socket calling receiveany() method to read at most {most} bytes");
    lend::log_plain(LogLevel::Debug, &message);
    lend::log_plain(LogLevel::Debug, &"lua tcp socket read any");
    let buffer = socket.settings.borrow().as_ref().map_or(usize::MAX, |settings| settings.buffer_size);
    read(l, socket, conn, SocketReading::new(ReceiveGoal::Any(most.min(buffer))))
}

fn receive_until(l: LuaState) -> CallOutcome {
    let top = l.top();
    if !(2..=3).contains(&top) {
        return Err(LuaRaise::text(format!(
            "expecting 2 or 3 arguments (including the object), but got {top}"
        )));
    }
    let mut inclusive = false;
    if top == 3 {
        if l.kind(3) != kind::TABLE {
            return Err(bad_argument(l, 3, &format!("table expected, got {}", l.kind_name(3))));
        }
        l.push_bytes(b"inclusive");
        l.raw_get(3);
        inclusive = match l.kind(-1) {
            kind::NIL => false,
            kind::BOOLEAN => l.boolean(-1),
            _ => {
                let kind = l.kind_name(-1);
                return Err(LuaRaise::text(format!("bad \"inclusive\" option value type: {kind}")));
            }
        };
        l.pop(1);
    }
    lend::log_plain(LogLevel::Debug, &"lua tcp socket calling receiveuntil() method");
    socket(l)?;
    let Some(pattern) = l.bytes(2) else {
        return Err(bad_argument(l, 2, &format!("string expected, got {}", l.kind_name(2))));
    };
    if pattern.is_empty() {
        return fail(l, "pattern is empty");
    }
    let search = UntilReader {
        pattern: UntilPattern::new(pattern, inclusive),
        progress: Cell::default(),
        turn: Cell::new(u64::MAX),
        ended: Cell::new(false),
    };
    l.push_value(1);
    l.push_owned(Rc::new(search), PATTERN);
    push_with(l, &ITERATOR, 2);
    Ok(CallDone::Results(1))
}

static ITERATOR: ApiFunction = function("socket.receiveuntil", 0, iterate);

/// What `receiveuntil` returns; the object and the search are its upvalues.
fn iterate(l: LuaState) -> CallOutcome {
    let top = l.top();
    if top > 1 {
        return Err(LuaRaise::text(format!("expecting 0 or 1 argument, but seen {top}")));
    }
    let most = match l.number(1) {
        Some(number) => (number >= 1.0).then_some(number as usize),
        None if top == 0 => None,
        None => return Err(bad_argument(l, 1, &format!("number expected, got {}", l.kind_name(1)))),
    };
    l.raw_get_index(sys::upvalue(2), place::SOCKET);
    let socket: Option<Rc<TcpSocket>> = l.owned(-1);
    l.pop(1);
    let search: Option<Rc<UntilReader>> = l.owned(sys::upvalue(3));
    let conn = socket.as_ref().and_then(|socket| source(socket));
    let (Some(socket), Some(conn), Some(search)) = (socket, conn, search) else { return fail(l, "closed") };
    socket.check_owner()?;
    not_busy!(l, socket, &[SocketDirection::Read]);
    lend::log_plain(LogLevel::Debug, &"lua tcp socket receiveuntil iterator");
    if search.ended.replace(false) {
        (0..3).for_each(|_| l.push_nil());
        return Ok(CallDone::Results(3));
    }
    read(l, socket, conn, SocketReading::new(ReceiveGoal::Until(search, most)))
}

/// The registry's name for the metatable of [`UntilReader`].
const PATTERN: &std::ffi::CStr = c"weir.socket_pattern";
