//! `weir trace` and the welcome page: what a person is shown of where time goes.

use crate::support;

use std::io::Read;
use std::process::{Child, Command, Stdio};

use weir_test::{Server, both_drivers, require_program, wait_for};

use support::get;

const CONF: &str = "worker_processes 2; http { server { listen 127.0.0.1:%%PORT%% reuseport; root html;
    access_log access.log; keepalive_requests 10000;
    location = /id { return 200 $request_id; }
    location /moved { return 301 /new; }
    location = / { welcome; }
    location /page/ { error_page 404 = /a.txt; }
    location /img/ { alias html/; add_trailer X x; }
    location /guarded/ { auth_request /silent; alias html/; }
    location = /silent { profile off; return 204; } } }";

fn started() -> Server {
    Server::builder(CONF).file("html/a.txt", "0123456789").start()
}

/// The program with these words after `trace`, asking that server.
fn asks(server: &Server, words: &[&str]) -> Child {
    // The pid file is there before the control socket is.
    support::says::ready(server);
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["trace", "--all"])
        .args(words)
        .args(["-c", "nginx.conf", "-p"])
        .arg(server.dir().path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs")
}

/// What a terminal shows of a command with these words.
fn on_a_terminal(server: &Server, words: &str) -> String {
    support::says::ready(server);
    let directory = server.dir().path().display();
    let line = format!("{} {words} -c nginx.conf -p {directory}", env!("CARGO_BIN_EXE_weir"));
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null());
    String::from_utf8_lossy(&command.output().expect("script runs").stdout).into_owned()
}

fn reported(mut child: Child) -> String {
    let mut text = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
    assert!(child.wait().expect("our child").success(), "{text}");
    text
}

fn tell(server: &Server, words: &[&str]) -> String {
    reported(asks(server, words))
}

/// The trees of requests that `request` makes until one of them is caught; what it gave then is beside it.
fn once<T>(server: &Server, words: &[&str], mut request: impl FnMut() -> T) -> (String, T) {
    let mut child = asks(server, &[&["--once"], words].concat());
    // The question may arrive after some of these.
    let last = wait_for("trace", || {
        let given = request();
        child.try_wait().expect("our child").map(|_| given)
    });
    (reported(child), last)
}

/// The names in a tree, each with its depth.
fn names(tree: &str) -> Vec<(usize, String)> {
    let rows = tree.lines().filter_map(|line| line.split_once("-> "));
    rows.map(|(indent, rest)| {
        let name = rest.split("  ").next().unwrap_or(rest).trim();
        ((indent.len() - 2) / 3, name.to_owned())
    })
    .collect()
}

#[track_caller]
fn assert_names(tree: &str, expected: &[(usize, &str)]) {
    let names = names(tree);
    let names: Vec<(usize, &str)> = names.iter().map(|(depth, name)| (*depth, name.as_str())).collect();
    assert_eq!(names, expected, "{tree}");
}

/// What is before the phases in which something runs.
const STEPS: [(usize, &str); 3] = [(0, "head_read"), (0, "parse"), (0, "virtual_server")];

/// The eleven phases, with what runs inside some of them.
fn phases<'a>(inside: &[(&'a str, &'a str)]) -> Vec<(usize, &'a str)> {
    let mut rows = STEPS.to_vec();
    for phase in &weir_trace::PHASES[..10] {
        rows.push((0, phase));
        rows.extend(inside.iter().filter(|(of, _)| of == phase).map(|&(_, handler)| (1, handler)));
    }
    rows
}

const END: [(usize, &str); 3] = [(0, "log"), (1, "log"), (0, "finalise")];

