//! What `rewrite`'s instructions make of requests. The responses and log lines are nginx 1.31.5's.

mod common;

use std::time::{Duration, Instant};

use common::Site;
use weir_engine::ModuleDef;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_modules::{Headers, Index, Rewrite, Static};

static MODULES: [ModuleDef; CORE_MODULES.len() + 4] = with_core(&[
    ModuleDef::of::<Rewrite>(),
    ModuleDef::of::<Index>(),
    ModuleDef::of::<Static>(),
    ModuleDef::of::<Headers>(),
]);

/// Asks for each path; the response is status, `Location` if there is one, and the body of a 200.
fn check(site: &Site, cases: &[(&str, &str)]) {
    for (path, expected) in cases {
        let response = site.get(path, "Cookie: c=5\r\n");
        let mut answer = response.status.to_string();
        if let Some(location) = response.field("Location") {
            answer = format!("{answer} {location}");
        }
        if response.status == 200 {
            answer = format!("{answer} {}", response.text());
        }
        assert_eq!(answer, *expected, "{path}");
    }
}

/// The error log, once `last` is in it.
fn log(site: &Site, last: &str) -> String {
    let deadline = Instant::now() + weir_test::DEADLINE;
    loop {
        let log = std::fs::read_to_string(site.directory.path().join("error.log")).expect("there is a log");
        if log.contains(last) {
            return log;
        }
        assert!(Instant::now() < deadline, "{last} is not logged: {log}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The messages of `log` at `level`, without what surrounds them.
fn messages<'l>(log: &'l str, level: &str) -> Vec<&'l str> {
    let lines = log.lines().filter(|line| line.contains(level));
    let message = |line: &'l str| {
        let (_, message) = line.split_once(": *")?;
        message.split_once(' ')?.1.split(", client: ").next()
    };
    lines.filter_map(message).collect()
}

#[test]
fn rewrites_go_on_elsewhere_stay_or_redirect() {
    let site = Site::new(&MODULES, REWRITES);
    site.write("f.txt", "file");
    check(&site, REWRITTEN);
}

