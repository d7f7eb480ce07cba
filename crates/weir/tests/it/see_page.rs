//! The page of the admin listener in a browser, as a person uses it: by its links, at a desk and on a phone.

use crate::support::browser;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use browser::Browser;
use weir_http::json::JsonValue;
use weir_test::{Client, Server, wait_for};

const CONF: &str = "worker_processes 1; profile_blocked 30ms; admin 127.0.0.1:%%PORT_1%%;
admin 127.0.0.1:%%PORT_2%% token=0123456789abcdef;
http {
    trace sample=1/1 keep=100000;
    server {
        listen 127.0.0.1:%%PORT_0%%;
        root html;
        keepalive_requests 1000000;
        location /plain/ { alias html/; }
        location /replaced/ {
            alias html/;
            sub_filter_once off;
            sub_filter span div;
            gzip on; gzip_types *;
        }
        location /script/ {
            content_by_lua_file work.lua;
        }
        location /stuck/ { content_by_lua_block {
            local stop = ngx.now() + 0.2
            repeat ngx.update_time() until ngx.now() > stop
            ngx.say('done')
        } }
    }
}";

const WORK: &str = "local function texts(n)
    local s = 0
    jit.off(true, true)
    for i = 1, n do s = s + #tostring(i) end
    return s
end
local function pattern(n)
    return (string.rep('ab', n)):gsub('b', 'c')
