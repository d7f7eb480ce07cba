//! What fails beside the request, one table for each kind: directories that are full or may not be written, scripts that
//! throw. Each row is asked by HTTP/1.1 and HTTP/2, has a response of its own and a line in the error log; after all of them
//! the same process serves, and nothing that was half written is served.

use crate::support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use weir_test::{Backend, ReadError, Server, both_drivers, require_program, wait_for};

use crate::http2::client::Client as H2Client;
use support::{get, pattern};

/// More than sockets and buffers hold, so that a temporary file is asked for.
const BIG: usize = 16 << 20;
/// More than a body's buffer and than the page that a full directory has left.
const BODY: usize = 100_000;
/// Less than a body, in blocks of 512 bytes.
const FILE_BLOCKS: u64 = 160;

/// What a client sees of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// A response with this status.
    Status(u16),
    /// All of the body, though it could not be kept.
    Whole,
}

/// A row: what is asked for, what comes, what of the path the log names, and the errors it may have.
struct DiskRow {
    method: &'static str,
    path: &'static str,
    outcome: Outcome,
    /// What the line names. `None`: the row has no line of its own.
    line: Option<&'static str>,
}

const fn row(method: &'static str, path: &'static str, outcome: Outcome, line: &'static str) -> DiskRow {
    DiskRow { method, path, outcome, line: Some(line) }
}

const DISK_ROWS: [DiskRow; 11] = [
    row("POST", "/body", Outcome::Status(500), "/sick/body/"),
    row("POST", "/script", Outcome::Status(500), "/sick/body/"),
    row("PUT", "/dav/file", Outcome::Status(500), "/sick/"),
    DiskRow { method: "GET", path: "/dav/file", outcome: Outcome::Status(404), line: None },
    row("GET", "/spill", Outcome::Whole, "/sick/proxy/"),
    row("GET", "/cache", Outcome::Whole, "/sick/cache/"),
    row("GET", "/cache", Outcome::Whole, "/sick/cache/"),
    row("GET", "/cache_aside", Outcome::Whole, "/sick/"),
    row("GET", "/store", Outcome::Whole, "/sick/"),
    DiskRow { method: "GET", path: "/stored", outcome: Outcome::Status(404), line: None },
    row("GET", "/log", Outcome::Status(200), "/sick/own.log"),
];

/// Which threads write what is small: each row is the same.
const POLICIES: [&str; 2] = ["threads", "loop"];

/// The directories under `sick`.
const PLACES: [&str; 6] = ["body", "proxy", "cache", "aside", "store", "dav"];

fn conf(main: &str, policy: &str, backend: &Backend) -> String {
    let upstream = format!("proxy_pass http://127.0.0.1:{};", backend.port());
    format!(
        "{main} http {{ client_body_temp_path sick/body; proxy_temp_path sick/proxy; client_max_body_size 0;
            proxy_cache_path sick/cache keys_zone=c:1m use_temp_path=off; proxy_cache_path sick/aside keys_zone=d:1m;
            proxy_cache_valid any 1h; proxy_buffers 4 4k; proxy_buffer_size 4k; proxy_busy_buffers_size 4k;
            client_body_buffer_size 1k; small_file_writes {policy};
            server {{ listen 127.0.0.1:%%PORT%%; http2 on; keepalive_requests 100000;
                location /body {{ {upstream} }}
                location /script {{ content_by_lua_block {{ ngx.req.read_body() ngx.say('read') }} }}
                location /spill {{ {upstream} }}
                location /cache {{ proxy_cache c; {upstream} add_header X-Cache $upstream_cache_status; }}
                location /cache_aside {{ proxy_cache d; {upstream} add_header X-Cache $upstream_cache_status; }}
                location /store {{ proxy_store sick/store/x; {upstream} }}
                location /stored {{ alias sick/store/x; log_not_found off; }}
                location /dav/ {{ alias sick/dav/; dav_methods PUT; create_full_put_path on; log_not_found off; }}
                location /log {{ access_log sick/own.log; return 200 logged; }}
                location /ok {{ return 200 ok; }} }} }}"
    )
}

