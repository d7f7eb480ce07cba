//! What gzip, brotli and zstd share: which responses are compressed, with what, and how bytes pass a compressor.
//!
//! A response is compressed by one of the codings that its location offers, the one the client likes best; between equals
//! the order of [`Coding`] decides, the densest first. With gzip alone that is nginx's rule to the letter.

mod accept;
mod coder;
mod places;
mod pool;
pub(crate) mod rules;
#[cfg(test)]
pub(crate) mod testing;

use std::ops::RangeInclusive;

use weir_conf::{BufferSizes, LineCx, Result};
use weir_engine::filter::{HeaderFilter, Slot};
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::Variable;
use weir_engine::{Exchange, Text, Verdict};
use weir_http::Known;
use weir_trace::{Site, SiteKind};

use crate::filters::media::{self, MediaTypes};

pub(crate) use accept::quality;
pub(crate) use coder::{Coder, Failed, Op, Packer, Progress, SCRATCH};
pub(crate) use places::{Place, Places, Session};
pub(crate) use pool::{Lent, Reused, Shelf};
pub(crate) use rules::{Rules, RulesConf, gzip_ok};

/// A content coding, the preferred first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Coding {
    Brotli,
    Zstd,
    Gzip,
}

impl Coding {
    /// Its name in `Content-Encoding` and `Accept-Encoding`.
    pub(crate) fn token(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];
}

/// Which responses a location compresses with one coding.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    types: MediaTypes,
    min_length: u64,
}

impl Offer {
    /// As a module's `..._types` and `..._min_length` have it.
    pub(crate) fn new(types: &Option<MediaTypes>, min_length: Option<u64>) -> Offer {
        Offer { types: MediaTypes::or_html(types), min_length: min_length.unwrap_or(MIN_LENGTH) }
    }

    fn applies(&self, x: &Exchange) -> bool {
        let response = &x.response;
        matches!(response.status, 200 | 403 | 404)
            && response.header(Known::ContentEncoding).is_none_or(|value| x.text(value).is_empty())
            && response.content_length.is_none_or(|length| length >= self.min_length)
            && self.types.has(x)
    }
}

/// The room of a filter's output, as `gzip_buffers` and its like give it: the size of a buffer, and that of all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes that are handed on together.
    portion: usize,
    /// Bytes that may wait for the client.
    ahead: u64,
}

impl Room {
    /// Of the buffers given.
    pub(crate) fn new(buffers: Option<BufferSizes>) -> Room {
        let Some(BufferSizes { number, size }) = buffers else {
            return Room { portion: SCRATCH, ahead: AHEAD };
        };
        let portion = usize::try_from(size).unwrap_or(SCRATCH).clamp(LEAST_PORTION, SCRATCH);
        Room { portion, ahead: number.saturating_mul(size) }
    }

    /// Lets no more of the response wait.
    pub(crate) fn bound(self, x: &mut Exchange) {
        x.response.bound(self.ahead);
    }
}

/// The offers of a location, by coding; each module keeps its own with the plan.
struct Kept<const CODING: u8>(Offer);

fn offer(x: &Exchange, coding: Coding) -> Option<&Offer> {
    match coding {
        Coding::Brotli => x.plan.kept::<Kept<{ Coding::Brotli as u8 }>>().map(|kept| &kept.0),
        Coding::Zstd => x.plan.kept::<Kept<{ Coding::Zstd as u8 }>>().map(|kept| &kept.0),
        Coding::Gzip => x.plan.kept::<Kept<{ Coding::Gzip as u8 }>>().map(|kept| &kept.0),
    }
}

/// A compressing module's part of a location.
pub(crate) trait Scheme: 'static {
    /// What it makes.
    const CODING: Coding;
    /// Where it stands.
    const SLOT: Slot;
    /// What compresses.
    type Coder: Coder + 'static;

    /// A compressor for a body of `length` bytes, if that is known.
    fn coder(&self, length: Option<u64>) -> Self::Coder;

    /// Where its output goes.
    fn room(&self) -> Room;

    /// Input is kept until there are so many bytes of it.
    fn postpone(&self) -> u64 {
        0
    }

    /// Output is handed on as it comes, not in full pieces.
    fn at_once(&self) -> bool {
        false
    }
}

/// Lets a location offer `scheme`.
pub(crate) fn install<S: Scheme>(plan: &mut PlanBuilder<'_>, name: &'static str, offer: Offer, scheme: S) {
    match S::CODING {
        Coding::Brotli => plan.keep(Kept::<{ Coding::Brotli as u8 }>(offer)),
        Coding::Zstd => plan.keep(Kept::<{ Coding::Zstd as u8 }>(offer)),
        Coding::Gzip => plan.keep(Kept::<{ Coding::Gzip as u8 }>(offer)),
    }
    let body = plan.site(SiteKind::BodyFilter, name);
    plan.header_filter(S::SLOT, name, Filter { body, scheme });
}

