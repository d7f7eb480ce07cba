//! `balancer_by_lua` and `ngx.balancer`, as clients and servers see them.

use crate::support::tls as support;

use weir_test::{Backend, Server, both_drivers, free_port};

use support::own;

/// A proxy whose servers `script` names; `group` and `location` have what else is there. The backend's port is
/// `$port`'s value in scripts: `PORT`.
fn balanced(port: u16, script: &str, group: &str, location: &str) -> Server {
    let conf = format!(
        "worker_processes 1;
        http {{ log_format t '$status $upstream_addr $upstream_status'; access_log %%DIR%%/access.log t;
            upstream u {{ {group}
                balancer_by_lua_block {{ local b = require 'ngx.balancer' {script} }} }}
            server {{ listen 127.0.0.1:%%PORT%%; error_log %%DIR%%/error.log info;
                location / {{ proxy_pass http://u; {location} }} }} }}"
    );
    Server::builder(&conf.replace("$BACK", &port.to_string())).start()
}

/// Responds to each request by its head, and keeps connections.
fn echo() -> Backend {
    Backend::start(|visit| {
        while let Some(head) = visit.head() {
            visit.answer(&head);
        }
    })
}

/// The error log has a line with `text`.
fn logs(server: &Server, text: &str) {
    assert!(server.error_log_line(text).contains(text));
}

both_drivers! {
    fn a_script_names_the_server_and_its_connection_is_kept(driver) {
        let backend = echo();
        let server = balanced(backend.port(), "assert(b.set_current_peer('127.0.0.1', $BACK))", "", "");
        let mut client = server.client();
        for _ in 0..3 {
            let answer = client.get("/x");
            assert_eq!(answer.status, 200, "{answer}");
            assert!(answer.text().starts_with("GET /x HTTP/1.1\r\nHost: u\r\n"), "{answer}");
        }
        assert_eq!(backend.visits(), 1, "one connection");
        let lines = server.access_log_lines(3);
        assert_eq!(lines[2], format!("200 127.0.0.1:{} 200", backend.port()));
    }

    fn tries_are_counted_and_told(driver) {
        let (backend, dead) = (echo(), free_port());
        let script = format!(
            "local tries = (ngx.ctx.tries or 0) + 1
             ngx.ctx.tries = tries
             ngx.log(ngx.INFO, 'try ', tries, ' ', b.get_last_failure())
             local ok, err = b.set_more_tries(tries == 1 and 1 or 0)
             if err then ngx.log(ngx.INFO, 'told ', err) end
             b.set_current_peer('127.0.0.1', tries == 1 and {dead} or $BACK)"
        );
        let server = balanced(backend.port(), &script, "server 0.0.0.1;", "");
        assert_eq!(server.client().get("/").status, 200);
        let line = server.access_log_lines(1).remove(0);
        assert_eq!(line, format!("200 127.0.0.1:{dead}, 127.0.0.1:{} 502, 200", backend.port()));
        logs(&server, "try 1 nil while connecting to upstream, client: 127.0.0.1");
        logs(&server, "try 2 failed502 while connecting to upstream");
        assert!(!server.error_log().contains("told "), "{}", server.error_log());

        let server = balanced(
            dead,
            "local ok, err = b.set_more_tries(5) ngx.log(ngx.INFO, 'told ', tostring(err)) b.set_current_peer('127.0.0.1', $BACK)",
            "",
            "proxy_next_upstream_tries 2;",
        );
        assert_eq!(server.client().get("/").status, 502);
        let line = server.access_log_lines(1).remove(0);
        assert_eq!(line, format!("502 127.0.0.1:{dead}, 127.0.0.1:{dead} 502, 502"));
        logs(&server, "told reduced tries due to limit");
    }

    fn an_answer_that_another_server_may_do_better_than_is_next(driver) {
        let backend = Backend::start(|visit| {
            while visit.head().is_some() {
                visit.send("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno");
            }
        });
        let script = "ngx.log(ngx.INFO, 'last: ', b.get_last_failure()) if not ngx.ctx.again then ngx.ctx.again = true \
                      b.set_more_tries(1) end b.set_current_peer('127.0.0.1:$BACK')";
        let server = balanced(backend.port(), script, "", "proxy_next_upstream http_404;");
        assert_eq!(server.client().get("/").text(), "no");
        logs(&server, "last: nil");
        logs(&server, "last: next404");
    }

    fn what_can_not_be_is_an_error(driver) {
        let say = |script: &str| {
            let script = format!("ngx.log(ngx.INFO, 'said: ', {script}) ngx.exit(403)");
            let server = balanced(free_port(), &script, "server 127.0.0.1;", "");
            assert_eq!(server.client().get("/").status, 403);
            let line = server.error_log_line("said: ");
            let said = line.split("said: ").nth(1).and_then(|rest| rest.split(" while connecting").next());
            said.unwrap_or_else(|| panic!("{line}")).to_owned()
        };
        assert_eq!(say("b.set_current_peer('localhost', 80)"), "nilno host allowed");
        assert_eq!(say("b.set_current_peer('127.0.0.1:70000')"), "nilinvalid port");
        assert_eq!(say("b.enable_keepalive()"), "nilno current peer set");
        assert_eq!(say("b.bind_to_local_addr('nowhere')"), "nilinvalid addr nowhere");
        assert_eq!(say("select(2, pcall(b.set_timeouts, 0, 1, 1))"), "bad connect timeout");
        assert_eq!(say("select(2, pcall(b.enable_keepalive, -1))"), "bad argument #1 to 'enable_keepalive' (expected >= 0)");
        assert_eq!(say("select(2, pcall(ngx.sleep, 0))"), "API disabled in the context of balancer_by_lua*");
        assert_eq!(say("ngx.get_phase()"), "balancer");
    }

    fn elsewhere_it_is_refused(driver) {
        let backend = echo();
        let conf = format!(
            "http {{ upstream u {{ server 127.0.0.1:{}; balancer_by_lua_block {{ local a = 1 }} }}
                server {{ listen 127.0.0.1:%%PORT%%; error_log %%DIR%%/error.log info;
                    location /t {{ proxy_pass http://u;
                        log_by_lua_block {{ ngx.log(ngx.INFO, 'late: ', require('ngx.balancer').set_more_tries(1)) }} }}
                    location /c {{ content_by_lua_block {{ ngx.say(require('ngx.balancer').set_current_peer('127.0.0.1', 1)) }} }} }} }}",
            backend.port()
        );
        let server = Server::builder(&conf).start();
        assert_eq!(server.client().get("/t").status, 200, "the group's own server is asked");
        logs(&server, "late: nilAPI disabled in the current context");
        assert_eq!(server.client().get("/c").text(), "nilno upstream found\n");
    }

    fn scripts_end_requests(driver) {
        let status = |script: &str, group: &str| {
            let server = balanced(free_port(), script, group, "");
            (server.client().get("/").status, server)
        };
        assert_eq!(status("ngx.exit(503)", "server 127.0.0.1;").0, 503);
        assert_eq!(status("ngx.exit(ngx.ERROR)", "server 127.0.0.1;").0, 500);
        let (code, server) = status("local a = 1", "");
        assert_eq!(code, 500);
        logs(&server, "lua balancer: no peer set while connecting to upstream");
        let (code, server) = status("ngx.sleep(0)", "");
        assert_eq!(code, 500);
        logs(&server, "failed to run balancer_by_lua*: balancer_by_lua(");
        let (code, server) = status("b.set_current_peer(", "");
        assert_eq!(code, 500);
        logs(&server, "failed to load inlined Lua code: balancer_by_lua(");
    }

    fn limits_of_time_hold_for_the_request(driver) {
        let silent = Backend::start(|visit| visit.hang());
        let script = "b.set_current_peer('127.0.0.1', $BACK) assert(b.set_timeouts(nil, nil, 0.05))";
        let server = balanced(silent.port(), script, "", "");
        assert_eq!(server.client().get("/").status, 504);
        logs(&server, "upstream timed out (110: Connection timed out) while reading response header from upstream");
    }

    fn connections_are_kept_as_a_script_says(driver) {
        let backend = echo();
        let script = "b.set_current_peer('127.0.0.1', $BACK) assert(b.enable_keepalive(60, 2))";
        let server = balanced(backend.port(), script, "", "");
        let mut client = server.client();
        for _ in 0..4 {
            assert_eq!(client.get("/").status, 200);
        }
        assert_eq!(backend.visits(), 2, "two requests on each connection");
    }

    fn connections_are_kept_by_the_name_of_their_pool(driver) {
        let backend = echo();
        let script = "assert(b.set_current_peer('127.0.0.1', $BACK, { pool = ngx.var.arg_pool, pool_size = 1 }))";
        let server = balanced(backend.port(), script, "", "");
        let mut client = server.client();
        for pool in ["a", "b", "a", "b", "b", "a"] {
            assert_eq!(client.get(&format!("/?pool={pool}")).status, 200);
        }
        assert_eq!(backend.visits(), 2, "one connection of each name");
        assert_eq!(client.get("/").status, 200);
        assert_eq!(backend.visits(), 3, "neither is anybody's");
    }

    /// APIcast's directive: with a chooser, whose own `pool` goes first, and without one.
    fn connections_are_kept_by_a_name_of_the_configuration(driver) {
        let plain = "assert(b.set_current_peer('127.0.0.1', $BACK))";
        let own = "assert(b.set_current_peer('127.0.0.1', $BACK, { pool = 'own' }))";
        for (script, of_each) in [(Some(plain), 2), (Some(own), 1), (None, 2)] {
            let backend = echo();
            let balancer = script.map_or(String::new(), |script| {
                let script = script.replace("$BACK", &backend.port().to_string());
                format!("balancer_by_lua_block {{ local b = require 'ngx.balancer' {script} }}")
            });
            let server = Server::builder(&format!(
                "worker_processes 1; events {{}} http {{ upstream u {{ server 127.0.0.1:{}; {balancer}
                    keepalive 8; keepalive_pool $arg_pool$http_x_pool; }}
                 server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ''; }} }} }}",
                backend.port()
            )).driver(driver).start();
            let mut client = server.client();
            for pool in ["a", "b", "a", "b", "b", "a"] {
                assert_eq!(client.get(&format!("/?pool={pool}")).status, 200);
            }
            assert_eq!(backend.visits(), of_each, "{script:?}");
            // Without a name they are anybody's, but for those that have one.
            for _ in 0..3 {
                assert_eq!(client.get("/").status, 200);
            }
            assert_eq!(backend.visits(), of_each + usize::from(script != Some(own)), "{script:?}");
        }
    }

    /// Sessions of HTTP/2 as connections: each pool has its own.
    fn sessions_are_shared_within_a_pool(driver) {
        let server = Server::builder(
            "worker_processes 1; events {} http {
                upstream named { server 127.0.0.1:%%PORT_2%%; keepalive_pool $arg_pool; }
                upstream scripted { server 127.0.0.1:%%PORT_2%%; balancer_by_lua_block {
                    assert(require('ngx.balancer').set_current_peer('127.0.0.1', %%PORT_2%%, { pool = ngx.var.arg_pool })) } }
                server { listen 127.0.0.1:%%PORT%%; proxy_http_version 2;
                    location /named { proxy_pass http://named; } location /scripted { proxy_pass http://scripted; } }
                server { listen 127.0.0.1:%%PORT_2%%; http2 on; location / { return 200 $connection; } } }",
        ).driver(driver).start();
        let mut client = server.client();
        for way in ["named", "scripted"] {
            let [first, other, again] = ["a", "b", "a"].map(|pool| client.get(&format!("/{way}?pool={pool}")).text());
            assert_eq!(first, again, "{way}");
            assert_ne!(first, other, "{way}");
        }
    }

    fn tls_without_settings_is_refused_in_words(driver) {
        let script = "local ok, why = b.set_upstream_tls(true) ngx.log(ngx.INFO, 'said: ', tostring(ok), ' ', why)
            b.set_current_peer('127.0.0.1', $BACK)";
        let backend = echo();
        let server = balanced(backend.port(), script, "", "");
        assert_eq!(server.client().get("/").status, 200);
        logs(&server, "said: nil no TLS settings: the location's servers are asked by http://");
    }

    fn requests_are_composed_anew(driver) {
        let backend = echo();
        let script = "ngx.req.set_header('X-Try', 'again') b.set_current_peer('127.0.0.1', $BACK) assert(b.recreate_request())";
        let server = balanced(backend.port(), script, "", "");
        let text = server.client().get("/").text();
        assert!(text.contains("X-Try: again\r\n"), "{text}");

        let bodies = Backend::start(|visit| {
            while let Some(head) = visit.head() {
                let length = head.split("Content-Length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
                let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
                let Some(body) = visit.bytes(length) else { return };
                visit.answer(&String::from_utf8_lossy(&body));
            }
        });
        let script = "ngx.req.set_body_data('made here') b.set_current_peer('127.0.0.1', $BACK) assert(b.recreate_request())";
        let server = balanced(bodies.port(), script, "", "");
        let mut client = server.client();
        assert_eq!(client.get("/").text(), "made here");
        assert_eq!(client.get("/").text(), "made here", "on a connection that was kept");
    }

    fn connections_begin_where_a_script_says(driver) {
        let backend = Backend::start(|visit| {
            let from = visit.peer().map(|peer| peer.ip().to_string()).unwrap_or_default();
            while visit.head().is_some() {
                visit.answer(&from);
            }
        });
        let script = "b.set_current_peer('127.0.0.1', $BACK) assert(b.bind_to_local_addr('127.0.0.' .. ngx.var.arg_n))";
        let server = balanced(backend.port(), script, "", "");
        let mut client = server.client();
        for n in ["7", "8", "7"] {
            assert_eq!(client.get(&format!("/?n={n}")).text(), format!("127.0.0.{n}"));
        }
        assert_eq!(backend.visits(), 2, "a connection for each line");
    }

    fn a_script_decides_about_tls(driver) {
        let pair = own("a.example.com");
        let conf = "worker_processes 1; http { upstream u {
                balancer_by_lua_block { local b = require 'ngx.balancer'
                    if ngx.var.arg_plain then b.set_current_peer('127.0.0.1', %%PORT_2%%) assert(b.set_upstream_tls(false))
                    else b.set_current_peer('127.0.0.1', %%PORT_1%%, ngx.var.arg_name) end } }
            server { listen 127.0.0.1:%%PORT%%; proxy_ssl_server_name on; location / { proxy_pass https://u/; } }
            server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key;
                return 200 \"$ssl_server_name $connection_requests\"; }
            server { listen 127.0.0.1:%%PORT_2%%; return 200 plain; } }";
        let builder = Server::builder(conf).file("a.crt", &pair.certificate).file("a.key", &pair.key);
        let server = builder.driver(driver).start();
        let mut client = server.client();
        assert_eq!(client.get("/?name=a.example.com").text(), "a.example.com 1");
        assert_eq!(client.get("/?name=b.example.com").text(), "b.example.com 1", "a name has connections of its own");
        assert_eq!(client.get("/?name=a.example.com").text(), "a.example.com 2");
        assert_eq!(client.get("/?name=").text(), "u 1");
        assert_eq!(client.get("/?plain=1").text(), "plain");
    }

    fn files_and_code_without_a_cache(driver) {
        let backend = echo();
        let conf = "http { lua_code_cache off; upstream u { balancer_by_lua_file b.lua; balancer_keepalive 4; }
                server { listen 127.0.0.1:%%PORT%%; location / { proxy_pass http://u; } } }";
        let script = format!("assert(require('ngx.balancer').set_current_peer('127.0.0.1', {}))", backend.port());
        let server = Server::builder(conf)
            .file("b.lua", &script)
            .allow("lua_code_cache is off; this will hurt performance")
            .driver(driver)
            .start();
        let mut client = server.client();
        assert_eq!(client.get("/").status, 200);
        assert_eq!(client.get("/").status, 200);
    }
}

#[test]
fn a_group_has_one_script() {
    let twice = "http { upstream u { balancer_by_lua 'a()'; balancer_by_lua 'b()'; } }";
    let exit = Server::builder(twice).run(&["-t"]);
    assert!(exit.stderr.contains("\"balancer_by_lua\" directive is duplicate"), "{}", exit.stderr);
    let none = "http { upstream u { balancer_keepalive 0; balancer_by_lua 'a()'; } }";
    let exit = Server::builder(none).run(&["-t"]);
    assert!(
        exit.stderr.contains("invalid value \"0\" in \"balancer_keepalive\" directive"),
        "{}",
        exit.stderr
    );
    let behind = "http { upstream u { server 127.0.0.1; keepalive 3; balancer_by_lua 'a()'; } }";
    let exit = Server::builder(behind).run(&["-t"]);
    assert!(exit.stderr.contains("load balancing method redefined"), "{}", exit.stderr);
}
