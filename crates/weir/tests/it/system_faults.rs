//! What the system does to a server: no descriptors left, files that are cut, links that lead nowhere, many clients.

use crate::support;

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::time::Duration;

use weir_test::{Backend, Client, ConnectionEnd, Server, both_drivers, require_program, skip};

use support::{assert_serves, cpu_ticks, get, settled, wait_open_files};

const CONF: &str = "http { keepalive_timeout 600s; client_header_timeout 600s; log_format t '$status $body_bytes_sent \"$request_completion\" \"$request\"';
    access_log %%DIR%%/access.log t;
    server { listen 127.0.0.1:%%PORT%% backlog=4096; root html; location = /return { return 200 \"ok\\n\"; } } }
    events { worker_connections 8192; }";

/// Larger than what the sockets of both sides hold.
const BIG: usize = 16 << 20;

/// Descriptors of a server that shall run out of them: more than it needs itself.
const FEW: u64 = 60;
/// What is logged when the descriptors that are left are reserved for upstreams and files.
const WAITS: &str = "accepting waits (24: Too many open files)";

fn started() -> Server {
    Server::builder(CONF).file("html/a.txt", "file\n").start()
}

/// As [`started`], where lines of grave levels are right.
fn started_allowing(text: &str) -> Server {
    Server::builder(CONF)
        .file("html/a.txt", "file\n")
        .file("html/big", support::pattern(BIG))
        .allow(text)
        .start()
}

both_drivers! {
    /// Accepting stops, is tried again now and then instead of all the time, and goes on once descriptors are free.
    fn without_descriptors_accepting_waits(driver) {
        let server = Server::builder(CONF).open_files(FEW).start();
        let mut first = server.client();
        let request = get("/return");
        let (begin, end) = request.split_at(9);
        first.send(begin);
        let mut clients: Vec<Client> = (0..FEW).map(|_| server.client()).collect();
        for client in &mut clients {
            client.send(get("/return"));
        }
        let line = server.error_log_line(WAITS);
        assert!(line.contains("[crit]") && line.contains("raise worker_rlimit_nofile"), "{line}");
        // A client that has a connection is served.
        first.send(end);
        assert_eq!(first.response().text(), "ok\n");
        let before = cpu_ticks(&server);
        std::thread::sleep(Duration::from_secs(1));
        let burnt = cpu_ticks(&server) - before;
        assert!(burnt < 50, "{burnt} hundredths of a second in about one");
        let lines = server.error_log().lines().filter(|line| line.contains(WAITS)).count();
        assert!(lines < 100, "{lines} lines");
        // Each that leaves makes room for the next.
        while !clients.is_empty() {
            assert_eq!(clients.remove(0).response().text(), "ok\n");
        }
        assert_eq!(server.get("/return").text(), "ok\n");
    }

    /// nginx: a file that cannot be opened for want of descriptors is the server's fault.
    fn without_descriptors_files_get_500(driver) {
        let server = Server::builder(CONF)
            .open_files(FEW)
            .file("html/a.txt", "file\n")
            // What is read into the page cache aside takes a descriptor as well.
            .allow("writev() failed (24: Too many open files)")
            .start();
        for number in 0..FEW {
            let path = server.dir().path().join(format!("html/{number}.big"));
            File::create(path).and_then(|file| file.set_len(BIG as u64)).expect("ours");
        }
        // Each of them has a file of its own open: more than are reserved for files.
        let mut others: Vec<Client> = (0..FEW).map(|_| server.client()).collect();
        for (number, other) in others.iter_mut().enumerate() {
            other.send(get(&format!("/{number}.big")));
        }
        let line = server.error_log_line(".big\" failed (24: Too many open files)");
        assert!(line.contains("[crit]") && line.contains("open()"), "{line}");
        let number = line.split("/html/").nth(1).and_then(|path| path.split('.').next()?.parse::<usize>().ok());
        let refused = others[number.expect("the file's name")].response();
        assert!(refused.status == 500 && !refused.keeps_alive(), "{refused}");
        drop(others);
        // The server notices after a while that they have left.
        weir_test::wait_for("descriptors to open files with", || {
            (server.client().get("/a.txt").body == b"file\n").then_some(())
        });
    }

    /// What has to be read from the disk takes a thread with a descriptor of its own, and is read without where none is left.
    fn without_descriptors_files_that_are_being_sent_come_whole(driver) {
        let Some(dd) = require_program("dd") else { return };
        let hold = "location = /hold { content_by_lua_block { local held = {}
            string.held = held
            while true do
                local file = io.open('/dev/null')
                if not file then break end
                held[#held + 1] = file
            end
            ngx.say(#held > 0) } }
            location /buffered/ { alias html/; output_buffers 1 64k; sendfile off; }";
        let conf = CONF.replacen("} }\n", &format!("{hold} }} }}\n"), 1);
        let server = Server::builder(&conf).open_files(300).file("html/big", support::pattern(BIG)).start();
        let big = support::pattern(BIG);
        let mut clients = [server.client(), server.client()];
        for (client, path) in clients.iter_mut().zip(["/big", "/buffered/big"]) {
            client.send(get(path));
            client.peek(1).expect("its head");
        }
        let mut holder = server.client();
        assert_eq!(holder.get("/hold").text(), "true\n");
        // Out of memory again, and so from the disk.
        let file = server.dir().path().join("html/big");
        File::open(&file).and_then(|file| file.sync_all()).expect("on the disk");
        let dropped = Command::new(dd).arg(format!("if={}", file.display())).args(["iflag=nocache", "count=0"]).status();
        assert!(dropped.expect("dd runs").success());
        for mut client in clients {
            assert!(client.response().body == big);
        }
        drop(holder);
    }

    /// nginx gave 33 of these 500, and without a reserve 198 got 502.
    fn without_descriptors_upstreams_are_still_reached(driver) {
        for workers in [1, 3] {
            proxied_with_few_descriptors(workers);
        }
    }

    /// As many as the limits here allow, 2,000 at most: all stay open, all are served again, all go.
    fn thousands_of_idle_connections(driver) {
        let room = support::lift_open_files().saturating_sub(200) / 2;
        let count = room.min(2000) as usize;
        if count < 200 {
            return skip("the limit of open files is too low");
        }
        let server = started();
        let before = settled(&server);
        let memory = server.resident_bytes();
        let mut clients: Vec<Client> = (0..count).map(|_| server.client()).collect();
        for round in 0..2 {
            for client in &mut clients {
                client.send(get("/return"));
            }
            for client in &mut clients {
                assert_eq!(client.response().text(), "ok\n", "round {round}");
            }
        }
        let grown = server.resident_bytes().saturating_sub(memory);
        assert!(grown < count as u64 * 16 * 1024 + (8 << 20), "{grown} bytes for {count} connections");
        assert!(server.open_files() >= before + count);
        assert_serves(&mut server.client(), "/a.txt", "file\n");
        drop(clients);
        wait_open_files(&server, before);
    }

    /// Connections that come and go in every way leave no descriptor.
    fn churn_leaves_no_descriptors(driver) {
        let server = started();
        fs::write(server.dir().path().join("html/big"), support::pattern(1 << 20)).expect("ours");
        let before = settled(&server);
        let address = server.addr(0);
        support::together(4, |thread| {
            for number in 0..250 {
                let mut client = Client::connect(address);
                match (number + thread) % 6 {
                    0 => drop(client),
                    1 => client.abort(),
                    2 => assert_eq!(client.get("/a.txt").status, 200),
                    3 => {
                        client.send(get("/big"));
                        client.peek(1000).expect("it has begun");
                        client.abort();
                    }
                    4 => {
                        client.send("GET /a.t");
                    }
                    _ => {
                        client.send(support::upload("/return", 100_000) + "abc");
                        assert_eq!(client.response().status, 200);
                    }
                }
            }
        });
        wait_open_files(&server, before);
        assert_eq!(server.get("/a.txt").text(), "file\n");
    }

    /// After warming up, 100,000 requests more leave the memory where it was.
    fn a_hundred_thousand_requests_do_not_grow_it(driver) {
        let server = Server::builder("http { access_log off; keepalive_requests 1000000;
            server { listen 127.0.0.1:%%PORT%%; root html; location = /return { return 200 \"ok\\n\"; } } }")
            .file("html/a.txt", "file\n")
            .start();
        let address = server.addr(0);
        let batches = |count: usize| {
            support::together(2, |_| {
                let mut client = Client::connect(address);
                let batch = (get("/return") + &get("/a.txt")).repeat(25);
                for _ in 0..count {
                    client.send(&batch);
                    for _ in 0..50 {
                        assert_eq!(client.response().status, 200);
                    }
                }
            });
        };
        // This many fill each of the 1,024 receive buffers of 4 KB, which io_uring takes in turn.
        batches(1000);
        let before = server.resident_bytes();
        batches(1000);
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < 2 << 20, "{grown} bytes in 100,000 requests");
    }

    /// The length is promised and can't be had: the connection ends, nothing waits, the log says so.
    fn a_file_cut_while_it_is_served(driver) {
        let server = started_allowing("was truncated");
        let before = settled(&server);
        let mut client = server.client();
        client.send(get("/big"));
        client.peek(1).expect("it has begun");
        File::options().write(true).open(server.dir().path().join("html/big")).and_then(|file| file.set_len(0)).expect("ours");
        let (received, how) = client.rest();
        assert!(received.len() < BIG, "cut");
        assert_eq!(how, ConnectionEnd::Closed);
        wait_open_files(&server, before);
        assert_serves(&mut server.client(), "/a.txt", "file\n");
        let lines = support::final_log(server);
        assert!(lines[0].starts_with("200 ") && lines[0].ends_with("\"\" \"GET /big HTTP/1.1\""), "{lines:?}");
    }

    /// A file that grows while it is served: the length that was promised is kept.
    fn a_file_that_grows_while_it_is_served(driver) {
        let server = started_allowing("nothing");
        let mut client = server.client();
        client.send(get("/big"));
        client.peek(1).expect("it has begun");
        let path = server.dir().path().join("html/big");
        File::options().write(true).open(&path).and_then(|file| file.set_len(2 * BIG as u64)).expect("ours");
        assert!(client.response().body == support::pattern(BIG));
        assert_serves(&mut client, "/a.txt", "file\n");
    }

    /// Everything a path can lead to that is no file: nginx's status, level and words.
    fn paths_that_lead_to_no_file(driver) {
        let server = started_allowing("nothing");
        let directory = server.dir().path().join("html");
        symlink("loop-b", directory.join("loop-a")).expect("ours");
        symlink("loop-a", directory.join("loop-b")).expect("ours");
        symlink("nowhere", directory.join("dangling")).expect("ours");
        symlink("/dev/null", directory.join("device")).expect("ours");
        fs::create_dir(directory.join("empty")).expect("ours");
        let long = format!("/{}", "n".repeat(300));
        for (path, status, level, words) in [
            ("/none", 404, "[error]", "open() \"%/none\" failed (2: No such file or directory)"),
            ("/dangling", 404, "[error]", "open() \"%/dangling\" failed (2: No such file or directory)"),
            ("/a.txt/x", 404, "[error]", "open() \"%/a.txt/x\" failed (20: Not a directory)"),
            (long.as_str(), 404, "[error]", "failed (36: File name too long)"),
            ("/loop-a", 403, "[error]", "open() \"%/loop-a\" failed (40: Too many levels of symbolic links)"),
            ("/loop-a/x", 403, "[error]", "open() \"%/loop-a/x\" failed (40: Too many levels of symbolic links)"),
            ("/empty/", 403, "[error]", "directory index of \"%/empty/\" is forbidden"),
            ("/device", 404, "[crit]", "\"%/device\" is not a regular file"),
        ] {
            assert_eq!(server.get(path).status, status, "{path}");
            let words = words.replace('%', &directory.display().to_string());
            let line = server.error_log_line(&words);
            assert!(line.contains(level) && line.contains(", request: \"GET /"), "{line}");
        }
        let moved = server.get("/empty");
        assert_eq!((moved.status, moved.field("location")), (301, Some(&*format!("http://localhost:{}/empty/", server.port(0)))));
    }

    /// nginx: 403. Root reads everything, so there it is shown with a link that may not be followed.
    fn a_file_that_may_not_be_read(driver) {
        let conf = "http { server { listen 127.0.0.1:%%PORT%%; root html; location /strict/ { disable_symlinks on; } } }";
        let server = Server::builder(conf).file("html/secret", "secret").file("html/strict/f", "f").start();
        let directory = server.dir().path().join("html");
        symlink("f", directory.join("strict/link")).expect("ours");
        assert_eq!(server.get("/strict/f").text(), "f");
        assert_eq!(server.get("/strict/link").status, 403);
        let _ = server.error_log_line("/strict/link\" failed (40: Too many levels of symbolic links)");
        fs::set_permissions(directory.join("secret"), fs::Permissions::from_mode(0o0)).expect("ours");
        if File::open(directory.join("secret")).is_ok() {
            // Root may read everything, and no program that could be installed changes that: nothing to require.
            return eprintln!("not shown to root: open() failed (13: Permission denied)");
        }
        assert_eq!(server.get("/secret").status, 403);
        let _ = server.error_log_line("/secret\" failed (13: Permission denied)");
    }

    /// A client that is cut off in the middle of a pipeline leaves others alone.
    fn resets_under_load_harm_nobody(driver) {
        let server = started_allowing("nothing");
        let address = server.addr(0);
        support::together(4, |thread| {
            for _ in 0..50 {
                let mut client = Client::connect(address);
                if thread % 2 == 0 {
                    client.send(get("/big").repeat(3));
                    client.peek(50_000).expect("it has begun");
                    client.abort();
                } else {
                    for _ in 0..10 {
                        assert_serves(&mut client, "/a.txt", "file\n");
                    }
                }
            }
        });
    }
}

/// 200 clients at a time, a tenth of which could be served at once with a connection to the upstream each: all of them
/// are served, cached connections make room, and what holds them up is logged.
fn proxied_with_few_descriptors(workers: u32) {
    const CLIENTS: usize = 200;
    let backend = Backend::start(|visit| {
        while visit.head().is_some() {
            // As long as a real one takes, so that there are many at a time.
            std::thread::sleep(Duration::from_millis(5));
            visit.answer("upstream\n");
        }
    });
    let conf = format!(
        "worker_processes {workers}; events {{ worker_connections 1024; }} http {{ access_log off;
         server {{ listen 127.0.0.1:%%PORT%% backlog=4096; location / {{ proxy_pass http://127.0.0.1:{}; }} }} }}",
        backend.port()
    );
    let server = Server::builder(&conf).open_files(FEW_MORE + u64::from(workers) * OF_WORKER).start();
    let address = server.addr(0);
    let barrier = std::sync::Barrier::new(CLIENTS);
    let kept = support::together(CLIENTS, |number| {
        let mut client = Client::connect(address);
        barrier.wait();
        let ends = if number % 2 == 0 { "close" } else { "keep-alive" };
        let response = client
            .request(format!("GET /{number} HTTP/1.1\r\nHost: localhost\r\nConnection: {ends}\r\n\r\n"));
        assert_eq!((response.status, response.text().as_str()), (200, "upstream\n"));
        // Those that keep their connections leave none for the rest.
        client
    });
    drop(kept);
    let line = server.error_log_line(WAITS);
    assert!(line.contains("[crit]"), "{line}");
    let _ = server.error_log_line("reusing connections");
    assert_eq!(server.get("/").text(), "upstream\n");
}

/// Descriptors besides those of a worker, and those of a worker.
const FEW_MORE: u64 = 56;
const OF_WORKER: u64 = 8;
