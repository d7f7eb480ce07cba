//! `attacks.c`: what careless and hostile programs do.

use std::net::SocketAddr;
use std::process::Command;

use weir_test::{Client, Driver, both_drivers, require_program, skip, wait_for};

use crate::support::{RunningProgram, Workshop, get, home, post};

both_drivers! {
    fn one_worker(driver) {
        attack(driver, 1, false);
    }

    fn eight_workers(driver) {
        attack(driver, 8, false);
    }

    /// All functions are called on the program's thread, whose loop waits for the descriptor.
    fn in_the_programs_loop(driver) {
        attack(driver, 2, true);
    }
}

#[test]
fn address_sanitizer_finds_nothing() {
    let Some(workshop) = Workshop::open() else { return };
    let source = home().join("tests/programs/attacks.c");
    if !workshop.try_compile(
        &source,
        "attacks",
        &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    ) {
        return skip("cc has no -fsanitize=address,undefined");
    }
    let mut command = Command::new(workshop.directory.path().join("attacks"));
    run(&workshop, command.env("ASAN_OPTIONS", "detect_leaks=1").args(["epoll", "2", "0", "2"]), 2);
}

#[test]
fn valgrind_finds_nothing() {
    let (Some(workshop), Some(valgrind)) = (Workshop::open(), require_program("valgrind")) else { return };
    let program = workshop.compile("attacks.c");
    let mut command = Command::new(valgrind);
    command.args([
        "-q",
        "--leak-check=full",
        "--show-leak-kinds=definite",
        "--errors-for-leak-kinds=definite",
        "--error-exitcode=9",
        "--fair-sched=yes",
    ]);
    run(&workshop, command.arg(program).args(["epoll", "2", "0", "1"]), 1);
}

/// A body that does not fit in memory. Apart from the others: the thread that wrote its file ends after 10 seconds without
/// work, and the program waits for that.
#[test]
fn a_long_body_comes_whole() {
    let Some(workshop) = Workshop::open() else { return };
    let mut command = Command::new(workshop.compile("attacks.c"));
    let mut program =
        RunningProgram::start(command.args(["epoll", "1", "0", "1"]), workshop.directory.path());
    let body = vec![7u8; 3_000_000];
    assert_eq!(post(program.address(), "/body", &body), (200, b"3000000 21000000".to_vec()));
    program.go_on();
    program.expect_end();
}

/// Two rounds: a server can be started again from its builder.
fn attack(driver: Driver, workers: usize, in_loop: bool) {
    let Some(workshop) = Workshop::open() else { return };
    let mut command = Command::new(workshop.compile("attacks.c"));
    let in_loop = if in_loop { "1" } else { "0" };
    run(&workshop, command.args([driver.name(), &workers.to_string(), in_loop, "2"]), 2);
}

fn run(workshop: &Workshop, command: &mut Command, rounds: usize) {
    let mut program = RunningProgram::start(command, workshop.directory.path());
    for round in 0..rounds {
        let address = program.address();
        if round == 0 {
            plain(address);
            bodies(address);
            broken(address);
        }
        leaving(address);
        let mut kept = Client::connect(address);
        kept.send("GET /keep HTTP/1.1\r\nHost: a\r\n\r\n");
        // The last is one that quits: a request that is kept keeps the server.
        if round == 0 {
            assert_eq!(get(address, "/twice").1, "once");
            wait_for("the kept one", || program_has(address).then_some(()));
        } else {
            wait_for("the kept one", || program_has(address).then_some(()));
            assert_eq!(get(address, "/quits").1, "quits");
        }
        program.go_on();
        assert!(kept.try_response().is_err());
    }
    program.expect_end();
}

/// Whether the request that is kept has come: its handler has run before one that comes later.
fn program_has(address: SocketAddr) -> bool {
    get(address, "/kept").1.starts_with("1 ")
}

