//! Wrong arguments to everything that scripts can call, in every phase: that call fails, nothing else does.
//!
//! `data/lua_wrong_arguments.lua` walks `ngx`, `ndk` and the modules, so functions that are added later are called as well.

use weir_test::{Server, both_drivers};

/// Calls in one request, short enough for the deadline of a client on a busy machine.
const CALLS: usize = 400;

/// The phases of a request, with what is in the location of each besides the script.
const PHASES: &[(&str, &str)] = &[
    ("set", "return 200 x;"),
    ("server_rewrite", ""),
    ("rewrite", "content_by_lua_block { ngx.print('x') }"),
    ("access", "content_by_lua_block { ngx.print('x') }"),
    ("precontent", "content_by_lua_block { ngx.print('x') }"),
    ("content", ""),
    ("header_filter", "return 200 x;"),
    ("body_filter", "return 200 x;"),
    ("log", "return 200 x;"),
];

/// How many of the calls are made: each `WEIR_WRONG_STEP`th, 1 for all.
fn step() -> usize {
    std::env::var("WEIR_WRONG_STEP").ok().and_then(|step| step.parse().ok()).unwrap_or(29)
}

/// The script that goes on with the calls of `phase`, of which each phase makes others.
fn script(phase: &str) -> String {
    let first = PHASES.iter().position(|(known, _)| *known == phase).unwrap_or_default();
    format!("{{ require('wrong').run('{phase}', {CALLS}, {}, {first}) }}", step())
}

/// The script that makes the calls of a phase without requests: few, since the server waits for it.
fn at_once(phase: &str) -> String {
    let step = 10 * step().max(29);
    format!(
        "{{ local wrong = require('wrong') while wrong.left('{phase}') > 0 do wrong.run('{phase}', 1000, {step}, 0) end }}"
    )
}

fn conf() -> String {
    let locations: String = PHASES
        .iter()
        .filter(|(phase, _)| *phase != "server_rewrite")
        .map(|(phase, more)| {
            let name = if *phase == "set" { "set_by_lua_block $a" } else { &format!("{phase}_by_lua_block") };
            format!("location /{phase} {{ {name} {} {more} }}\n", script(phase))
        })
        .collect();
    format!(
        "worker_processes 1;
         events {{}}
         http {{
             lua_package_path '%%DIR%%/?.lua;;';
             lua_shared_dict wrong 1m;
             lua_memory_limit 128m;
             lua_regex_match_limit 1000;
             init_by_lua_block {}
             init_worker_by_lua_block {}
             exit_worker_by_lua_block {}
             server {{
                 listen 127.0.0.1:%%PORT_0%%;
                 location = /fine {{ content_by_lua_block {{ ngx.print('fine') }} }}
                 location = /left {{ content_by_lua_block {{
                     local wrong = require('wrong')
                     ngx.print(wrong.left(ngx.var.args), ' ', wrong.count, ' ', wrong.last)
                 }} }}
                 {locations}
             }}
             server {{
                 listen 127.0.0.1:%%PORT_1%%;
                 server_rewrite_by_lua_block {}
                 location / {{ return 200 x; }}
             }}
         }}",
        at_once("init"),
        at_once("init_worker"),
        at_once("exit_worker"),
        script("server_rewrite")
    )
}

both_drivers! {
    fn wrong_arguments_hurt_nobody(driver) {
        let server = Server::builder(&conf())
            .file("wrong.lua", include_str!("../data/lua_wrong_arguments.lua"))
            // What the calls of `ngx.log` have logged.
            .allow("[lua] wrong.lua:")
            .start();
        for (phase, _) in PHASES {
            all_calls(&server, phase);
        }
        let log = server.error_log();
        assert!(!log.contains("panic in"), "{}", log.lines().find(|line| line.contains("panic in")).unwrap_or_default());
    }
}

/// Makes all calls of a phase, whatever its requests get.
fn all_calls(server: &Server, phase: &str) {
    let number = usize::from(phase == "server_rewrite");
    let mut before = usize::MAX;
    loop {
        let mut client = weir_test::Client::connect(server.addr(number));
        client.send(format!(
            "GET /{phase} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"
        ));
        let (_, _) = client.rest();
        assert_eq!(server.client().get("/fine").text(), "fine", "{phase}");
        let said = server.client().get(&format!("/left?{phase}")).text();
        let left: usize = said.split(' ').next().and_then(|left| left.parse().ok()).expect("a number");
        if left == 0 {
            return;
        }
        assert!(left < before, "{phase} does not go on: {said}");
        before = left;
    }
}
