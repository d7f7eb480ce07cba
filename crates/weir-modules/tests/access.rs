//! Access: `allow` and `deny`, passwords, both under `satisfy`, the client's real address; and `try_files`.

mod common;

use std::time::Instant;

use common::Site;
use weir_engine::ModuleDef;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_modules::{Access, AuthBasic, Index, Realip, Rewrite, Static, TryFiles};
use weir_test::{Client, Response, TempDir};

static MODULES: [ModuleDef; CORE_MODULES.len() + 7] = with_core(&[
    ModuleDef::of::<Realip>(),
    ModuleDef::of::<Rewrite>(),
    ModuleDef::of::<Access>(),
    ModuleDef::of::<AuthBasic>(),
    ModuleDef::of::<TryFiles>(),
    ModuleDef::of::<Index>(),
    ModuleDef::of::<Static>(),
]);

/// `user:right` and `user:wrong`.
const RIGHT: &str = "Authorization: Basic dXNlcjpyaWdodA==\r\n";
const WRONG: &str = "Authorization: Basic dXNlcjp3cm9uZw==\r\n";

fn site(inside: &str) -> Site {
    Site::new(&MODULES, inside)
}

/// A site whose `{users}` is replaced by a file with `user:right`, stored in `form`; the file lives as long as the
/// directory.
fn guarded(inside: &str, form: &str) -> (Site, TempDir) {
    let directory = TempDir::new();
    let users = directory.write("users", format!("# users\nuser:{form}:a comment\n"));
    (site(&inside.replace("{users}", &users.display().to_string())), directory)
}

/// Waits until the message is in the log `count` times.
fn logged(site: &Site, message: &str, count: usize) {
    weir_test::wait_for(message, || {
        (site.directory.read("error.log").matches(message).count() >= count).then_some(())
    });
}

fn challenge(response: &Response) -> Option<&str> {
    response.field("WWW-Authenticate")
}

/// Locations for each rule under each `satisfy`.
fn table() -> String {
    let mut conf = "auth_basic closed; auth_basic_user_file {users};".to_owned();
    for satisfy in ["all", "any"] {
        for (name, rule) in RULES {
            conf +=
                &format!(" location = /{satisfy}/{name} {{ satisfy {satisfy}; {rule} try_files /f =404; }}");
        }
    }
    conf
}

const RULES: [(&str, &str); 3] = [("allow", "allow 127.0.0.1;"), ("deny", "deny 127.0.0.1;"), ("none", "")];

/// The statuses for the right password, a wrong one and none, as nginx 1.31.5 responds.
const STATUSES: [(&str, [u16; 3]); 6] = [
    ("/all/allow", [200, 401, 401]),
    ("/all/deny", [403, 403, 403]),
    ("/all/none", [200, 401, 401]),
    ("/any/allow", [200, 200, 200]),
    ("/any/deny", [200, 401, 401]),
    ("/any/none", [200, 401, 401]),
];

fn check_table(who: &str, ask: impl Fn(&str, &str) -> Response) {
    for (path, statuses) in STATUSES {
        for (fields, status) in [RIGHT, WRONG, ""].into_iter().zip(statuses) {
            let response = ask(path, fields);
            assert_eq!(response.status, status, "{who}: {path} {fields}");
            let expected = (status == 401).then_some("Basic realm=\"closed\"");
            assert_eq!(challenge(&response), expected, "{who}: {path} {fields}");
        }
    }
}

#[test]
fn rules_and_passwords_under_satisfy() {
    let (site, _users) = guarded(&table(), "{PLAIN}right");
    site.write("f", "found");
    check_table("weir", |path, fields| site.get(path, fields));
    for message in [
        "access forbidden by rule, client: 127.0.0.1",
        "user \"user\": password mismatch, client: 127.0.0.1",
        "no user/password was provided for basic authentication, client: 127.0.0.1",
    ] {
        logged(&site, message, 1);
    }
}

