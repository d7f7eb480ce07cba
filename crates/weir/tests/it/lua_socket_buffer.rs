//! What a cosocket has received already is taken by compiled code: the same comes of it as of a wait, however replies are
//! cut, and who may not have it does not get it.

use weir_test::{Backend, Driver, Server, both_drivers, wait_for};

/// Scripts ask often enough to be compiled.
const TIMES: usize = 150;

fn say(driver: Driver, backend: &Backend, http: &str, script: &str) -> (Server, String) {
    let conf = format!(
        "events {{}}\nhttp {{ init_by_lua_block {{ PORT = {} }} {http}\n\
         server {{ listen 127.0.0.1:%%PORT%%; default_type text/plain;\n\
         location / {{ content_by_lua_block {{ {script} }} }}\n}} }}\n",
        backend.port()
    );
    let server = Server::builder(&conf).driver(driver).start();
    let said = server.get("/").text();
    (server, said)
}

/// Replies to each request of one byte: in pieces that end at each place of the reply in turn, and byte by byte.
fn cut(reply: &'static [u8]) -> Backend {
    Backend::start(move |visit| {
        let mut turn = 0;
        while visit.bytes(1).is_some() {
            let at = turn % (reply.len() + 2);
            turn += 1;
            let sent = if at <= reply.len() {
                visit.send(&reply[..at]) && visit.send(&reply[at..])
            } else {
                reply.iter().all(|byte| visit.send([*byte]))
            };
            if !sent {
                return;
            }
        }
    })
}

