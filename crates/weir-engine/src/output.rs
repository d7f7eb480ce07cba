//! A response on its way out: header filters, the head, the body through its filters, and the client's pace.

mod capture;
mod client;
mod handlers;
mod head;
pub mod interim;
mod rounds;

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};

use weir_trace::{ConnectionStep as ConnStep, Site};

use crate::body::{BodyChain, BodyPiece, BodySource, ResponseBody};
use crate::error::{EngineError, FaultSide};
use crate::exchange::Exchange;
use crate::exchange::family::SubrequestFamily;
use crate::filter::{BodyEntry, FilterSlot};
use crate::log::LogLevel;
use crate::phase::Verdict;
use crate::plan::included::IncludedRequest;
use crate::progress::Progress;
use crate::read;
use crate::transport::{Transport, wire, write};
pub(crate) use head::rehearse;
pub use head::{FilterWait, send_head};
use head::{HeadEnd, finish_filter, prepare, try_head, try_ready};
use rounds::{BegunRound, FilterRound};

/// What has become of a response.
pub(crate) enum ResponseEnd {
    /// It is whole: its bytes are with the connection.
    Whole,
    /// Nothing was sent: a header filter wants another response.
    Instead(Verdict),
    /// It broke off.
    Broken(EngineError),
}

/// What a response waits for.
pub enum ResponseWait {
    /// A header filter.
    Filter(FilterWait),
    /// Its body's way to the client.
    Body,
    /// The rest of that way; the round of its filters that is under way is a state of the exchange.
    Round,
}

/// Sends the response in `x.response`, as far as that goes without waiting; the rest is left to [`finish_respond`].
pub(crate) fn try_respond(x: &mut Exchange) -> Progress<ResponseEnd, ResponseWait> {
    if x.body.is_pending()
        && let Err(status) = read::before_answer(x)
    {
        return Progress::Done(ResponseEnd::Instead(Verdict::Status(status)));
    }
    if x.response.content_length.is_none() {
        x.response.content_length = match &x.response.body {
            ResponseBody::Empty => Some(0),
            ResponseBody::Whole(buf) => Some(buf.len()),
            ResponseBody::Chain(chain) => Some(chain.len()),
            ResponseBody::Source(_) => None,
        };
    }
    if x.response.header_sent {
        if x.answered_already {
            x.response.body = ResponseBody::Empty;
            return WHOLE;
        }
        return try_body(x);
    }
    if try_ready(x) {
        return try_body_after_head(x);
    }
    prepare(x);
    filters(x, 0)
}

/// Waits for what [`try_respond`] stopped at, and sends the rest.
pub(crate) async fn finish_respond(x: &mut Exchange, wait: ResponseWait) -> ResponseEnd {
    let mut wait = wait;
    loop {
        wait = match wait {
            ResponseWait::Filter(filter) => {
                let next = filter.next();
                if let Some(instead) = finish_filter(x, filter).await {
                    return ResponseEnd::Instead(instead);
                }
                match filters(x, next) {
                    Progress::Done(end) => return end,
                    Progress::Wait(wait) => wait,
                }
            }
            // Boxed: what few requests need shall not make the future of all larger.
            ResponseWait::Body => {
                return match Box::pin(send_body_attended(x)).await {
                    Ok(()) => ResponseEnd::Whole,
                    Err(error) => ResponseEnd::Broken(error),
                };
            }
            ResponseWait::Round => {
                return match Box::pin(send_rounds(x)).await {
                    Ok(()) => ResponseEnd::Whole,
                    Err(error) => ResponseEnd::Broken(error),
                };
            }
        }
    }
}

/// The header filters from `at` on, the head, the body.
#[inline]
fn filters(x: &mut Exchange, at: usize) -> Progress<ResponseEnd, ResponseWait> {
    match try_head(x, at) {
        Progress::Done(HeadEnd::Sent) => try_body_after_head(x),
        Progress::Done(HeadEnd::Instead(verdict)) => Progress::Done(ResponseEnd::Instead(verdict)),
        Progress::Wait(filter) => Progress::Wait(ResponseWait::Filter(filter)),
    }
}

/// [`try_body`] after a head that was just composed and is not marked yet. One stamp does for both where the body is
/// copied after the head.
#[inline]
fn try_body_after_head(x: &mut Exchange) -> Progress<ResponseEnd, ResponseWait> {
    let copied = match &x.response.body {
        ResponseBody::Empty => true,
        ResponseBody::Whole(buf) => x.response.header_only || wire::is_copied(buf),
        _ => false,
    };
    if !copied {
        x.trace().mark(Site::HEADER);
        return try_body(x);
    }
    if hand_over_at_once(x) {
        x.trace().mark_and_pass(Site::HEADER, [Site::step(ConnStep::Write)]);
        return WHOLE;
    }
    x.trace().mark(Site::HEADER);
    try_rounds(x)
}

