//! Files of at most 128 KB: written by the loop where the file system is quick, else by threads (`small_file_writes`). Bytes,
//! names and the order of requests are the same, and a disk that stalls holds up a worker once.

use crate::support;

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use weir_test::{Backend, Client, Server, both_drivers, require_program, wait_for};

use crate::http2::client::Client as H2Client;
use support::{get, pattern, settled};

/// Around the sizes at which something changes: none, less than a buffer, one write, the largest small file and one more,
/// several writes.
const SIZES: [usize; 7] = [0, 1, 5_000, 65_536, 131_072, 131_073, 700_000];
const POLICIES: [&str; 3] = ["auto", "threads", "loop"];

fn conf(workers: usize, policy: &str, place: &str, backend: &Backend) -> String {
    let upstream = format!("proxy_pass http://127.0.0.1:{};", backend.port());
    format!(
        "worker_processes {workers};
        http {{ client_body_temp_path {place}/body 1; proxy_temp_path {place}/proxy; client_max_body_size 0;
            proxy_cache_path {place}/cache levels=1:2 keys_zone=c:1m; proxy_cache_valid any 1h;
            client_body_buffer_size 1k; small_file_writes {policy};
            server {{ listen 127.0.0.1:%%PORT%%; http2 on; log_not_found off;
                location /files/ {{ alias {place}/files/; dav_methods PUT; create_full_put_path on; }}
                location /echo {{ {upstream} }}
                location /only {{ client_body_in_file_only clean; {upstream} }}
                location /store/ {{ proxy_store %%DIR%%/{place}/stored$uri; {upstream} }}
                location /stored/ {{ alias {place}/stored/; }}
                location /cache/ {{ proxy_cache c; {upstream} add_header X-Cache $upstream_cache_status; }}
                location /ok {{ return 200 ok; }} }} }}"
    )
}

/// The upstream server: sends a body back; a GET of `/.../N` gets N bytes.
fn backend() -> Backend {
    Backend::start(|visit| {
        while let Some(head) = visit.head() {
            let lower = head.to_ascii_lowercase();
            let body = match lower.split("content-length: ").nth(1) {
                Some(rest) => {
                    let length = rest.split("\r\n").next().expect("a line").parse().expect("a number");
                    visit.bytes(length).unwrap_or_default()
                }
                None => {
                    let path = head.split(' ').nth(1).expect("a path");
                    pattern(path.rsplit('/').next().expect("a name").parse().expect("a number"))
                }
            };
            visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
            visit.send(&body);
        }
    })
}

