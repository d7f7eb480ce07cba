//! A server that calls describe, as the text of a configuration.

use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Error;

/// What calls have described.
#[derive(Default)]
pub(super) struct DescribedServer {
    /// The first is the one without a name, which serves what no other does.
    hosts: Vec<DescribedHost>,
    /// Bytes of a request's body; `None`: as many as without a directive.
    body_limit: Option<u64>,
}

/// A `server` block.
#[derive(Default)]
struct DescribedHost {
    /// Separated by spaces; empty for the first.
    names: String,
    listens: Vec<String>,
    root: Option<PathBuf>,
    locations: Vec<String>,
}

impl DescribedServer {
    /// Whether anything was described.
    pub(super) fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.body_limit.is_none()
    }

    /// How long bodies of requests may be; 0: as long as they like.
    pub(super) fn limit_bodies(&mut self, bytes: u64) {
        self.body_limit = Some(bytes);
    }

    /// What follows is of another host.
    pub(super) fn host(&mut self, names: String) {
        self.last();
        self.hosts.push(DescribedHost { names, ..DescribedHost::default() });
    }

    /// An address of the last host.
    pub(super) fn listen(&mut self, address: String) {
        self.last().listens.push(address);
    }

    /// The files of the last host.
    pub(super) fn root(&mut self, directory: PathBuf) {
        self.last().root = Some(directory);
    }

    /// A location of the last host; returns the name of its handler: its path, or of a host with names both.
    pub(super) fn location(&mut self, path: &str) -> String {
        let host = self.last();
        host.locations.push(path.to_owned());
        host.handler_of(path)
    }

    fn last(&mut self) -> &mut DescribedHost {
        if self.hosts.is_empty() {
            self.hosts.push(DescribedHost::default());
        }
        self.hosts.last_mut().expect("one was pushed")
    }

    /// The configuration. Hosts without addresses listen where the first does.
    pub(super) fn text(&self) -> Result<String, Error> {
        // Mode 0700: one for each user.
        let user = std::fs::metadata("/proc/self")?.uid();
        let temporary = directory(&std::env::temp_dir().join(format!("weir-bodies-{user}")))?;
        let mut text =
            format!("events {{ }}\nhttp {{\n{TYPES}access_log off;\nclient_body_temp_path {temporary};\n");
        if let Some(limit) = self.body_limit {
            let _infallible = writeln!(text, "client_max_body_size {limit};");
        }
        let nothing = [DescribedHost::default()];
        let hosts = if self.hosts.is_empty() { &nothing[..] } else { &self.hosts };
        let default = ["127.0.0.1:0".to_owned()];
        let first = if hosts[0].listens.is_empty() { &default[..] } else { &hosts[0].listens };
        for host in hosts {
            let listens = if host.listens.is_empty() { first } else { &host.listens };
            text += &host.text(listens)?;
        }
        Ok(text + "}\n")
    }
}

impl DescribedHost {
    fn text(&self, listens: &[String]) -> Result<String, Error> {
        let mut text = "server {\n".to_owned();
        for listen in listens {
            // Parameters may follow: the address is not quoted, and must not end the line.
            if listen.contains(['{', '}', ';', '#', '\n']) {
                return Err(Error(format!("\"{listen}\" is no address to listen on")));
            }
            text += &format!("listen {listen};\n");
        }
        if !self.names.is_empty() {
            text += "server_name";
            for name in self.names.split_whitespace() {
                let _infallible = write!(text, " {}", quoted(name));
            }
            text += ";\n";
        }
        if let Some(root) = &self.root {
            text += &format!("root {};\n", directory(&std::path::absolute(root)?)?);
        } else if !self.locations.iter().any(|path| path == "/") {
            text += "location / { return 404; }\n";
        }
        for path in &self.locations {
            let matcher = match path.split_once(' ') {
                Some((modifier @ ("=" | "^~" | "~" | "~*"), rest)) => {
                    format!("{modifier} {}", quoted(rest.trim_start()))
                }
                _ => quoted(path),
            };
            let handler = quoted(&self.handler_of(path));
            let _infallible = writeln!(text, "location {matcher} {{ handler {handler}; }}");
        }
        Ok(text + "}\n")
    }

    fn handler_of(&self, path: &str) -> String {
        if self.names.is_empty() { path.to_owned() } else { format!("{} {path}", self.names) }
    }
}

/// A word of the configuration whose value is `text`.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A directory as a word of the configuration. A dollar sign can't be written there: it begins a variable.
fn directory(path: &Path) -> Result<String, Error> {
    match path.to_str() {
        Some(text) if !text.contains('$') => Ok(quoted(text)),
        _ => Err(Error(format!("\"{}\" can't be written in a configuration", path.display()))),
    }
}

/// The types of what a small server has; everything else is `text/plain`, as in nginx.
const TYPES: &str = "types { text/html html htm; text/css css; text/plain txt md; application/javascript js mjs; \
application/json json map; application/wasm wasm; application/pdf pdf; image/png png; image/jpeg jpg jpeg; \
image/gif gif; image/webp webp; image/avif avif; image/svg+xml svg; image/x-icon ico; font/woff2 woff2; video/mp4 mp4; }\n";
