//! What is done before a configuration is served, and what becomes of connections when another one takes its place.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use weir_test::{Server, ServerSignal, TempDir, both_drivers};

use crate::http2::client::Client as Http2Client;
use crate::support;

/// Runs `weir -t` on `text` in `folder`; what it says, without the directory's name, and whether it is content.
fn tested(directory: &TempDir, text: &str) -> (String, bool) {
    // The usual place, logs/nginx.pid, is not in a fresh directory.
    fs::write(directory.path().join("nginx.conf"), format!("pid nginx.pid; {text}")).expect("a fresh folder");
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["-t", "-c", "nginx.conf", "-p"])
        .arg(directory.path())
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    (said.replace(&format!("{}/", directory.path().display()), ""), output.status.success())
}

/// The number of the system call.
const IO_URING_SETUP: u32 = 425;

#[test]
fn a_server_without_io_uring_says_why() {
    let directory = TempDir::new();
    let Some(program) = support::restricted::without_call(&directory, IO_URING_SETUP) else { return };
    let start = |events: &str| {
        let conf = format!(
            "error_log error.log notice; events {{ {events} }} http {{ server {{ listen 127.0.0.1:%%PORT%%; }} }}"
        );
        let server = Server::builder(&conf).binary(&program).env("WEIR_PROGRAM", env!("CARGO_BIN_EXE_weir"));
        server.start()
    };
    let said = |server: &Server| {
        let doctor = support::says::says(&["doctor"], &support::says::of(server));
        let line = doctor.lines().find(|line| line.contains(" workers on ")).unwrap_or_default().to_owned();
        (server.error_log_line("event method"), line)
    };
    let cause = "Operation not permitted (os error 1): a seccomp filter forbids it";
    let (log, doctor) = said(&start(""));
    assert!(
        log.contains("using the \"epoll\" event method, since io_uring: ") && log.contains(cause),
        "{log}"
    );
    assert!(doctor.contains("workers on epoll (io_uring: ") && doctor.contains(cause), "{doctor}");
    // Who asks for epoll need not be told of anything else.
    let (log, doctor) = said(&start("use epoll;"));
    assert!(log.ends_with("using the \"epoll\" event method"), "{log}");
    assert!(doctor.contains("workers on epoll (as \"use\" says)"), "{doctor}");
}

#[test]
fn a_test_says_how_far_the_configuration_is_good() {
    let directory = TempDir::new();
    let ok = "weir: the configuration file nginx.conf syntax is ok\n";
    let failed = "weir: configuration file nginx.conf test failed\n";
    for (text, said) in [
        ("http { }", "no \"events\" section in configuration"),
        ("events { } http { scgi_temp_path a/b; }", "mkdir() \"a/b\" failed (2: No such file or directory)"),
    ] {
        assert_eq!(
            tested(&directory, text),
            (format!("{ok}weir: [emerg] {said}\n{failed}"), false),
            "{text}"
        );
    }
    let good = format!("{ok}weir: configuration file nginx.conf test is successful\n");
    assert_eq!(tested(&directory, "events { }"), (good, true));
}

#[test]
fn what_is_wrong_is_in_the_usual_log_too() {
    let directory = TempDir::new();
    fs::create_dir(directory.path().join("logs")).expect("a fresh folder");
    assert!(!tested(&directory, "nothing;").1);
    let log = fs::read_to_string(directory.path().join("logs/error.log")).expect("written");
    assert!(log.contains("[emerg]") && log.contains("unknown directive \"nothing\""), "{log}");
}

#[test]
fn directories_of_temporary_files_are_private() {
    let directory = TempDir::new();
    let text = "events { } http { access_log off; client_body_temp_path body 1 2; fastcgi_temp_path f;
        server { proxy_temp_path p; location / { uwsgi_temp_path u; } } }";
    assert!(tested(&directory, text).1);
    for name in ["body", "f", "p", "u"] {
        let meta =
            fs::metadata(directory.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((meta.is_dir(), meta.permissions().mode() & 0o777), (true, 0o700), "{name}");
    }
    assert!(!directory.path().join("client_body_temp").exists(), "nobody asked for it");
}

