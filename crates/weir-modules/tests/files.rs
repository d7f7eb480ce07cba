//! Files end to end: static, index and autoindex in a server of their own, asked over sockets.

use std::net::SocketAddr;
use std::sync::Arc;

use weir_engine::ModuleDef;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_modules::{Autoindex, Index, RandomIndex, Static};
use weir_rt::DriverChoice;
use weir_server::{Server, ServerOptions};
use weir_test::{Client, Response, TempDir};

static MODULES: [ModuleDef; CORE_MODULES.len() + 4] = with_core(&[
    ModuleDef::of::<RandomIndex>(),
    ModuleDef::of::<Index>(),
    ModuleDef::of::<Autoindex>(),
    ModuleDef::of::<Static>(),
]);

/// A server whose root is a directory of this test.
struct Site {
    directory: TempDir,
    address: SocketAddr,
    _server: Server,
}

impl Site {
    /// `inside` is in the server block.
    fn new(inside: &str) -> Site {
        Site::on(DriverChoice::Auto, inside)
    }

    fn on(driver: DriverChoice, inside: &str) -> Site {
        let directory = TempDir::new();
        let address = SocketAddr::from(([127, 0, 0, 1], weir_test::free_port()));
        let root = directory.path().display();
        let text = format!(
            "error_log {root}/error.log info; worker_processes 1; events {{ }}
            http {{ server {{ listen {address}; root {root}/root; {inside} }} }}"
        );
        std::fs::create_dir(directory.path().join("root")).expect("a fresh folder");
        let configuration = weir_engine::conf::test::load(&text, &MODULES).unwrap_or_else(|e| panic!("{e}"));
        let server = Server::start(
            Arc::new(configuration),
            ServerOptions { driver: Some(driver), ..ServerOptions::default() },
        );
        let server = server.expect("starts");
        Site { directory, address, _server: server }
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.directory.path().join("root").join(name);
        std::fs::create_dir_all(path.parent().expect("inside the root")).expect("writable");
        std::fs::write(path, content).expect("writable");
    }

    fn get(&self, path: &str) -> Response {
        Client::connect(self.address).get(path)
    }

    fn ask(&self, method: &str, path: &str) -> Response {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
        let mut client = Client::connect(self.address);
        client.send(head);
        if method == "HEAD" { client.response_to_head() } else { client.response() }
    }
}

#[test]
fn a_file_and_its_fields() {
    let site = Site::new("types { text/html html; } default_type text/plain;");
    site.write("a.html", "hello");
    let response = site.get("/a.html");
    assert_eq!((response.status, response.text().as_str()), (200, "hello"));
    assert_eq!(response.field("Content-Type"), Some("text/html"));
    assert_eq!(response.field("Content-Length"), Some("5"));
    assert!(response.field("Last-Modified").is_some());
    assert!(response.field("ETag").is_some_and(|tag| tag.ends_with("-5\"")), "{:?}", response.field("ETag"));
    site.write("empty", "");
    let response = site.get("/empty");
    assert_eq!((response.status, response.field("Content-Length")), (200, Some("0")));
    assert_eq!(response.field("Content-Type"), Some("text/plain"));
    let response = site.ask("HEAD", "/a.html");
    assert_eq!((response.status, response.field("Content-Length")), (200, Some("5")));
    let large: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    site.write("large", &large);
    assert!(site.get("/large").body == large);
}

#[test]
fn etag_off() {
    let site = Site::new("etag off;");
    site.write("f", "x");
    assert_eq!(site.get("/f").field("ETag"), None);
}

#[test]
fn methods() {
    let site = Site::new("");
    site.write("f", "x");
    site.write("d/f", "x");
    for (method, path, status) in [
        ("POST", "/f", 405),
        ("PUT", "/f", 405),
        ("DELETE", "/d/", 405),
        ("POST", "/gone", 404),
        ("POST", "/d", 301),
        ("POST", "/d/", 403),
    ] {
        assert_eq!(site.ask(method, path).status, status, "{method} {path}");
    }
}

