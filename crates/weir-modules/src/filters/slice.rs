//! `slice`: fetches a long response in parts of equal size, each by a request of its own (nginx's
//! `ngx_http_slice_filter_module`).
//!
//! Caches then store parts, and servers send only what is requested. The first part's head becomes that of the whole
//! response. When its body has ended, a subrequest that is served by the same location fetches the next part. The last
//! part is that at the end of the whole, or of the range that the client requests.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use weir_conf::Directive;
use weir_conf::names::{ANY, ONE};
use weir_engine::body::BodyChain;
use weir_engine::error::{EngineError, EngineErrorKind, FaultSide};
use weir_engine::filter::{BodyFilter, FilterSlot, FilterStep, HeaderFilter};
use weir_engine::plan::PlanBuilder;
use weir_engine::subrequest::IncludedRequest;
use weir_engine::variable::Variable;
use weir_engine::{Exchange, Module, Text, Verdict, inherit};
use weir_http::KnownField;
use weir_http::range::{self, ByteRange};
use weir_trace::{Site, SiteKind};

/// The module `slice`.
pub struct Slice;

impl Module for Slice {
    const NAME: &'static str = "slice";
    type Conf = SliceConf;
    const DIRECTIVES: &'static [Directive<SliceConf>] =
        &[SliceRow::new("slice", ANY, ONE, |conf, line| line.offset(&mut conf.size))
            .syntax("slice size")
            .default("0")
            .doc(
                "Requests a response from the upstream in parts of this size, whose range is \
                 in `$slice_range`, so that each part is cached by itself; 0 disables \
                 splitting.",
            )
            .example(
                "proxy_cache_path cache keys_zone=videos:10m;\n\
                 server {\n\
                 \x20   location /video/ {\n\
                 \x20       slice 1m;\n\
                 \x20       proxy_cache videos;\n\
                 \x20       proxy_cache_key $uri$slice_range;\n\
                 \x20       proxy_set_header Range $slice_range;\n\
                 \x20       proxy_pass http://127.0.0.1:8080;\n\
                 \x20   }\n\
                 }",
            )];
    const VARIABLES: &'static [Variable] = &[Variable::new("slice_range", slice_range).volatile()];

    fn inherit(conf: &mut SliceConf, parent: &SliceConf) {
        inherit!(conf, parent, size);
    }

    fn install(conf: &SliceConf, plan: &mut PlanBuilder<'_>) {
        if let Some(size) = conf.size.filter(|size| *size > 0) {
            plan.keep(SliceSize(size));
            let body = plan.site(SiteKind::BodyFilter, Self::NAME);
            plan.header_filter(FilterSlot::Slice, Self::NAME, SliceFilter { body });
        }
    }
}

/// Gives the closures of the table the type of their argument.
type SliceRow = Directive<SliceConf>;

/// The settings of one block.
#[derive(Default)]
pub struct SliceConf {
    size: Option<u64>,
}

/// `slice`, stored with the plan.
struct SliceSize(u64);

/// How far the parts of one response have come; the request and the subrequests for its parts share it.
struct SliceProgress {
    size: u64,
    /// The first byte of the part that is asked for.
    start: Cell<u64>,
    /// The offset after the last byte of the part that is coming.
    end: Cell<u64>,
    /// Bytes of that part that have not come yet.
    left: Cell<u64>,
    /// The head of the part that was asked for last has come, and fits.
    active: Cell<bool>,
    /// What of the whole goes to the client; known after the header filters.
    wanted: Cell<ByteRange>,
    etag: RefCell<Vec<u8>>,
    /// A part does not fit, which was logged.
    broken: Cell<bool>,
}

/// The [`SliceProgress`] of a request for a part.
#[derive(Default)]
struct SlicedRequest(Option<Rc<SliceProgress>>);

fn progress(x: &Exchange) -> Option<Rc<SliceProgress>> {
    x.state_if::<SlicedRequest>().and_then(|slicing| slicing.0.clone())
}

/// `$slice_range`: the part that is to be asked for. A reader of the variable before there is a response wants parts.
fn slice_range(x: &mut Exchange) -> Option<Text> {
    let progress = match progress(x) {
        Some(progress) => progress,
        None if x.is_subrequest() || x.response.status != 0 => return None,
        None => begin(x)?,
    };
    let (start, last) = (progress.start.get(), progress.start.get().saturating_add(progress.size) - 1);
    Some(Text::Span(x.arena.push(format!("bytes={start}-{last}").as_bytes())))
}

fn begin(x: &mut Exchange) -> Option<Rc<SliceProgress>> {
    let size = x.plan.kept::<SliceSize>()?.0;
    let asked = match x.request.value(&x.arena, KnownField::Range) {
        // What it is compared with is known only with the first part's head.
        Some(range) if x.request.head.field(KnownField::IfRange).is_none() => range::first_byte(range),
        _ => 0,
    };
    let progress = Rc::new(SliceProgress {
        size,
        start: Cell::new(asked - asked % size),
        end: Cell::new(0),
        left: Cell::new(0),
        active: Cell::new(false),
        wanted: Cell::new(ByteRange { start: 0, end: u64::MAX }),
        etag: RefCell::default(),
        broken: Cell::new(false),
    });
    x.state::<SlicedRequest>().0 = Some(progress.clone());
    Some(progress)
}

struct SliceFilter {
    /// Where what is done with bodies goes.
    body: Site,
}

impl HeaderFilter for SliceFilter {
    fn is_rehearsable(&self) -> bool {
        true
    }