end
ngx.header['Content-Type'] = 'text/plain'
local s = 0
for i = 1, 20000 do s = (s * 31 + i % 7) % 1000003 end
ngx.say(texts(3000), #pattern(2000), s)
";

fn started() -> Server {
    let page = "<span class=\"h\">Messages are divided into lines of characters</span>\n".repeat(400);
    let server = Server::builder(CONF).file("html/a.html", page).file("work.lua", WORK).start();
    wait_for("admin listener", || std::net::TcpStream::connect(server.addr(1)).is_ok().then_some(()));
    server
}

/// Runs `f` while requests come.
fn loaded<T>(server: &Server, f: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    std::thread::scope(|scope| {
        for path in ["/plain/a.html", "/replaced/a.html", "/script/"] {
            let done = &done;
            scope.spawn(move || {
                let mut client = server.client();
                while !done.load(Relaxed) {
                    let fields = "Host: localhost\r\nAccept-Encoding: gzip\r\n";
                    assert_eq!(client.request(format!("GET {path} HTTP/1.1\r\n{fields}\r\n")).status, 200);
                    // A small load: these tests share the machine.
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
        let _stop = Stop(&done);
        f()
    })
}

/// Shows that no part of the page is wider than the window.
#[track_caller]
fn fits(browser: &mut Browser) {
    let wide = browser.value("document.documentElement.scrollWidth <= innerWidth");
    assert_eq!(wide, JsonValue::Bool(true), "{:?}", browser.value("document.body.innerText"));
}

/// Keeps a picture of the page where the documents are, when they are made again.
fn keep(browser: &mut Browser, name: &str) {
    let picture = browser.screenshot();
    assert!(picture.starts_with(b"\x89PNG"), "no picture");
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures").join(name);
        std::fs::write(path, picture).expect("docs/pictures is there");
    }
}

/// Waits until requests of a location are in the table.
#[track_caller]
fn seen(browser: &mut Browser, location: &str) {
    browser.until(&format!(
        "[...document.querySelectorAll('.routes tr')].some((row) => row.cells[0].textContent === '{location}' && row.cells[1].textContent !== '0.0')"
    ));
}

/// Clicks on a frame of a flame graph. It is recorded again until there is one: which lines ran when samples were taken,
/// and whether requests came meanwhile is not known.
#[track_caller]
fn click_frame(browser: &mut Browser, selector: &str, text: &str) {
    browser.until(&format!(
        "(() => {{
            const frame = [...document.querySelectorAll('.flame {selector}')].find((e) => e.textContent.includes('{text}'));
            if (frame) frame.click();
            else if (!document.querySelector('#detail').textContent.includes('recording')) document.querySelector('.bar button').click();
            return frame;
        }})()"
    ));
}

/// From the table of locations to the line of the configuration.
fn from_the_table_to_the_line(browser: &mut Browser) {
    seen(browser, "/replaced/");
    keep(browser, "live.png");
    browser.click("a[href^='#/route/']", "/replaced/");
    browser.until("document.querySelector('h1').textContent === '/replaced/'");
    browser.until(
        "document.querySelector('.lines a').textContent.includes('nginx.conf:10  location /replaced/ {')",
    );
    browser.click("a[href^='#/req/']", "GET /replaced/a.html");
    browser.until("document.querySelector('h1').textContent === 'GET /replaced/a.html' && document.querySelector('.tree')");
    browser.click(".tree button", "sub");
    browser.until(
        "document.querySelector('.tree .lines').textContent.includes('nginx.conf:13  sub_filter span div;')",
    );
    keep(browser, "request.png");
    browser.click(".tree .lines a", "sub_filter span");
    browser.until(
        "document.querySelector('dialog[open] li.meant').textContent.includes('sub_filter span div;')",
    );
    browser.click("dialog button", "close");
}

/// Flame graphs: zoom, search, the lines of modules and scripts.
fn flames(browser: &mut Browser) {
    browser.click("a[href^='#/flame/wall/']", "flame wall");
    click_frame(browser, ".module", "gzip");
    browser.until("document.querySelector('.flame .around')");
    browser.until("document.querySelector('#detail .lines').textContent.includes('gzip on;')");
    browser.value("(() => { const s = document.querySelector('input[type=search]'); s.value = 'GZIP'; s.dispatchEvent(new Event('input')); })()");
    browser.until("document.querySelector('.flame .found')");
    browser.click(".flame .around", "all");
    browser.until("!document.querySelector('.flame .around')");
    browser.value("location.hash = '#/flame/cpu/' + encodeURIComponent('/script/')");
    browser.until("document.querySelector('h1').textContent.includes('/script/')");
    click_frame(browser, ".lua", "work.lua:");
    browser.until("document.querySelector('#detail .lines a').textContent.includes('work.lua:')");
    browser.click("#detail .lines a", "work.lua:");
    browser.until("document.querySelector('dialog[open] li.meant')");
    browser.click("dialog button", "close");
    browser.click(".flame .all", "all");
    browser.until("!document.querySelector('.flame .around')");
    browser.value("document.querySelector('.flame .lua').scrollIntoView({ block: 'center' })");
    keep(browser, "flame.png");
}

fn comparing(browser: &mut Browser) {
    browser.click("nav a", "compare");
    browser.until("document.querySelectorAll('form input').length === 2");
    browser.value("['/plain/', '/replaced/'].forEach((path, at) => document.querySelectorAll('form input')[at].value = path)");
    browser.click("form button", "compare");
    browser.until(
        "document.querySelector('table') && document.querySelector('table').textContent.includes('sub')",
    );
    browser.until("[...document.querySelectorAll('td')].some((cell) => cell.textContent === 'new')");
    keep(browser, "compare.png");
}

#[test]
fn from_a_table_of_locations_to_the_lines_that_cost() {
    let server = started();
    let Some(mut browser) = Browser::start(&browser::directory(server.dir().path())) else { return };
    loaded(&server, || {
        browser.prefer("light");
        browser.resize(1280, 800, false);
        browser.open(&format!("http://{}/", server.addr(1)));
        from_the_table_to_the_line(&mut browser);
        flames(&mut browser);
        comparing(&mut browser);
        server.get("/stuck/");
        browser.until("document.getElementById('ticker').textContent.includes('blocked for')");
        let stuck = browser.value("document.getElementById('ticker').textContent");
        assert!(stuck.text().is_some_and(|text| text.starts_with("worker 0 ")), "{stuck:?}");
    });
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn on_a_phone_in_the_dark() {
    let server = started();
    let Some(mut browser) = Browser::start(&browser::directory(server.dir().path())) else { return };
    loaded(&server, || {
        browser.prefer("dark");
        browser.resize(390, 844, true);
        browser.open(&format!("http://{}/", server.addr(1)));
        let background = "getComputedStyle(document.body).backgroundColor";
        seen(&mut browser, "/replaced/");
        assert_eq!(browser.value(background).text(), Some("rgb(22, 24, 27)"));
        fits(&mut browser);
        keep(&mut browser, "phone.png");
        browser.click("#theme", "");
        assert_eq!(browser.value(background).text(), Some("rgb(251, 251, 248)"));
        browser.click("#theme", "");
        browser.click("a[href^='#/route/']", "/replaced/");
        browser.click("a[href^='#/req/']", "GET /replaced/a.html");
        browser.click(".tree button", "gzip");
        browser.until("document.querySelector('.tree .lines').textContent.includes('gzip on;')");
        fits(&mut browser);
        browser.click("a[href^='#/flame/wall/']", "flame wall");
        click_frame(&mut browser, ".module", "sub");
        fits(&mut browser);
        keep(&mut browser, "phone-flame.png");
        browser.click("nav a", "compare");
        browser.until("document.querySelectorAll('form input').length === 2");
        fits(&mut browser);
    });
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_token_is_asked_for_and_guards_everything_but_the_page() {
    let server = started();
    let mut client = Client::connect(server.addr(2));
    for path in ["/page.js", "/page.css"] {
        assert_eq!(client.get(path).status, 200, "{path}");
    }
    for path in ["/", "/metrics", "/lines?location=/plain/", "/text?file=/etc/passwd"] {
        assert_eq!(client.get(path).status, 401, "{path}");
    }
    let mut open = Client::connect(server.addr(1));
    let page = open.request("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n");
    assert_eq!(
        page.field("content-security-policy").map(|policy| policy.starts_with("default-src 'none'")),
        Some(true)
    );
    assert!(!page.text().contains("://"), "it needs nothing from elsewhere");
    let passwd = open.get("/text?file=/etc/passwd");
    assert_eq!((passwd.status, passwd.text().contains("root:")), (400, false), "{passwd}");
    let conf = server.dir().path().join("nginx.conf").display().to_string();
    assert!(open.get(&format!("/text?file={conf}&line=10")).text().contains("location /replaced/ {"));
    let Some(mut browser) = Browser::start(&browser::directory(server.dir().path())) else { return };
    browser.open(&format!("http://{}/", server.addr(2)));
    browser.until("document.querySelector('input[type=password]')");
    browser.value("document.querySelector('input[type=password]').value = '0123456789abcdef'");
    browser.click("form button", "enter");
    browser.until("document.querySelector('h1').textContent === 'Locations'");
}
