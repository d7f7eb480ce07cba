//! The hashes that crypt(3) names by `$…$`: MD5 (`$1$`, and Apache's `$apr1$`), SHA-256 (`$5$`), SHA-512 (`$6$`).

use md5::{Digest, Md5};
use sha_crypt::{Params, sha256_crypt, sha512_crypt};

use super::DIGITS;

/// `password` hashed as `setting`, a hash or its beginning, says. `None`: `setting` is not a known hash.
pub(super) fn hash(password: &[u8], setting: &[u8]) -> Option<Vec<u8>> {
    for magic in [&b"$1$"[..], b"$apr1$"] {
        if let Some(rest) = setting.strip_prefix(magic) {
            return Some(md5(password, magic, rest));
        }
    }
    for magic in [&b"$5$"[..], b"$6$"] {
        if let Some(rest) = setting.strip_prefix(magic) {
            return sha(password, magic, rest);
        }
    }
    None
}

/// What precedes the next `$`, at most `longest` bytes.
fn salt(text: &[u8], longest: usize) -> &[u8] {
    let end = text.iter().position(|byte| *byte == b'$').unwrap_or(text.len());
    &text[..end.min(longest)]
}

/// Poul-Henning Kamp's thousand rounds of MD5.
fn md5(password: &[u8], magic: &[u8], rest: &[u8]) -> Vec<u8> {
    let salt = salt(rest, 8);
    let mut digest = md5_first(password, magic, salt);
    for round in 0..1000 {
        let mut context = Md5::new();
        let odd = round % 2 == 1;
        context.update(if odd { password } else { &digest[..] });
        if round % 3 != 0 {
            context.update(salt);
        }
        if round % 7 != 0 {
            context.update(password);
        }
        context.update(if odd { &digest[..] } else { password });
        digest = context.finalize().into();
    }
    let mut out = [magic, salt, b"$"].concat();
    for [a, b, c] in [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]] {
        digits(&mut out, [digest[a], digest[b], digest[c]], 4);
    }
    digits(&mut out, [0, 0, digest[11]], 2);
    out
}

/// What the rounds begin with.
fn md5_first(password: &[u8], magic: &[u8], salt: &[u8]) -> [u8; 16] {
    let inner = Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut context = Md5::new().chain_update(password).chain_update(magic).chain_update(salt);
    for chunk in password.chunks(16) {
        context.update(&inner[..chunk.len()]);
    }
    let mut bits = password.len();
    while bits > 0 {
        context.update(if bits & 1 == 1 { &[0] } else { &password[..1] });
        bits >>= 1;
    }
    context.finalize().into()
}

/// Ulrich Drepper's rounds of SHA-2; `None` where the number of rounds is not a number, or is less than a thousand.
fn sha(password: &[u8], magic: &[u8], rest: &[u8]) -> Option<Vec<u8>> {
    let mut out = magic.to_vec();
    let mut rounds = Params::RECOMMENDED_ROUNDS;
    let mut rest = rest;
    if let Some(after) = rest.strip_prefix(b"rounds=") {
        let end = after.iter().position(|byte| *byte == b'$')?;
        rounds = weir_conf::parse_number(&after[..end]).and_then(|rounds| u32::try_from(rounds).ok())?;
        let (number, left) = rest.split_at(b"rounds=".len() + end + 1);
        out.extend_from_slice(number);
        rest = left;
    }
    let params = Params::new(rounds).ok()?;
    let salt = salt(rest, 16);
    out.extend_from_slice(salt);
    out.push(b'$');
    if magic == b"$5$" {
        sha256_digits(&mut out, &sha256_crypt(password, salt, params));
    } else {
        sha512_digits(&mut out, &sha512_crypt(password, salt, params));
    }
    Some(out)
}

/// The digest's three thirds, byte by byte, each time beginning with the third before.
fn sha256_digits(out: &mut Vec<u8>, digest: &[u8; 32]) {
    for i in 0..10 {
        let third = [digest[i], digest[i + 10], digest[i + 20]];
        digits(out, turned(third, (3 - i % 3) % 3), 4);
    }
    digits(out, [0, digest[31], digest[30]], 3);
}

/// As [`sha256_digits`], the other way round.
fn sha512_digits(out: &mut Vec<u8>, digest: &[u8; 64]) {
    for i in 0..21 {
        let third = [digest[i], digest[i + 21], digest[i + 42]];
        digits(out, turned(third, i % 3), 4);
    }
    digits(out, [0, 0, digest[63]], 2);
}

/// `bytes`, the one at `first` first.
fn turned(bytes: [u8; 3], first: usize) -> [u8; 3] {
    [bytes[first], bytes[(first + 1) % 3], bytes[(first + 2) % 3]]
}

/// The last `count` digits of these bytes, the least first.
fn digits(out: &mut Vec<u8>, bytes: [u8; 3], count: usize) {
    let mut value = bytes.iter().fold(0, |value, byte| value << 8 | usize::from(*byte));
    for _ in 0..count {
        out.push(DIGITS[value % 64]);
        value /= 64;
    }
}
