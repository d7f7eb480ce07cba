//! Weir as a library: servers inside of this very process.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::time::Duration;

use weir::{DriverChoice, Request, Response, Server};
use weir_test::{Client, Driver, TempDir, both_drivers, free_ports, wait_for};

#[path = "../examples/micro.rs"]
mod micro;
/// The examples, which are run here, too.
#[allow(dead_code, reason = "its `main` serves for ever")]
#[path = "../examples/embed.rs"]
mod ten_lines;

fn driver() -> DriverChoice {
    match Driver::current() {
        Some(Driver::Epoll) => DriverChoice::Epoll,
        Some(Driver::IoUring) => DriverChoice::IoUring,
        None => DriverChoice::default(),
    }
}

fn address(server: &Server) -> SocketAddr {
    server.addresses()[0].to_string().parse().expect("an address with a port")
}

fn get(server: &Server, path: &str) -> weir_test::Response {
    Client::connect(address(server)).get(path)
}

/// This process' threads of that name; those of tests that run at the same time are among them.
fn threads(name: &str) -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux has it");
    let tasks = tasks
        .flatten()
        .filter(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name));
    tasks.map(|task| task.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn ten_lines_make_a_server() {
    let server = ten_lines::start("127.0.0.1:0").expect("starts");
    let response = get(&server, "/hello?you");
    assert_eq!((response.status, response.text().as_str()), (200, "Hello, you!\n"));
    assert_eq!(get(&server, "/other").status, 404);
}

#[test]
fn a_server_comes_and_goes_twice_beside_other_work() {
    micro::main().expect("counts");
}

both_drivers! {
    fn handlers_see_the_request_and_make_the_answer(driver_name) {
        let echo = |request: &Request<'_>, response: &mut Response| {
            let field = request.header("x-word").map(String::from_utf8_lossy).unwrap_or_default().into_owned();
            let text = format!(
                "{} {} {} {} {} {field}",
                request.method(), request.path(), request.query(), request.host(), request.client().host()
            );
            response.status(201).header("X-Answer", "yes").content_type("text/x-echo").body(text);
        };
        let server = Server::builder().driver(driver()).location("/echo/", echo).start().expect("starts");
        let mut client = Client::connect(address(&server));
        let response =
            client.request("PUT /echo/%61//b?c=d HTTP/1.1\r\nHost: Name:1\r\nX-Word: w\r\nContent-Length: 3\r\n\r\nabc");
        assert_eq!(response.text(), "PUT /echo/a/b c=d name 127.0.0.1 w");
        assert_eq!(response.status, 201);
        assert_eq!(response.field("x-answer"), Some("yes"));
        assert_eq!(response.field("content-type"), Some("text/x-echo"));
        assert_eq!(client.get("/echo/").status, 201, "the body was read away");
        server.stop();
    }

    /// Bodies in memory and in a file; a task that waits blocks nothing.
    fn a_handler_may_wait(driver_name) {
        let (release, waits) = channel::<()>();
        let waits = std::sync::Mutex::new(waits);
        let server = Server::builder()
            .driver(driver())
            .location_async("/length", async |request: &mut Request<'_>, response: &mut Response| {
                let body = request.body().await?;
                let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
                response.body(format!("{} {sum}", body.len()));
                Ok(())
            })
            .location_async("/wait", async |_: &mut Request<'_>, response: &mut Response| {
                weir_rt::sleep(Duration::from_millis(20)).await;
                response.body("slept");
            })
            .location("/block", move |_, _| {
                let _ = waits.lock().map(|waits| waits.recv_timeout(Duration::from_millis(1)));
            })
            .start()
            .expect("starts");
        drop(release);
        let mut client = Client::connect(address(&server));
        for length in [0, 5, 700_000] {
            let mut bytes =
                format!("POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n").into_bytes();
            bytes.extend(std::iter::repeat_n(b'a', length));
            assert_eq!(client.request(bytes).text(), format!("{length} {}", length * 97));
        }
        let mut waiting = Client::connect(address(&server));
        waiting.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.get("/block").status, 200);
        assert_eq!(waiting.response().text(), "slept");
        let large = client.request("POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n");
        assert_eq!(large.status, 413, "client_max_body_size");
    }

    /// Two servers in one process: each has its addresses, its configuration, its log; one's end is not the other's.
    fn two_servers_know_nothing_of_each_other(driver_name) {
        let (directory, ports) = (TempDir::new(), free_ports(2));
        let conf = |name: &str, word: &str| format!(
            "worker_processes 2; error_log {0}/{name}.log notice; events {{ worker_connections 2; }}
            http {{ access_log {0}/{name}.access; client_body_temp_path {0}/{name}.bodies;
            server {{ listen 127.0.0.1:{1}; server_name {name}; location / {{ return 200 {word}; }} location /own {{ handler own; }} }} }}",
            directory.path().display(), if name == "one" { ports[0] } else { ports[1] }
        );
        let start = |name: &'static str| {
            let own = move |_: &Request<'_>, response: &mut Response| { response.body(name); };
            Server::builder().driver(driver()).conf(conf(name, "v0")).handler("own", own).start().expect("starts")
        };
        let (one, two) = (start("one"), start("two"));
        assert_ne!(address(&one), address(&two));
        assert_eq!((get(&one, "/own").text(), get(&two, "/own").text()), ("one".into(), "two".into()));
        one.reload(&conf("one", "v1")).expect("valid");
        assert_eq!((get(&one, "/").text(), get(&two, "/").text()), ("v1".into(), "v0".into()));
        let exited = |name: &str| directory.read(&format!("{name}.log")).matches("exited with code 0").count();
        wait_for("two workers", || (exited("one") == 2).then_some(()));
        assert_eq!(exited("two"), 0);
        let gone = address(&one);
        one.stop();
        // What else has held the socket, as the configuration before, is freed a moment later.
        wait_for("refused connections", || TcpStream::connect(gone).is_err().then_some(()));
        assert_eq!(get(&two, "/").text(), "v0");
        wait_for("access log", || directory.read("two.access").contains("GET / ").then_some(()));
        assert!(!directory.read("two.access").contains("v1"));
        two.quit();
        two.join();
        assert_eq!(exited("two"), 2);
    }

    /// Errors are reported with their place, and changes nothing.
    fn a_wrong_text_is_an_error(driver_name) {
        let own = |_: &Request<'_>, response: &mut Response| { response.body("own"); };
        let directory = TempDir::new();
        let text = "events { }\nhttp { access_log off; client_body_temp_path BODIES; server { listen 127.0.0.1:0; location / { handler own; } } }";
        let text = &text.replace("BODIES", &directory.path().join("bodies").display().to_string());
        let builder = || Server::builder().driver(driver()).handler("own", own);
        let server = builder().conf(text.as_str()).start().expect("starts");
        let error = server.reload(&text.replace("handler own", "handler other")).expect_err("no such handler");
        assert!(error.to_string().contains("unknown handler \"other\" in "), "{error}");
        let error = server.reload("events { } http { retrun; }").expect_err("no such directive");
        assert!(error.to_string().contains("unknown directive \"retrun\""), "{error}");
        assert_eq!(get(&server, "/").text(), "own");
        let taken = text.replace("127.0.0.1:0", &address(&server).to_string());
        let Err(error) = builder().conf(&taken).start() else { panic!("the address is taken") };
        assert!(error.to_string().contains("(98: Address already in use)"), "{error}");
        let Err(error) = builder().conf(text.as_str()).root("/srv").start() else { panic!("both") };
        assert!(error.to_string().contains("has its addresses and locations there"), "{error}");
        assert_eq!(get(&server, "/").text(), "own");
    }

    /// A status without body is the server's business; what can't be sent is an error.
    fn answers_that_are_none(driver_name) {
        let server = Server::builder()
            .driver(driver())
            .location("/gone", |_, response| { response.status(410); })
            .location("/split", |_, response| { response.header("X", "a\r\nY: b"); })
            .location("/odd", |_, response| { response.status(99); })
            .location("/moved", |_, response| { response.status(302).header("Location", "/there"); })
            .start()
            .expect("starts");
        assert!(get(&server, "/gone").text().contains("410 Gone"));
        assert_eq!(get(&server, "/split").status, 500);
        assert_eq!(get(&server, "/odd").status, 500);
        let moved = get(&server, "/moved");
        assert_eq!((moved.status, moved.field("location").is_some_and(|to| to.ends_with("/there"))), (302, true));
    }
}

