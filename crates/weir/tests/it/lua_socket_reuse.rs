//! Sockets whose connections go to pools and come from there: what compiled code does without a call is what the functions in C do,
//! which a location with a log of the level `debug` asks alone.

use weir_test::{Backend, BackendVisit, Server, both_drivers, wait_for};

/// What is wanted of a socket before, while and after its connection is its own: `s` is a socket, `port` that of a server that
/// echoes lines.
const SCRIPTS: &[&str] = &[
    "say(s:connect(host, port)) s:send('a\\n') say(s:receive()) say(s:setkeepalive(1000, 10)) say(s:send('b'))
     say(s:receive()) say(s:close()) say(s:setkeepalive(1000, 10)) say(s:getreusedtimes()) say(s:getfd())",
    "say(s:connect(host, port)) say(s:setkeepalive()) say(pcall(s.sslhandshake, s)) say(pcall(s.getoption, s, 'keepalive'))
     say(pcall(s.settrustedstore, s)) say(pcall(s.setoption, s, 'keepalive', true)) say(s:settimeout(5)) say(s:settimeouts(5, 5, 5))",
    "say(s:connect(host, port)) say(s:setkeepalive(1000, 10)) say(s:connect(host, port)) s:send('c\\n') say(s:receive()) say(s:close())",
    "for _ = 1, 3 do say(s:connect(host, port)) s:send('d\\n') say(s:receive()) say(s:setkeepalive(1000, 10)) end",
    "say(s:connect(host, port)) s:send('more\\n') say(s:receive()) say(s:setkeepalive(1000, 10)) say(s:receive()) say(s:close())",
    "say(s:connect(host, port)) s:send('close\\n') say(s:receive()) say(s:receive()) say(s:setkeepalive(1000, 10))",
    "s:settimeout(20) say(s:connect(host, port)) s:send('wait\\n') say(s:receive()) say(s:close()) say(s:setkeepalive(1000, 10))",
    "say(s:connect(host, port, {pool = 'own'})) say(s:setkeepalive(1000, 10)) say(s:connect(host, port, {pool = 'own'})) say(s:close())",
    "say(s:connect(host, port, {pool = 'a' .. port, pool_size = 1})) say(s:setkeepalive(0, 1)) say(s:connect(host, port)) say(s:close())",
    "say(s:connect(host, port)) say(s:setkeepalive(-1, 10)) say(s:connect(host, port)) say(s:setkeepalive(1000.7, 10.2))",
    "say(s:connect(host, port)) say(pcall(s.setkeepalive, s, 'x')) say(pcall(s.setkeepalive, s, '7', '8'))",
    "say(s:connect(host, port)) say(pcall(s.setkeepalive, s, 1, 2, 3)) say(s:setkeepalive(nil, nil))",
    "for _ = 1, 2 do say(s:connect(host, port, {pool = 'n', pool_size = 2, backlog = 3})) s:send('i\\n') say(s:receive()) s:setkeepalive(1000, 10) end",
    "say(pcall(s.connect, s, host, port, {pool = 'n', pool_size = 0})) say(pcall(s.connect, s, host, port, {pool = 'n', backlog = -1}))
     say(pcall(s.connect, s, host, port, {pool = true})) say(s:connect(host, port, {pool = 7})) say(s:close()) say(pcall(s.connect, s, host, port, 5))",
    "say(pcall(s.connect, s)) say(pcall(s.connect, s, host)) say(s:connect(host, -1)) say(s:connect(host, 70000)) say(s:connect('', port))",
    "say(pcall(s.connect, nil, host, port)) say(pcall(s.connect, 1, host, port)) say(s:connect(host, tostring(port))) say(s:close())",
    "say(s:connect(host, port + 0.5)) say(s:setkeepalive(1000, 10)) say(s:connect(host, port + 0.25)) say(s:close())",
    "say(s:connect(host, port)) local t = ngx.thread.spawn(function() return s:receive() end) say(s:setkeepalive(1000, 10))
     say(s:connect(host, port)) s:send('g\\n') say(ngx.thread.wait(t)) say(s:setkeepalive(1000, 10))",
    "local read say(s:connect(host, port)) read = s:receiveuntil('-') s:send('a-b\\n') say(read()) say(s:setkeepalive(1000, 10))
     say(s:receive()) say(s:setkeepalive(1000, 10)) say(pcall(read))",
    "say(s:connect(host, port)) s:setkeepalive(1000, 10) local o = ngx.socket.tcp() o:connect(host, port) o:send('h\\n')
     say(s:receive()) say(s:send('x')) say(o:receive()) say(o:setkeepalive(1000, 10)) say(s:connect(host, port)) say(s:close())",
    "say(pcall(function() return s:setkeepalive(1000, 10) end)) say(s:connect('localhost.invalid', port)) say(s:setkeepalive(1000, 10))",
];

