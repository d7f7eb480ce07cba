//! `ngx.socket.udp`, as scripts see it.

use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_test::{NameReply, NameServer, Server, TempDir, both_drivers};

/// Sends datagrams back, with `re:` before them, until it is dropped.
struct Echo {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    port: u16,
}

/// How often the thread looks whether it is to end.
const LOOK: Option<Duration> = Some(Duration::from_millis(20));

impl Echo {
    fn start() -> Echo {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_read_timeout(LOOK).expect("a limit");
        let port = socket.local_addr().expect("it is bound").port();
        Echo::over(port, move |buffer| {
            let Ok((count, from)) = socket.recv_from(buffer) else { return };
            let answer = [b"re:", &buffer[..count]].concat();
            socket.send_to(&answer, from).expect("it is there");
        })
    }

    fn over(port: u16, mut step: impl FnMut(&mut [u8]) + Send + 'static) -> Echo {
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let thread = std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !ends.load(Ordering::SeqCst) {
                step(&mut buffer);
            }
        });
        Echo { over, thread: Some(thread), port }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            assert!(std::thread::panicking(), "the echo failed");
        }
    }
}

fn serve(http: &str, script: &str) -> Server {
    Server::start(&format!(
        "http {{ {http} server {{ listen 127.0.0.1:%%PORT%%; error_log %%DIR%%/error.log info;
            location / {{ content_by_lua_block {{ local s = ngx.socket.udp() {script} }} }} }} }}"
    ))
}

fn say(script: &str) -> String {
    serve("", script).client().get("/").text()
}

/// The error log has a line with `text`.
fn logs(server: &Server, text: &str) {
    assert!(server.error_log_line(text).contains(text));
}

