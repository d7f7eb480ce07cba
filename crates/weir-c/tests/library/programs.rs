//! Programs of `tests/programs`: several servers, dlopen, C++, and many requests at once.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use weir_test::{DEADLINE, Driver, TempDir, both_drivers, require_program, skip, wait_for};

use crate::support::{RunningProgram, Workshop, built, get, home};

both_drivers! {
    /// Requests end in many ways, by many threads, while clients leave and the server stops.
    fn a_storm_leaves_nothing(driver) {
        storm(driver, 4, false);
        storm(driver, 2, true);
    }
}

fn storm(driver: Driver, workers: usize, in_loop: bool) {
    let Some(workshop) = Workshop::open() else { return };
    let source = home().join("tests/programs/storm.c");
    if !workshop.try_compile(&source, "storm", &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
    {
        return skip("cc has no -fsanitize=address,undefined");
    }
    let mut command = Command::new(workshop.directory.path().join("storm"));
    let in_loop = if in_loop { "1" } else { "0" };
    command.args([driver.name(), &workers.to_string(), in_loop, "5"]);
    let mut program = RunningProgram::start(&mut command, workshop.directory.path());
    for round in 0..5 {
        let address = program.address();
        let clients: Vec<_> = (0..6)
            .map(|client| std::thread::spawn(move || ask_until_it_stops(address, client + round)))
            .collect();
        // By then some of all ways have been taken, and some are under way.
        for number in 0..40 {
            ask(address, number * 3 + 1);
        }
        program.go_on();
        clients.into_iter().for_each(|client| client.join().expect("it does not panic"));
    }
    println!("{}", program.line());
    program.expect_end();
}

fn ask_until_it_stops(address: SocketAddr, seed: usize) {
    for number in seed.. {
        if ask(address, number).is_none() {
            return;
        }
    }
}

/// Sends a request. Every third client leaves without waiting for the response. `None`: there is no server.
fn ask(address: SocketAddr, number: usize) -> Option<()> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).expect("a time");
    let body = "b".repeat(number * 997 % 30_000);
    let head =
        format!("POST /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    // The server may end meanwhile, or break the response off.
    let sent = stream.write_all((head + &body).as_bytes());
    if sent.is_ok() && !number.is_multiple_of(3) {
        let _any = stream.read_to_end(&mut Vec::new());
    }
    Some(())
}

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
    wait_for("refused connections", || TcpStream::connect(one).is_err().then_some(()));
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
