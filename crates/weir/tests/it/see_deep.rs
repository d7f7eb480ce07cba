//! `weir trace --deep`: variables, patterns, files and tables of scripts by name, and nothing of it while nobody asks.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use weir_test::{Client, Driver, Server, both_drivers, wait_for};

use crate::support::says as said;

const CONF: &str = "worker_processes %%WORKERS%%; admin 127.0.0.1:%%PORT_1%%; http {
    map $http_user_agent $browser { ~Mozilla modern; ~*curl tool; default other; }
    server { listen 127.0.0.1:%%PORT_0%%; root html;
        location /held { content_by_lua_file held.lua; }
        location /free { content_by_lua_file free.lua; }
        location ~ \\.txt$ { add_header X-Browser $browser; }
        location ~ ^/(one|two)$ { return 200 $1; }
        location / { return 200 plain; } }
    server { listen 127.0.0.1:%%PORT_0%%; server_name plain.test *.wild.test; return 200 named; }
    server { listen 127.0.0.1:%%PORT_0%%; server_name ~^www\\.; return 200 www; }
    server { listen 127.0.0.1:%%PORT_0%%; server_name ~^(?<who>.+)\\.example$;
        location ~ ^/x { return 200 x; }
        location ~ ^/y { return 200 $who; }
        location /y { return 200 never; }
        location /lua { content_by_lua_file re.lua; }
        location /compiled { content_by_lua_file tables.lua; }
        location /interpreted { content_by_lua_file slow.lua; } } }";

/// 600 calls of one pattern from compiled code, 300 of which match; and of each other function.
const RE_LUA: &str = "local found = 0
for n = 1, 600 do
    if ngx.re.find('number ' .. n % 2, 'number 1', 'jo') then found = found + 1 end
end
ngx.re.gsub('aaa', 'a', 'b', 'jo')
for _ in ngx.re.gmatch('x1x2', [[x\\d]], 'jo') do found = found + 1 end
ngx.re.match('abc', 'B', 'i')
ngx.say(found)";

/// Ten times each way in which a table becomes larger, and those in which it has its room from the start.
const TABLES_LUA: &str = "local new, insert = require 'table.new', table.insert
local function fields(n) local t = {}
    for i = 1, n do t['k' .. i] = i end
end
local function numbers(n) local t = {}
    for i = 1, n do t[i] = i end
end
local function inserted(n) local t = {}
    for i = 1, n do insert(t, i) end
end
local function raw(n) local t = {}
    for i = 1, n do rawset(t, 'r' .. i, i) end
end
local function both(n) local t = {}
    for i = 1, n do t[i] = i; t['b' .. i] = i end
end
local function ready(n) local t = new(n, n)
    for i = 1, n do t[i] = i; t['n' .. i] = i end
    return { a = t, b = n, c = t, d = n, e = t }, { 1, 2, n, 4 }, { t, x = t }
end
local function listed(...)
    return { ... }
end
local function of_api()
    return ngx.req.get_headers()
end
for _ = 1, 10 do
    fields(64) numbers(64) inserted(64) raw(64) both(16) ready(64)
    listed(1, 2, 3) of_api()
end
ngx.say 'done'";

/// `/held` waits until `/free?now=1` was asked for.
const HELD_LUA: &str = "local state = package.loaded
state.held = true
while not state.freed do ngx.sleep(0.002) end
ngx.say 'freed'";
const FREE_LUA: &str = "local state = package.loaded
state.freed = ngx.var.arg_now
ngx.say(state.held and 'held' or 'nobody')";

fn started(driver: Driver, workers: &str) -> Server {
    let server = Server::builder(&CONF.replace("%%WORKERS%%", workers))
        .file("html/a.txt", "0123456789")
        .file("re.lua", RE_LUA)
        .file("held.lua", HELD_LUA)
        .file("free.lua", FREE_LUA)
        .file("tables.lua", TABLES_LUA)
        .file("slow.lua", format!("jit.off(true, true) {TABLES_LUA}"))
        .allow("open()")
        .driver(driver)
        .start();
    said::ready(&server);
    server
}

/// `weir trace` with `words`, that waits for its requests; what it prints goes to a file.
struct Tracing {
    child: Child,
    out: PathBuf,
}

impl Tracing {
    fn start(server: &Server, words: &[&str]) -> Tracing {
        let out = server.dir().path().join(format!("trace-{}", words.join("").replace('/', "-")));
        let file = std::fs::File::create(&out).expect("a file");
        let child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .arg("trace")
            .args(words)
            .args(said::of(server))
            .stdout(Stdio::from(file))
            .stderr(Stdio::null())
            .spawn()
            .expect("the program runs");
        Tracing { child, out }
    }

    /// Asks until the command has what it wants, and gives that.
    fn text(mut self, mut ask: impl FnMut()) -> String {
        wait_for("the trace", || {
            ask();
            self.child.try_wait().expect("a child").map(|status| assert!(status.success()))
        });
        self.so_far()
    }

