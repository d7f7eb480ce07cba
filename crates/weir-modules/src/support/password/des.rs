//! The oldest hash of crypt(3): DES (FIPS 46-3) with the password as key, whose expansion two characters of salt
//! change, twenty-five times over a block of zeros. Only eight characters of a password count.

use super::DIGITS;

/// `password` hashed with the salt at the beginning of `setting`; `None` where there is no salt.
pub(super) fn hash(password: &[u8], setting: &[u8]) -> Option<Vec<u8>> {
    let salt = *setting.first_chunk::<2>()?;
    let digit = |byte: u8| DIGITS.iter().position(|digit| *digit == byte);
    let mask = salt_mask(digit(salt[0])? | digit(salt[1])? << 6);
    let key = (0..8).fold(0u64, |key, i| key << 8 | u64::from(password.get(i).map_or(0, |byte| byte << 1)));
    let keys = schedule(key);
    let block = (0..25).fold(0, |block, _| encrypt(block, &keys, mask));
    let mut out = salt.to_vec();
    for i in 0..11 {
        let bits = if i == 10 { block << 2 } else { block >> (58 - 6 * i) };
        out.push(DIGITS[(bits & 63) as usize]);
    }
    Some(out)
}

/// Which bits of the two halves of an expanded block change places: bit 0 of the salt speaks of the first.
fn salt_mask(salt: usize) -> u64 {
    (0..12).filter(|i| salt >> i & 1 == 1).fold(0, |mask, i| mask | 1 << (23 - i))
}

/// Bits of `value`, `width` bits wide, in the order of `table`, which counts from 1 at the highest.
fn permute(value: u64, width: u8, table: &[u8]) -> u64 {
    table.iter().fold(0, |out, bit| out << 1 | value >> (width - bit) & 1)
}

fn schedule(key: u64) -> [u64; 16] {
    const HALF: u64 = (1 << 28) - 1;
    let turn = |half: u64, by: u32| (half << by | half >> (28 - by)) & HALF;
    let chosen = permute(key, 64, &PC1);
    let (mut c, mut d) = (chosen >> 28, chosen & HALF);
    let mut keys = [0; 16];
    for (round, key) in keys.iter_mut().enumerate() {
        let by = if matches!(round, 0 | 1 | 8 | 15) { 1 } else { 2 };
        (c, d) = (turn(c, by), turn(d, by));
        *key = permute(c << 28 | d, 56, &PC2);
    }
    keys
}

fn encrypt(block: u64, keys: &[u64; 16], mask: u64) -> u64 {
    let block = permute(block, 64, &initial());
    let (mut left, mut right) = (block >> 32, block & 0xffff_ffff);
    for key in keys {
        (left, right) = (right, left ^ round(right, *key, mask));
    }
    permute(right << 32 | left, 64, &last())
}

fn round(right: u64, key: u64, mask: u64) -> u64 {
    let expanded = permute(right, 32, &expansion());
    let (high, low) = (expanded >> 24, expanded & 0xff_ffff);
    let swap = (high ^ low) & mask;
    let mixed = ((high ^ swap) << 24 | (low ^ swap)) ^ key;
    let boxed = S.iter().enumerate().fold(0, |out, (i, table)| {
        let six = (mixed >> (42 - 6 * i) & 63) as usize;
        let (row, column) = (six >> 4 & 2 | six & 1, six >> 1 & 15);
        out << 4 | u64::from(table[row * 16 + column])
    });
    permute(boxed, 32, &P)
}

/// The initial permutation: even columns from the bottom, then odd ones.
fn initial() -> [u8; 64] {
    std::array::from_fn(|i| {
        let (row, column) = (i / 8, i % 8);
        let first = if row < 4 { 58 + 2 * row } else { 57 + 2 * (row - 4) };
        (first - 8 * column) as u8
    })
}

/// The inverse of [`initial`].
fn last() -> [u8; 64] {
    let mut inverse = [0; 64];
    for (i, bit) in initial().into_iter().enumerate() {
        inverse[usize::from(bit) - 1] = i as u8 + 1;
    }
    inverse
}

/// Each four bits with their neighbours.
fn expansion() -> [u8; 48] {
    std::array::from_fn(|i| ((i / 6 * 4 + i % 6 + 31) % 32 + 1) as u8)
}

#[rustfmt::skip]
const PC1: [u8; 56] = [
    57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60, 52, 44, 36,
    63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29, 21, 13, 5, 28, 20, 12, 4,
];

