//! Frames of HTTP/2 (RFC 9113 section 4 and 6).

/// What a client sends first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The kinds of frames.
pub mod kind {
    /// Content.
    pub const DATA: u8 = 0;
    /// A header block, or its beginning.
    pub const HEADERS: u8 = 1;
    /// A deprecated priority.
    pub const PRIORITY: u8 = 2;
    /// The end of a stream.
    pub const RST_STREAM: u8 = 3;
    /// Settings, or their acknowledgement.
    pub const SETTINGS: u8 = 4;
    /// A promise, which these clients do not allow.
    pub const PUSH_PROMISE: u8 = 5;
    /// A sign of life.
    pub const PING: u8 = 6;
    /// The connection's end.
    pub const GOAWAY: u8 = 7;
    /// More room.
    pub const WINDOW_UPDATE: u8 = 8;
    /// The rest of a header block.
    pub const CONTINUATION: u8 = 9;
}

/// END_STREAM of DATA and HEADERS, ACK of SETTINGS and PING.
pub const END_STREAM: u8 = 1;
/// ACK of SETTINGS and PING.
pub const ACK: u8 = 1;
/// END_HEADERS of HEADERS and CONTINUATION.
pub const END_HEADERS: u8 = 4;
/// PADDED of DATA and HEADERS.
pub const PADDED: u8 = 8;
/// PRIORITY of HEADERS.
pub const PRIORITY: u8 = 32;

/// Error codes (RFC 9113 section 7).
pub mod code {
    /// Nothing is wrong.
    pub const NO_ERROR: u32 = 0;
    /// What was sent is against the protocol.
    pub const PROTOCOL_ERROR: u32 = 1;
    /// The sender has failed.
    pub const INTERNAL_ERROR: u32 = 2;
    /// Nothing of the stream was done.
    pub const REFUSED_STREAM: u32 = 7;
    /// The stream is not wanted any more.
    pub const CANCEL: u32 = 8;
    /// Too much that costs the sender nothing.
    pub const ENHANCE_YOUR_CALM: u32 = 11;
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// One of [`kind`], or another.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// The stream; 0: the connection.
    pub stream: u32,
    /// What it carries.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Whether it has all of these flags.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// The number in the payload's four bytes at `at`; 0 where they are missing.
    pub fn number(&self, at: usize) -> u32 {
        let bytes = self.payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_be_bytes)
    }
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// The bytes of a SETTINGS frame.
pub fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in values {
        payload.extend(name.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    frame(kind::SETTINGS, 0, 0, &payload)
}

/// The bytes of a frame whose payload is a number: WINDOW_UPDATE, RST_STREAM.
pub fn of_number(kind: u8, stream: u32, number: u32) -> Vec<u8> {
    frame(kind, 0, stream, &number.to_be_bytes())
}

/// Cuts frames out of what comes.
#[derive(Clone, Debug, Default)]
pub struct FrameReader {
    bytes: Vec<u8>,
}

impl FrameReader {
    /// More bytes have come.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame.
    pub fn next_frame(&mut self) -> Option<Frame> {
        let head: [u8; 9] = self.bytes.get(..9)?.try_into().ok()?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let payload = self.bytes.get(9..9 + length)?.to_vec();
        self.bytes.drain(..9 + length);
        Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written_at_every_cut() {
        let bytes = [frame(kind::PING, ACK, 0, b"12345678"), frame(kind::DATA, PADDED, 5, b"")].concat();
        for cut in 0..=bytes.len() {
            let mut reader = FrameReader::default();
            let mut frames = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                reader.add(part);
                frames.extend(std::iter::from_fn(|| reader.next_frame()));
            }
            let [ping, data] = &frames[..] else { panic!("{frames:?}") };
            assert!(ping.has(ACK) && ping.number(0) == 0x3132_3334 && data.stream == 5, "{frames:?}");
        }
    }
}
