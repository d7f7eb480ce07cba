//! The page of the admin listener in a browser, as a person uses it: by its links, at a desk and on a phone.

use crate::support::StopAtEnd;
use crate::support::browser;
use crate::support::page::{DESK, PHONE, click_frame, fits, keep, opened, seen};

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use browser::Browser;
use weir_http::json::JsonValue;
use weir_test::{Backend, Client, Server, wait_for};

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
        location /hog/ { content_by_lua_file hog.lua; }
    }
}";

const HOG: &str = "local stop, x = os.clock() + 0.05, 0
while os.clock() < stop do x = x + 1 end
ngx.say(x)
";

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
    let server =
        Server::builder(CONF).file("html/a.html", page).file("work.lua", WORK).file("hog.lua", HOG).start();
    wait_for("admin listener", || std::net::TcpStream::connect(server.addr(1)).is_ok().then_some(()));
    server
}

/// Runs `f` while requests of the usual locations come.
fn loaded<T>(server: &Server, f: impl FnOnce() -> T) -> T {
    loaded_with(server, &["/plain/a.html", "/replaced/a.html", "/script/"], f)
}

/// Runs `f` while requests of these paths come.
fn loaded_with<T>(server: &Server, paths: &[&str], f: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for path in paths {
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
        let _stop = StopAtEnd(&done);
        f()
    })
}

/// From the table of locations to the line of the configuration.
fn from_the_table_to_the_line(browser: &mut Browser) {
    seen(browser, "/replaced/");
    browser.until("document.querySelectorAll('.chart path.line').length >= 7 && document.querySelector('.chart path.line').getAttribute('d').includes('L')");
    browser.click("a[href^='#/route/']", "/replaced/");
    browser.until("document.querySelector('h1').textContent === '/replaced/'");
    browser.until(
        "document.querySelector('.lines a').textContent.includes('nginx.conf:10  location /replaced/ {')",
    );
    browser.until("document.querySelector('.tree')");
    keep(browser, "location.png");
    browser.click("a[href^='#/req/']", "GET /replaced/a.html");
    browser.until("document.querySelector('h1').textContent === 'GET /replaced/a.html' && document.querySelector('.tree')");
    // Which steps took long enough to be drawn is not known.
    browser.until("document.querySelectorAll('.fall .row .line span').length > 0");
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

/// A part of the heat map that is drawn around lists the requests in it.
fn brushing(browser: &mut Browser) {
    browser.value("location.hash = '#/'");
    browser.until("document.querySelector('.heat canvas').width === 60 && document.querySelector('.heat .scale').children.length > 2");
    keep(browser, "overview.png");
    browser.until(
        "(() => {
            const canvas = document.querySelector('.heat canvas');
            const box = canvas.getBoundingClientRect();
            canvas.setPointerCapture = () => {};
            for (const [name, x, y] of [['pointerdown', box.left + 1, box.top + 1], ['pointerup', box.right - 1, box.bottom - 1]]) {
                canvas.dispatchEvent(new PointerEvent(name, { clientX: x, clientY: y, pointerId: 1 }));
            }
            return true;
        })()",
    );
    browser.until(
        "[...document.querySelectorAll('h2')].some((e) => e.textContent.startsWith('Retained requests, '))",
    );
    browser.until("document.querySelectorAll('table.requests tr').length > 5");
    browser.click("button", "hour");
    browser.until("document.querySelector('.choice .here').textContent === 'hour' && document.querySelector('.heat canvas').width === 120");
    browser.click("button", "minute");
    browser.until("document.querySelector('.choice .here').textContent === 'minute'");
}

