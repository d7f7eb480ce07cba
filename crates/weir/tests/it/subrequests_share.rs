//! What a request and its subrequests have in common for as long as the request lasts, however the subrequests are made:
//! included in its response, captured one after the other, or captured at the same time.

use weir_test::{Driver, Server, both_drivers};

/// Locations that make two subrequests to `/part`, and what comes around what those respond with.
const WAYS: [(&str, &str); 6] = [
    ("after", "root html; add_before_body /part; add_after_body /part;"),
    ("one", "content_by_lua_block { for _ = 1, 2 do ngx.print(ngx.location.capture('/part').body) end }"),
    (
        "multi",
        "content_by_lua_block { local a, b = ngx.location.capture_multi({ { '/part' }, { '/part' } }) ngx.print(a.body, b.body) }",
    ),
    (
        "threads",
        "content_by_lua_block { local function f() return ngx.location.capture('/part').body end
        local a, b = ngx.thread.spawn(f), ngx.thread.spawn(f)
        local _, one = ngx.thread.wait(a) local _, other = ngx.thread.wait(b) ngx.print(one, other) }",
    ),
    ("ssi", "ssi on; root html;"),
    ("echo", "echo_location /part; echo_location_async /part;"),
];

const ZONES: &str = "limit_req_zone $server_addr zone=requests:64k rate=1r/m; limit_conn_zone $server_addr zone=connections:64k;";

/// Says what the limits have decided.
const STATUS: &str = "content_by_lua_block { ngx.print('[', ngx.var.limit_conn_status or '', ngx.var.limit_req_status or '', ']') }";

/// `around` in each of the ways' locations, `inside` in that of the subrequests.
fn serve(driver: Driver, workers: usize, around: &str, inside: &str) -> Server {
    let mut locations = String::new();
    for (name, way) in WAYS {
        locations += &format!(
            "location = /{name}/index.html {{ internal; {around} {way} }}
            location = /{name} {{ {around} rewrite ^ /{name}/index.html; }}\n"
        );
    }
    let text = format!(
        "worker_processes {workers}; events {{}} http {{ {ZONES} default_type text/html;
        server {{ listen 127.0.0.1:%%PORT%%; {locations} location = /part {{ {inside} }} }} }}"
    );
    let server = Server::builder(&text).driver(driver).allow("limiting");
    let page = "<!--#include virtual=\"/part\" --><!--#include virtual=\"/part\" -->";
    server.file("html/ssi/index.html", page).file("html/after/index.html", "").start()
}

both_drivers! {
    /// A request counts once, with all of its subrequests: they were refused for the request that they are of.
    fn limits_count_a_request_with_its_subrequests_once(driver) {
        for limit in ["limit_conn connections 1;", "limit_req zone=requests;"] {
            for (around, inside) in [(limit, limit), ("", limit), (limit, "")] {
                for (name, _) in WAYS {
                    // A rate counts for a minute: each way has a server of its own.
                    let server = serve(driver, 1, around, &format!("{inside} {STATUS}"));
                    let said = server.get(&format!("/{name}"));
                    assert_eq!((said.status, said.text().as_str()), (200, "[PASSED][PASSED]"), "{name} {around}/{inside}");
                }
            }
        }
    }

    /// The next request finds the place free, whoever has taken it.
    fn places_are_given_back_with_the_request(driver) {
        for (around, inside) in [("limit_conn connections 1;", ""), ("", "limit_conn connections 1;")] {
            let server = serve(driver, 8, around, &format!("{inside} {STATUS}"));
            let mut client = server.client();
            for (name, _) in WAYS.iter().cycle().take(3 * WAYS.len()) {
                assert_eq!(client.get(&format!("/{name}")).text(), "[PASSED][PASSED]", "{name}");
            }
        }
    }

    /// A client gets one number, and subrequests know it.
    fn a_client_has_one_number_in_all_subrequests(driver) {
        let id = "userid on; userid_name u;";
        let server = serve(driver, 1, id, &format!("{id} content_by_lua_block {{ ngx.print(ngx.var.uid_set, ' ') }}"));
        for (name, _) in WAYS {
            let text = server.get(&format!("/{name}")).text();
            let numbers: Vec<&str> = text.split_whitespace().collect();
            assert_eq!(numbers.len(), 2, "{name}: {text}");
            assert_eq!(numbers[0], numbers[1], "{name}");
        }
    }

    /// What is included has the charset of the response that it is in.
    fn what_is_included_is_recoded_for_the_client(driver) {
        for name in ["after", "ssi"] {
            let map = "charset_map koi8-r utf-8 { E9 D0B9; }";
            let text = format!("http {{ {map} default_type text/html; server {{ listen 127.0.0.1:%%PORT%%; root html;
                location / {{ charset utf-8; source_charset koi8-r; {} }}
                location = /part {{ charset koi8-r; source_charset koi8-r; alias html/part.html; }} }} }}",
                if name == "ssi" { "ssi on;" } else { "add_after_body /part;" });
            let page = if name == "ssi" { &b"\xe9<!--#include virtual=\"/part\" -->"[..] } else { b"\xe9" };
            let server = Server::builder(&text).driver(driver).file("html/page.html", page).file("html/part.html", b"\xe9");
            let said = server.start().get("/page.html");
            assert_eq!(said.field("content-type"), Some("text/html; charset=utf-8"), "{name}");
            assert_eq!(said.text(), "йй", "{name}");
        }
    }

    /// What comes after a body comes after all that the body includes: it was lost where both were asked for at once.
    fn additions_come_around_pages_with_includes(driver) {
        let server = Server::builder("http { default_type text/html; server { listen 127.0.0.1:%%PORT%%; root html; ssi on;
            location = /side { return 200 '[$uri]'; } location = /more { return 200 '(more)'; }
            location / { add_after_body /more; }
            location = /both.html { add_before_body /more; add_after_body /more; }
            location = /nested.html { add_before_body /both.html; add_after_body /both.html; } } }")
            .file("html/none.html", "<p>").file("html/one.html", "<<!--#include virtual=\"/side\" -->>")
            .file("html/end.html", "<<!--#include virtual=\"/side\" -->")
            .file("html/two.html", "<!--#include virtual=\"/side\" -->-<!--#include virtual=\"/side\" wait=\"yes\" -->")
            .file("html/both.html", "<<!--#include virtual=\"/side\" -->>").file("html/nested.html", "=").driver(driver).start();
        for (page, text) in [("none", "<p>(more)"), ("one", "<[/side]>(more)"), ("end", "<[/side](more)"),
            ("two", "[/side]-[/side](more)"), ("both", "(more)<[/side]>(more)"), ("nested", "<[/side]>=<[/side]>")] {
            assert_eq!(server.get(&format!("/{page}.html")).text(), text, "{page}");
        }
    }
}
