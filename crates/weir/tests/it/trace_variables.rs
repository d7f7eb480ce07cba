//! Times and numbers of requests in access logs and fields: `$trace_...`, `traceparent`, `Server-Timing`.

use weir_test::{Server, both_drivers};

const CONF: &str = "http {
    log_format times '$uri $trace_id $request_id $trace_run $trace_wait $trace_total $trace_phase_rewrite $trace_phase_log $trace_phase_none';
    server { listen 127.0.0.1:%%PORT%%; root html; access_log access.log times;
        location /id { return 200 '$request_id $trace_id $traceparent'; }
        location /off { profile off; return 200 'x$trace_run'; }
        location /timed { server_timing on; }
        location /asked { server_timing $http_x_timing; return 200 asked; }
        location / { rewrite ^/old /new.txt; } } }";

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn started() -> Server {
    Server::builder(CONF).file("html/new.txt", "new").file("html/timed/a.txt", "timed").start()
}

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

fn is_ms(text: &str) -> bool {
    let parts = text.split_once('.');
    parts.is_some_and(|(ms, us)| ms.parse::<u32>().is_ok() && us.len() == 3 && us.parse::<u32>().is_ok())
}

both_drivers! {
    fn a_traceparent_gives_the_request_its_number(driver) {
        let server = started();
        let mut client = server.client();
        let answer = client.request(get("/id", &format!("traceparent: {PARENT}\r\n"))).text();
        let words: Vec<&str> = answer.split(' ').collect();
        assert_eq!(words[..2], ["4bf92f3577b34da6a3ce929d0e0e4736"; 2]);
        let parts: Vec<&str> = words[2].split('-').collect();
        assert_eq!((parts[0], parts[1], parts[3]), ("00", words[0], "01"), "{answer}");
        assert!(parts[2].len() == 16 && parts[2] != "00f067aa0ba902b7", "a span of our own: {answer}");
        // Not valid: the request has a number of its own, and so has each.
        let mut seen = std::collections::HashSet::new();
        for bad in [PARENT.replace("00-4", "ff-4"), PARENT.to_uppercase(), PARENT[..50].to_owned(), String::new()] {
            let answer = client.request(get("/id", &format!("traceparent: {bad}\r\n"))).text();
            let words: Vec<&str> = answer.split(' ').collect();
            assert!(words[0] == words[1] && words[0].len() == 32 && !PARENT.contains(words[0]), "{answer}");
            assert!(words[2].starts_with(&format!("00-{}-", words[0])), "{answer}");
            assert!(seen.insert(words[0].to_owned()), "{answer}");
        }
    }

    fn times_are_milliseconds_with_three_decimals(driver) {
        let mut server = started();
        let mut client = server.client();
        assert_eq!(client.request(get("/old", "")).text(), "new");
        assert_eq!(client.request(get("/off", "")).text(), "x");
        drop(client);
        assert!(server.quit().status.success());
        let log = server.dir().read("access.log");
        let lines: Vec<Vec<&str>> = log.lines().map(|line| line.split(' ').collect()).collect();
        let [_, id, same, run, wait, total, rewrite, log_phase, none] = lines[0][..] else { panic!("{log}") };
        assert!(id == same && id.len() == 32, "{log}");
        for time in [run, wait, total, rewrite, log_phase] {
            assert!(is_ms(time), "{time} in {log}");
        }
        let ms = |text: &str| text.parse::<f64>().expect("a number");
        assert!(ms(run) > 0.0 && ms(total) >= ms(run) && ms(rewrite) <= ms(run), "{log}");
        // Each is cut to whole microseconds by itself, and the clock goes on in between.
        assert!(ms(total) + 0.002 >= ms(run) + ms(wait), "{log}");
        assert_eq!(none, "-");
        assert_eq!(lines[1][3..], ["-"; 6], "nothing is recorded where profile is off");
    }

    fn server_timing_is_for_who_asks(driver) {
        let server = started();
        let mut client = server.client();
        let timed = client.request(get("/timed/a.txt", ""));
        let field = timed.field("server-timing").unwrap_or_else(|| panic!("no field in {timed}"));
        let metrics: Vec<&str> = field.split(", ").collect();
        assert!(metrics.last().is_some_and(|last| last.starts_with("total;dur=")), "{field}");
        for metric in &metrics {
            let (name, dur) = metric.split_once(";dur=").unwrap_or_else(|| panic!("{field}"));
            assert!(is_ms(dur) && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{field}");
        }
        for (fields, expected) in [("", false), ("X-Timing: 0\r\n", false), ("X-Timing: yes\r\n", true)] {
            let answer = client.request(get("/asked", fields));
            assert_eq!(answer.field("server-timing").is_some(), expected, "{fields}{answer}");
        }
        assert_eq!(client.request(get("/new.txt", "X-Timing: yes\r\n")).field("server-timing"), None);
    }
}
