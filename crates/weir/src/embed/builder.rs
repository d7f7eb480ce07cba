//! The description of a server inside of another program: a configuration, or calls that make one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_conf::{MemoryFiles, RealFiles};
use weir_engine::conf::build::build_with;
use weir_engine::conf::temp_path;
use weir_engine::conf::{CORE_MODULES, with_core};
use weir_engine::{Configuration, ModuleDef};
use weir_rt::DriverChoice;
use weir_server::ServerOptions;

use super::described::DescribedServer;
use super::handler::{EmbedModule, Handler, HandlerEnding, NamedHandlers, PlainHandler, WaitingHandler};
use super::message::{Request, Response};
use super::{Error, Server};
use crate::modules::OWN;

/// A server to be started. Either it has a configuration ([`ServerBuilder::conf`], [`ServerBuilder::conf_file`]), whose locations
/// name handlers by `handler NAME;`, or it is described by [`ServerBuilder::listen`], [`ServerBuilder::root`] and
/// [`ServerBuilder::location`].
#[derive(Default)]
pub struct ServerBuilder {
    conf: Option<ConfText>,
    prefix: Option<PathBuf>,
    described: DescribedServer,
    handlers: NamedHandlers,
    workers: Option<usize>,
    driver: Option<DriverChoice>,
    watched: bool,
}

enum ConfText {
    Text(String),
    File(PathBuf),
}

impl ServerBuilder {
    /// The configuration: a whole `nginx.conf`, with `events` and `http`.
    #[must_use]
    pub fn conf(mut self, text: impl Into<String>) -> ServerBuilder {
        self.conf = Some(ConfText::Text(text.into()));
        self
    }

    /// The file of the configuration. Relative paths in it begin at its directory, unless there is a prefix.
    #[must_use]
    pub fn conf_file(mut self, path: impl Into<PathBuf>) -> ServerBuilder {
        self.conf = Some(ConfText::File(path.into()));
        self
    }

    /// Where relative paths begin; the current directory.
    #[must_use]
    pub fn prefix(mut self, directory: impl Into<PathBuf>) -> ServerBuilder {
        self.prefix = Some(directory.into());
        self
    }

    /// Listens on an address, with the parameters of `listen`; 127.0.0.1:0, without an address.
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> ServerBuilder {
        self.described.listen(address.into());
        self
    }

    /// How many bytes the body of a request may have (`client_max_body_size`), of all hosts; 0 for no limit, otherwise it is 1 MB.
    #[must_use]
    pub fn body_limit(mut self, bytes: u64) -> ServerBuilder {
        self.described.limit_bodies(bytes);
        self
    }

    /// What is described from here on is of the host with these names, which spaces separate: the addresses, the root and the
    /// locations of a virtual server (`server_name`). What was described before the first call is of the server that takes
    /// requests for any other host. A host without [`ServerBuilder::listen`] is served where the first is.
    ///
    /// ```
    /// let server = weir::Server::builder()
    ///     .location("/", |_, response| _ = response.body("anything else"))
    ///     .host("example.com *.example.com")
    ///     .location("/", |_, response| _ = response.body("example"))
    ///     .start()?;
    /// # Ok::<(), weir::Error>(())
    /// ```
    #[must_use]
    pub fn host(mut self, names: impl Into<String>) -> ServerBuilder {
        self.described.host(names.into());
        self
    }

    /// Serves the files below `directory` where no location is. Without it those are not found.
    #[must_use]
    pub fn root(mut self, directory: impl Into<PathBuf>) -> ServerBuilder {
        self.described.root(directory.into());
        self
    }