/// Locations `/fast/N` and `/slow/N`, which have each script; `/fast/` leads through compiled code as far as that goes.
fn conf(port: u16, workers: usize, more: &str) -> String {
    let prelude = format!(
        "local host, port = '127.0.0.1', {port} local s = ngx.socket.tcp()
         local function say(...) local t = {{...}} for at = 1, select('#', ...) do t[at] = tostring(t[at]):gsub('content_by_lua%b():%d+: ', '') end ngx.say(table.concat(t, ' ')) end"
    );
    let location = |kind: &str, log: &str| -> String {
        let one = |(number, script): (usize, &&str)| {
            format!("location = /{kind}/{number} {{ {log} content_by_lua_block {{ {prelude} {script} }} }}\n")
        };
        SCRIPTS.iter().enumerate().map(one).collect()
    };
    format!(
        "worker_processes {workers}; http {{ keepalive_requests 1000000; lua_socket_log_errors off; lua_shared_dict d 1m; {more}
         server {{ listen 127.0.0.1:%%PORT%%; {} {} }} }}",
        location("fast", ""),
        location("slow", "error_log debug.log debug;"),
    )
}

/// Says each line again; of some words it does more, or less.
fn echoing(visit: &mut BackendVisit) {
    let mut line = Vec::new();
    while let Some(byte) = visit.bytes(1) {
        line.extend(byte);
        if !line.ends_with(b"\n") {
            continue;
        }
        let said = std::mem::take(&mut line);
        let goes_on = match &said[..] {
            b"wait\n" => return visit.hang(),
            b"close\n" => {
                visit.send(b"bye\n");
                false
            }
            b"more\n" => visit.send(b"more\nunasked\n"),
            said => visit.send(said),
        };
        if !goes_on {
            return;
        }
    }
}

fn started(conf: &str) -> Server {
    Server::builder(conf).allow("[error]").allow("[warn]").allow("[crit]").start()
}

