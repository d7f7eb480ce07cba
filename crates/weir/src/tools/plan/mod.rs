//! Configurations that are loaded to be asked what they would do: nothing is bound, no upstream is asked, no log is written.

mod address;
mod directives;
mod request;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use weir_conf::{ConfTree, DirectiveLine, RealFiles, Span};
use weir_engine::Configuration;
use weir_engine::log::{self, ErrorLog, LogFile, LogLevel};
use weir_engine::worker::Worker;
use weir_engine::worker::generation::WorkerGeneration;
use weir_rt::{DriverChoice, Runtime, RuntimeOptions};
use weir_server::rehearsal::{self, RehearsedCourse, RehearsedRequest};
use weir_trace::{Recorder, RecorderSettings};

pub(super) use address::ChosenAddress;
pub(super) use directives::{AppliedDirective, lines, whole};
pub(super) use request::PlanRequest;

use crate::cli::CommandLine;
use crate::installed;
use crate::load::ConfLocation;

/// A configuration with its plans, on this thread.
pub(super) struct LoadedPlan {
    /// The lines as written.
    pub(super) tree: ConfTree,
    /// The configuration.
    pub(super) configuration: Arc<Configuration>,
    worker: Rc<Worker>,
    generation: Rc<WorkerGeneration>,
}

/// What would become of a request.
pub(super) struct PlanEvaluation {
    /// The address it came on.
    pub(super) address: ChosenAddress,
    /// Server, steps and end.
    pub(super) course: RehearsedCourse,
    /// What the error log would say, without time and context.
    pub(super) messages: Vec<String>,
}

/// Runs `work` where configurations can be loaded and asked.
///
/// # Errors
/// The system gives no event loop.
pub(super) fn within<R>(work: impl AsyncFnOnce() -> R) -> Result<R, String> {
    let options =
        RuntimeOptions { driver: DriverChoice::Epoll, worker: 0, buffers: 8, name: "weir".to_owned() };
    let runtime = Runtime::new(&options).map_err(|error| format!("no event loop: {error}"))?;
    Ok(runtime.block_on(work()))
}

impl LoadedPlan {
    /// Loads the configuration `conf`, or the one that commands take without a name.
    ///
    /// # Errors
    /// Everything that is wrong with it, each in its line.
    pub(super) fn load(conf: Option<&Path>, prefix: Option<&Path>) -> Result<LoadedPlan, String> {
        LogFile::discard_all();
        let line = CommandLine {
            conf: conf.map(Path::to_path_buf),
            prefix: prefix.map(Path::to_path_buf),
            ..CommandLine::default()
        };
        let place = ConfLocation::of(&installed::tested(&line));
        let (tree, configuration) = place
            .rehearse(&RealFiles)
            .map_err(|errors| format!("{}\n{}", place.name(), errors.join("\n")))?;
        log::set_main(ErrorLog::to(LogFile::stderr(), LogLevel::Error));
        let configuration = Arc::new(configuration);
        // The number of a worker that only tries a configuration.
        let recorder = Recorder::new(u16::MAX, RecorderSettings::default());
        let worker = Worker::new(u8::MAX, Arc::default(), recorder);
        let generation = WorkerGeneration::install(&configuration, &worker)
            .map_err(|error| error.render(&configuration.source))?;
        let generation = Rc::new(generation);
        worker.switch(generation.clone());
        Ok(LoadedPlan { tree, configuration, worker, generation })
    }

    /// What would become of `request`.
    ///
    /// # Errors
    /// No address takes it, or TLS is spoken to one that does not speak it.
    pub(super) async fn evaluate(&self, request: &PlanRequest) -> Result<PlanEvaluation, String> {
        let address = address::choose(&self.configuration.addresses, request)?;
        let hosts = self.generation.hosts().get(address.index).ok_or("the address has no server")?;
        if request.tls && !address.ssl {
            return Err(self.no_tls(request, &address, hosts.default().plan.place));
        }
        let messages = Rc::new(RefCell::new(Vec::new()));
        let taker = messages.clone();
        log::capture(Some(Box::new(move |_, line| taker.borrow_mut().push(bare_message(line)))));
        let head = request.head();
        let rehearsed = RehearsedRequest {
            head: &head,
            client: request.client.clone(),
            tls_name: request.tls.then_some(&request.host),
        };
        let course = rehearsal::rehearse(&self.worker, hosts, rehearsed).await;
        log::capture(None);
        let messages = messages.take();
        Ok(PlanEvaluation { address, course, messages })
    }