/// Requests by path, status and id.
fn searching(browser: &mut Browser) {
    let set =
        |name: &str, value: &str| format!("document.querySelector('input[name={name}]').value = '{value}'");
    let rows = "document.querySelectorAll('table.requests tbody tr')";
    browser.click("nav a", "requests");
    browser.until("document.querySelector('input[name=has]')");
    browser.value(&set("has", "cript"));
    browser.click("form button", "search");
    browser.until(&format!(
        "{rows}.length > 3 && [...{rows}].every((e) => e.cells[0].textContent === 'GET /script/')"
    ));
    let id = browser.value(&format!("{rows}[0].querySelector('a').hash.split('/').pop()"));
    let id = id.text().expect("an id").to_owned();
    browser.value(&set("has", ""));
    browser.value(&set("id", &id[..12]));
    browser.click("form button", "search");
    browser.until(&format!("{rows}.length === 1 && {rows}[0].querySelector('a').hash.endsWith('{id}')"));
    browser.value(&set("status", "9xx9"));
    browser.click("form button", "search");
    browser.until("document.querySelector('p.bad').textContent.includes('is no status')");
    browser.value(&format!("location.hash = '#/req/{}'", "0".repeat(32)));
    browser.until("document.querySelector('p.bad').textContent.includes('was not kept')");
}

/// Flame graphs: zoom, search, the lines of modules and scripts, callers, the difference of two recordings.
fn flames(browser: &mut Browser) {
    browser.value("location.hash = '#/flame/wall/' + encodeURIComponent('/replaced/')");
    browser.until("document.querySelector('h1').textContent.includes('/replaced/')");
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
    // The frames between the module and the script are one, unless they are asked for.
    let names = "[...document.querySelectorAll('.flame div')].map((e) => e.textContent)";
    browser.until(&format!(
        "{names}.includes('server') && !{names}.some((name) => name.startsWith('weir_server::'))"
    ));
    keep(browser, "flame.png");
    browser.click("input[type=checkbox]", "");
    browser.until(&format!("{names}.some((name) => name.startsWith('weir_server::'))"));
    browser.click("input[type=checkbox]", "");
    callers_and_differences(browser);
}

fn callers_and_differences(browser: &mut Browser) {
    let choose = |label: &str, value: &str| {
        format!(
            "(() => {{ const s = document.querySelector('select[aria-label=\"{label}\"]'); s.value = {value}; s.dispatchEvent(new Event('change')); return s.value; }})()"
        )
    };
    browser.click("table.functions button", "");
    browser.until("document.querySelector('.sandwich').textContent.includes('called by')");
    browser.value(&choose("form", "'callers'"));
    // Innermost frames are below the root now.
    browser.until("document.querySelectorAll('.flame div').length > 2");
    browser.value(&choose("form", "'callees'"));
    let recorded = browser.value("location.hash");
    let name = "location.hash.split('/').pop()";
    let before = browser.value(name).text().expect("a recording").to_owned();
    browser.click("button", "record");
    browser.until(&format!("{name} !== '{before}'"));
    browser.until(&format!("[...document.querySelector('select[aria-label=\"compared with\"]').options].some((one) => one.value === '{before}')"));
    let compared = format!("'{before}'");
    browser.value(&choose("compared with", &compared));
    browser.until("document.querySelector('.flame div').title.includes('to the other')");
    keep(browser, "flame-difference.png");
    // A link to a recording shows it, and records nothing.
    browser.value(&format!("location.hash = {:?}", recorded.text().expect("an address")));
    browser.until("document.querySelectorAll('.flame div').length > 2 && document.querySelector('#detail').textContent.startsWith('all (')");
    // So does its location: the last one is there until another is asked for.
    let last = "document.querySelector('#recorded').textContent";
    browser.until(&format!("/^\\d+ samples in \\d/.test({last})"));
    browser.value("location.hash = '#/flame/cpu/' + encodeURIComponent('/script/')");
    browser
        .until("!location.hash.endsWith('/script/') || document.querySelectorAll('.flame div').length > 2");
    browser.until("document.querySelector('#detail').textContent.startsWith('all (')");
    browser.until(&format!("/^\\d+ samples in \\d/.test({last})"));
}

fn comparing(browser: &mut Browser) {
    browser.click("nav a", "compare");
    browser.until("document.querySelectorAll('form input').length === 2");
    let fill = |one: &str, two: &str| {
        format!(
            "['{one}', '{two}'].forEach((path, at) => document.querySelectorAll('form input')[at].value = path)"
        )
    };
    // Nothing comes of one side: it shows how far it is, and can be cancelled.
    browser.value(&fill("/plain/", "/none/"));
    browser.click("form button", "compare");
    browser.until("document.querySelector('progress') && /round \\d+ of 10/.test(document.body.innerText)");
    browser.click("form button", "cancel");
    browser.until("document.body.innerText.includes('cancelled')");
    browser.value(&fill("/plain/", "/replaced/"));
    browser.click("form button", "compare");
    browser.until(
        "document.querySelector('table') && document.querySelector('table').textContent.includes('sub')",
    );
    browser.until("[...document.querySelectorAll('td')].some((cell) => cell.textContent === 'new')");
    keep(browser, "compare.png");
}

