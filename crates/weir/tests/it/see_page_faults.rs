//! Faults, each found by the page of the admin listener alone, by its links: five of them are what docs/guides/five-faults.md
//! describes step by step, with its pictures.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::browser::Browser;
use crate::support::faults::{FaultLoad, resetting_backend, slow_files};
use crate::support::page::{DESK, keep, opened};

use weir_test::{Backend, Client, Server, TestServerBuilder};

/// A server with six locations, of which nothing is known to whom looks at the page.
fn conf(workers: usize, peers: &[u16]) -> String {
    let peers: String = peers.iter().map(|port| format!("server 127.0.0.1:{port}; ")).collect();
    format!(
        "worker_processes {workers};
events {{ worker_connections 1024; }}
admin 127.0.0.1:%%PORT_1%%;
http {{
    keepalive_requests 1000000; client_header_timeout 600s;
    upstream backends {{ {peers} keepalive 8; }}
    server {{
        listen 127.0.0.1:%%PORT_0%%;
        root html;
        location /api/ {{ proxy_pass http://backends; }}
        location /report/ {{ content_by_lua_file report.lua; }}
        location /files/ {{ alias html/; sub_filter_types *; sub_filter_once off; sub_filter abc xyz; }}
        location /pages/ {{ alias html/; gzip on; gzip_types *; gzip_min_length 1; }}
        location /lua/ {{ content_by_lua_block {{ ngx.sleep(0.005) ngx.print(('text '):rep(100)) }} }}
        location /status {{ return 200 ok; }}
    }}
}}"
    )
}

const REPORT: &str = "local rows = {}
for n = 1, 50 do rows[n] = n * n end
ngx.say(table.concat(rows, ' '))";

fn builder(conf: &str, report: &str) -> TestServerBuilder {
    let page = "<p>Messages are divided into lines of characters</p>\n".repeat(50);
    Server::builder(conf)
        .file("report.lua", report)
        .file("html/a.html", page)
        .file("html/a.bin", vec![b'x'; 100_000])
        .allow("recv() failed")
        .allow("prematurely closed")
}

/// Some requests to each location.
fn loaded(server: &Server) -> FaultLoad {
    let paths = ["/api/x", "/report/", "/files/a.bin", "/pages/a.html", "/lua/", "/status"];
    paths.iter().fold(FaultLoad::default(), |load, path| load.clients(server, 2, path, PAUSE))
}

const PAUSE: Duration = Duration::from_millis(15);

/// The page as somebody opens it, and when.
struct Look {
    browser: Browser,
    begun: Instant,
}

impl Look {
    fn at(server: &Server) -> Option<Look> {
        let browser = opened(server, &DESK)?;
        Some(Look { browser, begun: Instant::now() })
    }

    /// Waits for a finding, and shows when it came.
    #[track_caller]
    fn finding(&mut self, kind: &str, text: &str) {
        let row = format!("document.querySelector('#findings li[data-kind={kind}]')");
        self.browser.until(&format!("{row}.textContent.includes({text:?})"));
        let says = self.browser.value(&format!("{row}.firstChild.textContent"));
        self.step(&format!("finding: {}", says.text().unwrap_or_default()));
    }

    /// Follows a link of that finding.
    #[track_caller]
    fn follow(&mut self, kind: &str, link: &str) {
        self.browser.click(&format!("#findings li[data-kind={kind}] a"), link);
    }

    /// A cell of the row of a table that begins with `row`, for as long as it takes until the condition holds for its
    /// text, `cell`.
    #[track_caller]
    fn cell(&mut self, table: &str, row: &str, column: &str, condition: &str) {
        let found = format!(
            "(() => {{
                const table = document.querySelector('table.{table}');
                const at = [...table.querySelectorAll('th')].findIndex((head) => head.textContent === '{column}');
                const row = [...document.querySelectorAll('table.{table} tbody tr')].find((row) => row.cells[0].textContent === '{row}');
                return row.cells[at].textContent;
            }})()"
        );
        self.browser.until(&format!("((cell) => {condition})({found})"));
        let text = self.browser.value(&found);
        self.step(&format!("{table}, {row}, {column}: {}", text.text().unwrap_or_default()));
    }

    fn step(&self, what: &str) {
        eprintln!("{:5.1} s  {what}", self.begun.elapsed().as_secs_f64());
    }

    fn keep(&mut self, picture: &str) {
        keep(&mut self.browser, picture);
    }

    /// A picture with that row of a tree in the middle.
    fn keep_row(&mut self, row: &str, picture: &str) {
        let rows = "[...document.querySelectorAll('.tree tr')]";
        self.browser.value(&format!(
            "{rows}.find((row) => row.cells[0].textContent.includes('{row}')).scrollIntoView({{ block: 'center' }}); true"
        ));
        self.keep(picture);
    }

    fn ends(self) {
        assert_eq!(self.browser.complaints(), [""; 0]);
        self.step("found");
    }
}

