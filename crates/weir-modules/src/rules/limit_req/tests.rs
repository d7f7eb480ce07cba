use weir_engine::ModuleDef;
use weir_engine::conf;
use weir_engine::conf::{CORE_MODULES, with_core};

use super::*;

static MODULES: [ModuleDef; CORE_MODULES.len() + 1] = with_core(&[ModuleDef::of::<LimitReq>()]);

#[test]
fn mistakes_in_nginx_words() {
    let good = "limit_req_zone $uri zone=one:1m rate=1r/s;";
    for (lines, words) in [
        ("limit_req_zone $uri zone=one rate=1r/s;", "invalid zone size \"zone=one\""),
        ("limit_req_zone $uri zone=one: rate=1r/s;", "invalid zone size \"zone=one:\""),
        ("limit_req_zone $uri zone=:1m rate=1r/s;", "\"limit_req_zone\" must have \"zone\" parameter"),
        ("limit_req_zone $uri zone=one:1 rate=1r/s;", "zone \"zone=one:1\" is too small"),
        ("limit_req_zone $uri zone=one:1m rate=1r;", "invalid rate \"rate=1r\""),
        ("limit_req_zone $uri zone=one:1m rate=0r/s;", "invalid rate \"rate=0r/s\""),
        ("limit_req_zone $uri zone=one:1m x;", "invalid parameter \"x\""),
        ("limit_req_zone $uri rate=1r/s rate=1r/m;", "\"limit_req_zone\" must have \"zone\" parameter"),
        ("GOOD GOOD", "limit_req_zone \"one\" is already bound to key \"$uri\""),
        (
            "GOOD limit_req_zone $uri zone=one:2m rate=1r/s;",
            "the size 2097152 of shared memory zone \"one\" conflicts with already declared size 1048576",
        ),
        ("limit_req zone=x;", "zero size shared memory zone \"x\""),
        ("limit_req burst=5;", "\"limit_req\" must have \"zone\" parameter"),
        ("limit_req zone=one burst=0;", "invalid burst value \"burst=0\""),
        ("limit_req zone=one delay=0;", "invalid delay value \"delay=0\""),
        ("limit_req zone=one foo;", "invalid parameter \"foo\""),
        ("limit_req zone=one; limit_req zone=one;", "\"limit_req\" directive is duplicate"),
        ("limit_req_status 200;", "value must be between 400 and 599"),
        ("limit_req_log_level debug;", "invalid value \"debug\""),
    ] {
        let lines = lines.replace("GOOD", good);
        let found = conf::test::headlines(&format!("events {{ }} http {{ {lines} server {{ }} }}"), &MODULES);
        assert!(found[0].starts_with(words), "{lines}: {found:?}");
    }
}

#[test]
fn a_zone_may_be_declared_behind_its_use() {
    let text = "events { } http { server { limit_req zone=one; }
        limit_req_zone $uri zone=one:1m rate=1r/s; }";
    assert!(conf::test::load(text, &MODULES).is_ok());
}

#[test]
fn rates() {
    for (text, rate) in [
        (&b"1r/s"[..], Some(1000)),
        (b"30r/m", Some(500)),
        (b"1r/m", Some(16)),
        (b"10", Some(10_000)),
        (b"r/s", None),
        (b"-1r/s", None),
        (b"0", None),
        (b"99999999999999999999r/s", None),
    ] {
        assert_eq!(parse_rate(text), rate, "{}", text.escape_ascii());
    }
}
