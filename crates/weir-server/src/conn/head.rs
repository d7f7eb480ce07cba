//! The head of a request: read, checked, and made into an exchange that the phases can start on.

use std::rc::Rc;

use weir_http::h1::{HeadParse, may_be_complete};
use weir_rt::RecvOutcome;
use weir_trace::{ConnectionStep, Site, WaitKind};

use crate::tls::accepted::TlsJudge;
use weir_engine::exchange::Exchange;
use weir_engine::exchange::known_heads;
use weir_engine::log::LogLevel;
use weir_engine::progress::Progress;
use weir_engine::request_head::{self, HeadFailure};
use weir_engine::request_log;
use weir_engine::transport::closing;
use weir_engine::transport::wire::ClientWire;
use weir_engine::worker::CloseReason;

/// Reads and checks a head into `x`, where all of it has come; the virtual server is chosen, the body is untouched.
/// The rest is left to [`finish_request_head`].
#[inline]
pub(crate) fn try_request_head(x: &mut Exchange, wire: &ClientWire) -> Progress<Result<(), HeadFailure>, ()> {
    match try_parse(x, wire, &mut 0) {
        Progress::Done(parsed) => Progress::Done(checked(x, parsed)),
        Progress::Wait(()) => Progress::Wait(()),
    }
}

/// Waits for the rest of a head of which [`try_request_head`] has found a part, or nothing.
pub(crate) async fn finish_request_head(x: &mut Exchange, wire: &Rc<ClientWire>) -> Result<(), HeadFailure> {
    let mut seen = wire.input.borrow().bytes().len();
    wire.timer.arm(x.server.settings.client_header_timeout);
    let shared = x.shared.clone();
    loop {
        x.trace().open(Site::step(ConnectionStep::HeadRead));
        wire.input.borrow_mut().hold();
        wire.flush();
        let received = Box::pin(wire.stream.recv(Some(&wire.timer)));
        let received = shared.waiting_for(WaitKind::ClientRead, received).await;
        x.trace().close(Site::step(ConnectionStep::HeadRead));
        match received {
            RecvOutcome::Data(buf) => wire.input.borrow_mut().push(buf),
            gone => return Err(lost(x, wire, &gone)),
        }
        if let Progress::Done(parsed) = try_parse(x, wire, &mut seen) {
            return checked(x, parsed);
        }
    }
}

/// The head is parsed: checks it. Where server and location are found without regular expressions one stamp does for
/// all three, and comes after the last (`phase::find_config`): it is the parser's time.
fn checked(x: &mut Exchange, parsed: Result<HeadOrigin, HeadFailure>) -> Result<(), HeadFailure> {
    let at_a_glance = !x.connection.hosts.borrow().has_patterns();
    if parsed.is_err() || !at_a_glance {
        x.trace().mark(Site::step(ConnectionStep::Parse));
    }
    let checked = match parsed? {
        HeadOrigin::Read => request_head::check::<TlsJudge>(x),
        HeadOrigin::Recalled => request_head::check_again::<TlsJudge>(x),
    };
    match (at_a_glance, &checked) {
        (false, _) => x.trace().mark(Site::step(ConnectionStep::VirtualServer)),
        (true, Ok(())) if x.server.is_plain() => x.opening = true,
        (true, _) => x
            .trace()
            .mark_and_pass(Site::step(ConnectionStep::Parse), [Site::step(ConnectionStep::VirtualServer)]),
    }
    request_log::debug::begun(x);
    checked
}

/// The connection ended, or time ran out, in the middle of a head (or before it).
fn lost(x: &mut Exchange, wire: &ClientWire, gone: &RecvOutcome) -> HeadFailure {
    x.connection.ends(closing::in_the_middle(gone, CloseReason::InHead, CloseReason::HeaderTimeout));
    if wire.input.borrow().is_empty() {
        return HeadFailure::Nothing;
    }
    let action = action(x, wire);
    request_head::keep_line::<TlsJudge>(x, wire);
    match *gone {
        RecvOutcome::TimedOut => {
            let message = format_args!("client timed out (110: Connection timed out) while {action}");
            x.log(LogLevel::Info, &message);
            HeadFailure::Silent(408)
        }
        RecvOutcome::Err(errno) => {
            let reason = weir_rt::file::errno_text(errno);
            x.log(LogLevel::Info, &format_args!("recv() failed ({errno}: {reason}) while {action}"));
            HeadFailure::Silent(400)
        }
        RecvOutcome::Eof | RecvOutcome::Data(_) => {
            x.log(LogLevel::Info, &format_args!("client prematurely closed connection while {action}"));
            HeadFailure::Silent(400)
        }
    }
}

/// What nginx says it was doing while the head was not complete.
fn action(x: &Exchange, wire: &ClientWire) -> &'static str {
    let input = wire.input.borrow();
    let mut line = input.bytes().iter().skip_while(|byte| matches!(byte, b'\r' | b'\n'));
    match (line.any(|byte| *byte == b'\n'), x.pipelined) {
        (true, _) => "reading client request headers",
        (false, false) => "reading client request line",
        (false, true) => "reading client pipelined request line",
    }
}

/// How a head became a request.
enum HeadOrigin {
    Read,
    /// The same head came before.
    Recalled,
}

/// Parses what is there, of which `seen` bytes were known before.
fn try_parse(
    x: &mut Exchange,
    wire: &ClientWire,
    seen: &mut usize,
) -> Progress<Result<HeadOrigin, HeadFailure>, ()> {
    let mut input = wire.input.borrow_mut();
    let bytes = input.bytes();
    let limits = x.server.settings.limits();
    if bytes.is_empty() {
        x.request.head.clear();
    }
    if bytes.is_empty() || (*seen > 0 && bytes.len() < limits.max_line && !may_be_complete(bytes, *seen)) {
        *seen = bytes.len();
        return Progress::Wait(());
    }
    *seen = bytes.len();
    if known_heads::recall(x, bytes, &limits) {
        input.consume(x.request.head.len);
        return Progress::Done(Ok(HeadOrigin::Recalled));
    }
    match x.request.head.parse(bytes, &limits) {
        Ok(HeadParse::Incomplete { .. }) => Progress::Wait(()),
        Ok(HeadParse::Complete) => {
            let len = x.request.head.len;
            x.arena.push(bytes.get(..len).unwrap_or_default());
            input.consume(len);
            Progress::Done(Ok(HeadOrigin::Read))
        }
        Err(bad) => {
            let refused = request_head::refuse_bad::<TlsJudge>(x, bytes, bad);
            input.release();
            Progress::Done(Err(refused))
        }
    }
}
