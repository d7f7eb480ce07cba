//! Awaits what a script waits for.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use weir_engine::Exchange;
use weir_engine::body::{BodyBuf, BodyChain};
use weir_engine::exchange::RunOrigin;
use weir_engine::log::LogLevel;
use weir_engine::subrequest::{CapturedResponse, SubrequestCall};
use weir_rt::Timer;
use weir_server::with_worker;
use weir_trace::{SiteKind, SiteTable};

use crate::luajit::state::LuaState;
use crate::run::captured::push_captured;
use crate::run::op::{BodyPiece, PushResults, ScriptEnd};
use crate::run::owned_run::OwnedRun;
use crate::run::script_run::{RunStep, ScriptRun};
use crate::run::settings::{ScriptSettings, prepare};
use crate::run::thread::{ThreadStatus, ThreadWait};

/// Runs a script to its end, which is what it ended with, if not with its last line.
pub(crate) async fn drive(
    run: &mut ScriptRun,
    x: &mut Exchange,
    settings: &ScriptSettings,
) -> Option<ScriptEnd> {
    // Asked until the client has left, which is reported once.
    let mut client = if settings.check_client_abort { x.client_gone().map(Box::pin) } else { None };
    loop {
        match run.step(Some(x)) {
            RunStep::Finished => return None,
            RunStep::End(end) => return Some(end),
            RunStep::Waits => {}
        }
        if let Some((at, waiting)) = run.take_request_op() {
            let (lines, _) = if x.trace().is_on() { run.standing(Some(at)) } else { Default::default() };
            x.trace().enter_all(&lines);
            // `ngx.on_abort` handlers run when this is done: a coroutine can't be called off halfway.
            let mut nobody = None;
            let client = if run.on_abort.is_some() { &mut nobody } else { &mut client };
            // In a box: what it may come to is large, and most runs that wait do not come here.
            let done = Box::pin(of_request(run, x, at, waiting, settings.use_default_type));
            let done = unless(client, pin!(async { Some(done.await) })).await;
            x.trace().leave_all(&lines);
            match done {
                Some(Some(end)) => return Some(end),
                Some(None) => {}
                None => return Some(left(x)),
            }
        } else if run.is_stuck() {
            x.log(LogLevel::Error, &"lua threads wait for one another and none can go on");
            return Some(ScriptEnd::Error);
        } else {
            let (lines, kind) = if x.trace().is_on() { run.standing(None) } else { Default::default() };
            x.trace().enter_all(&lines);
            // The coroutine that receives the body notices it there.
            let (mut nobody, body) = (None, run.wants_piece());
            let leaving = if body.is_some() && run.on_abort.is_some() { &mut nobody } else { &mut client };
            let ready = {
                let ready = pin!(async {
                    match body {
                        Some(late) => Box::pin(wait_with_body(run, x, &late)).await,
                        None => x.waiting_beside_until(kind, |cx| run.poll(cx)).await,
                    }
                    Some(())
                });
                unless(leaving, ready).await
            };
            x.trace().leave_all(&lines);
            if ready.is_none() {
                client = None;
                let end = left(x);
                if !run.aborted() {
                    return Some(end);
                }
            }
        }
    }
}

/// Runs a script that no request waits for to its end, which is what it ended with, if not with its last line: with the
/// settings of `origin`, and `name` where it is listed among what is in flight. The worker does not end meanwhile.
pub(crate) async fn drive_alone(mut run: OwnedRun, origin: &RunOrigin, name: &str) -> Option<ScriptEnd> {
    let worker = with_worker(Rc::clone).expect("runs are awaited by tasks of workers");
    let mut x = Exchange::alone(&worker, origin, run.phase.context(), name);
    let site = SiteTable::fixed(SiteKind::LuaResume, "", run.phase.label());
    x.trace().enter(site);
    let end = drive(&mut run, &mut x, &ScriptSettings::default()).await;
    x.trace().leave(site);
    drop(run);
    x.log(LogLevel::Debug, &"http lua close fake http connection");
    x.end_alone(matches!(end, Some(ScriptEnd::Error)));
    end
}

impl ScriptRun {
    /// Whether it waits for nothing but what [`ScriptRun::poll`] polls, and something of that will be ready: then it may be
    /// polled in place of [`drive`].
    pub(crate) fn is_polled(&self) -> bool {
        self.asked.is_empty() && self.receiver.is_none() && !self.is_stuck()
    }
}

/// Awaits `future`, which stays where it is, or the client's leaving: `None`.
async fn unless<T>(
    client: &mut Option<Pin<Box<impl Future<Output = ()>>>>,
    mut future: Pin<&mut impl Future<Output = Option<T>>>,
) -> Option<T> {
    poll_fn(|cx| match (future.as_mut().poll(cx), &mut client.as_mut()) {
        (Poll::Ready(done), _) => Poll::Ready(done),
        (Poll::Pending, Some(client)) => client.as_mut().poll(cx).map(|()| None),
        (Poll::Pending, None) => Poll::Pending,
    })
    .await
}

