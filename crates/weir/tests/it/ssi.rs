//! Server side includes: pages with commands, served by Weir and by nginx, and what nginx can't be asked for.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpListener;
use std::thread;

use weir_test::{DEADLINE, Server, both_drivers};

const CONF: &str = r#"http {
    server_tokens off;
    server_product nginx;
    server {
        listen 127.0.0.1:%%PORT%%;
        root html;
        ssi on;
        set $site "a&b";
        location / { }
        location /silent/ { ssi_silent_errors on; }
        location /typed/ { ssi_types text/plain; types { text/plain txt; text/css css; } }
        location /dated/ { ssi_last_modified on; }
        location /long/ { ssi_value_length 4; }
        location /plain/ { ssi off; }
        location /empty { return 200 ""; }
        location /args { default_type text/html; return 200 "[$args]"; }
        location /sets { set $told yes; default_type text/html; return 200 "<$told>"; }
        location /proxied/ { proxy_pass http://127.0.0.1:%%PORT_1%%/; }
        location /gone/ { proxy_pass http://127.0.0.1:1/; }
        location /limited { subrequest_output_buffer_size 64; proxy_pass http://127.0.0.1:%%PORT_1%%/page.html; }
        location = /told { ssi on; }
    }
    server {
        listen 127.0.0.1:%%PORT_1%%;
        root html/plain;
        location /slow { limit_rate 20k; }
    }
}"#;

/// Pages; the name begins with the directory.
const PAGES: &[(&str, &str)] = &[
    ("none.html", "no command <!-- at all --> <!- < <!-- "),
    ("self.html", "<!--#include virtual=\"/self.html\" -->."),
    ("pair.html", "<!--#include virtual=\"/self.html\" --><!--#include virtual=\"/self.html\" -->"),
    ("a.html", "A<!--#echo var=\"uri\" -->A"),
    ("dir/b.html", "B"),
    ("plain/page.html", "page of the other server, longer than sixty-four bytes for sure, yes"),
    ("plain/c.html", "plain <!--#echo var=\"uri\" -->"),
    (
        "virtual.html",
        "x<!--#include virtual=\"/a.html\" -->y<!--#include virtual=\"dir/b.html\" -->z<!--# include virtual='/plain/c.html?x=1' -->",
    ),
    ("dir/relative.html", "<!--#include virtual=\"b.html\" --><!--#include file=\"b.html\" -->"),
    ("args.html", "<!--#include virtual=\"/args?a=b&c=$arg_q\" -->|<!--#include virtual=\"/args%3Fno\" -->"),
    ("missing.html", "a<!--#include virtual=\"/missing\" -->b"),
    ("unsafe.html", "a<!--#include virtual=\"/../x\" -->b"),
    (
        "proxied.html",
        "a<!--#include virtual=\"/proxied/page.html\" -->b<!--#include virtual=\"/proxied/c.html\" wait=\"yes\" -->c",
    ),
    (
        "gone.html",
        "a<!--#block name=\"s\" -->stub<!--#endblock --><!--#include virtual=\"/gone/\" stub=\"s\" -->b",
    ),
    (
        "stub.html",
        "<!--#block name=\"s\" -->[<b>stub</b> <!--#echo var=\"uri\" --> ]<!--#endblock -->1<!--#include virtual=\"/missing\" stub=\"s\" -->2<!--#include virtual=\"/missing\" stub=\"s\" -->3<!--#include virtual=\"/a.html\" stub=\"s\" -->4<!--#include virtual=\"/a.html\" stub=\"t\" -->",
    ),
    (
        "emptystub.html",
        "<!--#block name=\"s\" -->[<!--#echo var=\"uri\" -->]<!--#endblock -->1<!--#include virtual=\"/empty\" stub=\"s\" -->2",
    ),
    (
        "set.html",
        "<!--#set var=\"x\" value=\"1$arg_q\" --><!--#echo var=\"x\" --><!--#set var=\"X\" value=\"2\\$y\" --><!--#echo var=\"x\" --><!--#set var=\"y\" value=\"${x}3\" --><!--#echo var=\"y\" -->",
    ),
    (
        "setwrong.html",
        "<!--#set var=\"x\" value=\"${x\" -->,<!--#set var=\"x\" value=\"a$\" -->,<!--#set var=\"x\" -->,<!--#set value=\"x\" -->",
    ),
    (
        "into.html",
        "a<!--#include virtual=\"/proxied/page.html\" set=\"p\" -->b<!--#echo var=\"p\" -->c<!--#include virtual=\"/missing\" set=\"q\" -->[<!--#echo var=\"q\" -->]",
    ),
    (
        "echo.html",
        "<!--#echo var=\"site\" -->|<!--#echo var=\"site\" encoding=\"none\" -->|<!--#echo var=\"site\" encoding=\"url\" -->|<!--#echo var=\"arg_q\" -->|<!--#echo var=\"nothing\" -->|<!--#echo var=\"nothing\" default=\"<d>\" encoding=\"entity\" -->|<!--#echo var=\"nothing\" default=\"\" -->|<!--#echo var=\"site\" encoding=\"rot13\" -->",
    ),
    (
        "if.html",
        "<!--#if expr=\"$arg_q\" -->some<!--#else -->none<!--#endif -->,<!--#if expr=\"$arg_q = one\" -->1<!--#elif expr=\"$arg_q=two\" -->2<!--#elif expr=\"$arg_q != three\" -->not 3<!--#else -->3<!--#endif -->",
    ),
    (
        "match.html",
        "<!--#if expr=\"$arg_q = /^(.)(?P<rest>.*)/\" -->[<!--#echo var=\"0\" -->,<!--#echo var=\"1\" -->,<!--#echo var=\"rest\" -->,<!--#echo var=\"5\" -->]<!--#endif --><!--#if expr=\"$arg_q != /o/\" -->no o<!--#else -->o<!--#endif --><!--#if expr=\"$arg_q = \\/x\" -->slash<!--#endif -->",
    ),
    (
        "ifwrong.html",
        "<!--#if expr=\"$a ~ b\" -->x<!--#endif -->y<!--#else -->z<!--#if expr=\"$arg_q = /(/\" -->1<!--#endif -->2<!--#if expr=\"a\" -->3<!--#if expr=\"b\" -->4<!--#endif -->5<!--#else -->6<!--#else -->7<!--#endif -->8<!--#if -->9<!--#if expr=\"$a = /b\" -->",
    ),
    ("nested.html", "<!--#if expr=\"$none\" -->a<!--#if expr=\"a\" -->b<!--#endif -->c<!--#endif -->d"),
    (
        "branch.html",
        "<!--#if expr=\"$arg_q\" --><!--#block name=\"s\" -->if<!--#endblock --><!--#else --><!--#block name=\"s\" -->else<!--#endblock --><!--#endif -->x<!--#include virtual=\"/missing\" stub=\"s\" -->x",
    ),
    ("block.html", "a<!--#block name=\"x\" -->b<!--#if expr=\"a\" -->c<!--#endif -->d<!--#endblock -->e"),
    (
        "config.html",
        "<!--#config errmsg=\"wrong!\" timefmt=\"%s\" --><!--#nothing -->|<!--#echo -->|<!--#echo var=\"a\" var=\"b\" -->|<!--#echo vars=\"a\" -->",
    ),
    (
        "syntax.html",
        "<!--#echo var -->1<!--#echo var=x -->2<!--#echo var='x'y -->3<!--#echo - -->4<!--#echo var=\"x\" -x -->5<!--#averyveryverylongcommandnamethatisnone -->6<!--#unfinished",
    ),
    (
        "include.html",
        "<!--#include -->1<!--#include virtual=\"/a.html\" file=\"b\" -->2<!--#include file=\"a.html\" wait=\"yes\" -->3<!--#include virtual=\"/a.html\" wait=\"perhaps\" -->4<!--#include virtual=\"/a.html\" set=\"a\" stub=\"b\" -->5<!--#include virtual=\"/a.html\" wait=\"NO\" -->",
    ),
    (
        "silent/wrong.html",
        "a<!--#nothing -->b<!--#echo -->c<!--#include virtual=\"/missing\" stub=\"s\" -->d",
    ),
    (
        "long/value.html",
        "<!--#set var=\"a\" value=\"1234\" --><!--#echo var=\"a\" -->,<!--#set var=\"a\" value=\"12345\" --><!--#echo var=\"a\" -->",
    ),
    ("typed/a.txt", "<!--#echo var=\"uri\" -->"),
    ("typed/a.css", "<!--#echo var=\"uri\" -->"),
    ("dated/a.html", "<!--#echo var=\"uri\" -->"),
    (
        "shared.html",
        "<!--#set var=\"v\" value=\"outer\" --><!--#include virtual=\"/inner.html\" wait=\"yes\" -->|<!--#echo var=\"v\" -->",
    ),
    ("inner.html", "<!--#echo var=\"v\" --><!--#set var=\"v\" value=\"inner\" -->"),
    (
        "sets.html",
        "<!--#echo var=\"told\" default=\"no\" --><!--#include virtual=\"/sets\" wait=\"yes\" --><!--#echo var=\"told\" -->",
    ),
    ("waits.html", "x<!--#include virtual=\"/first.html\" -->x<!--#include virtual=\"/second.html\" -->x"),
    ("first.html", "FIRST<!--#include virtual=\"/proxied/page.html\" -->"),
    ("second.html", "<!--#include virtual=\"/waited.html\" wait=\"yes\"-->xSECOND"),
    ("waited.html", "WAITED<!--#include virtual=\"/a.html\" -->"),
    (
        "date.html",
        "<!--#config timefmt=\"%Y\" --><!--#echo var=\"date_gmt\" --><!--#if expr=\"$date_local = $date_gmt\" -->same<!--#endif -->",
    ),
];

/// Requests; of each the response and the lines of the error log are compared.
const REQUESTS: &[&str] = &[
    "/none.html",
    "/a.html",
    "/virtual.html",
    "/dir/relative.html",
    "/args.html?q=2",
    "/missing.html",
    "/unsafe.html",
    "/proxied.html",
    "/gone.html",
    "/stub.html",
    "/emptystub.html",
    "/set.html?q=2",
    "/setwrong.html",
    "/into.html",
    "/echo.html",
    "/echo.html?q=<1>",
    "/if.html",
    "/if.html?q=one",
    "/if.html?q=two",
    "/if.html?q=three",
    "/if.html?q=four",
    "/match.html?q=one",
    "/match.html?q=/x",
    "/match.html",
    "/ifwrong.html",
    "/nested.html",
    "/block.html",
    "/branch.html",
    "/branch.html?q=1",
    "/config.html",
    "/syntax.html",
    "/include.html",
    "/silent/wrong.html",
    "/long/value.html",
    "/typed/a.txt",
    "/typed/a.css",
    "/dated/a.html",
    "/plain/c.html",
    "/shared.html",
    "/sets.html",
    "/waits.html",
    "/date.html",
    "/self.html",
    "/pair.html",
];

/// A response, without what differs between two servers.
fn reported(server: &Server, request: &str) -> String {
    let response = server.get(request);
    let mut reported = format!("{} {}", response.status, response.text());
    for name in ["Content-Type", "Content-Length", "Accept-Ranges"] {
        if let Some(value) = response.field(name) {
            let _ = write!(reported, "\n{name}: {value}");
        }
    }
    let weak = response.field("ETag").map(|tag| tag.starts_with("W/"));
    let _ = write!(reported, "\nweak tag: {weak:?}, dated: {}", response.field("Last-Modified").is_some());
    reported
}

/// What the error log says, without what differs between two servers.
fn logged(server: &Server) -> Vec<String> {
    assert_eq!(server.get("/last").status, 404);
    let _ = server.error_log_line("/last\" failed");
    let log = server.error_log();
    let lines = log.lines().filter(|line| line.contains("[error]")).map(|line| {
        let message =
            line.split_once(": *").and_then(|(_, rest)| rest.split_once(' ')).map_or(line, |(_, m)| m);
        let message = message.split(", client: ").next().unwrap_or_default();
        // Paths and ports are each server's own.
        if message.contains("open()") { "open()".to_owned() } else { message.to_owned() }
    });
    lines.collect()
}

both_drivers! {
    /// Each page's response, and what the error log says of it, are nginx's.
    fn pages_are_answered_as_nginx_does(driver) {
        let theirs = CONF.replace("server_product nginx;", "");
        let Some(mut nginx) = weir_test::nginx(&theirs) else { return };
        let mut weir = Server::builder(CONF).driver(driver);
        for (name, page) in PAGES {
            nginx = nginx.file(&format!("html/{name}"), page);
            weir = weir.file(&format!("html/{name}"), page);
        }
        let (nginx, weir) = (nginx.start(), weir.start());
        let mut wrong = String::new();
        for request in REQUESTS {
            let (theirs, ours) = (reported(&nginx, request), reported(&weir, request));
            if theirs != ours {
                let _ = write!(wrong, "== {request}\n-- nginx\n{theirs}\n-- weir\n{ours}\n");
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
        assert_eq!(logged(&weir).join("\n"), logged(&nginx).join("\n"));
    }

    /// The end of a page is said once: the next response on the connection follows it.
    fn a_connection_is_kept_behind_a_page(driver) {
        let page = "<!--#include virtual=\"/args?x\" --> and more";
        let weir = Server::builder(CONF).driver(driver).file("html/kept.html", page).start();
        let mut client = weir.client();
        for _ in 0..3 {
            assert_eq!(client.get("/kept.html").text(), "[x] and more");
        }
        assert_eq!(client.get("/args?y").text(), "[y]");
    }

    /// What looks like the beginning of a command at a page's end is text (nginx loses it).
    fn the_end_of_a_page_is_not_lost(driver) {
        let weir = Server::builder(CONF).driver(driver).file("html/end.html", "end <!--").start();
        assert_eq!(weir.get("/end.html").text(), "end <!--");
    }

    /// An empty response has its stub once, however often the block is used (nginx 1.31 says it twice from the second
    /// use on, nginx 1.22 once).
    fn a_block_stands_in_once_for_each_empty_answer(driver) {
        let page = "<!--#block name=\"s\" -->[S]<!--#endblock -->1<!--#include virtual=\"/empty\" stub=\"s\" -->2<!--#include virtual=\"/empty\" stub=\"s\" -->3";
        let weir = Server::builder(CONF).driver(driver).file("html/empties.html", page).start();
        assert_eq!(weir.get("/empties.html").text(), "1[S]2[S]3");
    }

    /// Includes of itself, several times over, end.
    fn a_page_that_includes_itself_twice_ends(driver) {
        let page = "<!--#include virtual=\"/twice.html\" --><!--#include virtual=\"/twice.html\" -->.";
        let weir = Server::builder(CONF).driver(driver).file("html/twice.html", page).start();
        assert_eq!(weir.get("/twice.html").status, 200);
        let _ = weir.error_log_line("request reference counter overflow while processing \"/twice.html\"");
        assert_eq!(weir.get("/plain/none").status, 404);
    }

    /// What is included is asked for at the same time, and appears in its order.
    fn includes_run_side_by_side(driver) {
        let page = "<!--#include virtual=\"/up/1\" -->|<!--#include virtual=\"/up/2\" -->|<!--#include virtual=\"/up/3\" -->";
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let conf = format!(
            "http {{ server {{ listen 127.0.0.1:%%PORT%%; root html; ssi on; location /up/ {{ proxy_pass http://{address}; }} }} }}"
        );
        let weir = Server::builder(&conf).driver(driver).file("html/page.html", page).start();
        let upstream = thread::spawn(move || together(&listener, 3));
        assert_eq!(weir.get("/page.html").text(), "/up/1|/up/2|/up/3");
        upstream.join().expect("it answers all");
    }

    /// What is large goes out in order, whole, however slowly its parts come.
    fn large_parts_stand_in_their_order(driver) {
        let large: String = (0..40_000).map(|line| format!("line {line}\n")).collect();
        let page = "[<!--#include virtual=\"/proxied/slow.txt\" -->,<!--#include virtual=\"/large.txt\" -->,<!--#include virtual=\"/deep.html\" -->]";
        let deep = "(<!--#include virtual=\"/proxied/large.txt\" -->;<!--#include virtual=\"/large.txt\" wait=\"yes\" -->)";
        let slow = "s".repeat(30_000);
        let weir = Server::builder(CONF)
            .driver(driver)
            .file("html/page.html", page)
            .file("html/deep.html", deep)
            .file("html/large.txt", &large)
            .file("html/plain/large.txt", &large)
            .file("html/plain/slow.txt", &slow)
            .start();
        let text = weir.get("/page.html").text();
        assert!(text == format!("[{slow},{large},({large};{large})]"), "{} bytes", text.len());
        assert_eq!(weir.get("/plain/slow.txt").body.len(), slow.len());
    }

    /// A response that is too large for a variable leaves it empty.
    fn what_a_variable_holds_is_bounded(driver) {
        let page = "<!--#include virtual=\"/limited\" set=\"a\" -->[<!--#echo var=\"a\" -->]";
        let weir = Server::builder(CONF)
            .driver(driver)
            .file("html/page.html", page)
            .file("html/plain/page.html", "x".repeat(65))
            .start();
        assert_eq!(weir.get("/page.html").text(), "[]");
        let _ = weir.error_log_line("too big subrequest response");
    }
}

/// Responds to `count` requests, each on a connection of its own, with their paths, when all of them have come.
fn together(listener: &TcpListener, count: usize) {
    let mut waiting = Vec::new();
    while waiting.len() < count {
        let (stream, _) = listener.accept().expect("they come together");
        stream.set_read_timeout(Some(DEADLINE)).expect("it is a socket");
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).expect("a request");
        waiting.push((stream, line.split(' ').nth(1).unwrap_or_default().to_owned()));
    }
    // The last one first: the order of responses is not that of the page.
    for (mut stream, path) in waiting.into_iter().rev() {
        let answer = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len());
        stream.write_all(answer.as_bytes()).expect("it is waited for");
    }
}
