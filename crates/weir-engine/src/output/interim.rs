//! 103 (Early Hints, RFC 8297): fields of the response to come, for a client that waits for it.

use weir_http::{KnownField, Version};

use crate::exchange::Exchange;

impl Exchange {
    /// Whether its client may be sent hints: it speaks HTTP/1.1 or newer, the response's head has not left, and it is a request
    /// of the client's own.
    pub fn takes_hints(&self) -> bool {
        !self.is_subrequest() && !self.response.header_sent && self.request.head.version >= Version::V11
    }

    /// What the location's `early_hints` says of this request: `None` where there is no such directive, else whether one of its
    /// values is neither empty nor `0`.
    pub fn wants_hints(&mut self) -> Option<bool> {
        let plan = self.plan.clone();
        let scripts = &plan.core.early_hints;
        let wanted = scripts.iter().any(|script| {
            let value = script.value(self);
            !matches!(self.text(&value), b"" | b"0")
        });
        (!scripts.is_empty()).then_some(wanted)
    }

    /// Sends `fields` in a response 103 at once; none if there are none. What is about the connection or about content no interim
    /// response has (RFC 9110 sections 7.6.1 and 8.6), so the caller leaves it out ([`is_framing`]).
    pub fn send_hints<'f>(&self, fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone) {
        if fields.clone().next().is_none() {
            return;
        }
        if let Some(stream) = self.transport.stream() {
            return stream.interim(103, fields);
        }
        let Some(wire) = self.transport.h1() else { return };
        wire.compose(|out| {
            out.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\n");
            fields.for_each(|(name, value)| weir_http::h1::field(out, name, value));
            out.extend_from_slice(b"\r\n");
        });
        wire.flush();
        wire.stream.flush();
    }
}

/// Whether a field is about the connection or about content: in an interim response it would say something untrue.
pub fn is_framing(known: KnownField) -> bool {
    known.is_hop_by_hop() || known == KnownField::ContentLength
}