/// Hosts by their names, on the address of the first; each has its own locations, and files.
#[test]
fn hosts_have_their_own_locations() {
    let directory = TempDir::new();
    directory.write("a.txt", "file");
    let says = |text: &'static str| move |_: &Request<'_>, response: &mut Response| _ = response.body(text);
    let server = Server::builder()
        .location("/word", says("first"))
        .host("one.example *.one.example")
        .location("/word", says("one"))
        .location("= /only", says("only"))
        .host("two.example")
        .root(directory.path())
        .start()
        .expect("starts");
    assert_eq!(server.addresses().len(), 1);
    let get = |host: &str, path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let response = Client::connect(address(&server)).request(request);
        (response.status, response.text())
    };
    let ok = |text: &str| (200, text.to_owned());
    assert_eq!(get("any.example", "/word"), ok("first"));
    assert_eq!(get("one.example", "/word"), ok("one"));
    assert_eq!(get("a.one.example", "/only"), ok("only"));
    assert_eq!(get("two.example", "/a.txt"), ok("file"));
    assert_eq!((get("any.example", "/only").0, get("two.example", "/word").0), (404, 404));
    assert_eq!(get("one.example", "/a.txt").0, 404);
}

/// The program's signals come to its own threads: workers block them, and SIGPIPE, which Rust ignores, is as before.
#[test]
fn threads_take_no_signals() {
    // More workers than other tests have, some of which are watched by signals.
    let last = std::thread::available_parallelism().map_or(1, |count| count.get()) + 9;
    let server = Server::builder().workers(last + 1).start().expect("starts");
    let name = format!("weir worker {last}");
    let task = wait_for("the last worker", || threads(&name).pop());
    let status = fs::read_to_string(format!("/proc/self/task/{task}/status")).expect("it runs");
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).expect("a mask");
    let blocked = u64::from_str_radix(blocked, 16).expect("hexadecimal");
    // Bit 0 is signal 1: HUP, INT, USR1, PIPE, TERM, CHLD.
    assert_eq!(blocked & 0x1_5203, 0x1_5203, "{blocked:x}");
    server.stop();
}

