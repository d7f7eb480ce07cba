//! Huffman codes of limited length (RFC 1951, section 3.2.2).

/// Lengths of a code for symbols that occur so often, none longer than `limit` bits; 0 for those that don't occur.
/// The code is complete, or of one symbol.
pub(super) fn lengths(counts: &[u32], limit: usize, lengths: &mut [u8]) {
    lengths.fill(0);
    let mut order = [0_u64; 288];
    let mut used = 0;
    for (symbol, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        order[used] = u64::from(count) << 16 | symbol as u64;
        used += 1;
    }
    let order = &mut order[..used];
    match order {
        [] => return,
        [only] => {
            lengths[(*only & 0xffff) as usize] = 1;
            return;
        }
        _ => order.sort_unstable(),
    }
    let mut per_length = depths(order);
    keep_below(&mut per_length, limit);
    // The rarest have the longest codes.
    let mut symbols = order.iter();
    for length in (1..=limit).rev() {
        for &symbol in symbols.by_ref().take(per_length[length] as usize) {
            lengths[(symbol & 0xffff) as usize] = length as u8;
        }
    }
}

/// How many symbols have codes of each length, for two or more in order of their count.
fn depths(order: &[u64]) -> [u32; DEEPEST + 1] {
    // Inner nodes come into being in order of their count: the two rarest are at the front of one of two queues.
    let mut counts = [0_u64; 288];
    let mut parents = [0_u16; 2 * 288];
    let leaves = order.len();
    let (mut leaf, mut inner) = (0, 0);
    for node in 0..leaves - 1 {
        let mut sum = 0;
        for _ in 0..2 {
            let count = order.get(leaf).map(|leaf| leaf >> 16);
            if count.is_some_and(|count| inner == node || count <= counts[inner]) {
                sum += count.unwrap_or_default();
                parents[leaf] = (leaves + node) as u16;
                leaf += 1;
            } else {
                sum += counts[inner];
                parents[leaves + inner] = (leaves + node) as u16;
                inner += 1;
            }
        }
        counts[node] = sum;
    }
    let mut depth = [0_u8; 2 * 288];
    let mut per_length = [0; DEEPEST + 1];
    for node in (0..2 * leaves - 2).rev() {
        depth[node] = depth[usize::from(parents[node])] + 1;
        if node < leaves {
            per_length[usize::from(depth[node]).min(DEEPEST)] += 1;
        }
    }
    per_length
}

/// Shortens codes to `limit` bits and lengthens others for it, so that the code stays complete.
fn keep_below(per_length: &mut [u32; DEEPEST + 1], limit: usize) {
    let long: u32 = per_length[limit + 1..].iter().sum();
    if long == 0 {
        return;
    }
    per_length[limit + 1..].fill(0);
    per_length[limit] += long;
    // In units of the longest code: how much of the code is taken.
    let mut taken: u32 = (1..=limit).map(|length| per_length[length] << (limit - length)).sum();
    while taken > 1 << limit {
        // A symbol of the longest goes beside one that is made longer by a bit.
        per_length[limit] -= 1;
        let shorter = (1..limit).rev().find(|length| per_length[*length] > 0).unwrap_or(1);
        per_length[shorter] -= 1;
        per_length[shorter + 1] += 2;
        taken -= 1;
    }
}

/// The codes of these lengths, first bit lowest, and from bit [`LENGTH`] on their lengths.
pub(super) fn codes(lengths: &[u8], codes: &mut [u32]) {
    let mut next = [0_u32; LIMIT + 2];
    for &length in lengths.iter().filter(|length| **length > 0) {
        next[usize::from(length) + 1] += 1;
    }
    for length in 1..next.len() {
        next[length] = (next[length] + next[length - 1]) << 1;
    }
    for (code, &length) in codes.iter_mut().zip(lengths) {
        if length > 0 {
            let value = &mut next[usize::from(length)];
            *code = u32::from(length) << LENGTH | value.reverse_bits() >> (32 - length);
            *value += 1;
        }
    }
}

/// Where in what [`codes`] makes the length is.
pub(super) const LENGTH: u32 = 24;
/// Longest code of literals, lengths and distances.
pub(super) const LIMIT: usize = 15;
/// A code of counts whose sum is below 2^20 is not deeper (its counts grow as Fibonacci's numbers do).
const DEEPEST: usize = 30;
