//! `ngx.pipe`: other programs, as scripts see them.

use weir_test::{Server, both_drivers};

/// What a content script says, with `pipe` at hand.
fn say(script: &str) -> String {
    let conf = format!(
        "http {{ server {{ listen 127.0.0.1:%%PORT%%; location / {{ content_by_lua_block {{
            local pipe = require 'ngx.pipe'
            {script} }} }} }} }}"
    );
    Server::builder(&conf).start().client().get("/").text()
}

both_drivers! {
    fn programs_are_written_to_and_read(driver) {
        let script = "local p = pipe.spawn({'cat'})
            ngx.say(p:write('hello '), p:write({'a', 1}), p:write(23))
            ngx.say(p:shutdown('stdin'))
            ngx.say(p:stdout_read_all())
            ngx.say(p:wait())
            ngx.say(p:wait())
            ngx.say(p:write('x'))
            ngx.say(p:stdout_read_line())
            ngx.say(p:kill(15))
            ngx.say(p:shutdown('stdout'))";
        let reported = "622\ntrue\nhello a123\ntrueexit0\nnilexited\nnilclosed\nnilclosed\nnilexited\nnilclosed\n";
        assert_eq!(say(script), reported);
    }

    fn output_is_read_in_pieces(driver) {
        let script = "local p = pipe.spawn([[printf 'one\\r\\ntwo three\\nfour' ; printf 'wrong\\n' >&2; exit 3]])
            ngx.say(p:stdout_read_line())
            ngx.say(p:stdout_read_bytes(4), '|', p:stdout_read_bytes(0), '|')
            ngx.say(p:stdout_read_line())
            local line, err, rest = p:stdout_read_line()
            ngx.say(line, err, rest)
            ngx.say(p:stdout_read_any(5))
            ngx.say(p:stderr_read_any(100))
            ngx.say(p:wait())";
        assert_eq!(say(script), "one\ntwo ||\nthree\nnilclosedfour\nnilclosed\nwrong\n\nfalseexit3\n");
        let merged = "local p = pipe.spawn({'sh', '-c', 'echo a; echo b >&2'}, {merge_stderr = true})
            ngx.print(p:stdout_read_all()) ngx.say(p:stderr_read_all()) ngx.say(p:shutdown('stderr'))";
        assert_eq!(say(merged), "a\nb\nnilmerged to stdout\nnilmerged to stdout\n");
    }

    fn much_goes_through(driver) {
        let script = "local p = pipe.spawn({'cat'}, {buffer_size = 100})
            local data = ('0123456789'):rep(100000)
            local t = ngx.thread.spawn(function() local sent, err = p:write(data) p:shutdown('stdin') return sent, err end)
            local all = p:stdout_read_all()
            ngx.say(all == data, select(2, ngx.thread.wait(t)), p:wait())";
        assert_eq!(say(script), "true1000000trueexit0\n");
    }

    fn who_reads_beside_a_wait_gets_all_of_it(driver) {
        let script = "local p = pipe.spawn([[head -c 200000 /dev/zero | tr '\\0' x; printf wrong >&2; exit 3]])
            local function all(read)
                local got = {}
                repeat
                    local data, err, rest = read(p, 100000)
                    got[#got + 1] = data or rest
                until not data
                return table.concat(got)
            end
            local out, wrong = ngx.thread.spawn(all, p.stdout_read_any), ngx.thread.spawn(all, p.stderr_read_any)
            local _, _, status = p:wait()
            ngx.say(#select(2, ngx.thread.wait(out)), ' ', select(2, ngx.thread.wait(wrong)), ' ', status)";
        assert_eq!(say(script), "200000 wrong 3\n");
    }

    fn waits_end_in_time(driver) {
        let script = "local p = pipe.spawn({'sh', '-c', 'printf half; exec sleep 90'})
            p:set_timeouts(30, 30, 30, 30)
            local some
            repeat some = p:stdout_read_any(100) until some
            ngx.say(some)
            ngx.say(p:stdout_read_line())
            ngx.say(p:stderr_read_any(1))
            ngx.say(p:wait())
            local big = ('x'):rep(1000000)
            ngx.say(p:write(big))
            ngx.say(p:kill(9))
            p:set_timeouts(nil, nil, nil, 0)
            ngx.say(p:wait())";
        assert_eq!(say(script), "half\nniltimeout\nniltimeout\nniltimeout\nniltimeout\ntrue\nfalsesignal9\n");
    }

    fn one_coroutine_at_a_time(driver) {
        let script = "local p = pipe.spawn({'cat'})
            p:set_timeouts(0, 0, 0, 0)
            local t = ngx.thread.spawn(function() return p:stdout_read_line() end)
            local w = ngx.thread.spawn(function() return p:wait() end)
            ngx.say(p:stdout_read_any(1))
            ngx.say(p:wait())
            p:write('done\\n')
            ngx.say(select(2, ngx.thread.wait(t)))
            local u = ngx.thread.spawn(function() return p:stdout_read_line() end)
            ngx.say(p:shutdown('stdout'))
            ngx.say(select(2, ngx.thread.wait(u)))
            p:kill(15)
            ngx.say(select(2, ngx.thread.wait(w)))";
        let reported = "nilpipe busy reading\nnilpipe busy waiting\ndone\ntrue\nnilaborted\nfalsesignal15\n";
        assert_eq!(say(script), reported);
        let killed = "local p = pipe.spawn({'cat'})
            local t = ngx.thread.spawn(function() return p:stdout_read_line() end)
            ngx.thread.kill(t)
            p:write('later\\n')
            ngx.say(p:stdout_read_line())";
        assert_eq!(say(killed), "later\n");
    }

    fn programs_have_what_they_are_given(driver) {
        let script = "local p = pipe.spawn({'/bin/sh', '-c', 'echo $A $HOME'}, {environ = {'A=b=c'}})
            ngx.print(p:stdout_read_all())
            local p = pipe.spawn({'/no/such/program'})
            ngx.say(p:stdout_read_all(), '|')
            ngx.say(p:wait())";
        assert_eq!(say(script), "b=c\n|\nfalseexit1\n");
    }

    fn wrong_calls_are_errors(driver) {
        let wrong = |call: &str| say(&format!("local p = pipe.spawn({{'cat'}}) ngx.print(select(2, pcall({call})))"));
        assert_eq!(wrong("pipe.spawn, {}"), "bad args arg: non-empty table expected");
        assert_eq!(wrong("pipe.spawn, nil"), "bad args arg: table expected, got nil");
        assert_eq!(wrong("pipe.spawn, {'a'}, {buffer_size = 0}"), "bad buffer_size option");
        assert_eq!(wrong("pipe.spawn, {'a'}, {environ = {'A'}}"),
            "bad value at index 1 of environ option: 'name=[value]' format expected, got 'A'");
        assert_eq!(wrong("p.set_timeouts, p, -1"), "bad write_timeout option");
        assert_eq!(wrong("p.stdout_read_bytes, p, -1"), "bad len argument");
        assert_eq!(wrong("p.stderr_read_any, p, 0"), "bad max argument");
        assert_eq!(wrong("p.write, p, true"), "bad data arg: string, number, or table expected, got boolean");
        assert_eq!(wrong("p.shutdown, p, 'x'"), "bad shutdown arg: x");
        assert_eq!(wrong("p.kill, p, 'x'"), "bad signal arg: number expected, got x");
        assert_eq!(wrong("p.wait, {}"), "not a process instance");
        assert_eq!(say("ngx.say(pipe.spawn({'cat'}):kill(1000))"), "nilinvalid signal\n");
    }

    fn forgotten_programs_are_killed_and_collected(driver) {
        let conf = "worker_processes 1; http { server { listen 127.0.0.1:%%PORT%%;
            location /start { content_by_lua_block { ngx.print(require('ngx.pipe').spawn({'sleep', '90'}):pid()) } }
            location /forget { content_by_lua_block { collectgarbage() collectgarbage() } } } }";
        let server = Server::builder(conf).driver(driver).start();
        let mut client = server.client();
        let pid = client.get("/start").text();
        let there = || std::path::Path::new("/proc").join(&pid).exists();
        weir_test::wait_for("end of a process that was forgotten", || {
            client.get("/forget");
            (!there()).then_some(())
        });
    }
}
