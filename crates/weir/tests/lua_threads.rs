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
