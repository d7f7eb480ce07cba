//! Subrequests, made by a module of this test: what the child sees, what the parent gets, and what it keeps.

mod common;

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use common::Site;
use weir_conf::{ArgCount, Contexts, Directive, LineCx};
use weir_engine::body::{BodyBuf, ResponseBody};
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_engine::plan::PlanBuilder;
use weir_engine::subrequest::{CapturedResponse, SubrequestBody, SubrequestOptions, VariableShare};
use weir_engine::{Exchange, Handler, LocalFuture, Module, ModuleDef, Verdict};
use weir_http::Method;
use weir_modules::{Headers, Map, NotModified, Range, Rewrite, Static};
use weir_test::Client;

static MODULES: [ModuleDef; CORE_MODULES.len() + 7] = with_core(&[
    ModuleDef::of::<Map>(),
    ModuleDef::of::<Rewrite>(),
    ModuleDef::of::<Ask>(),
    ModuleDef::of::<Static>(),
    ModuleDef::of::<NotModified>(),
    ModuleDef::of::<Headers>(),
    ModuleDef::of::<Range>(),
]);

/// `ask how uri [args]`: responds with the response of a subrequest for `uri`.
struct Ask;

impl Module for Ask {
    const NAME: &'static str = "ask";
    type Conf = Option<Question>;
    const DIRECTIVES: &'static [Directive<Self::Conf>] =
        &[Directive::new("ask", Contexts::LOCATION, ArgCount::TWO_OR_THREE, set)];

    fn install(conf: &Self::Conf, plan: &mut PlanBuilder<'_>) {
        if let Some(question) = conf {
            plan.content(Self::NAME, question.clone());
        }
    }
}

#[derive(Clone)]
struct Question {
    how: String,
    uri: Vec<u8>,
    args: Option<Vec<u8>>,
}

fn set(conf: &mut Option<Question>, line: &mut LineCx<'_>) -> weir_conf::Result {
    let args = line.args().get(2).map(|word| word.bytes().to_vec());
    line.once(conf, Question { how: line.arg(0).to_owned(), uri: line.bytes(1).to_vec(), args })
}

impl Handler for Question {
    fn handle(&self, _: &mut Exchange) -> Verdict {
        Verdict::Wait
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(self.ask(x))
    }
}

impl Question {
    async fn ask(&self, x: &mut Exchange) -> Verdict {
        if self.how == "read"
            && let Err(error) = x.read_body().await
        {
            return Verdict::Status(error.status());
        }
        if self.how == "slow" {
            weir_rt::sleep(Duration::from_secs(3600)).await;
        }
        if self.how == "drop" {
            let mut slow = x.subrequest(b"/slow", None, self.options());
            poll_fn(|cx| Poll::Ready(slow.as_mut().poll(cx).is_pending())).await;
        }
        let before = (x.uri().to_vec(), x.args().to_vec());
        let captured = x.subrequest(&self.uri, self.args.as_deref(), self.options()).await;
        assert_eq!((x.uri(), x.args()), (&*before.0, &*before.1), "the parent keeps its own");
        assert!(!x.is_subrequest() || x.internal);
        let text = describe(&captured);
        x.response.status = 200;
        x.response.content_type = Some("text/plain".into());
        x.respond(ResponseBody::Whole(BodyBuf::Bytes(text.into_bytes())))
    }

    fn options(&self) -> SubrequestOptions {
        let default = SubrequestOptions::default();
        match self.how.as_str() {
            "head" => SubrequestOptions { head_only: true, ..default },
            "limit" => SubrequestOptions { limit: Some(4), ..default },
            "own" => SubrequestOptions { share: VariableShare::Nothing, ..default },
            "copy" => SubrequestOptions { share: VariableShare::Copy, ..default },
            "read" => SubrequestOptions { body: SubrequestBody::Parent, method: Method::Post, ..default },
            "bytes" => {
                let body = SubrequestBody::Bytes(b"given".to_vec());
                SubrequestOptions { body, method: Method::Put, ..default }
            }
            _ => default,
        }
    }
}

