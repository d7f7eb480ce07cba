//! Flame graphs that are kept, saved, opened again, compared and cut: `/recordings`, `weir flame`, and the page.

use std::net::TcpStream;

use weir_http::json::JsonValue;
use weir_test::{Client, Driver, Response, Server, both_drivers, wait_for};

use crate::support::faults::FaultLoad;
use crate::support::page::{DESK, opened};
use crate::support::says::{of, ready, run, says};

const CONF: &str = "worker_processes %%WORKERS%%; admin 127.0.0.1:%%PORT_1%%; admin 127.0.0.1:%%PORT_2%% token=0123456789abcdef;
http {
    server {
        listen 127.0.0.1:%%PORT_0%%;
        keepalive_requests 1000000;
        location /old/ { content_by_lua_file old.lua; }
        location /new/ { content_by_lua_file new.lua; }
        location '/<img src=x onerror=broken()>' { return 200 odd; }
    }
}";

const OLD: &str = "local function spin(n)
    local s = 0
    for i = 1, n do s = s + #tostring(i) end
    return s
end
ngx.say(spin(4000))
";

fn started(driver: Driver, workers: &str) -> Server {
    let server = Server::builder(&CONF.replace("%%WORKERS%%", workers))
        .file("old.lua", OLD)
        .file("new.lua", OLD.replace("spin", "whirl"))
        .driver(driver)
        .start();
    wait_for("the admin listener", || TcpStream::connect(server.addr(1)).is_ok().then_some(()));
    ready(&server);
    server
}

fn load(server: &Server) -> FaultLoad {
    let pause = std::time::Duration::from_millis(2);
    let odd = "/%3Cimg%20src=x%20onerror=broken()%3E";
    ["/old/", "/new/", odd]
        .iter()
        .fold(FaultLoad::default(), |load, path| load.clients(server, 1, path, pause))
}

fn ask(server: &Server, method: &str, path: &str, fields: &str, body: &str) -> Response {
    let length = body.len();
    Client::connect(server.addr(1)).request(format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
    ))
}

const JSON: &str = "Content-Type: application/json\r\n";

/// Records, and gives the name of what is kept.
fn record(server: &Server, what: &str) -> String {
    let response = ask(server, "POST", "/recordings", JSON, what);
    assert_eq!(response.status, 201, "{response}");
    field(&response, "id")
}

fn field(response: &Response, key: &str) -> String {
    let json = JsonValue::parse(response.text().as_bytes()).expect("JSON");
    json.field(key).and_then(JsonValue::text).unwrap_or_default().to_owned()
}

fn names(server: &Server) -> Vec<String> {
    let text = ask(server, "GET", "/recordings", "", "").text();
    let list = JsonValue::parse(text.as_bytes()).expect("JSON");
    let name = |row: &JsonValue| row.field("id").and_then(JsonValue::text).expect("a name").to_owned();
    list.list().expect("a list").iter().map(name).collect()
}

/// A short recording of the marks of requests, which needs no samples.
const SHORT: &str = "{\"kind\":\"wall\",\"seconds\":0.2}";

