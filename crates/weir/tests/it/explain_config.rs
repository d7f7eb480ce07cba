//! `weir explain-config`: what it says is what the server does.

use std::fs;
use std::process::{Command, Output};

use weir_http::json::JsonValue;
use weir_test::{Client, Server, TempDir};

/// Runs the program with these words.
fn weir(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(words).output().expect("the program runs")
}

/// What `explain-config` says of a request, as JSON.
#[track_caller]
fn explained(conf: &str, words: &[&str]) -> JsonValue {
    let mut all = vec!["explain-config", "-c", conf, "--json"];
    all.extend(words);
    let output = weir(&all);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {errors}");
    assert_eq!(errors, "", "{words:?}");
    JsonValue::parse(&output.stdout).expect("JSON")
}

fn text<'v>(value: &'v JsonValue, keys: &[&str]) -> &'v str {
    value.path(keys).and_then(JsonValue::text).unwrap_or("")
}

/// The value of a field of the response.
fn field<'v>(value: &'v JsonValue, name: &str) -> Option<&'v str> {
    let fields = value.field("fields").and_then(JsonValue::list)?;
    fields.iter().find(|field| text(field, &["name"]) == name).map(|field| text(field, &["value"]))
}

const RICH: &str = r#"
http {
    map $arg_m $mapped { default ""; a one; b two; }
    geo $office { default 0; 127.0.0.1 1; 10.0.0.0/8 2; }
    add_header X-Server $server_name always;
    log_format names escape=none "$server_name $status";
    access_log %%DIR%%/access.log names;
    root %%DIR%%/www;
    server {
        listen 127.0.0.1:%%PORT%% default_server;
        server_name first;
        add_header X-Location none always;
        add_header X-Server $server_name always;
        location / { add_header X-Location / always; add_header X-Server $server_name always; }
        location = /exact { add_header X-Location exact always; return 200 "exact\n"; }
        location /moved/ { add_header X-Location moved always; return 301 /new/$arg_a; }
        location ^~ /keep/ { add_header X-Location keep always; return 204; }
        location ~ ^/(re|keep)/(.*)\.txt$ { add_header X-Location "re $2" always; return 202 $1; }
        location /outer/ {
            add_header X-Location outer always;
            location /outer/inner/ { add_header X-Location inner always; return 206; }
            location ~ \.nested$ { add_header X-Location nested always; return 207; }
        }
        location /denied/ { add_header X-Location denied always; deny all; }
        location /allowed/ { add_header X-Location allowed always; allow 127.0.0.1; deny all; try_files $uri /index.html; }
        location /private/ { add_header X-Location private always; auth_basic realm; auth_basic_user_file %%DIR%%/users; try_files $uri /index.html; }
        location /any/ { satisfy any; allow 127.0.0.1; deny all; auth_basic realm; auth_basic_user_file %%DIR%%/users; add_header X-Location any always; try_files $uri =404; }
        location /inside/ { internal; add_header X-Location inside always; try_files $uri /index.html; }
        location /rewritten/ { add_header X-Location rewritten always; rewrite ^/rewritten/(.*)$ /exact? last; }
        location /cycle/ { rewrite ^ /cycle/again last; }
        location /tries/ { add_header X-Location tries always; try_files $uri $uri/ @named; }
        location @named { add_header X-Location named always; return 418; }
        location /errors/ { add_header X-Location errors always; error_page 404 =203 /exact; error_page 403 @named; }
        location /forbids/ { deny all; error_page 403 /page.html; }
        location /methods/ { add_header X-Location methods always; limit_except GET { deny all; } try_files $uri /index.html; }
        location /ifs/ {
            add_header X-Location ifs always;
            if ($arg_x = 1) { return 403; }
            if ($mapped) { add_header X-Location "if $mapped" always; }
            if ($office = 1) { set $seen yes; }
            return 200 "$seen $office";
        }
        location /dirs/ { add_header X-Location dirs always; autoindex on; }
        location /slash/ { add_header X-Location slash always; proxy_pass http://127.0.0.1:9/; }
        location /closes/ { return 444; }
    }
    server { listen 127.0.0.1:%%PORT%%; server_name exact.test www.test; location / { add_header X-Location exact-server always; add_header X-Server $server_name always; return 200; } }
    server { listen 127.0.0.1:%%PORT%%; server_name *.wild.test; location / { add_header X-Location wild always; add_header X-Server $server_name always; return 200; } }
    server { listen 127.0.0.1:%%PORT%%; server_name tail.*; location / { add_header X-Location tail always; add_header X-Server $server_name always; return 200; } }
    server { listen 127.0.0.1:%%PORT%%; server_name ~^(?<who>\w+)\.re\.test$; location / { add_header X-Location "re $who" always; add_header X-Server $server_name always; return 200; } }
    server { listen 127.0.0.1:%%PORT%%; server_name whole.test; rewrite ^/old/(.*)$ /new/$1; if ($arg_no) { return 410; } location /new/ { add_header X-Location new always; return 200 $uri; } }
}
"#;

/// Method, host, target and a field.
const REQUESTS: [(&str, &str, &str, &str); 47] = [
    ("GET", "first", "/", ""),
    ("GET", "other", "/index.html", ""),
    ("HEAD", "first", "/index.html", ""),
    ("POST", "first", "/index.html", ""),
    ("GET", "first", "/missing", ""),
    ("GET", "first", "/dir", ""),
    ("GET", "first", "/exact", ""),
    ("GET", "first", "/exact/", ""),
    ("GET", "first", "/moved/?a=b", ""),
    ("GET", "first", "/keep/x.txt", ""),
    ("GET", "first", "/re/x.txt", ""),
    ("GET", "first", "/re/%41.txt", ""),
    ("GET", "first", "//re//x.txt", ""),
    ("GET", "first", "/outer/", ""),
    ("GET", "first", "/outer/inner/x", ""),
    ("GET", "first", "/outer/a.nested", ""),
    ("GET", "first", "/outer/../exact", ""),
    ("GET", "first", "/denied/", ""),
    ("GET", "first", "/allowed/x", ""),
    ("GET", "first", "/private/", ""),
    ("GET", "first", "/private/", "Authorization: Basic dTpw"),
    ("GET", "first", "/private/", "Authorization: Basic dTpx"),
    ("GET", "first", "/any/", ""),
    ("GET", "first", "/inside/", ""),
    ("GET", "first", "/rewritten/x?y", ""),
    ("GET", "first", "/cycle/", ""),
    ("GET", "first", "/tries/x", ""),
    ("GET", "first", "/tries/there.txt", ""),
    ("GET", "first", "/errors/x", ""),
    ("GET", "first", "/errors/", ""),
    ("GET", "first", "/forbids/", ""),
    ("GET", "first", "/methods/", ""),
    ("DELETE", "first", "/methods/", ""),
    ("GET", "first", "/ifs/?x=1", ""),
    ("GET", "first", "/ifs/?m=a", ""),
    ("GET", "first", "/ifs/", ""),
    ("GET", "first", "/dirs/", ""),
    ("GET", "first", "/slash", ""),
    ("GET", "exact.test", "/", ""),
    ("GET", "WWW.test.", "/", ""),
    ("GET", "a.b.wild.test", "/", ""),
    ("GET", "tail.org", "/", ""),
    ("GET", "me.re.test", "/", ""),
    ("GET", "whole.test", "/old/x", ""),
    ("GET", "whole.test", "/old/x?no=1", ""),
    ("GET", "first", "/index.html", "Range: bytes=0-1"),
    ("GET", "first", "/bad%00", ""),
];

#[test]
fn what_it_says_is_what_the_server_does() {
    let server = Server::builder(RICH)
        .file("www/index.html", "index\n")
        .file("www/page.html", "page\n")
        .file("www/dir/x", "x")
        .file("www/dirs/x", "x")
        .file("www/tries/there.txt", "there")
        .file("users", "u:{PLAIN}p\n")
        .start();
    crate::support::says::started(&server);
    let conf = server.dir().path().join("nginx.conf").display().to_string();
    let before = files(&server);
    let mut names = Vec::new();
    for (method, host, target, with) in REQUESTS {
        let what = format!("{method} {host}{target} {with}");
        let url = format!("http://{host}:{}{target}", server.port(0));
        let mut words = vec!["--url", &url, "--method", method, "--from", "127.0.0.1"];
        words.extend(["--header", with].into_iter().filter(|_| !with.is_empty()));
        let said = explained(&conf, &words);
        assert_eq!(text(&said, &["result", "kind"]), "response", "{what}: {said:?}");
        let fields = if with.is_empty() { String::new() } else { format!("{with}\r\n") };
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}:{}\r\n{fields}Connection: close\r\n\r\n",
            server.port(0)
        );
        let response = Client::connect(server.addr(0)).request(&request);
        let status = said.path(&["result", "status"]).and_then(JsonValue::number);
        assert_eq!(status, Some(u64::from(response.status)), "{what}");
        for name in
            ["X-Location", "X-Server", "Location", "Content-Type", "Content-Length", "WWW-Authenticate"]
        {
            assert_eq!(field(&said, name), response.field(name), "{what}: {name}");
        }
        names.push((what, format!("{} {}", text(&said, &["server"]), response.status)));
    }
    for ((what, said), logged) in names.iter().zip(server.access_log_lines(REQUESTS.len())) {
        assert_eq!(*said, logged, "{what}");
    }
    assert_eq!(files(&server), before, "explaining writes nothing");
}

