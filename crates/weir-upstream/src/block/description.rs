//! Upstreams in JSON, for the admin listener and for scripts: docs/reference/admin.yaml has the keys.

use std::sync::atomic::Ordering::Relaxed;

use weir_http::json::JsonWriter;
use weir_rt::clock;

use crate::block::list_changes::ListedServer;
use crate::block::upstream::Upstream;
use crate::peer::Peer;

impl Upstream {
    /// Writes what is known of the upstream and its servers.
    pub fn describe(&self, json: &mut JsonWriter) {
        let listed = self.listed();
        json.nested(|json| {
            json.key("name").text(&self.name);
            json.key("method").text(self.method.name());
            json.key("changed").raw(self.is_moved());
            if let Some(source) = self.source() {
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
}

fn describe_server(json: &mut JsonWriter, server: &ListedServer) {
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

fn describe_peer(json: &mut JsonWriter, peer: &Peer) {
    let (state, (now, _)) = (&peer.state, clock::unix_time());
    let totals = state.totals();
    json.nested(|json| {
        json.key("address").text(&peer.name);
        json.key("weight").raw(peer.weight);
        json.key("health").text(peer.health(now).as_str());
        optional(json, "since", Some(state.since()).filter(|since| *since > 0));
        json.key("in_flight").raw(state.in_flight());
        json.key("requests").raw(totals.requests);
        json.key("failed").raw(totals.failed);
        json.key("faults").raw(totals.faults);
        json.key("refused").raw(totals.refused);
        json.key("reset").raw(totals.reset);
        json.key("repeated").raw(totals.repeated);
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

fn optional(json: &mut JsonWriter, key: &str, value: Option<u64>) {
    match value {
        Some(value) => json.key(key).raw(value),
        None => json.key(key).raw("null"),
    }
}
