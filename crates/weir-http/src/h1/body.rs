//! Chunked framing (RFC 9112 section 7.1), read in place and resumable at every byte.

use std::ops::Range;

use super::encode::{field, hexadecimal};
use super::fields::{HeadCursor, HeadStop, section};
use super::{BadRequest, HeadLimits};
use crate::header::{Field, Span, is_token_byte};

/// Which side sent the chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChunkStrictness {
    /// A client: exactly the grammar, CRLF at every line end, no whitespace around the size.
    #[default]
    Client,
    /// An upstream, trusted not to smuggle: LF alone ends a line, whitespace may follow the size.
    Upstream,
}

/// Bounds on what a trailer section may hold; 4 KB and 64 lines by default, and what is beyond them is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrailerLimits {
    /// Most bytes, line ends included.
    pub bytes: usize,
    /// Maximum number of field lines.
    pub fields: usize,
    /// What becomes of a section that is above these limits, or is not well formed.
    pub misfit: TrailerMisfit,
}

/// What becomes of a trailer section that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrailerMisfit {
    /// The body is refused with it.
    #[default]
    Refused,
    /// The section is skipped to its empty line, without being stored, and counts as empty: for those who only need to
    /// know where the body ends.
    Skipped,
}

impl Default for TrailerLimits {
    fn default() -> TrailerLimits {
        TrailerLimits { bytes: 4096, fields: 64, misfit: TrailerMisfit::Refused }
    }
}

impl TrailerLimits {
    /// The default limits, for those to whom a trailer section is of no use.
    pub const SKIPPED: TrailerLimits =
        TrailerLimits { bytes: 4096, fields: 64, misfit: TrailerMisfit::Skipped };
}

/// Why a chunked body is refused: 400 to a client, 502 for an upstream; the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadChunk {
    /// The size has no digit, or a byte that is not a digit.
    InvalidSize,
    /// A size above 2^63-1 or of more than 16 digits.
    SizeTooLarge,
    /// A control byte in a chunk extension.
    InvalidExtension,
    /// More than 16 KB of extensions in one body.
    ExtensionsTooLong,
    /// A line that does not end in CRLF, or data longer than its chunk.
    InvalidLineEnd,
    /// The trailer section is above its limits.
    TrailersTooLarge,
    /// A trailer field is not well formed.
    InvalidTrailer(BadRequest),
}

impl BadChunk {
    /// nginx's message for the error log.
    pub const fn message(self) -> &'static str {
        "client sent invalid chunked body"
    }
}

/// What one call of [`ChunkedDecoder::decode`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedChunk {
    /// Bytes of the input that are done with, framing and data.
    pub consumed: usize,
    /// Where the data that were found are in the input, as a range of bytes; an empty range when none were.
    pub data: Range<usize>,
    /// True when the body is over, trailers included; the next request begins after `consumed`.
    pub done: bool,
}

/// The fields of a trailer section, with the bytes they refer to.
#[derive(Clone, Debug, Default)]
pub struct TrailerFields {
    bytes: Vec<u8>,
    fields: Vec<Field>,
    /// From the start of a line to its wrong byte.
    offending: Span,
}

impl TrailerFields {
    /// The fields that may be merged into a head: those RFC 9110 section 6.5.1 forbids are left out, and those whose
    /// names have bytes that no name may have.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The buffer of the fields' spans.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// nginx's message for a section that is not well formed, with the line as far as it was read.
    pub fn log_message(&self) -> Vec<u8> {
        let mut out = b"upstream sent invalid trailer".to_vec();
        super::log::quote_line(&mut out, &self.bytes, self.offending);
        out
    }
}

/// Takes the framing off a chunked body.
///
/// ```text
///  Size ──CR──► SizeLf ──LF──► Data ──size bytes──► DataCr ──CR──► DataLf ──LF──► Size
///   │ ;           ▲              │ (size 0)
///   ▼             │              ▼
///  Extension ─CR──┘        TrailerStart ──CR──► EndLf ──LF──► Done
///                            ▲     │ other
///                       LF   │     ▼
///                    TrailerLf ◄─CR─ Trailer
/// ```
#[derive(Clone, Debug, Default)]
pub struct ChunkedDecoder {
    state: ChunkState,
    /// The size being read, then the bytes of the chunk still to come.
    size: u64,
    /// Digits of the size read so far.
    digits: u8,
    /// Bytes of extensions in this body.
    extensions: u32,
    strictness: ChunkStrictness,
    limits: TrailerLimits,
    trailers: TrailerFields,
    /// The trailer section is a [`TrailerMisfit::Skipped`] one: no more of it is stored.
    skipping: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    #[default]
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    Trailer,
    TrailerLf,
    EndLf,
    Done,
}

/// Bytes of chunk extensions one body may have in all: many short chunks with long extensions would otherwise cost
/// far more to read than they carry.
const EXTENSIONS: u32 = 16 * 1024;

