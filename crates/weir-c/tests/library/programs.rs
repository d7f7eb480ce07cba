//! Programs of `tests/programs`: several servers, dlopen, C++.

use std::process::Command;

use weir_test::{TempDir, require_program, wait_for};

use crate::support::{RunningProgram, Workshop, built, get};

/// Servers from configurations know nothing of each other; reloads; a script runs in the library as in the program.
#[test]
fn two_servers_from_configurations() {
    let Some(workshop) = Workshop::open() else { return };
    let directory = TempDir::new();
    let mut command = Command::new(workshop.compile("servers.c"));
    let mut program = RunningProgram::start(command.arg(directory.path()), workshop.directory.path());
    let (one, two) = (program.address(), program.address());
    let ok = |text: &str| (200, text.to_owned());
    assert_eq!((get(one, "/word"), get(two, "/word")), (ok("text"), ok("file")));
    assert_eq!((get(one, "/own"), get(two, "/own")), (ok("one"), ok("two")));
    assert_eq!(get(one, "/lua"), ok("Lua 5.1 /lua"));
    program.go_on();
    assert_eq!(program.line(), "reloaded");
    assert_eq!((get(one, "/word"), get(two, "/word")), (ok("reloaded"), ok("changed")));
    assert_eq!((get(one, "/own"), get(two, "/own")), (ok("one"), ok("two")));
    program.go_on();
    assert_eq!(program.line(), "one is gone");
    wait_for("refused connections", || std::net::TcpStream::connect(one).is_err().then_some(()));
    assert_eq!(get(two, "/word"), ok("changed"));
    program.go_on();
    program.expect_end();
}

#[test]
fn dlopen_and_dlclose() {
    let Some(workshop) = Workshop::open() else { return };
    let mut command = Command::new(workshop.compile("loaded.c"));
    RunningProgram::start(command.arg(built().join("libweir_c.so")), workshop.directory.path()).expect_end();
}

#[test]
fn c_plus_plus_includes_the_header() {
    let (Some(workshop), Some(_)) = (Workshop::open(), require_program("c++")) else { return };
    let mut command = Command::new(workshop.compile("plus.cpp"));
    RunningProgram::start(&mut command, workshop.directory.path()).expect_end();
}
