//! `weir perf`: events of the processor and the kernel by location: who uses fresh pages, who sleeps, and what a refusal is called.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::faults::{FaultLoad, weir};
use crate::support::{restricted, says};
use weir_http::json::JsonValue;
use weir_test::{Server, TempDir, TestServerBuilder, both_drivers, wait_for};

/// Those of [`CONF`] that are asked.
const LOCATIONS: [&str; 3] = ["= /pages", "= /sleeps", "= /plain"];

/// Pages that `/pages` uses for the first time in each request.
const PAGES: u64 = 256;

const CONF: &str = "events { } http { keepalive_requests 1000000; server { listen 127.0.0.1:%%PORT%%;
    location = /pages { content_by_lua_file pages.lua; }
    location = /sleeps { content_by_lua_file sleeps.lua; }
    location = /plain { return 200 plain; } } }";
const PAGES_LUA: &str = "local ffi = require 'ffi'
pcall(ffi.cdef, 'void *mmap(void *, size_t, int, int, int, long); int munmap(void *, size_t); int madvise(void *, size_t, int);')
local size = 256 * 4096
local memory = ffi.C.mmap(nil, size, 3, 0x22, -1, 0)
ffi.C.madvise(memory, size, 15)
local bytes = ffi.cast('char *', memory)
for page = 0, 255 do bytes[page * 4096] = 1 end
ffi.C.munmap(memory, size)
ngx.say('done')";
const SLEEPS_LUA: &str = "local ffi = require 'ffi'
pcall(ffi.cdef, 'int usleep(unsigned);')
ffi.C.usleep(2000)
ngx.say('done')";

fn builder(workers: usize) -> TestServerBuilder {
    Server::builder(&format!("worker_processes {workers}; {CONF}"))
        .file("pages.lua", PAGES_LUA)
        .file("sleeps.lua", SLEEPS_LUA)
}

fn started(builder: TestServerBuilder) -> Server {
    let server = builder.start();
    says::ready(&server);
    server
}

fn asked(server: &Server) -> FaultLoad {
    let pause = Duration::from_millis(1);
    ["/pages", "/sleeps", "/plain"]
        .into_iter()
        .fold(FaultLoad::default(), |load, path| load.clients(server, 1, path, pause))
}

/// Whether the server may count the kernel's part: else the test is of what it says then.
fn counts_all(server: &Server) -> bool {
    says::says(&["doctor"], &says::of(server)).contains("page faults, context switches by location\n")
}

/// The figures of a location, all phases and modules together.
struct LocationEvents {
    requests: u64,
    faults: u64,
    switches: u64,
}

fn events(places: &[JsonValue], location: &str) -> LocationEvents {
    let of = |place: &&JsonValue| place.field("location").and_then(JsonValue::text) == Some(location);
    let sum = |key: &str| places.iter().filter(of).filter_map(|place| place.field(key)?.number()).sum();
    let requests = places.iter().find(of).and_then(|place| place.field("requests")?.number()).unwrap_or(0);
    LocationEvents { requests, faults: sum("page_faults"), switches: sum("context_switches") }
}

fn who_did_what_is_named(workers: usize) {
    let server = started(builder(workers));
    if !counts_all(&server) {
        eprintln!("skipped: this machine does not let the server count the kernel's events");
        return;
    }
    let _load = asked(&server);
    // Requests are counted where they end, and those at both ends of the window belong to it in part. Of some windows the first
    // that is right: on a busy machine a worker's counters begin late.
    let edge = 2 * workers as u64 + 2;
    let json = wait_for("a window that is right", || {
        let json = weir(&server, &["perf", "-t", "1s", "--json"]);
        let json = JsonValue::parse(json.as_bytes()).expect("JSON");
        let places = json.field("places").and_then(JsonValue::list).expect("a list");
        let enough = LOCATIONS.iter().all(|location| events(places, location).requests > 20);
        let pages = events(places, LOCATIONS[0]);
        let least = PAGES * pages.requests.saturating_sub(edge);
        let right = (least..=(PAGES + 20) * (pages.requests + edge)).contains(&pages.faults);
        (enough && right).then_some(json)
    });
    let places = json.field("places").and_then(JsonValue::list).expect("a list");
    let [pages, sleeps, plain] = LOCATIONS.map(|location| events(places, location));
    let few = pages.requests / 10;
    assert!(sleeps.faults < PAGES * few && plain.faults < PAGES * few, "{} {}", sleeps.faults, plain.faults);
    assert!(sleeps.switches >= sleeps.requests - edge, "{} switches of {}", sleeps.switches, sleeps.requests);
    let lua = |place: &&JsonValue| {
        let text = |key: &str| place.field(key).and_then(JsonValue::text).unwrap_or_default();
        text("location") == "= /pages" && text("phase") == "content" && text("module").contains("lua")
    };
    let faults = places.iter().find(lua).and_then(|place| place.field("page_faults")?.number()).unwrap_or(0);
    assert!(faults * 10 >= pages.faults * 9, "{faults} of {} in content_by_lua", pages.faults);
    // What was counted is what there was.
    let total = |name: &str| {
        let counters = json.field("counters").and_then(JsonValue::list).expect("a list");
        let counter =
            counters.iter().find(|counter| counter.field("name").and_then(JsonValue::text) == Some(name));
        counter.and_then(|counter| counter.field("total")?.number()).expect("it was counted")
    };
    let sum = |key: &str| places.iter().filter_map(|place| place.field(key)?.number()).sum::<u64>();
    for name in ["page_faults", "context_switches", "cpu_ns"] {
        let (sum, total) = (sum(name), total(name));
        assert!(sum <= total && total - sum <= total / 20, "{name}: {sum} of {total}");
    }
}

