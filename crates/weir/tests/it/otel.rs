//! Traces of OpenTelemetry, as a collector gets them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use weir_test::{Backend, BackendVisit, Server, both_drivers, wait_for};
use weir_trace::protobuf::{self, ProtobufField};

use crate::support::otlp::{self, Fields, all, fields, text};

/// A span as a collector reads it.
#[derive(Clone, Debug, Default)]
struct Span {
    service: String,
    trace: String,
    number: String,
    parent: String,
    state: String,
    name: String,
    kind: u64,
    times: (u64, u64),
    attributes: HashMap<String, String>,
    /// `Status.code`
    status: u64,
}

fn hex(fields: &Fields<'_>, number: u64) -> String {
    let bytes = all(fields, number).first().and_then(|field| field.bytes());
    bytes.unwrap_or_default().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn number(fields: &Fields<'_>, number: u64) -> u64 {
    all(fields, number).first().and_then(|field| field.number()).unwrap_or(0)
}

fn attributes(list: Vec<ProtobufField<'_>>) -> HashMap<String, String> {
    let read = |field| {
        let pair = fields(field);
        let value = fields(all(&pair, 2)[0]);
        let value = if all(&value, 3).is_empty() { text(&value, 1) } else { number(&value, 3).to_string() };
        (text(&pair, 1), value)
    };
    list.into_iter().map(read).collect()
}

/// The spans of an `ExportTraceServiceRequest`.
fn spans(body: &[u8]) -> Vec<Span> {
    let request = protobuf::read(body).expect("a message");
    let mut spans = Vec::new();
    for resource in all(&request, 1).into_iter().map(fields) {
        let about = attributes(all(&fields(all(&resource, 1)[0]), 1));
        for scope in all(&resource, 2).into_iter().map(fields) {
            for span in all(&scope, 2).into_iter().map(fields) {
                spans.push(Span {
                    service: about["service.name"].clone(),
                    trace: hex(&span, 1),
                    number: hex(&span, 2),
                    state: text(&span, 3),
                    parent: hex(&span, 4),
                    name: text(&span, 5),
                    kind: number(&span, 6),
                    times: (number(&span, 7), number(&span, 8)),
                    attributes: attributes(all(&span, 9)),
                    status: all(&span, 15).first().map_or(0, |status| number(&fields(*status), 3)),
                });
            }
        }
    }
    spans
}

/// A collector that takes what comes, after the first `refused` messages.
struct Collector {
    backend: Backend,
    said: Arc<Mutex<(Vec<String>, Vec<Span>)>>,
}

impl Collector {
    fn start(refused: usize) -> Collector {
        let said = Arc::new(Mutex::new((Vec::new(), Vec::new())));
        let taking = said.clone();
        let backend = Backend::start(move |visit: &mut BackendVisit| {
            let Some((head, body)) = otlp::request(visit) else { return };
            if visit.number <= refused {
                visit.send("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
                return;
            }
            let mut taken = taking.lock().unwrap_or_else(PoisonError::into_inner);
            taken.0.push(head);
            taken.1.extend(spans(&body));
            visit.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        });
        Collector { backend, said }
    }

    /// The spans so far, when there are `count` that are a server's.
    fn requests(&self, count: usize) -> Vec<Span> {
        wait_for("spans", || {
            let taken = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            let enough = taken.1.iter().filter(|span| span.kind == 2).count() >= count;
            enough.then(|| taken.1.clone())
        })
    }

    fn exporter(&self) -> String {
        format!(
            "otel_exporter {{ endpoint http://127.0.0.1:{}; interval 50ms; header X-Token abc; }}
             otel_service_name shop; otel_resource_attr region north;",
            self.backend.port()
        )
    }
}

const PARENT: &str = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";

both_drivers! {
    fn a_request_is_told_with_its_phases_and_what_servers_were_asked(driver) {
        let (collector, backend) = (Collector::start(1), Backend::start(|visit: &mut BackendVisit| {
            while let Some(head) = visit.head() {
                let said = head.lines().filter(|line| line.starts_with("trace")).collect::<Vec<_>>().join("|");
                visit.answer(&said);
            }
        }));
        let server = Server::start(&format!(
            "http {{ {} server {{ listen 127.0.0.1:%%PORT%%; server_name shop.example;
                location /api/ {{ otel_trace on; otel_trace_context propagate; otel_span_attr tenant $arg_t;
                    allow all; proxy_pass http://127.0.0.1:{}; }}
                location /ids {{ otel_trace on; otel_trace_context extract; otel_span_name \"ids $arg_n\";
                    return 200 $otel_trace_id|$otel_span_id|$otel_parent_id|$otel_parent_sampled; }}
                location /new {{ otel_trace on; return 200 $otel_trace_id|$otel_parent_id; }}
                location /quiet {{ return 200 quiet; }}
                location /some {{ otel_trace $arg_trace; return 502; }} }} }}",
            collector.exporter(),
            backend.port(),
        ));
        let ask = |path: &str| {
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: shop.example\r\ntraceparent: 00-{PARENT}-01\r\ntracestate: a=b\r\n\
                 Connection: close\r\n\r\n"
            );
            let answer = String::from_utf8(server.raw(request)).expect("text");
            answer.split_once("\r\n\r\n").expect("a head").1.to_owned()
        };
        let passed = ask("/api/x?t=7&secret=1");
        let ids = ask("/ids?n=5");
        let fresh = ask("/new");
        ask("/quiet");
        ask("/some?trace=off");
        ask("/some?trace=1");
        let spans = collector.requests(4);
        let find = |name: &str| spans.iter().find(|span| span.name == name && span.kind == 2).expect(name);

        let api = find("/api/");
        assert_eq!(passed, format!("tracestate: a=b|traceparent: 00-{}-{}-01", api.trace, api.number)
            .split('|').rev().collect::<Vec<_>>().join("|"));
        assert_eq!(format!("{}-{}", api.trace, api.parent), PARENT);
        assert_eq!((&*api.service, &*api.state, api.status), ("shop", "a=b", 0));
        let reported = |key: &str| api.attributes.get(key).map(String::as_str);
        assert_eq!(reported("http.target"), Some("/api/x"), "without arguments");
        assert_eq!((reported("tenant"), reported("http.status_code"), reported("http.flavor")), (Some("7"), Some("200"), Some("1.1")));
        assert_eq!((reported("net.host.name"), reported("http.method")), (Some("shop.example"), Some("GET")));
        let inside: Vec<&Span> = spans.iter().filter(|span| span.trace == api.trace && span.kind != 2).collect();
        let content = inside.iter().find(|span| span.name == "content" && span.parent == api.number).expect("content");
        assert_eq!(content.attributes["weir.handlers"], "proxy");
        let tried = inside.iter().find(|span| span.kind == 3).expect("a try");
        assert_eq!(tried.name, format!("upstream 127.0.0.1:{}", backend.port()));
        assert_eq!(tried.parent, content.number);
        for (one, around) in [(tried, *content), (content, api)] {
            assert!(one.times.0 >= around.times.0 && one.times.1 <= around.times.1, "{one:?} in {around:?}");
        }

        let span = find("ids 5");
        assert_eq!(ids, format!("{}|{}|{}|1", span.trace, span.number, &PARENT[33..]));
        let span = find("/new");
        assert_eq!((fresh, &*span.parent), (format!("{}|", span.trace), ""));
        assert_ne!(span.trace, PARENT[..32], "the caller's trace is none of ours");
        assert_eq!(find("/some").status, 2, "an error");
        assert!(!spans.iter().any(|span| span.name == "/quiet"));
        let heads = collector.said.lock().unwrap_or_else(PoisonError::into_inner).0.join("");
        assert!(heads.starts_with("POST /v1/traces HTTP/1.1\r\n") && heads.contains("\r\nX-Token: abc\r\n"), "{heads}");
        assert!(heads.contains("\r\nContent-Type: application/x-protobuf\r\n"), "{heads}");
    }

    fn a_server_that_ends_sends_what_it_has(driver) {
        let collector = Collector::start(0);
        let mut server = Server::start(&format!(
            "http {{ otel_exporter {{ endpoint http://127.0.0.1:{}/mine; interval 1h; }} otel_trace on;
                server {{ listen 127.0.0.1:%%PORT%%; location / {{ return 200 a; }} }} }}",
            collector.backend.port(),
        ));
        for _ in 0..3 {
            server.get("/");
        }
        server.quit();
        let spans = collector.requests(3);
        assert!(spans.iter().all(|span| span.service == "unknown_service:weir"), "{spans:?}");
        let heads = collector.said.lock().unwrap_or_else(PoisonError::into_inner).0.join("");
        assert!(heads.starts_with("POST /mine HTTP/1.1\r\n"), "{heads}");
    }

    fn without_a_collector_spans_are_dropped_and_counted(driver) {
        let nobody = Backend::answering("");
        nobody.kill();
        let server = Server::builder(&format!(
            "admin 127.0.0.1:%%PORT_1%%; http {{
                otel_exporter {{ endpoint http://127.0.0.1:{}; interval 1ms; batch_size 1; batch_count 2; }}
                server {{ listen 127.0.0.1:%%PORT_0%%; location / {{ otel_trace on; return 200 a; }} }} }}",
            nobody.port(),
        ))
        .allow("otel_exporter")
        .start();
        let dropped = || {
            let metrics = weir_test::Client::connect(server.addr(1)).get("/metrics").text();
            let line = metrics.lines().find_map(|line| line.strip_prefix("weir_otel_spans_dropped_total "));
            line.and_then(|count| count.parse::<u64>().ok()).expect("a count")
        };
        // Four attempts at the first leave it to wait some two seconds, and two find room after it.
        for _ in 0..12 {
            assert_eq!(server.get("/").text(), "a");
        }
        wait_for("drops", || (dropped() >= 9).then_some(()));
        let line = server.error_log_line("otel_exporter http://127.0.0.1:");
        assert!(line.contains("spans are lost: connect() to 127.0.0.1:"), "{line}");
    }
}

