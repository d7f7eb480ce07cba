//! `weir compare` and `weir diff` against servers whose difference is known.

use crate::support::says as said;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use weir_http::json::JsonValue;
use weir_test::{Server, both_drivers};

/// `/plain/` sends the file, `/both/` replaces texts in it with both modules.
const CONF: &str = "worker_processes 2; http { server { listen 127.0.0.1:%%PORT_0%% reuseport; root html;
    location /plain/ { alias html/; }
    location /both/ { alias html/; subs_filter span div; sub_filter_once off; sub_filter div p; }
    location /failed/ { return 500; } } }";

fn started() -> Server {
    let server = Server::builder(CONF).file("html/a.html", "<span>text</span>\n".repeat(300)).start();
    // The pid file is there before the control socket is.
    said::ready(&server);
    server
}

fn number(value: &JsonValue, key: &str) -> f64 {
    match value.field(key) {
        Some(JsonValue::Number(text)) => text.parse().expect("a number"),
        other => panic!("{key}: {other:?}"),
    }
}

/// The node at the end of a path of names, or of kinds where there is no name.
fn node<'v>(root: &'v JsonValue, path: &[&str]) -> &'v JsonValue {
    path.iter().fold(root, |node, name| {
        let children = node.field("children").and_then(JsonValue::list).expect("children");
        let text =
            |child: &JsonValue, key| child.field(key).and_then(JsonValue::text).unwrap_or("").to_owned();
        let is_it = |child: &&JsonValue| {
            let own = text(child, "name");
            *name == if own.is_empty() { text(child, "kind") } else { own }
        };
        children.iter().find(is_it).unwrap_or_else(|| panic!("no {name} in {node:?}"))
    })
}

both_drivers! {
    fn a_filter_is_what_two_locations_differ_in(driver) {
        let server = started();
        let url = format!("http://{}", server.addr(0));
        let place = said::of(&server);
        let words = ["compare", "/plain/a.html", "/both/a.html", "--load", &url, "--rounds", "10", "-n", "20", "--json"];
        let said = said::says(&words, &place);
        let value = JsonValue::parse(said.as_bytes()).expect("JSON");
        assert_eq!((number(&value, "rounds"), number(value.field("a").expect("a side"), "requests")), (10.0, 200.0));
        let root = value.field("root").expect("a tree");
        let filter = node(root, &["body_filter", "subs"]);
        assert_eq!(filter.field("a_ns"), Some(&JsonValue::Null), "{said}");
        let difference = number(filter, "difference_ns");
        assert!(difference > 0.0 && difference == number(filter, "b_ns"), "{said}");
        assert!(number(filter, "low_ns") <= difference && difference <= number(filter, "high_ns"), "{said}");
        let text = said::says(&["compare", "/plain/a.html", "/both/a.html", "--load", &url, "--rounds", "3", "-n", "5"], &place);
        assert!(text.starts_with("A /plain/a.html: 15 requests, run ") && text.contains("of 3 paired rounds"), "{text}");
        let failed = said::run(&["compare", "/plain/a.html", "/failed/", "--load", &url, "-t", "100ms"], &place);
        assert_eq!(failed.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&failed.stderr).contains("GET /failed/ of "), "{failed:?}");
    }

    fn two_servers_are_compared_and_saved_averages(driver) {
        let (one, two) = (started(), started());
        let directories = [&one, &two].map(|server| server.dir().path().join("nginx.conf").display().to_string());
        let urls = [format!("http://{}/plain/a.html", one.addr(0)), format!("http://{}/both/a.html", two.addr(0))];
        // As for all other commands the prefix of a file in a directory `conf` is the directory above.
        let inside = one.dir().read("nginx.conf").replace(&format!("pid {}/nginx.pid;", one.dir().path().display()), "");
        let inside = one.dir().write("conf/one.conf", inside);
        let (pid, usual) = (one.dir().path().join("nginx.pid.sock"), one.dir().path().join("logs/nginx.pid.sock"));
        std::os::unix::fs::symlink(pid, usual).expect("ours");
        let directories = [inside.display().to_string(), directories[1].clone()];
        let words = ["compare", &directories[0], &directories[1], "--load", &urls[0], "--load-b", &urls[1], "--rounds", "4", "-n", "10"];
        let text = said::says(&words, &["--json"]);
        let value = JsonValue::parse(text.as_bytes()).expect("JSON");
        let filter = node(value.field("root").expect("a tree"), &["body_filter", "sub"]);
        assert!(filter.field("a_ns") == Some(&JsonValue::Null) && number(filter, "b_ns") > 0.0, "{text}");

        let files = ["a.json", "b.json"].map(|name| one.dir().path().join(name).display().to_string());
        for (path, file) in ["/plain/", "/both/"].into_iter().zip(&files) {
            let done = AtomicBool::new(false);
            let said = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut client = one.client();
                    while !done.load(Relaxed) {
                        assert_eq!(client.get(&format!("{path}a.html")).status, 200);
                    }
                });
                let said = said::run(&["trace", path, "--avg", "50", "--save", file], &said::of(&one));
                done.store(true, Relaxed);
                said
            });
            assert_eq!(String::from_utf8_lossy(&said.stdout), format!("50 requests in {file}\n"), "{said:?}");
        }
        let diff = |words: &[&str]| said::run(words, &["--json"]);
        let same = diff(&["diff", &files[0], &files[0], "--fail-over", "3%"]);
        assert!(same.status.success(), "{same:?}");
        assert!(diff(&["diff", &files[0], &files[1]]).status.success());
        // What was measured may be anything on a busy machine; these are a tenth apart, for sure.
        let path = one.dir().path().join("c.json").display().to_string();
        let paths = [path.replace("c.json", "d.json"), path];
        for (path, run) in paths.iter().zip([1000, 1100]) {
            let text = format!("{{\"requests\":100,\"root\":{{\"run_ns\":{run}00,\"wait_ns\":0,\"run_sd_ns\":9,\"wait_sd_ns\":0}}}}");
            std::fs::write(path, text).expect("a file");
        }
        let more = diff(&["diff", &paths[0], &paths[1], "--fail-over", "3%"]);
        assert_eq!(more.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&more.stderr).contains("B takes 10.0% more than A ("), "{more:?}");
        assert!(diff(&["diff", &paths[1], &paths[0], "--fail-over", "3%"]).status.success());
        assert!(!diff(&["diff", &files[1]]).status.success());
        let alone = said::run(&["trace", "--save", &files[0]], &said::of(&one));
        assert!(String::from_utf8_lossy(&alone.stderr).contains("--save goes with --avg"), "{alone:?}");
    }
}
