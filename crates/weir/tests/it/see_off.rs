//! `weir flame off`: where threads do not run, by line of Lua: calls that block, disks, locks, and beside them what yields.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::support::StopAtEnd;
use crate::support::faults::{FaultLoad, slow_files, weir};
use weir_http::json::JsonValue;
use weir_test::{Client, Server, both_drivers, wait_for};

/// A script that blocks, or lets others run, in the line that ends with `--!`, and what the thread does there.
struct SleepingScript {
    name: &'static str,
    script: &'static str,
    does: &'static str,
}

const SCRIPTS: [SleepingScript; 7] = [
    SleepingScript {
        name: "execute",
        script: "local s = 1\nos.execute('sleep 0.05') --!",
        does: "asleep in wait4",
    },
    SleepingScript {
        name: "popen",
        script: "local pipe = io.popen('sleep 0.05; echo x')\nlocal text = pipe:read('*a') --!\npipe:close()",
        does: "asleep in read",
    },
    // A sleep that ended early because it was looked at would be seen here.
    SleepingScript {
        name: "usleep",
        script: "jit.off(true, true)\nlocal before = off.now()\nffi.C.usleep(50000) --!\nassert(off.now() - before >= 0.05, 'it woke too early')",
        does: "asleep in clock_nanosleep",
    },
    SleepingScript {
        name: "poll",
        script: "jit.off(true, true)\nlocal before = off.now()\nffi.C.poll(nil, 0, 50) --!\nassert(off.now() - before >= 0.05, 'it woke too early')",
        does: "asleep in poll",
    },
    // Held by the thread itself.
    SleepingScript {
        name: "mutex",
        script: "jit.off(true, true)\nlocal mutex, last = ffi.new('long[8]'), off.after(0.05)\nffi.C.pthread_mutex_lock(mutex)\nlocal errno = ffi.C.pthread_mutex_timedlock(mutex, last) --!\nassert(errno == 110, errno)",
        does: "asleep in futex",
    },
    SleepingScript {
        name: "nested",
        script: "local function inner()\n    ffi.C.usleep(50000) --!\nend\npcall(coroutine.wrap(inner))",
        does: "asleep in clock_nanosleep",
    },
    SleepingScript { name: "timer", script: "ngx.sleep(0.05) --!", does: "wait timer" },
];

const OFF_LUA: &str = "local ffi = require 'ffi'
ffi.cdef [[
    struct off_time { long s, ns; };
    int usleep(unsigned);
    int poll(void *, unsigned long, int);
    int clock_gettime(int, struct off_time *);
    int pthread_mutex_lock(long *);
    int pthread_mutex_timedlock(long *, const struct off_time *);
]]
local time = ffi.new('struct off_time')
local function now()
    ffi.C.clock_gettime(1, time)
    return tonumber(time.s) + tonumber(time.ns) / 1e9
end
local function after(seconds)
    local last = ffi.new('struct off_time')
    ffi.C.clock_gettime(0, last)
    local ns = tonumber(last.ns) + seconds * 1e9
    last.s, last.ns = last.s + math.floor(ns / 1e9), ns % 1e9
    return last
end
return { now = now, after = after }";

/// All scripts, a file that a slow disk has, and the page of the admin listener.
fn started(workers: usize) -> Option<Server> {
    let location = |one: &SleepingScript| {
        format!("location = /{name} {{ content_by_lua_file {name}.lua; }}\n", name = one.name)
    };
    let locations: String = SCRIPTS.iter().map(location).collect();
    let conf = format!(
        "worker_processes {workers}; events {{ }} admin 127.0.0.1:%%PORT_1%%;
        http {{ lua_package_path '$prefix/?.lua;;'; keepalive_requests 1000000;
        server {{ listen 127.0.0.1:%%PORT_0%%; {locations}
            location /file/ {{ alias html/; sub_filter_types *; sub_filter_once off; sub_filter abc xyz; }} }} }}"
    );
    let mut builder = Server::builder(&conf).file("off.lua", OFF_LUA).file("html/a.bin", vec![b'x'; 100_000]);
    for SleepingScript { name, script, .. } in &SCRIPTS {
        let script = format!("local ffi, off = require 'ffi', require 'off' {script}\nngx.say('done')");
        builder = builder.file(&format!("{name}.lua"), script);
    }
    let library = slow_files(builder.dir())?;
    let server = builder.env("LD_PRELOAD", &library).start();
    crate::support::says::ready(&server);
    Some(server)
}

/// Everything is asked for; each script must end as it should.
fn asked(server: &Server) -> FaultLoad {
    let scripts = SCRIPTS.iter().fold(FaultLoad::default(), |load, one| {
        let (mut client, path) = (server.client(), format!("/{}", one.name));
        load.with(move || {
            let response = client.get(&path);
            assert_eq!((response.status, response.text().as_str()), (200, "done\n"), "{path}");
            std::thread::sleep(PAUSE);
        })
    });
    scripts.clients(server, 1, "/file/a.bin", PAUSE)
}

/// The lines of a recording by samples, folded.
fn recorded(server: &Server, options: &[&str]) -> Vec<String> {
    let text = weir(server, &[&["flame", "off", "--samples", "-t", "2s", "-o", "folded"], options].concat());
    text.lines().map(str::to_owned).collect()
}

/// Whether a line is about `location`, and has these frames in this order, with others between.
fn shows(line: &str, location: &str, frames: &[&str]) -> bool {
    let (stack, _) = line.rsplit_once(' ').expect("a weight");
    let mut have = stack.split(';');
    have.next() == Some(location) && frames.iter().all(|frame| have.any(|one| one.ends_with(frame)))
}