/// Sends a body that is there and needs no rate or waiting; any other is left to [`send_body`].
fn try_body(x: &mut Exchange) -> Progress<ResponseEnd, ResponseWait> {
    if hand_over_at_once(x) {
        x.trace().mark(Site::step(ConnStep::Write));
        return WHOLE;
    }
    try_rounds(x)
}

/// Sends a small body that has filters, as far as that goes without waiting: the filters of nearly all such bodies give what they
/// have to give when they are called first.
fn try_rounds(x: &mut Exchange) -> Progress<ResponseEnd, ResponseWait> {
    let is_small = matches!(&x.response.body, ResponseBody::Whole(buf) if wire::is_copied(buf));
    let has_rounds = is_small && !x.body_filters.is_empty() && !x.response.header_only && x.family.is_none();
    if !has_rounds || x.transport.h1().is_none() || crate::transport::is_paced(x) {
        return Progress::Wait(ResponseWait::Body);
    }
    let ResponseBody::Whole(buf) = std::mem::take(&mut x.response.body) else { return WHOLE };
    // The filters are taken out so that each may be given the exchange.
    let mut filters = std::mem::take(&mut x.body_filters);
    rounds::give(&mut filters, &mut BodyChain::whole(buf));
    let mut round = FilterRound::default();
    let passed = rounds::pass(x, &mut filters, &mut round);
    x.body_filters = filters;
    match passed {
        Err(error) => Progress::Done(ResponseEnd::Broken(error)),
        Ok(true) if round.is_all() && client::try_write(x, &mut round.output) => {
            close_after_other_length(x);
            WHOLE
        }
        Ok(_) => {
            x.state::<BegunRound>().0 = Some(round);
            Progress::Wait(ResponseWait::Round)
        }
    }
}

/// What [`try_rounds`] has left.
async fn send_rounds(x: &mut Exchange) -> Result<(), EngineError> {
    let begun = x.state::<BegunRound>().0.take();
    let mut filters = std::mem::take(&mut x.body_filters);
    let result = rounds::go_on(x, &mut filters, begun).await;
    x.body_filters = filters;
    result?;
    finish(x).await
}

/// `false`: the body is not one that goes at once.
#[inline]
fn hand_over_at_once(x: &mut Exchange) -> bool {
    if x.response.chunked || !x.body_filters.is_empty() || crate::transport::is_paced(x) {
        return false;
    }
    if x.worker.logs.has_errors_unwritten() {
        return false;
    }
    let wire = match &x.transport {
        Transport::H1(wire) => wire,
        Transport::Stream(_) => return stream_at_once(x),
        _ => return false,
    };
    match &mut x.response.body {
        ResponseBody::Empty => {}
        ResponseBody::Whole(buf) if wire.takes(buf.len()) => {
            let buf = std::mem::take(buf);
            x.response.body = ResponseBody::Empty;
            if !x.response.header_only {
                x.body_sent += buf.len();
                wire.queue(buf);
            }
        }
        _ => return false,
    }
    close_after_other_length(x);
    true
}

/// [`hand_over_at_once`] on a stream.
#[inline]
fn stream_at_once(x: &mut Exchange) -> bool {
    let Transport::Stream(stream) = &x.transport else { return false };
    match &mut x.response.body {
        _ if !x.response.trailers.is_empty() || x.response.expect_trailers => return false,
        ResponseBody::Source(source) if source.is_wanted_anyway() => return false,
        _ if x.response.header_only => {}
        ResponseBody::Empty => stream.finish(),
        ResponseBody::Whole(buf) if buf.memory().is_some() && buf.len() <= wire::HIGH => {
            let buf = std::mem::take(buf);
            x.response.body = ResponseBody::Empty;
            x.body_sent += buf.len();
            stream.whole(buf);
        }
        _ => return false,
    }
    true
}

/// Sends the body of `x.response` after the head, whatever it is.
async fn send_body(x: &mut Exchange) -> Result<(), EngineError> {
    client::after_errors(x).await;
    let body = std::mem::take(&mut x.response.body);
    if !x.response.header_only {
        match body {
            ResponseBody::Empty => body_part(x, BodyChain::end()).await?,
            ResponseBody::Whole(buf) => body_part(x, BodyChain::whole(buf)).await?,
            ResponseBody::Chain(mut chain) => {
                chain.last = true;
                body_part(x, chain).await?;
            }
            ResponseBody::Source(source) => pump(x, source).await?,
        }
    } else if let ResponseBody::Source(source) = body
        && source.is_wanted_anyway()
    {
        spill(x, source).await;
    }
    finish(x).await
}

