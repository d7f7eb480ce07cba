//! The privileged agent: a process beside the server, with the master's rights.

use std::os::unix::fs::PermissionsExt;

use weir_test::{Server, ServerSignal, both_drivers, wait_for};

use super::*;

/// With an agent that does in a timer what `/tell?do=` says, and puts what came of it under that key, where `/seen?key=`
/// finds it; `pid` is the agent's number.
fn conf(main: &str) -> String {
    format!(
        "{main} master_process on; worker_processes 2; events {{}} http {{ lua_shared_dict seen 1m;
        init_by_lua_block {{ assert(require('ngx.process').enable_privileged_agent(64)) }}
        init_worker_by_lua_block {{ {AGENT} }}
        server {{ listen 127.0.0.1:%%PORT%%; default_type text/plain;
            location /seen {{ content_by_lua_block {{ ngx.print(tostring(ngx.shared.seen:get(ngx.var.arg_key))) }} }}
            location /tell {{ content_by_lua_block {{
                ngx.print(tostring(weir.events.publish(-1, 'do', ngx.var.arg_do, ngx.var.arg_with)))
            }} }}
            location /counters {{ content_by_lua_block {{
                local C = require('ffi').C
                ngx.print(tonumber(C.ngx_stat_active[0]), ' ', tonumber(C.ngx_stat_requests[0]))
            }} }}
            location /worker {{ content_by_lua_block {{
                local file, why = io.open(ngx.var.arg_file)
                ngx.print(tostring(file), ' ', why, ' ', require('ngx.process').get_master_pid())
            }} }}
        }} }}"
    )
}

