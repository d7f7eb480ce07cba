//! Names at run time: `resolver`, names in `proxy_pass`, `server NAME resolve`.

use std::net::IpAddr;

use weir_test::{AskedName, NameReply, NameServer, Server, TempDir, both_drivers, wait_for};

fn here() -> Vec<IpAddr> {
    vec![[127, 0, 0, 1].into()]
}

/// A server whose `/` asks the server of the host in `?h=`, which responds with its address and name.
fn computed(resolver: &str) -> Server {
    Server::start(&format!(
        "http {{
           resolver {resolver};
           resolver_timeout 10s;
           server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://$arg_h:%%PORT_1%%/; }} }}
           server {{ listen 127.0.0.1:%%PORT_1%%; listen 127.0.0.2:%%PORT_1%%; return 200 '$server_addr $host'; }}
         }}"
    ))
}

fn said(server: &Server, host: &str) -> (u16, String) {
    let response = server.get(&format!("/?h={host}"));
    (response.status, response.text())
}

fn logs(server: &Server, text: &str) {
    assert!(server.error_log_line(text).contains(text));
}

both_drivers! {
    /// With dead name servers a server that starts knows what the one before has known, as long as a stale answer lasts.
    fn names_outlive_the_process(driver) {
        for (kept, status) in [("resolver_cache %%DIR%%/../weir-names-KEY;", 200), ("resolver_cache off;", 502)] {
            let directory = TempDir::new();
            let kept = kept.replace("%%DIR%%/../weir-names-KEY", &directory.path().join("names").display().to_string());
            let dns = NameServer::start(|_| NameReply::Addresses(here(), 1));
            let conf = format!(
                "http {{ {kept} resolver {} ipv6=off; resolver_timeout 3s;
                   upstream u {{ zone u 64k; server a.example:%%PORT_1%% resolve; }}
                   server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u; }}
                   location /computed {{ proxy_pass http://$arg_h:%%PORT_1%%/; }} }}
                   server {{ listen 127.0.0.1:%%PORT_1%%; return 200 there; }} }}",
                dns.address()
            );
            let ask = |server: &Server| [server.get("/").status, server.get("/computed?h=b.example").status];
            let mut first = Server::start(&conf);
            assert_eq!(ask(&first), [200, 200]);
            if status == 200 {
                wait_for("the file", || {
                    let file = std::fs::read_dir(directory.path().join("names")).ok()?.flatten().next()?;
                    let text = std::fs::read_to_string(file.path()).ok()?;
                    (text.contains("a.example") && text.contains("b.example")).then_some(())
                });
            }
            assert!(first.quit().status.success());
            dns.set(|_| NameReply::Silence);
            let second = Server::builder(&conf).allow("could not be resolved").allow("no live upstreams").start();
            assert_eq!(ask(&second), [status, status], "{kept}");
        }
    }

    /// A request that comes before the upstream has its first address waits for it, and no longer than the look-up
    /// takes.
    fn the_first_address_is_waited_for(driver) {
        for (found, status) in [(true, 200), (false, 502)] {
            let (release, released) = std::sync::mpsc::channel::<()>();
            let released = std::sync::Mutex::new(released);
            let dns = NameServer::start(move |_| {
                // Both questions, for A and AAAA, wait until the test goes on.
                let _ = released.lock().expect("no panic").recv_timeout(weir_test::DEADLINE);
                if found { NameReply::Addresses(here(), 60) } else { NameReply::Code(3) }
            });
            let server = Server::builder(&format!(
                "http {{ resolver {} ipv6=off; resolver_timeout 600s;
                   upstream u {{ zone u 64k; server a.example:%%PORT_1%% resolve; }}
                   server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u; }} }}
                   server {{ listen 127.0.0.1:%%PORT_1%%; return 200 there; }} }}",
                dns.address()
            )).allow("no live upstreams").start();
            let mut clients = [server.client(), server.client()];
            for client in &mut clients {
                client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
            }
            wait_for("the question", || (dns.asked() > 0).then_some(()));
            assert!(!server.error_log().contains("no live upstreams"), "{}", server.error_log());
            drop(release);
            for client in &mut clients {
                assert_eq!(client.response().status, status, "found: {found}");
            }
        }
    }

    /// The name is asked for once, and what can't be resolved is logged in nginx's words.
    fn names_in_proxy_pass(driver) {
        let dns = NameServer::start(|asked| match (&*asked.name, asked.kind) {
            ("a.example", _) => NameReply::Addresses(here(), 60),
            ("broken.example", _) => NameReply::Code(2),
            _ => NameReply::Code(3),
        });
        let server = computed(&dns.address().to_string());
        for _ in 0..5 {
            assert_eq!(said(&server, "a.example"), (200, "127.0.0.1 a.example".to_owned()));
        }
        assert_eq!(dns.asked(), 2, "A and AAAA, once");
        assert_eq!(said(&server, "none.example").0, 502);
        logs(&server, "none.example could not be resolved (3: Host not found)");
        assert_eq!(said(&server, "broken.example").0, 502);
        logs(&server, "broken.example could not be resolved (2: Server failure)");
        assert_eq!(said(&server, "127.0.0.2").0, 200);
        assert_eq!(said(&server, "..").0, 502);
    }

    /// What the system says of a name server is not hidden by the time that passes until it is given up.
    fn a_name_server_that_refuses_is_named(driver) {
        // Nothing is bound to that address: other tests take their ports from 127.0.0.1.
        let server = computed("127.0.0.253:9 ipv6=off");
        let mut client = server.client();
        client.send("GET /?h=a.example HTTP/1.1\r\nHost: a\r\n\r\n");
        logs(&server, "recv() failed (111: Connection refused) while resolving, resolver: 127.0.0.253:9");
    }

    /// Without a resolver there is no server to ask.
    fn no_resolver(driver) {
        let server = Server::start(
            "http { server { listen 127.0.0.1:%%PORT%%; location / { proxy_pass http://$arg_h/; } } }",
        );
        assert_eq!(said(&server, "a.example").0, 502);
        logs(&server, "no resolver defined to resolve a.example");
    }

    /// What is cut off comes over TCP.
    fn large_answers(driver) {
        let dns = NameServer::start(|asked| match asked.stream {
            false => NameReply::Cut,
            true => NameReply::Addresses(here(), 60),
        });
        let server = computed(&format!("{} ipv6=off", dns.address()));
        assert_eq!(said(&server, "a.example").0, 200);
        assert_eq!(dns.asked(), 2);
    }

    /// One name server fails, the other answers; a backup is asked when none does.
    fn failover(driver) {
        let good = NameServer::start(|_| NameReply::Addresses(here(), 60));
        let bad = NameServer::start(|_| NameReply::Code(2));
        let server = computed(&format!("{} {}", bad.address(), good.address()));
        assert_eq!(said(&server, "a.example").0, 200);
        let server = computed(&format!("{} backup={}", bad.address(), good.address()));
        assert_eq!(said(&server, "b.example").0, 200);
    }

    /// All name servers fail: known names go on, through a reload, too; unknown ones fail.
    fn stale_addresses_stay_in_use(driver) {
        let dns = NameServer::start(|_| NameReply::Addresses(here(), 60));
        let text = format!("{} valid=1s", dns.address());
        let server = computed(&text);
        assert_eq!(said(&server, "a.example").0, 200);
        dns.set(|_| NameReply::Code(2));
        let before = dns.asked();
        wait_for("the name to be asked for in vain", || {
            assert_eq!(said(&server, "a.example").0, 200);
            (dns.asked() >= before + 2).then_some(())
        });
        assert_eq!(said(&server, "a.example").0, 200);
        assert_eq!(said(&server, "b.example").0, 502);
        dns.set(|_| NameReply::Addresses(vec![[127, 0, 0, 2].into()], 60));
        wait_for("the new address", || said(&server, "a.example").1.starts_with("127.0.0.2").then_some(()));
    }

    /// A server that is a name: unknown at first, then there, then elsewhere, then gone.
    fn servers_that_are_names(driver) {
        let dns = NameServer::start(|_| NameReply::Silence);
        let server = Server::start(&format!(
            "http {{
               resolver {} valid=1s ipv6=off;
               resolver_timeout 1s;
               upstream u {{ zone u 64k; server app.example:%%PORT_1%% resolve max_fails=0; }}
               server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u; }} }}
               server {{ listen 127.0.0.1:%%PORT_1%%; listen 127.0.0.2:%%PORT_1%%; return 200 $server_addr; }}
             }}",
            dns.address()
        ));
        assert_eq!(server.get("/").status, 502);
        logs(&server, "no live upstreams while connecting to upstream");
        logs(&server, "app.example could not be resolved (110: Operation timed out)");
        let becomes = |what: &str, status: u16, text: &str| {
            wait_for(what, || {
                let response = server.get("/");
                (response.status == status && response.text().contains(text)).then_some(())
            });
        };
        dns.set(|_| NameReply::Addresses(here(), 1));
        becomes("the first address", 200, "127.0.0.1");
        dns.set(|_| NameReply::Addresses(vec![[127, 0, 0, 2].into()], 1));
        becomes("the other address", 200, "127.0.0.2");
        dns.set(|_| NameReply::Code(2));
        let before = dns.asked();
        wait_for("look-ups in vain", || (dns.asked() >= before + 2).then_some(()));
        assert_eq!(server.get("/").text(), "127.0.0.2", "nobody said anything else");
        dns.set(|_| NameReply::Code(3));
        becomes("the name to be gone", 502, "");
        logs(&server, "app.example could not be resolved (3: Host not found)");
    }

    /// The servers of a service have ports of their own; those of higher numbers are backups.
    fn services(driver) {
        let port = weir_test::free_port();
        let behave = move |asked: &AskedName| match (&*asked.name, asked.kind) {
            ("_http._tcp.app.example", 33) => {
                NameReply::Services(vec![(2, 1, port, "far.example"), (1, 1, port, "near.example")], 60)
            }
            ("near.example", _) => NameReply::Addresses(here(), 60),
            ("far.example", _) => NameReply::Addresses(vec![[127, 0, 0, 2].into()], 60),
            _ => NameReply::Code(3),
        };
        let dns = NameServer::start(behave);
        let server = Server::start(&format!(
            "http {{
               upstream u {{ zone u 64k; resolver {} ipv6=off; server app.example resolve service=http; }}
               server {{ listen 127.0.0.1:%%PORT%%; location / {{ proxy_pass http://u; }} }}
               server {{ listen 127.0.0.1:{port}; listen 127.0.0.2:{port}; return 200 $server_addr; }}
             }}",
            dns.address()
        ));
        wait_for("the service", || (server.get("/").status == 200).then_some(()));
        for _ in 0..5 {
            assert_eq!(server.get("/").text(), "127.0.0.1", "the near one");
        }
    }
}
