//! `receive`, `receiveany`, `receiveuntil`.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use weir_engine::log::Level;
use weir_rt::Recv;
use weir_trace::WaitKind;

use crate::api::socket::conn::{Conn, SocketInput};
use crate::api::socket::tcp::{
    Busy, Socket, SocketDirection, bad_argument, closed, errno_words, not_busy, place, socket, wait,
};
use crate::api::socket::until::{Pattern, UntilProgress, UntilSearch};
use crate::luajit::state::State;
use crate::luajit::sys::{self, kind};
use crate::run::function::push_with;
use crate::run::function::{ApiFunction, Done, Outcome, Raise, fail, function};
use crate::run::lend;
use crate::run::log_notes::LogNotes;
use crate::run::op::{BodyPiece, Results, ThreadOp};

pub(super) const TABLE: &[ApiFunction] = &[
    function("_socket.receive", 0, receive),
    function("_socket.receiveany", 0, receive_any),
    function("_socket.receiveuntil", 0, receive_until),
];

/// What is wanted of the bytes that come.
enum Want {
    /// Up to the next line feed.
    Line,
    /// All up to the end.
    All,
    Count(usize),
    /// What there is, so many bytes at most.
    Any(usize),
    /// Up to a pattern; so many bytes at a time, if that is said.
    Until(Rc<Until>, Option<usize>),
}

/// A pattern that an iterator looks for, and how far it has come.
struct Until {
    pattern: Pattern,
    progress: Cell<UntilProgress>,
    /// What [`SocketInput::turn`] was when it came so far.
    turn: Cell<u64>,
    /// The pattern was found, which the next call tells.
    ended: Cell<bool>,
}

/// A receive that is under way.
struct Reading {
    want: Want,
    /// Bytes that were looked at, of a line.
    seen: usize,
}

/// How a receive ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// So many bytes are given, and so many are taken.
    Whole(usize, usize),
    Closed,
    TimedOut,
    Failed(i32),
    /// The client has left in the middle of its body.
    Aborted,
}

/// Where bytes come from.
enum Source {
    Conn(Rc<Conn>),
    /// The request's body.
    Body(Rc<RefCell<SocketInput>>),
}

impl Reading {
    fn new(want: Want) -> Reading {
        Reading { want, seen: 0 }
    }

    /// Whether what came so far is enough.
    fn step(&mut self, input: &mut SocketInput) -> Option<Ended> {
        let rest = input.rest();
        match &self.want {
            Want::Line => match rest[self.seen..].iter().position(|byte| *byte == b'\n') {
                Some(at) => Some(Ended::Whole(self.seen + at, self.seen + at + 1)),
                None => {
                    self.seen = rest.len();
                    None
                }
            },
            Want::All => None,
            Want::Count(count) => (rest.len() >= *count).then_some(Ended::Whole(*count, *count)),
            Want::Any(_) if rest.is_empty() => None,
            Want::Any(most) => {
                let count = rest.len().min(*most);
                Some(Ended::Whole(count, count))
            }
            Want::Until(search, most) => search.step(input, *most),
        }
    }

