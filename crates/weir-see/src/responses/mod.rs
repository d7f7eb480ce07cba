//! Responses: what a query finds in the server, as text for people or as JSON.

pub(crate) mod average;
pub(crate) mod blocked;
mod bt;
mod capacity;
pub(crate) mod certificates;
mod compare;
mod conf_lines;
mod figures;
pub(crate) mod flame;
mod flame_off;
pub(crate) mod history;
pub(crate) mod kept_requests;
pub(crate) mod level;
pub(crate) mod lines;
mod log_lines;
mod perf;
pub(crate) mod queue;
pub(crate) mod record;
pub(crate) mod reply;
pub(crate) mod reqs;
pub(crate) mod sites;
mod spans;
mod tls;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod upstreams;
pub(crate) mod usage;
pub(crate) mod why;

use crate::control::protocol::ControlQuestion;
use crate::source::ServerSource;

use reply::{ReplyFailure, ReplySink};

/// Responds to `question`.
pub(crate) fn respond(
    source: &ServerSource,
    question: &ControlQuestion,
    reply: &mut dyn ReplySink,
) -> Result<(), ReplyFailure> {
    match question.verb.as_str() {
        "trace" => trace::next(source, question, reply),
        "average" => average::respond(source, question, reply),
        "compare" => compare::respond(source, question, reply),
        "lines" => text(reply, lines::lines(source, question)?),
        "text" => text(reply, lines::text(source, question)?),
        "log" => text(reply, log_lines::respond(question)?),
        "reqs" => text(reply, reqs::respond(source, question)?),
        "blocked" => blocked::respond(question, reply),
        "lua" => text(reply, figures::respond(question, "lua", "gc")?),
        "dict" => text(reply, figures::respond(question, "dict", "all")?),
        "bt" => text(reply, bt::respond(question)?),
        "blame" => text(reply, blocked::blame(source, question)),
        "history" => text(reply, history::respond(source, question)?),
        "queue" => queue::respond(source, question, reply),
        "use" => usage::respond(source, question, reply),
        "perf" => perf::respond(source, question, reply),
        "maps" => text(reply, flame::nothing().write()),
        "facts" => text(reply, usage::facts(source)),
        "flame" => flame::respond(source, question, reply),
        "record" => record::respond(source, question, reply),
        "slow" => text(reply, kept_requests::slow(source, question)?),
        "explain" => text(reply, kept_requests::explain(source, question)?),
        "spans" => text(reply, kept_requests::spans(source, question)?),
        "sites" => text(reply, sites::all(source, question)),
        "why" => why::respond(source, question, reply),
        "tls" => tls::respond(source, question, reply),
        "top" => top::respond(source, question, reply),
        "totals" => text(reply, top::totals(source, question)),
        "level" => text(reply, level::level(source, question)?),
        "" => Err(ReplyFailure::Wrong("nothing was asked".to_owned())),
        verb => Err(ReplyFailure::Wrong(format!("this server does not know \"{verb}\""))),
    }
}

fn text(reply: &mut dyn ReplySink, text: String) -> Result<(), ReplyFailure> {
    Ok(reply.out(text.as_bytes())?)
}
