//! Cosockets against servers that say what a test wants, cut where it wants.

use std::net::Ipv4Addr;
use std::sync::{Mutex, mpsc};

use crate::support::tls;

use tls::authority;
use weir_test::{Backend, DEADLINE, NameReply, NameServer, Server, both_drivers, wait_for};

/// A server whose scripts know the backend's port as `PORT`.
fn serve(backend: &Backend, http: &str, locations: &str) -> Server {
    let conf = format!(
        "events {{}}\nhttp {{ init_by_lua_block {{ PORT = {} }} {http}\n\
         server {{ listen 127.0.0.1:%%PORT%%; default_type text/plain;\n{locations}\n}} }}\n",
        backend.port()
    );
    Server::builder(&conf).start()
}

/// A content script at `/` that has `sock`, connected to the backend, and what it says.
fn say(backend: &Backend, script: &str) -> String {
    served(backend, script).get("/").text()
}

fn served(backend: &Backend, script: &str) -> Server {
    let connect = "local sock = ngx.socket.tcp() assert(sock:connect('127.0.0.1', PORT))";
    serve(backend, "", &format!("location / {{ content_by_lua_block {{ {connect}\n{script} }} }}"))
}

/// A backend that responds to each line: `+line`.
fn echo() -> Backend {
    Backend::start(|visit| {
        let mut line = Vec::new();
        while let Some(byte) = visit.bytes(1) {
            line.extend_from_slice(&byte);
            if byte == b"\n" && !visit.send([b"+", &line[..]].concat()) {
                return;
            }
            if byte == b"\n" {
                line.clear();
            }
        }
    })
}