    /// Pushes what a receive returns that has ended.
    fn finish(&self, l: State, socket: &Socket, input: &mut SocketInput, ended: Ended) -> i32 {
        let (given, taken) = match ended {
            Ended::Whole(given, taken) => (given, taken),
            // With the end of all, all is what was wanted.
            Ended::Closed if matches!(self.want, Want::All) => (input.rest().len(), input.rest().len()),
            _ => self.partial(input),
        };
        let failed = match ended {
            Ended::Whole(..) => None,
            // The next receive will find the end again.
            Ended::Closed if matches!(self.want, Want::All) => None,
            Ended::Closed => {
                socket.read_closed.set(true);
                Some("closed".to_owned())
            }
            Ended::TimedOut => Some("timeout".to_owned()),
            Ended::Failed(errno) => {
                socket.read_closed.set(true);
                Some(errno_words(errno))
            }
            Ended::Aborted => {
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
            Want::Line => push_line(l, &input.rest()[..given]),
            _ => l.push_bytes(&input.rest()[..given]),
        }
        input.take(taken);
        if !matches!(self.want, Want::Until(..)) {
            input.turn += 1;
        }
        count
    }

    /// What is given of a receive that failed: all but what may be a pattern's beginning.
    fn partial(&self, input: &SocketInput) -> (usize, usize) {
        match &self.want {
            Want::Until(search, _) => {
                let UntilProgress { given, matched } = search.progress.get();
                search.progress.set(UntilProgress { given: 0, matched });
                (given, given)
            }
            _ => (input.rest().len(), input.rest().len()),
        }
    }
}

impl Until {
    fn step(&self, input: &mut SocketInput, most: Option<usize>) -> Option<Ended> {
        if self.turn.get() != input.turn {
            // Others have taken bytes meanwhile; and from now on they begin anew.
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
                Some(Ended::Whole(given, given))
            }
            UntilSearch::Found => {
                self.progress.set(UntilProgress::default());
                self.ended.set(most.is_some());
                let whole = given + self.pattern.len();
                Some(Ended::Whole(if self.pattern.inclusive { whole } else { given }, whole))
            }
        }
    }
}

/// Pushes a line without its carriage returns, wherever they stand.
fn push_line(l: State, line: &[u8]) {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if !line.contains(&b'\r') {
        return l.push_bytes(line);
    }
    let bare: Vec<u8> = line.iter().copied().filter(|byte| *byte != b'\r').collect();
    l.push_bytes(&bare);
}

/// Receives: at once, or by a wait.
fn read(l: State, socket: Rc<Socket>, source: Source, reading: Reading) -> Outcome {
    let timeout = socket.timeouts.get().read;
    lend::log_plain(Level::Debug, &format_args!("lua tcp socket read timeout: {timeout}"));
    match source {
        Source::Conn(conn) => read_conn(l, socket, conn, reading),
        Source::Body(input) => read_body(l, socket, input, reading),
    }
}

/// Receives from the request's body: what has come of it, or what its task reads.
fn read_body(l: State, socket: Rc<Socket>, input: Rc<RefCell<SocketInput>>, mut reading: Reading) -> Outcome {
    let ended = reading.step(&mut input.borrow_mut());
    if let Some(ended) = ended {
        return Ok(Done::Results(reading.finish(l, &socket, &mut input.borrow_mut(), ended)));
    }
    let (timeout, logs) = (socket.timeouts.get().read, socket.logs_errors());
    let mut waiting = Some((Busy::new(&socket, SocketDirection::Read), reading));
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
                BodyPiece::End => Ended::Closed,
                BodyPiece::Failed => Ended::Aborted,
                BodyPiece::TimedOut => {
                    if logs {
                        notes.push(Level::Error, "lua tcp socket read timed out".to_owned());
                    }
                    Ended::TimedOut
                }
            };
            let (busy, reading) = waiting.take()?;
            let socket = busy.socket.clone();
            busy.over();
            let input = input.clone();
            let finish = move |l: State| reading.finish(l, &socket, &mut input.borrow_mut(), ended);
            Some(Box::new(finish) as Results)
        };
        run.wait = WaitKind::ClientRead;
        run.op = Some(ThreadOp::Pieces(timeout, Box::new(take)));
    })?;
    Ok(Done::Yield(0))
}

fn read_conn(l: State, socket: Rc<Socket>, conn: Rc<Conn>, mut reading: Reading) -> Outcome {
    let ended = {
        let mut input = conn.input.borrow_mut();
        at_once(&conn, &mut input, &mut reading)
            .map(|ended| (reading.finish(l, &socket, &mut input, ended), ended))
    };
    if let Some((count, ended)) = ended {
        if let Ended::Failed(errno) = ended {
            lend::log_plain(Level::Error, &failed(errno));
        }
        return Ok(Done::Results(count));
    }
    let busy = Busy::new(&socket, SocketDirection::Read);
    wait(|notes| Box::pin(receiving(busy, conn, reading, notes)))
}