fn slow_backend(time: Duration) -> Backend {
    Backend::start(move |visit| {
        while visit.head().is_some() {
            thread::sleep(time);
            visit.answer("slow");
        }
    })
}

#[test]
fn a_peer_that_is_slow() {
    let (one, other, slow) =
        (Backend::answering("well"), Backend::answering("well"), slow_backend(Duration::from_millis(80)));
    let server = builder(&conf(2, &[one.port(), slow.port(), other.port()]), REPORT).start();
    let _load = loaded(&server);
    let Some(mut look) = Look::at(&server) else { return };
    let peer = format!("127.0.0.1:{}", slow.port());
    look.finding("slow_peer", &format!("{peer} is "));
    look.keep("fault-slow-peer.png");
    look.follow("slow_peer", "upstreams");
    look.cell("peers", &peer, "p99", "cell.endsWith(' ms') && parseFloat(cell) > 60");
    look.cell("peers", &peer, "broken off", "cell === '-'");
    // The server itself is not it: its location waits for that peer.
    look.browser.click("nav a", "overview");
    look.browser.click("a[href^='#/route/']", "/api/");
    look.browser.until(&format!(
        "[...document.querySelectorAll('.tree tr')].some((row) => row.cells[0].textContent.includes('{peer}') && row.cells[2].textContent.endsWith(' ms'))"
    ));
    look.keep_row(&peer, "fault-slow-peer-location.png");
    look.ends();
}

#[test]
fn a_line_of_lua_that_blocks() {
    let (one, other) = (Backend::answering("well"), Backend::answering("well"));
    let report = format!("local stamp = ngx.time()\nos.execute('sleep 0.03')\n{REPORT}");
    let server = builder(&conf(2, &[one.port(), other.port()]), &report).start();
    let _load = loaded(&server);
    let Some(mut look) = Look::at(&server) else { return };
    look.finding("blocked", "report.lua:2 in /report/ blocked a worker ");
    look.follow("blocked", "report.lua:2");
    look.browser.until(
        "document.querySelector('dialog[open] li.meant').textContent.includes(\"os.execute('sleep 0.03')\")",
    );
    look.step("report.lua:2 in its text");
    look.keep("fault-blocking-line.png");
    look.browser.click("dialog button", "close");
    look.follow("blocked", "workers");
    look.browser.until(
        "[...document.querySelectorAll('table.blocked tbody tr')].some((row) => row.cells[0].textContent.includes('report.lua:2') && row.cells[1].textContent === '/report/' && Number(row.cells[2].textContent) > 3)",
    );
    look.ends();
}

