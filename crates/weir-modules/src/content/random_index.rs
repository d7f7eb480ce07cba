//! `random_index`: continues a request for a directory, by an internal redirect, with one of its files, chosen at
//! random (nginx's `ngx_http_random_index_module`).

use std::hash::{BuildHasher, Hasher, RandomState};

use weir_conf::Directive;
use weir_conf::names::{FLAG, LOCATION};
use weir_engine::file;
use weir_engine::plan::PlanBuilder;
use weir_engine::redirect::InternalRedirect;
use weir_engine::{Exchange, Handler, LocalFuture, Module, Phase, Verdict, inherit};
use weir_http::Method;
use weir_rt::file::FileKind;
use weir_trace::WaitKind;

use crate::content::autoindex::list;

/// The module `random_index`.
pub struct RandomIndex;

impl Module for RandomIndex {
    const NAME: &'static str = "random_index";
    type Conf = RandomIndexConf;
    const DIRECTIVES: &'static [Directive<RandomIndexConf>] =
        &[Directive::<RandomIndexConf>::new("random_index", LOCATION, FLAG, |c, line| line.flag(&mut c.on))
            .syntax("random_index on | off")
            .default("off")
            .doc("Serves a random file of the directory for request URIs that end with a slash.")];

    fn inherit(conf: &mut RandomIndexConf, parent: &RandomIndexConf) {
        inherit!(conf, parent, on);
    }

    fn install(conf: &RandomIndexConf, plan: &mut PlanBuilder<'_>) {
        if conf.on == Some(true) {
            plan.handler(Phase::Content, Self::NAME, RandomIndexHandler);
        }
    }
}

/// The module's settings of one block.
#[derive(Default)]
pub struct RandomIndexConf {
    /// `random_index`; off unless set.
    on: Option<bool>,
}

struct RandomIndexHandler;

impl Handler for RandomIndexHandler {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        if !x.uri().ends_with(b"/")
            || !matches!(x.request.head.method, Method::Get | Method::Head | Method::Post)
        {
            return Verdict::Passed;
        }
        Verdict::Wait
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(draw(x))
    }
}

/// Files whose names begin with a dot take no part; a directory without files is left to the other handlers.
async fn draw(x: &mut Exchange) -> Verdict {
    let mut path = match file::map_uri(x) {
        Ok(path) => path,
        Err(status) => return Verdict::Status(status),
    };
    if path.span.end > path.span.start + 1 {
        // Without its slash, as nginx names it in messages.
        path.span.end -= 1;
    }
    let directory = path.bytes(&x.arena).to_vec();
    let mut entries = match x
        .waiting_for(WaitKind::ThreadPool, Box::pin(weir_rt::blocking(move || list::read(&directory))))
        .await
    {
        Ok(entries) => entries,
        Err(error) => return Verdict::Status(file::call_failed(x, error.call, path, error.errno)),
    };
    entries.retain(|entry| entry.kind == FileKind::File);
    if entries.is_empty() {
        return Verdict::Declined;
    }
    let drawn = &entries[(random() % entries.len() as u64) as usize];
    let (uri, args) = (x.request.uri, x.request.args);
    let start = x.arena.mark();
    x.arena.copy(uri);
    x.arena.push(&drawn.name);
    InternalRedirect::Uri { uri: x.arena.since(start), args }.into()
}

/// The keys of the standard library's hash tables come from the system's random numbers, and differ each time.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
