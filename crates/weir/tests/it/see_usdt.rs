//! Static probes: listed in the program for bpftrace and perf, and harmless when they are switched on.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::process::Command;

use weir_test::{Server, require_program};

/// Name, semaphore and arguments of each probe, as `readelf` finds them.
fn listed() -> Option<BTreeMap<String, (u64, usize)>> {
    let readelf = require_program("readelf")?;
    let output = Command::new(readelf).args(["-n", env!("CARGO_BIN_EXE_weir")]).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut probes = BTreeMap::new();
    for note in text.split("Provider: weir").skip(1) {
        let value = |key: &str| {
            let rest = note.split_once(key).unwrap_or_else(|| panic!("no {key} in {note}")).1;
            rest.lines().next().unwrap_or_default().trim().to_owned()
        };
        let semaphore = u64::from_str_radix(value("Semaphore: 0x").trim(), 16).expect("an address");
        let before = probes.insert(value("Name: "), (semaphore, value("Arguments: ").split(' ').count()));
        assert_eq!(before, None, "each is there once: {text}");
    }
    Some(probes)
}

#[test]
fn probes_are_listed_with_their_arguments() {
    let Some(probes) = listed() else { return };
    let arguments: Vec<(&str, usize)> =
        probes.iter().map(|(name, (_, count))| (name.as_str(), *count)).collect();
    assert_eq!(
        arguments,
        [("loop__blocked", 2), ("request__begin", 3), ("request__done", 6), ("site__done", 5)]
    );
    assert!(probes.values().all(|(semaphore, _)| *semaphore > 0), "{probes:?}");
}

/// What the kernel does when a tracer attaches: it counts the semaphores up. Nothing listens at the places themselves.
#[test]
fn a_server_whose_probes_are_on_serves() {
    let Some(probes) = listed() else { return };
    let server =
        Server::start("http { server { listen 127.0.0.1:%%PORT%%; location / { return 200 here; } } }");
    assert_eq!(server.get("/").status, 200);
    let pid = server.serving_pid();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("our child's");
    // Its first mapping is where the file's first byte is.
    let first =
        maps.lines().find(|line| line.contains(env!("CARGO_BIN_EXE_weir"))).expect("the program's mapping");
    let base = u64::from_str_radix(first.split('-').next().unwrap_or_default(), 16).expect("an address");
    let Ok(memory) = std::fs::File::options().read(true).write(true).open(format!("/proc/{pid}/mem")) else {
        eprintln!(
            "skipped: a_server_whose_probes_are_on_serves: other processes may not be looked into here"
        );
        return;
    };
    for (name, (semaphore, _)) in &probes {
        let mut count = [9; 2];
        memory.read_exact_at(&mut count, base + semaphore).expect("readable");
        assert_eq!(count, [0; 2], "{name}: nobody listens");
        memory.write_all_at(&1u16.to_le_bytes(), base + semaphore).expect("writable");
    }
    for _ in 0..10 {
        assert_eq!(server.get("/").text(), "here");
    }
}
