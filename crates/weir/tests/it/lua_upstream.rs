//! `ngx.upstream` and `weir.upstream`, as scripts, clients and servers see them.

use weir_test::{Backend, Server, both_drivers, free_port, wait_for};

/// Responds to each request with `word`.
fn saying(word: &'static str) -> Backend {
    Backend::start(move |visit| {
        while visit.head().is_some() {
            visit.answer(word);
        }
    })
}

/// A server with the upstream `u { group }`, `init_worker` and a location for each of the scripts.
fn serve(group: &str, init: &str, scripts: &[(&str, &str)]) -> Server {
    let locations: String = scripts
        .iter()
        .map(|(name, script)| format!("location /{name} {{ content_by_lua_block {{ {script} }} }}\n"))
        .collect();
    Server::start(&format!(
        "worker_processes 2;
        http {{ upstream u {{ {group} }} upstream other {{ server 127.0.0.2:1; }}
            init_worker_by_lua_block {{ {init} }}
            server {{ listen 127.0.0.1:%%PORT%%; error_log %%DIR%%/error.log notice;
                location / {{ proxy_pass http://u;
                    header_filter_by_lua_block {{ ngx.header.x_group = require('ngx.upstream').current_upstream_name() }} }}
                {locations} }} }}"
    ))
}