both_drivers! {
    fn a_recording_is_kept_until_it_is_deleted_or_too_old(driver) {
        let mut server = started(driver, "2");
        let _load = load(&server);
        let id = wait_for("a recording with stacks", || {
            let id = record(&server, SHORT);
            let stacks = ask(&server, "GET", &format!("/recordings/{id}"), "", "").text();
            stacks.contains("/old/").then_some(id)
        });
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        let svg = ask(&server, "GET", &format!("/recordings/{id}?fmt=svg"), "", "");
        assert_eq!((svg.status, svg.field("content-type")), (200, Some("image/svg+xml")));
        assert!(svg.text().contains("</svg>") && !svg.text().contains("<img"), "names are text");
        let text = ask(&server, "GET", &format!("/recordings/{id}?fmt=text"), "", "").text();
        assert!(text.starts_with("wall: "), "{text}");
        // It outlives the configuration.
        let conf = std::fs::read_to_string(server.dir().path().join("nginx.conf")).expect("a configuration");
        server.reload(&(conf + "\n"));
        assert!(names(&server).contains(&id));
        assert_eq!(ask(&server, "GET", &format!("/recordings/{id}"), "", "").status, 200);
        let deleted = ask(&server, "DELETE", &format!("/recordings/{id}"), "", "");
        assert_eq!((deleted.status, deleted.text().contains(&id)), (200, false));
        for method in ["GET", "DELETE"] {
            assert_eq!(ask(&server, method, &format!("/recordings/{id}"), "", "").status, 404, "{method}");
        }
        // The oldest make room.
        let first = record(&server, "{\"kind\":\"wall\",\"seconds\":0}");
        let others: Vec<String> =
            (0..20).map(|_| record(&server, "{\"kind\":\"wall\",\"seconds\":0}")).collect();
        let kept = names(&server);
        assert_eq!((kept.len(), kept.first(), kept.contains(&first)), (20, others.last(), false));
    }

    fn strangers_and_pages_of_other_sites_record_nothing(driver) {
        let server = started(driver, "1");
        let id = record(&server, SHORT);
        let mut guarded = Client::connect(server.addr(2));
        for path in ["/recordings".to_owned(), format!("/recordings/{id}")] {
            assert_eq!(guarded.get(&path).status, 401, "{path}");
        }
        for (fields, status) in [
            (format!("{JSON}Origin: http://evil.example\r\n"), 403),
            ("Content-Type: text/plain\r\n".to_owned(), 415),
        ] {
            assert_eq!(ask(&server, "POST", "/recordings", &fields, SHORT).status, status);
        }
        let foreign = ask(&server, "DELETE", &format!("/recordings/{id}"), "Origin: http://evil.example\r\n", "");
        assert_eq!(foreign.status, 403);
        for body in ["", "[]x", "{\"kind\":\"hot\"}", "{\"kind\":\"wall\",\"seconds\":-1}", "{\"kind\":\"wall\",\"match\":\"status=x9\"}"] {
            assert_eq!(ask(&server, "POST", "/recordings", JSON, body).status, 400, "{body}");
        }
        for (method, path, status) in [
            ("PUT", "/recordings", 405),
            ("PATCH", "/recordings/x", 405),
            ("GET", "/recordings/../metrics", 404),
            ("GET", "/recordings/%2e%2e", 404),
            ("GET", "/recordingsx", 404),
        ] {
            assert_eq!(ask(&server, method, path, JSON, "{}").status, status, "{method} {path}");
        }
        assert_eq!(ask(&server, "GET", &format!("/recordings/{id}?fmt=png"), "", "").status, 400);
        assert_eq!(names(&server), [id]);
    }

    /// What was saved is read again, compared, turned and cut, without a server.
    fn commands_save_open_and_compare(driver) {
        let server = started(driver, "1");
        let _load = load(&server);
        let place = of(&server);
        let dir = server.dir().path();
        let file = |name: &str| dir.join(name).to_str().expect("text").to_owned();
        let (before, after) = (file("before.json"), file("after.json"));
        let none: [&str; 0] = [];
        let from = |words: &[&str]| says(&[&["flame", "--from", &after][..], words].concat(), &none);
        // On a busy machine the scripts may have so few samples that tables, which end after some rows, do without them.
        let (table, difference) = wait_for("both scripts in the tables", || {
            for (route, file) in [("/old/", &before), ("/new/", &after)] {
                says(&["flame", "cpu", "-t", "700ms", "--hz", "500", "--route", route, "-o", file], &place);
            }
            let (table, difference) = (from(&["-o", "text"]), from(&["--diff", &before, "-o", "text"]));
            let both = ["old.lua:", "new.lua:"].iter().all(|name| difference.contains(name));
            (both && table.contains("new.lua:")).then_some((table, difference))
        });
        assert!(table.starts_with("cpu: "), "{table}");
        let row = |name: &str| difference.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("no {name}: {difference}"));
        // By how much its share has changed, with what it called.
        let change = |name| row(name).split_whitespace().nth(3).expect("a column").to_owned();
        assert!(change("new.lua:").starts_with('+') && change("old.lua:").starts_with('-'), "{difference}");
        let svg = from(&["--diff", &before, "-o", "svg"]);
        assert!(svg.contains("% to the other)</title>") && svg.contains("hsl(5,") && svg.contains("hsl(215,"), "red and blue");
        let recorded = std::fs::read_to_string(&after).expect("written");
        let line = recorded.split('"').find(|text| text.contains("new.lua:")).expect("a line of the script");
        let callers = from(&["--callers", line, "-o", "text"]);
        assert!(callers.contains(&format!("{line}: ")) && callers.contains("called by"), "{callers}");
        let folded = from(&["--callers", line, "-o", "folded"]);
        assert!(folded.lines().all(|stack| stack.starts_with(line)), "{folded}");
        let inverted = from(&["--invert", "-o", "folded"]);
        assert!(inverted.lines().all(|line| line.rsplit_once(' ').is_some_and(|(stack, _)| stack.ends_with("/new/"))), "{inverted}");
        let found = from(&["--grep", "NEW.LUA", "-o", "folded"]);
        assert!(!found.is_empty() && found.lines().all(|line| line.contains("new.lua:")), "{found}");
        assert_eq!(from(&["--grep", "no such function", "-o", "folded"]), "");
        // The server's own file is the same.
        let id = record(&server, SHORT);
        let kept = ask(&server, "GET", &format!("/recordings/{id}"), "", "").text();
        std::fs::write(file("kept.json"), kept).expect("written");
        says(&["flame", "--from", &file("kept.json"), "-o", "text"], &none);
        let raw = file("raw");
        std::fs::write(&raw, says(&["flame", "cpu", "-t", "200ms", "--raw"], &place)).expect("written");
        says(&["flame", "--from", &raw, "--diff", &before, "-o", "text"], &none);
        std::fs::write(file("broken.json"), "{\"kind\":\"cpu\"}").expect("written");
        let kept = file("kept.json");
        for words in [
            &["--from", &file("none.json")][..],
            &["--from", &file("broken.json")],
            &["--from", &after, "--diff", &file("none.json"), "-o", "text"],
            &["--from", &after, "--diff", &before, "-o", "pprof"],
            &["--from", &after, "--diff", &kept, "-o", "text"],
            &["--from", &after, "--callers", "no such function"],
            &["--from", &after, "--callers", "a", "--invert"],
            &["--from", &after, "--raw"],
        ] {
            let output = run(&[&["flame"], words].concat(), &none);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && said.starts_with("weir: ") && !said.contains("panicked"), "{words:?}: {said}");
        }
    }
}

