//! Many light threads, asleep and over.

use weir_test::{Driver, Server, both_drivers};

fn serve(driver: Driver, locations: &str) -> Server {
    let text = format!(
        "worker_processes 1;\nevents {{}}\nhttp {{ server {{ listen 127.0.0.1:%%PORT%%; default_type text/plain;\n\
         {locations}\n}} }}\n"
    );
    Server::builder(&text).driver(driver).start()
}

fn content(path: &str, script: &str) -> String {
    format!("location {path} {{ content_by_lua_block {{ {script} }} }}\n")
}

fn get(server: &Server, path: &str) -> String {
    let answer = server.client().get(path);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}

both_drivers! {
    fn thousands_sleep_and_each_goes_on(driver) {
        let server = serve(driver, &content("/sleep", "
            local threads, sum, order, last = {}, 0, true, 0
            for at = 1, 3000 do
                threads[at] = ngx.thread.spawn(function()
                    for _ = 1, 3 do
                        local before, seconds = ngx.now(), (at * 7919 % 50) / 1000
                        ngx.sleep(seconds)
                        if ngx.now() - before < seconds - 0.0015 then order = 'early' end
                    end
                    return at
                end)
            end
            for at = 1, 3000, 3 do assert(ngx.thread.kill(threads[at])) end
            for at = 2, 3000, 3 do sum = sum + select(2, ngx.thread.wait(threads[at], threads[at + 1])) end
            for at = 1, 3000 do
                local ok, number = ngx.thread.wait(threads[at])
                if ok then sum = sum + number else last = last + 1 end
            end
            ngx.say(sum, ' ', last, ' ', tostring(order))"));
        // 2 + 3 + 5 + 6 ... 3000 without 1, 4, 7 ...: each of those once, in the first loop or the second; killed and
        // waited for already are 2,000.
        let sum: u32 = (1..=3000).filter(|at| at % 3 != 1).sum();
        assert_eq!(get(&server, "/sleep"), format!("{sum} 2000 true\n"));
    }

    fn a_sleep_of_no_time_lets_others_go_on(driver) {
        let server = serve(driver, &content("/turns", "
            local said, threads = {}, {}
            for at = 1, 3 do
                threads[at] = ngx.thread.spawn(function()
                    for turn = 1, 3 do said[#said + 1] = turn ngx.sleep(turn == 2 and 0.0001 or 0) end
                end)
            end
            for at = 1, 3 do ngx.thread.wait(threads[at]) end
            ngx.say(table.concat(said))"));
        assert_eq!(get(&server, "/turns"), "111222333\n");
    }

    fn those_that_are_over_take_no_room(driver) {
        let server = serve(driver, &content("/over", "
            local kept, first = setmetatable({}, { __mode = 'k' }), nil
            for at = 1, 20000 do
                local thread = ngx.thread.spawn(function() ngx.sleep(0) return at end)
                kept[thread] = true
                local ok, number = ngx.thread.wait(thread)
                assert(ok and number == at)
                first = first or thread
                if at == 500 then ngx.say(select(2, ngx.thread.wait(first))) end
            end
            collectgarbage() collectgarbage()
            local count = 0
            for _ in pairs(kept) do count = count + 1 end
            ngx.say(count < 100)
            local last = ngx.thread.spawn(function() return 'x' end)
            ngx.say(ngx.thread.wait(last)) ngx.say(ngx.thread.wait(last))"));
        assert_eq!(get(&server, "/over"), "already waited or killed\ntrue\ntruex\nnilalready waited or killed\n");
    }

    fn who_is_killed_takes_its_coroutines_along(driver) {
        let server = serve(driver, &content("/kill", "
            local went = ''
            local thread = ngx.thread.spawn(function()
                local inner = coroutine.create(function()
                    local innermost = coroutine.wrap(function() ngx.sleep(0.001) went = went .. 'innermost' end)
                    innermost()
                    went = went .. 'inner'
                end)
                coroutine.resume(inner)
                went = went .. 'thread'
            end)
            ngx.say(ngx.thread.kill(thread))
            ngx.say(ngx.thread.kill(thread))
            for at = 1, 5 do
                ngx.thread.wait(ngx.thread.spawn(function() coroutine.wrap(function() ngx.sleep(0.002) end)() end))
            end
            ngx.say('went: ', went)"));
        assert_eq!(get(&server, "/kill"), "1\nnilalready waited or killed\nwent: \n");
    }
}

/// The script's response to a POST of which half of the body is held back; the rest is sent when nothing
/// comes.
fn half_sent(server: &Server, path: &str) -> weir_test::Response {
    let mut client = server.client();
    client.send(format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nab"));
    client.response()
}

both_drivers! {
    fn a_light_thread_ends_the_request_while_the_entry_reads_the_body(driver) {
        let reading = "ngx.req.read_body() ngx.say('read')";
        let beside = |code: &str| format!("ngx.thread.spawn(function() ngx.sleep(0.01) {code} end) {reading}");
        let server = serve(driver, &[
            content("/exit", &beside("ngx.exit(503)")),
            content("/redirect", &beside("ngx.redirect('/x')")),
            content("/exec", &beside("ngx.exec('/other')")),
            content("/said", &beside("ngx.say('told') ngx.exit(200)")),
            content("/later",
                "local t = ngx.thread.spawn(function() for _ = 1, 20 do ngx.sleep(0.001) end ngx.req.read_body() return 'over' end)
                 ngx.req.read_body() local _, said = ngx.thread.wait(t) ngx.say(said, ' ', ngx.req.get_body_data())"),
            "location /other { return 200 other; }".to_owned(),
            content("/pause", "ngx.sleep(0.02)"),
        ].concat());
        assert_eq!(half_sent(&server, "/exit").status, 503);
        assert_eq!(half_sent(&server, "/redirect").status, 302);
        assert_eq!(half_sent(&server, "/exec").text(), "other");
        assert_eq!(half_sent(&server, "/said").text(), "told\n");
        let mut client = server.client();
        client.send("POST /later HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nab");
        // In two parts: the others have gone on between them.
        assert_eq!(get(&server, "/pause"), "");
        client.send("cd");
        assert_eq!(client.response().text(), "over abcd\n");
    }
}