const AGENT: &str = r#"
    local process, ffi = require 'ngx.process', require 'ffi'
    pcall(ffi.cdef, 'int kill(int pid, int sig);')
    local seen = ngx.shared.seen
    if process.type() ~= 'privileged agent' then return end
    local tasks = {}
    function tasks.dict()
        local said = {}
        local function note(...)
            for at = 1, select('#', ...) do said[#said + 1] = tostring((select(at, ...))) end
        end
        note(seen:set('a', 'text', 60, 7)) note(seen:get('a')) note(seen:add('a', 1)) note(seen:replace('none', 1))
        note(seen:incr('n', 2, 1)) note(seen:incr('n', 2)) note(seen:incr('a', 1)) note(seen:get('n'))
        note(seen:set('yes', true)) note(seen:get('yes')) note(seen:set('long', ('x'):rep(100000))) note(#seen:get('long'))
        note(seen:lpush('l', 'one')) note(seen:rpush('l', 2)) note(seen:llen('l')) note(seen:get('l'))
        note(seen:lpop('l')) note(seen:rpop('l')) note(seen:lpop('l')) note(seen:llen('a'))
        note(seen:ttl('a') > 0) note(seen:expire('a', 90)) note(seen:ttl('a') > 60) note(seen:ttl('none'))
        note(seen:delete('a')) note(seen:get('a')) note(seen:capacity()) note(seen:free_space() > 0)
        note(seen:set('short', 1, 0.001)) ngx.sleep(0.01) note(seen:get('short')) note((seen:get_stale('short')))
        note(seen:flush_expired()) note(type(seen:get_keys()[1]))
        seen:delete('long')
        return table.concat(said, ' ')
    end
    function tasks.me() return table.concat({ process.get_master_pid(), tostring(ngx.worker.id()), tostring(ngx.worker.exiting()) }, ' ') end
    function tasks.read(name) return assert(io.open(name)):read('*a') end
    function tasks.rename(name) return tostring(os.rename(name, name .. '.1')) end
    function tasks.signal(number) return tostring(ffi.C.kill(process.get_master_pid(), tonumber(number))) end
    function tasks.counters()
        local C = ffi.C
        -- Others go on between two looks.
        local handled, reading = C.ngx_stat_handled[0] <= C.ngx_stat_accepted[0], C.ngx_stat_reading[0]
        return tostring(handled and C.ngx_stat_active[0] > 0 and C.ngx_stat_requests[0] >= 10 and reading < 100)
    end
    function tasks.leave() process.signal_graceful_exit() return 'asked' end
    local function run(with, what) seen:set(what, select(2, pcall(tasks[what], with))) end
    weir.events.subscribe('do', '*', run)
    ngx.timer.at(3600, function() ngx.log(ngx.WARN, 'the agent leaves, exiting: ', ngx.worker.exiting()) end)
    -- Who reads this finds an agent that hears.
    ngx.timer.at(0, function() seen:set('pid', ngx.worker.pid()) end)
"#;

fn get(server: &Server, path: &str) -> String {
    let answer = server.client().get(path);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}

/// Has the agent do something, and returns what came of it.
#[track_caller]
fn agent_does(server: &Server, what: &str, with: &str) -> String {
    assert_eq!(get(server, &format!("/tell?do={what}&with={with}")), "true");
    wait_for(what, || Some(get(server, &format!("/seen?key={what}"))).filter(|said| said != "nil"))
}

/// The agent's number, once it is another one than `other`.
#[track_caller]
fn agent_of(server: &Server, other: Option<u32>) -> u32 {
    let pid =
        wait_for("an agent", || get(server, "/seen?key=pid").parse().ok().filter(|pid| Some(*pid) != other));
    wait_for("its title", || (title(pid) == "weir: privileged agent process").then_some(()));
    pid
}

both_drivers! {
    fn the_agent_shares_the_servers_dictionaries(driver) {
        let server = Server::builder(&conf("")).driver(driver).allow("the agent leaves").start();
        let agent = agent_of(&server, None);
        assert_ne!(agent, server_of(server.pid(), None));
        assert!(status(agent).contains(&format!("\nPPid:\t{}\n", server.pid())), "{}", status(agent));
        assert_eq!(agent_does(&server, "me", ""), format!("{} nil false", server.pid()));
        assert!(get(&server, "/worker?file=none").ends_with(&format!(" {}", server.pid())));
        let wanted = "true nil false text 7 false exists false false not found false 3 nil false 5 nil not a number 5 \
            true nil false true true nil false 100000 1 2 2 nil value is a list one 2 nil nil value not a list \
            true true true nil not found true nil false nil 1048576 true true nil false nil 1 1 string";
        assert_eq!(agent_does(&server, "dict", ""), wanted);
        // nginx's counters, by the names of its variables in C.
        let mut client = server.client();
        for request in 0..10 {
            let answer = client.get("/counters").text();
            let numbers: Vec<u64> = answer.split(' ').map(|number| number.parse().expect("a number")).collect();
            assert!(numbers[0] > 0 && numbers[1] > request, "{answer}");
        }
        assert_eq!(agent_does(&server, "counters", ""), "true");
        // The server finds what the agent has put there.
        assert_eq!(get(&server, "/seen?key=n"), "5");
    }

    fn an_agent_that_ends_is_started_again(driver) {
        let server = Server::builder(&conf("")).driver(driver).allow("exited on signal 9").allow("the agent leaves");
        let mut server = server.allow("soon after their start").allow("master process is gone").start();
        let first = agent_of(&server, None);
        kill(first, "KILL");
        let line = server.error_log_line("exited on signal 9");
        assert!(line.contains("[alert]") && line.contains(&format!("privileged agent process {first} ")), "{line}");
        let second = agent_of(&server, Some(first));
        assert_eq!(agent_does(&server, "leave", ""), "asked");
        let line = server.error_log_line(&format!("privileged agent process {second} exited"));
        assert!(line.contains("exited with code 0"), "{line}");
        let _ = server.error_log_line("the agent leaves, exiting: true");
        let third = agent_of(&server, Some(second));
        // It lives as long as the server whose dictionaries it shares.
        let serving = server_of(server.pid(), None);
        kill(serving, "KILL");
        wait_gone(third);
        server_of(server.pid(), Some(serving));
        let fourth = agent_of(&server, Some(third));
        server.signal(ServerSignal::Kill);
        let _ = server.wait_exit();
        wait_gone(fourth);
    }
}

/// What gateways have an agent for: files that are root's, the master's signals.
#[test]
fn the_agent_has_the_masters_rights() {
    if !is_root() {
        return weir_test::skip("only root has rights that others have not");
    }
    let text = conf("user nobody nogroup; error_log %%DIR%%/logs/own.log notice;");
    let server = Server::builder(&text).allow("the agent leaves").file("secret/word", "hush");
    let (secret, logs) = (server.dir().join("secret"), server.dir().join("logs"));
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).expect("ours");
    let server = server.start();
    let first = agent_of(&server, None);
    assert!(status(first).contains("\nUid:\t0\t0\t0\t0\n"), "{}", status(first));
    assert!(!status(server_of(server.pid(), None)).contains("\nUid:\t0\t"));
    let word = secret.join("word");
    let word = word.to_str().expect("a path of letters");
    let refused = get(&server, &format!("/worker?file={word}"));
    assert!(refused.starts_with("nil ") && refused.contains("Permission denied"), "{refused}");
    assert_eq!(agent_does(&server, "read", word), "hush");
    // A log is rotated: renamed, and opened again by all three processes.
    let log = logs.join("own.log");
    assert_eq!(agent_does(&server, "rename", log.to_str().expect("a path of letters")), "true");
    assert_eq!(agent_does(&server, "signal", "10"), "0");
    for who in [server.pid(), server_of(server.pid(), None), first] {
        // Each says so in the log that it writes to then, the old one.
        let line = format!("[notice] {who}#");
        wait_for("the new log", || {
            let old = fs::read_to_string(logs.join("own.log.1")).expect("renamed");
            let said = |text: &str| text.lines().any(|l| l.contains(&line) && l.contains("reopening logs"));
            (said(&old) || said(&fs::read_to_string(&log).unwrap_or_default())).then_some(())
        });
    }
    // A reload, too, and the next configuration has an agent of its own.
    get(&server, "/tell?do=signal&with=1");
    let second = agent_of(&server, Some(first));
    wait_gone(first);
    assert_eq!(agent_does(&server, "read", word), "hush");
    assert!(status(second).contains("\nUid:\t0\t0\t0\t0\n"), "{}", status(second));
}
