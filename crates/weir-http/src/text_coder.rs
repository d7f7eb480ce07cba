//! Ways to make a text of another that OpenResty's set-misc module has: as directives, and in Lua by `ndk.set_var`.

use crate::base32::Base32Form;
use crate::escape::digit_value;
use crate::{base32, base64, quote};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextCoder {
    /// All but letters, digits and ``! $ ' ( ) * , - . @ _ ` | ~`` as `%XX`.
    EscapeUri,
    /// The bytes of `%XX`, and spaces for `+`; what is not well-formed stays.
    UnescapeUri,
    /// [`quote::sql`]
    QuoteSql,
    /// [`quote::postgresql`]
    QuotePostgresql,
    /// [`quote::json`]
    QuoteJson,
    /// [`base32::encode`]
    EncodeBase32,
    /// [`base32::decode`]; nothing if that fails.
    DecodeBase32,
    /// [`base64::encode`]
    EncodeBase64,
    /// [`base64::decode`]
    DecodeBase64,
    /// Base64 of RFC 4648, section 5, without padding.
    EncodeBase64Url,
    /// [`base64::decode_url`]
    DecodeBase64Url,
    /// Two digits a byte, in lower case.
    EncodeHex,
    /// Bytes of two digits, in either case.
    DecodeHex,
}

impl TextCoder {
    /// What the directive `set_`*name* makes.
    #[must_use]
    pub fn named(name: &str) -> Option<TextCoder> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, coder)| *coder)
    }

    /// What it makes of `text`; `None` if that can't be decoded. Base32 is of the usual form unless one is given.
    #[must_use]
    pub fn apply(self, text: &[u8], form: Option<&Base32Form>) -> Option<Vec<u8>> {
        let usual = Base32Form::default();
        let form = form.unwrap_or(&usual);
        Some(match self {
            TextCoder::EscapeUri => escaped(text),
            TextCoder::UnescapeUri => unescaped(text),
            TextCoder::QuoteSql => quote::sql(text),
            TextCoder::QuotePostgresql => quote::postgresql(text),
            TextCoder::QuoteJson => quote::json(text),
            TextCoder::EncodeBase32 => base32::encode(text, form),
            TextCoder::DecodeBase32 => base32::decode(text, form).unwrap_or_default(),
            TextCoder::EncodeBase64 => {
                let mut out = Vec::new();
                base64::encode(text, &mut out);
                out
            }
            TextCoder::DecodeBase64 => base64::decode(text)?,
            TextCoder::EncodeBase64Url => {
                let mut out = Vec::new();
                base64::encode(text, &mut out);
                out.into_iter().filter(|byte| *byte != b'=').map(url_digit).collect()
            }
            TextCoder::DecodeBase64Url => base64::decode_url(text)?,
            TextCoder::EncodeHex => hex(text),
            TextCoder::DecodeHex => bytes_of(text)?,
        })
    }
}

const NAMES: [(&str, TextCoder); 13] = [
    ("escape_uri", TextCoder::EscapeUri),
    ("unescape_uri", TextCoder::UnescapeUri),
    ("quote_sql_str", TextCoder::QuoteSql),
    ("quote_pgsql_str", TextCoder::QuotePostgresql),
    ("quote_json_str", TextCoder::QuoteJson),
    ("encode_base32", TextCoder::EncodeBase32),
    ("decode_base32", TextCoder::DecodeBase32),
    ("encode_base64", TextCoder::EncodeBase64),
    ("decode_base64", TextCoder::DecodeBase64),
    ("encode_base64url", TextCoder::EncodeBase64Url),
    ("decode_base64url", TextCoder::DecodeBase64Url),
    ("encode_hex", TextCoder::EncodeHex),
    ("decode_hex", TextCoder::DecodeHex),
];

fn url_digit(digit: u8) -> u8 {
    match digit {
        b'+' => b'-',
        b'/' => b'_',
        digit => digit,
    }
}

fn hex(bytes: &[u8]) -> Vec<u8> {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]).collect()
}