/// The client has left, which ends the script unless it wants to know.
fn left(x: &mut Exchange) -> ScriptEnd {
    let whose = if x.is_session() { "stream " } else { "" };
    x.log(LogLevel::Info, &format_args!("{whose}client prematurely closed connection"));
    x.keep_alive = false;
    ScriptEnd::Exit(499)
}

/// What only the request's own task can do, one thing after another.
async fn of_request(
    run: &mut ScriptRun,
    x: &mut Exchange,
    at: usize,
    waiting: ThreadWait,
    default_type: bool,
) -> Option<ScriptEnd> {
    match waiting {
        // Others go on beside it, and may end the request before the body is there.
        ThreadWait::Body if run.has_others(at) => match x.read_body_beside(|cx| run.poll(cx)).await {
            Some(Ok(())) => run.go_on(at, |_| 0),
            Some(Err(error)) => return Some(ScriptEnd::Exit(i64::from(error.status()))),
            None => {
                run.threads.set(at, ThreadStatus::Waiting(ThreadWait::Body));
                run.asked.push_back(at);
            }
        },
        ThreadWait::Body => match x.read_body_for_script().await {
            Ok(()) => run.go_on(at, |_| 0),
            // As in OpenResty the script does not go on, the request ends with the status.
            Err(error) => return Some(ScriptEnd::Exit(i64::from(error.status()))),
        },
        ThreadWait::Append(piece, limit) => match x.append_body(piece, limit).await {
            Ok(()) => run.go_on(at, |_| 0),
            Err(error) => return Some(ScriptEnd::Exit(i64::from(error.status()))),
        },
        ThreadWait::Flush => {
            let sent = flush(run, x, default_type).await;
            run.go_on(at, |l| pushed(l, sent));
        }
        // Beside it others go on, also one that is made when the client leaves.
        ThreadWait::Capture(list) if run.has_others(at) || run.on_abort.is_some() => {
            let answers = x.subrequests_beside(list);
            run.capture_beside(
                at,
                Box::pin(async {
                    let answers = answers.await;
                    Box::new(move |l: LuaState| push_answers(l, &answers)) as PushResults
                }),
            );
        }
        ThreadWait::Capture(list) => {
            let answers = capture(x, list).await;
            run.go_on(at, |l| push_answers(l, &answers));
        }
        // Those are waited for beside one another, and never taken for this.
        ThreadWait::Wait(_)
        | ThreadWait::Sleep(..)
        | ThreadWait::Threads(_)
        | ThreadWait::Captured(_)
        | ThreadWait::Pieces(..) => {}
    }
    None
}

/// Waits for what coroutines wait for beside one another, a piece of the request's body among it, until `late`.
async fn wait_with_body(run: &mut ScriptRun, x: &mut Exchange, late: &Timer) {
    let piece = {
        let mut next = pin!(x.body_piece_beside(|cx| run.poll(cx)));
        let timed = poll_fn(|cx| match next.as_mut().poll(cx) {
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Ready(Some(Ok(Some(bytes)))) => Poll::Ready(Some(BodyPiece::Bytes(bytes))),
            Poll::Ready(Some(Ok(None))) => Poll::Ready(Some(BodyPiece::End)),
            Poll::Ready(Some(Err(_))) => Poll::Ready(Some(BodyPiece::Failed)),
            Poll::Pending => late.poll_expired(cx).map(|()| Some(BodyPiece::TimedOut)),
        });
        timed.await
    };
    if let Some(piece) = piece {
        run.give_piece(piece);
    }
}

/// What `capture` or `capture_multi` returns.
fn push_answers(l: LuaState, answers: &[CapturedResponse]) -> i32 {
    l.reserve(answers.len() as i32 + 4);
    answers.iter().for_each(|answer| push_captured(l, answer));
    answers.len() as i32
}

async fn capture(x: &mut Exchange, mut list: Vec<SubrequestCall>) -> Vec<CapturedResponse> {
    match list.len() {
        1 => {
            let SubrequestCall { uri, args, options } = list.remove(0);
            vec![x.subrequest(&uri, Some(&args), options).await]
        }
        _ => x.subrequests(list).await,
    }
}

/// Sends the head and what was said.
async fn flush(run: &mut ScriptRun, x: &mut Exchange, default_type: bool) -> bool {
    prepare(x, default_type);
    let mut chain = BodyChain::flush();
    if !run.said.is_empty() {
        chain = BodyChain::default();
        chain.push(BodyBuf::Bytes(std::mem::take(&mut run.said)));
        chain.flush = true;
    }
    chain.last = run.ended;
    let sent = x.send(chain).await.is_ok();
    run.broken |= !sent;
    sent
}

fn pushed(l: LuaState, sent: bool) -> i32 {
    if sent {
        l.push_number(1.0);
        return 1;
    }
    l.push_nil();
    l.push_bytes(b"client aborted");
    2
}
