//! Metrics of OpenTelemetry, as a collector gets them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use weir_test::{Backend, BackendVisit, Driver, Server, both_drivers, wait_for};
use weir_trace::protobuf;

use crate::support::otlp::{self, all, fields, text};

/// What a message says: the service, and of each metric the sum of its whole numbers, or of its histograms' counts.
#[derive(Clone, Debug, Default)]
struct Message {
    head: String,
    service: String,
    metrics: BTreeMap<String, u64>,
}

fn message(head: String, body: &[u8]) -> Message {
    let request = protobuf::read(body).expect("a message");
    let resource = fields(all(&request, 1)[0]);
    let service = fields(all(&fields(all(&resource, 1)[0]), 1)[0]);
    let scope = fields(all(&resource, 2)[0]);
    let mut metrics = BTreeMap::new();
    for metric in all(&scope, 2).into_iter().map(fields) {
        let data = [7, 5, 9].into_iter().find_map(|number| Some((number, *all(&metric, number).first()?)));
        let (number, data) = data.expect("a sum, gauge or histogram");
        let count = if number == 9 { 4 } else { 6 };
        let points = all(&fields(data), 1);
        let values = points.iter().filter_map(|point| all(&fields(*point), count).first()?.number());
        metrics.insert(text(&metric, 1), values.sum());
    }
    Message { head, service: text(&fields(all(&service, 2)[0]), 1), metrics }
}

/// A collector, and what it got.
struct Collector {
    backend: Backend,
    said: Arc<Mutex<Vec<Message>>>,
}

impl Collector {
    fn start() -> Collector {
        let said = Arc::new(Mutex::new(Vec::new()));
        let taking = said.clone();
        let backend = Backend::start(move |visit: &mut BackendVisit| {
            let Some((head, body)) = otlp::request(visit) else { return };
            taking.lock().unwrap_or_else(PoisonError::into_inner).push(message(head, &body));
            visit.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        });
        Collector { backend, said }
    }

    fn messages(&self) -> Vec<Message> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The first message from number `from` on that is `right`.
    fn awaited(&self, what: &str, from: usize, right: impl Fn(&Message) -> bool) -> Message {
        wait_for(what, || self.messages().into_iter().skip(from).find(&right))
    }

    fn conf(&self, workers: &str, more: &str) -> String {
        format!(
            "worker_processes {workers}; http {{
                otel_exporter {{ endpoint http://127.0.0.1:{}; header X-Token abc; }} {more}
                server {{ listen 127.0.0.1:%%PORT%%; location / {{ return 200 a; }} }} }}",
            self.backend.port()
        )
    }
}

fn started(driver: Driver, conf: &str) -> Server {
    Server::builder(conf).driver(driver).start()
}

both_drivers! {
    fn a_collector_gets_what_metrics_show(driver) {
        for workers in ["1", "3"] {
            let collector = Collector::start();
            let server = started(driver, &collector.conf(workers, "otel_metrics 100ms; otel_service_name shop;"));
            for _ in 0..5 {
                assert_eq!(server.get("/").text(), "a");
            }
            let found = collector.awaited("the requests", 0, |message| message.metrics.get("weir_requests") == Some(&5));
            assert_eq!(found.service, "shop");
            assert!(found.head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{}", found.head);
            assert!(found.head.contains("\r\nX-Token: abc\r\n"), "{}", found.head);
            assert_eq!(found.metrics.get("weir_request_duration_seconds"), Some(&5), "{found:?}");
            assert!(found.metrics.contains_key("weir_connections_accepted") && found.metrics.contains_key("process_open_fds"));
        }
    }

    /// Switched on, to another interval, and off, by reloads; nothing is sent without the directive.
    fn reloads_change_whether_metrics_are_sent(driver) {
        let collector = Collector::start();
        let mut server = started(driver, &collector.conf("2", ""));
        assert_eq!(server.get("/").text(), "a");
        server.reload(&collector.conf("2", "otel_metrics 1h; otel_resource_attr a b;"));
        // The first message comes at once.
        let found = collector.awaited("a message", 0, |_| true);
        assert_eq!((found.service.as_str(), found.metrics.get("weir_requests")), ("unknown_service:weir", Some(&1)));
        server.reload(&collector.conf("2", "otel_metrics 50ms;"));
        collector.awaited("the third message", 2, |_| true);
        server.reload(&collector.conf("2", "otel_metrics off;"));
        // Some may be under way; then none come, many times longer than one was waited for before.
        wait_for("silence", || {
            let sent = collector.messages().len();
            std::thread::sleep(std::time::Duration::from_millis(500));
            (collector.messages().len() == sent).then_some(())
        });
        assert_eq!(server.get("/").text(), "a");
    }

    fn a_collector_that_is_gone_is_logged_once(driver) {
        let nobody = Backend::answering("");
        nobody.kill();
        let conf = format!(
            "http {{ otel_exporter {{ endpoint http://127.0.0.1:{}; }} otel_metrics 20ms;
                server {{ listen 127.0.0.1:%%PORT%%; location / {{ return 200 a; }} }} }}",
            nobody.port()
        );
        let server = Server::builder(&conf).allow("otel_metrics").driver(driver).start();
        let line = server.error_log_line("otel_metrics http://127.0.0.1:");
        assert!(line.contains("metrics are lost: connect() to 127.0.0.1:"), "{line}");
        assert_eq!(server.get("/").text(), "a");
    }
}

#[test]
fn mistakes_are_reported() {
    for (conf, error) in [
        ("otel_metrics on;", "\"otel_exporter\" block is missing"),
        ("otel_exporter { endpoint http://a; } otel_metrics 0;", "invalid value \"0\""),
        ("otel_exporter { endpoint http://a; } otel_metrics often;", "invalid value \"often\""),
        ("otel_exporter { endpoint http://a/mine; } otel_metrics on;", "one that ends in \"/v1/traces\""),
    ] {
        let exit = Server::builder(&format!("http {{ {conf} server {{ listen 127.0.0.1:%%PORT%%; }} }}"))
            .try_start();
        let Err(exit) = exit else { panic!("{conf}: the server starts") };
        assert!(exit.stderr.contains(error), "{conf}: {}", exit.stderr);
    }
}
