//! Readers: each gives the next list whenever its source has one.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_http::json::Value;

use super::consul::Consul;
use super::etcd::Etcd;
use super::{Config, Kind};
use crate::discovery::server_list;
use crate::discovery::server_list::ServerEntry;

/// What it has of its source.
pub(crate) enum Reader {
    /// What the file was when it was read, and whether its next change would show.
    File(PathBuf, Option<(Identity, bool)>),
    /// The `ETag` of the last list, and whether it was asked for before.
    Url(Option<String>, bool),
    Etcd(Box<Etcd>),
    Consul(Consul),
}

/// What changes when a file is written or replaced.
type Identity = (u64, i64, i64, u64);

impl Reader {
    pub(crate) fn new(config: &Config) -> Reader {
        match &config.kind {
            Kind::File(path) => Reader::File(path.clone(), None),
            Kind::Url(_) => Reader::Url(None, false),
            Kind::Etcd { .. } => Reader::Etcd(Box::default()),
            Kind::Consul { .. } => Reader::Consul(Consul::default()),
        }
    }

    /// Waits for the next list.
    ///
    /// # Errors
    /// Why there is none; the next attempt begins anew.
    pub(crate) async fn next(&mut self, config: &Config) -> Result<Vec<ServerEntry>, String> {
        match self {
            Reader::File(path, seen) => file(path, seen, config.interval).await,
            Reader::Url(etag, asked) => url(etag, asked, config).await,
            Reader::Etcd(etcd) => etcd.next(config).await,
            Reader::Consul(consul) => consul.next(config).await,
        }
    }
}

async fn file(
    path: &Path,
    seen: &mut Option<(Identity, bool)>,
    interval: u64,
) -> Result<Vec<ServerEntry>, String> {
    loop {
        let shown = path.display();
        let failed = |call: &str, error: &io::Error| format!("{call}() \"{shown}\" failed: {error}");
        let file = std::fs::metadata(path).map_err(|error| failed("stat", &error))?;
        let now = identity(&file);
        if let Some((_, settled)) = seen.filter(|(identity, _)| *identity == now) {
            weir_rt::sleep(Duration::from_millis(interval)).await;
            // One that was not settled is read once more.
            *seen = seen.filter(|_| settled);
            continue;
        }
        let read = path.to_owned();
        let text = weir_rt::blocking(move || std::fs::read(read)).await;
        let list = list(&text.map_err(|error| failed("open", &error))?);
        // What is wrong is read again when somebody has written it anew.
        *seen = Some((now, is_settled(&file)));
        return list;
    }
}

/// A file that was written just now may be written again within the same tick of the clock that stamps files.
fn is_settled(file: &Metadata) -> bool {
    let age = file.modified().ok().and_then(|time| time.elapsed().ok());
    // Times to come never get old enough.
    age.is_none_or(|age| age > TICKS)
}

fn identity(file: &Metadata) -> Identity {
    (file.ino(), file.mtime(), file.mtime_nsec(), file.len())
}

async fn url(
    etag: &mut Option<String>,
    asked: &mut bool,
    config: &Config,
) -> Result<Vec<ServerEntry>, String> {
    let Kind::Url(url) = &config.kind else { return Err("no URL".to_owned()) };
    let token =
        config.token.as_ref().map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    loop {
        if std::mem::replace(asked, true) {
            weir_rt::sleep(Duration::from_millis(config.interval)).await;
        }
        let condition = etag.as_ref().map_or(String::new(), |etag| format!("If-None-Match: {etag}\r\n"));
        let path = if url.path.is_empty() { "/" } else { &url.path };
        let answer = url.ask(path, &format!("{token}{condition}"), None, config.timeout).await?;
        if answer.status == 304 && etag.is_some() {
            continue;
        }
        let tag = answer.field("etag").map(str::to_owned);
        let list = list(&answer.body().await?)?;
        *etag = tag;
        return Ok(list);
    }
}

/// Longer than the clock that stamps files stands still.
const TICKS: Duration = Duration::from_millis(50);

/// The list that a text is.
pub(super) fn list(text: &[u8]) -> Result<Vec<ServerEntry>, String> {
    let value = Value::parse(text).map_err(|error| error.to_string())?;
    server_list::read(&value)
}
