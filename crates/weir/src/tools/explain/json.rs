//! `weir explain-config --json`

use weir_engine::rehearsal::{RehearsalEnd, RehearsalStep, RehearsedBody};
use weir_http::json::JsonWriter;

use super::ExplainedRequest;

/// One object.
pub(super) fn shown(explained: &ExplainedRequest<'_>) -> String {
    JsonWriter::object(|json| {
        let (request, evaluation) = (explained.request, &explained.evaluation);
        json.key("method").text(&request.method);
        json.key("host").text(&request.authority);
        json.key("target").text(&request.target);
        json.key("client").text(&request.client.to_string());
        json.key("listen").text(&evaluation.address.name);
        json.key("tls").raw(evaluation.address.ssl && request.tls);
        json.key("other_addresses")
            .list(|json| evaluation.address.others.iter().for_each(|name| json.text(name)));
        json.key("server").text(&evaluation.course.server);
        place(json, explained, evaluation.course.place);
        json.key("server_reason").text(&evaluation.course.reason);
        json.key("steps").list(|json| explained.steps().iter().for_each(|it| step(json, explained, it)));
        json.key("result").nested(|json| end(json, &evaluation.course.rehearsal.end));
        json.key("fields").list(|json| {
            for (name, value) in &evaluation.course.rehearsal.fields {
                json.nested(|json| {
                    json.key("name").text(name);
                    json.key("value").text(value);
                });
            }
        });
        json.key("unknown").list(|json| modules(json, explained.unknown()));
        json.key("error_log").list(|json| evaluation.messages.iter().for_each(|line| json.text(line)));
        json.key("handlers").list(|json| modules(json, evaluation.course.handlers.clone()));
        json.key("directives").list(|json| {
            for line in &explained.directives {
                json.nested(|json| {
                    json.key("text").text(&line.text);
                    json.key("origin").text(line.origin.name());
                    optional(json, "place", line.place.as_deref());
                });
            }
        });
    })
}

fn optional(json: &mut JsonWriter, key: &str, text: Option<&str>) {
    match text {
        Some(text) => json.key(key).text(text),
        None => json.key(key).raw("null"),
    }
}

fn place(json: &mut JsonWriter, explained: &ExplainedRequest<'_>, span: Option<weir_conf::Span>) {
    optional(json, "place", span.map(|span| explained.plan.place(span)).as_deref());
}

fn modules(json: &mut JsonWriter, found: Vec<(&'static str, String)>) {
    for (phase, module) in found {
        json.nested(|json| {
            json.key("phase").text(phase);
            json.key("module").text(&module);
        });
    }
}

fn step(json: &mut JsonWriter, explained: &ExplainedRequest<'_>, step: &RehearsalStep) {
    json.nested(|json| match step {
        RehearsalStep::Entered { uri, name, place: span } => {
            json.key("step").text("location");
            json.key("uri").text(uri);
            match span {
                Some(span) => json.key("block").text(&explained.block(*span)),
                None => json.key("block").text(name),
            }
            place(json, explained, *span);
        }
        RehearsalStep::Asked { phase, module, verdict, place: span } => {
            json.key("step").text("handler");
            json.key("phase").text(phase.name());
            json.key("module").text(module);
            json.key("verdict").text(verdict);
            place(json, explained, *span);
        }
        RehearsalStep::Skipped { phase, module } => {
            json.key("step").text("not run");
            json.key("phase").text(phase.map_or("header filter", |phase| phase.name()));
            json.key("module").text(module);
        }
        RehearsalStep::Rewritten { uri } => {
            json.key("step").text("rewritten");
            json.key("uri").text(uri);
        }
        RehearsalStep::Redirected { to, status } => {
            json.key("step").text("internal redirect");
            json.key("to").text(to);
            match status {
                Some(status) => json.key("error_page").raw(status),
                None => json.key("error_page").raw("null"),
            }
        }
    });
}

fn end(json: &mut JsonWriter, end: &RehearsalEnd) {
    match end {
        RehearsalEnd::Response { status, body } => {
            json.key("kind").text("response");
            json.key("status").raw(status);
            match body {
                RehearsedBody::Text(bytes) => json.key("body").text(&String::from_utf8_lossy(bytes)),
                RehearsedBody::File(path, len) => {
                    json.key("file").text(path);
                    json.key("length").raw(len);
                }
                RehearsedBody::Empty | RehearsedBody::Stream => {}
            }
        }
        RehearsalEnd::Upstream(upstream) => {
            json.key("kind").text("upstream");
            json.key("upstream").text(&upstream.name);
            json.key("scheme").text(upstream.scheme);
            optional(json, "method", upstream.method);
            json.key("peers").list(|json| upstream.peers.iter().for_each(|peer| json.text(peer)));
            optional(json, "request", upstream.request.as_deref());
            json.key("cached").raw(upstream.is_cached);
        }
        RehearsalEnd::Unknown(module) => {
            json.key("kind").text("unknown");
            json.key("module").text(module);
        }
        RehearsalEnd::Closed(status) => {
            json.key("kind").text("closed");
            json.key("status").raw(status);
        }
    }
}