impl ChunkedDecoder {
    /// A decoder at the start of a body.
    pub fn new(strictness: ChunkStrictness, limits: TrailerLimits) -> ChunkedDecoder {
        ChunkedDecoder { strictness, limits, ..ChunkedDecoder::default() }
    }

    /// Reads `input` up to the end of the next run of data, or the end of the body or input. Call again with the
    /// bytes after `consumed` until none are left or `done` is set; after that nothing more is consumed.
    ///
    /// # Errors
    /// [`BadChunk`] at the first byte that cannot belong to the framing; the decoder is of no use afterwards.
    pub fn decode(&mut self, input: &[u8]) -> Result<DecodedChunk, BadChunk> {
        let mut at = 0;
        while self.state != ChunkState::Done {
            let Some(&byte) = input.get(at) else { break };
            if self.state == ChunkState::Data {
                let here = (input.len() - at).min(usize::try_from(self.size).unwrap_or(usize::MAX));
                self.size -= here as u64;
                if self.size == 0 {
                    self.state = ChunkState::DataCr;
                }
                return Ok(DecodedChunk { consumed: at + here, data: at..at + here, done: false });
            }
            self.state = self.framing(byte)?;
            at += 1;
        }
        Ok(DecodedChunk { consumed: at, data: at..at, done: self.state == ChunkState::Done })
    }

    /// True when the whole body was read.
    pub fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// The fewest bytes the peer must still send: how far a read may go without waiting in vain.
    pub fn at_least(&self) -> u64 {
        /// `0 CRLF CRLF`, the shortest end of a body.
        const END: u64 = 5;
        match self.state {
            ChunkState::Size if self.digits == 0 => END,
            ChunkState::Size | ChunkState::Extension if self.size == 0 => 4,
            ChunkState::Size | ChunkState::Extension => self.size.saturating_add(4 + END),
            ChunkState::SizeLf if self.size == 0 => 3,
            ChunkState::SizeLf => self.size.saturating_add(3 + END),
            ChunkState::Data => self.size.saturating_add(2 + END),
            ChunkState::DataCr => 2 + END,
            ChunkState::DataLf => 1 + END,
            ChunkState::TrailerStart => 2,
            ChunkState::Trailer => 4,
            ChunkState::TrailerLf => 3,
            ChunkState::EndLf => 1,
            ChunkState::Done => 0,
        }
    }

    /// The trailer section; complete once the body is done.
    pub fn trailers(&self) -> &TrailerFields {
        &self.trailers
    }

    /// Where `byte` of the framing leads. A CR is always followed by its LF; `Upstream` may leave the CR out.
    fn framing(&mut self, byte: u8) -> Result<ChunkState, BadChunk> {
        let bare_lf = self.strictness == ChunkStrictness::Upstream && byte == b'\n';
        match (self.state, byte) {
            (ChunkState::Size, b'\r') if self.digits > 0 => Ok(ChunkState::SizeLf),
            (ChunkState::Size, b';') if self.digits > 0 => self.extension(byte),
            (ChunkState::Size, b' ' | b'\t' | b'\n')
                if self.strictness == ChunkStrictness::Upstream && self.digits > 0 =>
            {
                if bare_lf {
                    Ok(self.size_read())
                } else {
                    self.extension(byte)
                }
            }
            (ChunkState::Size, _) => self.digit(byte),
            (ChunkState::Extension, b'\r') => Ok(ChunkState::SizeLf),
            (ChunkState::Extension, _) if bare_lf => Ok(self.size_read()),
            (ChunkState::Extension, _) => self.extension(byte),
            (ChunkState::SizeLf, b'\n') => Ok(self.size_read()),
            (ChunkState::DataCr, b'\r') => Ok(ChunkState::DataLf),
            (ChunkState::DataCr, _) if bare_lf => Ok(ChunkState::Size),
            (ChunkState::DataLf, b'\n') => Ok(ChunkState::Size),
            (
                ChunkState::TrailerStart | ChunkState::Trailer | ChunkState::TrailerLf | ChunkState::EndLf,
                _,
            ) => self.trailer(byte),
            _ => Err(BadChunk::InvalidLineEnd),
        }
    }

    /// One hexadecimal digit of the size; at most 16 of them, so that the shift never loses bits.
    fn digit(&mut self, byte: u8) -> Result<ChunkState, BadChunk> {
        let digit = char::from(byte).to_digit(16).ok_or(BadChunk::InvalidSize)?;
        if self.digits == 16 {
            return Err(BadChunk::SizeTooLarge);
        }
        self.digits += 1;
        self.size = self.size << 4 | u64::from(digit);
        if self.size > i64::MAX as u64 { Err(BadChunk::SizeTooLarge) } else { Ok(ChunkState::Size) }
    }

