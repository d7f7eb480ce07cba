//! The description of a server, by which it may be started more than once.

use std::path::PathBuf;
use std::sync::Arc;

use weir::{DriverChoice, ServerBuilder};

use crate::code::CallFailure;
use crate::data::OwnedData;
use crate::queue::CallQueue;
use crate::server::ForeignServer;
use crate::serving::{ForeignHandler, HandlerFunction};

/// What C calls `weir_builder`.
#[derive(Default)]
pub(crate) struct ForeignBuilder {
    steps: Vec<BuildStep>,
    /// Functions are called where the program's loop turns.
    foreign_loop: bool,
}

/// A call that described a part of the server.
pub(crate) enum BuildStep {
    Listen(String),
    Root(String),
    Host(String),
    BodyLimit(u64),
    Location(String, RegisteredHandler),
    Handler(String, RegisteredHandler),
    Configuration(String),
    File(PathBuf),
    Prefix(PathBuf),
    Workers(usize),
    Driver(DriverChoice),
}

/// A function of the program's and what it is given.
#[derive(Clone)]
pub(crate) struct RegisteredHandler {
    pub(crate) function: HandlerFunction,
    pub(crate) data: Arc<OwnedData>,
}

impl ForeignBuilder {
    pub(crate) fn add(&mut self, step: BuildStep) {
        self.steps.push(step);
    }

    pub(crate) fn set_foreign_loop(&mut self, on: bool) {
        self.foreign_loop = on;
    }

    /// Starts the server.
    pub(crate) fn start(&self) -> Result<ForeignServer, CallFailure> {
        let queue = if self.foreign_loop { Some(Arc::new(CallQueue::new()?)) } else { None };
        let described =
            self.steps.iter().fold(weir::Server::builder(), |builder, step| step.take(builder, &queue));
        let file = self.steps.iter().rev().find_map(|step| match step {
            BuildStep::File(path) => Some(Some(path.clone())),
            BuildStep::Configuration(_) => Some(None),
            _ => None,
        });
        // The current directory may be another when it is read again.
        let file = file.flatten().map(std::path::absolute).transpose()?;
        Ok(ForeignServer::new(described.start()?, queue, file))
    }
}

impl BuildStep {
    fn take(&self, builder: ServerBuilder, queue: &Option<Arc<CallQueue>>) -> ServerBuilder {
        let maker = |handler: &RegisteredHandler| {
            let (function, data) = (handler.function, handler.data.clone());
            let made = ForeignHandler { function, data, queue: queue.clone() };
            move || -> Box<dyn weir::Handler> { Box::new(made.clone()) }
        };
        match self {
            BuildStep::Listen(address) => builder.listen(address),
            BuildStep::Root(directory) => builder.root(directory),
            BuildStep::Host(names) => builder.host(names),
            BuildStep::BodyLimit(bytes) => builder.body_limit(*bytes),
            BuildStep::Location(path, handler) => builder.location_with(path, maker(handler)),
            BuildStep::Handler(name, handler) => builder.handler_with(name, maker(handler)),
            BuildStep::Configuration(text) => builder.conf(text),
            BuildStep::File(path) => builder.conf_file(path),
            BuildStep::Prefix(directory) => builder.prefix(directory),
            BuildStep::Workers(count) => builder.workers(*count),
            BuildStep::Driver(choice) => builder.driver(*choice),
        }
    }
}