#[rustfmt::skip]
const PC2: [u8; 48] = [
    14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2,
    41, 52, 31, 37, 47, 55, 30, 40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
];

#[rustfmt::skip]
const P: [u8; 32] = [
    16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10, 2, 8, 24, 14, 32, 27, 3, 9, 19, 13, 30, 6, 22, 11, 4, 25,
];

#[rustfmt::skip]
const S: [[u8; 64]; 8] = [
    [14, 4, 13, 1, 2, 15, 11, 8, 3, 10, 6, 12, 5, 9, 0, 7, 0, 15, 7, 4, 14, 2, 13, 1, 10, 6, 12, 11, 9, 5, 3, 8,
     4, 1, 14, 8, 13, 6, 2, 11, 15, 12, 9, 7, 3, 10, 5, 0, 15, 12, 8, 2, 4, 9, 1, 7, 5, 11, 3, 14, 10, 0, 6, 13],
    [15, 1, 8, 14, 6, 11, 3, 4, 9, 7, 2, 13, 12, 0, 5, 10, 3, 13, 4, 7, 15, 2, 8, 14, 12, 0, 1, 10, 6, 9, 11, 5,
     0, 14, 7, 11, 10, 4, 13, 1, 5, 8, 12, 6, 9, 3, 2, 15, 13, 8, 10, 1, 3, 15, 4, 2, 11, 6, 7, 12, 0, 5, 14, 9],
    [10, 0, 9, 14, 6, 3, 15, 5, 1, 13, 12, 7, 11, 4, 2, 8, 13, 7, 0, 9, 3, 4, 6, 10, 2, 8, 5, 14, 12, 11, 15, 1,
     13, 6, 4, 9, 8, 15, 3, 0, 11, 1, 2, 12, 5, 10, 14, 7, 1, 10, 13, 0, 6, 9, 8, 7, 4, 15, 14, 3, 11, 5, 2, 12],
    [7, 13, 14, 3, 0, 6, 9, 10, 1, 2, 8, 5, 11, 12, 4, 15, 13, 8, 11, 5, 6, 15, 0, 3, 4, 7, 2, 12, 1, 10, 14, 9,
     10, 6, 9, 0, 12, 11, 7, 13, 15, 1, 3, 14, 5, 2, 8, 4, 3, 15, 0, 6, 10, 1, 13, 8, 9, 4, 5, 11, 12, 7, 2, 14],
    [2, 12, 4, 1, 7, 10, 11, 6, 8, 5, 3, 15, 13, 0, 14, 9, 14, 11, 2, 12, 4, 7, 13, 1, 5, 0, 15, 10, 3, 9, 8, 6,
     4, 2, 1, 11, 10, 13, 7, 8, 15, 9, 12, 5, 6, 3, 0, 14, 11, 8, 12, 7, 1, 14, 2, 13, 6, 15, 0, 9, 10, 4, 5, 3],
    [12, 1, 10, 15, 9, 2, 6, 8, 0, 13, 3, 4, 14, 7, 5, 11, 10, 15, 4, 2, 7, 12, 9, 5, 6, 1, 13, 14, 0, 11, 3, 8,
     9, 14, 15, 5, 2, 8, 12, 3, 7, 0, 4, 10, 1, 13, 11, 6, 4, 3, 2, 12, 9, 5, 15, 10, 11, 14, 1, 7, 6, 0, 8, 13],
    [4, 11, 2, 14, 15, 0, 8, 13, 3, 12, 9, 7, 5, 10, 6, 1, 13, 0, 11, 7, 4, 9, 1, 10, 14, 3, 5, 12, 2, 15, 8, 6,
     1, 4, 11, 13, 12, 3, 7, 14, 10, 15, 6, 8, 0, 5, 9, 2, 6, 11, 13, 8, 1, 4, 10, 7, 9, 5, 0, 15, 14, 2, 3, 12],
    [13, 2, 8, 4, 6, 15, 11, 1, 10, 9, 3, 14, 5, 0, 12, 7, 1, 15, 13, 8, 10, 3, 7, 4, 12, 5, 6, 11, 0, 14, 9, 2,
     7, 11, 4, 1, 9, 12, 14, 2, 0, 6, 10, 13, 15, 3, 5, 8, 2, 1, 14, 7, 4, 10, 8, 13, 15, 12, 9, 0, 3, 5, 6, 11],
];