both_drivers! {
    fn a_file(driver) {
        let server = started();
        let (tree, _) = once(&server, &["--match", "/a.txt"], || server.get("/a.txt"));
        assert!(tree.starts_with("GET /a.txt  200  "), "{tree}");
        let mut expected = phases(&[("content", "index"), ("content", "static")]);
        expected.extend([(0, "header_filter"), (1, "not_modified"), (1, "range"), (1, "header")]);
        expected.extend([(0, "body_filter"), (1, "write")]);
        expected.extend(END);
        assert_names(&tree, &expected);
    }

    /// Chunks with a trailer: the write comes after what composes them.
    fn a_file_with_trailers(driver) {
        let server = started();
        let (tree, response) = once(&server, &["--match", "/img/"], || server.get("/img/a.txt"));
        assert_eq!(response.text(), "0123456789");
        assert!(tree.contains("location /img/"), "{tree}");
        let names = names(&tree);
        let at = |name: &str| names.iter().position(|(_, n)| n == name).unwrap_or_else(|| panic!("no {name} in {tree}"));
        assert!(at("header_filter") < at("header") && at("header") < at("body_filter"), "{tree}");
        assert!(at("body_filter") < at("write") && at("write") < at("log"), "{tree}");
    }

    fn a_redirect_of_a_location(driver) {
        let server = started();
        let (tree, _) = once(&server, &["--match", "/moved"], || server.get("/moved"));
        let mut expected = phases(&[("rewrite", "rewrite")]);
        expected.push((0, "special_response"));
        expected.extend([(0, "header_filter"), (1, "not_modified"), (1, "range"), (1, "header")]);
        expected.extend([(0, "body_filter"), (1, "write")]);
        expected.extend(END);
        assert_names(&tree, &expected);
    }

    fn an_error_page(driver) {
        let server = started();
        let (tree, response) = once(&server, &["--match", "/page/"], || server.get("/page/none"));
        assert_eq!((response.status, response.text().as_str()), (200, "0123456789"));
        let mut expected = phases(&[("content", "index"), ("content", "static")]);
        expected.extend([(0, "special_response"), (0, "internal_redirect"), (1, "find_config"), (1, "content")]);
        expected.extend([(2, "index"), (2, "static"), (1, "header_filter"), (2, "not_modified"), (2, "range")]);
        expected.extend([(2, "header"), (1, "body_filter"), (2, "write")]);
        expected.extend(END);
        assert_names(&tree, &expected);
    }

    /// What a subrequest says of recording holds for its parent from there on, and for no other request.
    fn a_subrequest_of_which_nothing_is_recorded(driver) {
        let server = started();
        let mut client = server.client();
        for _ in 0..20 {
            assert_eq!(client.get("/guarded/a.txt").text(), "0123456789");
            assert_eq!(client.get("/a.txt").text(), "0123456789");
        }
        let (tree, _) = once(&server, &["--match", "/a.txt"], || server.get("/a.txt"));
        let mut expected = phases(&[("content", "index"), ("content", "static")]);
        expected.extend([(0, "header_filter"), (1, "not_modified"), (1, "range"), (1, "header")]);
        expected.extend([(0, "body_filter"), (1, "write")]);
        expected.extend(END);
        assert_names(&tree, &expected);
        let table = tell(&server, &["--sites"]);
        assert!(!table.contains("auth_request"), "{table}");
    }

    /// No phase runs for a head that is wrong; it gets its response and is logged all the same.
    fn a_head_that_is_wrong(driver) {
        let server = started();
        let (tree, _) = once(&server, &[], || {
            assert_eq!(server.client().request("GET /a.txt HTTP/1.1\r\nHo st: a\r\n\r\n").status, 400);
        });
        assert!(tree.contains("  400  ") && tree.contains("bad_request"), "{tree}");
        let mut expected = phases(&[]);
        expected.push((0, "special_response"));
        expected.extend([(0, "header_filter"), (1, "not_modified"), (1, "range"), (1, "header")]);
        expected.extend([(0, "body_filter"), (1, "write")]);
        expected.extend(END);
        assert_names(&tree, &expected);
    }

    /// A head in two pieces: the time between is waiting for the client, in `head_read`.
    fn a_head_in_pieces(driver) {
        let server = started();
        // It can't be seen from outside that the first piece was seen alone: a busy machine needs longer.
        let mut tree = String::new();
        let waited = [50, 100, 1000, 4000].into_iter().any(|ms| {
            (tree, _) = once(&server, &["--match", "/a.txt"], || {
                let mut client = server.client();
                client.send("GET /a.t");
                std::thread::sleep(std::time::Duration::from_millis(ms));
                client.send("xt HTTP/1.1\r\nHost: a\r\n\r\n");
                client.response()
            });
            let line = tree.lines().position(|line| line.contains("-> head_read")).expect("it is listed");
            tree.lines().skip(line).take(4).any(|line| line.contains(".. client_read"))
        });
        assert!(waited, "{tree}");
    }

    fn request_ids_are_the_variables(driver) {
        let server = started();
        let mut answered = Vec::new();
        let (json, ()) = once(&server, &["--match", "/id", "--json"], || answered.push(server.get("/id").text()));
        let id = json.split("\"id\":\"").nth(1).map(|rest| &rest[..32]).expect("an id");
        assert!(answered.iter().any(|answer| answer == id), "{id} of {answered:?}");
        assert_eq!(json.matches(['{', '[']).count(), json.matches(['}', ']']).count());
        assert!(json.contains("\"phase\":\"rewrite\"") && json.contains("\"protocol\":11"), "{json}");
    }

    /// The histograms of both workers added up; their counts are the requests, exactly.
    fn sites_are_merged_over_the_workers(driver) {
        let server = started();
        let together = support::together(8, |_| {
            let mut client = server.client();
            (0..25).for_each(|_| assert_eq!(client.get("/a.txt").status, 200));
        });
        assert_eq!(together.len(), 8);
        let sites = ["parse", "virtual_server", "find_config", "content index", "content static", "header_filter header", "write", "log log"];
        // A response may arrive before its request is recorded, which is done site by site.
        let table = wait_for("200 requests in the table", || {
            let table = tell(&server, &["--sites"]);
            let is_whole = |name: &&str| row(&table, name).is_some_and(|row| row[0] == "200" && row[1] == "200");
            sites.iter().all(is_whole).then_some(table)
        });
        for name in sites {
            let row = row(&table, name).expect("it was there above");
            let us: Vec<f64> = row[2..5].iter().map(|us| us.parse().expect("a number")).collect();
            // The others are come by in a few instructions, and take no stamp.
            let stamped = ["parse", "content static", "header_filter header", "log log"].contains(&name);
            assert!(us[1] <= us[2] && (us[0] > 0.0) == stamped, "{name} in\n{table}");
        }
        let json = tell(&server, &["--sites", "--json"]);
        assert!(json.starts_with('[') && json.contains("\"2xx\":200"), "{json}");
    }

    /// Off: counts alone. Sampled: one in 64 or so. Full: all.
    fn levels_are_switched_while_it_runs(driver) {
        let server = started();
        let mut client = server.client();
        let mut recorded = |level: &str, requests: u64| {
            let said = tell(&server, &["--level", level]);
            let lines: Vec<&str> = said.lines().collect();
            assert!(lines.len() == 3 && lines[2].starts_with(&format!("worker 1: level {level}, ")), "{said}");
            let before = counts(&server);
            client.send(get("/a.txt").repeat(requests as usize));
            (0..requests).for_each(|_| assert_eq!(client.response().status, 200));
            let after = wait_for("all requests counted", || {
                let after = counts(&server);
                (after.0 - before.0 == requests).then_some(after)
            });
            after.1 - before.1
        };
        assert_eq!(recorded("full", 100), 100);
        assert_eq!(recorded("off", 500), 0);
        let sampled = recorded("sampled", 3200);
        assert!((10..150).contains(&sampled), "{sampled} of 3200");
        assert_eq!(recorded("full", 100), 100);
    }

    /// A command that waits says for what, and may be given a limit.
    fn it_gives_up_when_nothing_comes(driver) {
        let server = started();
        let child = asks(&server, &["/never", "-t", "300ms", "-n", "2"]);
        let output = child.wait_with_output().expect("our child");
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        let Some(_) = require_program("script") else { return };
        let shown = on_a_terminal(&server, "trace /never -t 300ms");
        assert!(shown.contains("waiting for the next request that matches \"/never\" (Ctrl-C ends)"), "{shown}");
        assert!(shown.contains("0 of 1 requests ended within 300.0 ms"), "{shown}");
    }

    /// What is for files is refused before anything is recorded.
    fn no_terminal_is_flooded_with_svg(driver) {
        let Some(_) = require_program("script") else { return };
        let server = started();
        for words in ["flame cpu -t 100s -o svg", "flame cpu -t 100s -o html", "flame cpu -t 100s -o pprof"] {
            let shown = on_a_terminal(&server, words);
            assert!(shown.contains("this is for a file, not for a terminal: -o flame."), "{shown}");
        }
        for words in ["flame cpu -t 200ms", "flame cpu -t 200ms -o folded"] {
            let shown = on_a_terminal(&server, words);
            assert!(!shown.contains("not for a terminal") && !shown.contains("<svg"), "{shown}");
        }
    }

    fn what_it_cannot_do_it_says(driver) {
        let server = started();
        tell(&server, &["--level", "full"]);
        for words in [&["--level", "loud"][..], &["--level"], &["--once", "--what"], &["/a", "/b"], &["colour=red"]] {
            let child = Command::new(env!("CARGO_BIN_EXE_weir"))
                .arg("trace")
                .args(["-c", "nginx.conf", "-p"])
                .arg(server.dir().path())
                .args(words)
                .output()
                .expect("the program runs");
            assert!(!child.status.success() && child.stderr.starts_with(b"weir: "), "{words:?} {child:?}");
        }
    }

    fn the_welcome_page_is_html_and_shows_its_own_tree(driver) {
        let server = started();
        let page = server.get("/");
        assert_eq!((page.status, page.field("content-type")), (200, Some("text/html")));
        let text = page.text();
        assert_html(&text);
        let tree = text.split("<pre>").nth(1).and_then(|rest| rest.split("</pre>").next()).expect("its tree");
        let tree = tree.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&");
        let names = names(&tree);
        assert_eq!(names[..3].iter().map(|(_, n)| n.as_str()).collect::<Vec<_>>(), STEPS.map(|(_, n)| n));
        for phase in weir_trace::PHASES {
            assert!(names.iter().any(|(depth, name)| (*depth, name.as_str()) == (0, phase)), "no {phase} in\n{tree}");
        }
        assert!(names.contains(&(1, "welcome".to_owned())), "{tree}");
        assert!(!names.iter().any(|(_, name)| name == "write"), "nothing was written yet:\n{tree}");
    }
}