struct Filter<S> {
    /// Where compressing goes.
    body: Site,
    scheme: S,
}

impl<S: Scheme> HeaderFilter for Filter<S> {
    fn filter(&self, x: &mut Exchange) -> Verdict {
        if !offer(x, S::CODING).is_some_and(|offer| offer.applies(x)) {
            return Verdict::Passed;
        }
        vary(x);
        if chosen(x) == Some(S::CODING) {
            self.compress(x);
        }
        Verdict::Ok
    }

    fn is_plain(&self) -> bool {
        true
    }
}

impl<S: Scheme> Filter<S> {
    fn compress(&self, x: &mut Exchange) {
        let length = x.response.content_length;
        x.response.add(Known::ContentEncoding, S::CODING.token());
        recoded(x);
        if !x.response.header_only {
            let coder = self.scheme.coder(length);
            let (postpone, at_once, room) =
                (self.scheme.postpone(), self.scheme.at_once(), self.scheme.room());
            room.bound(x);
            let packer = Packer::new(coder, Some(S::CODING), postpone, at_once, room);
            x.body_filter(S::SLOT, self.body, packer);
        }
    }
}

/// The coding in which this response is sent: of those offered for it the one the client likes best.
fn chosen(x: &mut Exchange) -> Option<Coding> {
    let mut best = None;
    for coding in Coding::ALL {
        if offer(x, coding).is_some_and(|offer| offer.applies(x))
            && let Some(quality) = accepts(x, coding)
            && best.is_none_or(|(found, _)| quality > found)
        {
            best = Some((quality, coding));
        }
    }
    best.map(|(_, coding)| coding)
}

/// How much the client likes `coding`, in thousandths; `None` if it must not be sent.
pub(crate) fn accepts(x: &mut Exchange, coding: Coding) -> Option<u16> {
    if coding == Coding::Gzip {
        return gzip_ok(x);
    }
    if x.is_subrequest() {
        return None;
    }
    x.request.value(&x.arena, Known::AcceptEncoding).and_then(|accept| quality(accept, coding.token()))
}

/// A size that is a power of two, kept as its logarithm, which is one of `exponents`.
pub(crate) fn power(
    line: &mut LineCx<'_>,
    slot: &mut Option<u8>,
    exponents: RangeInclusive<u8>,
    allowed: &str,
) -> Result {
    let mut size = slot.map(|_| 0);
    line.size(&mut size)?;
    let exponent = exponents.into_iter().find(|exponent| size == Some(1 << exponent));
    *slot = Some(exponent.ok_or_else(|| line.refuse(format!("must be {allowed}")))?);
    Ok(())
}

/// The response depends on `Accept-Encoding`, which `gzip_vary` has written.
pub(crate) fn vary(x: &mut Exchange) {
    x.response.vary_encoding = x.plan.kept::<Rules>().is_some_and(|rules| rules.vary);
}

/// What a body of other bytes than the handler described does to the head.
pub(crate) fn recoded(x: &mut Exchange) {
    media::clear_length(x);
    x.response.allow_ranges = false;
    x.response.remove(Known::AcceptRanges);
    media::weaken_etag(x);
}

/// Bytes in and out of each coding's compressor, for `$gzip_ratio` and its like.
#[derive(Default)]
pub(crate) struct Ratios([(u64, u64); 3]);

impl Ratios {
    fn note(&mut self, coding: Coding, taken: u64, given: u64) {
        self.0[coding as usize] = (taken, given);
    }
}

/// The variable `name`, how much smaller `get`'s coding made the response.
pub(crate) const fn ratio_variable(
    name: &'static str,
    get: fn(&mut Exchange) -> Option<Text>,
) -> [Variable; 1] {
    [Variable::new(name, get).volatile()]
}

/// The ratio in nginx's form, once the response is whole.
pub(crate) fn ratio(x: &mut Exchange, coding: Coding) -> Option<Text> {
    let (taken, given) = x.state_if::<Ratios>()?.0[coding as usize];
    if given == 0 {
        return None;
    }
    // Rounded to hundredths by the third digit alone, as nginx does.
    let thousandths = u128::from(taken) * 1000 / u128::from(given);
    let hundredths = thousandths / 10 + u128::from(thousandths % 10 > 4);
    let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    Some(Text::Span(x.arena.push(text.as_bytes())))
}

/// `gzip_min_length` and its like, if they are not set.
const MIN_LENGTH: u64 = 20;
/// Bytes that wait for the client, if no buffers are given: with a compressor's tables and what was read for it a
/// response stays below 256 KB.
const AHEAD: u64 = 16 * 1024;
/// The least size of a buffer that counts; a smaller one would cost more than it holds.
const LEAST_PORTION: usize = 512;