/// The upstream server: a big body for a GET.
fn backend() -> Backend {
    let body = pattern(BIG);
    Backend::start(move |visit| {
        while let Some(head) = visit.head() {
            if head.contains("POST") {
                visit.answer("upstream\n");
            } else {
                visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {BIG}\r\n\r\n"));
                visit.send(&body);
            }
        }
    })
}

/// Asks for a row by both versions and returns what was wrong.
fn ask(server: &Server, row: &DiskRow, big: &[u8]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut judge = |version: &str, status: u16, cached: Option<&str>, body: &[u8]| {
        let right = match row.outcome {
            Outcome::Status(expected) => status == expected,
            Outcome::Whole => status == 200 && body == big && cached.is_none_or(|cached| cached == "MISS"),
        };
        if !right {
            let (method, path, length) = (row.method, row.path, body.len());
            wrong.push(format!("HTTP/{version} {method} {path}: {status}, {cached:?}, {length} bytes"));
        }
    };
    let sent = pattern(BODY);
    let mut client = server.client();
    if row.method == "GET" {
        client.send(get(row.path));
    } else {
        let (method, path) = (row.method, row.path);
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY}\r\n\r\n");
        client.send([head.as_bytes(), &sent].concat());
    }
    let response = client.response();
    judge("1.1", response.status, response.field("x-cache"), &response.body);
    let mut client = H2Client::with_window(server.addr(0), 65_535);
    let key = client.open(row.method, row.path, &[], (row.method != "GET").then_some(&sent[..]));
    let answer = client.answer(key);
    judge("2", answer.status, answer.field("x-cache"), &answer.body);
    wrong
}

