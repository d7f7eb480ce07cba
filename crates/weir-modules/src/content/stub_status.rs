//! `stub_status`: shows the numbers of connections and requests, as a page and as variables (nginx's
//! `ngx_http_stub_status_module`).

use weir_conf::Directive;
use weir_conf::names::{LOCATION, NONE_OR_ONE, SERVER};
use weir_engine::body::{BodyBuf, ResponseBody};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::plan::PlanBuilder;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::variable::Variable;
use weir_engine::worker::WorkerCounts;
use weir_engine::{Exchange, Handler, Module, Text, Verdict};
use weir_http::Method;

/// The module `stub_status`.
pub struct StubStatus;

impl Module for StubStatus {
    const NAME: &'static str = "stub_status";
    type Conf = StubStatusConf;
    const DIRECTIVES: &'static [Directive<StubStatusConf>] =
        &[Directive::<StubStatusConf>::new("stub_status", SERVER.or(LOCATION), NONE_OR_ONE, |conf, line| {
            line.ext::<ConfRegistry>().claim_content(Self::NAME);
            conf.on = true;
            Ok(())
        })
        .syntax("stub_status [parameter]")
        .doc(
            "Responds with a text page of the counts of connections and requests; a parameter \
             is accepted and has no effect.",
        )
        .example("location = /status {\n    stub_status;\n    allow 127.0.0.1;\n    deny all;\n}")];
    const VARIABLES: &'static [Variable] = &[
        Variable::new("connections_active", |x| number(x, |counts| counts.active)).volatile(),
        Variable::new("connections_reading", |x| number(x, WorkerCounts::reading)).volatile(),
        Variable::new("connections_writing", |x| number(x, |counts| counts.writing)).volatile(),
        Variable::new("connections_waiting", |x| number(x, |counts| counts.waiting)).volatile(),
    ];

    fn install(conf: &StubStatusConf, plan: &mut PlanBuilder<'_>) {
        if conf.on {
            plan.content(Self::NAME, StatusPage);
        }
    }
}

/// The setting of one block; it is not inherited.
#[derive(Default)]
pub struct StubStatusConf {
    on: bool,
}

struct StatusPage;

impl Handler for StatusPage {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        if !matches!(x.request.head.method, Method::Get | Method::Head) {
            return Verdict::Status(405);
        }
        let counts = x.worker.counts();
        x.response.status = 200;
        x.response.content_type = Some("text/plain".into());
        x.respond(ResponseBody::Whole(BodyBuf::Bytes(page(&counts).into_bytes())))
    }
}

/// nginx's page. Every connection that is accepted is handled: those that would exceed `worker_connections` are not
/// accepted.
fn page(counts: &WorkerCounts) -> String {
    let WorkerCounts { accepted, requests, active, writing, waiting } = counts;
    let reading = counts.reading();
    format!(
        "Active connections: {active} \nserver accepts handled requests\n {accepted} {accepted} {requests} \n\
         Reading: {reading} Writing: {writing} Waiting: {waiting} \n"
    )
}

fn number(x: &mut Exchange, of: fn(&WorkerCounts) -> u64) -> Option<Text> {
    let number = of(&x.worker.counts());
    Some(Text::Span(x.arena.write(|out| weir_http::h1::number(out, number))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_nginx_s() {
        let counts = WorkerCounts { accepted: 12, requests: 345, active: 7, writing: 2, waiting: 4 };
        assert_eq!(
            page(&counts),
            "Active connections: 7 \nserver accepts handled requests\n 12 12 345 \nReading: 1 Writing: 2 Waiting: 4 \n"
        );
    }
}
