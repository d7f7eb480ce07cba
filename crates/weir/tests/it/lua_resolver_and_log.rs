//! `weir.resolver` and `weir.log`.

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;

use weir_test::{DEADLINE, NameReply, NameServer, Server, both_drivers, free_listener};

fn serve(http: &str, scripts: &[(&str, &str)]) -> Server {
    let locations: String = scripts
        .iter()
        .map(|(name, script)| format!("location /{name} {{ content_by_lua_block {{ {script} }} }}\n"))
        .collect();
    Server::start(&format!(
        "worker_processes 2; http {{ {http} server {{ listen 127.0.0.1:%%PORT%%; error_log %%DIR%%/error.log info;
            {locations} }} }}"
    ))
}

fn names() -> NameServer {
    NameServer::start(|asked| match (&*asked.name, asked.kind) {
        ("here.example", 1) => NameReply::Addresses(
            vec![Ipv4Addr::new(127, 0, 0, 3).into(), Ipv4Addr::new(127, 0, 0, 4).into()],
            60,
        ),
        ("_http._tcp.here.example", 33) => {
            NameReply::Services(vec![(1, 2, 8080, "here.example"), (5, 0, 81, "here.example")], 60)
        }
        _ => NameReply::Code(3),
    })
}

both_drivers! {
    fn names_are_looked_up_and_cached(driver) {
        let dns = names();
        let server = serve(&format!("resolver {} ipv6=off;", dns.address()), &[
            ("a", "local list, answer = weir.resolver.addresses('here.example')
                ngx.say(table.concat(list, ' '), ' ', answer.ttl > 0 and answer.ttl <= 60, ' ', tostring(answer.stale))"),
            ("srv", "for _, s in ipairs((weir.resolver.services('_http._tcp.here.example'))) do
                ngx.say(s.priority, ' ', s.weight, ' ', s.target, ':', s.port, ' ', s.addresses[1]) end"),
            ("cached", "ngx.say((weir.resolver.cached('here.example') or {})[2])"),
            ("none", "ngx.say(weir.resolver.addresses('nowhere.example')) ngx.say(weir.resolver.addresses('a..b'))
                ngx.say(weir.resolver.names('here.example')) ngx.say((select(2, pcall(weir.resolver.addresses)):gsub('^.-: ', '')))"),
        ]);
        assert_eq!(server.get("/cached").text(), "nil\n");
        let said = server.get("/a").text();
        assert!(said == "127.0.0.3 127.0.0.4 true nil\n" || said == "127.0.0.4 127.0.0.3 true nil\n", "{said}");
        assert!(server.get("/cached").text().starts_with("127.0.0."));
        let asked = dns.asked();
        server.get("/a");
        assert_eq!(dns.asked(), asked, "the second answer is known");
        let said = server.get("/srv").text();
        assert!(said.starts_with("1 2 here.example:8080 127.0.0."), "{said}");
        assert!(said.contains("\n5 0 here.example:81 127.0.0."), "{said}");
        assert_eq!(
            server.get("/none").text(),
            "nilHost not found3\nnilinvalid name\nnilinvalid name\n\
             bad argument #1 to 'addresses' (string expected, got nil)\n"
        );
    }

    fn without_a_resolver_there_are_no_names(driver) {
        let server = serve("", &[("a", "ngx.say(weir.resolver.addresses('here.example'))")]);
        assert_eq!(server.get("/a").text(), "nilno resolver defined\n");
    }

    fn answers_outlive_their_name_servers(driver) {
        let dns = NameServer::start(|_| NameReply::Addresses(vec![Ipv4Addr::LOCALHOST.into()], 0));
        let server = serve(&format!("resolver {} ipv6=off; resolver_timeout 200ms;", dns.address()), &[
            ("a", "local list, answer = weir.resolver.addresses('here.example') ngx.say(list and list[1] or answer, ' ', tostring(answer.stale))"),
        ]);
        assert_eq!(server.get("/a").text(), "127.0.0.1 nil\n");
        dns.set(|_| NameReply::Silence);
        weir_test::wait_for("a stale answer", || (server.get("/a").text() == "127.0.0.1 true\n").then_some(()));
    }

    fn lines_go_to_a_log_server(driver) {
        let listener = free_listener();
        let address = listener.local_addr().expect("bound");
        let server = serve(&format!("init_worker_by_lua_block {{ log = assert(weir.log.open('tcp://{address}')) }}"), &[
            ("write", "ngx.say(log:write('status ', 200, ' ', nil)) ngx.say(log:write('one\\ntwo\\n'))"),
            ("figures", "local f = log:figures() ngx.say(f.written, ' ', f.dropped, ' ', f.up)"),
            ("wrong", "ngx.say(weir.log.open('file.log')) ngx.say(weir.log.open('tcp://name.example:1'))
                ngx.say((select(2, pcall(log.write, log)):gsub('^.-: ', '')))"),
        ]);
        assert_eq!(server.get("/write").text(), "true\ntrue\n");
        let (stream, _) = listener.accept().expect("connected");
        stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
        let lines: Vec<_> = BufReader::new(stream).lines().take(3).map(|line| line.expect("text")).collect();
        assert_eq!(lines, ["status 200 nil", "one", "two"]);
        assert_eq!(server.get("/figures").text(), "2 0 true\n");
        assert_eq!(
            server.get("/wrong").text(),
            "nilinvalid log server \"file.log\"\nnilno address in log server \"tcp://name.example:1\"\n\
             bad argument #2 to 'write' (string expected, got nil)\n"
        );
    }

    fn who_writes_does_not_wait_for_a_log_server_that_is_gone(driver) {
        let gone = free_listener().local_addr().expect("bound");
        let server = serve("", &[(
            "fill",
            &format!(
                "local log, line, taken = assert(weir.log.open('udp://{gone}')), nil, 0
                 log = assert(weir.log.open('tcp://{gone}')) line = ('x'):rep(1048575)
                 for _ = 1, 10 do if log:write(line) then taken = taken + 1 end end
                 local f = log:figures() ngx.say(taken, ' ', f.written, ' ', f.dropped, ' ', f.waiting) ngx.say(log:write(line))"
            ),
        )]);
        assert_eq!(server.get("/fill").text(), "8 8 2 8388608\nnilbuffer full\n");
    }
}
