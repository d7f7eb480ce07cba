//! `weir doctor`: what of all this works on this machine, and why not the rest.

use std::fs;

use super::Locate;
use super::ask::{client, print};
use super::options::{Asked, Choice};
use crate::control::protocol::Question;
use weir_http::json::Json;

pub(super) const CHOICES: &[Choice] = &[];

pub(super) fn run(asked: &Asked, locate: Locate<'_>) -> Result<(), String> {
    asked.at_most(0)?;
    let mut findings = machine();
    findings.extend(server(asked, locate));
    let text = if asked.has("--json") { json(&findings) } else { text(&findings) };
    print(text.as_bytes()).map_err(|error| error.to_string())
}

/// One thing that was looked at.
struct Finding {
    what: &'static str,
    /// Whether it is as it should be.
    good: bool,
    /// How it is, and what follows.
    says: String,
}

fn finding(what: &'static str, good: bool, says: impl Into<String>) -> Finding {
    Finding { what, good, says: says.into() }
}

fn machine() -> Vec<Finding> {
    let word = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
    let mut all = Vec::new();
    let kernel = word("/proc/sys/kernel/osrelease").unwrap_or_else(|error| error.to_string());
    all.push(finding("kernel", true, kernel));
    all.push(match word("/sys/devices/system/clocksource/clocksource0/current_clocksource") {
        Ok(source) if source == "tsc" => finding("clock", true, "tsc: a stamp costs some ten nanoseconds"),
        Ok(source) => {
            finding("clock", false, format!("{source}: stamps go through the kernel's clock and cost more"))
        }
        Err(error) => finding("clock", false, format!("clock source unknown: {error}")),
    });
    all.push(match weir_rt::probe_io_uring() {
        Ok(()) => finding("io_uring", true, "can be used"),
        Err(error) => finding("io_uring", false, format!("{error}: epoll is used instead")),
    });
    all.push(match word("/proc/sys/net/ipv4/tcp_available_ulp") {
        Ok(layers) if layers.split(' ').any(|layer| layer == "tls") => {
            finding("kernel TLS", true, "there, and not used: the server seals records itself")
        }
        Ok(_) | Err(_) => {
            finding("kernel TLS", true, "not there, and not needed: the server seals records itself")
        }
    });
    all.push(match word("/proc/sys/kernel/perf_event_paranoid") {
        Ok(level) => finding(
            "perf events",
            true,
            format!(
                "perf_event_paranoid {level}; not needed: CPU samples come from timers of the process itself"
            ),
        ),
        Err(error) => finding("perf events", true, format!("none ({error}); not needed for CPU samples")),
    });
    all.push(match fs::read_dir("/proc/self/task") {
        Ok(_) => finding("/proc", true, "readable: states, switches and faults of threads are known"),
        Err(error) => {
            finding("/proc", false, format!("{error}: what the kernel accounts to threads is not known"))
        }
    });
    all.push(match seccomp() {
        Some(0) | None => finding("seccomp", true, "no filter"),
        Some(_) => finding(
            "seccomp",
            true,
            "a filter (a container's, perhaps): it may forbid io_uring and perf events",
        ),
    });
    all
}

fn seccomp() -> Option<u32> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?.trim().parse().ok()
}

/// What the server says of itself.
fn server(asked: &Asked, locate: Locate<'_>) -> Vec<Finding> {
    let facts = client(asked, locate).and_then(|client| client.text(&Question::new("facts")));
    let facts = match facts {
        Ok(facts) => facts,
        Err(error) => return vec![finding("server", false, error)],
    };
    let fact = |key: &str| facts.lines().find_map(|line| line.strip_prefix(key)).map_or("", str::trim);
    let refused = fact("sampler refused:");
    let samples = match (fact("cpu_hz"), refused) {
        ("0", _) => finding("cpu samples", false, "off: profile_cpu 0"),
        (hz, "no") => finding("cpu samples", true, format!("{hz} per second of CPU time")),
        (_, why) => finding("cpu samples", false, why),
    };
    let blocked = match fact("blocked") {
        "off" => finding("blocked loops", false, "not watched: profile_blocked off"),
        limit => finding("blocked loops", true, format!("watched from {limit} on")),
    };
    let running = format!(
        "pid {}, {} workers on {}, since {}; stamps from {}",
        fact("pid"),
        fact("workers"),
        fact("driver"),
        fact("uptime"),
        fact("clock")
    );
    vec![finding("server", true, running), samples, blocked]
}

fn text(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        format!("{:<4} {:<13} {}\n", if finding.good { "ok" } else { "no" }, finding.what, finding.says)
    };
    findings.iter().map(line).collect()
}

fn json(findings: &[Finding]) -> String {
    Json::array(|json| {
        for finding in findings {
            json.nested(|json| {
                json.key("what").text(finding.what);
                json.key("good").raw(finding.good);
                json.key("says").text(&finding.says);
            });
        }
    }) + "\n"
}
