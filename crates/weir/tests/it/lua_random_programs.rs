//! Random programs over what waits and what ends: threads, coroutines, subrequests, errors, exits. Whatever one does, the
//! server lives, its request ends, and the next one gets its response.

use weir_test::{Client, Server, both_drivers};

const CONF: &str = "
    events {}
    http {
        lua_shared_dict d 100k;
        lua_max_coroutines 200;
        server {
            listen 127.0.0.1:%%PORT%%;
            lua_check_client_abort on;
            location = /fine { content_by_lua_block { ngx.print('fine') } }
            location = /waits { content_by_lua_block { ngx.sleep(0.001) ngx.print('waited') } }
            location = /fails { content_by_lua_block { error('on purpose') } }
            location = /run {
                access_by_lua_block { ngx.req.read_body() }
                content_by_lua_block { assert(loadstring(ngx.req.get_body_data()))() }
                header_filter_by_lua_block { ngx.header.x_seen = ngx.ctx.n }
                log_by_lua_block { local n = ngx.ctx.n }
            }
        }
    }";

/// Programs a test, unless `WEIR_RANDOM_PROGRAMS` says how many.
const PROGRAMS: u64 = 300;

both_drivers! {
    fn random_programs_hurt_nobody(driver) {
        let server = Server::start(CONF);
        let programs = std::env::var("WEIR_RANDOM_PROGRAMS").ok().and_then(|text| text.parse().ok());
        for seed in 1..=programs.unwrap_or(PROGRAMS) {
            let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
            let text = program(&mut dice);
            let mut client = Client::connect(server.addr(0));
            let length = text.len();
            client.send(format!("POST /run HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{text}"));
            match dice.below(8) {
                // Leaves at once, or when it likes.
                0 => client.abort(),
                1 => drop(client),
                _ => drop(client.rest()),
            }
            assert_eq!(server.get("/fine").text(), "fine", "behind program {seed}:\n{text}");
        }
        let log = server.error_log();
        let panic = log.lines().find(|line| line.contains("panic in"));
        assert_eq!(panic, None);
    }
}

/// Numbers that a seed gives, the same each time (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % most as u64).expect("less than `most`")
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// A program that ends: loops are counted, waits have limits. Threads and coroutines are in `t` and `c`.
fn program(dice: &mut Dice) -> String {
    let mut text = String::from(
        "local t, c, sem = {}, {}, require('ngx.semaphore').new(1)\nlocal function last(list) return list[#list] end\n",
    );
    block(dice, 3, &mut text);
    text
}

fn block(dice: &mut Dice, depth: usize, text: &mut String) {
    for _ in 0..1 + dice.below(4) {
        statement(dice, depth, text);
    }
}

/// A statement, with blocks inside of it as long as `depth` is left.
fn statement(dice: &mut Dice, depth: usize, text: &mut String) {
    match dice.below(12) {
        0..=3 if depth > 0 => {
            let (open, close) = NEST[dice.below(NEST.len())];
            text.push_str(open);
            block(dice, depth - 1, text);
            text.push_str(close);
        }
        11 if dice.below(3) == 0 => text.push_str(&format!("{}\n", dice.one(ENDS))),
        _ => text.push_str(&format!("{}\n", dice.one(LEAVES))),
    }
}

/// What goes around a block.
const NEST: &[(&str, &str)] = &[
    ("t[#t + 1] = ngx.thread.spawn(function(...)\n", "return #t, 'done' end, 1, nil)\n"),
    ("c[#c + 1] = coroutine.create(function(...)\n", "return ... end)\n"),
    ("ngx.ctx.r = {pcall(function()\n", "end)}\n"),
    ("xpcall(function()\n", "end, function(e) return tostring(e) .. #t end)\n"),
    ("for i = 1, 3 do\n", "end\n"),
    ("coroutine.wrap(function()\n", "end)()\n"),
    ("if #t > 1 then\n", "end\n"),
    ("ngx.on_abort(function()\n", "end)\n"),
    ("table.sort({3, 2, 1}, function(a, b)\n", "return a < b end)\n"),
];

/// One statement each; one that must be the last of its block is in `do … end`.
const LEAVES: &[&str] = &[
    "ngx.sleep(0)",
    "ngx.sleep(0.001)",
    "coroutine.yield(1, nil)",
    "if last(c) then coroutine.resume(last(c), 7) end",
    "if last(c) then ngx.ctx.s = coroutine.status(last(c)) end",
    "if last(t) then ngx.thread.wait(last(t)) end",
    "if #t > 1 then ngx.thread.wait(t[1], t[#t]) end",
    "if t[1] then ngx.thread.kill(t[1]) end",
    "if last(t) then ngx.thread.kill(last(t)) end",
    "ngx.thread.wait(coroutine.running())",
    "coroutine.resume(coroutine.running())",
    "ngx.location.capture('/fine')",
    "ngx.location.capture('/waits', {ctx = ngx.ctx})",
    "ngx.location.capture_multi({{'/waits'}, {'/fails'}, {'/fine'}})",
    "ngx.say('said ', #t)",
    "ngx.print(('x'):rep(70000))",
    "ngx.flush(true)",
    "ngx.flush()",
    "ngx.send_headers()",
    "ngx.eof()",
    "ngx.status = 202",
    "ngx.header.x_a = {'1', '2'}",
    "ngx.ctx.n = (ngx.ctx.n or 0) + 1",
    "ngx.ctx = {}",
    "sem:post(1)",
    "sem:wait(0.001)",
    "ngx.shared.d:incr('n', 1, 0)",
    "ngx.shared.d:lpush('l', ('y'):rep(100))",
    "collectgarbage()",
    "ngx.req.discard_body()",
    "ngx.req.set_uri_args({a = {1, true}})",
    "error('an error')",
    "error({})",
    "error()",
    "do return end",
];

/// What ends the request, as a rule.
const ENDS: &[&str] = &[
    "ngx.exit(200)",
    "ngx.exit(0)",
    "ngx.exit(503)",
    "ngx.exit(444)",
    "ngx.exit(-1)",
    "ngx.exec('/fine')",
    "ngx.exec('/waits?a=1')",
    "ngx.redirect('/fine')",
    "error(nil)",
];
