//! Modules whose work outlives a response or spans requests: `mirror`, `userid`, `stub_status`; and header filters
//! that refuse every response.

mod common;

use common::Site;
use weir_conf::{ArgCount, Contexts, Directive, LineCx};
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_engine::filter::{FilterSlot, HeaderFilter};
use weir_engine::plan::PlanBuilder;
use weir_engine::{Exchange, Module, ModuleDef, Verdict};
use weir_modules::{Headers, LimitConn, Log, Mirror, Rewrite, Static, StubStatus, UserId};
use weir_test::{Client, Response, TempDir};

static MODULES: [ModuleDef; CORE_MODULES.len() + 9] = with_core(&[
    ModuleDef::of::<Log>(),
    ModuleDef::of::<Rewrite>(),
    ModuleDef::of::<LimitConn>(),
    ModuleDef::of::<Mirror>(),
    ModuleDef::of::<StubStatus>(),
    ModuleDef::of::<Static>(),
    ModuleDef::of::<Headers>(),
    ModuleDef::of::<UserId>(),
    ModuleDef::of::<Refuse>(),
]);

/// `refuse status`: a header filter that refuses every response with it.
struct Refuse;

impl Module for Refuse {
    const NAME: &'static str = "refuse";
    type Conf = Option<u16>;
    const DIRECTIVES: &'static [Directive<Option<u16>>] =
        &[Directive::new("refuse", ANYWHERE, ArgCount::ONE, set)];

    fn inherit(conf: &mut Option<u16>, parent: &Option<u16>) {
        *conf = conf.or(*parent);
    }

    fn install(conf: &Option<u16>, plan: &mut PlanBuilder<'_>) {
        if let Some(status) = conf {
            plan.header_filter(FilterSlot::Aux, Self::NAME, Refusal(*status));
        }
    }
}

const ANYWHERE: Contexts = Contexts::SERVER.or(Contexts::LOCATION);

fn set(conf: &mut Option<u16>, line: &mut LineCx<'_>) -> weir_conf::Result {
    line.number(conf, ..)
}

struct Refusal(u16);

impl HeaderFilter for Refusal {
    fn filter(&self, _: &mut Exchange) -> Verdict {
        Verdict::Status(self.0)
    }
}

fn logged(site: &Site, file: &str, text: &str) -> String {
    let path = site.directory.path().join(file);
    weir_test::wait_for(text, || {
        let log = std::fs::read_to_string(&path).ok()?;
        log.lines().find(|line| line.contains(text)).map(str::to_owned)
    })
}

#[test]
fn filters_that_refuse_everything_are_passed_by() {
    let site = Site::with(
        &MODULES,
        "access_log off;",
        "location / { refuse 403; return 200 ok; }
         location /page { refuse 404; error_page 404 /page; return 200 ok; }",
    );
    let mut client = Client::connect(site.address);
    let response = client.get("/");
    assert_eq!((response.status, response.text().contains("403 Forbidden")), (403, true));
    assert_eq!(client.get("/page").status, 404);
    let line = logged(&site, "error.log", "header filters refuse every response");
    assert!(line.contains("[alert]"), "{line}");
    assert_eq!(client.get("/").status, 403, "the next request is asked of the filters again");
}

