//! `Accept-Encoding`: whether a content coding may be used, as nginx's gzip check reads the field.
//!
//! The reading is deliberately narrow: the coding must be named (no `*`), its weight be well-formed and above zero;
//! anything doubtful means "not accepted", which costs bytes but never breaks a client. One reading of nginx's is
//! not reproduced: it takes the second half of `xgzipgzip` for an element of its own.

/// Whether the field accepts `gzip`.
pub fn gzip(value: &[u8]) -> bool {
    accepts(value, b"gzip")
}

/// Whether the field names `coding` (compared without case) with a weight above zero.
pub fn accepts(value: &[u8], coding: &[u8]) -> bool {
    let Some(rest) = after(value, coding) else { return false };
    match trim_spaces(rest).split_first() {
        None | Some((b',', _)) => true,
        Some((b';', parameter)) => weight_is_positive(trim_spaces(parameter)),
        Some(_) => false,
    }
}

/// What follows the first mention of `coding` that begins an element.
fn after<'a>(value: &'a [u8], coding: &[u8]) -> Option<&'a [u8]> {
    if coding.is_empty() {
        return None;
    }
    let mut at = 0;
    while let Some(candidate) = value.get(at..at + coding.len()) {
        if !candidate.eq_ignore_ascii_case(coding) {
            at += 1;
            continue;
        }
        let before = at.checked_sub(1).and_then(|before| value.get(before));
        if matches!(before, None | Some(b',' | b' ')) {
            return value.get(at + coding.len()..);
        }
        at += coding.len();
    }
    None
}

fn trim_spaces(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|&&byte| byte == b' ').count();
    text.get(spaces..).unwrap_or_default()
}

/// `q=0.001` to `q=1.000`; nothing at all counts as one, everything else as zero.
fn weight_is_positive(parameter: &[u8]) -> bool {
    let weight = match parameter {
        [] => return true,
        [b'q' | b'Q', b'=', weight @ ..] => weight,
        _ => return false,
    };
    let end = weight.iter().position(|byte| b", ".contains(byte)).unwrap_or(weight.len());
    match weight.get(..end) {
        Some([whole @ (b'0' | b'1')]) => *whole == b'1',
        Some([whole @ (b'0' | b'1'), b'.', decimals @ ..]) => {
            let zero = decimals.iter().all(|&digit| digit == b'0');
            decimals.len() <= 3 && decimals.iter().all(u8::is_ascii_digit) && ((*whole == b'1') == zero)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_decide_as_in_nginx() {
        for value in [
            "gzip",
            "GZip",
            "gzip, deflate, br",
            "deflate, gzip",
            "deflate,gzip",
            "gzip;q=1",
            "gzip; q=0.5",
            "gzip;Q=0.001",
            "gzip;q=1.000",
            "gzip;q=1.",
            "gzip ; q=1, x",
            "gzip;",
            "gzip;q=0.5, gzip;q=0",
            "x-gzip, gzip",
            "gzip ,br",
        ] {
            assert!(gzip(value.as_bytes()), "{value}");
        }
        for value in [
            "",
            "gz",
            "br",
            "*",
            "x-gzip",
            "gzipx",
            "gzip;q=0",
            "gzip;q=0.",
            "gzip;q=0.000",
            "gzip;q=1.001",
            "gzip;q=0.0001",
            "gzip;q=2",
            "gzip;q",
            "gzip;q=",
            "gzip;q=x",
            "gzip;q =1",
            "gzip;x=1",
            "gzip;q=0.5;x",
            "gzip;q=0, gzip",
            "gzip x",
            "gzip;q=-1",
        ] {
            assert!(!gzip(value.as_bytes()), "{value}");
        }
        assert!(accepts(b"gzip, br;q=0.9", b"br"));
        assert!(!accepts(b"gzip", b""));
    }
}
