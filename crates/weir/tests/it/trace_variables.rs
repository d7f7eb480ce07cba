//! Times and numbers of requests in access logs and fields: `$trace_...`, `traceparent`, `Server-Timing`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use weir_test::{Client, Server, both_drivers, wait_for};

const CONF: &str = "http {
    log_format times '$uri $trace_id $request_id $trace_run $trace_wait $trace_total $trace_phase_rewrite $trace_phase_log $trace_phase_none';
    server { listen 127.0.0.1:%%PORT%%; root html; access_log access.log times;
        location /id { return 200 '$request_id $trace_id $traceparent'; }
        location /off { profile off; return 200 'x$trace_run'; }
        location /timed { server_timing on; }
        location /asked { server_timing $http_x_timing; return 200 asked; }
        location / { rewrite ^/old /new.txt; } } }";

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// What a request costs, beside what its script reads from the thread's own clock.
const CPU_CONF: &str = "worker_processes %%WORKERS%%; admin 127.0.0.1:%%PORT_1%%; http {
    log_format cpu '$uri $script_ms $trace_run $trace_cpu $trace_kernel';
    profile_key $http_x_customer zone=customers;
    server { listen 127.0.0.1:%%PORT_0%%; access_log access.log cpu; set $script_ms '';
        location /off { profile off; return 200 'x$trace_cpu'; }
        location / { content_by_lua_file cpu.lua; } } }";

/// `/burn` computes for 60 ms of the thread's CPU clock, `/sleep` sleeps in a call, `/both` does both and asks for its price in between.
const CPU_LUA: &str = "local ffi = require 'ffi'
ffi.cdef 'int clock_gettime(int clock, void *time);'
local time = ffi.new 'long[2]'
local function cpu()
    ffi.C.clock_gettime(3, time)
    return tonumber(time[0]) * 1e3 + tonumber(time[1]) / 1e6
end
local begun, what = cpu(), ngx.var.uri
local function burn(ms) local from = cpu() while cpu() - from < ms do end end
if what == '/burn' then burn(60) end
if what == '/sleep' then os.execute 'sleep 0.05' end
if what == '/both' then
    for _ = 1, 3 do
        burn(5) os.execute 'sleep 0.02'
        ngx.header.price = ngx.var.trace_cpu
    end
    ngx.sleep(0.001) burn(5)
end
ngx.var.script_ms = string.format('%.3f', cpu() - begun)
ngx.say 'done'";

fn started_with_cpu(workers: &str) -> Server {
    Server::builder(&CPU_CONF.replace("%%WORKERS%%", workers)).file("cpu.lua", CPU_LUA).start()
}

/// A line of the log: milliseconds.
struct PricedRequest {
    script: f64,
    run: f64,
    cpu: f64,
    kernel: f64,
}

/// Asks for `path` and waits for the line that says what it cost, which must agree with the thread's own clock: what is
/// around the script (in a program that is not optimised) and turns of less than a millisecond are the rest.
#[track_caller]
fn priced(server: &Server, client: &mut Client, path: &str) -> PricedRequest {
    let lines = || -> Vec<String> {
        let log = server.dir().read("access.log");
        log.lines().filter(|line| line.starts_with(&format!("{path} "))).map(str::to_owned).collect()
    };
    let before = lines().len();
    assert_eq!(client.request(get(path, "X-Customer: acme\r\n")).status, 200);
    let line = wait_for("a line", || lines().get(before).cloned());
    let numbers: Vec<f64> = line.split(' ').skip(1).map(|word| word.parse().expect("a number")).collect();
    let [script, run, cpu, kernel] = numbers[..] else { panic!("{line}") };
    let most = script * 1.05 + kernel + 4.0;
    assert!(cpu >= script * 0.97 - 0.5 && cpu <= most, "{path}: {cpu} beside {script} in {line}");
    PricedRequest { script, run, cpu, kernel }
}

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

    fn a_request_s_price_is_time_on_the_processor(driver) {
        for workers in ["1", "8"] {
            let server = started_with_cpu(workers);
            let mut client = server.client();
            let burnt = priced(&server, &mut client, "/burn");
            // The clock goes on between the log's two variables.
            assert!(burnt.script >= 60.0 && burnt.run + burnt.kernel + 1.0 >= burnt.cpu, "{} {}", burnt.run, burnt.cpu);
            let slept = priced(&server, &mut client, "/sleep");
            assert!(slept.run - slept.cpu >= 40.0, "{} {}", slept.run, slept.cpu);
            // It asks three times while it runs, and has lost what it slept by then.
            let both = priced(&server, &mut client, "/both");
            assert!(both.script >= 20.0 && both.run - both.cpu >= 50.0, "{} {}", both.run, both.cpu);
            assert_eq!(client.request(get("/off", "")).text(), "x");
            let metric = || {
                let text = Client::connect(server.addr(1)).request("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
                let sample = "weir_key_cpu_seconds_total{zone=\"customers\",key=\"acme\"}";
                text.lines().find_map(|line| line.strip_prefix(sample)?.trim().parse::<f64>().ok())
            };
            let sum = burnt.cpu + slept.cpu + both.cpu;
            // It was read a moment after the log's variables.
            wait_for("a price by customer", || metric().filter(|seconds| (sum..sum + 6.0).contains(&(seconds * 1e3))));
        }
    }

    /// Others have the processors: the request runs longer, and costs what it did.
    fn a_lost_processor_is_not_the_request_s(driver) {
        let server = started_with_cpu("1");
        let mut client = server.client();
        let over = Arc::new(AtomicBool::new(false));
        let others = 2 * std::thread::available_parallelism().map_or(2, usize::from);
        let burning: Vec<_> = (0..others)
            .map(|_| {
                let over = over.clone();
                std::thread::spawn(move || while !over.load(Relaxed) { std::hint::spin_loop() })
            })
            .collect();
        wait_for("a lost processor", || {
            let burnt = priced(&server, &mut client, "/burn");
            (burnt.run - burnt.cpu >= 20.0).then_some(())
        });
        over.store(true, Relaxed);
        burning.into_iter().for_each(|thread| thread.join().expect("it ends"));
    }
}
