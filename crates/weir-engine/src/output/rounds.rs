//! A body's way through its filters: each is called once a round, and what the last one gives goes to the client.

use weir_trace::Site;

use super::client;
use crate::body::{BodyBuf, BodyChain};
use crate::error::EngineError;
use crate::exchange::Exchange;
use crate::filter::{BodyEntry, FilterStep};
use crate::phase::LocalFuture;
use crate::plan::included::IncludedRequest;

/// Lets `chain` pass all filters; those that are full are called again once the connection took what they gave.
pub(super) async fn through(
    x: &mut Exchange,
    filters: &mut [BodyEntry],
    mut chain: BodyChain,
) -> Result<(), EngineError> {
    give(filters, &mut chain);
    go_on(x, filters, None).await
}

/// Gives `chain` to the first filter.
pub(super) fn give(filters: &mut [BodyEntry], chain: &mut BodyChain) {
    if let Some(first) = filters.first_mut() {
        first.give(chain);
    }
}

/// The rest of [`through`]: of the round that is under way, if one is.
pub(super) async fn go_on(
    x: &mut Exchange,
    filters: &mut [BodyEntry],
    begun: Option<FilterRound>,
) -> Result<(), EngineError> {
    let mut begun = begun;
    loop {
        let round = round(x, filters, begun.take().unwrap_or_default()).await?;
        client::write(x, round.output).await?;
        wait(x, round.wait).await;
        if !round.again {
            return Ok(());
        }
    }
}

/// What one pass over filters has come to.
#[derive(Default)]
pub(super) struct FilterRound {
    pub(super) output: BodyChain,
    /// The filter that is next.
    next: usize,
    /// A filter is to be called again.
    again: bool,
    pub(super) wait: Option<(Site, LocalFuture<'static, ()>)>,
    /// What filters want to include after what they have given, with the place of each.
    pub(super) includes: Vec<(usize, Box<IncludedRequest>)>,
}

/// The round that a response has come to without waiting.
#[derive(Default)]
pub(super) struct BegunRound(pub(super) Option<FilterRound>);

impl FilterRound {
    /// Whether nothing is left to be done but to write what came of it.
    pub(super) fn is_all(&self) -> bool {
        !self.again && self.wait.is_none() && self.includes.is_empty()
    }
}

/// Calls each filter once, from the next one on.
pub(super) async fn round(
    x: &mut Exchange,
    filters: &mut [BodyEntry],
    mut round: FilterRound,
) -> Result<FilterRound, EngineError> {
    let portion = if filters.len() > 1 { READ / 2 } else { READ };
    while !pass(x, filters, &mut round)? {
        in_memory(x, &mut filters[round.next], portion).await?;
        call(x, filters, &mut round)?;
    }
    Ok(round)
}

/// Calls each filter once, from the next one on; `false`: before that one a part of a file must be read.
pub(super) fn pass(
    x: &mut Exchange,
    filters: &mut [BodyEntry],
    round: &mut FilterRound,
) -> Result<bool, EngineError> {
    while let Some(entry) = filters.get(round.next) {
        if !entry.unread.is_empty() && !entry.full {
            return Ok(false);
        }
        call(x, filters, round)?;
    }
    x.trace().nowhere();
    Ok(true)
}

/// Calls the next filter.
fn call(x: &mut Exchange, filters: &mut [BodyEntry], round: &mut FilterRound) -> Result<(), EngineError> {
    let at = round.next;
    round.next += 1;
    let (entry, rest) = split(filters, at);
    let before = entry.input.len();
    let mut out = BodyChain::default();
    x.trace().open(entry.site);
    let step = entry.filter.step(x, &mut entry.input, &mut out);
    // Closed before it is remarked upon: a site in which nothing was recorded is one event.
    x.trace().close_before_next(entry.site);
    x.trace().bytes(entry.site, before - entry.input.len().min(before), out.len());
    if let Err(error) = &step {
        x.shared.failed(entry.site, error.errno.map_or(500, |errno| errno.unsigned_abs().into()));
    }
    let step = step?;
    entry.full = !matches!(step, FilterStep::More);
    round.again |= entry.has_more();
    match step {
        FilterStep::More | FilterStep::Full => {}
        FilterStep::Wait(future) => round.wait = Some((entry.site, future)),
        FilterStep::Include(include) => round.includes.push((at, include)),
    }
    match rest {
        Some(next) => next.give(&mut out),
        None => round.output.append(&mut out),
    }
    Ok(())
}

/// Waits for what a filter waits for.
pub(super) async fn wait(x: &mut Exchange, wait: Option<(Site, LocalFuture<'static, ()>)>) {
    if let Some((site, future)) = wait {
        x.trace().open(site);
        x.waiting(future).await;
        x.trace().close(site);
    }
}

fn split(filters: &mut [BodyEntry], at: usize) -> (&mut BodyEntry, Option<&mut BodyEntry>) {
    let (head, tail) = filters.split_at_mut(at + 1);
    (&mut head[at], tail.first_mut())
}

/// Moves what waits after the input of a filter that needs bytes into it; of a file
/// `portion` bytes at a time, so that no file is held whole however slow the client is.
async fn in_memory(x: &mut Exchange, entry: &mut BodyEntry, portion: u64) -> Result<(), EngineError> {
    x.trace().open(Site::COPY);
    let read = read_ahead(x, entry, portion).await;
    x.trace().close(Site::COPY);
    read
}

async fn read_ahead(x: &mut Exchange, entry: &mut BodyEntry, portion: u64) -> Result<(), EngineError> {
    let mut room = portion;
    while room > 0
        && let Some(buf) = entry.unread.pop()
    {
        let BodyBuf::File { file, offset, len } = &buf else {
            room = room.saturating_sub(buf.len());
            entry.input.push(buf);
            continue;
        };
        let part = (*len).min(room);
        room -= part;
        let bytes = x.read_file(file, *offset, part as usize).await?;
        entry.input.push(BodyBuf::Bytes(bytes));
        entry.unread.unpop(buf.slice(part, *len));
    }
    if entry.unread.is_empty() {
        entry.input.flush |= std::mem::take(&mut entry.unread.flush);
        entry.input.last |= std::mem::take(&mut entry.unread.last);
    }
    Ok(())
}

/// Files are read in pieces of this many bytes for a filter, half of it where there are several.
const READ: u64 = 32 * 1024;