#[test]
fn what_is_not_there_or_no_file() {
    let site = Site::new("");
    site.write("f", "x");
    std::os::unix::fs::symlink("loop", site.directory.path().join("root/loop")).expect("fresh");
    let long = format!("/{}", "n".repeat(300));
    for (path, status) in [
        ("/gone", 404),
        ("/f/x", 404),
        ("/gone/", 404),
        ("/f/", 404),
        (&*long, 404),
        ("/loop", 403),
        ("/", 403),
    ] {
        assert_eq!(site.get(path).status, status, "{path}");
    }
}

/// nginx's words in the error log, without its context (`, client: ...`).
#[test]
fn messages() {
    let site = Site::new("location /quiet/ { log_not_found off; }");
    site.write("f", "x");
    site.write("d/f", "x");
    let root = site.directory.path().join("root").display().to_string();
    for path in ["/quiet/gone", "/gone", "/f/x", "/gone/", "/f/", "/d/"] {
        site.get(path);
    }
    let last = format!("directory index of \"{root}/d/\" is forbidden, client: ");
    let log = weir_test::wait_for("the last message", || {
        Some(site.directory.read("error.log")).filter(|log| log.contains(&last))
    });
    for message in [
        format!("[error] open() \"{root}/gone\" failed (2: No such file or directory)"),
        format!("[error] open() \"{root}/f/x\" failed (20: Not a directory)"),
        format!("[error] \"{root}/gone/index.html\" is not found (2: No such file or directory)"),
        format!("[error] \"{root}/f/index.html\" is not found (20: Not a directory)"),
    ] {
        let (level, text) = message.split_once(' ').expect("a level comes first");
        let is = |line: &str| line.contains(level) && line.contains(&format!("{text}, client: "));
        assert_eq!(log.lines().filter(|line| is(line)).count(), 1, "{message} in\n{log}");
    }
    assert!(!log.contains("quiet/gone\" failed"), "{log}");
}

#[test]
fn a_directory_gets_its_slash() {
    let site = Site::new("location /i/ { alias /; } absolute_redirect off;");
    site.write("d/f", "x");
    site.write("sp ace?/f", "x");
    for (path, target) in [
        ("/d", "/d/"),
        ("/d?a=b", "/d/?a=b"),
        ("/sp%20ace%3F", "/sp%20ace%3F/"),
        ("/sp%20ace%3F?x", "/sp%20ace%3F/?x"),
        ("/i/proc?x", "/i/proc/?x"),
    ] {
        let response = site.get(path);
        assert_eq!((response.status, response.field("Location")), (301, Some(target)), "{path}");
    }
}

#[test]
fn the_first_index_that_is_there() {
    let site = Site::new(
        "index index.$arg_i $arg_j index.txt; location /abs/ { index no.html /last.html; } location = /last.html { internal; }
        location /one/ { index index.html; }",
    );
    site.write("d/index.txt", "text");
    site.write("d/index.own", "own");
    site.write("last.html", "last");
    site.write("abs/f", "");
    site.write("one/index.txt", "");
    for (path, status, body) in [
        ("/d/?j=x", 200, "text"),
        ("/d/?i=own", 200, "own"),
        ("/d/?j=/last.html", 200, "last"),
        ("/abs/", 200, "last"),
        ("/last.html", 404, ""),
        ("/one/", 403, ""),
        ("/gone/", 404, ""),
    ] {
        let response = site.get(path);
        assert_eq!(response.status, status, "{path}");
        if status == 200 {
            assert_eq!(response.text(), body, "{path}");
        }
    }
}

#[test]
fn a_file_drawn_by_lot() {
    let site = Site::new("location / { random_index on; } location /off/ { random_index off; }");
    for name in ["one", "two", ".hidden", "folder/x"] {
        site.write(&format!("d/{name}"), name);
    }
    site.write("none/.hidden", "");
    site.write("off/one", "");
    let drawn: std::collections::HashSet<_> = (0..40).map(|_| site.get("/d/?a").text()).collect();
    assert_eq!(drawn, ["one".to_owned(), "two".to_owned()].into());
    assert_eq!(site.ask("HEAD", "/d/").field("Content-Length"), Some("3"));
    for (path, status) in [("/none/", 403), ("/off/", 403), ("/gone/", 404)] {
        assert_eq!(site.get(path).status, status, "{path}");
    }
}

