//! What gzip, brotli and zstd share: which responses are compressed, with what, and how bytes pass a compressor.
//!
//! A response is compressed by one of the codings that its location offers, the one the client likes best; between equals
//! the order of [`ContentCoding`] decides, the densest first. With gzip alone that is nginx's rule to the letter.

mod accept;
mod coder;
mod conf;
mod places;
mod pool;
pub(crate) mod rules;
#[cfg(test)]
pub(crate) mod testing;

use std::ops::RangeInclusive;

use weir_conf::{BufferSizes, LineCx, Result};
use weir_engine::filter::{FilterSlot, HeaderFilter};
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::Variable;
use weir_engine::{Exchange, Text, Verdict};
use weir_http::KnownField;
use weir_trace::{Site, SiteKind};

use crate::filters::media::{self, MediaTypes};

pub(crate) use accept::quality;
pub(crate) use coder::{
    BodyCoder, CoderFailure, CompressingBody, DeflateOp, DeflateProgress, PieceFlushing, SCRATCH,
};
pub(crate) use conf::{CompressionConf, compression_row};
pub(crate) use places::{CoderPlace, CoderPlaces, CoderSession};
pub(crate) use pool::{FreeShelf, LentState, ReusedState};
pub(crate) use rules::{CompressionRules, RulesConf, gzip_ok};

/// A content coding, the preferred first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ContentCoding {
    Brotli,
    Zstd,
    Gzip,
}

impl ContentCoding {
    /// Its name in `Content-Encoding` and `Accept-Encoding`.
    pub(crate) fn token(self) -> &'static str {
        match self {
            ContentCoding::Brotli => "br",
            ContentCoding::Zstd => "zstd",
            ContentCoding::Gzip => "gzip",
        }
    }

    /// All of them, in order.
    pub(crate) const ALL: [ContentCoding; 3] =
        [ContentCoding::Brotli, ContentCoding::Zstd, ContentCoding::Gzip];
}

/// What a response says itself of being compressed, a state of its exchange (`compress_hint`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CompressionHint {
    /// Type and length decide.
    #[default]
    Auto,
    /// It is not compressed.
    Off,
    /// It is, whatever its type and length.
    On,
    /// As `On`, with this coding alone.
    Only(ContentCoding),
}

/// Which responses a location compresses with one coding.
#[derive(Clone, Debug)]
pub(crate) struct CompressionOffer {
    types: MediaTypes,
    min_length: u64,
}

impl CompressionOffer {
    /// As a module's `..._types` and `..._min_length` have it.
    pub(crate) fn new(types: &Option<MediaTypes>, min_length: Option<u64>) -> CompressionOffer {
        CompressionOffer { types: MediaTypes::or_html(types), min_length: min_length.unwrap_or(MIN_LENGTH) }
    }

    fn applies(&self, x: &Exchange, coding: ContentCoding) -> bool {
        let response = &x.response;
        if response.header(KnownField::ContentEncoding).is_some_and(|value| !x.text(value).is_empty()) {
            return false;
        }
        match x.state_if::<CompressionHint>() {
            None | Some(CompressionHint::Auto) => {}
            Some(CompressionHint::Off) => return false,
            Some(CompressionHint::On) => return response.status == 200,
            Some(CompressionHint::Only(only)) => return response.status == 200 && *only == coding,
        }
        matches!(response.status, 200 | 403 | 404)
            && response.content_length.is_none_or(|length| length >= self.min_length)
            && self.types.has(x)
    }
}

/// The room of a filter's output, as `gzip_buffers` and its like give it: the size of a buffer, and that of all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputRoom {
    /// Bytes that are handed on together.
    portion: usize,
    /// Bytes that may wait for the client.
    ahead: u64,
}

impl OutputRoom {
    /// Of the buffers given.
    pub(crate) fn new(buffers: Option<BufferSizes>) -> OutputRoom {
        let Some(BufferSizes { number, size }) = buffers else {
            return OutputRoom { portion: SCRATCH, ahead: AHEAD };
        };
        let portion = usize::try_from(size).unwrap_or(SCRATCH).clamp(LEAST_PORTION, SCRATCH);
        OutputRoom { portion, ahead: number.saturating_mul(size) }
    }

    /// Lets no more of the response wait.
    pub(crate) fn bound(self, x: &mut Exchange) {
        x.response.bound(self.ahead);
    }
}

/// The offers of a location, by coding; each module keeps its own with the plan.
struct KeptOffer<const CODING: u8>(CompressionOffer);

fn offer(x: &Exchange, coding: ContentCoding) -> Option<&CompressionOffer> {
    match coding {
        ContentCoding::Brotli => {
            x.plan.kept::<KeptOffer<{ ContentCoding::Brotli as u8 }>>().map(|kept| &kept.0)
        }
        ContentCoding::Zstd => x.plan.kept::<KeptOffer<{ ContentCoding::Zstd as u8 }>>().map(|kept| &kept.0),
        ContentCoding::Gzip => x.plan.kept::<KeptOffer<{ ContentCoding::Gzip as u8 }>>().map(|kept| &kept.0),
    }
}