#[test]
fn nginx_has_the_same_table() {
    let users = TempDir::new();
    let path = users.write("users", "user:{PLAIN}right\n").display().to_string();
    let inside = table().replace("{users}", &path);
    let conf = format!(
        "events {{ }} http {{ server {{ listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/root; {inside} }} }}"
    );
    let Some(builder) = weir_test::nginx(&conf) else { return };
    std::fs::create_dir(builder.dir().join("root")).expect("a fresh folder");
    let server = builder.file("root/f", "found").start();
    check_table("nginx", |path, fields| {
        server
            .client()
            .request(format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n"))
    });
}

#[test]
fn slow_hashes_and_errors_of_the_file() {
    let (site, _users) = guarded(
        "location / { auth_basic $arg_realm; auth_basic_user_file {users}; }
         location /none { auth_basic x; auth_basic_user_file $document_root/$arg_file; }
         location /off { auth_basic off; }",
        "$apr1$salt$x3JU.0eD7OYrBdSqOnXq3.",
    );
    site.write("f", "found");
    site.write("off", "found");
    let wrong = site.get("/f?realm=a", RIGHT);
    assert_eq!((wrong.status, challenge(&wrong)), (401, Some("Basic realm=\"a\"")));
    assert_eq!(site.get("/f?realm=off", "").status, 200);
    assert_eq!(site.get("/off", "").status, 200);
    assert_eq!(site.get("/none?file=missing", RIGHT).status, 403);
    assert_eq!(site.get("/none?file=", RIGHT).status, 500);
    let nobody = site.get("/none?file=f", RIGHT);
    assert_eq!((nobody.status, challenge(&nobody)), (401, Some("Basic realm=\"x\"")));
    for message in [
        "/missing\" failed (2: No such file or directory)",
        "failed (21: Is a directory)",
        "user \"user\" was not found in \"",
        "user \"user\": password mismatch",
    ] {
        logged(&site, message, 1);
    }
}

#[test]
fn a_slow_hash_lets_its_password_in() {
    let (site, _users) = guarded(
        "auth_basic x; auth_basic_user_file {users};",
        "$6$salt$vBy9sDCxqmqmfqBK5nmzr1kUIMkq7zYdlIyWD/n41gv0wdATFYfB4I23B0JdtdxxxIQE3SB7pygxUpkBZeF7a/",
    );
    site.write("f", "found");
    assert_eq!(site.get("/f", RIGHT).status, 200);
    assert_eq!(site.get("/f", WRONG).status, 401);
}

#[test]
fn auth_delay_holds_refusals_back_and_nothing_else() {
    let (site, _users) = guarded(
        "auth_delay 200ms; auth_basic x; auth_basic_user_file {users}; location /any { satisfy any; deny all; }",
        "{PLAIN}right",
    );
    site.write("f", "found");
    for path in ["/f", "/any"] {
        let began = Instant::now();
        assert_eq!(site.get(path, WRONG).status, 401);
        // The loop's clock, by which the delay ends, may be older than this one.
        assert!(began.elapsed().as_millis() >= 100, "{path}");
    }
    assert_eq!(site.get("/f", RIGHT).status, 200);
    logged(&site, "delaying unauthorized request", 2);
}

#[test]
fn the_real_address_counts_for_rules_variables_and_logs() {
    let site = site(
        "set_real_ip_from 127.0.0.0/8; real_ip_header X-Forwarded-For; deny 192.0.2.1;
         location / { try_files /none @tell; }
         location @tell { return 200 \"$remote_addr:$remote_port $realip_remote_addr\"; }
         location /other { real_ip_header X-Client; real_ip_recursive on; set_real_ip_from 10.0.0.0/8;
             set_real_ip_from 127.0.0.1; try_files /none @tell; }",
    );
    let reported = |path: &str, fields: &str| site.get(path, fields).text();
    assert_eq!(reported("/", "X-Forwarded-For: 203.0.113.5:99\r\n"), "203.0.113.5:99 127.0.0.1");
    assert_eq!(reported("/", "X-Forwarded-For: 203.0.113.5\r\n"), "203.0.113.5: 127.0.0.1");
    assert_eq!(reported("/", "X-Forwarded-For: 203.0.113.5, 203.0.113.6\r\n"), "203.0.113.6: 127.0.0.1");
    assert_eq!(reported("/other", "X-Client: 203.0.113.7, 10.1.1.1\r\n"), "203.0.113.7: 127.0.0.1");
    assert!(reported("/", "").starts_with("127.0.0.1:"));
    assert_eq!(site.get("/", "X-Forwarded-For: 192.0.2.1\r\n").status, 403);
    logged(&site, "access forbidden by rule, client: 192.0.2.1, server:", 1);
}

#[test]
fn the_next_request_of_a_connection_has_its_own_address() {
    let site = site(
        "set_real_ip_from 127.0.0.1; location / { try_files /none @a; } location @a { return 200 $remote_addr; }",
    );
    let mut client = Client::connect(site.address);
    let first = client.request("GET / HTTP/1.1\r\nHost: h\r\nX-Real-IP: 192.0.2.9\r\n\r\n");
    assert_eq!(first.text(), "192.0.2.9");
    assert_eq!(client.request("GET / HTTP/1.1\r\nHost: h\r\n\r\n").text(), "127.0.0.1");
}

#[test]
fn try_files_takes_the_first_that_is_there() {
    let directory = TempDir::new();
    let site = site(
        "location / { try_files $uri $uri/ /index.php?q=$uri&$args; }
         location /index.php { return 200 \"php $args\"; }
         location /code/ { try_files $uri =404; }
         location /named/ { try_files $uri @named; }
         location @named { return 200 \"named $uri\"; }
         location /alias/ { alias {root}/; try_files $uri =405; }
         location ~ ^/regex/(.*)$ { alias {root}; try_files /$1 =405; }
         location = /brace { try_files /folder /none/ /f; }
         location = /cycle { try_files /none /cycle; }"
            .replace("{root}", &directory.path().display().to_string())
            .as_str(),
    );
    directory.write("a", "aliased");
    site.write("f", "found");
    std::fs::create_dir(site.directory.path().join("root/folder")).expect("a fresh folder");
    site.write("folder/index.html", "index");
    for (path, status, text) in [
        ("/f", 200, "found"),
        ("/folder/", 200, "index"),
        ("/missing?a=b", 200, "php q=/missing&a=b"),
        ("/code/x", 404, ""),
        ("/named/x", 200, "named /named/x"),
        ("/alias/a", 200, "aliased"),
        ("/alias/b", 405, ""),
        ("/regex/a", 200, "aliased"),
        ("/regex/b", 405, ""),
        ("/brace", 200, "found"),
        ("/cycle", 500, ""),
    ] {
        let response = site.get(path, "");
        assert_eq!(response.status, status, "{path}");
        if !text.is_empty() {
            assert_eq!(response.text(), text, "{path}");
        }
    }
}

#[test]
fn wrong_lines_are_refused_in_nginx_words() {
    for (line, message) in [
        ("try_files a =abc;", "invalid code \"=abc\""),
        ("try_files a =1000;", "invalid code \"=1000\""),
        ("try_files a b; try_files c d;", "\"try_files\" directive is duplicate"),
        ("set_real_ip_from 10.0.0.0/88;", "host not found in set_real_ip_from \"10.0.0.0/88\""),
        ("deny x;", "invalid parameter \"x\""),
        ("auth_basic a; auth_basic b;", "\"auth_basic\" directive is duplicate"),
        ("real_ip_header a; real_ip_header b;", "\"real_ip_header\" directive is duplicate"),
    ] {
        let text = format!("events {{ }} http {{ server {{ {line} }} }}");
        let lines = weir_engine::conf::test::headlines(&text, &MODULES);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(message), "{lines:?}");
    }
}
