//! `/certificates/NAME`: the certificates of servers, and their replacement.

use std::sync::Arc;

use weir_http::json::JsonWriter;
use weir_server::tls::replace::{self, ReplaceRefusal};

use crate::source::ServerSource;

/// Those of the servers with `name`; `None`: there is no such server with certificates.
pub(crate) fn of(source: &ServerSource, name: &str) -> Option<String> {
    let shown = replace::shown(&source.configuration(), name)?;
    let describe = |json: &mut JsonWriter, it: &replace::ShownExpiry| {
        json.nested(|json| {
            json.key("file").text(&it.file);
            for (key, value) in it.facts() {
                json.key(key).text(&value);
            }
            json.key("replaced").raw(it.replaced);
        });
    };
    Some(JsonWriter::array(|json| shown.iter().for_each(|it| describe(json, it))) + "\n")
}

/// Replaces one, under the configuration in force. A reload that came just before has it, too.
///
/// # Errors
/// Why not; nothing has changed.
pub(crate) fn replace(
    source: &ServerSource,
    name: &str,
    chain: &str,
    key: &str,
) -> Result<(), ReplaceRefusal> {
    loop {
        let configuration = source.configuration();
        replace::replace(&configuration, name, chain, key)?;
        if Arc::ptr_eq(&configuration, &source.configuration()) {
            return Ok(());
        }
    }
}