/// The figures of a site in the table of `--sites`.
fn row(table: &str, name: &str) -> Option<Vec<String>> {
    table.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.len().checked_sub(7)?;
        (words[1..at].join(" ") == name).then(|| words[at..].iter().map(|&word| word.to_owned()).collect())
    })
}

/// All requests, and those that were recorded.
fn counts(server: &Server) -> (u64, u64) {
    let table = tell(server, &["--sites"]);
    let of = |name| row(&table, name).map_or(0, |row| row[0].parse().expect("a number"));
    (of("request"), of("parse"))
}

/// Elements nest, attributes are quoted, and no `<` or `&` is unescaped.
#[track_caller]
fn assert_html(text: &str) {
    let mut rest = text.strip_prefix("<!DOCTYPE html>").unwrap_or_else(|| panic!("no doctype: {text}"));
    let mut open: Vec<&str> = Vec::new();
    while let Some((before, after)) = rest.split_once('<') {
        for entity in before.split('&').skip(1) {
            assert!(
                ["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|e| entity.starts_with(e)),
                "&{entity}"
            );
        }
        let (tag, behind) = after.split_once('>').unwrap_or_else(|| panic!("an open tag: {after}"));
        rest = behind;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{text}");
            continue;
        }
        let name = tag.split(' ').next().unwrap_or(tag);
        assert!(!name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric()), "<{tag}>");
        assert_eq!(tag.matches('"').count(), tag.matches('=').count() * 2, "<{tag}>");
        if !["meta", "link", "br", "hr"].contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?} left open");
    for element in ["<html lang=", "<title>", "<meta charset=", "<body>"] {
        assert!(text.contains(element), "no {element}");
    }
}
