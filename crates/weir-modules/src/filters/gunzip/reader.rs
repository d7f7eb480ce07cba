//! Reads a gzip file as what it unpacks to, for commands that read logs.

use std::io::{self, BufRead, Read};

use super::GunzipCoder;
use crate::filters::compress::{BodyCoder, CoderFailure, DeflateOp};

/// What gzip data, of one member or several, unpack to.
pub struct GunzipReader<R> {
    packed: R,
    coder: GunzipCoder,
}

impl<R: BufRead> GunzipReader<R> {
    /// Reads from `packed`.
    pub fn new(packed: R) -> GunzipReader<R> {
        GunzipReader { packed, coder: GunzipCoder::default() }
    }
}

impl<R: BufRead> Read for GunzipReader<R> {
    fn read(&mut self, output: &mut [u8]) -> io::Result<usize> {
        let failed = |failure: CoderFailure| io::Error::new(io::ErrorKind::InvalidData, failure.0);
        while !output.is_empty() {
            let input = self.packed.fill_buf()?;
            let op = if input.is_empty() { DeflateOp::Finish } else { DeflateOp::Run };
            let progress = self.coder.run(input, output, op).map_err(failed)?;
            self.packed.consume(progress.taken);
            if progress.given > 0 || op == DeflateOp::Finish {
                return Ok(progress.given);
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::super::inflate::tests::pack;
    use super::*;

    fn unpack(packed: &[u8], room: usize) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        GunzipReader::new(BufReader::with_capacity(room, packed)).read_to_end(&mut text)?;
        Ok(text)
    }

    #[test]
    fn members_are_read_one_after_the_other() {
        let text: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let packed = [pack(&text), pack(b""), pack(b"end")].concat();
        for room in [1, 100, 1 << 16] {
            assert!(unpack(&packed, room).expect("good") == [&text[..], b"end"].concat());
        }
    }

    #[test]
    fn data_that_end_early_or_are_broken_are_errors() {
        let packed = pack(b"a text that is long enough to be cut");
        assert_eq!(unpack(&packed[..20], 7).expect_err("cut").to_string(), "gzip data ends early");
        assert_eq!(unpack(b"a text, and no gzip", 7).expect_err("none").to_string(), "no gzip header");
    }
}
