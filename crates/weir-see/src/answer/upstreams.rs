//! `/upstreams`: groups of servers, what is known of each server, and changes of them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use weir_core::Configuration;
use weir_core::upstream::moving::{Listed, Refusal};
use weir_core::upstream::{Group, Peer, Upstreams};
use weir_http::json::{Json, Value};
use weir_rt::clock;

use crate::source::Source;

/// All groups of `upstream` blocks.
pub(crate) fn all(source: &Source) -> String {
    let configuration = source.configuration();
    let groups = groups(&configuration).filter(|group| !group.implicit);
    Json::array(|json| groups.for_each(|group| describe(json, group))) + "\n"
}

/// One of them; `None`: there is none of this name.
pub(crate) fn one(source: &Source, name: &str) -> Option<String> {
    let mut json = Json::default();
    let group = find(source, name)?;
    describe(&mut json, &group);
    Some(String::from(json) + "\n")
}

/// A change of one group.
pub(crate) enum Change {
    Add(Value),
    Remove(String),
    Edit(String, Value),
    Replace(Value),
}

/// Makes a change, and tells what the group is then; `None`: there is no such group. Workers know of it when this
/// returns: their next choice is among the new members.
pub(crate) fn change(source: &Source, name: &str, change: &Change) -> Option<Result<String, Refusal>> {
    let group = find(source, name)?;
    if let Err(refusal) = apply(&group, change) {
        return Some(Err(refusal));
    }
    // A reload may have taken the list over just before. Then the change is made again where it counts; there it may
    // have been taken over, too.
    let after = find(source, name)?;
    if !Arc::ptr_eq(&after, &group) {
        match apply(&after, change) {
            Ok(()) | Err(Refusal::There | Refusal::Unknown) => {}
            Err(refusal) => return Some(Err(refusal)),
        }
    }
    one(source, name).map(Ok)
}

fn apply(group: &Arc<Group>, change: &Change) -> Result<(), Refusal> {
    match change {
        Change::Add(server) => group.add(server),
        Change::Remove(server) => group.remove(server),
        Change::Edit(server, settings) => group.edit(server, settings),
        Change::Replace(list) => group.replace(list),
    }
}

fn groups(configuration: &Configuration) -> impl Iterator<Item = &Arc<Group>> {
    configuration.tables.shared::<Upstreams>().into_iter().flat_map(Upstreams::iter)
}

fn find(source: &Source, name: &str) -> Option<Arc<Group>> {
    source.configuration().tables.shared::<Upstreams>()?.find(name).cloned()
}

fn describe(json: &mut Json, group: &Group) {
    let listed = group.listed();
    json.nested(|json| {
        json.key("name").text(&group.name);
        json.key("method").text(group.method.name());
        json.key("changed").raw(group.is_moved());
        if let Some(source) = group.source() {
            let status = source.status();
            json.key("source").nested(|json| {
                json.key("place").text(source.place());
                let age = clock::monotonic_ms().saturating_sub(status.taken);
                optional(json, "age_ms", (status.taken > 0).then_some(age));
                match &status.error {
                    Some(error) => json.key("error").text(error),
                    None => json.key("error").raw("null"),
                }
            });
        }
        json.key("servers").list(|json| listed.iter().for_each(|server| describe_server(json, server)));
    });
}

fn describe_server(json: &mut Json, server: &Listed) {
    json.nested(|json| {
        json.key("server").text(&server.server);
        json.key("settings").raw(&server.settings);
        if let Some(resolved) = &server.resolved {
            json.key("resolved").nested(|json| {
                optional(json, "age_ms", resolved.age);
                json.key("stale").raw(resolved.stale);
            });
        }
        json.key("peers").list(|json| server.peers.iter().for_each(|peer| describe_peer(json, peer)));
    });
}

fn describe_peer(json: &mut Json, peer: &Peer) {
    let (state, (now, _)) = (&peer.state, clock::unix_time());
    let totals = state.totals();
    json.nested(|json| {
        json.key("address").text(&peer.name);
        json.key("weight").raw(peer.weight);
        json.key("health").text(peer.health(now).as_str());
        optional(json, "since", Some(state.since()).filter(|since| *since > 0));
        json.key("in_flight").raw(state.conns.load(Relaxed));
        json.key("requests").raw(totals.requests);
        json.key("failed").raw(totals.failed);
        json.key("fails").raw(state.fails.load(Relaxed));
        json.key("latency_us").nested(|json| {
            for (key, q) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
                optional(json, key, totals.quantile(q));
            }
        });
        match state.last.read() {
            None => json.key("last_error").raw("null"),
            Some((cause, at)) => json.key("last_error").nested(|json| {
                json.key("at").raw(at);
                json.key("cause").text(cause.as_str());
            }),
        }
        match state.check() {
            None => json.key("last_failed_check").raw("null"),
            Some(why) => json.key("last_failed_check").text(&why),
        }
    });
}

fn optional(json: &mut Json, key: &str, value: Option<u64>) {
    match value {
        Some(value) => json.key(key).raw(value),
        None => json.key(key).raw("null"),
    }
}
