//! Scripts in their handlers: `set_by_lua`, workers' ends, order beside a phase's handlers, uncached code, statuses of `ngx.exit`.

use weir_test::{Server, both_drivers, wait_for};

fn serve(http: &str, locations: &str) -> Server {
    let conf = format!(
        "events {{}}\nhttp {{ {http}\nserver {{ listen 127.0.0.1:%%PORT%%; default_type text/plain;\n{locations}\n}} }}\n"
    );
    Server::builder(&conf).file("html/a.txt", "a file").allow("hurt performance").start()
}

/// A content script at `/`, and what it says.
fn say(script: &str) -> String {
    serve("", &format!("location / {{ content_by_lua_block {{ {script} }} }}")).client().get("/").text()
}

both_drivers! {
    fn variables_are_set_by_scripts_in_their_place(driver) {
        let server = serve(
            "",
            "location /order { set $a 1; set_by_lua_block $b { return ngx.var.a .. '2' } set $a 9; return 200 $b; }
             location /first { set_by_lua_block $b { return 'b' } return 200 $b; }
             location /alone { set_by_lua_block $b { return 'b' } echo $b; }
             location /args { set $one 1; set_by_lua $sum 'return ngx.arg[1] + ngx.arg[2]' $one 41; echo $sum; }
             location /if { set $b no; if ($arg_x) { set_by_lua_block $b { return ngx.var.arg_x .. ngx.get_phase() } } return 200 $b; }
             location /none { set_by_lua_block $b { return nil } return 200 [$b]; }
             location /wrong { set_by_lua_block $b { error('no') } return 200 $b; }
             location /exit { set_by_lua_block $b { ngx.say('x') } return 200 $b; }
             location /file { set_by_lua_file $b html/none.lua; return 200 $b; }",
        );
        let mut client = server.client();
        for (path, answer) in [
            ("/order", "12"), ("/first", "b"), ("/alone", "b\n"), ("/args", "42\n"), ("/if?x=1", "1set"), ("/if", "no"), ("/none", "[]"),
        ] {
            assert_eq!(client.get(path).text(), answer, "{path}");
        }
        for path in ["/wrong", "/exit", "/file"] {
            assert_eq!(server.get(path).status, 500, "{path}");
        }
        let _ = server.error_log_line("failed to run set_by_lua*: set_by_lua(");
        let _ = server.error_log_line("API disabled in the context of set_by_lua*");
    }

    fn workers_end_with_a_script(driver) {
        let mut server = serve(
            "init_by_lua_block { who = 'we' } init_worker_by_lua_block { error('on purpose') }
             exit_worker_by_lua_block { ngx.log(ngx.NOTICE, who, ' leave in ', ngx.get_phase()) }",
            "location / { content_by_lua_block { ngx.say('in') } }",
        );
        assert_eq!(server.client().get("/").text(), "in\n");
        let _ = server.error_log_line("init_worker_by_lua error: init_worker_by_lua(");
        let _ = server.quit();
        let log = server.error_log();
        assert!(log.contains("we leave in exit_worker, context: exit_worker_by_lua*"), "{log}");
    }

    fn scripts_run_before_their_phase_s_handlers(driver) {
        let locations = "location / { set $a configured; rewrite_by_lua_block { ngx.var.a = 'by script' } return 200 $a; }";
        let late = serve("", locations);
        let early = serve("rewrite_by_lua_no_postpone on;", "location / { rewrite_by_lua_block { ngx.exit(403) } return 200; }");
        assert_eq!((late.get("/").text().as_str(), early.get("/").status), ("configured", 403));
    }

    fn code_is_read_anew_without_cache(driver) {
        let script = "content_by_lua_block { package.loaded.count = (package.loaded.count or 0) + 1 ngx.say(package.loaded.count, start) }";
        let server = serve(
            "init_by_lua_block { start = 'init' }",
            &format!("location /kept {{ {script} }} location /new {{ lua_code_cache off; {script} }}"),
        );
        let mut client = server.client();
        let mut said = |path| client.get(path).text();
        assert_eq!([said("/kept"), said("/kept"), said("/new"), said("/new")], ["1init\n", "2init\n", "1init\n", "1init\n"]);
    }

    fn subrequests_get_variables_and_a_context(driver) {
        let server = serve(
            "",
            "location /sub { content_by_lua_block { ngx.print(ngx.var.v, ngx.ctx.c) ngx.ctx.c = 'changed' } }
             location /one { set $v own; content_by_lua_block { local ctx = { c = 'given' }
                local res = ngx.location.capture('/sub', { vars = { v = 'theirs' }, ctx = ctx })
                ngx.say(res.body, ctx.c, ngx.var.v, ngx.ctx.c) } }
             location /two { set $v own; content_by_lua_block {
                local a, b = ngx.location.capture_multi { { '/sub', { ctx = { c = 1 } } }, { '/sub', { vars = { v = 2 } } } }
                ngx.say(a.body, b.body) } }
             location /wrong { content_by_lua_block { ngx.print(select(2, pcall(ngx.location.capture, '/sub', { vars = { nobody = 1 } }))) } }",
        );
        let mut client = server.client();
        assert_eq!(client.get("/one").text(), "theirsgivenchangedownnil\n");
        assert_eq!(client.get("/two").text(), "12nil\n");
        assert!(client.get("/wrong").text().ends_with("failed to adjust the subrequest: -1"));
        let _ = server.error_log_line("variable \"nobody\" cannot be assigned a value");
    }

    fn semaphores_hand_units_on(driver) {
        let server = serve(
            "init_worker_by_lua_block { package.loaded.sema = require('ngx.semaphore').new() }",
            "location /wait { content_by_lua_block { ngx.say(require('sema'):wait(3600)) } }
             location /post { content_by_lua_block { ngx.say(require('sema'):post()) } }
             location /count { content_by_lua_block { ngx.say(require('sema'):count()) } }",
        );
        let mut waiting = server.client();
        waiting.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_for("somebody to wait", || (server.get("/count").text() == "-1\n").then_some(()));
        assert_eq!(server.get("/post").text(), "true\n");
        assert_eq!(waiting.response().text(), "true\n");
        let s = "local s = require('ngx.semaphore').new(1) ngx.say(s:wait(0), s:wait(0), s:wait(0.001), s:count())";
        assert_eq!(say(s), "truenilfalse0\n");
        let threads = "local s = require('ngx.semaphore').new() local t = ngx.thread.spawn(function() ngx.print(s:wait(3600)) end)
                       s:post() ngx.thread.wait(t) ngx.say(s:count())";
        assert_eq!(say(threads), "true0\n");
    }

    /// Debug lines begin as OpenResty's do: which semaphore, and its units.
    fn what_is_done_with_a_semaphore_is_logged(driver) {
        let server = serve("error_log error.log debug;", "location /s { content_by_lua_block {
            local s = require('ngx.semaphore').new(1) s:wait(1) s:post(3) ngx.say('done') } }");
        assert_eq!(server.get("/s").text(), "done\n");
        for (what, units) in [("new", "resources: 1"), ("wait", "timeout: 1000, resources: 1"), ("post", "n: 3, resources: 0")] {
            let line = server.error_log_line(&format!("http lua semaphore {what}: 0x"));
            assert!(line.contains(&format!(", {units}")), "{line}");
        }
    }

    fn errors_and_lines_say_where(driver) {
        let server = serve(
            "",
            "location /wrapped { content_by_lua_block { coroutine.wrap(function() error('deep') end)() } }
             location /named { content_by_lua_block { local function named() ngx.log(ngx.WARN, 'from here') end named() ngx.say('x') } }
             location /gone { content_by_lua_file html/none.lua; }
             location /type { content_by_lua_block { ngx.header['Content-Type'] = nil ngx.say('x') } }
             location /rewritten { rewrite_by_lua_block { ngx.say('all') } echo never; }",
        );
        assert_eq!((server.get("/wrapped").status, server.get("/gone").status), (500, 404));
        let line = server.error_log_line("lua entry thread aborted: runtime error: content_by_lua(");
        assert!(line.contains("deep"), "{line}");
        let _ = server.error_log_line("coroutine 1:");
        assert_eq!(server.get("/named").text(), "x\n");
        let _ = server.error_log_line("named(): from here");
        assert_eq!(server.get("/type").field("Content-Type"), None);
        assert_eq!(server.get("/rewritten").text(), "all\n");
    }

    fn threads_go_on_beside_subrequests(driver) {
        let server = serve(
            "",
            "location /slow { content_by_lua_block { require('ngx.semaphore') package.loaded.gate:wait(3600) ngx.print('slow') } }
             location /both { content_by_lua_block { package.loaded.gate = require('ngx.semaphore').new()
                local t = ngx.thread.spawn(function() return ngx.location.capture('/slow').body end)
                ngx.sleep(0.001) ngx.print(select(2, pcall(ngx.exit, 403)), ' ', select(2, ngx.thread.kill(t)), ' ')
                package.loaded.gate:post() ngx.say(select(2, ngx.thread.wait(t))) } }",
        );
        let text = server.get("/both").text();
        assert!(text.contains("attempt to abort with pending subrequests pending subrequests slow\n"), "{text}");
    }

    fn compiled_code_finds_what_interpreted_code_does(driver) {
        let script = "jit.opt.start('hotloop=1') local d = ngx.shared.d local seen = {}
            for i = 1, 20 do
                ngx.ctx.n = (ngx.ctx.n or 0) + 1 ngx.status = 200 + i % 2
                ngx.var.v = i d:set('k' .. i, i) d:incr('sum', i, 0)
                ngx.header['X-N'] = i
                seen[i] = ngx.var.v .. ngx.re.match('a' .. i, '(?<n>[0-9]+)', 'o').n .. d:get('k' .. i) .. ngx.md5('x'):sub(1, 1)
            end
            ngx.say(ngx.ctx.n, ' ', ngx.status, ' ', d:get('sum'), ' ', ngx.header['X-N'], ' ', seen[20], ' ', ngx.var.arg_q, ' ', ngx.var.nobody)";
        let server = serve("lua_shared_dict d 1m;", &format!("location / {{ set $v ''; content_by_lua_block {{ {script} }} }}"));
        assert_eq!(server.get("/?q=7").text(), "20 200 210 20 2020209 7 nil\n");
    }

    /// As in OpenResty: the script that responds for `error_page` begins with the status that was left by `ngx.exit`.
    fn exit_statuses_last_through_error_pages(driver) {
        let server = serve(
            "error_page 404 = /page; error_page 405 = @named; error_page 410 = /plain; error_page 403 =202 /page;",
            "location = /content { content_by_lua_block { ngx.exit(404) } }
             location = /access { access_by_lua_block { ngx.exit(405) } content_by_lua_block { ngx.print('never') } }
             location = /gone { content_by_lua_block { ngx.exit(410) } }
             location = /forbidden { content_by_lua_block { ngx.exit(403) } }
             location = /page { content_by_lua_block { ngx.print('page ', ngx.status) } }
             location @named { content_by_lua_block { ngx.print('named ', ngx.status) } }
             location = /plain { return 200 plain; }",
        );
        let said = |path: &str| {
            let answer = server.get(path);
            (answer.status, answer.text())
        };
        assert_eq!(said("/content"), (404, "page 404".to_owned()));
        assert_eq!(said("/access"), (405, "named 405".to_owned()));
        assert_eq!(said("/gone"), (200, "plain".to_owned()));
        assert_eq!(said("/forbidden"), (202, "page 202".to_owned()));
        assert_eq!(said("/missing"), (200, "page 0".to_owned()));
    }

    fn patterns_have_all_options(driver) {
        assert_eq!(say("ngx.say(ngx.re.match('aaab', 'a|aa|aaa', 'd')[0], ngx.re.match('a', 'a', 'd')[1])"), "aaanil\n");
        assert_eq!(say("ngx.say(ngx.re.find('\\xff\\u{4f60}', '.', 'U'))"), "24\n");
        assert_eq!(say("ngx.say(ngx.re.sub('\\u{4f60}\\xe5', 'x', '', 'u'))"), "nilnilpcre_exec() failed: -4\n");
        assert_eq!(say("ngx.say(ndk.set_var.set_escape_uri(' %'), require('jit.v') ~= nil, type(require('jit.dump').on))"), "%20%25truefunction\n");
    }
}