fn put(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Small files that loops have written, and stalls, of `weir use`.
fn small_files(server: &Server) -> (u64, u64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output =
        command.args(["use", "-t", "1ms", "--json", "-c", "nginx.conf", "-p"]).arg(server.dir().path());
    let output = output.output().expect("weir runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = text.split('{').find(|row| row.contains("small files")).unwrap_or_else(|| panic!("{text}"));
    let number = |after: &str, until: &str| {
        let value = row.split(after).nth(1).and_then(|rest| rest.split(until).next());
        value
            .and_then(|value| value.rsplit(['"', ' ']).next()?.parse().ok())
            .unwrap_or_else(|| panic!("{row}"))
    };
    (number("\"saturation\":\"", " writes"), number("\"since_start\":\"", " stalls"))
}

/// All of what writes files, by both versions, in one size; `round` makes names of its own.
fn write_all(server: &Server, size: usize, round: usize) {
    let body = pattern(size);
    let mut client = server.client();
    let mut h2 = H2Client::connect(server.addr(0));
    for (version, status) in [(1, 201), (2, 204)] {
        let path = format!("/files/{round}/{size}");
        let mut ask = |method: &str, path: &str, body: Option<&[u8]>| match (version, body) {
            (1, Some(body)) => {
                let response = client.request(put(method, path, body));
                (response.status, response.body)
            }
            (1, None) => {
                let response = client.get(path);
                (response.status, response.body)
            }
            _ => {
                let key = h2.open(method, path, &[], body);
                let answer = h2.answer(key);
                (answer.status, answer.body)
            }
        };
        assert_eq!(ask("PUT", &path, Some(&body)).0, status, "{version} {size}");
        let read = ask("GET", &path, None);
        assert!(read.0 == 200 && read.1 == body, "{version} {size}: {} bytes", read.1.len());
        for place in ["/echo", "/only"] {
            let echo = ask("POST", place, Some(&body));
            assert!(echo.0 == 200 && echo.1 == body, "{version} {place} {size}: {} bytes", echo.1.len());
        }
        for path in [
            format!("/store/{round}/{size}"),
            format!("/cache/{round}/{size}"),
            format!("/cache/{round}/{size}"),
        ] {
            let read = ask("GET", &path, None);
            assert!(read.0 == 200 && read.1 == body, "{version} {path}: {} bytes", read.1.len());
        }
    }
    let stored = server.dir().path().join(format!("{PLACE}/stored/store/{round}/{size}"));
    assert!(wait_for("stored", || fs::read(&stored).ok()) == body);
}

/// Where the files are, below the server's directory.
const PLACE: &str = "place";

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn make_places(place: &Path) {
    for name in ["files", "stored", "body", "proxy", "cache"] {
        fs::create_dir_all(place.join(name)).expect("ours");
    }
}

both_drivers! {
    fn all_ways_write_the_same_bytes_on_whichever_thread(driver) {
        for (policy, workers) in POLICIES.into_iter().flat_map(|policy| [(policy, 1), (policy, 4)]) {
            let backend = backend();
            let builder = Server::builder(&conf(workers, policy, PLACE, &backend)).driver(driver);
            make_places(&builder.dir().join(PLACE));
            let server = builder.allow("a client request body is buffered to a temporary file").start();
            for (round, size) in SIZES.into_iter().enumerate() {
                write_all(&server, size, round);
            }
            let (on_loops, _) = small_files(&server);
            match policy {
                "threads" => assert_eq!(on_loops, 0),
                "loop" => assert!(on_loops > 20, "{on_loops}"),
                // Depends on the disk of this machine.
                _ => {}
            }
            // Nothing is left of what was written aside.
            for name in ["body", "proxy"] {
                let left = files(&server.dir().path().join(PLACE).join(name));
                assert!(left.is_empty(), "{left:?}");
            }
            settled(&server);
        }
    }

    /// `aio threads` and `aio_write` ask for threads; what was written in so many words counts more.
    fn who_asks_for_threads_gets_them(driver) {
        for (settings, on_loop) in [
            ("aio threads; small_file_writes loop;", true),
            ("aio threads=pool;", false),
            ("aio threads;", false),
            ("aio_write on;", false),
        ] {
            let server = Server::builder(&format!(
                "http {{ client_body_temp_path body; {settings}
                    server {{ listen 127.0.0.1:%%PORT%%; location / {{ root html; dav_methods PUT; }} }} }}"
            ))
            .file("html/a", "")
            .driver(driver)
            .start();
            let mut client = server.client();
            for number in 0..60 {
                let path = format!("/{number}");
                assert_eq!(client.request(put("PUT", &path, b"bytes")).status, 201);
            }
            assert_eq!(small_files(&server).0 > 0, on_loop, "{settings}");
        }
    }

    /// What was written in a turn of the loop is not hidden by a file that was opened earlier in it.
    fn what_was_put_is_there_for_the_next_request_of_a_pipeline(driver) {
        let backend = backend();
        let builder = Server::builder(&conf(1, "loop", PLACE, &backend)).driver(driver);
        make_places(&builder.dir().join(PLACE));
        let conf = builder.start();
        let mut client = conf.client();
        assert_eq!(client.request(put("PUT", "/files/x", b"before")).status, 201);
        for number in 0..20 {
            let body = format!("after {number}");
            let all = [get("/files/x").into_bytes(), put("PUT", "/files/x", body.as_bytes()), get("/files/x").into_bytes()];
            client.send(all.concat());
            let before = client.response().text();
            assert_eq!(client.response().status, 204);
            let after = client.response().text();
            assert_ne!(before, body);
            assert_eq!(after, body, "{before}");
        }
    }

    /// The file system is frozen, as a slow disk would be: what writes to it then waits. The first wait holds up the worker, which
    /// `weir blocked` reports; then threads write, and wait alone.
    fn a_disk_that_stalls_holds_up_a_worker_once(driver) {
        let backend = backend();
        let builder = Server::builder(&conf(1, "auto", PLACE, &backend)).driver(driver);
        let Some(disk) = FrozenDisk::mount(&builder.dir().join(PLACE), &builder.dir().join("image")) else { return };
        make_places(&disk.0);
        let server = builder.start();
        let mut client = server.client();
        let mut number = 0;
        let mut put_new = |client: &mut Client| {
            number += 1;
            client.send(put("PUT", &format!("/files/{number}"), &pattern(65_536)));
        };
        wait_for("the loop writes", || {
            // Enough to show that the disk is quick, and a few more.
            for _ in 0..60 {
                put_new(&mut client);
                assert_eq!(client.response().status, 201);
            }
            (small_files(&server).0 > 3).then_some(())
        });
        let stalls = small_files(&server).1;
        let mut other = server.client();
        // Once a second a thread looks at the directory, and waits in the loop's place.
        wait_for("the worker waits for the disk", || {
            put_new(&mut client);
            assert_eq!(client.response().status, 201);
            disk.freeze();
            put_new(&mut client);
            let waiting = wait_for("a thread in the kernel", || held_up(&server));
            // As long as `weir blocked` wants it, and more.
            std::thread::sleep(5 * BLOCKED);
            disk.thaw();
            assert_eq!(client.response().status, 201);
            waiting.starts_with("weir worker").then_some(())
        });
        wait_for("the tool reports it", || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
            let output = command.args(["blocked", "-c", "nginx.conf", "-p"]).arg(server.dir().path()).output();
            String::from_utf8_lossy(&output.expect("weir runs").stdout).contains("/files/").then_some(())
        });
        wait_for("the stall is known", || (small_files(&server).1 > stalls).then_some(()));
        let on_loops = small_files(&server).0;
        disk.freeze();
        put_new(&mut client);
        // The worker serves others while a thread waits.
        for _ in 0..20 {
            assert_eq!(other.get("/ok").text(), "ok");
        }
        assert_eq!(small_files(&server).0, on_loops, "no loop has written");
        disk.thaw();
        assert_eq!(client.response().status, 201);
    }
}

