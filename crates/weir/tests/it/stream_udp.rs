//! `stream` over UDP: flows of datagrams.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir_test::{Server, ServerSignal, TestServerBuilder, both_drivers, wait_for};

/// A server of datagrams.
struct UdpBackend {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl UdpBackend {
    /// `respond` gets each datagram with its sender.
    fn start(respond: impl Fn(&UdpSocket, &[u8], SocketAddr) + Send + 'static) -> UdpBackend {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        let address = socket.local_addr().expect("bound");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a time");
        let ended = Arc::new(AtomicBool::new(false));
        let theirs = ended.clone();
        let thread = std::thread::spawn(move || {
            let mut room = vec![0; 65_536];
            while !theirs.load(Ordering::Relaxed) {
                match socket.recv_from(&mut room) {
                    Ok((len, from)) => respond(&socket, &room[..len], from),
                    Err(error) => assert!(
                        matches!(
                            error.kind(),
                            ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                        ),
                        "{error}"
                    ),
                }
            }
        });
        UdpBackend { address, ended, thread: Some(thread) }
    }

    fn echo() -> UdpBackend {
        UdpBackend::start(|socket, bytes, from| {
            socket.send_to(bytes, from).expect("loopback takes it");
        })
    }

    /// Says from which port each datagram came.
    fn ports() -> UdpBackend {
        UdpBackend::start(|socket, _, from| {
            socket.send_to(from.port().to_string().as_bytes(), from).expect("loopback takes it");
        })
    }
}

impl Drop for UdpBackend {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(Err(panic)) = self.thread.take().map(std::thread::JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// A client's socket, which receives only what comes from where it sends to.
struct UdpClient(UdpSocket);

impl UdpClient {
    fn to(address: SocketAddr) -> UdpClient {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
        socket.connect(address).expect("loopback");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        UdpClient(socket)
    }

    fn of(server: &Server, port: usize) -> UdpClient {
        UdpClient::to(server.addr(port))
    }

    fn send(&self, bytes: impl AsRef<[u8]>) -> &UdpClient {
        self.0.send(bytes.as_ref()).expect("loopback takes it");
        self
    }

    fn receive(&self) -> Vec<u8> {
        let mut room = vec![0; 65_536];
        let len = loop {
            match self.0.recv(&mut room) {
                // Where a time is set the system does not go on by itself.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                received => break received.expect("a datagram comes"),
            }
        };
        room.truncate(len);
        room
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.receive()).into_owned()
    }

    fn asks(&self, bytes: impl AsRef<[u8]>) -> String {
        self.send(bytes).text()
    }

    fn port(&self) -> u16 {
        self.0.local_addr().expect("bound").port()
    }
}

fn stream(text: &str) -> TestServerBuilder {
    Server::builder(&format!("stream {{ {text} }}"))
}

both_drivers! {
    /// As in OpenResty's `stream`: an address that other machines have is reported with its name, and a port may be given.
    fn sockets_of_scripts_are_bound_to_an_address_and_a_port(driver) {
        let backend = UdpBackend::ports();
        let server = stream(&format!("server {{ listen 127.0.0.1:%%PORT%% udp; content_by_lua_block {{
                local sock, client = ngx.socket.udp(), ngx.req.socket()
                assert(sock:bind('127.0.0.1', tonumber(client:receive())) and sock:setpeername('127.0.0.1', {0}) and sock:send('x'))
                client:send(sock:receive())
                assert(not pcall(sock.bind, sock, '127.0.0.1', 65536))
                sock = ngx.socket.udp()
                assert(sock:bind('192.0.2.1'))
                client:send(select(2, sock:setpeername('127.0.0.1', {0})))
            }} }}", backend.address.port())).driver(driver).allow("failed").start();
        let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("loopback binds").port();
        let client = UdpClient::of(&server, 0);
        assert_eq!(client.asks(free.to_string()), free.to_string());
        assert_eq!(client.text(), "cannot assign requested address");
        assert!(server.error_log_line("bind(192.0.2.1) failed (99: Cannot assign requested address)").contains("[crit]"));
    }

