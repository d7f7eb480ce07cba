//! What quinn-proto says of itself in transport parameters (RFC 9000 section 18), where a configuration says otherwise.

/// `parameters`, as encoded, with `count` connection IDs of the peer that are stored (`active_connection_id_limit`). More than
/// quinn-proto stores, or fewer than all must, can't be had.
pub(super) fn with_connection_ids(parameters: Vec<u8>, count: u64) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(parameters.len()), &parameters[..]);
    while !rest.is_empty() {
        let Some((id, value, after)) = parameter(rest) else { return parameters };
        match value {
            [own] if id == ACTIVE_CONNECTION_ID_LIMIT && u64::from(*own) < MOST_IN_A_BYTE => {
                out.extend_from_slice(&[ACTIVE_CONNECTION_ID_LIMIT as u8, 1]);
                out.push(u64::from(*own).min(count.max(LEAST)) as u8);
            }
            _ => out.extend_from_slice(&rest[..rest.len() - after.len()]),
        }
        rest = after;
    }
    out
}

/// The first parameter of `bytes`: its number, its value, and what is after it.
fn parameter(bytes: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (id, rest) = integer(bytes)?;
    let (length, rest) = integer(rest)?;
    let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some((id, value, rest))
}

/// RFC 9000 section 16.
fn integer(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let first = *bytes.first()?;
    let (number, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    let value = number.iter().fold(0, |value: u64, byte| value << 8 | u64::from(*byte));
    let bits = 8 * number.len() as u32 - 2;
    Some((value & ((1 << bits) - 1), rest))
}

const ACTIVE_CONNECTION_ID_LIMIT: u64 = 0x0e;
/// RFC 9000 section 18.2.
const LEAST: u64 = 2;
/// An integer below it is its own encoding.
const MOST_IN_A_BYTE: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_number_of_connection_ids_takes_the_place_of_the_librarys_own() {
        let encoded = b"\x01\x04\x80\x00\x75\x30\x0e\x01\x05\x40\x7f\x00\x0f\x02ab".to_vec();
        let with = |count| with_connection_ids(encoded.clone(), count);
        assert_eq!(with(3), b"\x01\x04\x80\x00\x75\x30\x0e\x01\x03\x40\x7f\x00\x0f\x02ab");
        assert_eq!((with(9), with(0)[8]), (encoded.clone(), 2));
        assert_eq!(with_connection_ids(b"\x0e".to_vec(), 3), b"\x0e", "what can't be read stays");
    }
}
