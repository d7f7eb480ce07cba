//! `weir lsp`: a language server for configurations, without its I/O: messages in, messages out.
//!
//! Each text that is open in the editor takes the place of its file; others are read from the file system. After every
//! batch of messages what `weir -t` would say is published for all files of the configurations that open ones belong to.

mod analysis;
mod completion;
mod cursor;
mod parser_words;
mod place;
mod questions;
mod replies;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use weir_conf::{ConfFiles, OverlaidFiles, format};
use weir_http::json::{JsonValue, JsonWriter};

use crate::check::is_lua_block;
use analysis::Analysis;
pub use analysis::EditorFiles;
use place::{EditorPlace, EditorRange, path_of};
use questions::AskedPlace;
use replies::{RequestError, RequestId, failure, notification, result};

/// A language server.
pub struct LanguageServer<F> {
    files: OverlaidFiles<F>,
    /// The configuration that was named; `None`: the nearest one.
    main: Option<PathBuf>,
    /// By the path of an open file.
    analyses: BTreeMap<PathBuf, Analysis>,
    /// Files for which the client shows findings.
    published: BTreeSet<PathBuf>,
    /// URIs as the client writes them, by path.
    uris: BTreeMap<PathBuf, String>,
    /// Something was changed since the analyses were made.
    stale: bool,
    state: ServerState,
    outgoing: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerState {
    Begun,
    Initialized,
    ShutDown,
    /// With what the program is to end.
    Exited(u8),
}

impl<F: ConfFiles> LanguageServer<F> {
    /// A server that reads from `files` what is not open; `main` is the configuration, if one is named.
    pub fn new(files: F, main: Option<PathBuf>) -> Self {
        LanguageServer {
            files: OverlaidFiles { below: files, texts: BTreeMap::new() },
            main,
            analyses: BTreeMap::new(),
            published: BTreeSet::new(),
            uris: BTreeMap::new(),
            stale: false,
            state: ServerState::Begun,
            outgoing: Vec::new(),
        }
    }

    /// Takes a message of the client.
    pub fn receive(&mut self, message: &[u8]) {
        let Ok(message) = JsonValue::parse(message) else {
            return self.outgoing.push(failure(&RequestId::Absent, RequestError::PARSE));
        };
        let id = RequestId::of(&message);
        let Some(method) = message.field("method").and_then(JsonValue::text) else {
            // A response: the server asks nothing.
            if message.field("result").is_none() && message.field("error").is_none() {
                self.outgoing.push(failure(&id, RequestError::INVALID));
            }
            return;
        };
        let parameters = message.field("params").unwrap_or(&JsonValue::Null);
        match id {
            RequestId::Absent => self.notified(method, parameters),
            id => {
                let response = match self.asked(method, parameters) {
                    Ok(json) => result(&id, &json),
                    Err(error) => failure(&id, error),
                };
                self.outgoing.push(response);
            }
        }
    }

    /// Looks at what has changed, and publishes what there is to say of it: after a batch of messages.
    pub fn settle(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let open: Vec<PathBuf> = self.files.texts.keys().cloned().collect();
        let of = |path: &PathBuf| (path.clone(), Analysis::of(path, self.main.as_deref(), &self.files));
        self.analyses = open.iter().map(of).collect();
        let mut found: BTreeMap<PathBuf, Vec<String>> =
            self.published.iter().map(|path| (path.clone(), Vec::new())).collect();
        found.extend(open.into_iter().map(|path| (path, Vec::new())));
        for finding in self.analyses.values().flat_map(|analysis| &analysis.found) {
            let written = finding.object();
            let findings = found.entry(finding.path.clone()).or_default();
            if !findings.contains(&written) {
                findings.push(written);
            }
        }
        self.published =
            found.iter().filter(|(_, found)| !found.is_empty()).map(|(path, _)| path.clone()).collect();
        for (path, findings) in found {
            let uri = self.uris.get(&path).cloned().unwrap_or_else(|| place::uri_of(&path));
            self.outgoing.push(notification("textDocument/publishDiagnostics", |json| {
                json.key("uri").text(&uri);
                json.key("diagnostics").raws(&findings);
            }));
        }
    }

    /// The messages for the client, in their order.
    pub fn take_outgoing(&mut self) -> Vec<String> {
        std::mem::take(&mut self.outgoing)
    }

    /// The exit status of the program once the client has ended the session; `None` before.
    pub fn exit_status(&self) -> Option<u8> {
        match self.state {
            ServerState::Exited(status) => Some(status),
            _ => None,
        }
    }

    /// A notification: nothing is sent back. Unknown ones are passed over, as the protocol wants.
    fn notified(&mut self, method: &str, parameters: &JsonValue) {
        match method {
            "exit" => {
                let status = u8::from(self.state != ServerState::ShutDown);
                self.state = ServerState::Exited(status);
            }
            "textDocument/didOpen" => self.take_text(parameters, &["textDocument", "text"]),
            "textDocument/didChange" => {
                let changes = parameters.field("contentChanges").and_then(JsonValue::list);
                // Each is the whole text: that is what `initialize` asks for.
                let text = changes.and_then(<[_]>::last).and_then(|change| change.field("text"));
                if let (Some((_, path)), Some(text)) = (document(parameters), text.and_then(JsonValue::text))
                {
                    self.files.texts.insert(path, text.as_bytes().to_vec());
                    self.stale = true;
                }
            }
            "textDocument/didClose" => {
                if let Some((_, path)) = document(parameters) {
                    self.files.texts.remove(&path);
                    self.stale = true;
                }
            }
            // What is included may have been written by others, too.
            "textDocument/didSave" | "workspace/didChangeWatchedFiles" => self.stale = true,
            _ => {}
        }
    }

