//! Readers: each gives the next list whenever its source has one.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_http::json::JsonValue;

use super::consul::ConsulSource;
use super::etcd::EtcdSource;
use super::{SourceConfig, SourceKind};
use crate::discovery::server_list;
use crate::discovery::server_list::ServerEntry;

/// The state of following one source.
pub(crate) enum SourceReader {
    /// What the file was when it was read, and whether its next change would show.
    File(PathBuf, Option<(FileIdentity, bool)>),
    /// The `ETag` of the last list, and whether it was asked for before.
    Url(Option<String>, bool),
    Etcd(Box<EtcdSource>),
    Consul(ConsulSource),
}

/// What changes when a file is written or replaced.
type FileIdentity = (u64, i64, i64, u64);

impl SourceReader {
    pub(crate) fn new(config: &SourceConfig) -> SourceReader {
        match &config.kind {
            SourceKind::File(path) => SourceReader::File(path.clone(), None),
            SourceKind::Url(_) => SourceReader::Url(None, false),
            SourceKind::Etcd { .. } => SourceReader::Etcd(Box::default()),
            SourceKind::Consul { .. } => SourceReader::Consul(ConsulSource::default()),
        }
    }

    /// Waits for the next list.
    ///
    /// # Errors
    /// Why it failed; the next attempt begins again.
    pub(crate) async fn next(&mut self, config: &SourceConfig) -> Result<Vec<ServerEntry>, String> {
        match self {
            SourceReader::File(path, seen) => file(path, seen, config.interval).await,
            SourceReader::Url(etag, asked) => url(etag, asked, config).await,
            SourceReader::Etcd(etcd) => etcd.next(config).await,
            SourceReader::Consul(consul) => consul.next(config).await,
        }
    }
}

async fn file(
    path: &Path,
    seen: &mut Option<(FileIdentity, bool)>,
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
        // A file that is wrong is read again when it was written again.
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

fn identity(file: &Metadata) -> FileIdentity {
    (file.ino(), file.mtime(), file.mtime_nsec(), file.len())
}

async fn url(
    etag: &mut Option<String>,
    asked: &mut bool,
    config: &SourceConfig,
) -> Result<Vec<ServerEntry>, String> {
    let SourceKind::Url(url) = &config.kind else { return Err("no URL".to_owned()) };
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

/// Longer than the clock that stamps files is still.
const TICKS: Duration = Duration::from_millis(50);

/// The list that a text is.
pub(super) fn list(text: &[u8]) -> Result<Vec<ServerEntry>, String> {
    let value = JsonValue::parse(text).map_err(|error| error.to_string())?;
    server_list::read(&value)
}