#[test]
fn a_directory_is_listed() {
    let site = Site::new(
        "autoindex on; location /j/ { autoindex_format json; } location /p/ { autoindex_format jsonp; }
        location /off/ { autoindex off; }",
    );
    site.write("d/b", "12345");
    site.write("d/.hidden", "");
    site.write("d/sub/f", "");
    site.write("i/index.html", "index");
    site.write("off/f", "");
    site.write("j/f", "");
    site.write("p/f", "");
    let response = site.get("/d/");
    assert_eq!((response.status, response.field("Content-Type")), (200, Some("text/html")));
    assert_eq!(response.field("Transfer-Encoding"), Some("chunked"));
    let page = response.text();
    let lines: Vec<&str> = page.lines().collect();
    assert_eq!(lines[3], "<h1>Index of /d/</h1><hr><pre><a href=\"../\">../</a>");
    assert!(lines[4].starts_with("<a href=\"sub/\">sub/</a>") && lines[4].ends_with("                   -"));
    assert!(lines[5].starts_with("<a href=\"b\">b</a>") && lines[5].ends_with("                   5"));
    assert_eq!(lines[6], "</pre><hr></body>");
    assert_eq!(site.get("/i/").text(), "index");
    assert_eq!(site.get("/off/").status, 403);
    assert_eq!(site.get("/gone/").status, 404);
    let response = site.get("/j/");
    assert_eq!(response.field("Content-Type"), Some("application/json"));
    assert!(response.text().starts_with("[\r\n{ \"name\":\"f\", \"type\":\"file\", \"mtime\":\""));
    let response = site.get("/p/?callback=a.b");
    assert_eq!(response.field("Content-Type"), Some("application/javascript"));
    assert!(response.text().starts_with("/* callback */\r\na.b([\r\n{ "));
    assert_eq!(site.get("/p/?callback=a-b").status, 400);
    assert_eq!(site.get("/p/?callback=").field("Content-Type"), Some("application/json"));
    let response = site.ask("HEAD", "/d/");
    assert_eq!((response.status, response.field("Transfer-Encoding")), (200, None));
}

/// `mv new old` between two requests of one connection: the second gets the new file.
#[test]
fn a_replaced_file_is_served_replaced() {
    for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
        let site = Site::on(driver, "");
        let mut client = Client::connect(site.address);
        for round in 0..200 {
            let text = format!("version {round}");
            site.write("new", &text);
            let root = site.directory.path().join("root");
            std::fs::rename(root.join("new"), root.join("f")).expect("same folder");
            assert_eq!(client.get("/f").text(), text);
        }
    }
}

#[test]
fn open_file_cache_serves_what_it_knows() {
    let site = Site::new("open_file_cache max=10; open_file_cache_errors on;");
    site.write("f", "old");
    assert_eq!(site.get("/f").text(), "old");
    assert_eq!(site.get("/gone").status, 404);
    std::fs::remove_file(site.directory.path().join("root/f")).expect("there");
    site.write("gone", "here");
    assert_eq!(site.get("/f").text(), "old");
    assert_eq!(site.get("/gone").status, 404);
}

#[test]
fn wrong_directives() {
    let wrong = |line: &str| {
        let text = format!("events {{ }}\nhttp {{\n{line}\n}}");
        weir_engine::conf::test::headlines(&text, &MODULES).join("\n")
    };
    assert_eq!(wrong("index '';"), "index \"\" in \"index\" directive is invalid in weir.conf:3:7");
    assert_eq!(
        wrong("autoindex maybe;"),
        "invalid value \"maybe\" in \"autoindex\" directive, it must be \"on\" or \"off\" in weir.conf:3:11"
    );
    assert_eq!(wrong("autoindex_format yaml;"), "invalid value \"yaml\" in weir.conf:3:18");
}