    fn take_text(&mut self, parameters: &JsonValue, keys: &[&str]) {
        let text = parameters.path(keys).and_then(JsonValue::text);
        if let (Some((uri, path)), Some(text)) = (document(parameters), text) {
            self.files.texts.insert(path.clone(), text.as_bytes().to_vec());
            self.uris.insert(path, uri);
            self.stale = true;
        }
    }

    /// A request: the JSON of its result.
    fn asked(&mut self, method: &str, parameters: &JsonValue) -> Result<String, RequestError> {
        match (method, self.state) {
            ("initialize", ServerState::Begun) => {
                let main = parameters.path(&["initializationOptions", "main"]).and_then(JsonValue::text);
                self.main = self.main.take().or_else(|| main.map(PathBuf::from));
                self.state = ServerState::Initialized;
                Ok(capabilities())
            }
            (_, ServerState::Begun) => Err(RequestError::NOT_INITIALIZED),
            ("shutdown", _) => {
                self.state = ServerState::ShutDown;
                Ok("null".to_owned())
            }
            (_, ServerState::Initialized) => self.asked_of_document(method, parameters),
            _ => Err(RequestError::INVALID),
        }
    }

    fn asked_of_document(&mut self, method: &str, parameters: &JsonValue) -> Result<String, RequestError> {
        if !METHODS.contains(&method) {
            return Err(RequestError::UNKNOWN_METHOD);
        }
        self.settle();
        let (_, path) = document(parameters).ok_or(RequestError::PARAMETERS)?;
        let text = self.files.texts.get(&path).ok_or(RequestError::PARAMETERS)?;
        let analysis = self.analyses.get(&path).ok_or(RequestError::PARAMETERS)?;
        match method {
            "textDocument/formatting" => return Ok(formatting(&path, text)),
            "textDocument/codeAction" => {
                let range = parameters.field("range").and_then(EditorRange::read);
                let range = range.ok_or(RequestError::PARAMETERS)?;
                return Ok(written(|json| questions::write_actions(json, analysis, &path, range)));
            }
            _ => {}
        }
        let place =
            parameters.field("position").and_then(EditorPlace::read).ok_or(RequestError::PARAMETERS)?;
        let at = place.offset(text);
        let asked = AskedPlace { path: &path, text, at, analysis, files: &self.files };
        Ok(match method {
            "textDocument/completion" => completions(&asked, place),
            "textDocument/hover" => match asked.hover() {
                Some(hover) => written(|json| questions::write_hover(json, &hover)),
                None => "null".to_owned(),
            },
            _ => written(|json| questions::write_places(json, &asked.definitions())),
        })
    }
}

/// The methods that are asked of an open text.
const METHODS: [&str; 5] = [
    "textDocument/formatting",
    "textDocument/codeAction",
    "textDocument/completion",
    "textDocument/hover",
    "textDocument/definition",
];

/// URI and path of the document that a message is about.
fn document(parameters: &JsonValue) -> Option<(String, PathBuf)> {
    let uri = parameters.path(&["textDocument", "uri"])?.text()?;
    Some((uri.to_owned(), path_of(uri)))
}

/// One value of JSON.
fn written(write: impl FnOnce(&mut JsonWriter)) -> String {
    let mut json = JsonWriter::default();
    write(&mut json);
    json.into()
}

/// What `initialize` responds with.
fn capabilities() -> String {
    JsonWriter::object(|json| {
        json.key("capabilities").nested(|json| {
            // Whole texts.
            json.key("textDocumentSync").nested(|json| {
                json.key("openClose").raw(true);
                json.key("change").raw(1);
                json.key("save").raw(true);
            });
            json.key("completionProvider").nested(|json| {
                json.key("triggerCharacters").list(|json| json.text("$"));
            });
            for provider in ["hoverProvider", "definitionProvider", "documentFormattingProvider"] {
                json.key(provider).raw(true);
            }
            json.key("codeActionProvider").nested(|json| {
                json.key("codeActionKinds").list(|json| json.text("quickfix"));
            });
        });
        json.key("serverInfo").nested(|json| {
            json.key("name").text("weir lsp");
            json.key("version").text(env!("CARGO_PKG_VERSION"));
        });
    })
}

/// The edits that format a text: none where it has a syntax error, which is published.
fn formatting(path: &Path, text: &[u8]) -> String {
    let new = format(path, text, is_lua_block).ok().filter(|new| new != text);
    let new = new.map(|new| String::from_utf8_lossy(&new).into_owned());
    let all = EditorRange::of(text, 0, text.len());
    written(|json| json.list(|json| new.iter().for_each(|new| questions::write_edit(json, all, new))))
}

fn completions(asked: &AskedPlace<'_>, place: EditorPlace) -> String {
    let Some(line) = cursor::CursorLine::before(asked.text, asked.at) else { return "[]".to_owned() };
    let outer = cursor::outer_blocks(&asked.analysis.tree, asked.path);
    let (items, length) = completion::complete(&line, outer.as_deref(), Some(&asked.analysis.tree));
    let start = EditorPlace { column: place.column.saturating_sub(length as u64), ..place };
    let range = EditorRange { start, end: place };
    written(|json| json.list(|json| items.iter().for_each(|item| item.write(json, range))))
}