/// As [`send_body`], with the subrequests that run beside it.
async fn send_body_attended(x: &mut Exchange) -> Result<(), EngineError> {
    let Some(family) = x.family.clone() else { return send_body(x).await };
    let shared = x.shared.clone();
    // Boxed: two futures of bodies would make that of all larger.
    let sent = Box::pin(family.attend(&shared, Box::pin(send_body(x)))).await;
    family.clear();
    sent
}

/// Reads a source to its end for another reader; how it ends does not concern the client, which has its whole response.
async fn spill(x: &mut Exchange, mut source: Box<dyn BodySource>) {
    let (shared, site, kind) = (x.shared.clone(), x.answered, source.waits_for());
    let rest = async {
        while let Ok(BodyPiece::Data(_) | BodyPiece::Flush) = poll_fn(|cx| source.poll_next(cx)).await {}
    };
    shared.open(site);
    shared.waiting_for(kind, Box::pin(rest)).await;
    shared.close(site);
}

/// Pulls a source dry.
async fn pump(x: &mut Exchange, mut source: Box<dyn BodySource>) -> Result<(), EngineError> {
    let (shared, site) = (x.shared.clone(), x.answered);
    let watched = if source.is_for_client_only() { x.transport.client() } else { None };
    x.busy = source.busy().unwrap_or(wire::HIGH);
    loop {
        let kind = source.waits_for();
        let next = |cx: &mut Context<'_>| {
            let piece = source.poll_next(cx);
            if piece.is_pending()
                && let Some(client) = &watched
                && client.poll_gone(cx).is_ready()
            {
                source.client_left();
                return Poll::Ready(Err(client.why_gone()));
            }
            piece
        };
        x.trace().open(site);
        let piece = shared.waiting_until(kind, next).await;
        x.trace().close(site);
        match piece {
            Ok(BodyPiece::Data(buf)) => {
                let mut chain = BodyChain::default();
                chain.push(buf);
                let mut part = pin!(body_part(x, chain));
                poll_fn(|cx| {
                    let poll = part.as_mut().poll(cx);
                    if poll.is_pending() {
                        source.poll_ahead(cx);
                    }
                    poll
                })
                .await?;
            }
            Ok(BodyPiece::Flush) => body_part(x, BodyChain::flush()).await?,
            Ok(BodyPiece::End) => {
                source.finish(x);
                return body_part(x, BodyChain::end()).await;
            }
            Err(error) => {
                x.keep_alive = false;
                if error.side != FaultSide::Client {
                    Box::pin(send_what_came(x)).await?;
                }
                return Err(error);
            }
        }
    }
}

/// What came of a body before it broke off may be with a filter that waits for more, or wait for the response of a
/// subrequest before it: lets all of it go out.
async fn send_what_came(x: &mut Exchange) -> Result<(), EngineError> {
    if !x.body_filters.is_empty() {
        body_part(x, BodyChain::flush()).await?;
    }
    let Some(family) = x.family.clone() else { return Ok(()) };
    let mut filters = std::mem::take(&mut x.body_filters);
    let own = filters.partition_point(|entry| entry.slot < FilterSlot::Postpone);
    let sent = drain(x, &family, &mut filters[own..], SubrequestFamily::is_idle).await;
    x.body_filters = filters;
    sent
}

/// A part of the body: through the filters, then to the connection.
pub(crate) async fn body_part(x: &mut Exchange, chain: BodyChain) -> Result<(), EngineError> {
    if x.response.header_only {
        return Ok(());
    }
    if x.body_filters.is_empty() && x.family.is_none() {
        return client::write(x, chain).await;
    }
    // The filters are taken out so that each may be given the exchange.
    let mut filters = std::mem::take(&mut x.body_filters);
    let result = match x.family.clone() {
        None => rounds::through(x, &mut filters, chain).await,
        Some(family) => Box::pin(among(x, &family, &mut filters, chain)).await,
    };
    x.body_filters = filters;
    result
}

