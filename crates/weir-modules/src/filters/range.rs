//! `range`: parts of a response (RFC 9110 section 14): 206 with one part or several, 416, `Accept-Ranges`.
//!
//! The header filter decides, late, when the entity is described; the body filter it pushes cuts, early, where a
//! piece may still be a part of a file. Nothing is copied but what a filter before has left as bytes of its own.
//! Its setting, `max_ranges`, is one of the core's.

use std::hash::{BuildHasher, RandomState};

use weir_conf::Directive;
use weir_engine::body::{BodyBuf, BodyChain};
use weir_engine::error::EngineError;
use weir_engine::filter::{BodyFilter, FilterSlot, FilterStep, HeaderFilter};
use weir_engine::plan::PlanBuilder;
use weir_engine::{Exchange, Module, Text, Verdict};
use weir_http::range::{self, ByteRange, MultipartLayout, RangeOutcome};
use weir_http::{KnownField, Version};
use weir_trace::{Site, SiteKind};

/// The module; it has no directives of its own.
pub struct Range;

impl Module for Range {
    const NAME: &'static str = "range";
    type Conf = ();
    const DIRECTIVES: &'static [Directive<()>] = &[];

    fn install(_: &(), plan: &mut PlanBuilder<'_>) {
        let body = plan.site(SiteKind::BodyFilter, Self::NAME);
        plan.header_filter(FilterSlot::RangeHeader, Self::NAME, RangeFilter { body });
    }
}

struct RangeFilter {
    /// Where the time of cutting goes.
    body: Site,
}

impl HeaderFilter for RangeFilter {
    fn is_rehearsable(&self) -> bool {
        true
    }

    fn filter(&self, x: &mut Exchange) -> Verdict {
        self.decide(x)
    }

    fn is_plain(&self) -> bool {
        true
    }

    fn is_fixed(&self) -> bool {
        true
    }
}

impl RangeFilter {
    fn decide(&self, x: &mut Exchange) -> Verdict {
        let Some(length) = cuttable(x) else { return Verdict::Passed };
        let mut ranges = Vec::new();
        match asked(x, length, &mut ranges) {
            RangeOutcome::Whole => {
                x.response.set(KnownField::AcceptRanges, "bytes");
                Verdict::Passed
            }
            RangeOutcome::Partial => {
                x.response.status = 206;
                x.response.reason = None;
                match *ranges {
                    [part] => self.one(x, part, length),
                    _ => self.several(x, ranges, length),
                }
                Verdict::Ok
            }
            RangeOutcome::NotSatisfiable => {
                content_range(x, |out| range::unsatisfied(out, length));
                x.response.content_length = None;
                Verdict::Status(416)
            }
        }
    }

    fn one(&self, x: &mut Exchange, part: ByteRange, length: u64) {
        content_range(x, |out| range::content_range(out, part, length));
        x.response.content_length = Some(part.size());
        let at = std::mem::replace(&mut x.response.content_offset, part.start);
        x.body_filter(FilterSlot::RangeBody, self.body, SingleRangeBody { part, at });
    }

    fn several(&self, x: &mut Exchange, parts: Vec<ByteRange>, length: u64) {
        let (kind, charset) = x.response.typed(&x.arena).unwrap_or_default();
        let layout = MultipartLayout::new(boundary(), kind, charset);
        x.response.charset = None;
        x.response.content_type = Some(Text::Span(x.arena.write(|out| layout.content_type(out))));
        x.response.content_length = Some(layout.content_length(&parts, length));
        x.response.remove(KnownField::ContentRange);
        x.body_filter(
            FilterSlot::RangeBody,
            self.body,
            MultiRangeBody { layout, parts, whole: BodyChain::default() },
        );
    }
}

/// The length of a response that may be cut.
fn cuttable(x: &Exchange) -> Option<u64> {
    let response = &x.response;
    let may = response.allow_ranges && response.status == 200 && !x.is_subrequest();
    if !may || x.request.head.version < Version::V10 || x.plan.core.max_ranges == Some(0) {
        return None;
    }
    response.content_length
}

/// What `Range` asks for, unless `If-Range` takes it back.
fn asked(x: &Exchange, length: u64, ranges: &mut Vec<ByteRange>) -> RangeOutcome {
    let Some(value) = x.request.value(&x.arena, KnownField::Range) else { return RangeOutcome::Whole };
    let response = &x.response;
    let tag = response.etag().map(|tag| x.text(tag));
    if let Some(condition) = x.request.value(&x.arena, KnownField::IfRange)
        && !range::if_range(condition, tag, response.last_modified)
    {
        return RangeOutcome::Whole;
    }
    let max = match x.plan.core.max_ranges {
        _ if response.single_range => Some(1),
        max => max.map(|max| u32::try_from(max).unwrap_or(u32::MAX)),
    };
    range::parse(value, length, max, ranges)
}

fn content_range(x: &mut Exchange, write: impl FnOnce(&mut Vec<u8>)) {
    let value = x.arena.write(write);
    x.response.set(KnownField::ContentRange, value);
}

/// An unpredictable number, so that no content can be made to hold the boundary.
fn boundary() -> u64 {
    RandomState::new().hash_one(())
}

/// Lets one part of the body pass.
struct SingleRangeBody {
    part: ByteRange,
    /// Where in the whole the next byte of the body is.
    at: u64,
}

