//! `weir diff-config`: what of a log another configuration would treat otherwise.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use weir_http::json::JsonValue;
use weir_test::TempDir;

/// Two configurations and a log.
struct Change {
    directory: TempDir,
}

impl Change {
    fn new(old: &str, new: &str) -> Change {
        let directory = TempDir::new();
        for (name, http) in [("old.conf", old), ("new.conf", new)] {
            directory.write(name, format!("events {{ }}\nhttp {{\nroot www;\n{http}\n}}\n"));
        }
        Change { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs the command on `log`.
    fn run(&self, log: &str, words: &[&str]) -> Output {
        self.directory.write("access.log", log);
        self.run_on(&self.path("access.log").display().to_string(), words)
    }

    fn run_on(&self, log: &str, words: &[&str]) -> Output {
        let shown = |path: &Path| path.display().to_string();
        let (old, new) = (shown(&self.path("old.conf")), shown(&self.path("new.conf")));
        let command = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["diff-config", &old, &new, "--log", log])
            .args(words)
            .output();
        command.expect("the program runs")
    }

    /// What it says as JSON, which must be a result.
    #[track_caller]
    fn says(&self, log: &str, words: &[&str]) -> JsonValue {
        let output = self.run(log, &[words, &["--json"]].concat());
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let value = JsonValue::parse(&output.stdout).expect("JSON");
        let status = i32::from(number(&value, "changed") > 0);
        assert_eq!(output.status.code(), Some(status));
        value
    }
}

fn number(value: &JsonValue, key: &str) -> u64 {
    value.field(key).and_then(JsonValue::number).unwrap_or_else(|| panic!("{key}: {value:?}"))
}

/// `COUNT GROUP` of each group.
fn groups(value: &JsonValue) -> Vec<String> {
    let groups = list(value, "groups");
    let name = |group: &JsonValue| group.field("group").and_then(JsonValue::text).expect("a text").to_owned();
    groups.iter().map(|group| format!("{} {}", number(group, "count"), name(group))).collect()
}

fn list<'v>(value: &'v JsonValue, key: &str) -> &'v [JsonValue] {
    value.field(key).and_then(JsonValue::list).expect("a list")
}

/// `- TEXT :LINE` of each line.
fn lines(found: &[JsonValue]) -> Vec<String> {
    let text = |line: &JsonValue, key| line.field(key).and_then(JsonValue::text).expect("a text").to_owned();
    let shown = |line: &JsonValue| {
        let (side, place) = (text(line, "of"), text(line, "place"));
        let place = place.rsplit_once(':').expect("FILE:LINE").1;
        format!("{} {} :{place}", if side == "new" { "+" } else { "-" }, text(line, "text"))
    };
    found.iter().map(shown).collect()
}

/// A line of the predefined format.
fn line(client: &str, request: &str, status: u16) -> String {
    format!("{client} - - [23/Nov/2026:13:00:00 +0000] \"{request}\" {status} 5 \"-\" \"curl/8\"\n")
}