/// As [`through`], with subrequests in the output: the filters before [`FilterSlot::Postpone`] write to the family's queue, and
/// what can go out of that passes the others.
async fn among(
    x: &mut Exchange,
    family: &SubrequestFamily,
    filters: &mut [BodyEntry],
    mut chain: BodyChain,
) -> Result<(), EngineError> {
    let own = filters.partition_point(|entry| entry.slot < FilterSlot::Postpone);
    let (own, rest) = filters.split_at_mut(own);
    let mut last = chain.last;
    let mut again = true;
    if let Some(first) = own.first_mut() {
        first.give(&mut chain);
        last = false;
    } else {
        family.push(chain);
        again = false;
    }
    // What was asked for and waits until the filters behind the one that asked have given all that came before it; those behind
    // come last.
    let mut held: Vec<(usize, Box<IncludedRequest>)> = Vec::new();
    while again {
        let from = held.last().map_or(0, |(at, _)| at + 1);
        let mut round = rounds::round(x, &mut own[from..], FilterRound::default()).await?;
        last |= round.output.last;
        family.push(round.output);
        rounds::wait(x, round.wait.take()).await;
        held.extend(round.includes.into_iter().map(|(at, include)| (from + at, include)));
        while let Some((_, include)) = held.pop_if(|(at, _)| !own[*at + 1..].iter().any(BodyEntry::has_more))
        {
            drain(x, family, rest, SubrequestFamily::has_room).await?;
            if let Some(waited) = x.begin_include(family, *include) {
                drain(x, family, rest, |_| waited.is_done()).await?;
                x.end_include(waited);
            }
        }
        again = own.iter().any(BodyEntry::has_more);
        drain(x, family, rest, SubrequestFamily::has_room).await?;
    }
    if last {
        drain(x, family, rest, SubrequestFamily::is_idle).await?;
        behind(x, rest, BodyChain::end()).await?;
    }
    Ok(())
}

/// Lets go out what can, until `until` holds.
async fn drain(
    x: &mut Exchange,
    family: &SubrequestFamily,
    rest: &mut [BodyEntry],
    until: impl Fn(&SubrequestFamily) -> bool,
) -> Result<(), EngineError> {
    let shared = x.shared.clone();
    loop {
        while let Some(chain) = family.take() {
            behind(x, rest, chain).await?;
        }
        if until(family) {
            return Ok(());
        }
        x.trace().open(Site::SUBREQUEST);
        shared.waiting(Box::pin(family.changed(&until))).await;
        x.trace().close(Site::SUBREQUEST);
    }
}

/// The filters after the place where subrequests are put, then the connection.
async fn behind(x: &mut Exchange, rest: &mut [BodyEntry], chain: BodyChain) -> Result<(), EngineError> {
    if rest.is_empty() { client::write(x, chain).await } else { rounds::through(x, rest, chain).await }
}

/// The response is complete as far as the handler goes; large ones are waited for, so that `$request_time` and
/// `$bytes_sent` report what the client got.
async fn finish(x: &mut Exchange) -> Result<(), EngineError> {
    if let Some(stream) = x.transport.stream() {
        stream.clone().settle(x);
    }
    close_after_other_length(x);
    drained(x).await
}

/// Where the head has announced another length than the body has, as a script that changes bodies may do, the end of the body
/// is that of the connection: a client would wait for bytes that never come, or take what is too much for the next response.
#[inline]
fn close_after_other_length(x: &mut Exchange) {
    if x.transport.h1().is_some() && !x.response.header_only && !x.response.chunked {
        match x.response.content_length {
            Some(announced) if announced != x.body_sent => other_length(x, announced),
            _ => {}
        }
    }
}

#[cold]
fn other_length(x: &mut Exchange, announced: u64) {
    x.keep_alive = false;
    let sent = x.body_sent;
    let why =
        format_args!("the body has {sent} bytes, Content-Length says {announced}: the connection is closed");
    x.log(LogLevel::Warn, &why);
}

/// Waits until what was handed over has left.
pub(crate) async fn drained(x: &mut Exchange) -> Result<(), EngineError> {
    let site = Site::step(ConnStep::Write);
    if let Some(stream) = x.transport.stream().cloned() {
        x.trace().open(site);
        let drained = stream.drained(x, 0).await;
        x.trace().close(site);
        return drained;
    }
    let Some(wire) = x.transport.h1().cloned() else { return Ok(()) };
    if wire.stream.unsent() <= wire::HIGH {
        return Ok(());
    }
    x.trace().open(site);
    let drained = write::drained(x, &wire, 0).await;
    x.trace().close(site);
    drained
}

/// The end of nearly all responses.
const WHOLE: Progress<ResponseEnd, ResponseWait> = Progress::Done(ResponseEnd::Whole);