/// What clients see is found first, with the line of the script; the error log's lines lead to the failed requests.
#[test]
fn a_script_that_fails_for_some() {
    let (one, other) = (Backend::answering("well"), Backend::answering("well"));
    let report =
        "local user = { name = 'ann' }\nif ngx.var.arg_id == '7' then user = nil end\nngx.say(user.name)";
    let builder = builder(&conf(2, &[one.port(), other.port()]), report).allow("attempt to index");
    let server = builder.start();
    let port = server.addr(0);
    let _load = loaded(&server).with(move || {
        let mut client = Client::connect(port);
        client.send("GET /report/?id=7 HTTP/1.1\r\nHost: a\r\n\r\n");
        let _ = client.try_response();
        thread::sleep(PAUSE);
    });
    let Some(mut look) = Look::at(&server) else { return };
    look.finding("errors", "% of the responses of /report/ are 500");
    look.finding("errors", "report.lua:3: attempt to index");
    look.follow("errors", "report.lua:3");
    look.browser
        .until("document.querySelector('dialog[open] li.meant').textContent.includes('ngx.say(user.name)')");
    look.browser.click("dialog button", "close");
    look.follow("errors", "location /report/");
    look.browser.until("document.querySelector('h1').textContent === '/report/'");
    look.browser.click("nav a", "server");
    let row = "[...document.querySelectorAll('.log div')].find((row) => row.textContent.includes('attempt to index'))";
    look.browser
        .until(&format!("/^\\d+ × /.test({row}.textContent) && {row}.querySelectorAll('a').length === 2"));
    look.browser.value(&format!("{row}.querySelectorAll('a')[1].click(); true"));
    look.browser.until(
        "document.querySelector('h1').textContent === 'GET /report/' && document.querySelector('.story').textContent.includes('report.lua:3: attempt to index')",
    );
    look.ends();
}

/// Whether it comes. Where other programs have the cores, what the script takes is not what is wrong, and is not said.
fn says_what_takes_cpu(look: &mut Look) -> bool {
    let row = "document.querySelector('#findings li[data-kind=cpu]')";
    let comes = look.browser.comes(&format!("{row}.textContent.includes('report.lua:2')"));
    if comes {
        look.finding("cpu", "report.lua:2");
    } else {
        look.browser.until("document.body.innerText.includes('was ready and had no processor for')");
        eprintln!("skipped: other programs have the processors");
    }
    comes
}

/// It holds nothing up for long and takes most of what the workers run: from the sentence to the frames of the script.
#[test]
fn a_script_that_takes_cpu() {
    let (one, other) = (Backend::answering("well"), Backend::answering("well"));
    let report =
        "local ends, x = os.clock() + 0.005, 0\nwhile os.clock() < ends do x = x + 1 end\nngx.say(x)";
    let server = builder(&conf(2, &[one.port(), other.port()]), report).start();
    let _load =
        FaultLoad::default().clients(&server, 2, "/report/", PAUSE).clients(&server, 1, "/status", PAUSE);
    let Some(mut look) = Look::at(&server) else { return };
    if !says_what_takes_cpu(&mut look) {
        return;
    }
    look.follow("cpu", "flame cpu");
    look.browser.until("document.querySelector('h1').textContent === 'Flame graph of /report/'");
    look.browser.until("/^\\d+ samples in /.test(document.querySelector('#recorded').textContent)");
    look.browser.until("[...document.querySelectorAll('.flame .lua')].some((frame) => frame.textContent.includes('report.lua:2'))");
    // Back and there again: the recording is still there.
    let recorded = look.browser.value("document.querySelector('#recorded').textContent");
    look.browser.click("nav a", "overview");
    if !says_what_takes_cpu(&mut look) {
        return;
    }
    look.follow("cpu", "flame cpu");
    look.browser.until(&format!(
        "document.querySelector('#recorded').textContent === {:?}",
        recorded.text().expect("text")
    ));
    look.ends();
}