both_drivers! {
    fn who_uses_fresh_pages_and_who_sleeps_is_named(driver) {
        who_did_what_is_named(1);
    }

    fn several_workers_add_up(driver) {
        who_did_what_is_named(4);
    }

    fn one_location_is_shown_and_what_is_wrong_refused(driver) {
        let server = started(builder(2));
        if !counts_all(&server) {
            return;
        }
        let _load = asked(&server);
        let text = wait_for("the location", || {
            let text = weir(&server, &["perf", "/pages", "-t", "500ms"]);
            text.contains("= /pages").then_some(text)
        });
        assert!(!text.contains("/sleeps") && !text.contains("(no request)"), "{text}");
        assert!(text.starts_with("location ") && text.contains("page faults and context switches one by one"), "{text}");
        for (words, why) in [
            (&["perf", "/a", "--location", "/b"][..], "one location at a time"),
            (&["perf", "-t", "x"], "x"),
            (&["perf", "/a", "/b"], "/b"),
        ] {
            let output = says::run(words, &says::of(&server));
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && errors.contains(why), "{words:?}: {errors}");
        }
    }

    /// Counting ends with the client, and workers that come while it lasts are counted.
    fn a_reload_and_a_second_client_in_the_middle(driver) {
        let mut server = started(builder(2));
        if !counts_all(&server) {
            return;
        }
        let _load = asked(&server);
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["perf", "-t", "4s"]).args(says::of(&server)).stdout(Stdio::piped());
        let first = wait_for("the first client", || {
            let mut first = command.spawn().expect("the program runs");
            // Of two that come at once either may be the second.
            loop {
                let second = says::run(&["perf", "-t", "1ms"], &says::of(&server));
                let is_refused = String::from_utf8_lossy(&second.stderr).contains("another `weir perf` counts");
                match first.try_wait().expect("it is ours") {
                    Some(_) => return None,
                    None if is_refused => return Some(first),
                    None => {}
                }
            }
        });
        server.reload(&format!("worker_processes 3; {CONF}"));
        let text = first.wait_with_output().expect("it ends").stdout;
        let text = String::from_utf8(text).expect("text");
        assert!(text.contains("= /pages") && text.contains("= /sleeps"), "{text}");
        assert!(weir(&server, &["perf", "-t", "300ms"]).contains("= /pages"), "it counts again");
    }
}

/// A parent may leave any signals blocked: those of the sampler come all the same.
#[test]
fn a_mask_of_the_parent_s_hides_nothing() {
    let directory = TempDir::new();
    let Some(program) = restricted::with_blocked(&directory, "SIGTRAP, SIGPROF") else { return };
    let builder = builder(2).binary(&program).env("WEIR_PROGRAM", env!("CARGO_BIN_EXE_weir"));
    let server = started(builder);
    let can_count = |line: &str| line.contains(" counters ") && !line.starts_with("no ");
    if !says::says(&["doctor"], &says::of(&server)).lines().any(can_count) {
        eprintln!("skipped: this machine does not let the server count anything");
        return;
    }
    let _load = asked(&server);
    // Page faults are sent one by one: with the signal blocked none of them has a place.
    wait_for("page faults with their place", || {
        let json = weir(&server, &["perf", "-t", "500ms", "--json"]);
        let json = JsonValue::parse(json.as_bytes()).expect("JSON");
        let places = json.field("places").and_then(JsonValue::list).expect("a list");
        (events(places, LOCATIONS[0]).faults > PAGES).then_some(())
    });
}

/// The number of perf_event_open(2) on x86-64.
const PERF_EVENT_OPEN: u32 = 298;

#[cfg(target_arch = "x86_64")]
#[test]
fn a_server_that_may_not_count_says_why() {
    let directory = TempDir::new();
    let Some(program) = restricted::without_call(&directory, PERF_EVENT_OPEN) else { return };
    let server = started(builder(1).binary(&program).env("WEIR_PROGRAM", env!("CARGO_BIN_EXE_weir")));
    let doctor = says::says(&["doctor"], &says::of(&server));
    let line =
        doctor.lines().find(|line| line.starts_with("no   counters ")).unwrap_or_else(|| panic!("{doctor}"));
    for kind in
        ["CPU time", "cycles", "page faults", "context switches", "seccomp filter forbids perf_event_open"]
    {
        assert!(line.contains(kind), "{kind}: {line}");
    }
    let output = says::run(&["perf"], &says::of(&server));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("nothing can be counted: a seccomp filter forbids"),
        "{errors}"
    );
    assert_eq!(server.client().get("/pages").text(), "done\n");
}

#[test]
fn a_server_without_the_capability_counts_what_it_may() {
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if paranoid.trim() != "2" {
        eprintln!("skipped: perf_event_paranoid is {paranoid}");
        return;
    }
    let directory = TempDir::new();
    let Some(program) = restricted::without_capabilities(&directory, "-perfmon,-sys_admin") else { return };
    let server = started(builder(1).binary(&program).env("WEIR_PROGRAM", env!("CARGO_BIN_EXE_weir")));
    let doctor = says::says(&["doctor"], &says::of(&server));
    assert!(doctor.contains("page faults by location, outside of the kernel only"), "{doctor}");
    assert!(
        doctor.contains("can't count context switches: kernel.perf_event_paranoid is 2: set it to 1"),
        "{doctor}"
    );
    let _load = asked(&server);
    let text = wait_for("page faults", || {
        let text = weir(&server, &["perf", "-t", "500ms"]);
        text.contains("= /pages").then_some(text)
    });
    for note in ["outside of the kernel only", "not counted: context switches", "context switches to wait"] {
        assert!(text.contains(note), "{note}: {text}");
    }
}
