//! LuaJIT beside OpenResty's, function by function: which there are, and what each gives in a table of cases. `conformance/luajit`
//! writes what OpenResty gives; what differs is meant, and named with its reason.

use std::collections::BTreeMap;

use weir_test::Server;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
const OPENRESTY: &str = include_str!("../data/luajit_openresty.txt");
const DIFFERENCES: &str = include_str!("../data/luajit_differences.txt");
const CASES: &str = include_str!("../data/luajit_cases.txt");

#[test]
fn every_function_gives_what_it_gives_in_openresty() {
    let said = said();
    let (ours, theirs) = (by_case(&said), by_case(OPENRESTY));
    let meant = meant();
    for case in theirs.keys().chain(ours.keys()) {
        let (here, there) = (ours.get(case), theirs.get(case));
        assert!(here == there || meant.contains(case), "{case}\n  here:  {here:?}\n  there: {there:?}");
    }
    for case in meant {
        assert_ne!(ours.get(case), theirs.get(case), "{case} does not differ any more");
    }
}

/// What a server gives whose `init_by_lua` runs the cases.
fn said() -> String {
    let conf = format!(
        "events {{}}\nhttp {{ init_by_lua_block {{ local file = io.open(\"{DATA}/luajit_cases.lua\")\n\
         said = assert(loadstring(file:read(\"*a\"), \"=cases\"))(\"{DATA}\") }}\n\
         server {{ listen 127.0.0.1:%%PORT%%; location / {{ content_by_lua_block {{ ngx.print(said) }} }} }} }}\n"
    );
    Server::builder(&conf).start().client().get("/").text()
}

/// A line is a name of a function, or a case and what it gives.
fn by_case(lines: &str) -> BTreeMap<&str, &str> {
    lines.lines().map(|line| line.split_once(" -> ").unwrap_or((line, "there"))).collect()
}

fn meant() -> Vec<&'static str> {
    DIFFERENCES.lines().map(|line| line.split_once(" | ").expect("each has its reason").0).collect()
}

#[test]
fn every_function_is_in_a_case() {
    let cases: Vec<&str> = CASES.lines().filter(|line| !line.starts_with('#')).collect();
    for name in OPENRESTY.lines().filter(|line| !line.contains(" -> ")) {
        let (_, last) = name.rsplit_once(['.', ':', ' ']).unwrap_or(("", name));
        assert!(cases.iter().any(|case| case.contains(last)), "no case has {name}");
    }
    assert!(CASES.lines().count() > 380 && OPENRESTY.lines().count() > 580, "the tables are whole");
}