both_drivers! {
    /// Each script says the same by both ways, the first time and when it has become compiled code.
    fn sockets_are_the_same_by_compiled_code_and_by_calls(driver) {
        let backend = Backend::start(echoing);
        for workers in [1, 8] {
            let server = started(&conf(backend.port(), workers, ""));
            for (number, script) in SCRIPTS.iter().enumerate() {
                let mut client = server.client();
                let expected = client.get(&format!("/slow/{number}")).text();
                let times = if script.contains("sleep") || script.contains("wait") { 5 } else { 150 };
                for time in 0..times {
                    let said = client.get(&format!("/fast/{number}")).text();
                    assert_eq!(said, expected, "{script}, {time}");
                }
                assert!(!expected.is_empty(), "{script}");
            }
        }
    }

    /// What a peer sends on its own after its response, and the loop has not heard of, is nobody's response.
    fn a_connection_on_which_more_has_come_is_not_kept(driver) {
        let sent = std::env::temp_dir().join(format!("weir-unasked-{}-{driver:?}", std::process::id()));
        let mark = sent.clone();
        let backend = Backend::start(move |visit| {
            // The script goes on once this has left, without a look at its socket.
            if visit.bytes(4).is_some() && visit.send(b"a\n") && visit.bytes(4).is_some() {
                visit.send(b"unasked\n");
                std::fs::write(&mark, "").expect("a file");
                visit.hang();
            }
        });
        let server = started(&format!(
            "http {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ content_by_lua_block {{
                local s = ngx.socket.tcp() assert(s:connect('127.0.0.1', {port}))
                s:send('one\\n') assert(s:receive() == 'a') s:send('two\\n') {leaves}
                local file repeat file = io.open('{sent}') until file
                file:close() os.remove('{sent}')
                ngx.say(s:setkeepalive(1000, 10)) }} }} }} }}",
            // The ring takes what is sent when the loop turns.
            leaves = if matches!(driver, weir_test::Driver::IoUring) { "ngx.sleep(0)" } else { "" },
            port = backend.port(),
            sent = sent.display(),
        ));
        // Also when it has become compiled code.
        let mut client = server.client();
        for time in 0..100 {
            assert_eq!(client.get("/").text(), "nilconnection in dubious state\n", "{time}");
        }
    }

    /// A socket that was one request's is another's while the first goes on, and when that ends.
    fn a_request_that_ends_leaves_the_next_ones_sockets_alone(driver) {
        let backend = Backend::start(echoing);
        let port = backend.port();
        let more = format!(
            "server {{ listen 127.0.0.1:%%PORT2%%; lua_socket_log_errors off;
             location /first {{ content_by_lua_block {{ local s = ngx.socket.tcp() assert(s:connect('127.0.0.1', {port}))
                 package.loaded.stored = {{ s[1], getmetatable(s) }} assert(s:setkeepalive(10000, 10)) ngx.shared.d:set('kept', 1)
                 while not ngx.shared.d:get('taken') do ngx.sleep(0.001) end ngx.say('first') }} }}
             location /second {{ content_by_lua_block {{ while not ngx.shared.d:get('kept') do ngx.sleep(0.001) end
                 local s = ngx.socket.tcp() assert(s:connect('127.0.0.1', {port})) assert(s[1] == package.loaded.stored[1]) ngx.shared.d:set('taken', 1)
                 while not ngx.shared.d:get('over') do ngx.sleep(0.001) end
                 s:send('still\\n') ngx.say(s:receive(), s:getreusedtimes()) ngx.say(s:setkeepalive(10000, 10)) }} }}
             location /alias {{ content_by_lua_block {{ local stored = package.loaded.stored local t = setmetatable({{ stored[1] }}, stored[2])
                 ngx.say(pcall(t.send, t, 'x')) ngx.say(pcall(t.receive, t)) ngx.say(pcall(t.setkeepalive, t)) ngx.say(pcall(t.close, t)) }} }}
             location /over {{ content_by_lua_block {{ ngx.shared.d:set('over', 1) }} }} }}"
        );
        let text = conf(port, 1, &more.replace("%%PORT2%%", &weir_test::free_port().to_string()));
        let address = text.split("listen 127.0.0.1:").nth(1).and_then(|rest| rest.split(';').next()).expect("the second server");
        let address: std::net::SocketAddr = format!("127.0.0.1:{address}").parse().expect("an address");
        let server = started(&text);
        let client = || weir_test::Client::connect(address);
        // A script that has run before is compiled.
        for _ in 0..60 {
            server.client().get("/fast/3");
        }
        let (mut first, mut second) = (client(), client());
        second.send("GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
        first.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(first.response().text(), "first\n");
        // What another request has stored of it is of no use to it.
        let alias = client().get("/alias").text();
        assert!(!alias.contains("true1"), "{alias}");
        client().get("/over");
        let said = second.response().text();
        assert!(said.starts_with("still") && said.ends_with("\n1\n"), "{said}");
    }

    /// An idle connection that the other side closes is not taken; what was counted of others stays right.
    fn a_connection_that_was_closed_meanwhile_is_not_taken(driver) {
        let backend = Backend::start(|visit: &mut BackendVisit| {
            // Three lines, and it is over.
            for _ in 0..3 {
                let Some(line) = visit.bytes(2) else { return };
                visit.send(line);
            }
        });
        let script = format!(
            "local s = ngx.socket.tcp() assert(s:connect('127.0.0.1', {})) local times = s:getreusedtimes() s:send('a\\n')
             ngx.print(times, ' ', s:receive(), ' ', (s:setkeepalive(10000, 10)))", backend.port()
        );
        let server = started(&format!("http {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ content_by_lua_block {{ {script} }} }} }} }}"));
        let mut client = server.client();
        for round in 0..30 {
            let mut seen = Vec::new();
            // The peer's end may be seen when the connection is given back, or while it is idle.
            wait_for("three requests of a connection", || {
                let said = client.get("/").text();
                // Its end had not come yet when the fourth took it: as with any client.
                if !said.starts_with("3 nil") {
                    seen.push(said);
                }
                (seen.last().is_some_and(|said| said.starts_with("2 "))).then_some(())
            });
            let expected = |at: usize| format!("{at} a ");
            assert!(seen.iter().enumerate().all(|(at, said)| said.starts_with(&expected(at))), "{round}: {seen:?}");
        }
    }
}
