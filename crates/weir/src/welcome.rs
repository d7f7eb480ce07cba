//! The welcome page of the embedded configuration: what Weir is, and where the time of this very request went.

use weir_conf::{ArgCount, Contexts, Directive};
use weir_engine::body::{BodyBuf, ResponseBody};
use weir_engine::plan::PlanBuilder;
use weir_engine::{Exchange, Handler, Module, Text, Verdict};
use weir_http::escape;
use weir_trace::{SiteTable, render};

use crate::show;

/// The `welcome` directive.
pub(crate) struct WelcomeModule;

/// Whether the location shows the page.
#[derive(Default)]
pub(crate) struct WelcomeConf {
    on: bool,
}

impl Module for WelcomeModule {
    const NAME: &'static str = "welcome";
    type Conf = WelcomeConf;
    const DIRECTIVES: &'static [Directive<WelcomeConf>] =
        &[Directive::<WelcomeConf>::new("welcome", Contexts::LOCATION, ArgCount::NONE, |conf, _| {
            conf.on = true;
            Ok(())
        })
        .syntax("welcome")
        .doc(
            "Responds with Weir's welcome page, which shows where the time of this very \
             request went.",
        )];

    fn install(conf: &WelcomeConf, plan: &mut PlanBuilder<'_>) {
        if conf.on {
            plan.content(Self::NAME, WelcomePage);
        }
    }
}

struct WelcomePage;

impl Handler for WelcomePage {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        let mut page = Vec::with_capacity(8 * 1024);
        page.extend_from_slice(HEAD.as_bytes());
        escape::html(&mut page, now(x).as_bytes());
        page.extend_from_slice(BETWEEN.as_bytes());
        escape::html(&mut page, last(x).as_bytes());
        page.extend_from_slice(TAIL.as_bytes());
        x.response.status = 200;
        x.response.content_type = Some(Text::Static(b"text/html"));
        x.respond(ResponseBody::Whole(BodyBuf::Bytes(page)))
    }
}

/// The tree of this request, as far as it has come: the content phase is still open.
fn now(x: &Exchange) -> String {
    let tree = x.shared.with_trace(|trace| {
        let mut so_far = trace.clone();
        so_far.end(weir_rt::clock::ticks());
        so_far.tree()
    });
    render::tree(&tree, SiteTable::global(), &show::nanoseconds)
}

/// The last request whose tree was retained, with its tree.
fn last(x: &Exchange) -> String {
    let recorder = x.worker.recorder.borrow();
    match recorder.kept().last() {
        Some(kept) => show::kept(kept),
        None => "None yet: one request in 64 is drawn, and every slow or failed one is kept.\n".to_owned(),
    }
}

const HEAD: &str = include_str!("../assets/welcome-head.html");
const BETWEEN: &str = include_str!("../assets/welcome-between.html");
const TAIL: &str = include_str!("../assets/welcome-tail.html");