fn describe(captured: &CapturedResponse) -> String {
    let mut text = format!("{}", captured.status);
    for (name, value) in
        captured.headers.iter().filter(|(name, _)| name != b"ETag" && name != b"Last-Modified")
    {
        text += &format!(" {}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
    }
    let end = if captured.truncated { "..." } else { "" };
    text + "|" + &String::from_utf8_lossy(&captured.body) + end
}

fn site(inside: &str) -> Site {
    Site::new(&MODULES, inside)
}

#[test]
fn a_subrequest_is_answered_in_memory() {
    let site = site(
        "location = /a { ask plain /text x=1; } location = /f { ask plain /file; } location /gone { ask plain /none; }
        location /moved { ask plain /301; } location = /301 { return 301 /x; }
        location /text { return 200 \"$request_method $uri $args\"; } add_header X x;
        location /internal { ask plain /secret; } location = /secret { internal; return 200 secret; }",
    );
    site.write("file", "hello");
    for (path, expected) in [
        ("/a?y=2", "200 Content-Type=text/plain Content-Length=13|GET /text x=1"),
        ("/f", "200 Content-Type=text/plain Content-Length=5|hello"),
        ("/internal", "200 Content-Type=text/plain Content-Length=6|secret"),
    ] {
        let response = site.get(path, "If-None-Match: \"x\"\r\nRange: bytes=0-0\r\n");
        assert_eq!(response.text(), expected, "{path}");
        assert_eq!(response.field("X"), Some("x"));
    }
    assert!(site.get("/gone", "").text().starts_with("404 Content-Type=text/html Content-Length="));
    assert!(site.get("/moved", "").text().contains(" Location=/x|<html>"));
    assert_eq!(site.get("/secret", "").status, 404);
}

#[test]
fn one_connection_serves_on_after_subrequests() {
    let site =
        site("location /a { ask plain /b; } location /b { return 200 b; } location /c { return 200 $args; }");
    let mut client = Client::connect(site.address);
    for round in 0..100 {
        assert!(client.get("/a").text().ends_with("|b"));
        assert_eq!(client.get(&format!("/c?{round}")).text(), round.to_string());
    }
}

#[test]
fn variables_are_shared_copied_or_neither() {
    // `$from` is computed once, by its first user, and cached with the variables. The number of the request is the
    // same wherever it is asked for.
    for (how, from) in [("plain", "/b"), ("copy", "/a"), ("own", "/a")] {
        let site = Site::with(
            &MODULES,
            "map $uri $from { default $uri; }",
            &format!(
                "location /a {{ add_header From $from; add_header Id $request_id; ask {how} /b; }}
                location /b {{ return 200 \"$request_id $from\"; }}"
            ),
        );
        let response = site.get("/a", "");
        let id = response.field("Id").expect("added");
        assert!(response.text().ends_with(&format!("|{id} /b")), "{how}: {}", response.text());
        // A copy is made before the parent has asked.
        assert_eq!(response.field("From"), Some(from), "{how}");
    }
}

#[test]
fn bodies_are_those_asked_for() {
    let site = site(
        "location /none { ask plain /b; } location /read { ask read /b; } location /bytes { ask bytes /b; }
        location = /b { return 200 \"$request_method $request_body\"; }
        location /again { ask read /none; }",
    );
    let post = |path: &str| {
        let mut client = Client::connect(site.address);
        let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody");
        let text = client.request(head).text();
        assert_eq!(
            client.get("/bytes").text(),
            "200 Content-Type=text/plain Content-Length=9|GET given",
            "{path}"
        );
        text
    };
    // The method is the client's, as in nginx: `$request_method` is of the main request.
    assert!(post("/none").ends_with("|POST "), "{}", post("/none"));
    assert!(post("/read").ends_with("|POST body"), "{}", post("/read"));
    assert!(post("/bytes").ends_with("|POST given"));
    assert!(post("/again").ends_with("|POST "));
}

#[test]
fn answers_are_cut_where_it_is_asked() {
    let site = site(
        "location /head { ask head /b; } location /limit { ask limit /b; } location = /b { return 200 hello; }
        location /short { ask limit /s; } location = /s { return 200 four; } location /drop { ask plain /444; }
        location = /444 { return 444; }",
    );
    assert_eq!(site.get("/head", "").text(), "200 Content-Type=text/plain Content-Length=5|");
    assert_eq!(site.get("/limit", "").text(), "200 Content-Type=text/plain Content-Length=5|...");
    assert_eq!(site.get("/short", "").text(), "200 Content-Type=text/plain Content-Length=4|four");
    assert_eq!(site.get("/drop", "").text(), "444|");
    let log = site.directory.path().join("error.log");
    let line = weir_test::wait_for("the line", || {
        std::fs::read_to_string(&log).ok()?.lines().find(|line| line.contains("too big")).map(str::to_owned)
    });
    assert!(
        line.contains(" [error] ") && line.contains("too big subrequest response: 5, client: 127.0.0.1"),
        "{line}"
    );
    assert!(line.contains(", subrequest: \"/b\""), "{line}");
}

#[test]
fn a_cycle_of_subrequests_ends() {
    let site = site("location /a { ask plain /a; }");
    let text = site.get("/a", "").text();
    let levels = text.matches("200 ").count();
    assert_eq!((levels, text.matches("|500|").count()), (51, 1), "{text}");
}

#[test]
fn a_subrequest_given_up_leaves_the_parent_whole() {
    let site = site(
        "location /a { add_header X \"$arg_x $uri\"; ask drop /b $arg_x; } location = /b { return 200 b; }
        location = /slow { ask slow /b; }",
    );
    let mut client = Client::connect(site.address);
    for _ in 0..60 {
        let response = client.get("/a?x=1");
        assert!(response.text().ends_with("|b"), "{}", response.text());
        assert_eq!(response.field("X"), Some("1 /a"));
    }
}
