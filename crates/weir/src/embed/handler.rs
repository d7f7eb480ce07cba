//! `handler NAME;`: the location is served by a function of the program that the server is inside of.

use std::collections::HashMap;
use std::sync::Arc;

use weir_conf::names::{LOCATION, ONE};
use weir_conf::{Directive, LineCx};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::phase::LocalFuture;
use weir_engine::plan::PlanBuilder;
use weir_engine::{EngineError, Exchange, Module, Verdict};

use super::message::{Request, Response};

pub use weir_engine::Handler;

/// Makes a handler for a location of a worker.
pub(super) type MakeHandler = Arc<dyn Fn() -> Box<dyn Handler> + Send + Sync>;

/// The handlers of a server, by name.
#[derive(Clone, Default)]
pub(super) struct NamedHandlers(pub(super) HashMap<String, MakeHandler>);

/// The module `handler`.
pub(super) struct EmbedModule;

/// The handler of a location.
#[derive(Default)]
pub(super) struct EmbedConf {
    make: Option<MakeHandler>,
}

impl Module for EmbedModule {
    const NAME: &'static str = "handler";
    type Conf = EmbedConf;
    const DIRECTIVES: &'static [Directive<EmbedConf>] =
        &[Directive::<EmbedConf>::new("handler", LOCATION, ONE, handler).syntax("handler name").doc(
            "Responds by the handler that the program that embeds Weir has registered \
                 under this name.",
        )];

    fn install(conf: &EmbedConf, plan: &mut PlanBuilder<'_>) {
        if let Some(make) = &conf.make {
            plan.content(Self::NAME, MadeHandler(make()));
        }
    }
}

fn handler(conf: &mut EmbedConf, line: &mut LineCx<'_>) -> weir_conf::Result {
    let name = line.arg(0);
    let make = line.ext::<ConfRegistry>().shared::<NamedHandlers>().0.get(name).cloned();
    match make {
        Some(make) => line.once(&mut conf.make, make),
        None => Err(line.fail_arg(0, format!("unknown handler \"{name}\""))),
    }
}

struct MadeHandler(Box<dyn Handler>);

impl Handler for MadeHandler {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        self.0.handle(x)
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        self.0.wait(x)
    }
}

/// What a handler may return: nothing, or how it failed.
pub trait HandlerEnding {
    /// How it failed, if it did.
    fn failure(self) -> Option<EngineError>;
}

impl HandlerEnding for () {
    fn failure(self) -> Option<EngineError> {
        None
    }
}

impl HandlerEnding for Result<(), EngineError> {
    fn failure(self) -> Option<EngineError> {
        self.err()
    }
}

/// The result: the response, or the status of the error.
fn answer(x: &mut Exchange, response: Response, failure: Option<EngineError>) -> Verdict {
    match failure {
        None => response.send(x),
        Some(error) if x.body.is_gone() => Verdict::Close(error.status()),
        Some(error) => Verdict::Status(error.status()),
    }
}

/// A function that responds at once.
pub(super) struct PlainHandler<F>(pub(super) Arc<F>);

impl<F, E> Handler for PlainHandler<F>
where
    F: Fn(&Request<'_>, &mut Response) -> E,
    E: HandlerEnding,
{
    fn handle(&self, x: &mut Exchange) -> Verdict {
        let mut response = Response::new();
        let failure = (self.0)(&Request::new(x), &mut response).failure();
        answer(x, response, failure)
    }
}

/// A function that may wait.
pub(super) struct WaitingHandler<F>(pub(super) Arc<F>);

impl<F, E> Handler for WaitingHandler<F>
where
    F: AsyncFn(&mut Request<'_>, &mut Response) -> E,
    E: HandlerEnding,
{
    fn handle(&self, _: &mut Exchange) -> Verdict {
        Verdict::Wait
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(async move {
            let mut response = Response::new();
            let failure = (self.0)(&mut Request::new(x), &mut response).await.failure();
            answer(x, response, failure)
        })
    }
}