    fn filter(&self, x: &mut Exchange) -> Verdict {
        let Some(progress) = progress(x) else { return Verdict::Ok };
        if x.response.status != 206 {
            if x.is_subrequest() {
                let status = x.response.status;
                return progress.fail(x, format_args!("unexpected status code {status} in slice response"));
            }
            x.state::<SlicedRequest>().0 = None;
            return Verdict::Ok;
        }
        let (part, whole) = match progress.check(x) {
            Ok(found) => found,
            Err(verdict) => return verdict,
        };
        progress.end.set(part.end);
        progress.left.set(part.size());
        progress.active.set(true);
        if x.is_subrequest() {
            x.body_filter(FilterSlot::RangeBody, self.body, SlicePart { progress, at: part.start });
        } else {
            become_whole(x, part, whole);
            x.includes();
            let (whole, begun, ended) = (whole, false, false);
            x.body_filter(FilterSlot::Slice, self.body, SliceBody { progress, whole, begun, ended });
        }
        Verdict::Ok
    }
}

impl SliceProgress {
    /// The part that comes, which is the one that was asked for, and the length of the whole.
    fn check(&self, x: &Exchange) -> Result<(ByteRange, u64), Verdict> {
        if let Some(etag) = x.response.etag() {
            let etag = x.text(etag);
            let mut first = self.etag.borrow_mut();
            if !first.is_empty() && *first != etag {
                return Err(self.fail(x, format_args!("etag mismatch in slice response")));
            }
            *first = etag.to_vec();
        }
        let value = x.response.header(KnownField::ContentRange).map(|value| x.text(value));
        let Some((part, whole)) = value.and_then(range::parse_content_range) else {
            return Err(self.fail(x, format_args!("invalid range in slice response")));
        };
        let Some(whole) = whole else {
            return Err(self.fail(x, format_args!("no complete length in slice response")));
        };
        let start = self.start.get();
        let end = start.saturating_add(self.size).min(whole);
        if (part.start, part.end) != (start, end) {
            let ByteRange { start: from, end: to } = part;
            let why =
                format_args!("unexpected range in slice response: {from}-{to}, expected: {start}-{end}");
            return Err(self.fail(x, why));
        }
        Ok((part, whole))
    }

    /// Logs why, and breaks the connection off: what was sent, if anything, is not whole.
    fn fail(&self, x: &Exchange, why: std::fmt::Arguments<'_>) -> Verdict {
        self.broken.set(true);
        x.log_error(&why);
        x.abandon(x.response.status)
    }
}

/// The head of the first part becomes that of a whole whose body begins with `part`.
fn become_whole(x: &mut Exchange, part: ByteRange, whole: u64) {
    let response = &mut x.response;
    response.status = 200;
    response.reason = None;
    response.content_length = Some(whole);
    response.content_offset = part.start;
    response.remove(KnownField::ContentRange);
    response.remove(KnownField::AcceptRanges);
    response.allow_ranges = true;
    response.single_range = true;
}

/// The request's own body filter: after each part comes the next.
struct SliceBody {
    progress: Rc<SliceProgress>,
    whole: u64,
    /// The header filters are through.
    begun: bool,
    /// The first part, which is the request's own response, is over.
    ended: bool,
}

impl BodyFilter for SliceBody {
    fn step(
        &mut self,
        x: &mut Exchange,
        input: &mut BodyChain,
        output: &mut BodyChain,
    ) -> Result<FilterStep, EngineError> {
        let progress = &self.progress;
        if !self.begun {
            self.begun = true;
            progress.wanted.set(wanted(x, self.whole));
        }
        self.ended |= std::mem::take(&mut input.last);
        progress.left.set(progress.left.get().saturating_sub(input.len()));
        output.append(input);
        if !self.ended {
            return Ok(FilterStep::More);
        }
        if !progress.active.get() || progress.left.get() > 0 {
            if !progress.broken.get() {
                x.log_error(&"missing slice response");
            }
            return Err(EngineError {
                kind: EngineErrorKind::Protocol,
                side: FaultSide::Upstream,
                errno: None,
            });
        }
        let wanted = progress.wanted.get();
        // Parts before the first one that is wanted are not fetched.
        let next = progress.end.get().max(wanted.start - wanted.start % progress.size);
        if next >= wanted.end {
            output.last = true;
            return Ok(FilterStep::More);
        }
        progress.start.set(next);
        progress.active.set(false);
        let shared = progress.clone();
        let again = Box::new(move |part: &mut Exchange| part.state::<SlicedRequest>().0 = Some(shared));
        Ok(FilterStep::Include(Box::new(IncludedRequest {
            again: Some(again),
            wait: true,
            ..IncludedRequest::default()
        })))
    }

    fn in_memory(&self) -> bool {
        false
    }
}

/// What of the whole goes to the client.
fn wanted(x: &Exchange, whole: u64) -> ByteRange {
    match (x.response.status, x.response.content_length) {
        (206, Some(length)) => {
            let start = x.response.content_offset;
            ByteRange { start, end: start.saturating_add(length).min(whole) }
        }
        _ => ByteRange { start: 0, end: whole },
    }
}

/// The body filter of a later part: cuts off what the client did not ask for.
struct SlicePart {
    progress: Rc<SliceProgress>,
    /// Where in the whole the next byte is.
    at: u64,
}

impl BodyFilter for SlicePart {
    fn step(
        &mut self,
        _: &mut Exchange,
        input: &mut BodyChain,
        output: &mut BodyChain,
    ) -> Result<FilterStep, EngineError> {
        let wanted = self.progress.wanted.get();
        while let Some(buf) = input.pop() {
            let len = buf.len();
            output.push(buf.slice(wanted.start.saturating_sub(self.at), wanted.end.saturating_sub(self.at)));
            self.at += len;
            self.progress.left.set(self.progress.left.get().saturating_sub(len));
        }
        output.append(input);
        Ok(FilterStep::More)
    }

    fn in_memory(&self) -> bool {
        false
    }
}