/// What a recording lacks.
fn missing(lines: &[String]) -> Vec<String> {
    let mut wanted: Vec<(String, Vec<String>)> = SCRIPTS
        .iter()
        .map(|one| {
            let line = one.script.lines().position(|line| line.contains("--!")).expect("it is marked") + 1;
            let place = format!("{}.lua:{line}", one.name);
            // What yields is known by its module.
            let frames = if one.does.starts_with("wait") { vec![] } else { vec![place] };
            (format!("= /{}", one.name), [frames, vec![one.does.to_owned()]].concat())
        })
        .collect();
    wanted.push(("/file/".to_owned(), vec!["wait thread_pool".to_owned()]));
    let shown = |(location, frames): &(String, Vec<String>)| {
        let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
        lines.iter().any(|line| shows(line, location, &frames))
    };
    wanted.iter().filter(|wanted| !shown(wanted)).map(|wanted| format!("{wanted:?}")).collect()
}

const PAUSE: Duration = Duration::from_millis(20);

fn everything_is_named(workers: usize) {
    let Some(server) = started(workers) else { return };
    let _load = asked(&server);
    // A turn has one stack, and on a busy machine not each turn has one: together they have all.
    let mut lines = Vec::new();
    wait_for("each script by its line", || {
        lines.extend(recorded(&server, &[]));
        let missing = missing(&lines);
        eprintln!("missing: {missing:?}");
        missing.is_empty().then_some(())
    });
    // What lets others run does not block.
    let timer: Vec<&String> = lines.iter().filter(|line| line.starts_with("= /timer;")).collect();
    assert!(timer.iter().all(|line| !line.contains("asleep in ")), "{timer:?}");
}

both_drivers! {
    fn what_blocks_a_worker_is_named_by_file_and_line(driver) {
        everything_is_named(1);
    }

    fn several_workers_are_in_one_recording(driver) {
        everything_is_named(4);
    }

    /// Nothing is counted twice: a worker sleeps once at a time.
    fn no_more_was_slept_than_there_was_time(driver) {
        let Some(server) = started(1) else { return };
        let (mut client, stop, mut asked) = (server.client(), AtomicBool::new(false), 0);
        let (lines, time) = std::thread::scope(|scope| {
            let _stops = StopAtEnd(&stop);
            let recording = scope.spawn(|| {
                let begun = Instant::now();
                let lines = recorded(&server, &["--route", "/usleep"]);
                stop.store(true, SeqCst);
                (lines, begun.elapsed())
            });
            while !stop.load(SeqCst) {
                assert_eq!(client.get("/usleep").text(), "done\n");
                asked += 1;
            }
            recording.join().expect("no panic")
        });
        assert!(lines.iter().all(|line| line.starts_with("= /usleep;")), "{lines:?}");
        let weight = |line: &String| line.rsplit_once(' ').and_then(|(_, ns)| ns.parse::<u64>().ok()).expect("a weight");
        let asleep: u64 = lines.iter().filter(|line| line.contains(";asleep")).map(weight).sum();
        assert!(asleep <= time.as_nanos() as u64, "{asleep} ns asleep in {time:?}, {asked} requests: {lines:?}");
        assert!(asleep >= 150_000_000, "{asleep} ns asleep in {time:?}, {asked} requests: {lines:?}");
    }

    /// Where the kernel records switches for us, short calls have their stacks, too, and nothing is missing.
    fn the_kernel_says_it_exactly(driver) {
        let Some(server) = started(2) else { return };
        let doctor = weir(&server, &["doctor"]);
        let line = doctor.lines().find(|line| line.contains("off-CPU")).expect("a line").to_owned();
        if !line.contains("exact: the kernel records") {
            assert!(line.contains("CAP_PERFMON"), "{line}");
            eprintln!("skipped: {line}");
            return;
        }
        let _load = asked(&server);
        let mut lines: Vec<String> = Vec::new();
        wait_for("each script by its line", || {
            let text = weir(&server, &["flame", "off", "-t", "2s", "-o", "folded"]);
            lines.extend(text.lines().map(str::to_owned));
            let shown = |one: &SleepingScript| {
                let line = one.script.lines().position(|line| line.contains("--!")).expect("it is marked") + 1;
                let place = format!("{}.lua:{line}", one.name);
                one.name == "timer" || lines.iter().any(|line| shows(line, &format!("= /{}", one.name), &[&place, "asleep"]))
            };
            let missing: Vec<&str> = SCRIPTS.iter().filter(|one| !shown(one)).map(|one| one.name).collect();
            eprintln!("missing: {missing:?}");
            missing.is_empty().then_some(())
        });
    }

    fn it_comes_as_svg_and_json_and_over_http(driver) {
        let Some(server) = started(1) else { return };
        let _load = asked(&server);
        // Not each second has a stack on a busy machine.
        let svg = wait_for("a stack as SVG", || {
            let svg = weir(&server, &["flame", "off", "--samples", "-t", "1s"]);
            svg.contains("asleep in ").then_some(svg)
        });
        assert!(svg.contains("<svg "), "{svg}");
        let json = weir(&server, &["flame", "off", "-t", "1s", "--json", "--phase", "content"]);
        let json = JsonValue::parse(json.as_bytes()).expect("JSON");
        assert_eq!(json.field("kind").and_then(JsonValue::text), Some("off"));
        wait_for("admin listener", || std::net::TcpStream::connect(server.addr(1)).is_ok().then_some(()));
        let mut admin = Client::connect(server.addr(1));
        wait_for("a stack over HTTP", || {
            admin.get("/flame/off?seconds=1&fmt=folded&samples=").text().contains(";asleep in ").then_some(())
        });
        let refused = admin.get("/flame/off?seconds=1&fmt=folded&match=status%3D200");
        assert_eq!((refused.status, refused.text().contains("--route and --phase choose")), (400, true), "{refused}");
    }
}
