//! Writing: the records of a request and of a response.

use super::{FastcgiConnection, RecordKind};

/// Appends the record that begins a request for a responder.
pub fn begin(out: &mut Vec<u8>, connection: FastcgiConnection) {
    head(out, RecordKind::Begin, 8, 0);
    out.extend_from_slice(&[0, 1, u8::from(connection == FastcgiConnection::Kept), 0, 0, 0, 0, 0]);
}

/// Appends a record with `content`, padded to a multiple of eight bytes; of more than 65,535 bytes several.
pub fn record(out: &mut Vec<u8>, kind: RecordKind, content: &[u8]) {
    for piece in content.chunks(LONGEST) {
        let padding = piece.len().wrapping_neg() % 8;
        head(out, kind, piece.len() as u16, padding as u8);
        out.extend_from_slice(piece);
        out.resize(out.len() + padding, 0);
    }
}

/// Appends the head of a record whose content of `len` bytes follows by other ways, without padding; 0 ends a stream.
pub fn record_head(out: &mut Vec<u8>, kind: RecordKind, len: u16) {
    head(out, kind, len, 0);
}

/// Appends the record that ends a response (`FCGI_REQUEST_COMPLETE`), with the application's status.
pub fn finish(out: &mut Vec<u8>, status: u32) {
    head(out, RecordKind::End, 8, 0);
    out.extend_from_slice(&status.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
}

/// Appends a name-value pair (section 3.4). Neither may be longer than 2,147,483,647 bytes.
pub fn pair(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    length(out, name.len());
    length(out, value.len());
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

fn length(out: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(short @ 0..=127) => out.push(short),
        _ => out.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes()),
    }
}

fn head(out: &mut Vec<u8>, kind: RecordKind, length: u16, padding: u8) {
    let [high, low] = length.to_be_bytes();
    out.extend_from_slice(&[1, kind as u8, 0, 1, high, low, padding, 0]);
}

/// A multiple of eight, so that only the last of several records is padded.
const LONGEST: usize = 65_528;