both_drivers! {
    fn replies_are_the_same_however_they_are_cut(driver) {
        let backend = cut(b"$5\r\nab\r\nc\r\n\r\none\rtwo\n\nlast\r\r\n");
        let script = format!("
            local function reply(sock)
                assert(sock:send('?'))
                local size = assert(tonumber(assert(sock:receive()):sub(2)))
                local body = assert(sock:receive(size))
                assert(sock:receive(2) == '\\r\\n')
                return body, assert(sock:receive('*l')), assert(sock:receive('*l')), assert(sock:receive()), assert(sock:receive())
            end
            local sock = ngx.socket.tcp()
            assert(sock:connect('127.0.0.1', PORT))
            local counts = {{}}
            for at = 1, {TIMES} do
                local said = table.concat({{ reply(sock) }}, '|')
                counts[said] = (counts[said] or 0) + 1
            end
            for said, count in pairs(counts) do ngx.say((said:gsub('[\\r\\n]', '.')), ' ', count) end");
        let (_server, said) = say(driver, &backend, "", &script);
        assert_eq!(said, format!("ab..c||onetwo||last {TIMES}\n"));
    }

    fn an_end_in_the_middle_gives_what_came(driver) {
        let backend = Backend::start(|visit| {
            let Some(left) = visit.bytes(1) else { return };
            visit.send(&b"one\nfour.tail"[..usize::from(left[0] - b'a')]);
        });
        let script = "
            for round = 1, 12 do
                for left = 0, 13 do
                    local sock = ngx.socket.tcp()
                    assert(sock:connect('127.0.0.1', PORT))
                    assert(sock:send(string.char(97 + left)))
                    local line, why, part = sock:receive()
                    local count, why_count, part_count = sock:receive(5)
                    local rest, why_rest, part_rest = sock:receive()
                    if round == 12 then
                        ngx.say(left, ' ', line, ' ', why, ' ', part, ' ', count, ' ', why_count, ' ', part_count, ' ',
                            rest, ' ', why_rest, ' ', part_rest)
                    end
                    sock:close()
                end
            end";
        let (_server, said) = say(driver, &backend, "lua_socket_log_errors off;", script);
        let expected = |left: usize| match &"one\nfour.tail"[..left] {
            part @ ("" | "o" | "on" | "one") => format!("{left} nil closed {part} nil closed nil nil closed nil"),
            part if left < 9 => format!("{left} one nil nil nil closed {} nil closed nil", &part[4..]),
            part => format!("{left} one nil nil four. nil nil nil closed {}", &part[9..]),
        };
        assert_eq!(said.lines().collect::<Vec<_>>(), (0..14).map(expected).collect::<Vec<_>>());
    }

    fn one_coroutine_at_a_time_reads(driver) {
        let backend = Backend::start(|visit| {
            visit.send("x\n".repeat(200));
            visit.bytes(1);
            visit.send("late\nmore\n");
        });
        let (_server, said) = say(driver, &backend, "", "
            local sock = ngx.socket.tcp()
            assert(sock:connect('127.0.0.1', PORT))
            local function read() return sock:receive() end
            for at = 1, 200 do assert(read() == 'x') end
            local waits = ngx.thread.spawn(read)
            ngx.say(read())
            ngx.say(sock:receive(1))
            sock:send('!')
            ngx.say(select(2, ngx.thread.wait(waits)))
            ngx.say(read())");
        assert_eq!(said, "nilsocket busy reading\nnilsocket busy reading\nlate\nmore\n");
    }

    fn another_request_s_socket_is_not_read(driver) {
        let backend = Backend::start(|visit| {
            visit.send("x\n".repeat(300));
            visit.bytes(1);
        });
        let (_server, said) = say(driver, &backend, "", "
            local function read(sock) return sock:receive() end
            local loaded = package.loaded
            if not ngx.is_subrequest then
                local sock = ngx.socket.tcp()
                loaded.sock, loaded.read = sock, read
                assert(sock:connect('127.0.0.1', PORT))
                for at = 1, 200 do assert(read(sock) == 'x') end
                ngx.say(read(sock))
                ngx.print(ngx.location.capture('/other').body)
                ngx.say(read(sock))
                return
            end
            ngx.say(tostring(select(2, pcall(loaded.read, loaded.sock))):gsub('^[^ ]+:%d+: ', ''))");
        assert_eq!(said, "x\nbad request0\nx\n");
    }

    fn patterns_lines_and_counts_take_turns(driver) {
        let backend = cut(b"head\nbody--end\ntail");
        let script = format!("
            local sock = ngx.socket.tcp()
            assert(sock:connect('127.0.0.1', PORT))
            local body = sock:receiveuntil('--end')
            for at = 1, {TIMES} do
                assert(sock:send('?'))
                assert(sock:receive() == 'head')
                assert(body() == 'body')
                assert(sock:receive() == '')
                assert(sock:receiveany(1) == 't')
                assert(sock:receive(3) == 'ail')
            end
            ngx.say('same')");
        let (_server, said) = say(driver, &backend, "", &script);
        assert_eq!(said, "same\n");
    }

    fn sockets_are_used_again_and_collected(driver) {
        let backend = cut(b"+a\r\n+b\r\n");
        let script = format!("
            for at = 1, {TIMES} do
                local sock = ngx.socket.tcp()
                assert(sock:connect('127.0.0.1', PORT, {{ pool = 'p', pool_size = 4 }}))
                assert(sock:send('?'))
                assert(sock:receive() == '+a')
                if at % 3 == 0 then
                    assert(sock:close())
                    ngx.say(sock:receive())
                else
                    assert(sock:receive() == '+b')
                    assert(sock:setkeepalive(10000, 4))
                    ngx.say(sock:receive())
                end
                if at % 7 == 0 then collectgarbage() end
            end");
        let (_server, said) = say(driver, &backend, "lua_socket_log_errors off;", &script);
        assert_eq!(said, "nilclosed\n".repeat(TIMES));
    }

    /// More sockets at a time than are found at one look; each has its own bytes.
    fn many_sockets_have_their_own_bytes(driver) {
        let backend = Backend::start(|visit| {
            let Some(name) = visit.bytes(4) else { return };
            visit.send([&name, &b"\n"[..]].concat().repeat(3));
            visit.bytes(1);
        });
        let (_server, said) = say(driver, &backend, "", "
            local socks = {}
            for at = 1, 300 do
                local sock = ngx.socket.tcp()
                assert(sock:connect('127.0.0.1', PORT))
                assert(sock:send(('%04d'):format(at)))
                socks[at] = sock
            end
            for round = 1, 3 do
                for at = 1, 300 do assert(socks[at]:receive() == ('%04d'):format(at)) end
            end
            ngx.say('own')");
        assert_eq!(said, "own\n");
    }

    fn what_is_no_socket_is_not_read(driver) {
        let backend = Backend::start(|visit| {
            visit.send("x\n".repeat(300));
            visit.bytes(1);
        });
        let (_server, said) = say(driver, &backend, "lua_socket_log_errors off;", "
            local sock = ngx.socket.tcp()
            assert(sock:connect('127.0.0.1', PORT))
            local receive = sock.receive
            for at = 1, 200 do assert(receive(sock) == 'x') end
            local function told(...)
                local ok, value, why = pcall(...)
                ngx.say(tostring(ok), ' ', (tostring(value):gsub('^[^ ]+:%d+: ', '')), ' ', why)
            end
            told(receive, { newproxy() }) told(receive, { newproxy(true) }) told(receive, { io.stdout })
            told(receive, { 1 }) told(receive, {}) told(receive, 'x') told(receive)
            told(receive, sock, nil) told(receive, sock, '*l', 3) told(receive, sock, -1) told(receive, sock, 'x')
            told(receive, sock, 0/0) told(receive, sock, 0.5) told(receive, sock, 0)
            told(receive, setmetatable({}, { __index = function() return sock[1] end }))
            told(ngx.socket.tcp, 1)");
        let expected = "true nil closed\n".repeat(5)
            + "false bad argument #1 to '?' (table expected, got string) nil\n\
               false expecting 1 or 2 arguments (including the object), but got 0 nil\n\
               false bad argument #2 to '?' (bad argument) nil\n\
               false expecting 1 or 2 arguments (including the object), but got 3 nil\n\
               false bad argument #2 to '?' (bad number argument) nil\n\
               false bad argument #2 to '?' (bad pattern argument: x) nil\n\
               false bad argument #2 to '?' (bad number argument) nil\n";
        let rest = "true  nil\ntrue  nil\n".to_owned();
        assert_eq!(said, expected + &rest + "true nil closed\nfalse expecting zero arguments, but got 1 nil\n");
    }

    fn lines_of_the_debug_log_are_as_they_were(driver) {
        let backend = Backend::start(|visit| {
            visit.send("x\n".repeat(300));
            visit.bytes(1);
        });
        let (server, said) = say(driver, &backend, "error_log %%DIR%%/debug.log debug;", "
            local sock = ngx.socket.tcp()
            assert(sock:connect('127.0.0.1', PORT))
            for at = 1, 200 do assert(sock:receive() == 'x') end
            ngx.say('done')");
        assert_eq!(said, "done\n");
        wait_for("a line for each receive", || {
            let lines = std::fs::read_to_string(server.dir().path().join("debug.log")).ok()?;
            (lines.matches("lua tcp socket calling receive() method").count() == 200).then_some(())
        });
    }
}
