//! `spans`: a retained request over time: when each of its steps began and ended, and what it waited for when.

use weir_http::json::JsonWriter;
use weir_trace::event::EventDecoder;
use weir_trace::{EventKind, KeptRequest, Site, SiteInfo, SiteTable, WaitKind};

use crate::source::scale;

/// A step, in ticks from the request's beginning.
struct RequestSpan {
    site: Site,
    depth: usize,
    start: u64,
    /// `None` while it is open.
    end: Option<u64>,
}

/// A wait, inside the innermost step that was open then.
struct SpanWait {
    kind: WaitKind,
    start: u64,
    end: u64,
}

/// The way through a request's events.
#[derive(Default)]
struct SpanWalk {
    at: u64,
    spans: Vec<RequestSpan>,
    waits: Vec<SpanWait>,
    /// The steps that are open, and where they are in `spans`, if they found room there.
    open: Vec<(Site, Option<usize>)>,
    /// Steps that found no room.
    left_out: u64,
}

impl SpanWalk {
    fn take(&mut self, kind: EventKind, site: Site, value: u64) {
        let before = self.at;
        if kind.is_timed() {
            self.at += value;
        }
        match kind {
            EventKind::Begin => {
                let place = self.add(site, self.at, None);
                self.open.push((site, place));
            }
            EventKind::End => {
                self.leave(site.outside(&self.open, |(site, _)| *site));
            }
            EventKind::Mark => {
                self.add(site, before, Some(self.at));
            }
            EventKind::Resume if self.waits.len() < MOST => {
                self.waits.push(SpanWait { kind: WaitKind::from_code(site.0), start: before, end: self.at });
            }
            EventKind::Resume => self.left_out += 1,
            _ => {}
        }
    }

    /// Where the step is in `spans`, if it has room there.
    fn add(&mut self, site: Site, start: u64, end: Option<u64>) -> Option<usize> {
        let depth = self.open.len();
        // One more call of the step before, such as a filter's: it goes on.
        if let Some(last) = self.spans.last_mut()
            && (last.site, last.depth, last.end) == (site, depth, Some(start))
            && end.is_some()
        {
            last.end = end;
            return None;
        }
        if self.spans.len() >= MOST {
            self.left_out += 1;
            return None;
        }
        self.spans.push(RequestSpan { site, depth, start, end });
        Some(self.spans.len() - 1)
    }

    fn leave(&mut self, depth: usize) {
        for place in self.open.drain(depth..).filter_map(|(_, place)| place) {
            self.spans[place].end = Some(self.at);
        }
    }
}

/// The record, the steps and the waits of a request as one line; `story` is what is known of blocked loops.
pub(super) fn json(kept: &KeptRequest, story: &str) -> String {
    let walk = walk(kept);
    let sites = SiteTable::global();
    let record = weir_trace::render::record_json(kept.record(), sites, &scale);
    JsonWriter::object(|json| {
        json.key("why").text(kept.why().as_str());
        json.key("record").raw(record);
        json.key("story").text(story);
        json.key("left_out").raw(walk.left_out);
        json.key("folded").raw(kept.is_folded());
        json.key("spans").list(|json| {
            for span in &walk.spans {
                json.nested(|json| write(json, span, &sites.info(span.site)));
            }
        });
        json.key("waits").list(|json| {
            for wait in &walk.waits {
                json.nested(|json| {
                    json.key("kind").text(wait.kind.as_str());
                    json.key("start_ns").raw(scale(wait.start));
                    json.key("end_ns").raw(scale(wait.end));
                });
            }
        });
    }) + "\n"
}

fn write(json: &mut JsonWriter, span: &RequestSpan, info: &SiteInfo) {
    json.key("kind").text(info.kind.as_str());
    if let Some(phase) = info.phase {
        json.key("phase").text(phase);
    }
    if !info.location.is_empty() {
        json.key("location").text(&info.location);
    }
    json.key("name").text(&info.name);
    json.key("depth").raw(span.depth);
    json.key("start_ns").raw(scale(span.start));
    json.key("end_ns").raw(scale(span.end.unwrap_or(span.start)));
}

fn walk(kept: &KeptRequest) -> SpanWalk {
    let mut walk = SpanWalk::default();
    let mut decoder = EventDecoder::default();
    for event in kept.events() {
        if let Some((kind, site, value)) = decoder.decode(*event) {
            walk.take(kind, site, value);
        }
    }
    // Of a very long request only the beginning has events: what is open then lasts to its end.
    walk.at = walk.at.max(kept.record().total);
    walk.leave(0);
    walk
}

/// Steps at most, and waits.
const MOST: usize = 2_000;

#[cfg(test)]
mod tests {
    use weir_http::json::JsonValue;
    use weir_trace::{Recorder, RecorderSettings, RequestRecord, SiteKind, Trace};

    use super::*;

    fn kept(f: impl FnOnce(&mut Trace)) -> KeptRequest {
        let mut recorder = Recorder::new(0, RecorderSettings { sample: 1, ..RecorderSettings::default() });
        let mut trace = Trace::new();
        recorder.begin(&mut trace, 1_000);
        f(&mut trace);
        recorder.finish(&mut trace, RequestRecord { status: 200, ..RequestRecord::default() });
        recorder.kept().next().expect("every one is drawn").clone()
    }

    #[test]
    fn steps_have_their_times_and_waits_are_inside() {
        let sites = SiteTable::global();
        let content = sites.intern(SiteKind::Handler(9), "/spans", "proxy");
        let peer = sites.intern(SiteKind::UpstreamTry, "/spans", "127.0.0.1:9");
        let kept = kept(|trace| {
            trace.enter(content, 1_010);
            trace.enter(peer, 1_020);
            trace.wait_kind(WaitKind::UpstreamFirstByte);
            trace.suspend(1_030);
            trace.resume(1_530);
            trace.leave(peer, 1_540);
            trace.leave(content, 1_550);
            trace.mark(Site::COPY, 1_560);
            trace.mark(Site::COPY, 1_570);
            trace.end(1_600);
        });
        let walk = walk(&kept);
        let spans: Vec<_> =
            walk.spans.iter().map(|span| (span.site, span.depth, span.start, span.end)).collect();
        assert_eq!(
            spans,
            [
                (content, 0, 10, Some(550)),
                (peer, 1, 20, Some(540)),
                // Two calls in a row are one step.
                (Site::COPY, 0, 550, Some(570)),
            ]
        );
        let waits: Vec<_> = walk.waits.iter().map(|wait| (wait.kind, wait.start, wait.end)).collect();
        assert_eq!(waits, [(WaitKind::UpstreamFirstByte, 30, 530)]);
        let json = JsonValue::parse(json(&kept, "a \"story\"").as_bytes()).expect("valid JSON");
        assert_eq!(json.field("story").and_then(JsonValue::text), Some("a \"story\""));
        assert_eq!(json.field("spans").and_then(JsonValue::list).map(<[_]>::len), Some(3));
    }

    #[test]
    fn many_steps_are_cut_and_counted() {
        let site = SiteTable::global().intern(SiteKind::LuaResume, "/spans", "many");
        let mut walk = SpanWalk::default();
        for _ in 0..3 * MOST {
            walk.take(EventKind::Begin, site, 1);
            walk.take(EventKind::Suspend, Site::NONE, 1);
            walk.take(EventKind::Resume, Site(0), 1);
            walk.take(EventKind::End, site, 1);
        }
        assert!(walk.spans.len() == MOST && walk.waits.len() == MOST && walk.open.is_empty());
        assert_eq!(walk.left_out, 4 * MOST as u64, "two thirds of both");
    }
}