fn plain(address: SocketAddr) {
    let request = "GET /a/../show?x=%20 HTTP/1.1\r\nHost: Name:1\r\nX-Word: w\r\n\r\n";
    let shown = Client::connect(address).request(request).text();
    assert_eq!(shown, "GET\n/a/../show?x=%20\n/show\nx=%20\nname\nHTTP/1.1\nw\nHost\nX-Word\n");
    assert_eq!(get(address, "/twice"), (200, "once".to_owned()));
    assert_eq!(get(address, "/nulls"), (200, "null".to_owned()));
    assert_eq!(get(address, "/blocking"), (200, "blocking".to_owned()));
    assert_eq!(get(address, "/timer"), (200, "timer".to_owned()));
    assert_eq!(get(address, "/task"), (200, "task".to_owned()));
    assert_eq!(get(address, "/forked"), (200, "forked".to_owned()));
    let refused = Client::connect(address).get("/refused");
    assert_eq!(
        (refused.status, refused.field("x-kept"), refused.text().as_str()),
        (201, Some("yes"), "right")
    );
    let (status, page) = get(address, "/status");
    assert!(status == 410 && page.contains("410 Gone"), "{page}");
    let other = Client::connect(address).request("GET /twice HTTP/1.1\r\nHost: a.other.example\r\n\r\n");
    assert_eq!(other.text(), "once");
    // Pipelined, and on a connection that stays.
    let mut client = Client::connect(address);
    client.send("GET /timer HTTP/1.1\r\nHost: a\r\n\r\nGET /twice HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((client.response().text(), client.response().text()), ("timer".into(), "once".into()));
    client.send("HEAD /download?77 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response_to_head().field("content-length"), Some("77"));
    client.send("HEAD /thread HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response_to_head().field("content-length"), None);
    assert_eq!(client.get("/twice").text(), "once");
}

fn bodies(address: SocketAddr) {
    let long: Vec<u8> = (0..3_000_000u32).map(|at| (at >> 3) as u8).collect();
    let sum: u64 = long[..8000].iter().map(|byte| u64::from(*byte)).sum();
    for body in [&b""[..], b"a", &long[..100_000], &long] {
        assert!(post(address, "/echo", body) == (200, body.to_vec()), "of {} bytes", body.len());
    }
    assert_eq!(post(address, "/body", &long[..8000]), (200, format!("8000 {sum}").into_bytes()));
    assert_eq!(post(address, "/body", b""), (200, b"0 0".to_vec()));
    let chunked = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    assert_eq!(Client::connect(address).request(chunked).text(), "abcde");
    let broken = "POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n";
    assert_eq!(Client::connect(address).request(broken).status, 400);
    let large = "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 4000001\r\n\r\n";
    assert_eq!(Client::connect(address).request(large).status, 413);
    assert_eq!(Client::connect(address).get("/download?7000000").body.len(), 7_000_000);
    assert_eq!(Client::connect(address).get("/download?0").body.len(), 0);
    assert_eq!(Client::connect(address).get("/thread").body.len(), 2_000_000);
    assert_eq!(Client::connect(address).get("/huge").body.len(), 64 << 20);
    // What is asked for is what comes: the first piece comes back while the second is not sent yet.
    let mut slow = Client::connect(address);
    slow.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\none");
    slow.until("one");
    slow.send("two");
    slow.until("two");
}

/// Responses that never come, or not whole.
fn broken(address: SocketAddr) {
    for path in ["/let-go", "/let-go-in-thread"] {
        assert_eq!(get(address, path).0, 500, "{path}");
    }
    for path in ["/let-go-half-way", "/aborted", "/too-short"] {
        let mut client = Client::connect(address);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(client.try_response().is_err(), "{path}: a client knows that it is not whole");
    }
}

/// Clients that leave: a thread that writes for one learns of it.
fn leaving(address: SocketAddr) {
    let ends = || {
        let text = get(address, "/ends").1;
        text.split(' ').nth(1).and_then(|count| count.parse::<u32>().ok()).expect("a number")
    };
    let before = ends();
    for _ in 0..3 {
        let mut client = Client::connect(address);
        client.send("GET /thread?endless HTTP/1.1\r\nHost: a\r\n\r\n");
        client.until("HTTP/1.1 200");
        client.abort();
    }
    let mut waiting = Client::connect(address);
    waiting.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for("its handler", || (get(address, "/kept").1 == "0 1").then_some(()));
    waiting.abort();
    wait_for("the ends of all", || (ends() == before + 4).then_some(()));
}
