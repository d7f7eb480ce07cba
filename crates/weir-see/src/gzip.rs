//! gzip (RFC 1952) in one piece.

use zlib_rs::{DeflateConfig, InflateConfig, ReturnCode, compress_bound, compress_slice, decompress_slice};

/// `data` as a gzip file. `None`: the library refused, which it has no reason to.
pub(crate) fn file(data: &[u8]) -> Option<Vec<u8>> {
    let config = DeflateConfig { window_bits: WINDOW + GZIP, ..DeflateConfig::new(LEVEL) };
    let mut out = vec![0; compress_bound(data.len()) + FRAME];
    let (written, code) = compress_slice(&mut out, data, config);
    let len = written.len();
    out.truncate(len);
    (code == ReturnCode::Ok).then_some(out)
}

/// What is in a gzip file that [`file`] has made of `length` bytes. `None`: it is another.
pub(crate) fn content(file: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; length];
    let (content, code) = decompress_slice(&mut out, file, InflateConfig { window_bits: WINDOW + GZIP });
    let whole = content.len() == length;
    (code == ReturnCode::Ok && whole).then_some(out)
}

const LEVEL: i32 = 6;
const WINDOW: i32 = 15;
/// Added to the window's bits, it asks for a gzip header and trailer.
const GZIP: i32 = 16;
/// The bytes of a gzip header and trailer above those of zlib.
const FRAME: usize = 12;