    /// As in OpenResty scripts read the one datagram, in pieces, and send as many as they like.
    fn scripts_read_the_datagram_of_their_session_and_send_others(driver) {
        let backend = UdpBackend::echo();
        let server = stream(&format!("
            log_format t '$protocol $status $bytes_received $bytes_sent'; access_log %%DIR%%/access.log t;
            server {{ listen 127.0.0.1:%%PORT%% udp; content_by_lua_block {{
                local sock = assert(ngx.req.socket())
                sock:settimeout(1000)
                local two = sock:receive(2)
                assert(sock:send {{ two, '|', {{ sock:receive() }} }})
                local none, why = sock:receive()
                assert(none == nil and sock:send(why) == 1)
                local long, error = sock:send(('x'):rep(70000))
                assert(long == nil and sock:send(error))
                for _, name in ipairs {{ 'say', 'print', 'flush', 'eof' }} do
                    local ok, error = pcall(ngx[name])
                    assert(not ok and error:find 'API disabled in the current context')
                end
                sock:send(select(2, pcall(sock.receive, sock, 1, 2)))
                kept = kept or sock
                if kept ~= sock then sock:send(select(2, pcall(kept.receive, kept))) end
                sock:send(ngx.var.protocol)
            }} }}
            server {{ listen 127.0.0.1:%%PORT_1%% udp; proxy_pass {}; proxy_responses 1;
                preread_by_lua_block {{ ngx.ctx.first = ngx.req.socket():receive(1) }}
                log_by_lua_block {{ ngx.log(ngx.WARN, 'first ', ngx.ctx.first) }} }}
            server {{ listen 127.0.0.1:%%PORT_2%% udp;
                preread_by_lua_block {{ ngx.ctx.first = ngx.req.socket():receive(3) }}
                content_by_lua_block {{ ngx.req.socket():send(ngx.ctx.first .. '/' .. tostring(ngx.req.socket():receive())) }} }}
        ", backend.address)).driver(driver).allow("first").start();
        for other in ["", "bad request"] {
            let client = UdpClient::of(&server, 0);
            assert_eq!(client.asks("hello world\n"), "he|llo world\n");
            assert_eq!(client.text(), "no more data");
            assert_eq!(client.text(), "message too long");
            assert_eq!(client.text(), "expecting 1 or 2 arguments (including the object), but got 3");
            if !other.is_empty() {
                assert_eq!(client.text(), other);
            }
            assert_eq!(client.text(), "UDP");
        }
        assert_eq!(UdpClient::of(&server, 1).asks("?what is left"), "what is left");
        assert!(server.error_log_line("first ?").contains("udp client"));
        assert_eq!(UdpClient::of(&server, 2).asks("abcdef"), "abc/def");
        assert_eq!(UdpClient::of(&server, 2).asks("abc"), "abc/nil");
        // What comes meanwhile is a session's of its own.
        let client = UdpClient::of(&server, 2);
        client.send("first").send("second").send("third");
        let mut said = [client.text(), client.text(), client.text()];
        said.sort();
        assert_eq!(said, ["fir/st", "sec/ond", "thi/rd"]);
        assert!(server.access_log_lines(2)[0].starts_with("UDP 200 12 "));
    }

    fn each_datagram_passes_as_one_both_ways(driver) {
        let backend = UdpBackend::echo();
        for workers in [1, 3] {
            for reuseport in ["", "reuseport"] {
                let conf = format!("worker_processes {workers}; stream {{
                    server {{ listen 127.0.0.1:%%PORT%% udp {reuseport}; proxy_pass {}; }} }}", backend.address);
                let server = Server::builder(&conf).driver(driver).start();
                let clients: Vec<UdpClient> = (0..8).map(|_| UdpClient::of(&server, 0)).collect();
                for size in [1, 0, 1472, 9000, 65_507] {
                    let sent: Vec<u8> = (0..size).map(|at: usize| (at % 251) as u8).collect();
                    for client in &clients {
                        assert!(client.send(&sent).receive() == sent, "{size}");
                    }
                }
                let mut burst: Vec<String> = (0..100).map(|at| format!("burst {at}")).collect();
                for text in &burst {
                    clients[0].send(text);
                }
                let mut received: Vec<String> = burst.iter().map(|_| clients[0].text()).collect();
                received.sort();
                burst.sort();
                assert_eq!(received, burst);
            }
        }
    }

    fn responses_come_from_the_address_that_was_asked(driver) {
        let backend = UdpBackend::echo();
        let server = stream(&format!("log_format t '$server_addr $server_port'; access_log %%DIR%%/access.log t;
            server {{ listen 0.0.0.0:%%PORT%% udp; proxy_pass {}; proxy_responses 1; }}
            server {{ listen 127.0.0.9:%%PORT%% udp; return $server_addr; }}", backend.address)).driver(driver).start();
        for home in ["127.0.0.3", "127.0.0.5"] {
            let client = UdpClient::to(format!("{home}:{}", server.port(0)).parse().expect("an address"));
            assert_eq!(client.asks("here"), "here");
            let line = format!("{home} {}", server.port(0));
            wait_for("the session's line", || server.access_log_lines(1).contains(&line).then_some(()));
        }
        let narrow = UdpClient::to(format!("127.0.0.9:{}", server.port(0)).parse().expect("an address"));
        assert_eq!(narrow.asks("who"), "127.0.0.9");
    }

    fn a_session_is_as_many_datagrams_as_it_is_said_to_be(driver) {
        let backend = UdpBackend::ports();
        let to = format!("proxy_pass {};", backend.address);
        let server = stream(&format!("
            log_format t '$server_port $protocol $status $bytes_received $bytes_sent $upstream_addr $upstream_bytes_sent';
            access_log %%DIR%%/access.log t;
            server {{ listen 127.0.0.1:%%PORT%% udp; {to} proxy_responses 1; }}
            server {{ listen 127.0.0.1:%%PORT_1%% udp; {to} proxy_requests 2; proxy_responses 1; }}
            server {{ listen 127.0.0.1:%%PORT_2%% udp; {to} proxy_responses 0; }}
            server {{ listen 127.0.0.1:%%PORT_3%% udp; {to} proxy_requests 1; proxy_timeout 300ms; }}
        ")).driver(driver).start();
        let line = |number: usize, received: usize, sent: usize| {
            format!("{} UDP 200 {received} {sent} {} {received}", server.port(number), backend.address)
        };
        // One datagram and its response are a session.
        let client = UdpClient::of(&server, 0);
        let first = client.asks("one");
        assert_eq!(server.access_log_lines(1), [line(0, 3, first.len())]);
        assert_ne!(client.asks("two"), first);
        assert_eq!(server.access_log_lines(2).len(), 2);
        assert!(server.error_log_line("udp done, packets from/to client:1/1").contains("[info]"));
        // Two are.
        let client = UdpClient::of(&server, 1);
        let (first, second) = (client.asks("a"), client.asks("b"));
        assert_eq!(first, second);
        assert_eq!(server.access_log_lines(3)[2], line(1, 2, 2 * first.len()));
        assert_ne!(client.asks("c"), first);
        // No response is expected, but one that comes in time may be passed on.
        UdpClient::of(&server, 2).send("nothing");
        let lines = server.access_log_lines(4);
        assert!(lines[3].starts_with(&format!("{} UDP 200 7 ", server.port(2))), "{lines:?}");
        // Each datagram is a session, however many responses come.
        let client = UdpClient::of(&server, 3);
        assert_ne!(client.asks("x"), client.asks("y"));
        let lines = server.access_log_lines(6);
        assert!(lines[4..].iter().all(|line| line.contains(" UDP 200 1 ")), "{lines:?}");
        assert!(server.error_log_line("udp timed out, packets from/to client:1/1").contains("[info]"));
    }

    fn what_is_beyond_a_session_begins_the_next_at_once(driver) {
        let backend = UdpBackend::echo();
        // Nothing says how many responses are to come: the sessions end in ten minutes.
        let server = stream(&format!("server {{ listen 127.0.0.1:%%PORT%% udp; proxy_pass {}; proxy_requests 3; }}", backend.address)).driver(driver).start();
        let client = UdpClient::of(&server, 0);
        let mut sent: Vec<String> = (0..40).map(|at| format!("datagram {at}")).collect();
        for text in &sent {
            client.send(text);
        }
        let mut received: Vec<String> = sent.iter().map(|_| client.text()).collect();
        sent.sort();
        received.sort();
        assert_eq!(received, sent);
    }

    fn a_server_that_owes_a_response_has_failed_by_proxy_timeout(driver) {
        let silent = UdpBackend::start(|_, _, _| {});
        let backend = UdpBackend::echo();
        let server = stream(&format!("
            log_format t '$status $upstream_addr $upstream_cause'; access_log %%DIR%%/access.log t;
            upstream u {{ server {} max_fails=1 fail_timeout=1h; server {} backup; }}
            proxy_timeout 300ms;
            server {{ listen 127.0.0.1:%%PORT%% udp; proxy_pass u; proxy_responses 1; }}
            server {{ listen 127.0.0.1:%%PORT_1%% udp; proxy_pass {}; }}
        ", silent.address, backend.address, silent.address)).driver(driver).start();
        UdpClient::of(&server, 0).send("lost");
        assert_eq!(server.access_log_lines(1), [format!("502 {} read_timeout", silent.address)]);
        let line = server.error_log_line("upstream timed out (110: Connection timed out) while proxying connection");
        assert!(line.contains("[error]") && line.contains(", udp client: 127.0.0.1, server: 127.0.0.1:"), "{line}");
        assert!(server.error_log_line("upstream server temporarily disabled while proxying connection").contains("[warn]"));
        assert_eq!(UdpClient::of(&server, 0).asks("found"), "found");
        // Where it is not known how many responses there are, silence is an end like any other.
        UdpClient::of(&server, 1).send("x");
        wait_for("its line", || server.access_log_lines(3).contains(&format!("200 {} -", silent.address)).then_some(()));
    }

    fn datagrams_that_are_refused_go_to_the_next_server(driver) {
        let backend = UdpBackend::echo();
        let closed = UdpSocket::bind("127.0.0.1:0").expect("loopback binds").local_addr().expect("bound");
        let server = stream(&format!("
            log_format t '$status $bytes_received $upstream_addr $upstream_cause'; access_log %%DIR%%/access.log t;
            upstream u {{ server {closed} max_fails=0; server {} max_fails=0; }}
            upstream first {{ server {closed}; server {} backup; }}
            server {{ listen 127.0.0.1:%%PORT%% udp; proxy_pass u; proxy_requests 1; proxy_responses 1; }}
            server {{ listen 127.0.0.1:%%PORT_1%% udp; proxy_pass {closed}; }}
            server {{ listen 127.0.0.1:%%PORT_2%% udp; proxy_pass first; proxy_next_upstream off; }}
        ", backend.address, backend.address)).driver(driver).start();
        for _ in 0..4 {
            assert_eq!(UdpClient::of(&server, 0).asks("there and back"), "there and back");
        }
        let tried = format!("200 14 {closed}, {} connect_refused, -", backend.address);
        wait_for("the lines", || server.access_log_lines(4).contains(&tried).then_some(()));
        UdpClient::of(&server, 1).send("x");
        UdpClient::of(&server, 2).send("x");
        let lines = server.access_log_lines(6);
        assert!(lines[4..].iter().all(|line| *line == format!("502 1 {closed} connect_refused")), "{lines:?}");
        let line = server.error_log_line("failed (111: Connection refused) while proxying connection, udp client: ");
        assert!(line.contains("[error]"), "{line}");
    }

    fn what_is_not_the_server_s_is_not_passed_on(driver) {
        let backend = UdpBackend::start(|socket, bytes, from| {
            let other = UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
            other.send_to(b"forged", from).expect("loopback takes it");
            socket.send_to(bytes, from).expect("loopback takes it");
        });
        let server = stream(&format!("server {{ listen 127.0.0.1:%%PORT%% udp; proxy_pass {}; }}", backend.address)).driver(driver).start();
        let client = UdpClient::of(&server, 0);
        for text in ["one", "two"] {
            assert_eq!(client.asks(text), text);
        }
    }

    fn what_sessions_over_tcp_have_holds_over_udp(driver) {
        let backend = UdpBackend::echo();
        let server = stream(&format!("
            map $remote_addr $mapped {{ default other; 127.0.0.1 'from home'; }}
            limit_conn_zone $binary_remote_addr zone=one:1m;
            log_format t '$server_port $protocol $status $bytes_sent $limit_conn_status'; access_log %%DIR%%/access.log t;
            upstream hashed {{ hash $remote_port consistent; server {0}; }}
            server {{ listen 127.0.0.1:%%PORT%% udp; set $own \"$mapped and\"; return \"$own $protocol $server_addr $remote_port\"; }}
            server {{ listen 127.0.0.1:%%PORT%%; return over-tcp; }}
            server {{ listen 127.0.0.1:%%PORT_1%% udp; deny 127.0.0.1; return no; }}
            server {{ listen 127.0.0.1:%%PORT_2%% udp; limit_conn one 1; proxy_pass hashed; }}
            server {{ listen 127.0.0.1:%%PORT_3%% udp; proxy_bind 127.0.0.7; proxy_protocol on; proxy_pass {0}; }}
            server {{ listen 127.0.0.1:%%PORT_4%% udp; return ''; }}
        ", backend.address)).driver(driver).start();
        let client = UdpClient::of(&server, 0);
        // Each datagram is a session, those that come at once too.
        client.send("x").send("y").send("z");
        let text = format!("from home and UDP 127.0.0.1 {}", client.port());
        assert_eq!([client.text(), client.text(), client.text()], [&*text; 3]);
        assert_eq!(weir_test::Client::connect(server.addr(0)).rest().0, b"over-tcp");
        UdpClient::of(&server, 1).send("x");
        assert!(server.error_log_line("access forbidden by rule, udp client: 127.0.0.1, server: 127.0.0.1:").contains("[error]"));
        let lines = server.access_log_lines(5);
        let answered = format!("{} UDP 200 {} -", server.port(0), text.len());
        assert_eq!(lines.iter().filter(|line| **line == answered).count(), 3, "{lines:?}");
        assert!(lines.contains(&format!("{} TCP 200 8 -", server.port(0))) && lines.contains(&format!("{} UDP 403 0 -", server.port(1))), "{lines:?}");
        let first = UdpClient::of(&server, 2);
        assert_eq!(first.asks("x"), "x");
        UdpClient::of(&server, 2).send("x");
        assert_eq!(server.access_log_lines(6)[5], format!("{} UDP 503 0 REJECTED", server.port(2)));
        let client = UdpClient::of(&server, 3);
        let header = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", client.port(), server.port(3));
        assert_eq!([client.asks("first"), client.asks("second")], [format!("{header}first"), "second".to_owned()]);
        UdpClient::of(&server, 4).send("x");
        assert_eq!(server.access_log_lines(7)[6], format!("{} UDP 200 0 -", server.port(4)));
    }

    fn flows_outlive_reloads_and_a_stop_ends_them(driver) {
        let backend = UdpBackend::ports();
        for workers in [1, 3] {
            let conf = |text: &str| format!("worker_processes {workers}; worker_shutdown_timeout 1h; stream {{ {text}
                server {{ listen 127.0.0.1:%%PORT%% udp reuseport; proxy_pass {}; }} }}", backend.address);
            let mut server = Server::builder(&conf("server { listen 127.0.0.1:%%PORT_1%% udp; return old; }")).driver(driver).start();
            let clients: Vec<UdpClient> = (0..20).map(|_| UdpClient::of(&server, 0)).collect();
            let ports: Vec<String> = clients.iter().map(|client| client.asks("x")).collect();
            for turn in 0..4 {
                server.reload(&conf(&format!("server {{ listen 127.0.0.1:%%PORT_1%% udp; return turn-{turn}; }}")));
                let next = format!("turn-{turn}");
                wait_for("the new configuration", || (UdpClient::of(&server, 1).asks("x") == next).then_some(()));
                let now: Vec<String> = clients.iter().map(|client| client.asks("x")).collect();
                assert_eq!(now, ports, "{turn}");
            }
            assert_eq!(server.quit().status.code(), Some(0));
        }
    }

    fn a_worker_gets_a_socket_back_that_it_had_before(driver) {
        let conf = |workers: u32, text: &str| format!("worker_processes {workers}; stream {{ server {{
            listen 127.0.0.1:%%PORT%% udp reuseport; return {text}; }} }}");
        let mut server = Server::builder(&conf(2, "first")).driver(driver).start();
        for turn in 0..12 {
            server.reload(&conf([1, 3, 2][turn % 3], &format!("turn-{turn}")));
            let next = format!("turn-{turn}");
            wait_for("the new configuration", || (UdpClient::of(&server, 0).asks("x") == next).then_some(()));
        }
        assert_eq!(server.quit().status.code(), Some(0));
    }

    fn a_flow_makes_room_for_others_unless_its_client_goes_on(driver) {
        let backend = UdpBackend::ports();
        let conf = format!("events {{ worker_connections 24; }} stream {{
            server {{ listen 127.0.0.1:%%PORT%% udp; proxy_pass {}; }} }}", backend.address);
        let server = Server::builder(&conf).driver(driver).start();
        let faithful = UdpClient::of(&server, 0);
        let port = faithful.asks("x");
        let mut others = Vec::new();
        for _ in 0..20 {
            assert_eq!(faithful.asks("x"), port);
            for _ in 0..10 {
                let other = UdpClient::of(&server, 0);
                other.asks("x");
                others.push(other);
            }
        }
        assert_eq!(faithful.asks("x"), port);
        assert!(server.error_log_line("24 worker_connections are not enough, ending the oldest flows of UDP").contains("[warn]"));
    }

    fn a_flow_is_not_passed_on_to_another_address(driver) {
        let server = stream("log_format t $status; access_log %%DIR%%/access.log t;
            server { listen 127.0.0.1:%%PORT%% udp; pass 127.0.0.1:%%PORT_1%%; }
            server { listen 127.0.0.1:%%PORT_1%%; return tcp; }
            server { listen 127.0.0.1:%%PORT_1%% udp; return udp; }").driver(driver).start();
        UdpClient::of(&server, 0).send("datagram");
        assert!(server.error_log_line("cannot pass UDP connection").contains("[error]"));
        assert_eq!(server.access_log_lines(1), ["500"]);
        assert_eq!(UdpClient::of(&server, 1).asks("datagram"), "udp");
    }

    fn rates_hold_each_direction_back(driver) {
        let backend = UdpBackend::echo();
        let to = format!("proxy_pass {};", backend.address);
        let server = stream(&format!("server {{ listen 127.0.0.1:%%PORT%% udp; {to} proxy_upload_rate 1000; }}
            server {{ listen 127.0.0.1:%%PORT_1%% udp; {to} proxy_download_rate 1000; }}")).driver(driver).start();
        for port in [0, 1] {
            let begun = std::time::Instant::now();
            let client = UdpClient::of(&server, port);
            for _ in 0..3 {
                client.send([b'x'; 500]);
            }
            for _ in 0..3 {
                assert_eq!(client.receive().len(), 500);
            }
            // A pause of half a second between two of them.
            assert!(begun.elapsed() >= Duration::from_millis(950), "{port}: {:?}", begun.elapsed());
        }
    }
}

#[test]
fn a_stop_that_waits_for_a_response_passes_it_on() {
    let late = UdpBackend::start(|socket, bytes, from| {
        std::thread::sleep(Duration::from_millis(400));
        socket.send_to(bytes, from).expect("loopback takes it");
    });
    let mut server = stream(&format!(
        "server {{ listen 127.0.0.1:%%PORT%% udp; proxy_pass {}; proxy_responses 1; }}",
        late.address
    ))
    .start();
    let client = UdpClient::of(&server, 0);
    client.send("late");
    assert!(server.error_log_line("udp client 127.0.0.1:").contains("connected to"));
    server.signal(ServerSignal::Quit);
    assert_eq!(client.text(), "late");
    assert!(server.wait_exit().status.success());
}

#[test]
fn what_udp_has_no_use_for_is_refused_as_by_nginx() {
    for (parameters, message) in [
        ("udp ssl", "\"listen\" directive \"ssl\" parameter is incompatible with \"udp\""),
        ("udp backlog=5", "\"backlog\" parameter is incompatible with \"udp\""),
        ("fastopen=5 udp", "\"fastopen\" parameter is incompatible with \"udp\""),
        ("deferred udp", "\"deferred\" parameter is incompatible with \"udp\""),
        ("so_keepalive=on udp", "\"so_keepalive\" parameter is incompatible with \"udp\""),
        ("udp proxy_protocol", "\"proxy_protocol\" parameter is incompatible with \"udp\""),
    ] {
        let text = format!("stream {{ server {{ listen 127.0.0.1:%%PORT%% {parameters}; return x; }} }}");
        let exit = Server::builder(&text).run(&["-t"]);
        assert!(!exit.status.success() && exit.stderr.contains(message), "{text}: {}", exit.stderr);
    }
    let text = "stream { server { listen unix:%%DIR%%/s udp; return x; } }";
    assert!(
        Server::builder(text)
            .run(&["-t"])
            .stderr
            .contains("\"udp\" is not supported for a UNIX-domain socket")
    );
    let text = "http { server { listen 127.0.0.1:%%PORT%% udp; } }";
    assert!(Server::builder(text).run(&["-t"]).stderr.contains("invalid parameter \"udp\""));
    let text = "stream { server { listen 127.0.0.1:%%PORT%% udp; return x; } server { listen 127.0.0.1:%%PORT%% udp; return y; } }";
    let exit = Server::builder(text).run(&["-t"]);
    assert!(exit.status.success() && !exit.stderr.contains("duplicate"), "{}", exit.stderr);
}
