//! `*_store`: responses that become files of their own, where `root` or `alias` has them or at a path that is computed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use weir_http::KnownField;

use crate::cache::write::FileAside;
use crate::config::cache_directives::StoreTarget;
use crate::config::directives::UpstreamSettings;
use crate::protocol::IncomingHead;
use crate::response::cache_writer::{ResponseFile, WriterGoal};
use weir_engine::exchange::Exchange;

/// How the response becomes a file; `None`: it does not. As in nginx only a 200 does.
pub(crate) fn keep(
    x: &mut Exchange,
    settings: &UpstreamSettings,
    incoming: &IncomingHead,
) -> Option<ResponseFile> {
    let (store, mode) = settings.store.as_ref()?;
    if incoming.status != 200 {
        return None;
    }
    let path = match store {
        StoreTarget::Mapped => {
            let path = weir_engine::file::map_uri(x).ok()?;
            path.bytes(&x.arena).to_vec()
        }
        StoreTarget::At(script) => {
            let path = script.value(x);
            x.text(&path).to_vec()
        }
    };
    if path.is_empty() {
        return None;
    }
    let modified = incoming.fields.iter().find(|field| field.known == KnownField::LastModified);
    let modified = modified.and_then(|field| weir_http::date::parse(x.arena.get(field.value)));
    let path = PathBuf::from(OsStr::from_bytes(&path));
    let aside = FileAside::Folder((*settings.temp_path.path).clone(), settings.temp_path.levels);
    Some(ResponseFile {
        goal: WriterGoal::Store { path, mode: *mode, modified },
        aside,
        expected: incoming.content_length,
    })
}