const REWRITES: &str = "set $srv one;
        rewrite ^/srv/(.*)$ /q/$1/x last;
        rewrite ^/srvb/(.*)$ /val/$1 break;
        rewrite ^/srvr/(.*)$ /val/$1 permanent;
        rewrite ^/many1$ /many2; rewrite ^/many2$ /val/m;
        if ($arg_stop) { return 403; }
        if ($arg_stop2 = yes) { set $srv two; rewrite ^ /val/stop2?z=1 break; }
        location /q/ { rewrite ^/q/(.*)/(.*)$ /z?a=$1; set $x $2; return 200 $uri|$args|$x|$1|$srv; }
        location /val { return 200 $uri|$args|$srv|$request_uri; }
        location /r { rewrite ^/r/(.*)/(.*)$ /z/$1?b=$2 redirect; }
        location /p { rewrite ^/p/(.*)$ http://h/$1?; }
        location /pp { rewrite ^/pp/(.*)$ $scheme://h/$1; }
        location /ph { rewrite ^/ph/(.*)$ https://h/$1 permanent; }
        location /pl { rewrite ^/pl/(.*)$ https://h/$1 last; return 200 no; }
        location /nm { rewrite ^/nm/(?<w>[^/]+)/(?<v>.*)$ /val/$v/$w; }
        location /int { internal; return 200 $uri; }
        location /toint { rewrite ^ /int/x; }
        location /q1 { rewrite ^/q1/(.*)$ /val/$1?x=?y; }
        location /q2 { rewrite ^/q2/(.*)$ /val/$1??; }
        location /q3 { rewrite ^/q3/(.*)$ \"/val/a b%20c?d e\"; }
        location /chain { rewrite ^/chain/(.*)$ /one/$1; rewrite ^/one/(.*)$ /two/$1;
            rewrite ^/two/(.*)$ /val/$1 last; return 500; }
        location /br { rewrite ^/br/(.*)$ /$1.txt break; return 500; }
        location /brk { rewrite ^ /val/brk; break; return 200 no; }
        location = /ep { error_page 404 = @named; return 404; }
        location @named { rewrite ^/e(.*)$ /val/named$1 last; }";

const REWRITTEN: &[(&str, &str)] = &[
    ("/q/a%20b/c%26d?k=v", "200 /z|a=a%20b&k=v|c&d|a b|one"),
    ("/q/ab/c+d", "200 /z|a=ab|c+d|ab|one"),
    ("/srv/a%20b?x=1", "200 /z|a=a%20b&x=1|x|a b|one"),
    ("/srvb/zz?y", "200 /val/zz|y|one|/srvb/zz?y"),
    ("/srvr/zz%3F?y", "301 /val/zz??y"),
    ("/many1?x", "200 /val/m|x|one|/many1?x"),
    ("/val?stop=1", "403"),
    ("/val?stop2=yes", "200 /val/stop2|z=1&stop2=yes|two|/val?stop2=yes"),
    ("/nowhere?stop2=yes&b", "200 /val/stop2|z=1&stop2=yes&b|two|/nowhere?stop2=yes&b"),
    ("/r/a%20b/c%26d?k=v", "302 /z/a%20b?b=c%26d&k=v"),
    ("/r/%E4/x", "302 /z/%E4?b=x"),
    ("/p/a%20b?x=1", "302 http://h/a%20b"),
    ("/p/a+b%3Fc", "302 http://h/a+b?c"),
    ("/pp/a?x=1", "302 http://h/a?x=1"),
    ("/ph/a?x=1", "301 https://h/a?x=1"),
    ("/pl/x", "302 https://h/x"),
    ("/nm/a%20b/c", "200 /val/c/a b||one|/nm/a%20b/c"),
    ("/int", "404"),
    ("/toint?a=b", "200 /int/x"),
    ("/q1/x?r", "200 /val/x|x=?y&r|one|/q1/x?r"),
    ("/q2/x?r", "200 /val/x||one|/q2/x?r"),
    ("/q3/x?r", "200 /val/a b%20c|d e&r|one|/q3/x?r"),
    ("/chain/abc?q", "200 /val/abc|q|one|/chain/abc?q"),
    ("/br/f", "200 file"),
    ("/br/none", "404"),
    ("/brk", "404"),
    ("/ep", "200 /val/namedp||one|/ep"),
];

#[test]
fn variables_are_set_and_conditions_decided() {
    let site = Site::new(
        &MODULES,
        "location /s { set $x \"$uri-$1\"; rewrite ^/s/(.*)$ /z; set $x $1; return 200 $uri|$args|$x; }
        location ~ ^/t/(.*)$ { set $x $1; return 200 $uri|$args|$x|$1; }
        location ~ ^/u/(.*)$ { set $x $1; rewrite ^/u/(.*)$ /z?; set $y $1; return 200 $uri|$args|$x|$y; }
        location /neg { if ($uri !~ x(y)) { return 200 neg[$1]; } return 200 pos[$1]; }
        location /zero { if ($arg_z) { return 200 true; } return 200 false; }
        location /args { set $args \"n=1&$args\"; return 200 $args|$is_args|$arg_n; }
        location /lr { set $limit_rate 100k; return 200 $limit_rate; }
        location /no { rewrite ^/other /x; return 200 no$1; }
        location /tt { set $m 1; if ($m) { set $m \"$m$m\"; } if ($m = 11) { set $m \"${m}x\"; } return 200 $m; }
        location /op { if ($host != h) { return 400; } if ($arg_x = \"\") { return 200 empty; }
            if ($arg_x !~* ^B) { return 200 not; } return 200 b; }
        location /dev { if (-e /dev/null) { return 200 e; } if (-e /) { return 200 root; } }
        location /fs { set $r \"\"; if (-f $document_root/f) { set $r f; } if (-d $document_root) { set $r \"${r}d\"; }
            if (!-e $document_root/no) { set $r \"${r}!e\"; } if (-x $document_root) { set $r \"${r}x\"; }
            if (!-x $document_root/f) { set $r \"${r}!x\"; } if (!-f $document_root/f) { set $r no; }
            if (!-d $document_root) { set $r no; } if (-f $document_root/f/g) { set $r no; } return 200 $r; }",
    );
    site.write("f", "");
    check(
        &site,
        &[
            ("/s/a%26b?o=1", "200 /z|o=1|a&b"),
            ("/t/a%26b+", "200 /t/a&b+||a%26b%2B|a&b+"),
            ("/t/ab", "200 /t/ab||ab|ab"),
            ("/u/a%26b?w=1", "200 /z||a%26b|a&b"),
            ("/neg", "200 neg[]"),
            ("/negxy", "200 pos[y]"),
            ("/zero", "200 false"),
            ("/zero?z=0", "200 false"),
            ("/zero?z=00", "200 true"),
            ("/args?u=1", "200 n=1&u=1|?|1"),
            ("/lr", "200 102400"),
            ("/no", "200 no"),
            ("/tt", "200 11x"),
            ("/op", "200 empty"),
            ("/op?x=abc", "200 not"),
            ("/op?x=bcd", "200 b"),
            ("/dev", "200 root"),
            ("/fs", "200 fd!ex!x"),
        ],
    );
}

#[test]
fn an_if_is_a_location_that_inherits_the_rest() {
    let site = Site::new(
        &MODULES,
        "location /i { add_header X outer; error_page 404 = /val; if ($arg_a) { add_header X a; }
            if ($arg_b = 2) { add_header X b; } rewrite ^ /f break; }
        location /ib { if ($arg_a) { break; } return 200 after; }
        location /ic { if ($arg_a) { rewrite ^ /val last; } return 200 after; }
        location /id { if ($arg_a) { error_page 404 = /val; } return 404; }
        location /none { error_page 404 = /val; if ($arg_a) { set $x 1; } return 404; }
        location /val { return 200 val; }",
    );
    site.write("f", "f");
    for (path, fields) in [("/i", "outer"), ("/i?a=1", "a"), ("/i?b=2", "b"), ("/i?a=1&b=2", "b")] {
        let response = site.get(path, "");
        assert_eq!((response.status, response.field("X")), (200, Some(fields)), "{path}");
    }
    check(
        &site,
        &[
            ("/ib", "200 after"),
            ("/ib?a=1", "404"),
            ("/ic?a=1", "200 val"),
            ("/ic?a=0", "200 after"),
            ("/id?a=1", "200 val"),
            ("/id", "404"),
            ("/none?a=1", "200 val"),
        ],
    );
}

#[test]
fn what_is_logged() {
    let site = Site::new(
        &MODULES,
        "location /quiet { uninitialized_variable_warn off; set $bar \"$foo-\"; return 200 $bar; }
        location /loud { if ($foo) { set $foo 1; } return 200 \"$foo-\"; }
        location /cycle { rewrite ^ /cycle last; }
        location /empty { rewrite ^/empty(.*) $1; }
        location /log { rewrite_log on; rewrite ^/not /x; if ($uri ~ l(o)g) { rewrite ^ /y?b; }
            rewrite ^ /z?c redirect; }",
    );
    check(
        &site,
        &[
            ("/quiet", "200 -"),
            ("/loud", "200 -"),
            ("/cycle", "500"),
            ("/empty", "500"),
            ("/log?a", "302 /z?c&b&a"),
        ],
    );
    let log = log(&site, "rewritten redirect");
    assert_eq!(messages(&log, "[warn]"), ["using uninitialized \"foo\" variable"]);
    assert_eq!(
        messages(&log, "[error]"),
        [
            "rewrite or internal redirection cycle while processing \"/cycle\"",
            "the rewritten URI has a zero length"
        ]
    );
    assert_eq!(
        messages(&log, "[notice]"),
        [
            "\"^/not\" does not match \"/log\"",
            "\"l(o)g\" matches \"/log\"",
            "\"^\" matches \"/log\"",
            "rewritten data: \"/y\", args: \"b&a\"",
            "\"^\" matches \"/y\"",
            "rewritten redirect: \"/z?c&b&a\"",
        ]
    );
}
