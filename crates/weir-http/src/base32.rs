//! Base32 in any alphabet of 32 digits, as OpenResty's set-misc module reads and writes it.

/// How base32 is written.
#[derive(Clone, Debug)]
pub struct Base32Form {
    /// The digits, in order.
    pub alphabet: [u8; 32],
    /// `=` fills a text to a multiple of eight digits.
    pub padded: bool,
}

impl Default for Base32Form {
    /// The digits of RFC 4648's "base32hex", in lower case, with padding.
    fn default() -> Base32Form {
        Base32Form { alphabet: *b"0123456789abcdefghijklmnopqrstuv", padded: true }
    }
}

/// `bytes` in base32.
pub fn encode(bytes: &[u8], form: &Base32Form) -> Vec<u8> {
    let alphabet = &form.alphabet;
    let mut out = Vec::with_capacity(bytes.len().div_ceil(5) * 8);
    for group in bytes.chunks(5) {
        let mut bits = [0; 8];
        bits[3..3 + group.len()].copy_from_slice(group);
        let bits = u64::from_be_bytes(bits);
        let digits = (group.len() * 8).div_ceil(5);
        out.extend((0..digits).map(|at| alphabet[(bits >> (35 - 5 * at) & 31) as usize]));
        if form.padded {
            out.resize(out.len().next_multiple_of(8), b'=');
        }
    }
    out
}

/// What `text` is the base32 of; it ends at the first `=`. `None` for other digits, and for a number of digits that no text has.
pub fn decode(text: &[u8], form: &Base32Form) -> Option<Vec<u8>> {
    let text = text.split(|byte| *byte == b'=').next().unwrap_or_default();
    let mut out = Vec::with_capacity(text.len() * 5 / 8);
    for group in text.chunks(8) {
        if matches!(group.len(), 1 | 3 | 6) {
            return None;
        }
        let mut bits = 0u64;
        for (at, digit) in group.iter().enumerate() {
            let value = form.alphabet.iter().position(|known| known == digit)?;
            bits |= (value as u64) << (35 - 5 * at);
        }
        out.extend_from_slice(&bits.to_be_bytes()[3..][..group.len() * 5 / 8]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_of_the_rfc() {
        let [padded, bare] =
            [true, false].map(|padded| Base32Form { alphabet: *b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", padded });
        let texts = [
            ("", ""),
            ("f", "MY======"),
            ("fo", "MZXQ===="),
            ("foo", "MZXW6==="),
            ("foob", "MZXW6YQ="),
            ("fooba", "MZXW6YTB"),
        ];
        for (plain, coded) in texts {
            assert_eq!(encode(plain.as_bytes(), &padded), coded.as_bytes());
            assert_eq!(encode(plain.as_bytes(), &bare), coded.trim_end_matches('=').as_bytes());
            assert_eq!(decode(coded.as_bytes(), &bare).as_deref(), Some(plain.as_bytes()));
        }
        let usual = Base32Form::default();
        assert_eq!(encode(b"abcde", &usual), b"c5h66p35");
        for wrong in ["c", "c5h", "c5h66p", "C5h66p35", "c5h66p3w", "c5 h"] {
            assert_eq!(decode(wrong.as_bytes(), &usual), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(bytes: Vec<u8>, padded: bool) {
            let form = Base32Form { padded, ..Base32Form::default() };
            prop_assert_eq!(decode(&encode(&bytes, &form), &form), Some(bytes));
        }

        #[test]
        fn any_text_is_decoded_or_refused(text: Vec<u8>) {
            decode(&text, &Base32Form::default());
        }
    }
}