    fn extension(&mut self, byte: u8) -> Result<ChunkState, BadChunk> {
        if matches!(byte, 0..0x20 | 0x7f) && byte != b'\t' {
            return Err(BadChunk::InvalidExtension);
        }
        self.extensions += 1;
        if self.extensions > EXTENSIONS {
            Err(BadChunk::ExtensionsTooLong)
        } else {
            Ok(ChunkState::Extension)
        }
    }

    /// The line of a size is over.
    fn size_read(&mut self) -> ChunkState {
        self.digits = 0;
        if self.size == 0 { ChunkState::TrailerStart } else { ChunkState::Data }
    }

    /// Collects the trailer section, which may arrive in pieces, and reads it when its empty line ends.
    fn trailer(&mut self, byte: u8) -> Result<ChunkState, BadChunk> {
        self.store(byte)?;
        let upstream = self.strictness == ChunkStrictness::Upstream;
        match (self.state, byte) {
            (ChunkState::TrailerStart, b'\r') => Ok(ChunkState::EndLf),
            (ChunkState::Trailer, b'\r') => Ok(ChunkState::TrailerLf),
            (ChunkState::TrailerLf, b'\n') => Ok(ChunkState::TrailerStart),
            (ChunkState::Trailer, b'\n') if upstream => Ok(ChunkState::TrailerStart),
            (ChunkState::TrailerStart, b'\n') if upstream => self.trailers_read(),
            (ChunkState::EndLf, b'\n') => self.trailers_read(),
            (ChunkState::TrailerStart | ChunkState::Trailer, 0) => {
                let why = self.wrong_byte();
                self.misfit(why)
            }
            (ChunkState::TrailerStart | ChunkState::Trailer, _) if byte != b'\n' => Ok(ChunkState::Trailer),
            _ => Err(BadChunk::InvalidLineEnd),
        }
    }

    /// Keeps a byte of the section, unless that is skipped.
    fn store(&mut self, byte: u8) -> Result<(), BadChunk> {
        if self.skipping {
            return Ok(());
        }
        if self.trailers.bytes.len() >= self.limits.bytes {
            return self.misfit(BadChunk::TrailersTooLarge).map(drop);
        }
        self.trailers.bytes.push(byte);
        Ok(())
    }

    /// The last byte that was stored can't be there.
    fn wrong_byte(&mut self) -> BadChunk {
        let bytes = &self.trailers.bytes;
        let line = memchr::memrchr(b'\n', bytes).map_or(0, |end| end + 1);
        self.trailers.offending = Span::new(line, bytes.len().saturating_sub(1));
        BadChunk::InvalidTrailer(BadRequest::InvalidValue)
    }

    /// The section cannot be read, for this reason: the body is refused, or the section is skipped from here on.
    #[cold]
    fn misfit(&mut self, why: BadChunk) -> Result<ChunkState, BadChunk> {
        if self.limits.misfit == TrailerMisfit::Refused {
            return Err(why);
        }
        self.skipping = true;
        self.trailers = TrailerFields::default();
        Ok(ChunkState::Trailer)
    }

    fn trailers_read(&mut self) -> Result<ChunkState, BadChunk> {
        if self.skipping {
            return Ok(ChunkState::Done);
        }
        let TrailerFields { bytes, fields, offending } = &mut self.trailers;
        let limits = HeadLimits::new(bytes.len(), bytes.len(), self.limits.fields);
        let mut cursor = HeadCursor::new(bytes, 0);
        let read = section(&mut cursor, &limits, fields, |_, _, _| Ok(()));
        *offending = cursor.offending();
        let is_name =
            |field: &Field| field.valid || field.name.of(bytes).iter().all(|byte| is_token_byte(*byte));
        fields.retain(|field| is_name(field) && !field.known.forbidden_in_trailer());
        let why = match read {
            Ok(()) => return Ok(ChunkState::Done),
            Err(HeadStop::Bad(BadRequest::TooManyFields)) => BadChunk::TrailersTooLarge,
            Err(HeadStop::Bad(bad)) => BadChunk::InvalidTrailer(bad),
            Err(HeadStop::More) => BadChunk::InvalidLineEnd,
        };
        self.misfit(why).map(|_| ChunkState::Done)
    }
}

/// Appends the line that begins a chunk of `size` bytes; the data and a CRLF follow. A size of 0 would end the
/// body: use [`last_chunk`] for that.
pub fn chunk_head(out: &mut Vec<u8>, size: u64) {
    hexadecimal(out, size);
    out.extend_from_slice(b"\r\n");
}

/// Appends the last chunk and the trailer section, as names and values the caller vouches for.
pub fn last_chunk<'t>(out: &mut Vec<u8>, trailers: impl IntoIterator<Item = (&'t [u8], &'t [u8])>) {
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers {
        field(out, name, value);
    }
    out.extend_from_slice(b"\r\n");
}
