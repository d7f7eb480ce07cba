//! Bytes that wait in memory take about as much memory as their number, in whatever pieces they came.

/// Adds `bytes` after `last`, the piece before them, where both are small; else they are the next piece. A piece of one
/// byte takes seventy, of its place in a queue and of a block of the heap: a client that sends byte by byte would have
/// us hold seventy times what a window or a buffer allows.
pub fn join(last: Option<&mut Vec<u8>>, bytes: Vec<u8>) -> Option<Vec<u8>> {
    if append(last, &bytes) {
        return None;
    }
    let mut bytes = bytes;
    // What was taken out of its framing may be little of the vector that it lies in.
    if bytes.capacity() > 2 * bytes.len() + SMALL {
        bytes.shrink_to_fit();
    }
    Some(bytes)
}

/// Adds `bytes` after `last`; `false`: there is no last piece, or the two would be large.
pub fn append(last: Option<&mut Vec<u8>>, bytes: &[u8]) -> bool {
    match last {
        Some(last) if last.len() + bytes.len() <= SMALL => {
            last.extend_from_slice(bytes);
            true
        }
        _ => false,
    }
}

/// Bytes of pieces that are worth a copy.
const SMALL: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pieces_become_one_and_large_ones_stay() {
        let mut queue: Vec<Vec<u8>> = Vec::new();
        for byte in 0..10_000_u32 {
            let piece = join(queue.last_mut(), vec![byte as u8]);
            queue.extend(piece);
        }
        assert_eq!(queue.iter().map(Vec::len).collect::<Vec<_>>(), [4096, 4096, 1808]);
        assert_eq!(queue.concat()[4095..4098], [4095_u32 as u8, 0, 1]);
        assert_eq!(join(queue.last_mut(), vec![1; 4000]).map(|piece| piece.len()), Some(4000));
    }

    #[test]
    fn little_content_holds_no_large_vector() {
        let mut content = Vec::with_capacity(65_536);
        content.push(1);
        assert!(join(None, content).is_some_and(|piece| piece.capacity() < 4096));
    }
}
