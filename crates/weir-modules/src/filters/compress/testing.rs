//! What the compressors' own tests share.

use super::{BodyCoder, DeflateOp};

/// What `coder` makes of `pieces`, through an output of `room` bytes, flushed after each.
pub(crate) fn pack(coder: &mut impl BodyCoder, pieces: &[Vec<u8>], room: usize) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut output = vec![0; room];
    let mut feed = |piece: &[u8], op| {
        let mut at = 0;
        for _ in 0..1_000_000 {
            let progress = coder.run(&piece[at..], &mut output, op).expect("valid settings");
            packed.extend_from_slice(&output[..progress.given]);
            at += progress.taken;
            if progress.done {
                return;
            }
        }
        panic!("no end");
    };
    pieces.iter().for_each(|piece| feed(piece, DeflateOp::Flush));
    feed(b"", DeflateOp::Finish);
    packed
}
