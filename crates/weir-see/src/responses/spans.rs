//! `spans`: a retained request over time: when each of its steps began and ended, and what it waited for when.

use weir_http::json::JsonWriter;
use weir_trace::walk::{OpenStep, TraceStretch, TraceVisitor, walk};
use weir_trace::{KeptRequest, Site, SiteInfo, SiteTable, WaitKind};

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

/// What is found on the way through a request.
#[derive(Default)]
struct RequestSpans {
    spans: Vec<RequestSpan>,
    waits: Vec<SpanWait>,
    /// Steps and waits that found no room.
    left_out: u64,
}

impl RequestSpans {
    /// Where the step is in `spans`, if it has room there.
    fn add(&mut self, span: RequestSpan) -> Option<usize> {
        if self.spans.len() >= MOST {
            self.left_out += 1;
            return None;
        }
        self.spans.push(span);
        Some(self.spans.len() - 1)
    }
}

impl TraceVisitor for RequestSpans {
    /// Where it is in `spans`.
    type Step = Option<usize>;

    fn opens(&mut self, site: Site, start: u64, around: &[OpenStep<Option<usize>>]) -> Option<usize> {
        self.add(RequestSpan { site, depth: around.len(), start, end: None })
    }

    fn closes(&mut self, place: Option<usize>, at: u64) {
        if let Some(place) = place {
            self.spans[place].end = Some(at);
        }
    }

    fn passes(&mut self, site: Site, stretch: TraceStretch, around: &[OpenStep<Option<usize>>]) {
        let TraceStretch { from: start, to } = stretch;
        let (depth, end) = (around.len(), Some(to));
        match self.spans.last_mut() {
            // One more call of the step before, such as a filter's: it goes on.
            Some(last) if (last.site, last.depth, last.end) == (site, depth, Some(start)) => last.end = end,
            _ => {
                self.add(RequestSpan { site, depth, start, end });
            }
        }
    }

    fn waits(&mut self, kind: WaitKind, stretch: TraceStretch, _inside: Option<&Option<usize>>) {
        if self.waits.len() < MOST {
            self.waits.push(SpanWait { kind, start: stretch.from, end: stretch.to });
        } else {
            self.left_out += 1;
        }
    }
}

/// The record, the steps and the waits of a request as one line; `story` is what is known of blocked loops.
pub(super) fn json(kept: &KeptRequest, story: &str) -> String {
    let mut found = RequestSpans::default();
    walk(kept, 0, &mut found);
    let sites = SiteTable::global();
    let record = weir_trace::render::record_json(kept.record(), sites, &scale);
    JsonWriter::object(|json| {
        json.key("why").text(kept.why().as_str());
        json.key("record").raw(record);
        json.key("story").text(story);
        json.key("left_out").raw(found.left_out);
        json.key("folded").raw(kept.is_folded());
        json.key("spans").list(|json| {
            for span in &found.spans {
                json.nested(|json| write(json, span, &sites.info(span.site)));
            }
        });
        json.key("waits").list(|json| {
            for wait in &found.waits {
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

/// Steps at most, and waits.
const MOST: usize = 2_000;

#[cfg(test)]
mod tests {
    use weir_http::json::JsonValue;
    use weir_trace::walk::TraceWalk;
    use weir_trace::{EventKind, Recorder, RecorderSettings, RequestRecord, SiteKind, Trace};

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
        let mut found = RequestSpans::default();
        walk(&kept, 0, &mut found);
        let spans: Vec<_> =
            found.spans.iter().map(|span| (span.site, span.depth, span.start, span.end)).collect();
        assert_eq!(
            spans,
            [
                (content, 0, 10, Some(550)),
                (peer, 1, 20, Some(540)),
                // Two calls in a row are one step.
                (Site::COPY, 0, 550, Some(570)),
            ]
        );
        let waits: Vec<_> = found.waits.iter().map(|wait| (wait.kind, wait.start, wait.end)).collect();
        assert_eq!(waits, [(WaitKind::UpstreamFirstByte, 30, 530)]);
        let json = JsonValue::parse(json(&kept, "a \"story\"").as_bytes()).expect("valid JSON");
        assert_eq!(json.field("story").and_then(JsonValue::text), Some("a \"story\""));
        assert_eq!(json.field("spans").and_then(JsonValue::list).map(<[_]>::len), Some(3));
    }

    #[test]
    fn many_steps_are_cut_and_counted() {
        let site = SiteTable::global().intern(SiteKind::LuaResume, "/spans", "many");
        let (mut walk, mut found) = (TraceWalk::new(0), RequestSpans::default());
        for _ in 0..3 * MOST {
            walk.take(EventKind::Begin, site, 1, &mut found);
            walk.take(EventKind::Suspend, Site::NONE, 1, &mut found);
            walk.take(EventKind::Resume, Site(0), 1, &mut found);
            walk.take(EventKind::End, site, 1, &mut found);
        }
        assert!(found.spans.len() == MOST && found.waits.len() == MOST);
        assert!(found.spans.iter().all(|span| span.end == Some(span.start + 3)));
        assert_eq!(found.left_out, 4 * MOST as u64, "two thirds of both");
    }
}