/// It is the only one of its group, so it is asked again and again.
#[test]
fn a_peer_that_fails_all_is_not_just_up() {
    let gone = Backend::answering("gone");
    let port = gone.port();
    gone.kill();
    let server = builder(&conf(1, &[port]), REPORT).allow("Connection refused").start();
    let _load = FaultLoad::default().clients(&server, 1, "/api/x", PAUSE);
    let Some(mut look) = Look::at(&server) else { return };
    let peer = format!("127.0.0.1:{port}");
    look.finding("faulty_peer", &format!("{peer} of backends refuses connections"));
    look.follow("faulty_peer", "upstreams");
    look.cell("peers", &peer, "state", "cell === 'up, all tries fail'");
    look.cell("peers", &peer, "failed", "cell === '100.0%'");
    // A failed request says why it failed, and where its arguments could be.
    look.browser.value("location.hash = '#/requests/' + encodeURIComponent('status=5xx')");
    look.browser.click("a[href^='#/req/']", "GET /api/x");
    look.browser.until("['kept because ', 'failed because the upstream server refused the connection', 'log_format with $request_id'].every((words) => document.querySelector('.story').textContent.includes(words))");
    look.ends();
}

#[test]
fn workers_whose_shares_are_uneven() {
    let (one, other) = (Backend::answering("well"), Backend::answering("well"));
    let peers = [one.port(), other.port()];
    let mut server = builder(&conf(1, &peers), REPORT).start();
    // What has begun a request stays with its worker.
    let mut open: Vec<Client> = (0..60).map(|_| server.client()).collect();
    for client in &mut open {
        client.send("GET /status HTTP/1.1\r\n");
    }
    server.reload(&conf(2, &peers));
    let _load = loaded(&server);
    let Some(mut look) = Look::at(&server) else { return };
    look.finding("uneven", "worker 0 has ");
    look.follow("uneven", "workers");
    look.cell("workers", "0", "conns", "Number(cell) >= 60");
    look.cell("workers", "0", "share", "parseFloat(cell) > 80");
    look.cell("workers", "1", "share", "parseFloat(cell) < 20");
    look.keep("fault-uneven-workers.png");
    // Requests that do not end: whose they are shows their list.
    look.browser.until("document.body.innerText.includes('In flight')");
    look.ends();
}

#[test]
fn a_peer_that_breaks_off() {
    let well = Backend::answering("well");
    let broken = resetting_backend();
    let server = builder(&conf(2, &[well.port(), broken.port()]), REPORT).start();
    let _load = loaded(&server);
    let Some(mut look) = Look::at(&server) else { return };
    let peer = format!("127.0.0.1:{}", broken.port());
    look.finding("faulty_peer", &format!("{peer} of backends breaks off "));
    look.follow("faulty_peer", "upstreams");
    look.cell("peers", &peer, "broken off", "/^\\d+ reset, \\d+ repeated$/.test(cell)");
    look.keep("fault-resetting-peer.png");
    look.ends();
}

#[test]
fn a_disk_that_is_slow() {
    let (one, other) = (Backend::answering("well"), Backend::answering("well"));
    let builder = builder(&conf(2, &[one.port(), other.port()]), REPORT);
    let Some(library) = slow_files(builder.dir()) else { return };
    let server = builder.env("LD_PRELOAD", &library).start();
    let _load = loaded(&server);
    let Some(mut look) = Look::at(&server) else { return };
    look.finding("disk", "the disk is slow: file operations take ");
    look.keep("fault-slow-disk.png");
    // Which location reads: the one that waits.
    look.cell("routes", "/files/", "wait", "cell.endsWith(' ms') && parseFloat(cell) > 20");
    look.browser.click("a[href^='#/route/']", "/files/");
    look.browser.until(
        "[...document.querySelectorAll('.tree tr.wait-row')].some((row) => row.cells[0].textContent === 'wait thread_pool' && row.cells[2].textContent.endsWith(' ms'))",
    );
    look.step("wait thread_pool in the tree of /files/");
    look.keep_row("thread_pool", "fault-slow-disk-location.png");
    look.ends();
}