/// Files of a directory, and the end of all threads.
#[test]
fn a_directory_is_served_and_no_thread_is_left() {
    let directory = TempDir::new();
    directory.write("a.html", "<p>");
    // More workers than other tests have, so that these threads can be identified.
    let more = std::thread::available_parallelism().map_or(1, |count| count.get()) + 5;
    let last = format!("weir worker {more}");
    let server = Server::builder().root(directory.path()).workers(more + 1).start().expect("starts");
    let response = get(&server, "/a.html");
    assert_eq!((response.text().as_str(), response.field("content-type")), ("<p>", Some("text/html")));
    // A thread gives itself its name.
    wait_for("the last worker", || (threads(&last).len() == 1).then_some(()));
    let mut busy = Client::connect(address(&server));
    busy.send("GET /a.html HTTP/1.1\r\n");
    server.stop();
    // The system lists a thread for a moment after it was joined.
    wait_for("the end of its thread", || threads(&last).is_empty().then_some(()));
    assert!(busy.try_response().is_err());
}

/// A worker that does not respond: the reload gives up, and nothing of it happens, not even later.
#[test]
fn a_reload_that_a_worker_does_not_take_has_not_happened() -> io::Result<()> {
    use std::sync::Arc;
    use weir_engine::conf::test;
    use weir_server::ServerOptions;

    let conf = |word: &str, listen: &str| {
        let text = format!(
            "worker_processes 3; events {{ }} http {{ access_log off; server {{ listen 127.0.0.1:0 reuseport; {listen} return 200 {word}; }} }}"
        );
        Arc::new(test::load(&text, weir::modules::MODULES).expect("valid"))
    };
    let options =
        ServerOptions { patience: Duration::from_secs(5), watched: false, ..ServerOptions::default() };
    let server = weir_server::Server::start(conf("v0", ""), options).expect("starts");
    let address: SocketAddr = server.addresses()[0].to_string().parse().expect("an address");
    let (release, held) = channel::<()>();
    server.on_worker(1, move |_| {
        let _ = held.recv_timeout(weir_test::DEADLINE);
    });
    let error = server.reload(conf("v1", "listen 127.0.0.2:0;")).expect_err("a worker is stuck");
    assert_eq!(error.to_string(), "a worker did not take the configuration in time");
    assert_eq!(server.addresses().len(), 1);
    drop(release);
    // All workers, and more than once each.
    for _ in 0..30 {
        assert_eq!(Client::connect(address).get("/").text(), "v0");
    }
    server.reload(conf("v2", "listen 127.0.0.2:0;")).expect("all answer");
    for _ in 0..30 {
        assert_eq!(Client::connect(address).get("/").text(), "v2");
    }
    assert_eq!(server.addresses().len(), 2);
    Ok(())
}

