//! `profile_key`: counts by tenant or host, in `weir top keys` and `/metrics`.

use crate::support::says as said;

use weir_test::{Client, Server, both_drivers, wait_for};

const CONF: &str = "worker_processes %%WORKERS%%; admin 127.0.0.1:%%PORT_1%%;
    http { profile_key $http_x_customer zone=customers;
    server { listen 127.0.0.1:%%PORT_0%%; root html; keepalive_requests 1000000;
    location / { }
    location = /gone { return 502; }
    location = /uncounted { profile_key off; return 204; }
    location = /hosts { profile_key $host zone=hosts:32k; return 200 hosts; }
    location = /both { profile_key $http_x_customer zone=customers; profile_key $host zone=hosts:32k; return 404; } } }";

fn started(workers: &str) -> Server {
    let server =
        Server::builder(&CONF.replace("%%WORKERS%%", workers)).file("html/a.txt", "0123456789").start();
    said::ready(&server);
    server
}

fn ask(client: &mut Client, path: &str, host: &str, customer: &str) -> u16 {
    client.request(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nX-Customer: {customer}\r\n\r\n")).status
}

/// The value of the sample that begins with `sample`.
fn metric(server: &Server, sample: &str) -> Option<f64> {
    let text =
        Client::connect(server.addr(1)).request("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
    text.lines().find_map(|line| line.strip_prefix(sample)?.trim().parse().ok())
}

fn awaited(server: &Server, sample: &str, value: f64) {
    wait_for(&format!("{sample} {value}"), || (metric(server, sample) == Some(value)).then_some(()));
}

both_drivers! {
    fn requests_errors_and_bytes_are_counted_by_key(driver) {
        for workers in ["1", "3"] {
            let server = started(workers);
            for (customer, paths) in [
                ("acme", &["/a.txt", "/a.txt", "/gone", "/both"][..]),
                ("umbrella", &["/a.txt", "/nothing"]),
                ("", &["/a.txt"]),
                ("acme", &["/uncounted", "/hosts"]),
            ] {
                for path in paths {
                    ask(&mut server.client(), path, "example.org", customer);
                }
            }
            let of = |name: &str, zone: &str, key: &str| format!("weir_key_{name}_total{{zone=\"{zone}\",key=\"{key}\"}}");
            for (name, zone, key, value) in [
                ("requests", "customers", "acme", 4.0),
                ("requests", "customers", "umbrella", 2.0),
                ("client_errors", "customers", "acme", 1.0),
                ("server_errors", "customers", "acme", 1.0),
                ("client_errors", "customers", "umbrella", 1.0),
                ("requests", "hosts", "example.org", 2.0),
            ] {
                awaited(&server, &of(name, zone, key), value);
            }
            assert!(metric(&server, &of("sent_bytes", "customers", "acme")).is_some_and(|bytes| bytes > 800.0));
            assert!(metric(&server, &of("run_seconds", "customers", "acme")).is_some_and(|seconds| seconds > 0.0));
            assert_eq!(metric(&server, &of("requests", "customers", "")), None, "nothing is folded");
            let table = said::says(&["top", "keys", "-b", "-d", "0"], &said::of(&server));
            let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
            let acme = rows.iter().find(|row| row[..2] == ["customers", "acme"]).expect("a row");
            assert_eq!(acme[3..6], ["66.7%", "25.0%", "25.0%"], "{table}");
            assert!(rows.iter().any(|row| row[..2] == ["hosts", "example.org"]), "{table}");
        }
    }

    /// Responses that are known at the sight of a head are counted, too, and each under its own key.
    fn requests_with_known_responses_are_counted(driver) {
        let server = started("1");
        let mut client = server.client();
        for _ in 0..50 {
            assert_eq!(ask(&mut client, "/a.txt", "a", "acme"), 200);
            assert_eq!(ask(&mut client, "/gone", "a", "umbrella"), 502);
        }
        drop(client);
        for (customer, name) in [("acme", "requests"), ("umbrella", "requests"), ("umbrella", "server_errors")] {
            awaited(&server, &format!("weir_key_{name}_total{{zone=\"customers\",key=\"{customer}\"}}"), 50.0);
        }
    }

    /// A client that makes up a key for each request takes no memory beyond the zone's, and hides no busy key.
    fn a_flood_of_keys_is_folded(driver) {
        let server = started("1");
        let mut client = server.client();
        for n in 0..400 {
            ask(&mut client, "/hosts", &format!("h{n}.example"), "");
            ask(&mut client, "/hosts", "busy.example", "");
        }
        drop(client);
        awaited(&server, "weir_key_requests_total{zone=\"hosts\",key=\"busy.example\"}", 400.0);
        let text = Client::connect(server.addr(1)).request("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
        let rows = text.lines().filter(|line| line.starts_with("weir_key_requests_total{zone=\"hosts\""));
        let counts: Vec<f64> = rows.map(|row| row.rsplit(' ').next().expect("a value").parse().expect("a number")).collect();
        assert!(counts.len() < 60 && counts.iter().sum::<f64>() == 800.0, "{counts:?}");
        assert!(metric(&server, "weir_key_requests_total{zone=\"hosts\",key=\"\"}").is_some_and(|folded| folded > 300.0));
    }

    fn keys_of_clients_can_not_forge_metrics_or_terminals(driver) {
        let server = started("1");
        let mut client = server.client();
        ask(&mut client, "/a.txt", "a", "x\"} 99\\n\u{1b}[2J\u{e9}");
        drop(client);
        wait_for("the key", || metric(&server, "weir_key_requests_total{zone=\"customers\",key=\"x\\\"} 99\\\\n\u{1b}[2J\u{e9}\"}"));
        let table = said::says(&["top", "keys", "-b", "-d", "0"], &said::of(&server));
        assert!(table.contains("x\"} 99\\n\\x1B[2J") && !table.contains('\u{1b}'), "{table:?}");
    }

    /// A zone that is the same after a reload goes on; one of another size begins again, another key is refused.
    fn counts_live_through_a_reload(driver) {
        let mut server = started("2");
        ask(&mut server.client(), "/a.txt", "a", "acme");
        let sample = "weir_key_requests_total{zone=\"customers\",key=\"acme\"}";
        awaited(&server, sample, 1.0);
        let conf = CONF.replace("%%WORKERS%%", "2");
        server.reload(&conf.replace("location = /gone { return 502; }", "location = /new { return 204; }"));
        wait_for("the new configuration", || (ask(&mut server.client(), "/new", "a", "") == 204).then_some(()));
        ask(&mut server.client(), "/new", "a", "acme");
        awaited(&server, sample, 2.0);
    }
}