/// What can be had without waiting.
fn at_once(conn: &Conn, input: &mut SocketInput, reading: &mut Reading) -> Option<Ended> {
    loop {
        if let Some(ended) = reading.step(input) {
            return Some(ended);
        }
        match conn.stream().try_recv()? {
            Recv::Data(bytes) => input.add(&bytes),
            Recv::Eof => return Some(Ended::Closed),
            Recv::TimedOut => return Some(Ended::TimedOut),
            Recv::Err(errno) => return Some(Ended::Failed(errno)),
        }
    }
}

fn failed(errno: i32) -> String {
    format!("recv() failed ({errno}: {})", weir_rt::file::errno_text(errno))
}

async fn receiving(busy: Busy, conn: Rc<Conn>, mut reading: Reading, notes: LogNotes) -> Results {
    let socket = busy.socket.clone();
    conn.read_timer.touch(socket.timeouts.get().read);
    let ended = poll_fn(|cx| poll(cx, &socket, &conn, &mut reading)).await;
    conn.read_timer.disarm();
    busy.over();
    match ended {
        Ended::TimedOut if socket.logs_errors() => {
            notes.push(Level::Error, format!("lua tcp socket read timed out{}", conn.peer));
        }
        Ended::Failed(errno) => notes.push(Level::Error, failed(errno)),
        _ => {}
    }
    Box::new(move |l| reading.finish(l, &socket, &mut conn.input.borrow_mut(), ended))
}

fn poll(cx: &mut Context<'_>, socket: &Socket, conn: &Conn, reading: &mut Reading) -> Poll<Ended> {
    loop {
        // Of what is long, more at a time than a buffer of the event loop's has.
        let received = match reading.want {
            Want::All | Want::Count(LONG..) => {
                conn.stream().poll_recv_long(cx, Some(&conn.read_timer), LONG * 4)
            }
            _ => conn.stream().poll_recv(cx, Some(&conn.read_timer)),
        };
        let Poll::Ready(received) = received else { return Poll::Pending };
        match received {
            Recv::Data(bytes) => {
                let mut input = conn.input.borrow_mut();
                input.add(&bytes);
                conn.read_timer.touch(socket.timeouts.get().read);
                if let Some(ended) = reading.step(&mut input) {
                    return Poll::Ready(ended);
                }
            }
            Recv::Eof => return Poll::Ready(Ended::Closed),
            Recv::TimedOut => return Poll::Ready(Ended::TimedOut),
            Recv::Err(errno) => return Poll::Ready(Ended::Failed(errno)),
        }
    }
}

/// Receives of so many bytes are made in long pieces.
const LONG: usize = 16 * 1024;

/// Where the socket receives from, unless nothing more can come.
fn source(socket: &Socket) -> Option<Source> {
    if let (Some(input), false) = (&*socket.body.borrow(), socket.read_closed.get()) {
        return Some(Source::Body(input.clone()));
    }
    socket.open(&socket.read_closed).map(Source::Conn)
}