/// The files in the server's directory but its access log, with the lengths of logs.
fn files(server: &Server) -> Vec<String> {
    let entries = fs::read_dir(server.dir().path()).expect("a directory");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name != "access.log" && name != "error.log")
        .collect();
    names.sort();
    names
}

#[test]
fn nothing_is_asked_run_or_written() {
    let directory = TempDir::new();
    let path = directory.path();
    let conf = path.join("n.conf");
    let touched = path.join("touched");
    let script = format!("io.open('{}', 'w'):close()", touched.display());
    fs::write(
        &conf,
        format!(
            r#"error_log logs/own.log debug;
events {{ }}
http {{
    access_log logs/access.log;
    init_by_lua_block {{ {script} }}
    init_worker_by_lua_block {{ {script} }}
    limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s;
    upstream group {{ server 127.0.0.1:9; server 127.0.0.1:10 backup; least_conn; }}
    header_filter_by_lua_block {{ {script} }}
    server {{
        listen 127.0.0.1:8443 ssl;
        listen 127.0.0.1:8080;
        server_name a.test;
        ssl_certificate c.pem;
        ssl_certificate_key k.pem;
        set_by_lua_block $v {{ {script} return 1 }}
        location /api/ {{
            limit_req zone=z;
            rewrite_by_lua_block {{ {script} }}
            access_by_lua_block {{ {script} }}
            auth_request /auth;
            proxy_pass http://group/v1/;
            proxy_set_header X-A b;
        }}
        location = /auth {{ internal; proxy_pass http://group; }}
        location /lua {{ content_by_lua_block {{ {script} }} }}
        location /name/ {{ proxy_pass http://$arg_host; }}
    }}
}}
"#
        ),
    )
    .expect("written");
    let certified = rcgen::generate_simple_self_signed(["a.test".to_owned()]).expect("a certificate");
    fs::write(path.join("c.pem"), certified.cert.pem()).expect("written");
    fs::write(path.join("k.pem"), certified.signing_key.serialize_pem()).expect("written");
    let conf = conf.display().to_string();

    let said = explained(&conf, &["--url", "https://a.test:8443/api/x%20y?q"]);
    assert_eq!(text(&said, &["listen"]), "127.0.0.1:8443");
    assert_eq!(text(&said, &["result", "kind"]), "upstream");
    assert_eq!(text(&said, &["result", "upstream"]), "group");
    assert_eq!(text(&said, &["result", "method"]), "least_conn");
    assert_eq!(text(&said, &["result", "request"]), "GET /v1/x%20y?q HTTP/1.1");
    let unknown: Vec<_> = said.field("unknown").and_then(JsonValue::list).expect("a list").iter().collect();
    let unknown: Vec<_> = unknown.iter().map(|one| text(one, &["module"])).collect();
    assert_eq!(
        unknown,
        [
            "set_by_lua $v",
            "rewrite_by_lua",
            "limit_req",
            "auth_request",
            "access_by_lua",
            "header_filter_by_lua"
        ]
    );
    let lines = said.field("directives").and_then(JsonValue::list).expect("a list");
    let line = |text_of: &str| lines.iter().find(|line| text(line, &["text"]) == text_of);
    let own = line("proxy_set_header X-A b").expect("in force");
    assert_eq!((text(own, &["origin"]), text(own, &["place"])), ("own", &*format!("{conf}:23")));
    assert!(line("listen 127.0.0.1:8443 ssl").is_some_and(|line| text(line, &["origin"]) == "server"));

    assert_eq!(text(&explained(&conf, &["http://a.test:8080/lua"]), &["result", "kind"]), "unknown");
    let computed = explained(&conf, &["http://a.test:8080/name/?host=b.test:81"]);
    assert_eq!(text(&computed, &["result", "upstream"]), "b.test:81");
    let plain = explained(&conf, &["http://a.test:8443/"]);
    assert_eq!(plain.path(&["result", "status"]).and_then(JsonValue::number), Some(400));
    let defaults = weir(&["explain-config", "-c", &conf, "--defaults", "http://a.test:8080/lua"]);
    let defaults = String::from_utf8_lossy(&defaults.stdout).into_owned();
    assert!(
        defaults.contains("default   sendfile off") && defaults.contains("content_by_lua responds"),
        "{defaults}"
    );
    assert!(!touched.exists(), "a script ran");
    assert!(!path.join("logs").exists() && !path.join("client_body_temp").exists(), "something was made");
}

#[test]
fn mistakes_are_named() {
    let directory = TempDir::new();
    let conf = directory.path().join("n.conf");
    fs::write(&conf, "events { } http { server { listen 127.0.0.1:8080; } }").expect("written");
    let conf = conf.display().to_string();
    let no_tls = format!(
        "127.0.0.1:8080 speaks no TLS: no \"listen\" of it has \"ssl\" (the server at {conf}:1), so a browser's handshake \
         fails there. http://a:8080/x?y is the same request without TLS"
    );
    for (words, message) in [
        (&[][..], "which request? --url https://example.com/path"),
        (&["--url", "a/b"], "\"a/b\" is no URL: it begins with http:// or https://"),
        (&["http://a:81/"], "nothing listens on port 81; the configuration has: 127.0.0.1:8080"),
        (&["https://a:8080/x?y"], &no_tls),
        (&["http://a:8080/", "--header", "x"], "\"x\" is no field: Name: value"),
        (&["http://a:8080/", "--from", "x"], "\"x\" is no address: 192.0.2.7 is"),
    ] {
        let mut all = vec!["explain-config", "-c", &conf];
        all.extend(words);
        let output = weir(&all);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((errors, output.status.code()), (format!("weir: {message}\n"), Some(2)), "{words:?}");
    }
    fs::write(&conf, "events { } http { server { listn 8080; } }").expect("written");
    let output = weir(&["explain-config", "-c", &conf, "http://a/"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("n.conf:1:28"), "{output:?}");
}
