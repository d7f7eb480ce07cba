//! Rehearsals: what would become of a request, without serving it.
//!
//! The request goes through the real server selection, phases, rewrites, internal redirects, error pages and header filters.
//! What has an effect outside of it, or needs something outside that may respond otherwise the next time, is left out and
//! named: scripts, subrequests, limits, upstreams ([`HandlerRehearsal`](crate::rehearsed::HandlerRehearsal)).

use std::hash::{DefaultHasher, Hash, Hasher};

use weir_http::{KnownField, Span, TraceParent};
use weir_trace::SiteTable;

use crate::body::{BodyBuf, ResponseBody};
use crate::engine::phases::PhaseWalk;
use crate::engine::{self, NextStep, RequestCourse};
use crate::exchange::Exchange;
use crate::output;
use crate::phase::{Phase, Verdict};
use crate::redirect::InternalRedirect;
use crate::rehearsed::{PhaseEnd, RehearsalNotes};
use crate::request_head::HeadFailure;

pub use crate::rehearsed::{RehearsalStep, RehearsedUpstream};

/// What would become of a request.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// What happened on the way, in order.
    pub steps: Vec<RehearsalStep>,
    /// What it came to.
    pub end: RehearsalEnd,
    /// The fields of the response, without those that each response has; of a response of an upstream those that would be
    /// added to one with status 200.
    pub fields: Vec<(String, String)>,
}

/// What a rehearsed request came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RehearsalEnd {
    /// A response that the server makes itself.
    Response {
        /// Its status.
        status: u16,
        /// Its body.
        body: RehearsedBody,
    },
    /// It would be passed to an upstream.
    Upstream(Box<RehearsedUpstream>),
    /// It would be responded to by a handler that was not asked: its module.
    Unknown(String),
    /// The connection would be closed without a response; the log has this status.
    Closed(u16),
}

/// The body of a response of the server's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RehearsedBody {
    /// No bytes.
    Empty,
    /// These bytes.
    Text(Vec<u8>),
    /// A file: its path and length.
    File(String, u64),
    /// What is made while it is sent.
    Stream,
}

/// Lets `x`, whose head is read with this result, go through its phases. Nothing of it is sent, logged or counted.
pub async fn rehearse(x: &mut Exchange, head: Result<(), HeadFailure>) -> Rehearsal {
    x.mark_rehearsed();
    number(x);
    let mut notes = RehearsalNotes::default();
    let first = match head {
        Ok(()) => NextStep::Run(Phase::PostRead),
        Err(HeadFailure::Refuse(200)) => {
            (x.response.status, x.response.content_length) = (200, Some(0));
            NextStep::Judge(x.respond(ResponseBody::Empty))
        }
        Err(HeadFailure::Refuse(status)) => NextStep::Judge(Verdict::Status(status)),
        Err(HeadFailure::Silent(status)) => NextStep::Judge(Verdict::Close(status)),
        Err(HeadFailure::Nothing) => NextStep::Judge(Verdict::Close(400)),
    };
    let (end, head) = concluded(x, first, &mut notes).await;
    Rehearsal { steps: notes.steps, end, fields: fields(&head) }
}

/// Gives `x` its number: that of its `traceparent`, else one that equal requests have in common, so that what is chosen by it
/// is the same in two rehearsals.
fn number(x: &Exchange) {
    let parent =
        x.request.span(KnownField::Traceparent).and_then(|span| TraceParent::parse(x.arena.get(span)));
    let head = x.arena.get(Span { start: 0, end: u32::try_from(x.request.head.len).unwrap_or(0) });
    let hash = |part: u8| {
        let mut hasher = DefaultHasher::new();
        (part, head).hash(&mut hasher);
        hasher.finish()
    };
    let trace = u128::from(hash(0)) << 64 | u128::from(hash(1).max(1));
    let own = TraceParent { trace, span: 1, sampled: false };
    x.shared.presence.set_parent(parent.or(Some(own)));
}

