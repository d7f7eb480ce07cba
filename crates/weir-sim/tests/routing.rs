//! The reference of routing beside nginx: what it says is due for drawn requests is what nginx responds with.

use weir_sim::plan::{Plan, RequestPlan};
use weir_sim::routing::DueResponse;
use weir_sim::routing::plan::ROUTED_PORT;
use weir_sim::wire::{MessageKind, MessageReader};

/// Seeds that are compared; half of them have routing.
const SEEDS: std::ops::Range<u64> = 0..60;

#[test]
fn the_reference_says_what_nginx_does() {
    let mut differences = Vec::new();
    let mut count = 0;
    for plan in SEEDS.map(Plan::new).filter(|plan| !plan.routing.servers.is_empty()) {
        let text = plan.routing.configuration("        root /absent;\n");
        let text = text.replace(&format!("127.0.0.1:{ROUTED_PORT}"), "127.0.0.1:%%PORT_0%%");
        let Some(nginx) = weir_test::nginx(&format!("events {{ }} http {{ {text} }}")) else { return };
        let server = nginx.allow("[").start();
        let port = server.port(0);
        let first = plan.clients.iter().flat_map(|client| &client.requests);
        let streams = plan.http2.clients.iter().flat_map(|client| &client.requests);
        let all = first.chain(streams.map(|stream| &stream.request)).filter(|request| request.ask.is_some());
        for request in all {
            let due = due(&plan, request).replace(&format!(":{ROUTED_PORT}"), &format!(":{port}"));
            let came = came(&server.raw(request.bytes(true)));
            count += 1;
            if due != came && !(came.starts_with("400 None") && due.starts_with("400 None")) {
                differences.push(format!(
                    "seed {}: {:?}\n    nginx: {came}\n    due:   {due}",
                    plan.seed, request.ask
                ));
            }
        }
    }
    let shown = &differences;
    assert!(differences.is_empty(), "{} of {count}:\n{}", differences.len(), shown.join("\n"));
    assert!(count > 500, "{count}");
}

fn due(plan: &Plan, request: &RequestPlan) -> String {
    request.ask.as_ref().map_or(String::new(), |ask| plan.routing.due(ask).words())
}

fn came(bytes: &[u8]) -> String {
    let mut reader = MessageReader::new(MessageKind::Response);
    reader.add(bytes);
    match reader.next(true) {
        Ok(Some(message)) => DueResponse::of(message.status(), &message.body, message.pairs()).words(),
        other => format!("{other:?}: {}", String::from_utf8_lossy(bytes)),
    }
}