#[test]
fn without_http_nothing_of_it_is_made() {
    let directory = TempDir::new();
    assert!(tested(&directory, "events { }").1);
    let names: Vec<_> =
        fs::read_dir(directory.path()).expect("there").flatten().map(|e| e.file_name()).collect();
    assert_eq!(names, ["nginx.conf"]);
}

/// Configurations of real servers name what Weir has built in, has not yet or never will have: what has no effect here is
/// a warning, as long as something is left to serve.
#[test]
fn what_is_not_here_yet_is_told_and_the_rest_is_served() {
    let directory = TempDir::new();
    let server = |listen: &str| format!("events {{ }} http {{ access_log off; server {{ {listen} }} }}");
    let tcp = "listen 127.0.0.1:0;";
    for (text, warning) in [
        ("load_module modules/ngx_http_headers_more_filter_module.so; events { }", "is built in, ignored"),
        ("load_module /usr/lib/nginx/modules/ndk_http_module.so; events { }", "is built in, ignored"),
        ("load_module modules/ngx_http_image_filter_module.so; events { }", "Weir does not have module"),
        ("load_module modules/ngx_stream_module.so; events { }", "Weir does not have module"),
        ("quic_bpf on; events { }", ""),
        (&server(&format!("{tcp} http3 on; http3_hq off; quic_retry on; quic_gso on;")), ""),
        // Words of enumerations in any case, and what nginx has in one list for two directives.
        (
            &server(&format!(
                "{tcp} proxy_next_upstream Error UPDATING; proxy_cache_use_stale NON_IDEMPOTENT; satisfy ANY;"
            )),
            "",
        ),
        (&server(&format!("{tcp} add_header A $http3; http3_max_concurrent_streams 9;")), ""),
    ] {
        let (said, good) = tested(&directory, text);
        assert!(good && said.contains(warning), "{text}: {said}");
        assert_eq!(said.contains("[warn]"), !warning.is_empty(), "{text}: {said}");
    }
}

#[test]
fn what_can_never_be_served_is_an_error_that_says_why() {
    let directory = TempDir::new();
    let http = |text: &str| format!("events {{ }} http {{ access_log off; {text} }}");
    for (text, error, hint) in [
        (
            "load_module modules/my_own.so; events { }",
            "module \"modules/my_own.so\" can't be loaded",
            "built into",
        ),
        ("events { } mail { server { } }", "unknown directive \"mail\"", "no proxy for mail"),
        (
            &http("server { ssl on; }"),
            "unknown directive \"ssl\"",
            "each address has its own, \"listen ... ssl\"",
        ),
        (
            &http("server { image_filter off; }"),
            "unknown directive \"image_filter\"",
            "ngx_http_image_filter_module",
        ),
        (&http("http3_hq on;"), "\"http3_hq on\" can't be had", "that test implementations of QUIC"),
        (
            &http("server { listen 443 quic; }"),
            "no \"ssl_certificate\" is defined for the \"listen ... quic\" directive in",
            "",
        ),
        (
            "events { } stream { server { listen 443 quic; return a; } }",
            "the \"quic\" parameter is not supported in \"stream\"",
            "",
        ),
        (&http("server { listen 443 quic ssl; }"), "\"ssl\" parameter is incompatible with \"quic\"", ""),
        (&http("server { http3 maybe; }"), "it must be \"on\" or \"off\"", ""),
        (
            &http("upstream u { server none.invalid; } server { location / { proxy_pass http://u; } }"),
            "host not found in upstream \"none.invalid\"",
            "resolve;\" in an",
        ),
        (
            &http("server { location / { proxy_pass http://none.invalid; } }"),
            "host not found in upstream \"none.invalid\"",
            "resolve;\" in an",
        ),
    ] {
        let (said, good) = tested(&directory, text);
        assert!(!good && said.contains(error) && said.contains(hint), "{text}: {said}");
        assert!(!said.contains("did you mean"), "{text}: {said}");
    }
}