/// Goes on until there is nothing left to decide; the head of the response is the second value.
async fn concluded(x: &mut Exchange, first: NextStep, notes: &mut RehearsalNotes) -> (RehearsalEnd, Vec<u8>) {
    let mut course = RequestCourse::default();
    let mut next = first;
    loop {
        next = match next {
            NextStep::Run(phase) => match PhaseWalk::rehearse(x, phase, notes).await {
                PhaseEnd::Verdict(verdict) => NextStep::Judge(verdict),
                PhaseEnd::Upstream(upstream) => {
                    return (RehearsalEnd::Upstream(upstream), foreign(x, notes));
                }
                PhaseEnd::Unknown(module) => return (RehearsalEnd::Unknown(module), foreign(x, notes)),
            },
            NextStep::Judge(Verdict::Respond) => {
                let body = body(x);
                match output::rehearse(x, |site| notes.skip(None, module(site))) {
                    Ok(head) => {
                        let status = x.response.status;
                        return (RehearsalEnd::Response { status, body }, head);
                    }
                    Err(instead) => {
                        course.refused(x);
                        NextStep::Judge(instead)
                    }
                }
            }
            NextStep::Judge(verdict) => match judged(x, &mut course, verdict, notes) {
                Some(next) => next,
                None => return (RehearsalEnd::Closed(x.response.status), Vec::new()),
            },
            NextStep::Responded(_) => return (RehearsalEnd::Closed(x.response.status), Vec::new()),
        };
    }
}

/// Does what a verdict says, and notes redirects.
fn judged(
    x: &mut Exchange,
    course: &mut RequestCourse,
    verdict: Verdict,
    notes: &mut RehearsalNotes,
) -> Option<NextStep> {
    let to = match &verdict {
        Verdict::Redirect(to) => Some(goal(x, to)),
        _ => None,
    };
    let status = (x.response.err_status != 0).then_some(x.response.err_status);
    let next = engine::judge(x, course, verdict);
    if let (Some(to), Some(NextStep::Run(_))) = (to, &next) {
        notes.redirected(x, to, status);
    }
    next
}

fn goal(x: &Exchange, to: &InternalRedirect) -> String {
    let text = |span| String::from_utf8_lossy(x.arena.get(span)).into_owned();
    match *to {
        InternalRedirect::Uri { uri, args } if args.start == args.end => text(uri),
        InternalRedirect::Uri { uri, args } => format!("{}?{}", text(uri), text(args)),
        InternalRedirect::Named(name) => text(name),
    }
}

/// The head that would be made of a response of which nothing is known but its status 200.
fn foreign(x: &mut Exchange, notes: &mut RehearsalNotes) -> Vec<u8> {
    x.response.status = 200;
    output::rehearse(x, |site| notes.skip(None, module(site))).unwrap_or_default()
}

fn module(site: weir_trace::Site) -> String {
    SiteTable::global().info(site).name.to_string()
}

/// The body that a handler has left in the response.
fn body(x: &mut Exchange) -> RehearsedBody {
    if x.response.content_length.is_none() {
        x.response.content_length = match &x.response.body {
            ResponseBody::Empty => Some(0),
            ResponseBody::Whole(buf) => Some(buf.len()),
            ResponseBody::Chain(chain) => Some(chain.len()),
            ResponseBody::Source(_) => None,
        };
    }
    match &x.response.body {
        ResponseBody::Empty => RehearsedBody::Empty,
        ResponseBody::Whole(buf) if matches!(buf, BodyBuf::File { .. }) || is_of_file(x) => {
            let len = buf.len();
            let path = x.variable_by_name("request_filename");
            let path = path.map(|path| String::from_utf8_lossy(x.text(&path)).into_owned());
            RehearsedBody::File(path.unwrap_or_default(), len)
        }
        ResponseBody::Whole(buf) => match buf.memory() {
            Some(bytes) => RehearsedBody::Text(bytes.to_vec()),
            None => RehearsedBody::Stream,
        },
        ResponseBody::Chain(_) | ResponseBody::Source(_) => RehearsedBody::Stream,
    }
}

/// Whether the response is a file's, which may be in memory, and no page for an error that it had.
fn is_of_file(x: &Exchange) -> bool {
    matches!(x.response.status, 200 | 206) && FILES.contains(&&*SiteTable::global().info(x.answered).module)
}

/// Modules whose responses are files.
const FILES: [&str; 2] = ["static", "gzip_static"];

/// The fields of a head, without those that say nothing of the configuration's rules.
fn fields(head: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(head);
    let lines = text.lines().skip(1).filter_map(|line| line.split_once(": "));
    let own = |name: &str| !EVERYWHERE.iter().any(|other| name.eq_ignore_ascii_case(other));
    let fields = lines.filter(|(name, _)| own(name));
    fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Fields of nearly every response.
const EVERYWHERE: [&str; 4] = ["Date", "Server", "Connection", "Transfer-Encoding"];