both_drivers! {
    fn lines_counts_and_the_rest_however_they_are_cut(driver) {
        let backend = Backend::start(|visit| {
            for piece in ["o", "ne\r", "\ntwo\nfo", "u", "r!the", " rest", " of it"] {
                visit.send(piece);
            }
        });
        let said = say(&backend, "ngx.say(sock:receive()) ngx.say(sock:receive('*l')) ngx.say(sock:receive(0), '.')
            ngx.say(sock:receive(5)) ngx.say(sock:receive('*a')) ngx.say(sock:receive()) ngx.say(sock:close()) ngx.say(sock:close())");
        assert_eq!(said, "one\ntwo\n.\nfour!\nthe rest of it\nnilclosed\n1\nnilclosed\n");
    }

    fn what_came_of_a_receive_that_failed_is_given(driver) {
        let backend = Backend::start(|visit| {
            visit.send("abcde");
            if visit.bytes(2).is_some() {
                visit.send("fgh");
            }
        });
        let said = say(&backend, "local got = ''
            sock:settimeout(20)
            repeat
                local data, err, part = sock:receive(100)
                assert(not data and err == 'timeout')
                got = got .. part
            until #got == 5
            sock:settimeout(60000)
            ngx.say(got, ' ', sock:send('go'))
            local data, err, part = sock:receive(100)
            ngx.say(data, ' ', err, ' ', part)
            data, err, part = sock:receive(100)
            ngx.say(data, ' ', err, ' ', part)");
        assert_eq!(said, "abcde 2\nnil closed fgh\nnil closed nil\n");
    }

    fn a_timeout_is_logged_with_the_peer_unless_that_is_off(driver) {
        let backend = Backend::start(|visit| visit.hang());
        let script = "content_by_lua_block { local sock = ngx.socket.tcp() sock:settimeouts(60000, 60000, 20)
            assert(sock:connect('127.0.0.1', PORT)) ngx.say(sock:receive()) }";
        let server = serve(&backend, "", &format!(
            "location /quiet {{ lua_socket_log_errors off; {script} }} location / {{ {script} }}"));
        assert_eq!(server.get("/quiet").text(), "niltimeout\n");
        assert!(!server.error_log().contains("timed out"), "{}", server.error_log());
        assert_eq!(server.get("/").text(), "niltimeout\n");
        let wanted = format!("lua tcp socket read timed out, upstream: 127.0.0.1:{}(127.0.0.1), client: ", backend.port());
        let _ = server.error_log_line(&wanted);
    }

    fn up_to_a_pattern(driver) {
        let backend = Backend::start(|visit| {
            for piece in ["x--ab--", "abcy--a", "bc12345--", "--abcend"] {
                visit.send(piece);
            }
        });
        let said = say(&backend, "local next = sock:receiveuntil('--abc')
            ngx.say(next()) ngx.say(sock:receive(1)) ngx.say(next())
            local pieces = sock:receiveuntil('--abc', { inclusive = true })
            ngx.say(pieces(3)) ngx.say(pieces(3)) ngx.say(pieces(3))
            local data, err, part = pieces(3)
            ngx.say(data, ' ', err, ' ', part)
            ngx.say(sock:receiveuntil('') == nil, ' ', select(2, sock:receiveuntil('')))
            data, err, part = next()
            ngx.say(data, ' ', err, ' ', part) ngx.say(next())");
        assert_eq!(said, "x--ab\ny\n\n123\n45-\n---abc\nnil nil nil\ntrue pattern is empty\nnil closed end\nnilclosed\n");
    }

    fn whatever_there_is(driver) {
        let backend = Backend::start(|visit| {
            visit.send("abcdef");
        });
        let said = say(&backend, "local got = ''
            while true do
                local data, err = sock:receiveany(4)
                if not data then ngx.say(got, ' ', err) break end
                assert(#data > 0 and #data <= 4)
                got = got .. data
            end");
        assert_eq!(said, "abcdef closed\n");
    }

    fn values_are_sent_as_texts(driver) {
        let said = say(&echo(), "ngx.say(sock:send({ 'a', { 1, { 'b' } }, 2.5, '\\n' }), sock:receive())
            ngx.say(sock:send(12), sock:send(true), sock:send(nil), sock:send(''), sock:send('\\n'), sock:receive())
            for _, bad in ipairs { { true }, { a = 1 }, print } do
                ngx.say(select(2, pcall(sock.send, sock, bad)))
            end");
        assert_eq!(
            said,
            "7+a1b2.5\n24301+12truenil\nbad argument #2 to '?' (bad data type boolean found)\n\
             bad argument #2 to '?' (non-array table found)\n\
             bad argument #2 to '?' (string, number, boolean, nil, or array table expected, got function)\n"
        );
    }

    fn a_send_that_is_not_taken_times_out(driver) {
        // Reads nothing before the test is over.
        let (over, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let backend = Backend::start(move |_| drop(wait.lock().map(|wait| wait.recv())));
        let server = served(&backend, "sock:settimeout(50) ngx.say(sock:send(('x'):rep(64 * 1024 * 1024)))");
        assert_eq!(server.get("/").text(), "niltimeout\n");
        let _ = server.error_log_line("lua tcp socket write timed out, upstream: 127.0.0.1:");
        drop(over);
    }

    fn large_bodies_both_ways(driver) {
        let backend = Backend::start(|visit| {
            if let Some(bytes) = visit.bytes(3_000_000) {
                visit.send(bytes);
            }
        });
        let said = say(&backend, "local text = ('0123456789'):rep(300000)
            ngx.say(sock:send(text), ' ', sock:receive(3000000) == text)");
        assert_eq!(said, "3000000 true\n");
    }

    fn connections_are_kept(driver) {
        let backend = echo();
        let server = served(&backend, "sock:send('hello\\n') ngx.say(sock:receive(), ' ', sock:getreusedtimes(), ' ', sock:setkeepalive())
            ngx.say(sock:receive()) ngx.say(sock:getreusedtimes())");
        let mut client = server.client();
        for used in 0..3 {
            assert_eq!(client.get("/").text(), format!("+hello {used} 1\nnilclosed\nnilclosed\n"));
        }
        assert_eq!(backend.visits(), 1);
    }

    fn what_is_unread_is_not_kept(driver) {
        let said = say(&echo(), "sock:send('hello\\n') sock:receive(2) ngx.say(sock:setkeepalive()) ngx.say(sock:receive())");
        assert_eq!(said, "nilunread data in buffer\nello\n");
    }

    fn kept_connections_that_the_peer_closes_are_gone(driver) {
        let (end, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let backend = Backend::start(move |visit| {
            let (first, _) = (visit.number == 1, visit.bytes(3));
            visit.send("ok\n");
            match first {
                true => drop(wait.lock().map(|wait| wait.recv())),
                false => visit.hang(),
            }
        });
        let server = served(&backend, "sock:send('get') ngx.say(sock:receive(), ' ', sock:getreusedtimes()) sock:setkeepalive()");
        assert_eq!(server.get("/").text(), "ok 0\n");
        drop(end);
        // A user of it before its end is known here sees an error.
        wait_for("another connection", || (server.get("/").text() == "ok 0\n").then_some(()));
    }

    fn connections_are_kept_for_a_time(driver) {
        let (ended, seen) = mpsc::channel();
        let backend = Backend::start(move |visit| {
            visit.hang();
            let _ = ended.send(());
        });
        let server = served(&backend, "ngx.say(sock:setkeepalive(20))");
        assert_eq!(server.get("/").text(), "1\n");
        seen.recv_timeout(DEADLINE).expect("its end");
    }

    fn a_pool_has_a_size_and_a_queue(driver) {
        let backend = Backend::start(|visit| visit.hang());
        let script = "content_by_lua_block {
            local options = { pool = 'p', pool_size = 1, backlog = 2 }
            local function connected()
                local sock, err = ngx.socket.connect('127.0.0.1', PORT, options)
                if not sock then return ngx.say(err) end
                ngx.say('in')
                sock:close()
                ngx.say('out')
            end
            local sock = assert(ngx.socket.connect('127.0.0.1', PORT, options))
            local threads = {}
            for i = 1, 3 do threads[i] = ngx.thread.spawn(connected) end
            ngx.say(sock:setkeepalive())
            for i = 1, 3 do ngx.thread.wait(threads[i]) end
            sock = assert(ngx.socket.connect('127.0.0.1', PORT, options))
            local waits = ngx.socket.tcp()
            waits:settimeouts(20, 1, 1)
            ngx.say(waits:connect('127.0.0.1', PORT, options))
        }";
        let server = serve(&backend, "", &format!("location / {{ {script} }}"));
        let said = server.get("/").text();
        assert_eq!(said, "too many waiting connect operations\n1\nin\nout\nin\nout\nniltimeout\n");
        let _ = server.error_log_line("lua tcp socket queued connect timed out, when trying to connect to 127.0.0.1:");
    }

    fn one_reads_while_another_writes(driver) {
        let said = say(&echo(), "local reader = ngx.thread.spawn(function() return sock:receive() end)
            ngx.say(sock:receive()) ngx.say(sock:setkeepalive()) ngx.say(sock:close())
            ngx.say(sock:send('hello\\n'))
            ngx.say(ngx.thread.wait(reader))");
        assert_eq!(
            said,
            "nilsocket busy reading\nnilsocket busy reading\nnilsocket busy reading\n6\ntrue+hello\n"
        );
    }

    fn a_thread_that_is_killed_while_it_waits_takes_the_connection_with_it(driver) {
        let said = say(&echo(), "local reader = ngx.thread.spawn(function() return sock:receive() end)
            ngx.say(ngx.thread.kill(reader)) ngx.say(sock:send('x'))");
        assert_eq!(said, "1\nnilclosed\n");
    }

    fn sockets_end_with_their_request(driver) {
        let backend = Backend::start(|visit| visit.hang());
        let server = serve(&backend, "", "
            location /keep { content_by_lua_block {
                local sock = ngx.socket.tcp() assert(sock:connect('127.0.0.1', PORT)) package.loaded.kept = sock ngx.say('kept') } }
            location /use { content_by_lua_block { ngx.say(package.loaded.kept:receive()) } }
            location /mine { content_by_lua_block {
                local sock = ngx.socket.tcp() assert(sock:connect('127.0.0.1', PORT)) package.loaded.kept = sock
                ngx.say(ngx.location.capture('/use').status) } }");
        assert_eq!(server.get("/keep").text(), "kept\n");
        // The request may outlive its response by a moment.
        wait_for("the socket's end", || (server.get("/use").text() == "nilclosed\n").then_some(()));
        let _ = server.error_log_line("attempt to receive data on a closed socket: u:");
        assert_eq!(server.get("/mine").text(), "500\n");
        let _ = server.error_log_line(": bad request");
    }

    fn timers_have_sockets_too(driver) {
        let said = say(&echo(), "local done = require('ngx.semaphore').new()
            local got
            ngx.timer.at(0, function()
                local inner = ngx.socket.tcp()
                assert(inner:connect('127.0.0.1', PORT)) inner:send('hello\\n') got = inner:receive() inner:setkeepalive()
                done:post(1)
            end)
            done:wait(60) ngx.say(got)");
        assert_eq!(said, "+hello\n");
    }

    fn who_is_not_there_is_told_and_logged(driver) {
        let backend = echo();
        let port = backend.port();
        backend.kill();
        let script = "location / { content_by_lua_block {
            local sock = ngx.socket.tcp()
            for _, to in ipairs { { '127.0.0.1', PORT }, { 'nowhere.example', 80 }, { 'unix:/none/there' }, { '', 1 }, { '127.0.0.1' }, { '127.0.0.1', 70000 } } do
                ngx.say(sock:connect(unpack(to)))
            end
            ngx.say(sock:send('x')) } }";
        let server = serve(&backend, "", script);
        assert_eq!(
            server.get("/").text(),
            "nilconnection refused\nnilno resolver defined to resolve \"nowhere.example\"\nnilno such file or directory\n\
             nilfailed to parse host name \"\": no host\nnilmissing the port number\nnilbad port number: 70000\nnilclosed\n"
        );
        let _ = server.error_log_line("connect() failed (111: Connection refused), client: ");
        let _ = server.error_log_line("attempt to send data on a closed socket: u:");
        assert_ne!(port, 0);
    }

    fn names_are_looked_up_and_all_their_addresses_tried(driver) {
        let backend = echo();
        let dns = NameServer::start(|asked| match &*asked.name {
            // Nothing listens at the first one.
            "here.example" => NameReply::Addresses(vec![Ipv4Addr::new(127, 0, 0, 77).into(), Ipv4Addr::LOCALHOST.into()], 60),
            _ => NameReply::Code(3),
        });
        let server = serve(&backend, &format!("resolver {} ipv6=off;", dns.address()), "location / { content_by_lua_block {
            local sock = ngx.socket.tcp()
            for _ = 1, 4 do
                assert(sock:connect('here.example', PORT)) sock:send('a\\n') ngx.say(sock:receive())
            end
            ngx.say(sock:connect('nowhere.example', PORT)) } }");
        assert_eq!(
            server.get("/").text(),
            "+a\n+a\n+a\n+a\nnilnowhere.example could not be resolved (3: Host not found)\n"
        );
    }

    fn options_of_the_connection(driver) {
        let said = say(&echo(), "ngx.say(sock:setoption('keepalive', true), sock:getoption('keepalive'))
            ngx.say(sock:setoption('tcp-nodelay', 0), sock:getoption('tcp-nodelay'))
            ngx.say(sock:setoption('none', 1)) ngx.say(sock:getoption()) ngx.say(sock:setoption('sndbuf'))
            ngx.say(sock:getfd() > 2, select(2, pcall(function() ngx.socket.tcp():getoption('sndbuf') end)))");
        assert!(said.starts_with(
            "true1\ntrue0\nnilunsupported option none\nnilmissing the \"option\" argument\nnilmissing the \"value\" argument\ntrue"
        ), "{said}");
        assert!(said.contains("socket is never created nor connected"), "{said}");
    }

    fn a_local_address_is_bound(driver) {
        let backend = Backend::start(|visit| {
            let from = visit.peer().map(|peer| peer.ip().to_string()).unwrap_or_default();
            visit.send(format!("{from}\n"));
        });
        let server = serve(&backend, "", "location / { content_by_lua_block {
            local sock = ngx.socket.tcp()
            ngx.say(sock:bind('127.0.0.9')) assert(sock:connect('127.0.0.1', PORT)) ngx.say(sock:receive())
            ngx.say(sock:bind('nobody')) ngx.say(sock:bind('127.0.0.9', 'x')) } }");
        assert_eq!(server.get("/").text(), "true\n127.0.0.9\nnilbad address\nnilexpecting port to be anumber but got type: string\n");
    }

    fn arguments_are_checked_in_openresty_s_words(driver) {
        let said = say(&echo(), "local function try(f, ...) ngx.say((select(2, pcall(f, ...)):gsub('^.-:%d+: ', ''))) end
            try(function() sock:receive('*x') end) try(function() sock:receive('all') end) try(function() sock:receive(-1) end)
            try(function() sock:receive({}) end) try(function() sock.receive('x') end) try(function() sock:receiveany(0) end)
            try(function() sock:receiveuntil('x', { inclusive = 1 }) end) try(function() sock:settimeout(-1) end)
            try(function() sock:setkeepalive(1, 'x') end) try(function() sock:connect('a', 1, { pool = {} }) end)
            try(function() sock:connect('a', 1, { pool_size = 0 }) end) try(function() sock:connect('a', 1, { backlog = -1 }) end)
            try(function() ngx.socket.tcp(1) end)");
        assert_eq!(
            said,
            "bad argument #1 to 'receive' (bad pattern argument)\n\
             bad argument #1 to 'receive' (bad pattern argument: all)\n\
             bad argument #1 to 'receive' (bad number argument)\n\
             bad argument #1 to 'receive' (bad argument)\n\
             bad argument #1 to 'receive' (table expected, got string)\n\
             bad argument #1 to 'receiveany' (bad max argument)\n\
             bad \"inclusive\" option value type: number\n\
             bad timeout value\n\
             bad argument #2 to 'setkeepalive' (number expected, got string)\n\
             bad argument #3 to 'connect' (bad \"pool\" option type: table)\n\
             bad argument #3 to 'connect' (bad \"pool_size\" option value: 0)\n\
             bad argument #3 to 'connect' (bad \"backlog\" option value: -1)\n\
             expecting zero arguments, but got 1\n"
        );
    }

    fn the_body_as_it_comes(driver) {
        let backend = echo();
        let server = serve(&backend, "", "location / { content_by_lua_block {
            local sock, err = ngx.req.socket()
            if not sock then return ngx.say(err) end
            ngx.say(sock:receive(), ' ', sock:receive(3), ' ', sock:receiveuntil('--')())
            ngx.say(sock:receive(100)) ngx.say(sock:receive()) ngx.say(select(2, ngx.req.socket())) } }");
        let post = |body: &str, field: &str| {
            let head = format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{field}\r\n\r\n{body}");
            let said = String::from_utf8(server.raw(head)).expect("a text");
            said.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).expect("a head")
        };
        assert_eq!(
            post("line\nabcdef--end", "Content-Length: 16"),
            "line abc def\nnilclosedend\nnilclosed\nrequest body already exists\n"
        );
        assert_eq!(post("", "Content-Length: 0"), "no body\n");
        assert_eq!(post("0\r\n\r\n", "Transfer-Encoding: chunked"), "chunked request bodies not supported yet\n");
    }

    fn others_go_on_while_the_body_is_received(driver) {
        let backend = echo();
        let server = serve(&backend, "", "location / { content_by_lua_block {
            local sock = assert(ngx.req.socket())
            local thread = ngx.thread.spawn(function() return sock:receive(10) end)
            local other = ngx.socket.tcp()
            assert(other:connect('127.0.0.1', PORT)) other:send('ping\\n')
            ngx.say(other:receive()) ngx.flush(true)
            ngx.say(select(2, ngx.thread.wait(thread)))
            thread = ngx.thread.spawn(function() return sock:receive(10) end)
            ngx.sleep(0.001)
            ngx.say(ngx.thread.kill(thread), ' ', select(2, sock:receive())) } }");
        let mut client = server.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n01234");
        client.until("+ping");
        client.send("56789");
        client.until("0123456789");
        client.until("1 closed");
    }

    fn a_body_is_made_anew_of_what_is_received(driver) {
        let backend = echo();
        let server = serve(&backend, "", "location / { content_by_lua_block {
            local sock = assert(ngx.req.socket())
            ngx.req.init_body()
            repeat
                local piece, err, rest = sock:receive(4)
                ngx.req.append_body(piece or rest)
            until not piece
            ngx.req.finish_body()
            ngx.say(ngx.req.get_body_data(), ' ', ngx.var.http_content_length) } }");
        let said = server.raw("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 10\r\n\r\n0123456789");
        let said = String::from_utf8(said).expect("a text");
        assert!(said.contains("0123456789 10\n"), "{said}");
    }

    fn the_client_s_connection_itself(driver) {
        let backend = echo();
        let server = serve(&backend, "", "
            location /own { content_by_lua_block {
                local sock = assert(ngx.req.socket(true))
                local line = sock:receive()
                sock:send { 'HTTP/1.1 200 OK\\r\\n\\r\\n', line, ' ', tostring(select(2, ngx.say('x'))), ' ', select(2, ngx.req.socket(true)) }
            } }
            location /upgrade { content_by_lua_block {
                ngx.status = 101 ngx.header['Upgrade'] = 'echo' ngx.send_headers() ngx.flush(true)
                local sock = assert(ngx.req.socket(true))
                for _ = 1, 2 do sock:send { '<', sock:receive(), '>' } end
            } }");
        let said = |path: &str, bytes: &str| {
            let said = server.raw(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n{bytes}"));
            String::from_utf8(said).expect("a text")
        };
        assert_eq!(said("/own", "ping\n"), "HTTP/1.1 200 OK\r\n\r\nping raw request socket acquired duplicate call");
        let upgraded = said("/upgrade", "one\ntwo\n");
        assert!(upgraded.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{upgraded}");
        assert!(upgraded.ends_with("\r\n\r\n<one><two>"), "{upgraded}");
    }

    fn tls_with_sessions_names_and_trust(driver) {
        let ca = authority("ca");
        let (own, client) = (ca.issue("a.example.com"), ca.issue("client"));
        let conf = "events {}\nhttp { init_by_lua_block { PORT = %%PORT_1%% } server { listen 127.0.0.1:%%PORT%%; default_type text/plain;
                lua_ssl_trusted_certificate ca.crt; lua_ssl_verify_depth 2;
                location / { content_by_lua_block {
                    local function try(...)
                        local sock = ngx.socket.tcp()
                        assert(sock:connect('127.0.0.1', PORT))
                        local session, err = sock:sslhandshake(...)
                        if not session then ngx.say(err) return end
                        sock:send('GET / HTTP/1.0\\r\\n\\r\\n')
                        ngx.say(type(session), ' ', sock:receive('*a'):match('\\r\\n\\r\\n(.*)'))
                        return session
                    end
                    local session = try(nil, 'a.example.com', true)
                    try(session, 'a.example.com', true)
                    try(false) try(nil, 'b.example.com', true)
                    ngx.say(select(2, pcall(function() ngx.socket.tcp():sslhandshake() end)))
                } }
                location /distrust { lua_ssl_trusted_certificate other.crt; content_by_lua_block {
                    local sock = ngx.socket.tcp()
                    assert(sock:connect('127.0.0.1', PORT))
                    ngx.say((select(2, sock:sslhandshake(nil, 'a.example.com', true)))) ngx.say(sock:send('x'))
                } }
                location /client { lua_ssl_certificate client.crt; lua_ssl_certificate_key client.key; content_by_lua_block {
                    local sock = ngx.socket.tcp()
                    assert(sock:connect('127.0.0.1', PORT)) assert(sock:sslhandshake(nil, 'a.example.com'))
                    sock:send('GET /who HTTP/1.0\\r\\n\\r\\n') ngx.say((sock:receive('*a'):match('\\r\\n\\r\\n(.*)')))
                } }
                location /plain { content_by_lua_block {
                    local sock = ngx.socket.tcp()
                    assert(sock:connect('127.0.0.1', ngx.var.server_port)) ngx.say(sock:sslhandshake())
                } } }
            server { listen 127.0.0.1:%%PORT_1%% ssl; server_name a.example.com; ssl_certificate a.crt; ssl_certificate_key a.key;
                ssl_client_certificate ca.crt; ssl_verify_client optional; ssl_session_cache shared:s:1m;
                location / { return 200 '$ssl_server_name $ssl_session_reused'; }
                location /who { return 200 $ssl_client_s_dn; } } }\n";
        let server = Server::builder(conf)
            .file("ca.crt", &ca.certificate).file("a.crt", &own.certificate).file("a.key", &own.key)
            .file("client.crt", &client.certificate).file("client.key", &client.key)
            .file("other.crt", &authority("other").certificate)
            .start();
        let said = server.get("/").text();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[..4], [
            "cdata a.example.com .", "cdata a.example.com r", "boolean  .", "certificate host mismatch",
        ], "{said}");
        assert!(lines[4].contains("socket is never created nor connected"), "{said}");
        let distrusted = server.get("/distrust").text();
        assert!(distrusted.contains("unable to verify the first certificate\nnilclosed\n"), "{distrusted}");
        let _ = server.error_log_line("lua ssl certificate verify error: (");
        let _ = server.error_log_line("lua ssl certificate does not match host \"b.example.com\"");
        assert_eq!(server.get("/client").text(), "CN=client\n");
        assert_eq!(server.get("/plain").text(), "nilhandshake failed\n");
    }
}