/// What is wrong with a value that several blocks inherit is said once, where it is written; and what each server mends
/// for itself is not wrong, as in nginx.
#[test]
fn an_inherited_mistake_is_told_once_at_its_place() {
    let directory = TempDir::new();
    let locations = "location / { fastcgi_pass 127.0.0.1:1; } location /b { fastcgi_pass 127.0.0.1:1; }";
    for (http, error) in [
        (
            format!(
                "access_log off; fastcgi_buffer_size 10m; server {{ listen 127.0.0.1:0; {locations} }} server {{ listen 127.0.0.1:0; }}"
            ),
            "\"fastcgi_busy_buffers_size\" must be less than the size of all \"fastcgi_buffers\" minus one buffer in nginx.conf:",
        ),
        (
            format!("access_log none/access.log; server {{ listen 127.0.0.1:0; {locations} }}"),
            "open() \"none/access.log\" failed (2: No such file or directory) in nginx.conf:",
        ),
        (
            format!("access_log off; error_log none/error.log; server {{ listen 127.0.0.1:0; {locations} }}"),
            "open() \"none/error.log\" failed (2: No such file or directory) in nginx.conf:",
        ),
        (
            "server { listen 127.0.0.1:0; } server { listen 127.0.0.1:0; }".to_owned(),
            "open() \"logs/access.log\" failed (2: No such file or directory)",
        ),
    ] {
        let (said, good) = tested(&directory, &format!("events {{ }} http {{ {http} }}"));
        assert!(!good && said.matches("[emerg]").count() == 1 && said.contains(error), "{http}: {said}");
    }
    let mended =
        "access_log off; proxy_buffer_size 128k; server { listen 127.0.0.1:0; proxy_buffers 4 256k; }";
    assert!(tested(&directory, &format!("events {{ }} http {{ {mended} }}")).1);
}

both_drivers! {
    /// As `-v` says, whatever the server calls itself: applications compare it.
    fn the_version_is_that_of_the_nginx_that_is_followed(driver) {
        for product in ["", "server_product cat/7;"] {
            let server = Server::start(&format!(
                "http {{ {product} server {{ listen 127.0.0.1:%%PORT%%; return 200 $nginx_version; }} }}"
            ));
            let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("-v").output().expect("the program runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains(&format!("nginx/{} ", server.get("/").text())), "{said}");
        }
    }

    /// A request that the end of the server cuts off has its line in the access log, and its `log_by_lua*` runs.
    fn what_a_shutdown_timeout_cuts_off_is_logged(driver) {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut server = Server::start(&format!(
            "worker_shutdown_timeout 100ms; http {{ log_format l '$request'; access_log access.log l;
                server {{ listen 127.0.0.1:%%PORT%%; http2 on;
                    location / {{ proxy_pass http://{}; log_by_lua_block {{ ngx.log(ngx.NOTICE, 'its script ran') }} }} }} }}",
            silent.local_addr().expect("an address")
        ));
        let mut plain = server.client();
        plain.send("GET /one HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut streams = Http2Client::connect(server.addr(0));
        let _key = streams.get("/two");
        // Both are with the server behind.
        let _one = silent.accept().expect("a connection");
        let _two = silent.accept().expect("a connection");
        server.signal(ServerSignal::Quit);
        assert!(server.wait_exit().status.success());
        let mut lines = server.access_log_lines(2);
        lines.sort();
        assert_eq!(lines, ["GET /one HTTP/1.1", "GET /two HTTP/2.0"]);
        assert_eq!(server.error_log().matches("its script ran").count(), 2);
    }

    /// What waits for its first request, or for the end of one, is of the old configuration; what waits for another
    /// request is not.
    fn a_shutdown_timeout_ends_what_a_reload_left_behind(driver) {
        let conf = "worker_shutdown_timeout 10ms; http { server { listen 127.0.0.1:%%PORT%%;
            location / { return 200 WORD; } } }";
        let mut server = Server::start(&conf.replace("WORD", "old"));
        let (mut silent, mut half, mut kept) = (server.client(), server.client(), server.client());
        half.send("GET / HTTP/1.1\r\nHo");
        assert_eq!(kept.get("/").text(), "old");
        server.reload(&conf.replace("WORD", "new"));
        silent.expect_close();
        half.expect_close();
        assert_eq!(kept.get("/").text(), "new");
    }
}
