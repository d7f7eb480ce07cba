//! What must have become of a stream, and of a connection.

use crate::due::{may_be_cut_off, whole_is_due};
use crate::http2::plan::{Http2ClientPlan, Http2End, Http2Noise, StreamPlan, WindowCredit};
use crate::outcome::{Outcome, secret_fault};
use crate::plan::Plan;

/// What is wrong with what became of a stream's request.
pub(crate) fn fault_of(
    plan: &Plan,
    client: &Http2ClientPlan,
    stream: &StreamPlan,
    outcome: &Outcome<'_>,
) -> Option<String> {
    let target = stream.request.target;
    if let Some(fault) = secret_fault(plan, target, client.tls.as_ref(), outcome) {
        return fault;
    }
    let is_good = match (outcome.end, outcome.why) {
        (_, "waited") => return Some("no response within its time".to_owned()),
        ("whole", _) if stream.is_large() && outcome.status == 400 => outcome.body != "wrong",
        ("whole", _) => return whole_is_due(plan, &stream.request, outcome),
        (_, "cancelled") => stream.cancel.is_some() || resets(client),
        (_, "left") => matches!(client.end, Http2End::Leaves(_) | Http2End::CutAt(_)),
        (_, "broke") => true,
        ("none", "goaway0") => is_ended_early(plan, client),
        // More than are allowed where that is not known yet, or where the end of a cancelled one is still under way.
        ("none", "reset7") => (plan.http2.max_streams as usize) < client.most_streams || cancels(client),
        ("cut", _) if target.is_cut() || may_be_cut_off(plan, &stream.request) => true,
        _ => client.is_rough() || client.credit == WindowCredit::Never,
    };
    (!is_good).then(|| format!("a stream that must be whole is {} ({target:?})", outcome.end))
}

fn cancels(client: &Http2ClientPlan) -> bool {
    resets(client) || client.requests.iter().any(|stream| stream.cancel.is_some())
}

fn resets(client: &Http2ClientPlan) -> bool {
    client.noises.iter().any(|(_, noise)| *noise == Http2Noise::Reset)
}

/// Whether the server may end the connection before all has been asked.
fn is_ended_early(plan: &Plan, client: &Http2ClientPlan) -> bool {
    ends_connections(plan, client) || client.is_rough() || client.end == Http2End::SaysGoaway
}

/// Whether the server's settings end a connection though its client would go on.
fn ends_connections(plan: &Plan, client: &Http2ClientPlan) -> bool {
    let settings = &plan.settings;
    settings.keepalive_requests <= client.requests.len() as u64
        || settings.keepalive_seconds <= 2
        || !plan.reloads.is_empty()
}

/// What is wrong with how a connection has ended, by its line in the journal.
pub(crate) fn connection_fault(plan: &Plan, line: &str) -> Option<String> {
    let rest = line.strip_prefix("c http2=")?;
    let words: Vec<&str> = rest.split(' ').collect();
    let [which, why, goaway, broke, ..] = words[..] else { return Some(format!("what is {line:?}")) };
    let client = plan.http2.clients.get(which.parse::<usize>().ok()?)?;
    // What comes after the server's last word is not judged.
    let may_be_late = goaway == "goaway=0" && ends_connections(plan, client);
    let is_answered = match client.end {
        _ if broke == "broke=false" || may_be_late => true,
        Http2End::Breaks(..) => !matches!(goaway, "goaway=-" | "goaway=0"),
        Http2End::Floods(..) => goaway == "goaway=11",
        _ => true,
    };
    let may_fail = client.tls.zip(plan.tls).is_some_and(|(client, server)| client.may_fail(&server));
    let is_answered = is_answered || may_fail;
    let is_over = why != "why=waited";
    (!is_answered || !is_over).then(|| format!("{:?} has ended so: {line}", client.end))
}