/// A compressing module's part of a location.
pub(crate) trait CompressionScheme: 'static {
    /// What it makes.
    const CODING: ContentCoding;
    /// Where it is.
    const SLOT: FilterSlot;
    /// What compresses.
    type Coder: BodyCoder + 'static;

    /// A compressor for a body of `length` bytes, if that is known.
    fn coder(&self, length: Option<u64>) -> Self::Coder;

    /// Where its output goes.
    fn room(&self) -> OutputRoom;

    /// Input is buffered until there are so many bytes of it.
    fn postpone(&self) -> u64 {
        0
    }

    /// When its output is handed on.
    fn flushing(&self) -> PieceFlushing {
        PieceFlushing::WhenFull
    }
}

/// Lets a location offer `scheme`.
pub(crate) fn install<S: CompressionScheme>(
    plan: &mut PlanBuilder<'_>,
    name: &'static str,
    offer: CompressionOffer,
    scheme: S,
) {
    match S::CODING {
        ContentCoding::Brotli => plan.keep(KeptOffer::<{ ContentCoding::Brotli as u8 }>(offer)),
        ContentCoding::Zstd => plan.keep(KeptOffer::<{ ContentCoding::Zstd as u8 }>(offer)),
        ContentCoding::Gzip => plan.keep(KeptOffer::<{ ContentCoding::Gzip as u8 }>(offer)),
    }
    let body = plan.site(SiteKind::BodyFilter, name);
    plan.header_filter(S::SLOT, name, CompressionFilter { body, scheme });
}

struct CompressionFilter<S> {
    /// Where compressing goes.
    body: Site,
    scheme: S,
}

impl<S: CompressionScheme> HeaderFilter for CompressionFilter<S> {
    fn is_rehearsable(&self) -> bool {
        true
    }

    fn filter(&self, x: &mut Exchange) -> Verdict {
        if !offer(x, S::CODING).is_some_and(|offer| offer.applies(x, S::CODING)) {
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

impl<S: CompressionScheme> CompressionFilter<S> {
    fn compress(&self, x: &mut Exchange) {
        let length = x.response.content_length;
        x.response.add(KnownField::ContentEncoding, S::CODING.token());
        recoded(x);
        if !x.response.header_only {
            let coder = self.scheme.coder(length);
            let (postpone, flushing, room) =
                (self.scheme.postpone(), self.scheme.flushing(), self.scheme.room());
            room.bound(x);
            let packer = CompressingBody::new(coder, Some(S::CODING), postpone, flushing, room);
            x.body_filter(S::SLOT, self.body, packer);
        }
    }
}

/// The coding in which this response is sent: of those offered for it the one the client likes best.
fn chosen(x: &mut Exchange) -> Option<ContentCoding> {
    let mut best = None;
    for coding in ContentCoding::ALL {
        if offer(x, coding).is_some_and(|offer| offer.applies(x, coding))
            && let Some(quality) = accepts(x, coding)
            && best.is_none_or(|(found, _)| quality > found)
        {
            best = Some((quality, coding));
        }
    }
    best.map(|(_, coding)| coding)
}

/// How much the client likes `coding`, in thousandths; `None` if it must not be sent.
pub(crate) fn accepts(x: &mut Exchange, coding: ContentCoding) -> Option<u16> {
    if coding == ContentCoding::Gzip {
        return gzip_ok(x);
    }
    if x.is_subrequest() {
        return None;
    }
    x.request.value(&x.arena, KnownField::AcceptEncoding).and_then(|accept| quality(accept, coding.token()))
}

/// A size that is a power of two, stored as its logarithm, which is one of `exponents`.
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
    x.response.vary_encoding = x.plan.kept::<CompressionRules>().is_some_and(|rules| rules.vary);
}

/// What a body of other bytes than the handler described does to the head.
pub(crate) fn recoded(x: &mut Exchange) {
    media::clear_length(x);
    x.response.allow_ranges = false;
    x.response.remove(KnownField::AcceptRanges);
    media::weaken_etag(x);
}

/// Bytes in and out of each coding's compressor, for `$gzip_ratio` and its like.
#[derive(Default)]
pub(crate) struct CompressionRatios([(u64, u64); 3]);

impl CompressionRatios {
    fn note(&mut self, coding: ContentCoding, taken: u64, given: u64) {
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
pub(crate) fn ratio(x: &mut Exchange, coding: ContentCoding) -> Option<Text> {
    let (taken, given) = x.state_if::<CompressionRatios>()?.0[coding as usize];
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