/// Workers with what blocked them, the server's resources, Lua.
fn inside(browser: &mut Browser, server: &Server) {
    server.get("/stuck/");
    browser.until("document.getElementById('ticker').textContent.includes('blocked for')");
    let stuck = browser.value("document.getElementById('ticker').textContent");
    assert!(stuck.text().is_some_and(|text| text.starts_with("worker 0 ")), "{stuck:?}");
    browser.click("#ticker a", "worker 0");
    browser.until("document.querySelector('table.workers tbody tr').cells[0].textContent === '0'");
    // One cause is one row, and what is in its stack has names. Besides it, it may have had no processor.
    let rows = "[...document.querySelectorAll('table.blocked tbody tr')].filter((row) => row.cells[1].textContent === '/stuck/' && row.querySelector('summary a'))";
    wait_for("the row of a line", || {
        server.get("/stuck/");
        let places =
            browser.value(&format!("{rows}.map((row) => row.querySelector('summary a').textContent).join()"));
        (places.text() == Some("nginx.conf:21")).then_some(())
    });
    browser.until(&format!("{rows}[0].querySelector('pre').textContent.includes('weir_server::')"));
    browser.until("document.querySelector('table.figures').textContent.includes('accept')");
    keep(browser, "workers.png");
    browser.click("nav a", "lua");
    browser.until("document.querySelectorAll('table.figures').length >= 1 && document.body.innerText.includes('Dictionaries')");
    browser.click("nav a", "server");
    browser.until("document.querySelector('table.figures').textContent.includes('descriptors')");
    browser.until("document.querySelector('table.counters').textContent.includes('uptime seconds')");
    browser.until("document.querySelector('.log') || document.body.innerText.includes('nothing was logged')");
    browser.until("[...document.querySelectorAll('table.figures')].some((e) => e.textContent.includes('body_filter gzip'))");
    browser.click("nav a", "upstreams");
    browser.until("document.body.innerText.includes('there are no upstreams')");
}

#[test]
fn from_a_table_of_locations_to_the_lines_that_cost() {
    let server = started();
    let Some(mut browser) = opened(&server, &DESK) else { return };
    loaded(&server, || {
        from_the_table_to_the_line(&mut browser);
        brushing(&mut browser);
        searching(&mut browser);
        inside(&mut browser, &server);
        comparing(&mut browser);
    });
    // What was asked on purpose has no response, and nothing else.
    let complaints = browser.complaints();
    let meant =
        |complaint: &&String| ["status%3D9xx9", "/req/0000"].iter().any(|part| complaint.contains(part));
    assert_eq!((complaints.iter().filter(meant).count(), complaints.len()), (2, 2), "{complaints:?}");
}

/// What is wrong comes to the first page, with its line and where there is more of it, and goes when it is over.
#[test]
fn findings_are_on_the_first_page() {
    let server = started();
    let Some(mut browser) = opened(&server, &DESK) else { return };
    browser.until(WELL);
    loaded_with(&server, &["/hog/"], || {
        let found = "document.querySelector('#findings.wrong li[data-kind=cpu]')";
        browser.until(&format!("{found}.textContent.includes(' in /hog/ computed without a pause ')"));
        browser
            .until(&format!("{found}.querySelector('code').textContent === 'weir flame cpu --route /hog/'"));
        keep(&mut browser, "findings.png");
        // Looked for again and again: the sentence changes in its place, if it is found twice in a row.
        // On a busy machine that is the one about processors that others have.
        browser.until(
            "(() => {
                const now = [...document.querySelectorAll('#findings.wrong li')].map((row) => ({ row, said: row.firstChild.textContent }));
                const before = window.before ?? [];
                window.before = now;
                return now.some(({ row, said }) => before.some((then) => then.row === row && then.said !== said));
            })()",
        );
        browser.click("#findings .links a", "hog.lua:2");
        browser.until(
            "document.querySelector('dialog[open] li.meant').textContent.includes('os.clock() < stop')",
        );
        browser.click("dialog button", "close");
        browser.resize(390, 844, true);
        fits(&mut browser);
        browser.click("#findings .links a", "flame cpu");
        browser.until("document.querySelector('h1').textContent.includes('/hog/')");
        browser.click("nav a", "overview");
    });
    browser.until(WELL);
    // A script inside the configuration has its line there.
    loaded_with(&server, &["/stuck/"], || browser.click("#findings .links a", "nginx.conf:21"));
    browser.until(
        "document.querySelector('dialog[open] li.meant').textContent.includes('repeat ngx.update_time()')",
    );
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Nothing is found; but the machine may be so busy that the worker wants a processor.
const WELL: &str = "(() => {
    const [well, found] = [document.querySelector('#findings.well p'), [...document.querySelectorAll('#findings.wrong li')]];
    return well ? well.textContent.startsWith('nothing is wrong that can be seen in ') : found.length && found.every((e) => e.dataset.kind === 'no_core');
})()";