#[test]
fn mistakes_are_told() {
    for (conf, error) in [
        ("otel_trace on;", "\"otel_exporter\" block is missing"),
        ("otel_exporter { interval 1s; }", "\"otel_exporter\" requires \"endpoint\""),
        ("otel_exporter { endpoint a:4317; }", "invalid URL \"a:4317\" in \"endpoint\""),
        (
            "otel_exporter { endpoint http://a; nothing 1; }",
            "unknown directive \"nothing\" in \"otel_exporter\"",
        ),
        ("otel_exporter { endpoint http://a; interval 0; }", "invalid value \"0\""),
        ("otel_exporter { endpoint http://a; batch_size x; }", "invalid value \"x\""),
        ("otel_exporter { endpoint http://a; header \"a b\" c; }", "invalid value \"a b\""),
        (
            "otel_exporter { endpoint http://a; header a; }",
            "invalid number of arguments in \"header\" directive",
        ),
        (
            "otel_exporter { endpoint http://a; trusted_certificate b; }",
            "\"trusted_certificate\" is for endpoints",
        ),
        ("otel_exporter { endpoint http://a; } otel_trace yes;", "invalid value \"yes\""),
        ("otel_trace_context all;", "invalid value \"all\""),
    ] {
        let exit = Server::builder(&format!("http {{ {conf} server {{ listen 127.0.0.1:%%PORT%%; }} }}"))
            .try_start()
            .err()
            .unwrap_or_else(|| panic!("{conf} started"));
        assert!(exit.stderr.contains(error), "{conf}: {}", exit.stderr);
    }
}