    /// What it has printed.
    fn so_far(&self) -> String {
        std::fs::read_to_string(&self.out).expect("text")
    }
}

fn asks(client: &mut Client, path: &str) -> String {
    asks_host(client, "a", path)
}

fn asks_host(client: &mut Client, host: &str, path: &str) -> String {
    client.request(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: curl/8\r\n\r\n")).text()
}

/// The line of a tree with `part`.
#[track_caller]
fn line<'t>(tree: &'t str, part: &str) -> &'t str {
    tree.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part} in {tree}"))
}

both_drivers! {
    fn variables_patterns_and_files_are_in_the_tree(driver) {
        for workers in ["1", "3"] {
            let server = started(driver, workers);
            let mut client = server.client();
            // It is known by now from the sight of its head, and is looked at all the same.
            for _ in 0..20 {
                assert_eq!(asks(&mut client, "/a.txt"), "0123456789");
            }
            let tracing = Tracing::start(&server, &["--deep", "--all", "/a.txt"]);
            let tree = tracing.text(|| drop(asks(&mut client, "/a.txt")));
            for part in ["location ~ \\.txt$: matches", "$browser", "regex ~ Mozilla", "regex ~* curl", "/html/a.txt"] {
                assert!(tree.contains(part), "{part} in {tree}");
            }
            let place = |part: &str| tree.find(part).expect("in the tree");
            assert!(place("$browser") < place("regex ~* curl"), "the map's patterns are inside: {tree}");
            let average = Tracing::start(&server, &["--deep", "--avg", "5", "/one"]);
            let average = average.text(|| drop(asks(&mut client, "/one")));
            assert!(average.contains("location ~ ^/(one|two)$: matches"), "{average}");
        }
    }

    /// Which patterns of names and locations were tried for a request, in their order, and which of them matched.
    fn names_and_locations_say_what_was_tried(driver) {
        for workers in ["1", "8"] {
            let server = started(driver, workers);
            let mut client = server.client();
            let tracing = Tracing::start(&server, &["--deep", "--all", "/y"]);
            let tree = tracing.text(|| assert_eq!(asks_host(&mut client, "a.example", "/y"), "a"));
            let tried = ["server_name without patterns: no match", "server_name ~ ^www\\.: no match", "server_name ~ ^(?<who>.+)\\.example$: matches",
                "location ~ ^/x: no match", "location ~ ^/y: matches"];
            let places: Vec<usize> = tried.iter().map(|part| tree.find(part).unwrap_or_else(|| panic!("{part} in {tree}"))).collect();
            assert!(places.is_sorted(), "{tree}");
            assert!(tried.iter().all(|part| line(&tree, part).contains("µs")), "{tree}");
            // Names without patterns come first; one of them ends the search.
            for (host, part) in [("plain.test", "server_name plain.test: matches"), ("a.wild.test", "server_name *.wild.test: matches")] {
                let tracing = Tracing::start(&server, &["--deep", "--all", "/named"]);
                let tree = tracing.text(|| assert_eq!(asks_host(&mut client, host, "/named"), "named"));
                assert!(tree.contains(part) && !tree.contains("server_name ~"), "{tree}");
            }
            let tracing = Tracing::start(&server, &["--deep", "--all", "/one"]);
            let tree = tracing.text(|| assert_eq!(asks(&mut client, "/one"), "one"));
            assert!(tree.contains("server_name ~ ^www\\.: no match") && !tree.contains("location ~ ^/x"), "{tree}");
        }
    }

    /// Calls of `ngx.re` by their pattern, those of compiled code too: how many matched, how many did not, what they took.
    fn patterns_of_scripts_are_counted(driver) {
        for workers in ["1", "8"] {
            let server = started(driver, workers);
            let mut client = server.client();
            let ask = |client: &mut Client| assert_eq!(asks_host(client, "a.example", "/lua"), "302\n");
            // What the loop does is compiled by now.
            (0..20).for_each(|_| ask(&mut client));
            let tracing = Tracing::start(&server, &["--deep", "--all", "/lua"]);
            let tree = tracing.text(|| ask(&mut client));
            for (part, calls) in [
                ("ngx.re number 1 jo: matches", "calls 300"),
                ("ngx.re number 1 jo: no match", "calls 300"),
                ("ngx.re a jo: matches", "calls 3"),
                ("ngx.re x\\d jo: matches", "calls 2"),
                ("ngx.re B i: matches", "µs"),
            ] {
                assert!(line(&tree, part).contains(calls), "{part} {calls}: {tree}");
            }
            let place = |part: &str| tree.find(part).unwrap_or_else(|| panic!("{part} in {tree}"));
            assert!(place("content_by_lua") < place("ngx.re a jo"), "{tree}");
            // Afterwards nothing is recorded, and the script is what it was.
            ask(&mut client);
            let tracing = Tracing::start(&server, &["--all", "/lua"]);
            let tree = tracing.text(|| ask(&mut client));
            assert!(!tree.contains("ngx.re") && !tree.contains("server_name"), "{tree}");
        }
    }

    /// Tables that become larger, by the line that has filled them, in compiled code as in what is interpreted.
    fn tables_say_which_line_makes_them_larger(driver) {
        for (workers, file, path) in [("1", "tables.lua", "/compiled"), ("8", "slow.lua", "/interpreted")] {
            let server = started(driver, workers);
            let mut client = server.client();
            let ask = |client: &mut Client| assert_eq!(asks_host(client, "a.example", path), "done\n");
            (0..20).for_each(|_| ask(&mut client));
            let tracing = Tracing::start(&server, &["--deep", "--all", path]);
            let tree = tracing.text(|| ask(&mut client));
            let fields: Vec<u32> = vec![0, 4, 8, 16, 32, 64];
            let numbers: Vec<u32> = vec![0, 2, 4, 8, 16, 32, 64];
            let mut lines = 0;
            for (at, what, sizes) in [(3, "hash", &fields), (6, "array", &numbers), (9, "array", &numbers), (12, "hash", &fields),
                (15, "hash", &fields[..4].to_vec()), (15, "array", &numbers[..5].to_vec())] {
                for pair in sizes.windows(2) {
                    let part = format!("/{file}:{at} grows from {} to {} {what} slots ", pair[0], pair[1]);
                    let found = line(&tree, &part);
                    assert!(found.contains("-> table at ") && found.ends_with("calls 10") && found.contains("µs"), "{found} of {tree}");
                    lines += 1;
                }
            }
            // A list of arguments has its room when it is filled; what compiled code makes has it from the start.
            let listed = tree.lines().filter(|line| line.contains(&format!("/{file}:22 grows from 2 to 4 array slots"))).count();
            assert_eq!(listed, usize::from(path == "/interpreted"), "{tree}");
            assert_eq!(tree.matches("table at").count(), lines + listed, "what has its room does not grow: {tree}");
            assert!(tree.find("-> content_by_lua ") < tree.find("-> table at"), "{tree}");
            let average = Tracing::start(&server, &["--deep", "--avg", "5", path]);
            let average = average.text(|| ask(&mut client));
            assert!(average.contains(&format!("/{file}:3 grows from 32 to 64 hash slots")), "{average}");
            // Nobody asks any more.
            ask(&mut client);
            let tracing = Tracing::start(&server, &["--all", path]);
            let tree = tracing.text(|| ask(&mut client));
            assert!(!tree.contains("table at"), "{tree}");
        }
    }

    fn nothing_of_it_is_recorded_when_nobody_asks(driver) {
        let server = started(driver, "1");
        let mut client = server.client();
        let tracing = Tracing::start(&server, &["--deep", "/a.txt"]);
        tracing.text(|| drop(asks(&mut client, "/a.txt")));
        let tracing = Tracing::start(&server, &["--all", "/a.txt"]);
        let tree = tracing.text(|| drop(asks(&mut client, "/a.txt")));
        assert!(!tree.contains("regex") && !tree.contains("location ~ \\.txt$:") && !tree.contains("$browser"), "{tree}");
        let metrics = Client::connect(server.addr(1)).request("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
        assert!(!metrics.contains("kind=\"function\"") && !metrics.contains("kind=\"file\""), "no series of it remain");
    }

    /// Paths are the client's choice: they take no numbers without an end, and responses are what they are without.
    /// Its tree has nothing below modules, since it had begun.
    fn a_request_that_was_there_before_is_not_one_of_them(driver) {
        let server = started(driver, "1");
        let mut held = server.client();
        held.send("GET /held/first HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut client = server.client();
        wait_for("a request that is held", || (asks(&mut client, "/free") == "held\n").then_some(()));
        let tracing = Tracing::start(&server, &["--deep", "-n", "200"]);
        wait_for("trees of others", || {
            asks(&mut client, "/free");
            tracing.so_far().contains("/free").then_some(())
        });
        assert_eq!(asks(&mut client, "/free?now=1"), "held\n");
        assert_eq!(held.response().text(), "freed\n");
        let text = tracing.text(|| assert_eq!(asks(&mut client, "/held/second"), "freed\n"));
        assert!(text.contains("/held/second") && !text.contains("/held/first"), "{text}");
    }

    fn a_flood_of_paths_is_bounded(driver) {
        let server = started(driver, "1");
        let mut client = server.client();
        let tracing = Tracing::start(&server, &["--deep", "-n", "200", "/f"]);
        let mut number = 0;
        let text = tracing.text(|| {
            number += 1;
            let response = client.request(format!("GET /f{number}.txt HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert_eq!(response.status, 404);
        });
        // Requests that came before the command did are not in it.
        assert_eq!(text.matches("/html/f").count(), 200, "{text}");
    }
}

#[test]
fn mistakes_are_reported() {
    let output = said::run(&["trace", "--deep", "--sites"], &[] as &[&str]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--deep goes with"), "{output:?}");
}
