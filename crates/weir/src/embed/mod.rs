//! A server inside of another program.
//!
//! It has threads of its own, one for each worker, and nothing else that the program would notice: no signal is
//! handled, no file written that the configuration does not name, standard error used for warnings and worse until
//! there is an `error_log`. Several servers in one process do not know of each other. See `docs/guides/embedding.md`.

mod builder;
mod described;
mod handler;
mod message;

use std::sync::Arc;
use std::time::Duration;

use weir_engine::log;
use weir_modules::otel::MetricsExporter;
use weir_rt::SockAddr;
use weir_see::ServerSource;

pub use builder::ServerBuilder;
pub use handler::{Handler, HandlerEnding};
pub use message::{Request, Response, body_bytes};
pub use weir_server::StartError as Error;

use builder::ConfLoader;

/// A running server. Dropping it ends it at once.
pub struct Server {
    running: weir_server::Server,
    metrics: MetricsExporter,
    loader: ConfLoader,
    /// See [`ServerBuilder::watched`].
    watched: bool,
}

impl Server {
    /// A server to be described and started.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    fn start(loader: ConfLoader, text: &str, options: weir_server::ServerOptions) -> Result<Server, Error> {
        let watched = options.watched;
        quietly(watched, || {
            let configuration = Arc::new(loader.load(text)?);
            let running = weir_server::Server::start(configuration, options)?;
            let source = ServerSource::new(&running);
            let metrics = MetricsExporter::new(move || weir_see::metrics_text(&source));
            metrics.update(&running.configuration());
            Ok(Server { running, metrics, loader, watched })
        })
    }

    /// The addresses that are listened on. A port 0 of the configuration has become a real one.
    pub fn addresses(&self) -> Vec<SockAddr> {
        self.running.addresses()
    }

    /// Takes another configuration into use, without losing a request: see `docs/guides/embedding.md` for what changes when.
    /// Handlers are those that the builder was given.
    ///
    /// # Errors
    /// What is wrong with the text, or an address can't be bound; then nothing has changed.
    pub fn reload(&self, text: &str) -> Result<(), Error> {
        quietly(self.watched, || {
            self.running.reload(Arc::new(self.loader.load(text)?))?;
            self.metrics.update(&self.running.configuration());
            Ok(())
        })
    }

    /// Accepts no more connections and lets running requests end. Returns at once; [`Server::join`] waits for the end.
    pub fn quit(&self) {
        self.running.quit();
    }

    /// Ends at once, running requests too, and returns when all of its threads have ended.
    pub fn stop(&self) {
        self.running.stop();
        self.join();
    }

    /// Waits for the end: until another thread calls [`Server::stop`], or after [`Server::quit`] the last request is
    /// responded to. What it logged is in its files then.
    pub fn join(&self) {
        self.running.join(None);
        weir_modules::otel::flush();
        log::flush();
    }

    /// As [`Server::join`], for `limit` at most after each thread that ends. `false`: it still runs.
    pub fn join_for(&self, limit: Duration) -> bool {
        self.running.join(Some(limit))
    }

    /// The server as the engine has it: counters, threads, configuration.
    pub fn engine(&self) -> &weir_server::Server {
        &self.running
    }
}

/// Calls what may start threads. They take no signals, which are the program's, unless they are `watched` by signals.
fn quietly<R>(watched: bool, start: impl FnOnce() -> R) -> R {
    if watched { start() } else { weir_rt::signal::without_signals(start) }
}