impl BodyFilter for SingleRangeBody {
    fn step(
        &mut self,
        _: &mut Exchange,
        input: &mut BodyChain,
        output: &mut BodyChain,
    ) -> Result<FilterStep, EngineError> {
        self.cut(input, output);
        Ok(FilterStep::More)
    }

    fn in_memory(&self) -> bool {
        false
    }
}

impl SingleRangeBody {
    fn cut(&mut self, input: &mut BodyChain, output: &mut BodyChain) {
        while let Some(buf) = input.pop() {
            let len = buf.len();
            output.push(part(buf, self.at, self.part));
            self.at += len;
        }
        output.append(input);
    }
}

/// What of `buf`, whose first byte is byte `at` of the body, lies in `range`.
fn part(buf: BodyBuf, at: u64, range: ByteRange) -> BodyBuf {
    if at >= range.start && at + buf.len() <= range.end {
        return buf;
    }
    buf.slice(range.start.saturating_sub(at), range.end.saturating_sub(at))
}

/// Puts several parts of the body one after the other, in the order they were asked for, each with a head.
struct MultiRangeBody {
    layout: MultipartLayout,
    parts: Vec<ByteRange>,
    /// The body so far: parts may be asked for in any order, so that it must be complete first. Nearly always it is
    /// one piece, a file; a handler that sends long bodies piece by piece sets `Response::single_range`.
    whole: BodyChain,
}

impl BodyFilter for MultiRangeBody {
    fn step(
        &mut self,
        _: &mut Exchange,
        input: &mut BodyChain,
        output: &mut BodyChain,
    ) -> Result<FilterStep, EngineError> {
        self.collect(input, output);
        Ok(FilterStep::More)
    }

    fn in_memory(&self) -> bool {
        false
    }
}

impl MultiRangeBody {
    fn collect(&mut self, input: &mut BodyChain, output: &mut BodyChain) {
        self.whole.append(input);
        output.flush |= std::mem::take(&mut self.whole.flush);
        if !std::mem::take(&mut self.whole.last) {
            return;
        }
        let length = self.whole.len();
        for &range in &self.parts {
            let mut head = Vec::new();
            self.layout.part(&mut head, range, length);
            output.push(BodyBuf::Bytes(head));
            let mut at = 0;
            for buf in self.whole.iter() {
                let end = at + buf.len();
                if end > range.start && at < range.end {
                    output.push(part(buf.clone(), at, range));
                }
                at = end;
            }
        }
        let mut end = Vec::new();
        self.layout.last(&mut end);
        output.push(BodyBuf::Bytes(end));
        output.last = true;
        self.whole = BodyChain::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(pieces: &[&'static str]) -> BodyChain {
        let mut chain = BodyChain::default();
        pieces.iter().for_each(|piece| chain.push(BodyBuf::from(*piece)));
        chain.last = true;
        chain
    }

    fn text(chain: &BodyChain) -> String {
        let bytes: Vec<u8> = chain.iter().flat_map(|buf| buf.memory().unwrap_or_default().to_vec()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[test]
    fn one_part_is_cut_whatever_the_pieces_are() {
        for pieces in [&["0123456789"][..], &["0", "123", "456", "789"], &["01234", "56789"]] {
            for start in 0..10 {
                for end in start + 1..=10 {
                    let mut output = BodyChain::default();
                    SingleRangeBody { part: ByteRange { start, end }, at: 0 }
                        .cut(&mut body(pieces), &mut output);
                    let expected = &"0123456789"[start as usize..end as usize];
                    assert_eq!(text(&output), expected, "{pieces:?}");
                    assert_eq!(output.len(), end - start);
                    assert!(output.last);
                }
            }
        }
    }

    #[test]
    fn the_end_comes_with_the_end_of_the_input_and_once() {
        let mut one = SingleRangeBody { part: ByteRange { start: 1, end: 3 }, at: 0 };
        let (mut input, mut output) = (body(&["0123"]), BodyChain::default());
        input.last = false;
        input.flush = true;
        one.cut(&mut input, &mut output);
        assert!(output.flush && !output.last && !input.flush);
        one.cut(&mut body(&["45"]), &mut output);
        assert_eq!((text(&output).as_str(), output.last), ("12", true));
    }

    #[test]
    fn several_parts_make_the_body_whose_length_was_told() {
        let layout = MultipartLayout::new(7, b"text/plain", Some(b"utf-8"));
        let parts = vec![ByteRange { start: 6, end: 9 }, ByteRange { start: 0, end: 2 }];
        let length = layout.content_length(&parts, 10);
        for pieces in [&["0123456789"][..], &["0", "1234567", "89"]] {
            let mut several =
                MultiRangeBody { layout: layout.clone(), parts: parts.clone(), whole: BodyChain::default() };
            let mut output = BodyChain::default();
            for piece in pieces {
                let mut input = body(&[piece]);
                input.last = false;
                several.collect(&mut input, &mut output);
                assert!(output.is_empty() && !output.last);
            }
            several.collect(&mut body(&[]), &mut output);
            assert_eq!(output.len(), length);
            assert!(output.last);
            let head = "\r\n--00000000000000000007\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes ";
            let expected =
                format!("{head}6-8/10\r\n\r\n678{head}0-1/10\r\n\r\n01\r\n--00000000000000000007--\r\n");
            assert_eq!(text(&output), expected);
        }
    }
}