    /// What is to be said of a request over TLS to an address whose default server is at `server`, and that speaks none.
    fn no_tls(&self, request: &PlanRequest, address: &ChosenAddress, server: Option<Span>) -> String {
        let place =
            server.map_or_else(String::new, |server| format!(" (the server at {})", self.place(server)));
        let port = self.configuration.addresses.get(address.index).and_then(|address| address.addr.port());
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        format!(
            "{} speaks no TLS: no \"listen\" of it has \"ssl\"{place}, so a browser's handshake fails there. \
             http://{}{port}{} is the same request without TLS",
            address.name, request.host, request.target
        )
    }

    /// The line that opens the block at `span`, as it is written.
    pub(super) fn opening(&self, span: Span) -> String {
        let text = self.tree.source.file(span.file).and_then(|file| file.text.get(span.start as usize..));
        let text = text.unwrap_or_default();
        let text = String::from_utf8_lossy(text.get(..OPENING).unwrap_or(text));
        // A brace of a quantifier (`[0-9]{2}`) has no space before it.
        let opens =
            |(at, c): &(usize, char)| *c == '{' && text[..*at].ends_with([' ', '\t', '\n', ')', '"', '\'']);
        let end = text.char_indices().find(opens).map_or(text.len(), |(at, _)| at);
        text[..end].split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The formats that `log_format` defines: each name, and what is written after it.
    pub(super) fn log_formats(&self) -> Vec<(&str, String)> {
        let defined = self.http().iter().filter(|line| line.name.is("log_format"));
        let shown = |line: &DirectiveLine| {
            let words: Vec<&str> = line.args.iter().skip(1).map(|word| word.str()).collect();
            match words.split_first() {
                Some((escape, rest)) if escape.starts_with("escape=") => {
                    format!("{escape} {}", rest.concat())
                }
                Some((&"json", [first, ..])) if first.contains('=') => words.join(" "),
                _ => words.concat(),
            }
        };
        defined.filter_map(|line| Some((line.args.first()?.str(), shown(line)))).collect()
    }

    /// The lines of `http`.
    pub(super) fn http(&self) -> &[DirectiveLine] {
        self.tree.lines.iter().find(|line| line.name.is("http")).map_or(&[][..], lines)
    }

    /// The first name of the server with the most lines, as far as it can be a host: not that of one that only redirects.
    pub(super) fn main_name(&self) -> Option<&str> {
        let mut best = (0, None);
        for server in self.http().iter().filter(|line| line.name.is("server")) {
            let names = lines(server).iter().filter(|line| line.name.is("server_name"));
            let mut names = names.flat_map(|line| line.args.iter().map(|word| word.str()));
            let (size, name) = (size(server), names.find(|name| is_host(name)));
            if name.is_some() && size > best.0 {
                best = (size, name);
            }
        }
        best.1
    }

    /// Where `span` is, as messages have it: `FILE:LINE`.
    pub(super) fn place(&self, span: Span) -> String {
        let place = self.tree.source.place(span);
        place.map_or_else(|| "-".to_owned(), |place| format!("{}:{}", place.path.display(), place.line))
    }
}

/// A line and those in its braces.
fn size(line: &DirectiveLine) -> usize {
    1 + lines(line).iter().map(size).sum::<usize>()
}

/// Whether a server's name is no pattern.
pub(super) fn is_host(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    name.bytes().all(is_plain) && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// Bytes in which the line that opens a block ends.
const OPENING: usize = 4096;

/// A line of the error log without time, process and context.
fn bare_message(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let level = text.find('[').and_then(|from| Some(&text[from..=from + text[from..].find(']')?]));
    let message =
        text.split_once(": *").and_then(|(_, rest)| rest.split_once(' ')).map_or(&*text, |(_, m)| m);
    let message = message.split(", client: ").next().unwrap_or(message);
    format!("{} {message}", level.unwrap_or("[error]"))
}
