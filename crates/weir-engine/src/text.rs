//! Text of a request: spans into its arena, and values that are a span, a constant or shared.
//!
//! Everything that a request says about itself (its head, its normalised URI, computed variables) lies in one
//! growing byte vector, the [`Arena`], and is named by [`Span`]s of two `u32`s. A span stays valid when the arena
//! grows, needs no lifetime in any signature, costs one bounds check to read, and the whole arena is reused by
//! the next request without being freed. (Measured in the prototypes: the same speed as borrowed slices.)

use std::rc::Rc;

pub use weir_http::Span;

/// The text of one request: its head as received, then whatever was computed from it.
#[derive(Debug, Default)]
pub struct Arena {
    bytes: Vec<u8>,
}

impl Arena {
    /// Appends a copy of `text`, and returns its place.
    pub fn push(&mut self, text: &[u8]) -> Span {
        let start = self.mark();
        self.bytes.extend_from_slice(text);
        self.since(start)
    }

    /// Appends what `write` puts at the end of the vector and names it. `write` must only append.
    pub fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Span {
        let start = self.mark();
        write(&mut self.bytes);
        self.since(start)
    }

    /// The bytes that `span` names; empty when the span is not of this arena.
    #[inline]
    pub fn get(&self, span: Span) -> &[u8] {
        self.bytes.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// Copies what `span` names to the end, so that it can be changed in place by the caller.
    pub fn copy(&mut self, span: Span) -> Span {
        let start = self.mark();
        let range = span.start as usize..(span.end as usize).min(self.bytes.len());
        if range.start <= range.end {
            self.bytes.extend_from_within(range);
        }
        self.since(start)
    }

    /// Copies the bytes of `text`, which may lie in this arena, to the end.
    pub fn append(&mut self, text: &Text) -> Span {
        match text {
            Text::Span(span) => self.copy(*span),
            Text::Static(bytes) => self.push(bytes),
            Text::Shared(bytes) => self.push(bytes),
        }
    }

    /// The place of `text` in this arena, where it is copied to unless it is there.
    pub fn keep(&mut self, text: Text) -> Span {
        match text {
            Text::Span(span) => span,
            Text::Static(bytes) => self.push(bytes),
            Text::Shared(bytes) => self.push(&bytes),
        }
    }

    /// Takes over all text of `other`: its spans are this one's, too.
    pub(crate) fn copy_from(&mut self, other: &Arena) {
        self.bytes.clone_from(&other.bytes);
    }

    /// Names `part`, a slice borrowed from this arena; `None` for bytes that lie elsewhere.
    pub fn locate(&self, part: &[u8]) -> Option<Span> {
        let start = part.as_ptr().addr().checked_sub(self.bytes.as_ptr().addr())?;
        let end = start.checked_add(part.len())?;
        (end <= self.bytes.len()).then_some(Span { start: start as u32, end: end as u32 })
    }

    /// All of it.
    pub(crate) fn whole(&self) -> &[u8] {
        &self.bytes
    }

    /// Where the next byte will be written.
    #[inline]
    pub fn mark(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// The place of everything written since [`Arena::mark`] returned `mark`, a position in bytes.
    #[inline]
    pub fn since(&self, mark: u32) -> Span {
        Span { start: mark, end: self.bytes.len() as u32 }
    }

    /// The vector itself, for writers that compose a value piece by piece; they must only append.
    #[inline]
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Mutable access to what `span` names (case folding and the like).
    pub fn get_mut(&mut self, span: Span) -> &mut [u8] {
        self.bytes.get_mut(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// Forgets everything; the memory stays for the next request unless it grew past [`ARENA_KEPT`].
    pub fn reset(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > ARENA_KEPT {
            self.bytes.shrink_to(ARENA_FIRST);
        }
    }
}

/// A value: part of the arena, a constant of the program, or a constant of the configuration.
///
/// `Shared` is made when a plan is installed on a worker; cloning it is a plain increment, never an atomic one.
#[derive(Clone, Debug)]
pub enum Text {
    /// Bytes of the request's [`Arena`].
    Span(Span),
    /// Bytes of the program.
    Static(&'static [u8]),
    /// Bytes of the worker's plan.
    Shared(Rc<[u8]>),
}

impl Text {
    /// The empty text.
    pub const EMPTY: Text = Text::Static(b"");

    /// The bytes, given the arena of the request the text belongs to.
    #[inline]
    pub fn bytes<'a>(&'a self, arena: &'a Arena) -> &'a [u8] {
        match self {
            Text::Span(span) => arena.get(*span),
            Text::Static(bytes) => bytes,
            Text::Shared(bytes) => bytes,
        }
    }

    /// A copy of `bytes` that clones share, for a constant of the configuration.
    pub fn shared(bytes: &[u8]) -> Text {
        Text::Shared(Rc::from(bytes))
    }
}

impl From<Span> for Text {
    fn from(span: Span) -> Text {
        Text::Span(span)
    }
}

impl From<&'static str> for Text {
    fn from(text: &'static str) -> Text {
        Text::Static(text.as_bytes())
    }
}

/// An arena above this size is given back after its request: one huge head must not pin memory for ever.
const ARENA_KEPT: usize = 64 * 1024;
/// What a trimmed arena keeps.
const ARENA_FIRST: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_survive_growth_and_reset_keeps_memory() {
        let mut arena = Arena::default();
        let first = arena.push(b"GET / HTTP/1.1");
        let copy = arena.copy(first);
        arena.push(&[b'x'; 10_000]);
        assert_eq!(arena.get(first), b"GET / HTTP/1.1");
        assert_eq!(arena.get(copy), b"GET / HTTP/1.1");
        arena.reset();
        assert_eq!(arena.get(first), b"");
        assert!(arena.buffer().capacity() >= 10_000);
    }

    #[test]
    fn slices_of_the_arena_are_named_and_others_are_not() {
        let mut arena = Arena::default();
        let all = arena.push(b"a=1; b=2");
        let part = arena.get(all).split_at(5).1;
        assert_eq!(arena.locate(part), Some(Span { start: 5, end: 8 }));
        assert_eq!(arena.locate(b"elsewhere"), None);
        for text in [Text::Span(all), Text::Static(b"a=1; b=2"), Text::shared(b"a=1; b=2")] {
            let copy = arena.append(&text);
            assert_eq!(arena.get(copy), b"a=1; b=2");
        }
    }

    #[test]
    fn a_span_of_another_arena_is_empty_not_a_panic() {
        let arena = Arena::default();
        assert_eq!(arena.get(Span { start: 5, end: 9 }), b"");
    }
}