    /// Serves requests for `path`, as written in a `location` line (`/api/`, `= /exact`, `~ \.cgi$`), by a function
    /// that never waits: it runs on the worker's thread, which does nothing else meanwhile.
    #[must_use]
    pub fn location<F, E>(mut self, path: impl Into<String>, handler: F) -> ServerBuilder
    where
        F: Fn(&Request<'_>, &mut Response) -> E + Send + Sync + 'static,
        E: HandlerEnding + 'static,
    {
        let name = self.described.location(&path.into());
        self.handler(name, handler)
    }

    /// As [`ServerBuilder::location`], by a function that may wait: for the body, a timer, a thread (`weir_rt::blocking`).
    #[must_use]
    pub fn location_async<F, E>(mut self, path: impl Into<String>, handler: F) -> ServerBuilder
    where
        F: AsyncFn(&mut Request<'_>, &mut Response) -> E + Send + Sync + 'static,
        E: HandlerEnding + 'static,
    {
        let name = self.described.location(&path.into());
        self.handler_async(name, handler)
    }

    /// As [`ServerBuilder::location`], by a content handler as [`ServerBuilder::handler_with`] takes it.
    #[must_use]
    pub fn location_with(
        mut self,
        path: impl Into<String>,
        make: impl Fn() -> Box<dyn Handler> + Send + Sync + 'static,
    ) -> ServerBuilder {
        let name = self.described.location(&path.into());
        self.handler_with(name, make)
    }

    /// The function that `handler NAME;` names in the configuration. Functions given to [`ServerBuilder::location`]
    /// have the path as their name, after the names of their [`ServerBuilder::host`] if it has any.
    #[must_use]
    pub fn handler<F, E>(self, name: impl Into<String>, handler: F) -> ServerBuilder
    where
        F: Fn(&Request<'_>, &mut Response) -> E + Send + Sync + 'static,
        E: HandlerEnding + 'static,
    {
        let handler = Arc::new(handler);
        self.handler_with(name, move || Box::new(PlainHandler(handler.clone())))
    }

    /// As [`ServerBuilder::handler`], for a function that may wait.
    #[must_use]
    pub fn handler_async<F, E>(self, name: impl Into<String>, handler: F) -> ServerBuilder
    where
        F: AsyncFn(&mut Request<'_>, &mut Response) -> E + Send + Sync + 'static,
        E: HandlerEnding + 'static,
    {
        let handler = Arc::new(handler);
        self.handler_with(name, move || Box::new(WaitingHandler(handler.clone())))
    }

    /// As [`ServerBuilder::handler`], for a content handler with all that the engine's own have: bodies that come over time,
    /// internal redirects, state of its own. One is made for each location of each worker.
    #[must_use]
    pub fn handler_with(
        mut self,
        name: impl Into<String>,
        make: impl Fn() -> Box<dyn Handler> + Send + Sync + 'static,
    ) -> ServerBuilder {
        self.handlers.0.insert(name.into(), Arc::new(make));
        self
    }

    /// How many threads serve; as `worker_processes` says, which is 1 without it.
    #[must_use]
    pub fn workers(mut self, count: usize) -> ServerBuilder {
        self.workers = Some(count);
        self
    }

    /// The event driver; as `use` says, else by probing.
    #[must_use]
    pub fn driver(mut self, driver: DriverChoice) -> ServerBuilder {
        self.driver = Some(driver);
        self
    }

    /// Lets the process' housekeeping watch the workers, as in the `weir` program: stalls, CPU samples, figures of the
    /// kernel. It has a thread and handles signals; off.
    #[must_use]
    pub fn watched(mut self, watched: bool) -> ServerBuilder {
        self.watched = watched;
        self
    }

    /// Starts the server; when it returns, connections are accepted.
    ///
    /// # Errors
    /// What is wrong with the configuration, or an address can't be bound.
    pub fn start(self) -> Result<Server, Error> {
        let options = ServerOptions {
            workers: self.workers,
            driver: self.driver,
            watched: self.watched,
            ..ServerOptions::default()
        };
        let made = self.text()?;
        let here = std::env::current_dir()?;
        let prefix = match (&self.prefix, &self.conf) {
            (Some(prefix), _) => here.join(prefix),
            (None, Some(ConfText::File(path))) => {
                here.join(path).parent().map_or(here.clone(), Path::to_path_buf)
            }
            (None, _) => here.clone(),
        };
        let (name, text) = match self.conf {
            None => (prefix.join("weir.conf"), made),
            Some(ConfText::Text(text)) => (prefix.join("weir.conf"), text),
            Some(ConfText::File(path)) => {
                let path = here.join(path);
                let failed = |error| Error(format!("open() \"{}\" failed ({error})", path.display()));
                let text = std::fs::read_to_string(&path).map_err(failed)?;
                (path, text)
            }
        };
        Server::start(ConfLoader { name, prefix, handlers: self.handlers }, &text, options)
    }

    /// The configuration that the calls describe; empty when there is one already.
    fn text(&self) -> Result<String, Error> {
        match (&self.conf, self.described.is_empty()) {
            (None, _) => self.described.text(),
            (Some(_), true) => Ok(String::new()),
            (Some(_), false) => {
                Err(Error("a server with a configuration has its addresses and locations there".to_owned()))
            }
        }
    }
}

/// Makes configurations of texts.
pub(super) struct ConfLoader {
    /// What the text is called in messages, and where `include` begins.
    name: PathBuf,
    prefix: PathBuf,
    handlers: NamedHandlers,
}

impl ConfLoader {
    /// Reads `text`, and makes the directories of temporary files that it names.
    pub(super) fn load(&self, text: &str) -> Result<Configuration, Error> {
        let files = TextAndFiles { name: &self.name, text: MemoryFiles::new().with(&self.name, text) };
        let raw = |name: &[u8]| name.ends_with(b"_by_lua_block");
        let loaded = weir_conf::load(&self.name, &self.prefix, &files, raw, None);
        let tree = loaded.map_err(|failure| Error(failure.errors.render(&failure.tree.source)))?;
        let lend = |registry: &mut weir_engine::conf::registry::ConfRegistry| {
            *registry.shared() = self.handlers.clone();
        };
        let (result, _) = build_with(tree, MODULES, self.prefix.clone(), lend);
        let configuration = result.map_err(|(errors, tree)| Error(errors.render(&tree.source)))?;
        temp_path::create(&configuration).map_err(Error)?;
        Ok(configuration)
    }
}

/// The text under its name, and the file system.
struct TextAndFiles<'f> {
    name: &'f Path,
    text: MemoryFiles,
}

impl weir_conf::ConfFiles for TextAndFiles<'_> {
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        if path == self.name { self.text.read(path) } else { RealFiles.read(path) }
    }

    fn glob(&self, pattern: &Path) -> std::io::Result<Vec<PathBuf>> {
        RealFiles.glob(pattern)
    }
}

/// The modules of the program, and `handler`.
static MODULES: &[ModuleDef] = &with_core::<{ CORE_MODULES.len() + 1 + OWN.len() }>(&WITH_HANDLER);
const WITH_HANDLER: [ModuleDef; 1 + OWN.len()] = {
    let mut all = [ModuleDef::of::<EmbedModule>(); 1 + OWN.len()];
    let mut at = 0;
    while at < OWN.len() {
        all[at] = OWN[at];
        at += 1;
    }
    all
};
