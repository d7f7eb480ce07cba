//! The media type of a response, from the extension of its URI (nginx's `ngx_http_set_content_type`).

use std::sync::Arc;

use weir_http::mime::MediaTypeTable;

use super::Exchange;
use crate::recent::RecentFacts;
use crate::text::Text;

impl Exchange {
    /// Sets the response's `Content-Type`, unless it has one: what `types` says of the URI's extension, else
    /// `default_type`; none at all when that is empty.
    pub fn set_content_type(&mut self) {
        if self.response.content_type.is_some() {
            return;
        }
        let core = &self.plan.core;
        let exten = self.arena.get(self.request.exten);
        let known = if exten.is_empty() {
            None
        } else {
            self.server.caches.kinds.borrow_mut().find(&core.types, exten)
        };
        self.response.content_type = match known {
            Some(kind) => Some(kind),
            None if core.default_type.is_empty() => None,
            None => Some(Text::Shared(core.default_type.clone())),
        };
    }
}

/// What tables of types said of extensions. Also makes of the tables' texts, which all workers share, such of this
/// worker, which are handed on uncopied.
#[derive(Default)]
pub(crate) struct MediaTypeCache(RecentFacts<MediaType>);

struct MediaType {
    /// Held, so that no other table gets its address.
    types: Arc<MediaTypeTable>,
    kind: Option<Text>,
}

impl MediaTypeCache {
    /// As [`MediaTypeTable::find`].
    #[inline]
    fn find(&mut self, types: &Arc<MediaTypeTable>, exten: &[u8]) -> Option<Text> {
        match self.0.find(exten) {
            Some(known) if Arc::ptr_eq(&known.types, types) => known.kind.clone(),
            _ => self.look_up(types, exten),
        }
    }

    #[cold]
    fn look_up(&mut self, types: &Arc<MediaTypeTable>, exten: &[u8]) -> Option<Text> {
        let kind = types.find(exten).map(Text::shared);
        self.0.keep(exten, MediaType { types: types.clone(), kind: kind.clone() });
        kind
    }

    /// Forgets all: the tables end with their configuration.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_what_the_table_says() {
        let tables = [Arc::new(MediaTypeTable::builtin()), Arc::new(MediaTypeTable::common())];
        let mut kinds = MediaTypeCache::default();
        for _ in 0..2 {
            for (types, exten) in
                tables.iter().flat_map(|t| ["html", "htmk", "js", "HTML", "none"].map(|e| (t, e)))
            {
                let kind = kinds.find(types, exten.as_bytes());
                let arena = crate::text::Arena::default();
                let said = kind.as_ref().map(|kind| kind.bytes(&arena));
                assert_eq!(said, types.find(exten.as_bytes()), "{exten}");
            }
        }
    }
}
