//! The media type of a response, from the extension of its URI (nginx's `ngx_http_set_content_type`).

use super::Exchange;
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
        let known = if exten.is_empty() { None } else { core.types.find(exten) };
        self.response.content_type = match known {
            // A few bytes in the arena are cheaper than a counted constant for each type and worker.
            Some(kind) => Some(Text::Span(self.arena.push(kind))),
            None if core.default_type.is_empty() => None,
            None => Some(Text::Shared(core.default_type.clone())),
        };
    }
}
