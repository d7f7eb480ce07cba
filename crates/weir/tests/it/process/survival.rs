//! What outlives a server process that is killed: its dictionaries.

use weir_test::{Server, ServerSignal, both_drivers};

use super::*;

/// A server whose scripts fill a dictionary of that size and show what is in it.
fn conf(size: &str) -> String {
    format!(
        r#"master_process on; worker_processes 2;
http {{
    lua_shared_dict d {size};
    lua_shared_dict untouched 1m;
    limit_conn_zone all zone=conns:1m;
    limit_req_zone $arg_key zone=reqs:1m rate=1r/m;
    init_by_lua_block {{ ngx.shared.d:set("from init", 1) }}
    server {{
        listen 127.0.0.1:%%PORT%%;
        location /fill {{ content_by_lua_block {{
            local d = ngx.shared.d
            d:set("from init", 2)
            d:set("short", "a text", 0, 7)
            d:set("long", ("x"):rep(5000), 500, 8)
            d:set("number", 1) d:incr("number", 2.5)
            d:set("yes", true) d:set("no", false)
            d:set("gone", "away") d:delete("gone")
            d:set("shortly", 1, 0.001)
            d:rpush("list", "b") d:lpush("list", "a") d:rpush("list", 3)
            d:expire("list", 400)
            for at = 1, 2000 do d:set("key" .. at, "value" .. at) end
            ngx.print("filled")
        }} }}
        location /read {{ content_by_lua_block {{
            local d, out = ngx.shared.d, {{}}
            local function add(...) out[#out + 1] = table.concat({{ ... }}, " ") end
            local long = d:get("long") or ""
            for _, key in ipairs({{ "from init", "short", "number", "yes", "no", "gone", "shortly" }}) do
                local value, flags = d:get(key)
                add(key, tostring(value), tostring(flags))
            end
            local left = d:ttl("long") or -1
            add("long", #long, select(2, long:gsub("x", "")), tostring(left > 400 and left <= 500))
            local left = d:ttl("list") or -1
            add("list", tostring(d:llen("list")), tostring(left > 300 and left <= 400))
            local found = 0
            for at = 1, 2000 do
                if d:get("key" .. at) == "value" .. at then found = found + 1 end
            end
            add("keys", found)
            ngx.print(table.concat(out, "\n"))
        }} }}
        location /pop {{ content_by_lua_block {{
            local d = ngx.shared.d
            ngx.print(d:lpop("list"), d:lpop("list"), d:lpop("list"))
        }} }}
        location /limited {{ limit_req zone=reqs; content_by_lua_block {{ ngx.print("passed") }} }}
        location /one {{ limit_conn conns 1; content_by_lua_block {{ ngx.sleep(tonumber(ngx.var.arg_for)) ngx.print("one") }} }}
    }}
}}"#
    )
}

const FILLED: &str = "from init 2 nil\nshort a text 7\nnumber 3.5 nil\nyes true nil\nno false nil\ngone nil nil\n\
                      shortly nil nil\nlong 5000 5000 true\nlist 3 true\nkeys 2000";

const EMPTY: &str = "from init 1 nil\nshort nil nil\nnumber nil nil\nyes nil nil\nno nil nil\ngone nil nil\n\
                     shortly nil nil\nlong 0 0 false\nlist 0 false\nkeys 0";

/// A server that may be killed several times.
fn server() -> Server {
    Server::builder(&conf("1m")).allow("exited on signal 9").allow("soon after their start").start()
}

/// What a reload changes shows, however long that takes.
fn reads(server: &Server, wanted: &str) {
    wait_for("what is in the dictionary", || (server.get("/read").text() == wanted).then_some(()));
}

/// The server process is killed; the next one serves.
fn killed(server: &Server) {
    let first = server_of(server.pid(), None);
    kill(first, "KILL");
    wait_gone(first);
    server_of(server.pid(), Some(first));
}

both_drivers! {
    fn a_dictionary_outlives_its_process(driver) {
        let server = server();
        assert_eq!(server.get("/fill").text(), "filled");
        for _ in 0..3 {
            killed(&server);
            assert_eq!(server.get("/read").text(), FILLED);
        }
        assert!(server.error_log_line("entries of dictionary \"d\" are there again").contains("[notice]"));
        assert_eq!(server.get("/pop").text(), "ab3");
        killed(&server);
        assert!(server.get("/read").text().contains("\nlist 0 "), "what was taken is gone");
    }

    fn a_dictionary_outlives_reloads_and_its_process(driver) {
        let mut server = server();
        assert_eq!(server.get("/fill").text(), "filled");
        // `init_by_lua` runs again, as in nginx.
        server.reload(&conf("1m"));
        let reloaded = FILLED.replace("from init 2", "from init 1");
        reads(&server, &reloaded);
        killed(&server);
        assert_eq!(server.get("/read").text(), reloaded);
        // One of another size begins empty.
        server.reload(&conf("2m"));
        reads(&server, EMPTY);
        killed(&server);
        assert_eq!(server.get("/read").text(), EMPTY);
        assert_eq!(server.get("/fill").text(), "filled");
        killed(&server);
        assert_eq!(server.get("/read").text(), FILLED);
        // And so does that of another start.
        server.signal(ServerSignal::Quit);
        assert!(server.wait_exit().status.success());
    }

    /// Who has had requests enough does not get more by a crash.
    fn limits_of_requests_outlive_their_process(driver) {
        let server = Server::builder(&conf("1m"))
            .allow("exited on signal 9")
            .allow("soon after their start")
            .allow("limiting requests")
            .start();
        let ask = |key: &str| server.get(&format!("/limited?key={key}")).status;
        assert_eq!((ask("a"), ask("a"), ask("b")), (200, 503, 200));
        for key in ["c", "d"] {
            killed(&server);
            assert_eq!((ask("a"), ask("b"), ask(key), ask(key)), (503, 503, 200, 503));
        }
        let _ = server.error_log_line("3 entries of shared memory zone \"reqs\" are there again");
    }

    /// Connections of a process end with it, and so do their places.
    fn connections_of_a_killed_process_do_not_count(driver) {
        let server = Server::builder(&conf("1m")).allow("exited on signal 9").allow("limiting connections").start();
        let mut waits = server.client();
        waits.send("GET /one?for=60 HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_for("its place is taken", || (server.get("/one?for=0").status == 503).then_some(()));
        killed(&server);
        let response = server.get("/one?for=0");
        assert_eq!((response.status, response.text()), (200, "one".to_owned()));
    }
}