/// Asks for all rows, looks for their lines, and for what was left lying.
#[track_caller]
fn check(server: Server, error: &str, rows: &[DiskRow]) -> Server {
    let (big, mut wrong) = (pattern(BIG), Vec::new());
    let (serving, directory) = (server.serving_pid(), server.dir().path().to_owned());
    for row in rows {
        let before = server.error_log().len();
        wrong.extend(ask(&server, row, &big));
        if let Some(name) = row.line {
            // A log's own line comes when it is written, and may come once for many.
            let is_there = |text: &str| text.lines().any(|line| line.contains(name) && line.contains(error));
            let from = if name.ends_with(".log") { 0 } else { before };
            wait_for(name, || is_there(server.error_log().get(from..)?).then_some(()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(server.get("/ok").text(), "ok");
    assert_eq!(server.serving_pid(), serving, "the worker is the same");
    for place in PLACES {
        let left = files(&directory.join("sick").join(place));
        assert!(left.is_empty(), "{left:?}");
    }
    server
}

/// All files below `directory`.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// A file system of a few pages, which are all in use; it is gone with this.
struct FullDirectory(PathBuf);

impl FullDirectory {
    /// `None`: only root may mount.
    fn mount(path: &Path) -> Option<FullDirectory> {
        fs::create_dir_all(path).expect("ours");
        let mut mount = Command::new(require_program("mount")?);
        mount.args(["-t", "tmpfs", "-o", "size=64k,mode=0777", "tmpfs"]).arg(path);
        if !mount.output().expect("mount runs").status.success() {
            // Containers forbid it to root, too; no program is missing that could be installed.
            eprintln!(
                "skipped: {}: mount is forbidden here",
                std::thread::current().name().unwrap_or("a test")
            );
            return None;
        }
        let full = FullDirectory(path.to_owned());
        make_places(path);
        // The last write is of what there is room for; a page more, and not even directories could be made.
        let _no_space = fs::write(path.join("filler"), vec![0; 64 << 10]);
        Some(full)
    }
}

impl Drop for FullDirectory {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} stays mounted", self.0.display());
    }
}

fn make_places(path: &Path) {
    for place in PLACES {
        fs::create_dir_all(path.join(place)).expect("room for a directory");
        fs::set_permissions(path.join(place), fs::Permissions::from_mode(0o777)).expect("ours");
    }
}

/// A row: the path, how the request ends, and what the log says.
struct ScriptRow {
    path: &'static str,
    end: ScriptEnd,
    line: &'static str,
}

/// How a request ends whose script throws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScriptEnd {
    /// A whole response.
    Status(u16),
    /// A head, and less than the body: the connection, or the stream, is broken off.
    Cut,
}

const SCRIPT_ROWS: [ScriptRow; 14] = [
    script("/set", ScriptEnd::Status(500), "failed to run set_by_lua*"),
    script("/rewrite", ScriptEnd::Status(500), "lua entry thread aborted: runtime error: rewrite_by_lua("),
    script("/access", ScriptEnd::Status(500), "lua entry thread aborted: runtime error: access_by_lua("),
    script("/content", ScriptEnd::Status(500), "lua entry thread aborted: runtime error: content_by_lua("),
    script("/said", ScriptEnd::Cut, "lua entry thread aborted: runtime error: content_by_lua("),
    script("/header", ScriptEnd::Status(500), "failed to run header_filter_by_lua*"),
    script("/header_file", ScriptEnd::Status(500), "failed to run header_filter_by_lua*"),
    script("/body", ScriptEnd::Cut, "failed to run body_filter_by_lua*"),
    script("/body_file", ScriptEnd::Cut, "failed to run body_filter_by_lua*"),
    script("/body_later", ScriptEnd::Cut, "failed to run body_filter_by_lua*"),
    script("/log", ScriptEnd::Status(200), "failed to run log_by_lua*"),
    script("/balancer", ScriptEnd::Status(500), "failed to run balancer_by_lua*"),
    script("/balancer_index", ScriptEnd::Status(500), "failed to run balancer_by_lua*"),
    script("/page", ScriptEnd::Status(500), "lua entry thread aborted: runtime error: content_by_lua("),
];

const fn script(path: &'static str, end: ScriptEnd, line: &'static str) -> ScriptRow {
    ScriptRow { path, end, line }
}

const SCRIPTS: &str = "http { root html;
    upstream thrown { server 0.0.0.1; balancer_by_lua_block { error('thrown') } keepalive 3; }
    upstream indexed { server 0.0.0.1; balancer_by_lua_block { local none = nil; none.x = 1 } }
    server { listen 127.0.0.1:%%PORT%%; http2 on;
        location /set { set_by_lua_block $a { error('thrown') } return 200 x; }
        location /rewrite { rewrite_by_lua_block { error('thrown') } }
        location /access { access_by_lua_block { error('thrown') } }
        location /content { content_by_lua_block { error('thrown') } }
        location /said { content_by_lua_block { ngx.say('some') ngx.flush(true) error('thrown') } }
        location /header { header_filter_by_lua_block { error('thrown') } content_by_lua_block { ngx.say('text') } }
        location /header_file { alias html/file; header_filter_by_lua_block { error('thrown') } }
        location /body { body_filter_by_lua_block { error('thrown') } content_by_lua_block { ngx.say('text') } }
        location /body_file { alias html/file; body_filter_by_lua_block { error('thrown') } }
        location /body_later {
            body_filter_by_lua_block { if ngx.arg[1] == 'second' then error('thrown') end }
            content_by_lua_block { for _, piece in ipairs { 'first', 'second', 'third' } do ngx.print(piece) ngx.flush(true) end } }
        location /log { log_by_lua_block { error('thrown') } return 200 logged; }
        location /balancer { proxy_pass http://thrown; }
        location /balancer_index { proxy_pass http://indexed; }
        location /page { error_page 500 /error; content_by_lua_block { error('thrown') } }
        location /error { internal; return 200 'the page'; }
        location /ok { return 200 ok; } } }";

/// What comes by HTTP/1.1, and that the connection goes on after a whole response, or ends.
fn script_h1(server: &Server, path: &str) -> ScriptEnd {
    let mut client = server.client();
    match client.send(get(path)).try_response() {
        Ok(response) => {
            if response.keeps_alive() {
                assert_eq!(client.get("/ok").text(), "ok", "{path}");
            }
            ScriptEnd::Status(response.status)
        }
        Err(ReadError::Timeout) => panic!("{path}: neither a whole response nor its end"),
        Err(_) => ScriptEnd::Cut,
    }
}

/// What comes by HTTP/2, where the connection goes on in any case.
fn script_h2(client: &mut H2Client, path: &str) -> ScriptEnd {
    let answer = client.fetch(path);
    assert_eq!(client.fetch("/ok").text(), "ok", "{path}");
    if answer.reset.is_some() { ScriptEnd::Cut } else { ScriptEnd::Status(answer.status) }
}

both_drivers! {
    /// nginx gives 500 in the rows with a status, and cuts the responses in the rows without: those need the file only because
    /// the client is slow, or somebody may ask again.
    fn a_full_directory_ends_what_needs_it_and_nothing_else(driver) {
        for policy in POLICIES {
            let backend = backend();
            let builder = Server::builder(&conf("", policy, &backend)).driver(driver).allow("/sick/");
            let Some(full) = FullDirectory::mount(&builder.dir().join("sick")) else { return };
            let server = check(builder.start(), "failed (28: No space left on device)", &DISK_ROWS);
            drop(full);
            drop(server);
        }
    }

    /// RLIMIT_FSIZE: the signal that comes with it ends nginx's workers.
    fn a_file_that_may_not_grow_ends_what_needs_it_and_nothing_else(driver) {
        for policy in POLICIES {
            let backend = backend();
            let conf = conf("", policy, &backend);
            let builder = Server::builder(&conf).driver(driver).allow("/sick/").file_blocks(FILE_BLOCKS);
            let sick = builder.dir().join("sick");
            make_places(&sick);
            fs::write(sick.join("own.log"), vec![b'\n'; FILE_BLOCKS as usize * 512]).expect("ours");
            // How large the file of `/spill` becomes depends on how slow its client is.
            let (before, after) = (&DISK_ROWS[..4], &DISK_ROWS[5..]);
            assert!(after[0].path == "/cache" && before[3].path == "/dav/file");
            let server = check(builder.start(), "failed (27: File too large)", before);
            check(server, "failed (27: File too large)", after);
        }
    }

    fn a_directory_that_may_not_be_written_ends_what_needs_it_and_nothing_else(driver) {
        for policy in POLICIES {
            let backend = backend();
            // Root may write everywhere; the worker is another user then.
            let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
            let groups = fs::read_to_string("/etc/group").expect("Linux has it");
            let group = if groups.contains("\nnobody:") { "nobody" } else { "nogroup" };
            let user = format!("user nobody {group}; master_process on;");
            let conf = conf(if root { &user } else { "" }, policy, &backend);
            let builder = Server::builder(&conf).driver(driver).allow("/sick/");
            fs::set_permissions(builder.dir(), fs::Permissions::from_mode(0o755)).expect("ours");
            make_places(&builder.dir().join("sick"));
            let server = builder.start();
            // The master has given them to the worker's user.
            for place in PLACES {
                let place = server.dir().path().join("sick").join(place);
                fs::set_permissions(place, fs::Permissions::from_mode(0o555)).expect("ours");
            }
            let (_log, rows) = DISK_ROWS.split_last().expect("there are rows");
            check(server, "failed (13: Permission denied)", rows);
        }
    }

    /// As in OpenResty, but for the connection of a response that is cut by HTTP/1.1: nginx keeps it in some rows.
    fn a_script_that_throws_ends_its_request(driver) {
        let server = Server::builder(SCRIPTS).file("html/file", pattern(BODY)).allow("thrown").allow("index").driver(driver).start();
        let serving = server.serving_pid();
        let mut client = H2Client::connect(server.addr(0));
        let mut wrong = Vec::new();
        for row in &SCRIPT_ROWS {
            let ends = (script_h1(&server, row.path), script_h2(&mut client, row.path));
            if ends != (row.end, row.end) {
                wrong.push(format!("{}: {ends:?}", row.path));
            }
            for version in ["1.1", "2.0"] {
                let request = format!("GET {} HTTP/{version}\"", row.path);
                wait_for(row.line, || {
                    let log = server.error_log();
                    let at = log.split("\n2").find(|entry| entry.contains(row.line) && entry.contains(&request));
                    at.map(drop)
                });
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert_eq!(server.serving_pid(), serving);
    }
}
