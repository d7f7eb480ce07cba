//! QUIC's integers: one, two, four or eight bytes, of which the first two bits say how many (RFC 9000 section 16).

/// The integer at the front of `input`, and how many bytes it has; `None` while they have not all come.
#[inline]
pub(super) fn read(input: &[u8]) -> Option<(u64, usize)> {
    let first = *input.first()?;
    let length = 1_usize << (first >> 6);
    let rest = input.get(1..length)?;
    let value = rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, length))
}

/// The integer that `payload` is, all of it; `None` where it is something else.
pub(super) fn only(payload: &[u8]) -> Option<u64> {
    read(payload).filter(|(_, length)| *length == payload.len()).map(|(value, _)| value)
}

/// Appends `value`, which has 62 bits at most, in as few bytes as it needs.
#[inline]
pub(super) fn write(out: &mut Vec<u8>, value: u64) {
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&((value & MOST) | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Bytes that `value` takes.
pub(super) const fn length(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// The largest.
pub(super) const MOST: u64 = (1 << 62) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_they_were_written() {
        let edges = [0, 1, 0x3f, 0x40, 0x3fff, 0x4000, 0x3fff_ffff, 0x4000_0000, MOST - 1, MOST];
        for value in edges {
            let mut out = Vec::new();
            write(&mut out, value);
            assert_eq!(
                (read(&out), only(&out), length(value)),
                (Some((value, out.len())), Some(value), out.len())
            );
            for cut in 0..out.len() {
                assert_eq!(read(&out[..cut]), None);
            }
            out.push(0);
            assert_eq!((read(&out), only(&out)), (Some((value, length(value))), None));
        }
        // The examples of RFC 9000 section A.1; the last one is longer than it needs to be.
        assert_eq!(read(b"\xc2\x19\x7c\x5e\xff\x14\xe8\x8c"), Some((151_288_809_941_952_652, 8)));
        assert_eq!(read(b"\x9d\x7f\x3e\x7d"), Some((494_878_333, 4)));
        assert_eq!(read(b"\x7b\xbd"), Some((15_293, 2)));
        assert_eq!((read(b"\x25"), read(b"\x40\x25")), (Some((37, 1)), Some((37, 2))));
    }
}