/// The thread that waits for a disk, in state `D`: no signal ends that.
fn held_up(server: &Server) -> Option<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.serving_pid())).expect("it runs");
    tasks.flatten().find_map(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        let (head, rest) = stat.rsplit_once(')')?;
        rest.starts_with(" D").then(|| head.split_once('(').map(|(_, name)| name.to_owned()))?
    })
}

/// A file system of its own that can be made to wait; it is gone with this.
struct FrozenDisk(PathBuf, RefCell<Vec<Child>>);

impl FrozenDisk {
    /// `None`: only root may mount.
    fn mount(path: &Path, image: &Path) -> Option<FrozenDisk> {
        fs::create_dir_all(path).expect("ours");
        fs::File::create(image).and_then(|file| file.set_len(64 << 20)).expect("ours");
        let mut make = Command::new(require_program("mkfs.ext4")?);
        assert!(make.arg("-q").arg("-F").arg(image).status().is_ok_and(|status| status.success()));
        require_program("fsfreeze")?;
        let mut mount = Command::new(require_program("mount")?);
        mount.args(["-o", "loop"]).arg(image).arg(path);
        if !mount.output().expect("mount runs").status.success() {
            eprintln!(
                "skipped: {}: mount is forbidden here",
                std::thread::current().name().unwrap_or("a test")
            );
            return None;
        }
        Some(FrozenDisk(path.to_owned(), RefCell::default()))
    }

    /// Freezes it. A process of its own thaws it if nobody else does: what waits for a frozen disk can't be killed.
    fn freeze(&self) {
        let later = format!("sleep {AT_LAST}; exec fsfreeze -u \"$0\"");
        let mut thaw = Command::new("sh");
        thaw.args(["-c", &later])
            .arg(&self.0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.1.borrow_mut().push(thaw.spawn().expect("sh is everywhere"));
        self.set("-f");
    }

    fn thaw(&self) {
        self.set("-u");
    }

    #[track_caller]
    fn set(&self, option: &str) {
        let set = Command::new("fsfreeze").arg(option).arg(&self.0).status();
        assert!(set.is_ok_and(|status| status.success()), "fsfreeze {option}");
    }
}

/// What is reported of a worker that is held up (`profile_blocked`).
const BLOCKED: Duration = Duration::from_millis(10);
/// Seconds after which a disk is thawed whatever becomes of the test.
const AT_LAST: u32 = 30;

impl Drop for FrozenDisk {
    fn drop(&mut self) {
        // Not frozen, mostly.
        let _ = Command::new("fsfreeze").arg("-u").arg(&self.0).output();
        let unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
        for thaw in self.1.get_mut() {
            let _ = thaw.kill().and_then(|()| thaw.wait());
        }
        assert!(unmounted.is_ok_and(|status| status.success()), "{} stays mounted", self.0.display());
    }
}