const LISTS: &str = "local up, json = require 'ngx.upstream', require 'cjson'
    local function sorted(value)
        if type(value) ~= 'table' then return tostring(value) end
        local keys, parts = {}, {}
        for key in pairs(value) do keys[#keys + 1] = key end
        table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
        for at, key in ipairs(keys) do parts[at] = key .. '=' .. sorted(value[key]) end
        return '{' .. table.concat(parts, ' ') .. '}'
    end
    ngx.say(table.concat(up.get_upstreams(), ' '))
    ngx.say(sorted(up.get_servers('u'))) ngx.say(sorted(up.get_primary_peers('u'))) ngx.say(sorted(up.get_backup_peers('u')))
    ngx.say(sorted(up.get_backup_peers('other'))) ngx.say(up.get_servers('none'))
    ngx.say(select(2, pcall(up.get_servers))) ngx.say(up.set_peer_down('u', false, 7, true)) ngx.say(up.set_peer_down('other', true, 0, true))";

both_drivers! {
    fn groups_are_listed(driver) {
        let group = "server 127.0.0.1:1 weight=3 max_fails=2 fail_timeout=5s; server 127.0.0.1:2 down; server 127.0.0.1:3 backup;";
        let server = serve(group, "", &[("list", LISTS)]);
        let own = "conns=0 current_weight=0";
        assert_eq!(server.get("/list").text(), format!(
            "u other\n\
             {{1={{addr=127.0.0.1:1 fail_timeout=5 max_fails=2 name=127.0.0.1:1 weight=3}} \
             2={{addr=127.0.0.1:2 down=true fail_timeout=10 max_fails=1 name=127.0.0.1:2 weight=1}} \
             3={{addr=127.0.0.1:3 backup=true fail_timeout=10 max_fails=1 name=127.0.0.1:3 weight=1}}}}\n\
             {{1={{{own} effective_weight=3 fail_timeout=5 fails=0 id=0 max_fails=2 name=127.0.0.1:1 weight=3}} \
             2={{{own} down=true effective_weight=1 fail_timeout=10 fails=0 id=1 max_fails=1 name=127.0.0.1:2 weight=1}}}}\n\
             {{1={{{own} effective_weight=1 fail_timeout=10 fails=0 id=0 max_fails=1 name=127.0.0.1:3 weight=1}}}}\n\
             {{}}\nnilupstream not found\nexactly one argument expected\nnilbad peer id\nnilno backup peers\n"
        ));
    }

    fn a_peer_that_is_turned_down_is_not_asked(driver) {
        let (a, b) = (saying("a"), saying("b"));
        let group = format!("server 127.0.0.1:{}; server 127.0.0.1:{} backup;", a.port(), b.port());
        let server = serve(&group, "", &[
            ("down", "ngx.say(require('ngx.upstream').set_peer_down('u', false, 0, true))"),
            ("up", "ngx.say(require('ngx.upstream').set_peer_down('u', false, 0, false))"),
            ("turn", "ngx.say(weir.upstream.turn('u', weir.upstream.get('u').servers[1].peers[1].address, false))"),
            ("listed", "ngx.say(weir.upstream.set('u', weir.upstream.get('u').servers[1].server, { down = false }))"),
        ]);
        let answer = server.get("/");
        assert_eq!((answer.text().as_str(), answer.field("x-group")), ("a", Some("u")));
        for (path, then) in [("/down", "b"), ("/up", "a"), ("/turn", "b"), ("/listed", "a")] {
            assert_eq!(server.get(path).text(), "true\n");
            // Whichever worker is asked: what is known of servers belongs to all.
            for _ in 0..6 {
                assert_eq!(server.get("/").text(), then, "behind {path}");
            }
        }
    }

    fn servers_come_and_go_and_scripts_hear_of_it(driver) {
        let (a, b) = (saying("a"), saying("b"));
        let init = "assert(weir.upstream.subscribe('u', function(group)
            ngx.log(ngx.NOTICE, 'worker ', ngx.worker.id(), ' sees ', #group.servers, ' servers') end))";
        let server = serve(&format!("server 127.0.0.1:{};", a.port()), init, &[
            ("add", &format!("ngx.say(weir.upstream.add('u', {{ server = '127.0.0.1:{}', weight = 7 }}))", b.port())),
            ("again", &format!("ngx.say(weir.upstream.add('u', '127.0.0.1:{}'))", b.port())),
            ("remove", &format!("ngx.say(weir.upstream.remove('u', '127.0.0.1:{}'))", a.port())),
            ("wrong", "ngx.say(weir.upstream.add('u', { server = '127.0.0.1:1', colour = 1 }))
                ngx.say(weir.upstream.remove('u', 'nobody')) ngx.say(weir.upstream.get('none'))
                ngx.say(weir.upstream.replace('u', { '127.0.0.1:1', '127.0.0.1:1' }))
                ngx.say((select(2, pcall(weir.upstream.add, 'u', print)):gsub('^.-: ', '')))"),
            ("get", "local group = weir.upstream.get('u') local at = group.servers[#group.servers]
                ngx.say(group.name, ' ', group.method, ' ', at.settings.weight, ' ', at.peers[1].health, ' ', tostring(at.peers[1].last_error))"),
        ]);
        assert_eq!(server.get("/add").text(), "true\n");
        assert_eq!(server.get("/again").text(), "nilthis server is in the upstream already\n");
        assert_eq!(server.get("/get").text(), "u round_robin 7 up nil\n");
        assert_eq!(server.get("/remove").text(), "true\n");
        assert_eq!(server.get("/").text(), "b");
        for worker in 0..2 {
            assert!(server.error_log_line(&format!("worker {worker} sees 1 servers")).contains("ngx.timer"));
        }
        assert_eq!(
            server.get("/wrong").text(),
            "nilunknown key \"colour\"\nnilthere is no such server in this upstream\nnilupstream not found\n\
             nil\"127.0.0.1:1\" is listed twice\nbad argument #2 to 'add' (a server's settings expected)\n"
        );
    }

    fn a_wait_ends_with_a_change_or_its_time(driver) {
        let (a, dead) = (saying("a"), free_port());
        let server = serve(&format!("server 127.0.0.1:{dead}; server 127.0.0.1:{};", a.port()), "", &[
            ("late", "ngx.say(weir.upstream.wait('u', nil, 0.01))"),
            ("wait", "local seen = weir.upstream.changes('u') ngx.say('waits') ngx.flush(true)
                local now = weir.upstream.wait('u', seen) ngx.say(now ~= seen, ' ', weir.upstream.get('u').servers[1].peers[1].health)"),
        ]);
        assert_eq!(server.get("/late").text(), "niltimeout\n");
        let mut waits = server.client();
        waits.send("GET /wait HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").until("waits");
        // The server that is not there is asked sooner or later, by each worker for itself.
        wait_for("a request that fails over", || {
            (server.get("/").text() == "a" && server.error_log().contains("Connection refused")).then_some(())
        });
        let (rest, _) = waits.rest();
        assert!(String::from_utf8_lossy(&rest).contains("true unavailable"), "{}", String::from_utf8_lossy(&rest));
    }

    fn who_waits_does_not_hold_up_the_end(driver) {
        let init = "assert(weir.upstream.subscribe('u', function() end))";
        let mut server = serve("server 127.0.0.1:1;", init, &[("say", "ngx.say('here')")]);
        assert_eq!(server.get("/say").text(), "here\n");
        assert!(server.quit().status.success());
    }
}