fn bytes_of(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| Some(digit_value(*high)? << 4 | digit_value(*low)?);
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

fn escaped(text: &[u8]) -> Vec<u8> {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        if byte.is_ascii_alphanumeric() || b"!$'()*,-.@_`|~".contains(&byte) {
            out.push(byte);
        } else {
            out.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
    out
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((&byte, after)) = rest.split_first() {
        let decoded = after.first_chunk::<2>().filter(|_| byte == b'%').and_then(|pair| bytes_of(pair));
        match decoded {
            Some(decoded) => {
                out.extend(decoded);
                rest = &after[2..];
            }
            None => {
                out.push(if byte == b'+' { b' ' } else { byte });
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A text, and what is made of it.
    type TextCase<'a> = (TextCoder, &'a [u8], Option<&'a [u8]>);

    /// Examples of the reference's manual among them.
    #[test]
    fn values_are_coded() {
        let all: &[TextCase<'_>] = &[
            (TextCoder::UnescapeUri, b"hello+world%21", Some(b"hello world!")),
            (TextCoder::UnescapeUri, b"%zz%2%+%4", Some(b"%zz%2% %4")),
            (
                TextCoder::EscapeUri,
                b"a b/c?d=e&f#\"%+:;<>\\^{}\x00\x7f\xff",
                Some(b"a%20b%2Fc%3Fd%3De%26f%23%22%25%2B%3A%3B%3C%3E%5C%5E%7B%7D%00%7F%FF"),
            ),
            (TextCoder::EscapeUri, b"!$'()*,-.@_`|~09azAZ", Some(b"!$'()*,-.@_`|~09azAZ")),
            (TextCoder::EncodeBase32, b"abcde", Some(b"c5h66p35")),
            (TextCoder::EncodeBase32, b"abcd", Some(b"c5h66p0=")),
            (TextCoder::DecodeBase32, b"c5h66p35", Some(b"abcde")),
            (TextCoder::DecodeBase32, b"c5h66p3\x00", Some(b"")),
            (TextCoder::EncodeBase64, b"abcde", Some(b"YWJjZGU=")),
            (TextCoder::DecodeBase64, b"YWJjZGU=", Some(b"abcde")),
            (TextCoder::DecodeBase64, b"YWJj*", None),
            (TextCoder::EncodeBase64Url, b"\xff\xfe?", Some(b"__4_")),
            (TextCoder::EncodeBase64Url, b"abcde", Some(b"YWJjZGU")),
            (TextCoder::DecodeBase64Url, b"__4_", Some(b"\xff\xfe?")),
            (TextCoder::DecodeBase64Url, b"//4/", None),
            (TextCoder::EncodeHex, "章亦春".as_bytes(), Some(b"e7aba0e4baa6e698a5")),
            (TextCoder::DecodeHex, b"6162636465", Some(b"abcde")),
            (TextCoder::DecodeHex, b"616", None),
            (TextCoder::DecodeHex, b"6g", None),
        ];
        for (coder, text, expected) in all {
            assert_eq!(coder.apply(text, None).as_deref(), *expected, "{coder:?} {text:?}");
        }
        let bare = Base32Form { alphabet: *b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", padded: false };
        assert_eq!(TextCoder::EncodeBase32.apply(b"foob", Some(&bare)).as_deref(), Some(&b"MZXW6YQ"[..]));
        assert_eq!(TextCoder::DecodeBase32.apply(b"MZXW6YQ", Some(&bare)).as_deref(), Some(&b"foob"[..]));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(text: Vec<u8>) {
            for (encode, decode) in [
                (TextCoder::EscapeUri, TextCoder::UnescapeUri),
                (TextCoder::EncodeBase32, TextCoder::DecodeBase32),
                (TextCoder::EncodeBase64, TextCoder::DecodeBase64),
                (TextCoder::EncodeBase64Url, TextCoder::DecodeBase64Url),
                (TextCoder::EncodeHex, TextCoder::DecodeHex),
            ] {
                let coded = encode.apply(&text, None).expect("each text can be encoded");
                prop_assert_eq!(decode.apply(&coded, None), Some(text.clone()));
            }
        }
    }
}
