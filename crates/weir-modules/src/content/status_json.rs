//! `status_json`: numbers of the server as H2O's `status` handler has them, in JSON, with a page that shows them.

use std::fmt::Write as _;
use std::sync::LazyLock;

use weir_conf::Directive;
use weir_conf::names::{LOCATION, NONE, SERVER};
use weir_engine::body::{BodyBuf, ResponseBody};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::plan::PlanBuilder;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::worker::WorkerCounts;
use weir_engine::{Exchange, Handler, Module, Verdict};
use weir_http::Method;

/// The module `status_json`.
pub struct StatusJson;

impl Module for StatusJson {
    const NAME: &'static str = "status_json";
    type Conf = StatusJsonConf;
    const DIRECTIVES: &'static [Directive<StatusJsonConf>] =
        &[Directive::<StatusJsonConf>::new("status_json", SERVER.or(LOCATION), NONE, |conf, line| {
            line.ext::<ConfRegistry>().claim_content(Self::NAME);
            conf.on = true;
            Ok(())
        })
        .syntax("status_json")
        .doc(
            "Responds with the numbers of the server: below the location at `/json` in JSON, by the \
             names that H2O's `status` handler has for them, elsewhere as a page.",
        )
        .example("location /server-status {\n    status_json;\n    allow 127.0.0.1;\n    deny all;\n}")];

    fn install(conf: &StatusJsonConf, plan: &mut PlanBuilder<'_>) {
        if conf.on {
            LazyLock::force(&STARTED);
            plan.content(Self::NAME, StatusReport);
        }
    }
}

/// The setting of one block; it is not inherited.
#[derive(Default)]
pub struct StatusJsonConf {
    on: bool,
}

struct StatusReport;

impl Handler for StatusReport {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        if !matches!(x.request.head.method, Method::Get | Method::Head) {
            return Verdict::Status(405);
        }
        let members = members(x);
        let (kind, body) = match x.uri().ends_with(b"/json") {
            true => ("text/plain; charset=utf-8", json(&members)),
            false => ("text/html; charset=utf-8", page(&members)),
        };
        x.response.status = 200;
        x.response.content_type = Some(kind.into());
        x.add_response_field(b"Cache-Control", "no-cache, no-store".into());
        x.respond(ResponseBody::Whole(BodyBuf::Bytes(body.into_bytes())))
    }
}

/// When the process was configured first, in seconds since 1970.
static STARTED: LazyLock<u64> = LazyLock::new(|| weir_rt::clock::unix_time().0);

/// Names and values; a value is JSON.
type StatusMembers = Vec<(&'static str, String)>;

fn members(x: &Exchange) -> StatusMembers {
    let counts = x.worker.counts();
    let product = &x.server.settings.product.full;
    let now = weir_rt::unix_time().0 as i64;
    let started = *STARTED as i64;
    let text = |text: &str| {
        let mut out = vec![b'"'];
        weir_http::escape::json(&mut out, text.as_bytes());
        out.push(b'"');
        String::from_utf8_lossy(&out).into_owned()
    };
    let mut members = vec![
        ("server-version", text(product)),
        ("current-time", text(&moment(now))),
        ("restart-time", text(&moment(started))),
        ("uptime", now.saturating_sub(started).to_string()),
        ("worker-threads", x.worker.colleagues().to_string()),
        ("max-connections", (x.worker.most() * x.worker.colleagues() as u64).to_string()),
    ];
    members.extend(connections(&counts));
    members
}

fn connections(counts: &WorkerCounts) -> [(&'static str, String); 5] {
    [
        ("connections", counts.active.to_string()),
        ("connections.idle", counts.waiting.to_string()),
        ("connections.active", (counts.active.saturating_sub(counts.waiting)).to_string()),
        ("connections.accepted", counts.accepted.to_string()),
        ("requests.total", counts.requests.to_string()),
    ]
}

/// Seconds since 1970 as HTTP writes them.
fn moment(seconds: i64) -> String {
    String::from_utf8_lossy(&weir_http::date::http(seconds)).into_owned()
}

fn json(members: &StatusMembers) -> String {
    let mut out = String::from("{\n");
    for (at, (name, value)) in members.iter().enumerate() {
        let end = if at + 1 < members.len() { "," } else { "" };
        let _infallible = writeln!(out, " \"{name}\": {value}{end}");
    }
    out + "}\n"
}

fn page(members: &StatusMembers) -> String {
    let mut out =
        String::from("<!DOCTYPE html>\n<title>Server status</title>\n<h1>Server status</h1>\n<table>\n");
    for (name, value) in members {
        let mut shown = Vec::new();
        weir_http::escape::html(&mut shown, value.trim_matches('"').as_bytes());
        let shown = String::from_utf8_lossy(&shown);
        let _infallible = writeln!(out, "<tr><th align=\"left\">{name}<td>{shown}");
    }
    out + "</table>\n<p><a href=\"json\">JSON</a>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_json_and_as_a_page() {
        let members = vec![("a", "1".to_owned()), ("b.c", "\"x<y\"".to_owned())];
        assert_eq!(json(&members), "{\n \"a\": 1,\n \"b.c\": \"x<y\"\n}\n");
        assert!(page(&members).contains("<th align=\"left\">b.c<td>x&lt;y\n"));
    }
}
