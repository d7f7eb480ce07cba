//! The files as other programs read them.

use std::process::Command;

use weir_see::formats::StackFormat;
use weir_see::stacks::{FrameOrigin, StackFrame, StackSet, StackWeight, WeightUnit};
use weir_test::TempDir;

fn example() -> StackSet {
    let mut stacks = StackSet::new("cpu", WeightUnit::Nanoseconds);
    stacks.period_ns = 10_000_000;
    stacks.duration_ns = 1_000_000_000;
    stacks.unix_ms = 1_700_000_000_000;
    let path = |route: &str, function: &str| {
        [
            StackFrame::new(FrameOrigin::Route, route),
            StackFrame::new(FrameOrigin::Phase, "content"),
            StackFrame::new(FrameOrigin::Native, function),
        ]
    };
    stacks.add(path("/", "find"), StackWeight { count: 3, value: 30_000_000 });
    stacks.add(path("/img/", "find"), StackWeight { count: 1, value: 10_000_000 });
    stacks.add(path("/img/", "read"), StackWeight { count: 2, value: 20_000_000 });
    stacks
}

/// Go's own reader, where there is one; what it must find is in the bytes in any case (unit tests).
#[test]
fn go_reads_pprof() {
    if !Command::new("go").arg("version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: go_reads_pprof: go is not installed");
        return;
    }
    let dir = TempDir::new();
    let file = dir.path().join("cpu.pb.gz");
    std::fs::write(&file, StackFormat::Pprof.write(&example())).expect("a file of ours");
    let mut go = Command::new("go");
    if std::env::var_os("HOME").is_none() {
        // It keeps what it makes below that.
        go.env("HOME", dir.path());
    }
    let output = go.args(["tool", "pprof", "-top", "-nodecount=10"]).arg(&file).output().expect("it runs");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    assert!(
        text.contains("Type: cpu") && text.contains("Duration: 1s, Total samples = 60ms"),
        "{text}{errors}"
    );
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.contains(&vec!["40ms", "66.67%", "66.67%", "40ms", "66.67%", "find"]), "{text}");
    assert!(rows.iter().any(|row| row.ends_with(&["60ms", "100%", "content"])), "{text}");
}