/// A link to a recording is good in another tab; a recording is deleted, saved and opened.
#[test]
fn a_link_to_a_recording_outlives_its_tab() {
    let server = started(Driver::Epoll, "1");
    let _load = load(&server);
    let Some(mut browser) = opened(&server, &DESK) else { return };
    browser.value("location.hash = '#/flame/wall/' + encodeURIComponent('/old/')");
    browser.until("/^[0-9a-f]{32}$/.test(location.hash.split('/').pop()) && document.querySelectorAll('.flame div').length > 2");
    let link = browser.value("location.href").text().expect("an address").to_owned();
    let id = link.rsplit('/').next().expect("a name").to_owned();
    let words = browser.value("document.querySelector('#recorded').textContent");
    // As another person opens it.
    browser.open("about:blank");
    browser.open(&link);
    browser.until("document.querySelectorAll('.flame div').length > 2");
    browser.until("document.querySelector('h1').textContent.includes('/old/')");
    assert_eq!(browser.value("document.querySelector('#recorded').textContent"), words);
    assert_eq!(names(&server), std::slice::from_ref(&id), "a link records nothing");
    browser.value("document.querySelector('details.kept summary').click()");
    browser.until("document.querySelectorAll('details.kept tbody tr').length === 1");
    // A file, as it is saved; names in it are text, and what is none says so.
    let kept = ask(&server, "GET", &format!("/recordings/{id}"), "", "").text();
    browser.value(&format!("window.kept = {kept}; true"));
    let drop = |name: &str, text: &str| {
        format!(
            "(() => {{ const file = new File([{text}], '{name}'); const data = new DataTransfer(); data.items.add(file);
            document.querySelector('.flame').dispatchEvent(new DragEvent('drop', {{ dataTransfer: data, bubbles: true, cancelable: true }})); return true; }})()"
        )
    };
    let odd = "JSON.stringify({ kind: 'wall', duration_ns: 1e9, period_ns: 0, unix_ms: 1, stacks: [{ count: 1, value_ns: 5, frames: [{ origin: 'route', name: '<img src=x onerror=broken()>' }] }] })";
    browser.value(&drop("odd.json", odd));
    browser.until("[...document.querySelectorAll('.flame div')].some((e) => e.textContent === '<img src=x onerror=broken()>')");
    browser.value(&drop("mine.json", "JSON.stringify(window.kept)"));
    browser.until("decodeURIComponent(location.hash).endsWith('file mine.json') && document.querySelectorAll('.flame div').length > 2");
    browser.value(&drop("broken.json", "'{'"));
    browser.until("document.querySelector('p.bad').textContent.includes('broken.json is no recording')");
    browser.value("document.querySelector('details.kept').open = true");
    browser.until("document.querySelectorAll('details.kept tbody tr').length === 1");
    browser.click("details.kept tbody button", "delete");
    browser.until("document.querySelector('details.kept').textContent.includes('the server keeps none')");
    assert_eq!(names(&server), [""; 0]);
    browser.open("about:blank");
    browser.open(&link);
    browser.until("document.querySelector('p.bad').textContent.includes('there is no such recording')");
    assert_eq!(browser.value("document.querySelectorAll('main img, main script').length").number(), Some(0));
}
