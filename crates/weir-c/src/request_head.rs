//! A copy of a request's head, which any thread may read for as long as it has the request.

use std::ops::Range;

use weir_engine::Exchange;
use weir_engine::text::{Arena, Span};
use weir_http::Version;

/// The head of a request. It never changes.
pub(crate) struct HeadCopy {
    bytes: Vec<u8>,
    method: Range<usize>,
    target: Range<usize>,
    path: Range<usize>,
    query: Range<usize>,
    host: Range<usize>,
    version: Range<usize>,
    peer: Range<usize>,
    /// Names and values.
    fields: Vec<(Range<usize>, Range<usize>)>,
}

impl HeadCopy {
    pub(crate) fn of(x: &Exchange) -> HeadCopy {
        let (arena, request) = (&x.arena, &x.request);
        let mut bytes = Vec::with_capacity(request.head.len + 128);
        let mut copy = |span: Span| add(&mut bytes, arena, span);
        let method = copy(request.head.method_span);
        let target = copy(request.unparsed_uri);
        let path = copy(request.uri);
        let query = copy(request.args);
        let host = copy(request.host);
        let fields = request.head.fields.iter().map(|field| (copy(field.name), copy(field.value))).collect();
        let version = append(&mut bytes, version(request.head.version).as_bytes());
        let peer = append(&mut bytes, x.client().to_string().as_bytes());
        HeadCopy { bytes, method, target, path, query, host, version, peer, fields }
    }

    /// As sent.
    pub(crate) fn method(&self) -> &[u8] {
        &self.bytes[self.method.clone()]
    }

    /// As sent, with the query.
    pub(crate) fn target(&self) -> &[u8] {
        &self.bytes[self.target.clone()]
    }

    /// Normalised: percent signs decoded, `..` and double slashes resolved.
    pub(crate) fn path(&self) -> &[u8] {
        &self.bytes[self.path.clone()]
    }

    /// What follows the question mark, as sent.
    pub(crate) fn query(&self) -> &[u8] {
        &self.bytes[self.query.clone()]
    }

    /// In lower case, without port.
    pub(crate) fn host(&self) -> &[u8] {
        &self.bytes[self.host.clone()]
    }

    /// `HTTP/1.1`.
    pub(crate) fn version(&self) -> &[u8] {
        &self.bytes[self.version.clone()]
    }

    /// The client's address, with its port.
    pub(crate) fn peer(&self) -> &[u8] {
        &self.bytes[self.peer.clone()]
    }

    pub(crate) fn field_count(&self) -> usize {
        self.fields.len()
    }

    /// Name and value.
    pub(crate) fn field_at(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let (name, value) = self.fields.get(index)?;
        Some((&self.bytes[name.clone()], &self.bytes[value.clone()]))
    }

    /// The value of the first field of that name, in any case of letters.
    pub(crate) fn field(&self, name: &[u8]) -> Option<&[u8]> {
        let all = self.fields.iter().map(|(name, value)| (&self.bytes[name.clone()], value));
        all.filter(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| &self.bytes[value.clone()])
            .next()
    }
}

fn add(bytes: &mut Vec<u8>, arena: &Arena, span: Span) -> Range<usize> {
    append(bytes, arena.get(span))
}

fn append(bytes: &mut Vec<u8>, more: &[u8]) -> Range<usize> {
    let start = bytes.len();
    bytes.extend_from_slice(more);
    start..bytes.len()
}

fn version(version: Version) -> &'static str {
    match version {
        Version::V09 => "HTTP/0.9",
        Version::V10 => "HTTP/1.0",
        Version::V11 => "HTTP/1.1",
        Version::V20 => "HTTP/2.0",
        Version::V30 => "HTTP/3.0",
    }
}
