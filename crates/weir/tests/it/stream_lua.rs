//! Lua in `stream`: scripts of sessions in their phases, and what they reach.

use crate::support::tls as support;

use support::{TlsClient, client, own};
use weir_test::{Backend, BackendVisit, Client, Server, TestServerBuilder, both_drivers, wait_for};

/// Sends back what comes, until the other side has said all.
fn echo(visit: &mut BackendVisit) {
    while let Some(byte) = visit.bytes(1) {
        visit.send(byte);
    }
}

fn stream(text: &str) -> TestServerBuilder {
    Server::builder(&format!("stream {{ {text} }}"))
}

/// What a session gets that says `text`.
fn said(server: &Server, port: usize, text: &str) -> String {
    let mut client = Client::connect(server.addr(port));
    client.send(text);
    String::from_utf8_lossy(&client.rest().0).into_owned()
}

both_drivers! {
    fn scripts_of_a_session_share_its_context_and_its_variables(driver) {
        let backend = Backend::start(echo);
        for workers in [1, 3] {
            let server = Server::builder(&format!("worker_processes {workers}; stream {{
                lua_add_variable $seen;
                log_format t '$status $set $seen'; access_log %%DIR%%/access.log t;
                upstream some {{ server 0.0.0.1:1; balancer_by_lua_block {{
                    ngx.ctx.phases = ngx.ctx.phases .. ' ' .. ngx.get_phase()
                    assert(require 'ngx.balancer'.set_current_peer('127.0.0.1', {}))
                }} }}
                server {{ listen 127.0.0.1:%%PORT%%; set $set first; proxy_pass some;
                    preread_by_lua_block {{
                        assert(ngx.var.seen == nil and ngx.var.set == 'first' and ngx.var.protocol == 'TCP')
                        ngx.ctx.phases = ngx.get_phase()
                        ngx.var.set = 'by a script'
                    }}
                    log_by_lua_block {{
                        ngx.var.seen = ngx.ctx.phases .. ' ' .. ngx.get_phase() .. ' ' .. ngx.var.bytes_received .. ' ' .. ngx.var.status
                    }} }} }}", backend.port())).driver(driver).start();
            let mut client = server.client();
            client.send("there and back");
            client.until("there and back");
            drop(client);
            assert_eq!(server.access_log_lines(1), ["200 by a script preread balancer log 14 200"]);
        }
    }

    /// Of what a script looks at the next phases get all, of what it takes the rest.
    fn what_is_peeked_stays_and_what_is_received_is_gone(driver) {
        let backend = Backend::start(echo);
        for workers in [1, 3] {
            let server = Server::builder(&format!("worker_processes {workers}; stream {{
                log_format t '$server_port $status $bytes_received $bytes_sent'; access_log %%DIR%%/access.log t;
                server {{ listen 127.0.0.1:%%PORT%%; proxy_pass 127.0.0.1:{0}; preread_by_lua_block {{
                    local sock = assert(ngx.req.socket())
                    assert(sock:peek(5) == 'hello')
                    assert(sock:peek(11) == 'hello world')
                }} }}
                server {{ listen 127.0.0.1:%%PORT_1%%; proxy_pass 127.0.0.1:{0}; preread_by_lua_block {{
                    local sock = assert(ngx.req.socket())
                    assert(sock:peek(11) == 'hello world')
                    assert(sock:receive(6) == 'hello ')
                    local ok, why = pcall(sock.peek, sock, 1)
                    assert(not ok and why:find 'attempt to peek on a consumed socket')
                }} }}
                server {{ listen 127.0.0.1:%%PORT_2%%; preread_by_lua_block {{ ngx.ctx.sock = ngx.req.socket() ngx.ctx.sock:peek(3) }}
                    content_by_lua_block {{ ngx.say(ngx.ctx.sock:receive(5), ngx.req.socket():receive(6)) }} }}
            }}", backend.port())).driver(driver).start();
            for (port, back) in [(0, "hello world"), (1, "world")] {
                let mut client = Client::connect(server.addr(port));
                client.send("hello");
                client.send(" world");
                client.until(back);
                drop(client);
                let line = server.access_log_lines(port + 1).remove(port);
                assert_eq!(line, format!("{} 200 11 {}", server.port(port), back.len()));
            }
            assert_eq!(said(&server, 2, "hello world"), "hello world\n");
        }
    }

    fn a_look_that_finds_no_end_ends_the_session(driver) {
        let server = stream("log_format t '$status'; access_log %%DIR%%/access.log t;
            server { listen 127.0.0.1:%%PORT%%; preread_buffer_size 4; return later;
                preread_by_lua_block { ngx.req.socket():peek(5) ngx.say('not reached') } }
            server { listen 127.0.0.1:%%PORT_1%%; preread_timeout 50ms; return later;
                preread_by_lua_block { ngx.req.socket():peek(50) ngx.say('not reached') } }
            server { listen 127.0.0.1:%%PORT_2%%; return later;
                preread_by_lua_block { ngx.req.socket():peek(50) ngx.say('not reached') } }
        ").driver(driver).start();
        assert_eq!(said(&server, 0, "hello"), "");
        assert!(server.error_log_line("preread buffer full while prereading client data").contains("[error]"));
        assert_eq!(said(&server, 1, "hello"), "");
        let mut client = Client::connect(server.addr(2));
        client.send("hello").half_close();
        client.expect_close();
        assert_eq!(server.access_log_lines(3), ["400", "200", "200"]);
    }

    fn an_exit_says_what_becomes_of_the_session(driver) {
        let script = |port: &str, code: &str| {
            format!("server {{ listen 127.0.0.1:%%{port}%%; preread_by_lua_block {{ {code} }} content_by_lua_block {{ ngx.print('content') }} }}")
        };
        let server = stream(&format!("log_format t '$status'; access_log %%DIR%%/access.log t; {} {} {} {} {} {}
            server {{ listen 127.0.0.1:%%PORT_6%%; content_by_lua_block {{ ngx.print('a') ngx.exit(403) ngx.print('b') }} }}
            server {{ listen 127.0.0.1:%%PORT_7%%; content_by_lua_block {{ pcall(ngx.exit, ngx.OK) ngx.print('b') }} }}",
            script("PORT", "ngx.exit(ngx.OK) ngx.print('b')"), script("PORT_1", "ngx.exit(ngx.DECLINED)"),
            script("PORT_2", "ngx.exit(ngx.ERROR)"), script("PORT_3", "ngx.print('a') ngx.exit(503)"),
            script("PORT_4", "ngx.exit(200)"), script("PORT_5", "error 'boom'"))).driver(driver).start();
        let expected = [
            ("content", 200), ("content", 200), ("", 500), ("a", 503), ("", 200), ("", 500), ("a", 403), ("", 200),
        ];
        for (port, (text, status)) in expected.into_iter().enumerate() {
            assert_eq!(said(&server, port, ""), text, "{port}");
            assert_eq!(server.access_log_lines(port + 1).remove(port), status.to_string(), "{port}");
        }
        let line = server.error_log_line("lua entry thread aborted: runtime error: preread_by_lua(");
        assert!(line.contains(":1: boom") && line.contains("[error]"), "{line}");
    }

    /// What is no known code is no leave to go on.
    fn a_session_with_an_unknown_exit_goes_no_further(driver) {
        let codes = ["1", "100", "-3"];
        let servers: String = ["PORT", "PORT_1", "PORT_2"].into_iter().zip(codes).map(|(port, code)| {
            format!("server {{ listen 127.0.0.1:%%{port}%%; preread_by_lua_block {{ ngx.exit({code}) }} content_by_lua_block {{ ngx.print('content') }} }}")
        }).collect();
        let server = stream(&servers).driver(driver).start();
        for (port, code) in codes.into_iter().enumerate() {
            assert_eq!(said(&server, port, ""), "", "{code}");
        }
    }

    /// Each has its VM, whose scripts say for which they are; dictionaries of one name are one.
    fn http_and_stream_have_vms_of_their_own_and_dictionaries_in_common(driver) {
        let both = "lua_shared_dict both 1m; lua_shared_dict own 1m;
            init_by_lua_block { side = ngx.config.subsystem; ngx.shared.both:set(side, true) }
            init_worker_by_lua_block { ngx.timer.at(0, function() ngx.shared.both:set(ngx.config.subsystem .. ' timer', ngx.get_phase()) end) }";
        let text = "local dict = ngx.shared.both ngx.say(side, ' ', dict:get 'http', ' ', dict:get 'stream', ' ', (dict:incr('n', 1, 0)))";
        for workers in [1, 2] {
            let server = Server::builder(&format!("worker_processes {workers};
                http {{ {both} server {{ listen 127.0.0.1:%%PORT%%;
                    location / {{ content_by_lua_block {{ {text} }} }}
                    location /timers {{ content_by_lua_block {{ ngx.print(ngx.shared.both:get 'stream timer', (ngx.shared.both:get 'http timer')) }} }} }} }}
                stream {{ {both} lua_shared_dict alone 1m; server {{ listen 127.0.0.1:%%PORT_1%%; content_by_lua_block {{ {text} }} }} }}
            ")).driver(driver).start();
            assert_eq!(server.get("/").text(), "http true true 1\n");
            assert_eq!(said(&server, 1, ""), "stream true true 2\n");
            assert_eq!(server.get("/").text(), "http true true 3\n");
            wait_for("timers of both", || (server.get("/timers").text() == "timertimer").then_some(()));
        }
    }

    /// As in OpenResty a script of the log phase runs before the access log is written, of requests and of sessions.
    fn what_a_log_script_sets_is_in_the_access_log(driver) {
        let server = Server::builder("
            http { log_format t '$x'; access_log %%DIR%%/access.log t; server { listen 127.0.0.1:%%PORT%%; set $x ''; return 204;
                log_by_lua_block { ngx.var.x = 'request' } } }
            stream { lua_add_variable $x; log_format t '$x'; access_log %%DIR%%/access.log t;
                server { listen 127.0.0.1:%%PORT_1%%; return x; log_by_lua_block { ngx.var.x = 'session' } } }
        ").driver(driver).start();
        server.get("/");
        assert_eq!(server.access_log_lines(1), ["request"]);
        assert_eq!(said(&server, 1, ""), "x");
        assert_eq!(server.access_log_lines(2), ["request", "session"]);
    }

    fn functions_of_requests_are_not_there(driver) {
        let server = stream("server { listen 127.0.0.1:%%PORT%%; content_by_lua_block {
                for _, name in ipairs { 'header', 'resp', 'location', 'redirect', 'exec', 'send_headers', 'arg', 'headers_sent', 'is_subrequest' } do
                    if ngx[name] ~= nil then ngx.say(name) end
                end
                for name in pairs(ngx.req) do ngx.say(name) end
                ngx.say(pcall(require, 'ngx.resp'))
                ngx.say((pcall(require 'resty.core.base'.allows_subsystem, 'http')), (pcall(require 'resty.core.base'.allows_subsystem, 'http', 'stream')))
                ngx.say(ngx.config.ngx_lua_version < 1000, require 'ngx.base64'.encode_base64url 'x')
            } log_by_lua_block { ngx.shared = { pcall(ngx.say, 'x'), select(2, pcall(ngx.say, 'x')) }
                assert(ngx.shared[2]:find('API disabled in the context of log_by_lua*', 1, true)) } }").driver(driver).start();
        let text = said(&server, 0, "");
        assert!(text.contains("socket\n") && text.contains("start_time\n"), "{text}");
        assert!(text.ends_with("false\ntrueeA\n") || text.contains("falsetrue\ntrueeA\n"), "{text}");
        assert!(text.contains("unsupported subsystem: stream"), "{text}");
        assert_eq!(text.lines().count(), 5, "{text}");
    }

    fn the_client_s_socket_is_read_written_and_shut_down(driver) {
        let server = stream("log_format t '$bytes_received $bytes_sent'; access_log %%DIR%%/access.log t;
            server { listen 127.0.0.1:%%PORT%%; lua_socket_log_errors off; content_by_lua_block {
                local sock = assert(ngx.req.socket(true))
                ngx.say(sock:receive())
                ngx.say(sock:receiveuntil('--')())
                ngx.say(sock:receiveany(100))
                sock:settimeouts(1000, 1000, 20)
                ngx.say(sock:receive(1))
                assert(ngx.flush(true) == 1)
                ngx.say(pcall(sock.shutdown, sock, 'receive'))
                assert(sock:send { 'raw', 1 } == 4)
                ngx.flush()
                assert(sock:shutdown 'send')
                local ok, why = sock:send 'x'
                assert(not ok and why == 'closed')
                ok, why = sock:shutdown 'send'
                assert(not ok and why == 'already shutdown')
                ok, why = ngx.say 'x'
                assert(not ok and why == 'seen eof')
                sock:settimeouts(1000, 1000, 5000)
                assert(sock:receive '*a' == 'last words')
            } }
            server { listen 127.0.0.1:%%PORT_1%%; content_by_lua_block {
                ngx.say 'all'
                assert(ngx.eof())
                local ok, why = ngx.eof()
                assert(not ok and why == 'seen eof')
                assert(ngx.req.socket():receive '*a' == 'heard')
            } }
        ").driver(driver).start();
        let mut client = server.client();
        client.send("a line\r\nmore--rest");
        client.until("raw1");
        client.send("last words").half_close();
        let text = String::from_utf8_lossy(&client.rest().0).into_owned();
        assert!(text.starts_with("a line\nmore\nrest\nniltimeout\nfalse"), "{text}");
        assert!(text.ends_with("bad shutdown argument: receive)\nraw1"), "{text}");
        let mut client = Client::connect(server.addr(1));
        assert_eq!(client.bytes(4), b"all\n");
        assert!(client.peek(1).is_err());
        client.send("heard").half_close();
        let lines = server.access_log_lines(2);
        assert!(lines[0].starts_with("28 "), "{lines:?}");
        assert_eq!(lines[1], "5 4");
    }

    /// One thread's wait for a client that takes nothing does not hold up another that hears it.
    fn threads_of_a_session_speak_and_hear_at_the_same_time(driver) {
        const MUCH: usize = 8_000_000;
        let server = stream(&format!("server {{ listen 127.0.0.1:%%PORT%%; content_by_lua_block {{
            local sock, text = ngx.req.socket(), string.rep('x', 100000)
            local speaker = ngx.thread.spawn(function()
                for _ = 1, {MUCH} / #text do assert(ngx.print(text)) end
                return ngx.flush(true)
            end)
            local heard = 0
            local hearer = ngx.thread.spawn(function()
                while heard < {MUCH} do heard = heard + #assert(sock:receive(100000)) end
            end)
            assert(ngx.thread.wait(hearer))
            assert(ngx.thread.wait(speaker))
            ngx.print('heard ', heard)
        }} }}")).driver(driver).start();
        let mut client = server.client();
        client.send(vec![b'y'; MUCH]);
        let text = client.rest().0;
        assert_eq!(text.len(), MUCH + "heard 8000000".len());
        assert!(text.ends_with(b"heard 8000000"));
    }

    fn a_session_s_scripts_have_sockets_timers_and_semaphores(driver) {
        let backend = Backend::start(echo);
        let server = stream(&format!("lua_shared_dict d 1m; server {{ listen 127.0.0.1:%%PORT%%; content_by_lua_block {{
            local sock = ngx.socket.tcp()
            assert(sock:connect('127.0.0.1', {}))
            sock:send 'by way of a cosocket'
            ngx.say(sock:receive(20))
            local semaphore = require 'ngx.semaphore'.new()
            ngx.timer.at(0, function() ngx.shared.d:set('phase', ngx.get_phase()) semaphore:post() end)
            assert(semaphore:wait(10))
            ngx.say(ngx.shared.d:get 'phase')
            ngx.sleep(0.01)
            assert(sock:shutdown 'send')
            ngx.say(sock:receive '*a', ngx.md5 'x', ngx.re.match('ab', 'b')[0])
        }} }}", backend.port())).driver(driver).start();
        assert_eq!(said(&server, 0, ""), "by way of a cosocket\ntimer\n9dd4e461268c8034f5c8564e155c67a6b\n");
    }

    fn a_balancer_tries_other_servers(driver) {
        let backend = Backend::start(echo);
        let closed = weir_test::free_port();
        let server = stream(&format!("log_format t '$status $upstream_addr'; access_log %%DIR%%/access.log t;
            upstream some {{ server 0.0.0.1:1; balancer_by_lua_block {{
                local balancer, ctx = require 'ngx.balancer', ngx.ctx
                ctx.tries = (ctx.tries or 0) + 1
                if ctx.tries == 1 then
                    assert(balancer.set_more_tries(1))
                    assert(balancer.set_timeouts(1, 1, 1))
                    assert(balancer.set_current_peer('127.0.0.1', {closed}))
                else
                    assert(balancer.get_last_failure() == 'failed')
                    assert(balancer.set_current_peer('127.0.0.1', {}))
                end
            }} }}
            upstream refused {{ server 0.0.0.1:1; balancer_by_lua_block {{ ngx.exit(ngx.ERROR) }} }}
            server {{ listen 127.0.0.1:%%PORT%%; proxy_pass some; }}
            server {{ listen 127.0.0.1:%%PORT_1%%; proxy_pass refused; }}", backend.port())).driver(driver)
            .allow("connect() failed").start();
        let mut client = server.client();
        client.send("there and back");
        client.until("there and back");
        drop(client);
        let line = server.access_log_lines(1).remove(0);
        assert_eq!(line, format!("200 127.0.0.1:{closed}, 127.0.0.1:{}", backend.port()));
        assert_eq!(said(&server, 1, ""), "");
        assert_eq!(server.access_log_lines(2).remove(1), "500 -");
    }

    fn scripts_of_handshakes_choose_certificates(driver) {
        let (a, b) = (own("a.example.com"), own("b.example.com"));
        let server = stream("lua_ssl_trusted_certificate b.crt; server { listen 127.0.0.1:%%PORT%% ssl; ssl_certificate a.crt; ssl_certificate_key a.key;
                ssl_client_hello_by_lua_block { ngx.ctx.hello = require 'ngx.ssl.clienthello'.get_client_hello_server_name() .. ' ' .. ngx.get_phase() }
                ssl_certificate_by_lua_block {
                    local ssl, read = require 'ngx.ssl', function(name) local file = io.open(ngx.config.prefix() .. name) local text = file:read '*a' file:close() return text end
                    ngx.sleep(0)
                    assert(ssl.clear_certs())
                    assert(ssl.set_cert(assert(ssl.parse_pem_cert(read 'b.crt'))))
                    assert(ssl.set_priv_key(assert(ssl.parse_pem_priv_key(read 'b.key'))))
                    ngx.ctx.certificate = ngx.get_phase()
                }
                content_by_lua_block { ngx.say(ngx.ctx.hello, ' ', ngx.ctx.certificate, ' ', ngx.req.socket():receive(3)) } }
            server { listen 127.0.0.1:%%PORT_1%%; content_by_lua_block {
                local sock = ngx.socket.tcp()
                assert(sock:connect('127.0.0.1', %%PORT%%))
                assert(sock:sslhandshake(nil, 'b.example.com', true))
                sock:send 'abc'
                ngx.print(sock:receive '*a')
            } }").file("a.crt", &a.certificate).file("a.key", &a.key).file("b.crt", &b.certificate).file("b.key", &b.key)
            .driver(driver).start();
        assert_eq!(said(&server, 1, ""), "b.example.com ssl_client_hello ssl_cert abc\n");
        let mut tls = TlsClient::connect(server.addr(0), "b.example.com", &client(true, None));
        tls.send(b"xyz");
        assert_eq!(tls.bytes(), b"b.example.com ssl_client_hello ssl_cert xyz\n");
    }

    /// Names of ngx_stream_lua and of lua-kong-nginx-module for `stream`.
    fn c_functions_know_sessions(driver) {
        let backend = Backend::start(echo);
        let server = stream(&format!("lua_shared_dict d 1m; lua_add_variable $tag; log_format t '$tag'; access_log %%DIR%%/access.log t;
            server {{ listen 127.0.0.1:%%PORT%%; proxy_ssl on; proxy_pass 127.0.0.1:{}; lua_kong_set_static_tag tagged;
                preread_by_lua_block {{
                    local ffi, request = require 'ffi', require 'resty.core.base'.get_request()
                    ffi.cdef [[int ngx_stream_lua_kong_ffi_proxy_ssl_disable(ngx_stream_lua_request_t *);
                        ngx_str_t *ngx_stream_lua_kong_ffi_get_static_tag(ngx_stream_lua_request_t *);
                        int ngx_stream_lua_ffi_get_ctx_ref(ngx_stream_lua_request_t *);
                        void *ngx_stream_lua_find_zone(char *, size_t);]]
                    assert(ffi.C.ngx_stream_lua_kong_ffi_proxy_ssl_disable(request) == 0)
                    local tag = ffi.C.ngx_stream_lua_kong_ffi_get_static_tag(request)
                    ngx.var.tag = ffi.string(tag.data, tag.len)
                    ngx.ctx.x = true
                    assert(ffi.C.ngx_stream_lua_ffi_get_ctx_ref(request) > 0)
                    local name = ffi.new('char[2]', 'd')
                    assert(ffi.C.ngx_stream_lua_find_zone(name, 1) ~= nil)
                    name[0] = 101
                    assert(ffi.C.ngx_stream_lua_find_zone(name, 1) == nil)
                }} }}", backend.port())).driver(driver).start();
        let mut client = server.client();
        client.send("in clear text");
        client.until("in clear text");
        drop(client);
        assert_eq!(server.access_log_lines(1), ["tagged"]);
    }

    /// It neither ends the server nor holds up others for longer than it may.
    fn a_script_without_an_end_is_stopped(driver) {
        let server = Server::builder("worker_processes 1; stream { lua_cpu_limit 50ms; lua_memory_limit 64m; log_format t '$status'; access_log %%DIR%%/access.log t;
            server { listen 127.0.0.1:%%PORT%%; preread_by_lua_block { while true do end } return x; }
            server { listen 127.0.0.1:%%PORT_1%%; content_by_lua_block { local t = {} while true do t[#t + 1] = ('x'):rep(1000000) .. #t ngx.sleep(0) end } }
            server { listen 127.0.0.1:%%PORT_2%%; content_by_lua_block { ngx.say 'well' } } }").driver(driver).start();
        assert_eq!(said(&server, 0, ""), "");
        assert!(server.error_log_line("lua_cpu_limit").contains("preread_by_lua("));
        assert_eq!(said(&server, 1, ""), "");
        assert!(server.error_log_line("not enough memory").contains("[error]"));
        assert_eq!(said(&server, 2, ""), "well\n");
        assert_eq!(server.access_log_lines(3), ["500", "500", "200"]);
    }

    fn a_session_keeps_its_scripts_over_a_reload(driver) {
        let conf = |name: &str| format!("stream {{ lua_shared_dict d 1m; init_by_lua_block {{ name = '{name}' }}
            server {{ listen 127.0.0.1:%%PORT%%; content_by_lua_block {{
                local sock = ngx.req.socket()
                while true do
                    local line = sock:receive()
                    if not line then return end
                    ngx.say(name, ' ', line, ' ', (ngx.shared.d:incr('n', 1, 0)))
                end
            }} }} }}");
        let mut server = Server::builder(&conf("old")).driver(driver).start();
        let mut first = server.client();
        first.send("one\n");
        first.until("old one 1\n");
        server.reload(&conf("new"));
        let mut count = 1;
        wait_for("the new configuration", || {
            count += 1;
            let mut client = server.client();
            client.send("x\n").half_close();
            (String::from_utf8_lossy(&client.rest().0) == format!("new x {count}\n")).then_some(())
        });
        first.send("two\n");
        first.until(&format!("old two {}\n", count + 1));
        server.signal(weir_test::ServerSignal::Quit);
        first.send("three\n");
        first.until(&format!("old three {}\n", count + 2));
        first.half_close();
        first.rest();
        assert!(server.wait_exit().status.success());
    }

    fn a_client_that_leaves_is_noticed_where_that_is_wanted(driver) {
        let server = stream("lua_shared_dict d 1m; lua_check_client_abort on; log_format t '$server_port $status'; access_log %%DIR%%/access.log t;
            server { listen 127.0.0.1:%%PORT%%; content_by_lua_block { ngx.say 'begun' ngx.flush() ngx.sleep(3600) } }
            server { listen 127.0.0.1:%%PORT_1%%; content_by_lua_block {
                assert(ngx.on_abort(function() ngx.shared.d:set('left', true) ngx.exit(444) end))
                ngx.say 'begun' ngx.flush() ngx.sleep(3600) } }
            server { listen 127.0.0.1:%%PORT_2%%; content_by_lua_block { ngx.print(ngx.shared.d:get 'left') } }
        ").driver(driver).start();
        for (port, status) in [(0, 499), (1, 444)] {
            let mut client = Client::connect(server.addr(port));
            client.until("begun\n");
            drop(client);
            let line = server.access_log_lines(port + 1).remove(port);
            assert_eq!(line, format!("{} {status}", server.port(port)));
        }
        assert_eq!(said(&server, 2, ""), "true");
    }

    fn without_the_code_cache_each_session_has_a_vm(driver) {
        let server = stream("lua_code_cache off; init_by_lua_block { count = 0 } server { listen 127.0.0.1:%%PORT%%;
            preread_by_lua_block { count = count + 1 } content_by_lua_file say.lua; }")
            .file("say.lua", "count = count + 1 ngx.print(count, ngx.config.subsystem)").allow("lua_code_cache is off")
            .allow("writing a global Lua variable").driver(driver).start();
        for _ in 0..2 {
            assert_eq!(said(&server, 0, ""), "2stream");
        }
    }
}

#[test]
fn what_is_wrong_with_scripts_is_said_with_its_place() {
    let content = "server { listen 127.0.0.1:%%PORT%%; content_by_lua_block { }";
    for (text, message) in [
        (
            "http { preread_by_lua_block { } }".to_owned(),
            "\"preread_by_lua_block\" directive is not allowed here",
        ),
        ("http { lua_add_variable $x; }".to_owned(), "\"lua_add_variable\" directive is not allowed here"),
        (
            format!("stream {{ {content} access_by_lua_block {{ }} }} }}"),
            "\"access_by_lua_block\" directive is not allowed here",
        ),
        (
            format!("stream {{ {content} lua_need_request_body on; }} }}"),
            "\"lua_need_request_body\" directive is not allowed here",
        ),
        (
            "stream { content_by_lua_block { } }".to_owned(),
            "\"content_by_lua_block\" directive is not allowed here",
        ),
        (format!("stream {{ {content} return x; }} lua_add_variable x; }}"), "invalid variable name \"x\""),
        (
            format!("http {{ lua_shared_dict d 1m; }} stream {{ lua_shared_dict d 2m; {content} }} }}"),
            "the size 2097152 of shared memory zone \"d\" conflicts with already declared size 1048576",
        ),
        (
            format!("stream {{ lua_shared_dict d 1m; lua_shared_dict d 1m; {content} }} }}"),
            "lua_shared_dict \"d\" is already defined as \"d\"",
        ),
    ] {
        let exit = Server::builder(&text).run(&["-t"]);
        assert!(!exit.status.success() && exit.stderr.contains(message), "{text}: {}", exit.stderr);
    }
    let conf = format!("stream {{ init_by_lua_block {{ error 'no' }} {content} }} }}");
    let refused = Server::builder(&conf).try_start().map(drop).expect_err("init_by_lua has failed");
    assert!(refused.stderr.contains("init_by_lua error: init_by_lua("), "{}", refused.stderr);
}
