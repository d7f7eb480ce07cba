//! `gzip` of `access_log`: each batch becomes one member of a gzip file (RFC 1952), which any reader concatenates.

use zlib_rs::{DeflateConfig, ReturnCode, compress_bound, compress_slice};

/// `batch` as a gzip member of `level` 1 to 9. `None`: the library refused, which it has no reason to.
pub(super) fn member(batch: &[u8], level: u8) -> Option<Vec<u8>> {
    let (window, memory) = sizes(batch.len());
    let config = DeflateConfig {
        window_bits: window + GZIP,
        mem_level: memory,
        ..DeflateConfig::new(i32::from(level))
    };
    let mut out = vec![0; compress_bound(batch.len()) + FRAME];
    let (written, code) = compress_slice(&mut out, batch, config);
    let len = written.len();
    out.truncate(len);
    (code == ReturnCode::Ok).then_some(out)
}

/// nginx's: the window and memory that a batch of this size can use.
fn sizes(batch: usize) -> (i32, i32) {
    let (mut window, mut memory) = (15, 8);
    while window > 9 && batch < (1 << (window - 1)) - 262 {
        window -= 1;
        memory -= 1;
    }
    (window, memory.max(1))
}

/// Added to the window's bits, it asks for a gzip header and trailer.
const GZIP: i32 = 16;
/// The bytes of a gzip header and trailer above those of zlib.
const FRAME: usize = 12;
