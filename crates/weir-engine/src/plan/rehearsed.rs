//! What handlers have to do with rehearsals: a request goes through its real phases, but nothing is sent, no upstream is asked
//! and no script runs. A rehearsal asks the handlers that say they may be asked, and notes the names of the others.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use weir_conf::Span;
use weir_trace::SiteTable;

use super::Plan;
use crate::exchange::Exchange;
use crate::phase::{HandlerEntry, Phase, Verdict};

/// What a rehearsal does in the place of a handler.
pub enum HandlerRehearsal {
    /// It asks the handler: that one looks at the request and at files, and changes nothing outside of the request.
    Ask,
    /// It goes on as if the handler had declined: that one has no part in the response.
    Pass,
    /// It notes that the handler was not asked. Before the content it goes on as if the handler had declined; a response
    /// that such a handler makes is not known.
    Unknown,
    /// It ends: the request would be passed to an upstream.
    Upstream(Box<RehearsedUpstream>),
    /// It takes this for what the handler says.
    Decided(Verdict),
}

/// Where a request would be passed to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RehearsedUpstream {
    /// The name in `upstream NAME`, or the host and port that the directive names.
    pub name: String,
    /// What precedes an address: `http://`.
    pub scheme: &'static str,
    /// How a peer is chosen; `None` where the name is resolved for each request.
    pub method: Option<&'static str>,
    /// The peers' addresses.
    pub peers: Vec<String>,
    /// The first line of the request as the upstream would get it; `None` in protocols without such a line.
    pub request: Option<String>,
    /// A cache is asked before the upstream.
    pub is_cached: bool,
}

/// How the phases of a rehearsal ended.
pub(crate) enum PhaseEnd {
    /// With this verdict.
    Verdict(Verdict),
    /// At a content handler that passes the request on.
    Upstream(Box<RehearsedUpstream>),
    /// At a content handler that was not asked: its module.
    Unknown(String),
}

/// One thing that happened in a rehearsal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RehearsalStep {
    /// The request came to the plan of this block.
    Entered {
        /// The path it had.
        uri: String,
        /// The location as traces name it.
        name: Rc<str>,
        /// Where the block begins; `None` of what has no block.
        place: Option<Span>,
    },
    /// A handler was asked.
    Asked {
        /// The phase.
        phase: Phase,
        /// The handler's module.
        module: String,
        /// What it decided, in a word or two; empty where it had nothing to say.
        verdict: String,
        /// Where the block begins whose handler it is.
        place: Option<Span>,
    },
    /// A handler was not asked.
    Skipped {
        /// The phase; `None` of a header filter.
        phase: Option<Phase>,
        /// The handler's module.
        module: String,
    },
    /// A handler changed the path or the arguments to these.
    Rewritten {
        /// Path and arguments.
        uri: String,
    },
    /// An internal redirect.
    Redirected {
        /// Where to: a path with its arguments, or `@name`.
        to: String,
        /// The status whose `error_page` it is; `None` of other redirects.
        status: Option<u16>,
    },
}

/// Lent to modules while a configuration is read that is rehearsed only, as a value that it shares: nothing runs because it
/// is loaded.
#[derive(Default)]
pub struct RehearsedConfiguration;

/// What is noted during a rehearsal.
#[derive(Default)]
pub(crate) struct RehearsalNotes {
    /// What happened, in order.
    pub(crate) steps: Vec<RehearsalStep>,
    /// The plan that was entered last, and the path and arguments then.
    at: Option<(Rc<Plan>, String)>,
}

/// Marks an exchange as rehearsed, for what runs inside of a handler that is asked.
#[derive(Default)]
struct RehearsalMark {
    skipped: Vec<String>,
}

impl Exchange {
    /// Whether nothing is to happen because of it, see [`HandlerRehearsal`].
    pub fn is_rehearsed(&self) -> bool {
        self.lasting_if(|_: &RehearsalMark| ()).is_some()
    }

    /// Notes that `what` was left out, which is known only when it runs.
    pub fn leave_out(&mut self, what: impl Into<String>) {
        self.lasting(|mark: &mut RehearsalMark| mark.skipped.push(what.into()));
    }

    /// Makes it a rehearsed one.
    pub(crate) fn mark_rehearsed(&mut self) {
        self.lasting(|_: &mut RehearsalMark| ());
    }
}