#[test]
fn flame_graphs_lead_to_lines_and_are_compared() {
    let server = started();
    let Some(mut browser) = opened(&server, &DESK) else { return };
    loaded(&server, || {
        seen(&mut browser, "/replaced/");
        flames(&mut browser);
    });
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Why connections end, of clients and to servers, as it goes on; and what memory is held for.
#[test]
fn closes_and_memory_are_shown() {
    let backend = Backend::answering("from afar");
    let server = Server::builder(
        &"worker_processes 1; admin 127.0.0.1:%%PORT_1%%;
        http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { keepalive_timeout 0; return 200 ok; }
            location /far/ { proxy_pass http://127.0.0.1:%%BACKEND%%; proxy_set_header Connection close; } } }"
            .replace("%%BACKEND%%", &backend.port().to_string()),
    )
    .start();
    let Some(mut browser) = opened(&server, &DESK) else { return };
    browser.click("nav a", "server");
    let row = |reason: &str| {
        format!(
            "[...document.querySelectorAll('table.closes tbody tr')].find((row) => row.cells[2].textContent === '{reason}')"
        )
    };
    wait_for("the closes of clients", || {
        // It asks for nothing: the location keeps no connection.
        assert_eq!(server.client().get("/").status, 200);
        let shown = format!(
            "(() => {{ const row = {}; return !!row && row.cells[1].textContent === 'server' && row.cells[3].textContent !== '-' && Number(row.cells[3].textContent) > 0; }})()",
            row("keepalive off")
        );
        (browser.value(&shown) == JsonValue::Bool(true)).then_some(())
    });
    browser.until("[...document.querySelectorAll('table.figures td')].some((cell) => cell.textContent === 'receive_buffers' && /KiB|MiB|B/.test(cell.parentNode.textContent))");
    assert_eq!(
        browser.value("[...document.querySelectorAll('table.closes tbody tr')].length").number(),
        Some(1)
    );
    browser.click("nav a", "upstreams");
    browser.until("document.body.innerText.includes('none has ended yet')");
    wait_for("the closes of connections to servers", || {
        assert_eq!(server.get("/far/").text(), "from afar");
        let shown = "[...document.querySelectorAll('table.closes tbody tr')].some((row) => row.cells[0].textContent === 'http1')";
        (browser.value(shown) == JsonValue::Bool(true)).then_some(())
    });
    browser.resize(390, 844, true);
    fits(&mut browser);
    browser.click("nav a", "server");
    browser.until("document.querySelector('table.closes tbody tr')");
    fits(&mut browser);
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn on_a_phone_in_the_dark() {
    let server = started();
    let Some(mut browser) = opened(&server, &PHONE) else { return };
    loaded(&server, || {
        let background = "getComputedStyle(document.body).backgroundColor";
        seen(&mut browser, "/replaced/");
        assert_eq!(browser.value(background).text(), Some("rgb(22, 24, 27)"));
        fits(&mut browser);
        keep(&mut browser, "phone.png");
        // What a request waited is the story of proxied locations: it is there on phones, too.
        browser.until("(() => { const head = [...document.querySelectorAll('.routes th')].find((e) => e.textContent === 'wait'); return head && head.offsetWidth > 0; })()");
        browser.click("#theme", "");
        assert_eq!(browser.value(background).text(), Some("rgb(251, 251, 248)"));
        browser.click("#theme", "");
        for view in ["requests", "workers", "upstreams", "lua", "server"] {
            browser.click("nav a", view);
            browser.until("document.querySelector('main').children.length > 1");
            fits(&mut browser);
        }
        browser.click("nav a", "overview");
        browser.click("a[href^='#/route/']", "/replaced/");
        browser.click("a[href^='#/req/']", "GET /replaced/a.html");
        browser.click(".tree button", "gzip");
        browser.until("document.querySelector('.tree .lines').textContent.includes('gzip on;')");
        browser.until("document.querySelector('.fall')");
        fits(&mut browser);
        keep(&mut browser, "phone-request.png");
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
    let guarded = [
        "/",
        "/metrics",
        "/metrics?of=server",
        "/history",
        "/slow?brief=1",
        "/req/00/spans",
        "/compare?progress=1",
        "/lines?location=/plain/",
        "/text?file=/etc/passwd",
    ];
    for path in guarded {
        assert_eq!(client.get(path).status, 401, "{path}");
    }
    let mut open = Client::connect(server.addr(1));
    let page = open.request("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n");
    assert_eq!(
        page.field("content-security-policy").map(|policy| policy.starts_with("default-src 'none'")),
        Some(true)
    );
    assert!(!page.text().contains("://"), "it needs nothing from elsewhere");
    // A name space is no place: nothing is fetched from there.
    let script = open.get("/page.js").text().replace("http://www.w3.org/2000/svg", "");
    for danger in ["://", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
        assert!(!script.contains(danger), "{danger}");
    }
    assert_eq!(open.get("/req/0000000000").status, 404, "a request that is gone");
    let passwd = open.get("/text?file=/etc/passwd");
    assert_eq!((passwd.status, passwd.text().contains("root:")), (400, false), "{passwd}");
    let conf = server.dir().path().join("nginx.conf").display().to_string();
    assert!(open.get(&format!("/text?file={conf}&line=10")).text().contains("location /replaced/ {"));
    let Some(mut browser) = Browser::start(&browser::directory(server.dir().path())) else { return };
    browser.open(&format!("http://{}/", server.addr(2)));
    browser.until("document.querySelector('input[type=password]')");
    browser.value("document.querySelector('input[type=password]').value = '0123456789abcdef'");
    browser.click("form button", "enter");
    browser.until("document.querySelector('h1').textContent === 'Overview'");
}

/// What a path, a location and a peer are called is text, whatever it looks like.
#[test]
fn names_that_look_like_a_page_are_shown_as_they_are() {
    let server = Server::builder(
        "worker_processes 1; admin 127.0.0.1:%%PORT_1%%;
        http { trace sample=1/1; server { listen 127.0.0.1:%%PORT_0%%; location '/<img src=x onerror=broken()>' { return 200 ok; } location / { return 404; } } }",
    )
    .start();
    let Some(mut browser) = opened(&server, &DESK) else { return };
    browser.until("document.querySelector('.routes')");
    let mut client = server.client();
    browser.until("document.querySelector('.chart')");
    let (one, two) = ("/%3Cimg%20src=x%20onerror=broken()%3E", "/<script>broken()</script>");
    let mut ask = || {
        assert_eq!(client.get(one).status, 200);
        client.get(two).status
    };
    ask();
    wait_for("a row of the table", || {
        ask();
        let shown = "[...document.querySelectorAll('.routes a')].some((e) => e.textContent.includes('<img src=x onerror=broken()>'))";
        (browser.value(shown) == JsonValue::Bool(true)).then_some(())
    });
    browser.click("nav a", "requests");
    browser.until("[...document.querySelectorAll('table.requests a')].some((e) => e.textContent.includes('<script>broken()</script>'))");
    browser.click("table.requests a", "<script>broken()");
    browser.until("document.querySelector('h1').textContent.includes('<script>broken()</script>') && document.querySelector('.fall')");
    assert_eq!(browser.value("document.querySelectorAll('main img, main script').length").number(), Some(0));
    assert_eq!(browser.complaints(), [""; 0]);
}