/// Where to receive from, for who may.
fn receiver(l: State, socket: Option<Rc<Socket>>) -> Result<(Rc<Socket>, Source), Outcome> {
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

fn receive(l: State) -> Outcome {
    let top = l.top();
    if !(1..=2).contains(&top) {
        return Err(Raise::text(format!("expecting 1 or 2 arguments (including the object), but got {top}")));
    }
    lend::log_plain(Level::Debug, &"lua tcp socket calling receive() method");
    let (socket, conn) = match receiver(l, socket(l)?) {
        Ok(both) => both,
        Err(outcome) => return outcome,
    };
    let want = if top == 1 { Want::Line } else { wanted(l)? };
    if matches!(want, Want::Count(0)) {
        l.push_bytes(b"");
        return Ok(Done::Results(1));
    }
    read(l, socket, conn, Reading::new(want))
}

/// What the second argument of `receive` says.
fn wanted(l: State) -> Result<Want, Raise> {
    if let Some(number) = l.number(2) {
        return match number {
            0.0.. => Ok(Want::Count(number as usize)),
            _ => Err(bad_argument(l, 2, "bad number argument")),
        };
    }
    if l.kind(2) != kind::STRING {
        return Err(bad_argument(l, 2, "bad argument"));
    }
    match l.bytes(2) {
        Some(b"*l") => Ok(Want::Line),
        Some(b"*a") => Ok(Want::All),
        Some([b'*', _]) => Err(bad_argument(l, 2, "bad pattern argument")),
        _ => Err(bad_argument(l, 2, &format!("bad pattern argument: {}", l.lossy(2)))),
    }
}

fn receive_any(l: State) -> Outcome {
    if l.top() != 2 {
        let top = l.top();
        return Err(Raise::text(format!("expecting 2 arguments (including the object), but got {top}")));
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
    lend::log_plain(Level::Debug, &message);
    lend::log_plain(Level::Debug, &"lua tcp socket read any");
    let buffer = socket.settings.borrow().as_ref().map_or(usize::MAX, |settings| settings.buffer_size);
    read(l, socket, conn, Reading::new(Want::Any(most.min(buffer))))
}

fn receive_until(l: State) -> Outcome {
    let top = l.top();
    if !(2..=3).contains(&top) {
        return Err(Raise::text(format!("expecting 2 or 3 arguments (including the object), but got {top}")));
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
                return Err(Raise::text(format!("bad \"inclusive\" option value type: {kind}")));
            }
        };
        l.pop(1);
    }
    lend::log_plain(Level::Debug, &"lua tcp socket calling receiveuntil() method");
    socket(l)?;
    let Some(pattern) = l.bytes(2) else {
        return Err(bad_argument(l, 2, &format!("string expected, got {}", l.kind_name(2))));
    };
    if pattern.is_empty() {
        return fail(l, "pattern is empty");
    }
    let search = Until {
        pattern: Pattern::new(pattern, inclusive),
        progress: Cell::default(),
        turn: Cell::new(u64::MAX),
        ended: Cell::new(false),
    };
    l.push_value(1);
    l.push_owned(Rc::new(search), PATTERN);
    push_with(l, &ITERATOR, 2);
    Ok(Done::Results(1))
}

static ITERATOR: ApiFunction = function("socket.receiveuntil", 0, iterate);

/// What `receiveuntil` returns; the object and the search are its upvalues.
fn iterate(l: State) -> Outcome {
    let top = l.top();
    if top > 1 {
        return Err(Raise::text(format!("expecting 0 or 1 argument, but seen {top}")));
    }
    let most = match l.number(1) {
        Some(number) => (number >= 1.0).then_some(number as usize),
        None if top == 0 => None,
        None => return Err(bad_argument(l, 1, &format!("number expected, got {}", l.kind_name(1)))),
    };
    l.raw_get_index(sys::upvalue(2), place::SOCKET);
    let socket: Option<Rc<Socket>> = l.owned(-1);
    l.pop(1);
    let search: Option<Rc<Until>> = l.owned(sys::upvalue(3));
    let conn = socket.as_ref().and_then(|socket| source(socket));
    let (Some(socket), Some(conn), Some(search)) = (socket, conn, search) else { return fail(l, "closed") };
    socket.check_owner()?;
    not_busy!(l, socket, &[SocketDirection::Read]);
    lend::log_plain(Level::Debug, &"lua tcp socket receiveuntil iterator");
    if search.ended.replace(false) {
        (0..3).for_each(|_| l.push_nil());
        return Ok(Done::Results(3));
    }
    read(l, socket, conn, Reading::new(Want::Until(search, most)))
}

/// The registry's name for the metatable of [`Until`].
const PATTERN: &std::ffi::CStr = c"weir.socket_pattern";
