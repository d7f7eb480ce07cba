use weir_engine::ModuleDef;
use weir_engine::conf;
use weir_engine::conf::{CORE_MODULES, with_core};

use super::*;
use crate::testing::decided;
use weir_engine::testing::{run_all, value};

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

/// What becomes of requests with these targets, one after the other, and `$limit_req_status`.
fn limited(http: &str, targets: &[&str]) -> Vec<String> {
    let zone = "limit_req_zone $uri zone=one:32k rate=1r/m;";
    let heads: Vec<_> =
        targets.iter().map(|target| format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n")).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    run_all(&MODULES, &format!("{zone} {http}"), &heads, async |all| {
        let mut said = Vec::new();
        for mut x in all {
            let verdict = decided(&mut x, Phase::Preaccess);
            // It is limited once, wherever it is redirected to.
            assert_eq!(decided(&mut x, Phase::Preaccess), "Declined");
            said.push(format!("{verdict} {}", value(&mut x, "limit_req_status").unwrap_or_default()));
        }
        said
    })
}

#[test]
fn requests_beyond_the_rate_wait_or_are_refused() {
    let three = ["/a", "/a", "/a"];
    for (lines, said) in [
        ("limit_req zone=one;", ["Declined PASSED", "Status(503) REJECTED", "Status(503) REJECTED"]),
        ("limit_req zone=one burst=1;", ["Declined PASSED", "Wait DELAYED", "Status(503) REJECTED"]),
        ("limit_req zone=one burst=2 delay=1;", ["Declined PASSED", "Declined PASSED", "Wait DELAYED"]),
        (
            "limit_req zone=one burst=1 nodelay;",
            ["Declined PASSED", "Declined PASSED", "Status(503) REJECTED"],
        ),
        (
            "limit_req zone=one; limit_req_status 429;",
            ["Declined PASSED", "Status(429) REJECTED", "Status(429) REJECTED"],
        ),
        (
            "limit_req zone=one burst=1; limit_req_dry_run on;",
            ["Declined PASSED", "Declined DELAYED_DRY_RUN", "Declined REJECTED_DRY_RUN"],
        ),
    ] {
        assert_eq!(limited(&format!("server {{ {lines} }}"), &three), said, "{lines}");
        assert_eq!(limited(&format!("{lines} server {{ }}"), &three), said, "{lines}, of the block around");
    }
    assert_eq!(limited("server { limit_req zone=one; }", &["/a", "/b"]), ["Declined PASSED"; 2]);
    assert_eq!(limited("server { }", &["/a"]), ["Declined "]);
}

#[test]
fn a_block_with_limits_of_its_own_has_only_these() {
    let http = "limit_req_zone $host zone=two:32k rate=1r/m; limit_req zone=two; limit_req_status 429;
        server { location /a { limit_req zone=one burst=1; } location /b { } }";
    let said = limited(http, &["/a", "/a", "/b", "/b"]);
    assert_eq!(said, ["Declined PASSED", "Wait DELAYED", "Declined PASSED", "Status(429) REJECTED"]);
}

#[test]
fn a_delayed_request_goes_on_after_its_time() {
    let http = "limit_req_zone $uri zone=one:32k rate=20r/s; server { limit_req zone=one burst=1; }";
    run_all(&MODULES, http, &["GET / HTTP/1.1\r\nHost: x\r\n\r\n"; 2], async |mut all| {
        assert_eq!(decided(&mut all[0], Phase::Preaccess), "Declined");
        assert_eq!(decided(&mut all[1], Phase::Preaccess), "Wait");
        let begin = std::time::Instant::now();
        let plan = all[1].plan.clone();
        let verdict = plan.phase(Phase::Preaccess)[0].handler.wait(&mut all[1]).await;
        assert!(matches!(verdict, Verdict::Declined));
        assert!(begin.elapsed() >= Duration::from_millis(40), "{:?}", begin.elapsed());
    });
}

#[test]
fn delays_are_logged_one_level_below_refusals() {
    use LogLevel::{Error, Info, Notice, Warn};
    assert_eq!([Error, Warn, Notice, Info].map(below), [Warn, Notice, Info, Info]);
}

#[test]
fn the_largest_numbers_are_taken() {
    let text = format!(
        "events {{ }} http {{ limit_req_zone $uri zone=one:32k rate={MOST}r/s; server {{ limit_req zone=one burst={MOST} delay=1; }} }}"
    );
    assert!(conf::test::load(&text, &MODULES).is_ok());
    let above = text.replace(&format!("burst={MOST}"), &format!("burst={}", MOST + 1));
    assert!(conf::test::headlines(&above, &MODULES)[0].starts_with("invalid burst value"));
}

#[test]
fn the_log_says_how_far_above_the_rate_a_request_is() {
    let directory = weir_test::TempDir::new();
    let path = directory.path().join("error.log");
    for (dry, words) in [("off", ""), ("on", ", dry run")] {
        let http = format!(
            "limit_req_zone $uri zone=one:32k rate=1r/m; server {{ error_log {} info; limit_req zone=one burst=2 delay=1;
             limit_req_dry_run {dry}; }}",
            path.display()
        );
        run_all(&MODULES, &http, &["GET / HTTP/1.1\r\nHost: x\r\n\r\n"; 4], async |mut all| {
            all.iter_mut().for_each(|x| drop(decided(x, Phase::Preaccess)));
            all[0].worker.logs.flush_all();
        });
        let text = std::fs::read_to_string(&path).expect("the log is there");
        let found: Vec<&str> =
            text.lines().filter_map(|line| line.split_once(", client:").map(|(line, _)| line)).collect();
        // What time takes away is a hundredth of a request in 600 ms.
        let (delayed, refused) =
            (format!("delaying request{words}, excess: "), format!("limiting requests{words}, excess: "));
        let said = |line: &str, level: &str, words: &str, least: &str| {
            let rest = line.split_once(words).unwrap_or_else(|| panic!("{line}: {words}")).1;
            assert!(line.contains(&format!("[{level}]")), "{line}");
            assert!(
                rest.starts_with(least)
                    || rest.starts_with(&format!("{}.000", least.as_bytes()[0] - b'0' + 1)),
                "{line}"
            );
            assert!(rest.ends_with(" zone \"one\"") && rest.contains("by zone"), "{line}");
        };
        assert_eq!(found.len(), 2, "{text}");
        said(found[0], "warn", &delayed, "1.9");
        said(found[1], "error", &refused, "2.9");
        std::fs::remove_file(&path).expect("it is there");
    }
}
