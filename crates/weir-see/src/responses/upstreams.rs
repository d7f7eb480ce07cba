//! `/upstreams`: upstreams, what is known of each peer, and changes of them.

use std::sync::Arc;

use weir_engine::Configuration;
use weir_http::json::{JsonValue, JsonWriter};
use weir_upstream::block::list_changes::ListRefusal;
use weir_upstream::block::upstream::UpstreamOrigin;
use weir_upstream::{Upstream, Upstreams};

use crate::source::ServerSource;

/// All `upstream` blocks.
pub(crate) fn all(source: &ServerSource) -> String {
    let configuration = source.configuration();
    let upstreams = upstreams(&configuration).filter(|upstream| upstream.origin == UpstreamOrigin::Block);
    JsonWriter::array(|json| upstreams.for_each(|upstream| upstream.describe(json))) + "\n"
}

/// One of them; `None`: there is no upstream of this name.
pub(crate) fn one(source: &ServerSource, name: &str) -> Option<String> {
    let mut json = JsonWriter::default();
    let upstream = find(source, name)?;
    upstream.describe(&mut json);
    Some(String::from(json) + "\n")
}

/// A change of one upstream.
pub(crate) enum UpstreamChange {
    Add(JsonValue),
    Remove(String),
    Edit(String, JsonValue),
    Replace(JsonValue),
}

/// Makes a change, and returns what the upstream is then; `None`: there is no such upstream. Workers know of it when
/// this returns: their next choice is among the new members.
pub(crate) fn change(
    source: &ServerSource,
    name: &str,
    change: &UpstreamChange,
) -> Option<Result<String, ListRefusal>> {
    let upstream = find(source, name)?;
    if let Err(refusal) = apply(&upstream, change) {
        return Some(Err(refusal));
    }
    // A reload may have taken the list over just before. Then the change is made again where it counts; there it may
    // have been taken over, too.
    let after = find(source, name)?;
    if !Arc::ptr_eq(&after, &upstream) {
        match apply(&after, change) {
            Ok(()) | Err(ListRefusal::There | ListRefusal::Unknown) => {}
            Err(refusal) => return Some(Err(refusal)),
        }
    }
    one(source, name).map(Ok)
}

fn apply(upstream: &Arc<Upstream>, change: &UpstreamChange) -> Result<(), ListRefusal> {
    match change {
        UpstreamChange::Add(server) => upstream.add(server),
        UpstreamChange::Remove(server) => upstream.remove(server),
        UpstreamChange::Edit(server, settings) => upstream.edit(server, settings),
        UpstreamChange::Replace(list) => upstream.replace(list),
    }
}

pub(super) fn upstreams(configuration: &Configuration) -> impl Iterator<Item = &Arc<Upstream>> {
    Upstreams::all_of(configuration)
}

fn find(source: &ServerSource, name: &str) -> Option<Arc<Upstream>> {
    let configuration = source.configuration();
    configuration.sections().find_map(|section| section.shared::<Upstreams>()?.find(name).cloned())
}