impl RehearsalNotes {
    /// Notes where `x` is, if that is another place than before.
    pub(crate) fn moved(&mut self, x: &Exchange) {
        let uri = full_uri(x);
        let before = self.at.as_ref();
        if before.is_some_and(|(plan, seen)| Rc::ptr_eq(plan, &x.plan) && *seen == uri) {
            return;
        }
        if before.is_some_and(|(_, seen)| *seen != uri) {
            self.steps.push(RehearsalStep::Rewritten { uri: uri.clone() });
        }
        // The server's plan is that of the phases before the location.
        let known = before.is_some_and(|(plan, _)| Rc::ptr_eq(plan, &x.plan));
        if !known && !Rc::ptr_eq(&x.plan, &x.server.plan) {
            self.steps.push(RehearsalStep::Entered {
                uri: String::from_utf8_lossy(x.uri()).into_owned(),
                name: x.plan.name.clone(),
                place: x.plan.place,
            });
        }
        self.at = Some((x.plan.clone(), uri));
    }

    /// The path that an internal redirect has set is no rewrite.
    pub(crate) fn redirected(&mut self, x: &Exchange, to: String, status: Option<u16>) {
        self.steps.push(RehearsalStep::Redirected { to, status });
        self.at = None;
        if !Rc::ptr_eq(&x.plan, &x.server.plan) {
            self.moved(x);
        } else {
            self.at = Some((x.plan.clone(), full_uri(x)));
        }
    }

    /// Notes what was not asked.
    pub(crate) fn skip(&mut self, phase: Option<Phase>, module: String) {
        self.steps.push(RehearsalStep::Skipped { phase, module });
    }

    /// What the handler says, or what is taken for it where it is not run.
    pub(crate) async fn ask(&mut self, x: &mut Exchange, entry: &HandlerEntry) -> PhaseEnd {
        let (phase, place) = (entry.phase, x.plan.place);
        let module = SiteTable::global().info(entry.site).name.to_string();
        let verdict = match entry.handler.rehearsal(x) {
            HandlerRehearsal::Ask => asked(x, entry).await,
            HandlerRehearsal::Decided(verdict) => verdict,
            HandlerRehearsal::Pass => return PhaseEnd::Verdict(Verdict::Declined),
            HandlerRehearsal::Upstream(upstream) => return PhaseEnd::Upstream(upstream),
            HandlerRehearsal::Unknown if phase == Phase::Content => return PhaseEnd::Unknown(module),
            HandlerRehearsal::Unknown => {
                self.skip(Some(phase), module);
                return PhaseEnd::Verdict(Verdict::Declined);
            }
        };
        self.skip_all(x, phase);
        let said = words(x, &verdict);
        self.steps.push(RehearsalStep::Asked { phase, module, verdict: said, place });
        PhaseEnd::Verdict(verdict)
    }

    /// What a handler has left out of itself.
    fn skip_all(&mut self, x: &mut Exchange, phase: Phase) {
        for module in x.lasting(|mark: &mut RehearsalMark| std::mem::take(&mut mark.skipped)) {
            self.skip(Some(phase), module);
        }
    }
}

/// Asks a handler, and waits for it.
async fn asked(x: &mut Exchange, entry: &HandlerEntry) -> Verdict {
    match entry.handler.handle(x) {
        Verdict::Wait => {}
        verdict => return verdict,
    }
    match poll_fn(|cx| Poll::Ready(entry.handler.poll(x, cx))).await {
        Poll::Ready(Verdict::Wait) | Poll::Pending => entry.handler.wait(x).await,
        Poll::Ready(verdict) => verdict,
    }
}

fn words(x: &Exchange, verdict: &Verdict) -> String {
    match verdict {
        Verdict::Declined | Verdict::Passed | Verdict::Wait => String::new(),
        Verdict::Ok => "allows".to_owned(),
        Verdict::Done => "responds".to_owned(),
        Verdict::Respond if x.response.status == 0 => "responds".to_owned(),
        Verdict::Respond => format!("responds with {}", x.response.status),
        Verdict::Status(status) => format!("{status}"),
        Verdict::Redirect(_) => "redirects internally".to_owned(),
        Verdict::Close(status) => format!("closes the connection ({status})"),
    }
}

/// Path and arguments.
fn full_uri(x: &Exchange) -> String {
    let (uri, args) = (String::from_utf8_lossy(x.uri()), String::from_utf8_lossy(x.args()));
    if args.is_empty() { uri.into_owned() } else { format!("{uri}?{args}") }
}