const OLD: &str = "
    upstream app { server 127.0.0.1:9; }
    limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s;
    server {
        listen 8080; server_name a.test;
        add_header X-Frame-Options DENY;
        add_header X-Request $request_id;
        location / { return 200 same; }
        location /old/ { return 200 old; }
        location /api/ { proxy_pass http://app; }
        location /v1/ { proxy_pass http://app; }
        location /office/ { allow 10.0.0.0/8; deny all; }
        location /limited/ { limit_req zone=z; empty_gif; }
        location /lua/ { content_by_lua_block { ngx.say(1) } }
        location /agent/ { if ($http_user_agent = curl/8) { return 403; } return 200; }
    }";

#[test]
fn changes_are_grouped_and_what_is_unknown_is_counted() {
    let new = OLD
        .replace("location /old/ { return 200 old; }", "location /old/ { return 301 /new/; }")
        .replace("location /v1/ { proxy_pass http://app; }", "location /v1/ { proxy_pass http://app/v2/; }")
        .replace("location /office/ { allow 10", "location /office/ { allow 11")
        .replace("X-Frame-Options DENY", "X-Frame-Options SAMEORIGIN")
        .replace("listen 8080;", "listen 8080;\n");
    let change = Change::new(OLD, &new);
    let log = [
        line("192.0.2.9", "GET / HTTP/1.1", 200),
        line("192.0.2.9", "GET /old/x HTTP/1.1", 200),
        line("192.0.2.9", "GET /old/y?z HTTP/1.1", 404),
        line("192.0.2.9", "GET /api/ HTTP/1.1", 200),
        line("192.0.2.9", "GET /v1/x HTTP/1.1", 200),
        line("10.0.0.1", "GET /office/ HTTP/1.1", 403),
        line("192.0.2.9", "GET /office/ HTTP/1.1", 403),
        line("192.0.2.9", "GET /limited/ HTTP/1.1", 204),
        line("192.0.2.9", "GET /lua/ HTTP/1.1", 200),
        line("192.0.2.9", "GET /agent/ HTTP/1.1", 403),
        line("192.0.2.9", "\\x16\\x03\\x01", 400),
        "nonsense\n".to_owned(),
    ];
    let said = change.says(&log.concat(), &[]);
    assert_eq!(
        groups(&said),
        [
            "4 field X-Frame-Options",
            "2 result: 200 -> 301; field Location is added; field X-Frame-Options",
            "1 request; field X-Frame-Options",
            "1 result: 404 -> 403",
        ],
        "{said:?}"
    );
    let lines: Vec<_> = list(&said, "groups").iter().map(|group| lines(list(group, "lines"))).collect();
    let passes: Vec<_> = lines[2].iter().filter(|line| line.contains("pass")).map(String::as_str).collect();
    assert_eq!(passes, ["- proxy_pass http://app :14", "+ proxy_pass http://app/v2/ :15"]);
    assert_eq!(lines[3][0], "- allow 10.0.0.0/8 :15");
    assert_eq!((number(&said, "lines"), number(&said, "unread")), (12, 2));
    assert_eq!(number(&said, "changed") + number(&said, "same") + number(&said, "undecided"), 10);
}

#[test]
fn equal_configurations_differ_in_nothing() {
    let change = Change::new(OLD, &format!("{OLD} # the same"));
    let mut log = String::new();
    for at in 0..3000 {
        log.push_str(&line(
            "192.0.2.9",
            &format!("GET /{}/x{} HTTP/1.1", ["old", "api", "lua", "limited"][at % 4], at % 7),
            200,
        ));
    }
    let said = change.says(&log, &[]);
    assert_eq!(groups(&said), [""; 0]);
    let counts = ["lines", "changed", "same", "undecided", "unread"].map(|key| number(&said, key));
    assert_eq!(counts, [3000, 0, 1500, 1500, 0]);
    let parts = said.field("not_run").and_then(JsonValue::list).expect("a list");
    let parts: Vec<_> =
        parts.iter().map(|part| part.field("part").and_then(JsonValue::text).expect("text")).collect();
    assert_eq!(parts, ["content_by_lua (content)", "limit_req (preaccess)"]);
    let limited = change.says(&log, &["--limit", "10"]);
    assert_eq!(number(&limited, "lines"), 10);
    let text = change.run(&log, &[]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.starts_with(
            "3000 lines: 0 would change, 1500 stay the same, 1500 could not be decided, 0 not read\n"
        ),
        "{text}"
    );
    assert!(
        text.contains("the log has no $http_host, $host, $server_name: \"a.test\" is assumed (--host)"),
        "{text}"
    );
}

#[test]
fn formats_say_host_port_and_fields() {
    let old = "
        log_format main '$remote_addr $scheme://$host:$server_port \"$request_method\" \"$request_uri\" $status'
                        ' \"$http_x_beta\" \"$cookie_who\"';
        server { listen 8080; server_name a.test; return 200 a; }
        server { listen 8080; server_name b.test; return 200 b; }
        server { listen 8081; server_name b.test; if ($http_x_beta) { return 201; } if ($cookie_who = me) { return 202; } return 200 c; }";
    let new = old
        .replace("return 200 b;", "return 204;")
        .replace("return 201", "return 404")
        .replace("return 202", "return 405");
    let change = Change::new(old, &new);
    let mut log = String::new();
    for (host, port, beta, who) in [
        ("a.test", 8080, "-", "-"),
        ("b.test", 8080, "-", "-"),
        ("b.test", 8081, "-", "-"),
        ("b.test", 8081, "1", "-"),
        ("b.test", 8081, "-", "me"),
        ("a.test", 8082, "-", "-"),
    ] {
        writeln!(log, "192.0.2.9 http://{host}:{port} \"GET\" \"/\" 200 \"{beta}\" \"{who}\"")
            .expect("a String");
    }
    for format in [
        "main",
        "$remote_addr $scheme://$host:$server_port \"$request_method\" \"$request_uri\" $status \"$http_x_beta\" \"$cookie_who\"",
    ] {
        let said = change.says(&log, &["--format", format]);
        let results: Vec<_> =
            groups(&said).iter().map(|group| group.split(';').next().expect("one").to_owned()).collect();
        assert_eq!(
            results,
            ["1 result: 200 -> 204", "1 result: 201 -> 404", "1 result: 202 -> 405"],
            "{said:?}"
        );
        assert_eq!(
            (number(&said, "same"), number(&said, "undecided"), list(&said, "missing").len()),
            (2, 1, 0)
        );
    }
}

#[test]
fn an_address_that_goes_is_one_change_and_mistakes_are_named() {
    let change = Change::new("server { listen 8080; return 200; }", "server { listen 8081; return 200; }");
    let log = line("192.0.2.9", "GET / HTTP/1.1", 200);
    let format = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \"$http_referer\" \"$server_port\"";
    let said = change.says(&log.replace("curl/8", "8080"), &["--format", format]);
    assert_eq!(groups(&said), ["1 listen"]);
    for (words, message) in [
        (&["--format", "main"][..], "there is no log_format \"main\" in OLD; there are: combined"),
        (&["--format", "$a$b"], "nothing is between $a and $b: where one ends is not known"),
        (&["--limit", "x"], "\"x\" is no number of lines"),
        (&["--scheme", "ftp"], "\"ftp\" is no scheme: http or https"),
    ] {
        let output = change.run(&log, words);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((errors, output.status.code()), (format!("weir: {message}\n"), Some(2)), "{words:?}");
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("diff-config")
        .args([change.path("old.conf"), change.path("old.conf")])
        .args(["--log", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    child.stdin.take().expect("piped").write_all(log.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(
        String::from_utf8_lossy(&output.stdout).starts_with("1 line: 0 would change, 1 stay"),
        "{output:?}"
    );
    assert!(fs::read_dir(change.directory.path()).expect("there").count() == 3, "something was written");
}

/// Packs with gzip, as one member.
fn packed(text: &[u8]) -> Vec<u8> {
    let mut out = vec![0; zlib_rs::compress_bound(text.len()) + 18];
    let config = zlib_rs::DeflateConfig { window_bits: 31, ..zlib_rs::DeflateConfig::new(6) };
    zlib_rs::compress_slice(&mut out, text, config).0.to_vec()
}

#[test]
fn the_format_that_fits_is_found_and_packed_logs_are_read() {
    let old = "
        log_format long '$remote_addr $host \"$request\" $status \"$http_user_agent\"';
        log_format object json uri=$request_uri method=$request_method status=$status host=$host;
        log_format braces escape=json '{\"u\":\"$request_uri\",\"s\":$status,\"agent\":\"$http_user_agent\"}';
        server { listen 8080; server_name a.test; if ($http_user_agent = \"x\") { return 204; } return 200; }
        server { listen 8080; server_name b.test; return 200; }";
    let change = Change::new(old, &old.replace("204", "205"));
    for (format, log) in [
        ("combined", line("192.0.2.9", "GET /a HTTP/1.1", 200).replace("curl/8", "x")),
        ("long", "192.0.2.9 a.test \"GET /\\xE4 HTTP/1.1\" 204 \"x\"\n192.0.2.9 b.test \"GET / HTTP/1.1\" 200 \"x\"\n".to_owned()),
        ("braces", "{\"u\":\"/\\u00e4\",\"s\":204,\"agent\":\"x\"}\r\n".to_owned()),
    ] {
        let said = change.says(&log, &[]);
        assert_eq!(said.field("format").and_then(JsonValue::text), Some(format));
        assert_eq!(groups(&said), ["1 result: 204 -> 205"], "{format}");
        assert_eq!((number(&said, "changed"), number(&said, "unread")), (1, 0), "{said:?}");
    }
    let said = change
        .says("{\"method\":\"GET\",\"uri\":\"/\",\"status\":200,\"host\":\"b.test\",\"more\":[]}\n", &[]);
    assert_eq!(said.field("format").and_then(JsonValue::text), Some("object"));
    assert_eq!((number(&said, "same"), number(&said, "status_as_logged")), (1, 1));
    change.directory.write("one.gz", packed(line("192.0.2.9", "GET /a HTTP/1.1", 200).as_bytes()));
    let one = change.path("one.gz").display().to_string();
    let said = change.says(&line("192.0.2.9", "GET /b HTTP/1.1", 200), &["--log", &one]);
    assert_eq!((number(&said, "lines"), number(&said, "same")), (2, 2));
}

#[test]
fn what_the_configurations_look_at_and_the_log_lacks_is_named() {
    let old = "
        map $http_cookie $in { default 0; ~who 1; }
        log_format main '$remote_addr \"$request\" $status';
        server { listen 8080; server_name a.test; proxy_set_header X $http_x_sent;
                 if ($in) { return 403; } if ($http_x_beta) { return 404; } deny 10.0.0.1; return 200 $cookie_a; }";
    let change = Change::new(old, &old.replace("~who 1", "~who 2"));
    let said = change.says("10.0.0.1 \"GET /?a HTTP/1.1\" 200\n10.0.0.2 \"GET /?b HTTP/1.1\" 200\n", &[]);
    let missing =
        list(&said, "missing").iter().map(|one| one.field("field").and_then(JsonValue::text).expect("text"));
    assert_eq!(
        missing.collect::<Vec<_>>(),
        [
            "$http_host, $host, $server_name",
            "$scheme, $https, $ssl_protocol",
            "$server_port, $http_host",
            "$http_cookie",
            "$http_x_beta",
            "$cookie_a"
        ]
    );
    let needed = list(&said, "needed").iter().map(|name| name.text().expect("a text"));
    assert_eq!(needed.collect::<Vec<_>>(), ["$remote_addr", "$request", "$status"]);
    assert_eq!(
        lines(list(&said, "other_lines")),
        ["- map $http_cookie $in: ~who 1 :5", "+ map $http_cookie $in: ~who 2 :5"]
    );
    assert_eq!(number(&said, "decided"), 2);
}

#[test]
fn requests_that_are_the_same_are_decided_once() {
    let old = "server { listen 8080; location / { return 200; } location /a { return 301 /b?$args; } }";
    let change = Change::new(old, &old.replace("301", "302"));
    let log: String =
        (0..100).map(|at| line(&format!("192.0.2.{at}"), &format!("GET /a?{at} HTTP/1.1"), 301)).collect();
    let said = change.says(&log, &[]);
    assert_eq!((groups(&said), number(&said, "decided")), (vec!["100 result: 301 -> 302".to_owned()], 1));
    let args = "server { listen 8080; if ($arg_x) { return 204; } return 200; }";
    let said = Change::new(args, args).says(&log, &[]);
    assert_eq!((number(&said, "same"), number(&said, "decided")), (100, 100));
}

/// Agents, referrers and cookies that are only tested are decided by how the tests end.
#[test]
fn values_that_are_only_tested_are_decided_by_how_the_tests_end() {
    let old = "
        log_format main '$remote_addr \"$request\" $status \"$http_user_agent\" \"$http_referer\" $cookie_who';
        map $http_user_agent $bot { default 0; ~*(bot|spider) 1; }
        server { listen 8080; valid_referers none *.a.test; if ($bot) { return 403; } if ($http_user_agent ~ (x+)$) { return 200 $1; }
                 if ($cookie_who = me) { return 204; } if ($invalid_referer) { return 405; } return 201; }";
    let change = Change::new(old, &old.replace("403", "404").replace("405", "406"));
    let log: String = (0..500)
        .map(|at| {
            let agent = ["Bot", "spider", "curl", "ax", "axx"][at % 5];
            let agent = if agent.ends_with('x') { agent.to_owned() } else { format!("{agent}/{at}") };
            let from = ["http://www.a.test/", "http://b.test/"][at / 5 % 2];
            let who = if at % 50 == 2 { "me".to_owned() } else { format!("u{at}") };
            format!("192.0.2.9 \"GET / HTTP/1.1\" 200 \"{agent}\" \"{from}{at}\" {who}\n")
        })
        .collect();
    let said = change.says(&log, &[]);
    assert_eq!(groups(&said), ["200 result: 403 -> 404", "50 result: 405 -> 406"], "{said:?}");
    assert!(number(&said, "decided") <= 30, "{}", number(&said, "decided"));
    let if_bot = lines(list(&list(&said, "groups")[0], "lines"));
    assert!(if_bot.contains(&"- if ($bot) { return 403 } :7".to_owned()), "{if_bot:?}");
    let needed = list(&said, "needed").iter().map(|name| name.text().expect("a text"));
    assert_eq!(
        needed.collect::<Vec<_>>(),
        ["$request", "$status", "$http_user_agent", "$http_referer", "$cookie_who"]
    );
}

/// What FastCGI, uwsgi and SCGI get has no first line: the path as rewrites leave it is compared.
#[test]
fn a_rewrite_before_fastcgi_is_found() {
    let old = "server { listen 8080; location / { fastcgi_pass 127.0.0.1:9; fastcgi_param A $uri; } }";
    let new = old.replace("location /", "rewrite ^/node/(.*)$ /n/$1?a=1; location /");
    let change = Change::new(old, &new);
    let log =
        [line("192.0.2.9", "GET /node/1 HTTP/1.1", 200), line("192.0.2.9", "GET /x HTTP/1.1", 200)].concat();
    let said = change.says(&log, &[]);
    assert_eq!((groups(&said), number(&said, "same")), (vec!["1 uri".to_owned()], 1));
    let text = String::from_utf8(change.run(&log, &[]).stdout).expect("UTF-8");
    assert!(text.contains("uri: /node/1 -> /n/1?a=1\n"), "{text}");
    assert!(text.contains("+ rewrite ^/node/(.*)$ /n/$1?a=1 "), "{text}");
}

/// Of long values that differ in one part the text shows that part.
#[test]
fn of_long_lists_the_text_shows_what_differs() {
    let names: String = (0..40).map(|at| format!(" n{at}.test")).collect();
    let set: String = (0..30).map(|at| format!("proxy_set_header X-{at} value-{at}; ")).collect();
    let old = format!(
        "server {{ listen 8080; server_name{names} a.test; location / {{ {set} proxy_pass http://127.0.0.1:9; }} }}"
    );
    let change = Change::new(
        &old,
        &old.replace("X-29 value-29", "X-29 other").replace("n39.test a.test", "b.test a.test"),
    );
    let text = change.run(&line("192.0.2.9", "GET / HTTP/1.1", 200), &["--host", "a.test"]).stdout;
    let text = String::from_utf8(text).expect("UTF-8");
    for shown in [
        "sent: proxy_set_header X-29 value-29 -> proxy_set_header X-29 other (29 more are the same)\n",
        "- server_name ... n39.test  ",
        "+ server_name ... b.test  ",
    ] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
}

#[test]
fn what_upstreams_are_sent_and_settings_are_shown_by_their_lines() {
    let old = "
        upstream app { server 127.0.0.1:9; }
        server { listen 8080; location / { proxy_pass http://app; proxy_set_header Host $host; proxy_read_timeout 5s; }
                 location /x { proxy_pass http://app; proxy_read_timeout 5s; } }";
    let new = old.replace("Host $host", "Host $http_host").replace("timeout 5s; }\n", "timeout 6s; }\n");
    let change =
        Change::new(old, &new.replace("server 127.0.0.1:9;", "server 127.0.0.1:9; server 127.0.0.1:8;"));
    let log = [line("192.0.2.9", "GET / HTTP/1.1", 200), line("192.0.2.9", "GET /x HTTP/1.1", 200)].concat();
    let said = change.says(&log, &[]);
    assert_eq!(groups(&said), ["1 peers", "1 peers; sent"]);
    let peers = "+ upstream app: server 127.0.0.1:8 :5";
    assert!(lines(list(&list(&said, "groups")[0], "lines")).contains(&peers.to_owned()), "{said:?}");
    let said = Change::new(old, &new).says(&log, &[]);
    assert_eq!((groups(&said), number(&said, "same")), (vec!["1 sent".to_owned()], 1));
}

#[test]
fn broken_logs_and_configurations_end_in_messages() {
    let change = Change::new("server { listen 8080; return 200; }", "server { listen 8080; return 200; }");
    let binary: Vec<u8> =
        (0..200_000_u32).flat_map(|at| (at.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
    for (name, log) in [
        ("binary", binary),
        ("long", [vec![b'a'; 3 << 20], b"\nx\n".to_vec()].concat()),
        ("wrong", b"1 2 3\n".to_vec()),
    ] {
        change.directory.write("other.log", log);
        let other = change.path("other.log").display().to_string();
        let output = change.run_on(&other, &[]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(errors.starts_with("weir: none of ") && errors.contains("--format"), "{name}: {errors}");
        assert!(errors.len() < 1000, "{name}: {errors}");
        let output = change.run(&line("192.0.2.9", "GET / HTTP/1.1", 200), &["--log", &other, "--json"]);
        let said = JsonValue::parse(&output.stdout).expect("JSON");
        assert_eq!((number(&said, "same"), output.status.code()), (1, Some(0)), "{name}");
    }
    let cut = packed(line("192.0.2.9", "GET / HTTP/1.1", 200).repeat(50).as_bytes());
    change.directory.write("cut.gz", &cut[..cut.len() - 9]);
    let cut = change.path("cut.gz").display().to_string();
    let errors = change.run_on(&cut, &[]).stderr;
    assert_eq!(String::from_utf8_lossy(&errors), format!("weir: \"{cut}\": gzip data ends early\n"));
    assert_eq!(change.run("", &[]).status.code(), Some(0));
    change.directory.write("new.conf", "events { }\nhttp { server { listen 8080; nonsense on; } }\n");
    let output = change.run("", &[]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(2) && errors.contains("new.conf:2:31") || errors.contains("new.conf:2"),
        "{errors}"
    );
}

#[test]
fn relative_includes_begin_at_each_file() {
    let change = Change::new("include sites/*.conf;", "include sites/*.conf;");
    fs::create_dir_all(change.path("sites")).expect("made");
    fs::create_dir_all(change.path("new")).expect("made");
    change.directory.write("sites/a.conf", "server { listen 8080; return 200; }\n");
    fs::rename(change.path("new.conf"), change.path("new/n.conf")).expect("moved");
    let (old, new) = (change.path("old.conf"), change.path("new/n.conf"));
    change.directory.write("access.log", line("192.0.2.9", "GET / HTTP/1.1", 200));
    let run = || {
        let log = change.path("access.log").display().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("diff-config").args([&old, &new]).args(["--log", &log]);
        command.output().expect("the program runs")
    };
    let output = run();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let place = change.path("new");
    let expected = format!(
        "weir: NEW has no server; its relative \"include\" lines begin at its own directory, {}\n",
        place.display()
    );
    assert_eq!((errors, output.status.code()), (expected, Some(2)));
    fs::create_dir_all(change.path("new/sites")).expect("made");
    change.directory.write("new/sites/a.conf", "server { listen 8080; return 201; }\n");
    let output = run();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("new/sites/a.conf:1"), "{text}");
}

#[test]
fn what_is_chosen_by_the_number_of_a_request_is_the_same_in_both() {
    let old = "
        split_clients $request_id $part { 50% a; * b; }
        server { listen 8080; add_header X-Id $request_id; add_header X-Time $msec; add_header X-Part $part; return 200; }";
    let log: String = (0..300).map(|at| line("192.0.2.9", &format!("GET /{at} HTTP/1.1"), 200)).collect();
    let said = Change::new(old, &format!("{old} # the same")).says(&log, &[]);
    assert_eq!((number(&said, "same"), number(&said, "decided")), (300, 300));
    let said = Change::new(old, &old.replace("50%", "90%")).says(&log, &[]);
    let changed = number(&said, "changed");
    assert!(groups(&said) == [format!("{changed} field X-Part")] && (60..180).contains(&changed), "{said:?}");
}