both_drivers! {
    fn datagrams_go_there_and_back(driver) {
        let echo = Echo::start();
        let script = format!(
            "ngx.say(s:setpeername('127.0.0.1', {}))
             ngx.say(s:send('hello'), s:send({{'a', {{1, 'b'}}}}))
             ngx.say(s:receive())
             ngx.say(s:receive(5))
             ngx.say(s:send(('x'):rep(20000)))
             ngx.say(#s:receive())
             ngx.say(s:setpeername('127.0.0.1', {}))
             ngx.say(s:send(true), s:receive())
             ngx.say(s:close())
             ngx.say(s:close())
             ngx.say(s:send('x'))
             ngx.say(s:receive())",
            echo.port, echo.port
        );
        let reported = "1\n11\nre:hello\nre:a1\n1\n20003\n1\n1re:true\n1\nnilclosed\nnilclosed\nnilclosed\n";
        let server = serve("", &script);
        assert_eq!(server.client().get("/").text(), reported);
        logs(&server, "attempt to send data on a closed socket: u:");
        logs(&server, "attempt to receive data on a closed socket: u:");
    }

    fn an_answer_that_does_not_come_is_a_timeout(driver) {
        let silent = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let port = silent.local_addr().expect("it is bound").port();
        let script = format!(
            "s:settimeout(30) s:setpeername('127.0.0.1', {port}) s:send('x') ngx.say(s:receive())
             local t = ngx.thread.spawn(function() return s:receive() end)
             ngx.say(s:receive()) ngx.say(s:close()) ngx.say(select(2, ngx.thread.wait(t)))"
        );
        let server = serve("", &script);
        assert_eq!(server.client().get("/").text(), "niltimeout\nnilsocket busy\nnilsocket busy\nniltimeout\n");
        logs(&server, "lua udp socket read timed out");
    }

    fn nobody_there_is_told(driver) {
        // Taken, and closed to all but one.
        let other = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let refusing = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        refusing.connect(other.local_addr().expect("it is bound")).expect("a peer");
        let port = refusing.local_addr().expect("it is bound").port();
        let server = serve("", &format!("s:setpeername('127.0.0.1', {port}) s:send('x') ngx.say(s:receive())"));
        assert_eq!(server.client().get("/").text(), "nilconnection refused\n");
        logs(&server, "recv() failed (111: Connection refused)");
    }

    fn unix_sockets_answer(driver) {
        let dir = TempDir::new();
        let path = dir.path().join("echo.sock");
        let socket = UnixDatagram::bind(&path).expect("a path");
        socket.set_read_timeout(LOOK).expect("a limit");
        let echo = Echo::over(0, move |buffer| {
            let Ok((count, from)) = socket.recv_from(buffer) else { return };
            socket.send_to_addr(&buffer[..count], &from).expect("it has a name");
        });
        let path = path.display();
        let script = format!("ngx.say(s:setpeername('unix:{path}')) ngx.say(s:send('hello'), s:receive())");
        assert_eq!(say(&script), "1\n1hello\n");
        drop(echo);
        let script = format!("ngx.say(s:setpeername('unix:{path}.not'))");
        assert_eq!(say(&script), "nilno such file or directory\n");
    }

    fn names_are_looked_up(driver) {
        let echo = Echo::start();
        let dns = NameServer::start(|asked| match &*asked.name {
            "a.example" => NameReply::Addresses(vec![[127, 0, 0, 1].into()], 60),
            _ => NameReply::Code(3),
        });
        let http = format!("resolver {}; resolver_timeout 20s;", dns.address());
        let script = format!(
            "ngx.say(s:setpeername('a.example', {})) ngx.say(s:send('x'), s:receive())
             ngx.say(ngx.socket.udp():setpeername('none.example', 1))",
            echo.port
        );
        let reported = "1\n1re:x\nnilnone.example could not be resolved (3: Host not found)\n";
        assert_eq!(serve(&http, &script).client().get("/").text(), reported);
        let reported = "nilno resolver defined to resolve \"a.example\"\n";
        assert_eq!(say("ngx.say(s:setpeername('a.example', 1))"), reported);
    }

    fn sockets_begin_where_they_are_bound(driver) {
        let echo = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let port = echo.local_addr().expect("it is bound").port();
        let server = serve("", &format!(
            "ngx.say(s:bind('nowhere'), s:bind('127.0.0.9')) s:setpeername('127.0.0.1', {port}) s:send('x')"
        ));
        assert_eq!(server.client().get("/").text(), "nil1\n");
        echo.set_read_timeout(Some(weir_test::DEADLINE)).expect("a limit");
        let (_, from) = echo.recv_from(&mut [0; 8]).expect("it was sent");
        assert_eq!(from.ip().to_string(), "127.0.0.9");
    }

    fn wrong_calls_are_errors(driver) {
        let wrong = |call: &str| say(&format!("ngx.print(select(2, pcall({call})))"));
        assert_eq!(wrong("s.setpeername, s"),
            "ngx.socket.udp setpeername: expecting 2 or 3 arguments (including the object), but seen 1");
        assert_eq!(wrong("s.send, s"), "expecting 2 arguments (including the object), but got 1");
        assert_eq!(wrong("s.receive, s, 1, 2"), "expecting 1 or 2 arguments (including the object), but got 3");
        assert_eq!(wrong("s.close, s, 1"), "expecting 1 argument (including the object) but seen 2");
        assert_eq!(wrong("s.settimeout, s"), "ngx.socket settimeout: expecting at least 2 arguments (including the object) but seen 1");
        assert_eq!(wrong("s.close, nil"), "bad argument #1 to 'close' (table expected, got nil)");
        assert_eq!(say("ngx.say(s:setpeername('127.0.0.1', 70000))"), "nilbad port number: 70000\n");
        let shared = "worker_processes 1; http { server { listen 127.0.0.1:%%PORT%%; location / { content_by_lua_block {
            local s = package.loaded.s
            if s then return ngx.say(pcall(s.send, s, 'x')) end
            s = ngx.socket.udp()
            package.loaded.s = s
            ngx.say(s:setpeername('127.0.0.1', 9)) } } } }";
        let server = Server::start(shared);
        let mut client = server.client();
        assert_eq!((client.get("/").text(), client.get("/").text()), ("1\n".to_owned(), "falsebad request\n".to_owned()));
    }
}