/// Scripts of a start that is given up: those of its timers that wait for it to be in force never run, and what a script that
/// waits had let go on ends.
#[test]
fn a_reload_that_is_given_up_leaves_no_script() {
    use std::sync::Arc;
    use weir_engine::conf::test;
    use weir_server::ServerOptions;

    let directory = TempDir::new();
    let place = directory.path().display();
    let conf = |name: &str, yields: &str, script: &str| {
        let text = format!(
            "worker_processes 2; events {{}} http {{ access_log off; error_log {place}/log notice; lua_shared_dict seen 64k; {yields}
                init_worker_by_lua \"
                    local seen = ngx.shared.seen
                    local function count(key) return function(premature) seen:incr('{name} ' .. key, 1, 0) end end
                    ngx.timer.at(0, count 'at')
                    ngx.timer.every(0.005, count 'every')
                    {script}\";
                exit_worker_by_lua \"ngx.shared.seen:incr('{name} exits', 1, 0)\";
                server {{ listen 127.0.0.1:0;
                    location /seen {{ content_by_lua \"
                        local key = ngx.unescape_uri(ngx.var.arg_key)
                        ngx.print('{name} ', tostring(ngx.shared.seen:get(key)))\"; }}
                    location /late {{ content_by_lua \"ngx.sleep(0.05) ngx.print('{name}')\"; }} }} }}"
        );
        Arc::new(test::load(&text, weir::modules::MODULES).expect("valid"))
    };
    let options =
        ServerOptions { patience: Duration::from_millis(700), watched: false, ..ServerOptions::default() };
    let server = weir_server::Server::start(conf("v0", "", ""), options).expect("starts");
    let address: SocketAddr = server.addresses()[0].to_string().parse().expect("an address");
    let ask = |path: &str| Client::connect(address).get(path).text();
    let late = |error: weir_server::StartError| {
        assert_eq!(error.to_string(), "a worker did not take the configuration in time");
    };

    // The second worker is stuck in its script: the first one's timers have been due for long.
    let hold = directory.write("hold", "");
    let stuck = "if ngx.worker.id() == 1 then while os.rename('PLACE/hold', 'PLACE/hold') do os.execute('sleep 0.01') end end";
    let stuck = stuck.replace("PLACE", &place.to_string());
    late(server.reload(conf("v1", "", &stuck)).expect_err("a worker is stuck"));
    fs::remove_file(hold).expect("it was there");
    wait_for("both workers' ends", || (ask("/seen?key=v1%20exits") == "v0 2").then_some(()));
    assert_eq!(ask("/late"), "v0");
    for key in ["at", "every"] {
        assert_eq!(ask(&format!("/seen?key=v1%20{key}")), "v0 nil");
    }

    // A script waits for ever: timers go on until it is given up.
    let waits = "if ngx.worker.id() == 1 then repeat ngx.sleep(0.01) until seen:get 'never' end";
    late(server.reload(conf("v2", "lua_yield_everywhere on;", waits)).expect_err("a script waits"));
    wait_for("both workers' ends", || (ask("/seen?key=v2%20exits") == "v0 2").then_some(()));
    assert_eq!(ask("/seen?key=v2%20at"), "v0 2");
    let ran = ask("/seen?key=v2%20every");
    assert_ne!(ran, "v0 nil");
    for _ in 0..4 {
        assert_eq!(ask("/late"), "v0");
    }
    assert_eq!(ask("/seen?key=v2%20every"), ran);

    // The next one is as if nothing had been.
    server.reload(conf("v3", "", "")).expect("nothing waits");
    wait_for("both workers' timers", || (ask("/seen?key=v3%20at") == "v3 2").then_some(()));
}