#[test]
fn copies_go_where_they_are_sent() {
    let directory = TempDir::new();
    let log = directory.path().join("mirror.log");
    let site = Site::with(
        &MODULES,
        &format!(
            "log_format copy '$request_method $uri $args [$request_body] $status'; log_subrequest on;
             access_log {} copy;",
            log.display()
        ),
        "location /file { mirror /copy; mirror /other; }
         location /bodiless { mirror /copy; mirror_request_body off; }
         location /file/off { mirror off; }
         location /copy { return 201; } location /other { return 404; }",
    );
    std::fs::create_dir(site.directory.path().join("root/file")).expect("a fresh folder");
    for name in ["bodiless", "file/a", "file/off"] {
        site.write(name, "static");
    }
    let mut client = Client::connect(site.address);
    assert_eq!(client.get("/file/a?x=1").text(), "static");
    let post = |client: &mut Client, path: &str| {
        client.request(format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody")).status
    };
    assert_eq!(post(&mut client, "/file/a"), 405);
    assert_eq!(post(&mut client, "/bodiless"), 405);
    assert_eq!(client.get("/file/off").text(), "static");
    let lines = weir_test::wait_for("nine lines", || {
        let text = std::fs::read_to_string(&log).ok()?;
        (text.lines().count() >= 9).then_some(text)
    });
    for expected in [
        "GET /copy x=1 [-] 201",
        "GET /other x=1 [-] 404",
        "POST /copy - [body] 201",
        "POST /other - [body] 404",
        "POST /copy - [-] 201",
    ] {
        assert!(lines.contains(expected), "{expected}: {lines}");
    }
    assert_eq!(lines.matches("/copy").count(), 3, "{lines}");
}

/// The cookie that is set: its value, and the attributes.
fn cookie(response: &Response) -> Option<(String, String)> {
    let (value, attributes) = response.field("Set-Cookie")?.split_once(';')?;
    Some((value.to_owned(), attributes.to_owned()))
}

#[test]
fn cookies_tell_clients_apart() {
    let site = Site::with(
        &MODULES,
        "access_log off;",
        "userid on; userid_path /p; userid_domain d.test; userid_flags secure samesite=lax; userid_p3p 'policyref=\"x\"';
         location / { return 200 \"$uid_got,$uid_set\"; }
         location /mark { userid_mark m; userid_expires max; return 200 $uid_set; }
         location /reset { set $uid_reset log; return 200 $uid_set; }
         location /v1 { userid v1; userid_service 7; userid_name other; userid_domain none; return 200 $uid_set; }
         location /log { userid log; return 200 \"$uid_got,$uid_set\"; }",
    );
    let first = site.get("/", "");
    let (value, attributes) = cookie(&first).expect("a cookie");
    assert_eq!(attributes, " domain=d.test; path=/p; secure; samesite=lax");
    assert_eq!(first.field("P3P"), Some("policyref=\"x\""));
    // 127.0.0.1, as the machine reads a number in network order.
    let loopback = format!("uid={:08X}", u32::from_ne_bytes([127, 0, 0, 1]));
    assert!(first.text().starts_with(&format!(",{loopback}")), "{}", first.text());
    assert_eq!(value.len(), "uid=".len() + 24);
    let number = first.text()[1..].to_owned();

    let sent = format!("Cookie: {value}\r\n");
    let again = site.get("/", &sent);
    assert_eq!((again.text(), cookie(&again)), (format!("{number},"), None));
    assert_eq!(site.get("/log", &sent).text(), format!("{number},"));

    let marked = site.get("/mark", &sent);
    let (marked_value, attributes) = cookie(&marked).expect("set again");
    assert_eq!((marked.text(), marked_value), (number.clone(), format!("{}m=", &value[..26])));
    assert!(attributes.starts_with(" expires=Thu, 31-Dec-37 23:55:55 GMT;"), "{attributes}");

    let reset = site.get("/reset", &sent);
    assert_ne!(reset.text(), number);
    logged(&site, "error.log", &format!("userid cookie \"{number}\" was reset"));

    let v1 = site.get("/v1", "");
    assert!(v1.text().starts_with("other=00000007"), "{}", v1.text());
    assert_ne!(site.get("/v1", "").text(), v1.text());

    assert!(cookie(&site.get("/", "Cookie: uid=short\r\n")).is_some());
    logged(&site, "error.log", "client sent too short userid cookie \"uid=short\"");
    site.get("/", "Cookie: uid=*234567890123456789012\r\n");
    logged(&site, "error.log", "client sent invalid userid cookie \"uid=*2");
}

#[test]
fn connections_are_counted() {
    let site = Site::with(
        &MODULES,
        "access_log off;",
        "location = /status { stub_status; }
         location / { return 200 \"$connections_active $connections_reading $connections_writing $connections_waiting\"; }",
    );
    let mut idle = Client::connect(site.address);
    assert_eq!(idle.get("/").text(), "1 0 1 0");
    let page = |head: &str| {
        Client::connect(site.address)
            .request(format!("{head} /status HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"))
    };
    // And those of the questions before to have ended.
    weir_test::wait_for("the first connection to be idle", || {
        let text = page("GET").text();
        let begins = text.starts_with("Active connections: 2 \nserver accepts handled requests\n ");
        (begins && text.ends_with("Writing: 1 Waiting: 1 \n")).then_some(())
    });
    assert_eq!(page("POST").status, 405);
}

#[test]
fn wrong_lines_are_refused_in_nginx_words() {
    for (line, message) in [
        ("userid maybe;", "invalid value \"maybe\""),
        (
            "userid_mark ab;",
            "\"userid_mark\" directive value must be \"off\" or a single letter, digit or \"=\" character",
        ),
        ("userid_expires never;", "\"userid_expires\" directive invalid value"),
        ("userid_flags quick;", "invalid value \"quick\""),
        ("userid_service x;", "\"userid_service\" directive invalid number"),
        ("mirror off; mirror /a;", "\"mirror\" directive is duplicate"),
        ("mirror /a; mirror off;", "\"mirror\" directive is duplicate"),
    ] {
        let text = format!("events {{ }} http {{ server {{ {line} }} }}");
        let lines = weir_engine::conf::test::headlines(&text, &MODULES);
        assert!(lines.len() == 1 && lines[0].contains(message), "{lines:?}");
    }
}
