//! The reference of routing beside nginx: what it says is due for drawn requests is what nginx responds with.

use weir_sim::plan::Plan;
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
        for request in first.chain(streams.map(|stream| &stream.request)) {
            let Some(due) = request.ask.as_ref().map(|ask| plan.routing.due(ask)) else { continue };
            let came = came(&server.raw(request.bytes(true)));
            let came = came.replace(&format!(":{port}"), &format!(":{ROUTED_PORT}"));
            count += 1;
            if !DueResponse::is_due(&came, &due) {
                differences.push(format!(
                    "seed {}: {:?}\n    nginx: {came}\n    due:   {}",
                    plan.seed,
                    request.ask,
                    due.words()
                ));
            }
        }
    }
    let shown = &differences;
    assert!(differences.is_empty(), "{} of {count}:\n{}", differences.len(), shown.join("\n"));
    assert!(count > 500, "{count}");
}

fn came(bytes: &[u8]) -> String {
    let mut reader = MessageReader::new(MessageKind::Response);
    reader.add(bytes);
    match reader.next(true) {
        Ok(Some(message)) => DueResponse::of(message.status(), &message.body, message.pairs()).words(),
        other => format!("{other:?}: {}", String::from_utf8_lossy(bytes)),
    }
}
