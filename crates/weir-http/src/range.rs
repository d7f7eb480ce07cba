//! Byte ranges (RFC 9110, section 14) with nginx's rules: which requests get parts, which the whole, and
//! the texts around the parts.

use std::io::Write as _;

use crate::date;

/// A part of a representation, `start..end` in bytes, never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub start: u64,
    /// The offset after the last byte.
    pub end: u64,
}

impl ByteRange {
    /// Length in bytes, at least 1.
    pub fn size(&self) -> u64 {
        self.end - self.start
    }
}

/// What the response to a request with a `Range` field consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeOutcome {
    /// 200 with everything: another unit, too many ranges, or ranges that together exceed the whole.
    Whole,
    /// 206 with the ranges found: one as it is, several as `multipart/byteranges`.
    Partial,
    /// 416 with `Content-Range: bytes */length`.
    NotSatisfiable,
}

/// Reads a `Range` field for a representation of `length` bytes and appends the ranges to the empty `out`.
///
/// `max_ranges` is the directive of that name, `None` when it is not set. Unset, nginx allows any number whose sizes
/// sum up to no more than the whole, with 256 bytes counted for each part's head beyond an allowance of 4096.
/// With `Some(0)` every response is whole.
pub fn parse(value: &[u8], length: u64, max_ranges: Option<u32>, out: &mut Vec<ByteRange>) -> RangeOutcome {
    let Some((unit, set)) = value.split_at_checked(6) else { return RangeOutcome::Whole };
    if max_ranges == Some(0) || set.is_empty() || !unit.eq_ignore_ascii_case(b"bytes=") {
        return RangeOutcome::Whole;
    }
    let mut sum: u64 = 0;
    for spec in set.split(|&byte| byte == b',') {
        let Some((start, end)) = parse_spec(spec, length) else { return RangeOutcome::NotSatisfiable };
        if start >= end {
            if start == 0 {
                return RangeOutcome::Whole;
            }
            continue;
        }
        out.push(ByteRange { start, end });
        sum = sum.saturating_add(end - start);
        if max_ranges.is_some_and(|max| out.len() > max as usize) {
            return RangeOutcome::Whole;
        }
    }
    match out.len() {
        0 => RangeOutcome::NotSatisfiable,
        1 => RangeOutcome::Partial,
        count if exceeds(sum, count as u64, length, max_ranges) => RangeOutcome::Whole,
        _ => RangeOutcome::Partial,
    }
}

fn exceeds(sum: u64, count: u64, length: u64, max_ranges: Option<u32>) -> bool {
    sum > length || (max_ranges.is_none() && sum.saturating_add(count * 256) > length.saturating_add(4096))
}

/// One `first-last`, `first-` or `-suffix` as `start..end`, possibly empty; `None` when it is malformed.
fn parse_spec(spec: &[u8], length: u64) -> Option<(u64, u64)> {
    let (first, last) = spec.split_at(memchr::memchr(b'-', spec)?);
    let (first, last) = (trim(first), last.get(1..)?);
    // A suffix follows its dash at once; elsewhere nginx skips spaces.
    let last = if first.is_empty() { trim_end(last) } else { trim(last) };
    match (first.is_empty(), last.is_empty()) {
        (true, true) => None,
        (true, false) => Some((length.saturating_sub(number(last)?), length)),
        (false, true) => Some((number(first)?, length)),
        (false, false) => Some((number(first)?, number(last)?.saturating_add(1).min(length))),
    }
}

fn trim(text: &[u8]) -> &[u8] {
    let start = text.iter().take_while(|&&byte| byte == b' ').count();
    trim_end(text.get(start..).unwrap_or_default())
}

fn trim_end(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|&byte| byte != b' ').map_or(0, |at| at + 1);
    text.get(..end).unwrap_or_default()
}

/// Digits up to the largest file offset, 2^63 - 1.
fn number(digits: &[u8]) -> Option<u64> {
    let value = digits.iter().try_fold(0u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })?;
    i64::try_from(value).ok().map(|_| value)
}

/// Whether `If-Range` lets the `Range` be used: an entity tag equal to the representation's, byte for byte, or a date
/// equal to its `Last-Modified` (seconds since the epoch).
pub fn if_range(value: &[u8], tag: Option<&[u8]>, last_modified: Option<i64>) -> bool {
    if value.len() >= 2 && value.ends_with(b"\"") {
        return tag == Some(value);
    }
    last_modified.is_some() && date::parse(value) == last_modified
}

/// Appends the value of `Content-Range` for a single part: `bytes 0-4/10`.
pub fn content_range(out: &mut Vec<u8>, range: ByteRange, length: u64) {
    append(out, format_args!("bytes {}-{}/{length}", range.start, range.end - 1));
}

/// Reads the value of `Content-Range` of one part: the part, and the length of the whole in bytes, `None` where that
/// is `*`. Spaces may be between its pieces, as nginx takes them. `None` if the value is not a byte range.
pub fn parse_content_range(value: &[u8]) -> Option<(ByteRange, Option<u64>)> {
    let rest = value.strip_prefix(b"bytes ")?;
    let (first, rest) = piece(rest, b'-')?;
    let (last, whole) = piece(rest, b'/')?;
    let position = |digits: &[u8]| number(digits).filter(|_| !digits.is_empty());
    let (start, end) = (position(first)?, position(last)?.checked_add(1)?);
    let whole = match trim(whole) {
        b"*" => None,
        whole => Some(position(whole)?),
    };
    Some((ByteRange { start, end }, whole)).filter(|_| start < end)
}

/// What precedes `mark`, without spaces around, and what after.
fn piece(text: &[u8], mark: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&byte| byte == mark)?;
    Some((trim(text.get(..at)?), text.get(at + 1..)?))
}

/// The first byte that a `Range` field with one range asks for: 0 where it asks for the last ones, or can't be read.
pub fn first_byte(value: &[u8]) -> u64 {
    let rest = match value.split_at_checked(6) {
        Some((unit, rest)) if unit.eq_ignore_ascii_case(b"bytes=") && !rest.contains(&b',') => rest,
        _ => return 0,
    };
    let digits = trim(rest);
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    digits.get(..end).and_then(number).unwrap_or(0)
}

/// Appends the value of `Content-Range` for a 416: `bytes */10`.
pub fn unsatisfied(out: &mut Vec<u8>, length: u64) {
    append(out, format_args!("bytes */{length}"));
}

fn append(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a Vec takes every write");
}

/// The layout of a `multipart/byteranges` body (RFC 9110, section 14.6), byte for byte as nginx writes it.
#[derive(Debug, Clone)]
pub struct MultipartLayout {
    boundary: [u8; 20],
    /// From the CRLF before the boundary to `Content-Range: bytes `, the same for each part.
    head: Vec<u8>,
}

impl MultipartLayout {
    /// A body whose parts have `content_type`, empty for none, with `; charset=` when given. `boundary` should be
    /// unlikely to occur in the content; it is written as twenty digits.
    pub fn new(boundary: u64, content_type: &[u8], charset: Option<&[u8]>) -> Self {
        let mut digits = [b'0'; 20];
        let mut rest = boundary;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let mut head = Vec::with_capacity(96 + content_type.len());
        head.extend_from_slice(b"\r\n--");
        head.extend_from_slice(&digits);
        if !content_type.is_empty() {
            head.extend_from_slice(b"\r\nContent-Type: ");
            head.extend_from_slice(content_type);
            if let Some(charset) = charset {
                head.extend_from_slice(b"; charset=");
                head.extend_from_slice(charset);
            }
        }
        head.extend_from_slice(b"\r\nContent-Range: bytes ");
        MultipartLayout { boundary: digits, head }
    }

    /// Appends the response's `Content-Type`.
    pub fn content_type(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"multipart/byteranges; boundary=");
        out.extend_from_slice(&self.boundary);
    }

    /// Appends what precedes the bytes of a part.
    pub fn part(&self, out: &mut Vec<u8>, range: ByteRange, length: u64) {
        out.extend_from_slice(&self.head);
        append(out, format_args!("{}-{}/{length}\r\n\r\n", range.start, range.end - 1));
    }

    /// Appends what follows the last part.
    pub fn last(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\n--");
        out.extend_from_slice(&self.boundary);
        out.extend_from_slice(b"--\r\n");
    }

    /// The response's `Content-Length`: all parts of a representation of `length` bytes with what surrounds them.
    pub fn content_length(&self, ranges: &[ByteRange], length: u64) -> u64 {
        let mut scratch = Vec::with_capacity(self.head.len() + 64);
        self.last(&mut scratch);
        ranges.iter().fold(scratch.len() as u64, |sum, &range| {
            scratch.clear();
            self.part(&mut scratch, range, length);
            sum + scratch.len() as u64 + range.size()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges(value: &str, length: u64, max: Option<u32>) -> (RangeOutcome, Vec<(u64, u64)>) {
        let mut out = Vec::new();
        let answer = parse(value.as_bytes(), length, max, &mut out);
        (answer, out.iter().map(|range| (range.start, range.end)).collect())
    }

    #[test]
    fn satisfiable_ranges_are_cut_to_the_length() {
        for (value, expected) in [
            ("bytes=0-0", vec![(0, 1)]),
            ("Bytes=0-99", vec![(0, 100)]),
            ("bytes=10-", vec![(10, 100)]),
            ("bytes=-10", vec![(90, 100)]),
            ("bytes=-1000", vec![(0, 100)]),
            ("bytes=90-1000", vec![(90, 100)]),
            ("bytes=0-9223372036854775807", vec![(0, 100)]),
            ("bytes= 1 - 2 , 5-6", vec![(1, 3), (5, 7)]),
            ("bytes=5-6,0-1,-1", vec![(5, 7), (0, 2), (99, 100)]),
            ("bytes=1-2,200-300", vec![(1, 3)]),
            ("bytes=1-2,-0", vec![(1, 3)]),
        ] {
            assert_eq!(ranges(value, 100, None), (RangeOutcome::Partial, expected), "{value}");
        }
    }

    #[test]
    fn malformed_and_unsatisfiable_sets_are_416() {
        for value in [
            "bytes=a",
            "bytes=-",
            "bytes=1",
            "bytes=1-2-3",
            "bytes=1-2,",
            "bytes=,1-2",
            "bytes=+1-2",
            "bytes=1-2;",
            "bytes=- 5",
            "bytes=1 2-3",
            "bytes=100-",
            "bytes=100-200,300-",
            "bytes=5-2",
            "bytes=-0",
            "bytes=9223372036854775808-",
            "bytes=0-99999999999999999999",
        ] {
            assert_eq!(ranges(value, 100, None).0, RangeOutcome::NotSatisfiable, "{value}");
        }
    }

    #[test]
    fn what_nginx_ignores_is_answered_as_a_whole() {
        for value in ["", "bytes", "bytes=", "items=0-1", "bytes:0-1", "bytes=0-99,0-0"] {
            assert_eq!(ranges(value, 100, None).0, RangeOutcome::Whole, "{value}");
        }
        assert_eq!(ranges("bytes=0-", 0, None).0, RangeOutcome::Whole, "an empty file");
        assert_eq!(ranges("bytes=-5", 0, None).0, RangeOutcome::Whole, "an empty file");
        assert_eq!(ranges("bytes=1-", 0, None).0, RangeOutcome::NotSatisfiable);
    }

    #[test]
    fn the_number_of_ranges_is_bounded() {
        assert_eq!(ranges("bytes=0-1", 100, Some(0)).0, RangeOutcome::Whole);
        assert_eq!(ranges("bytes=0-1", 100, Some(1)).0, RangeOutcome::Partial);
        assert_eq!(ranges("bytes=0-1,2-3", 100, Some(1)).0, RangeOutcome::Whole);
        assert_eq!(ranges("bytes=0-1,200-300", 100, Some(1)).0, RangeOutcome::Partial);
        let many = |count: usize| format!("bytes={}", vec!["0-0"; count].join(","));
        // 17 × (256 + 1) = 4369 exceeds 4096 + 100; 16 × 257 = 4112 does not.
        assert_eq!(ranges(&many(16), 100, None).0, RangeOutcome::Partial);
        assert_eq!(ranges(&many(17), 100, None).0, RangeOutcome::Whole);
        assert_eq!(ranges(&many(17), 100, Some(20)).0, RangeOutcome::Partial);
    }

    #[test]
    fn if_range_compares_exactly() {
        let date = b"Sun, 06 Nov 1994 08:49:37 GMT";
        assert!(if_range(b"\"a\"", Some(b"\"a\""), None));
        assert!(!if_range(b"\"a\"", Some(b"W/\"a\""), None));
        assert!(!if_range(b"\"a\"", None, Some(0)));
        assert!(if_range(date, None, Some(784_111_777)));
        assert!(!if_range(date, None, Some(784_111_776)));
        assert!(!if_range(b"junk", Some(b"\"a\""), None));
    }

    #[test]
    fn texts_are_laid_out_as_nginx_does() {
        let text = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write(&mut out);
            String::from_utf8(out).expect("ASCII")
        };
        let range = ByteRange { start: 0, end: 5 };
        assert_eq!(text(&|out| content_range(out, range, 10)), "bytes 0-4/10");
        assert_eq!(text(&|out| unsatisfied(out, 10)), "bytes */10");
        let multipart = MultipartLayout::new(42, b"text/plain", Some(b"utf-8"));
        assert_eq!(
            text(&|out| multipart.content_type(out)),
            "multipart/byteranges; boundary=00000000000000000042"
        );
        assert_eq!(
            text(&|out| multipart.part(out, range, 10)),
            "\r\n--00000000000000000042\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Range: bytes 0-4/10\r\n\r\n"
        );
        assert_eq!(text(&|out| multipart.last(out)), "\r\n--00000000000000000042--\r\n");
        let bare = MultipartLayout::new(u64::MAX, b"", Some(b"utf-8"));
        assert_eq!(
            text(&|out| bare.part(out, range, 10)),
            "\r\n--18446744073709551615\r\nContent-Range: bytes 0-4/10\r\n\r\n"
        );
    }

    #[test]
    fn a_part_of_an_answer_is_read() {
        let part = |start, end, whole| Some((ByteRange { start, end }, whole));
        for (value, expected) in [
            ("bytes 0-1/100", part(0, 2, Some(100))),
            ("bytes  5 - 9 / 10 ", part(5, 10, Some(10))),
            ("bytes 0-0/*", part(0, 1, None)),
            ("bytes", None),
            ("bytes 1-0/9", None),
            ("bytes */9", None),
            ("bytes 0-1", None),
            ("bytes 0-1/", None),
            ("bytes 0-1/1x", None),
            ("bytes -1/9", None),
            ("lines 0-1/9", None),
            ("bytes 0-9223372036854775808/9", None),
        ] {
            assert_eq!(parse_content_range(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn the_first_byte_asked_for() {
        for (value, expected) in [
            ("bytes=7-", 7),
            ("BYTES= 12-13", 12),
            ("bytes=7", 7),
            ("bytes=-5", 0),
            ("bytes=3-4,9-", 0),
            ("bytes=99999999999999999999-", 0),
            ("lines=3-", 0),
            ("bytes=", 0),
            ("b", 0),
        ] {
            assert_eq!(first_byte(value.as_bytes()), expected, "{value}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_of_a_part_is_read_again(start in 0u64..1 << 62, size in 1u64..1 << 40, more in 0u64..99) {
            let part = ByteRange { start, end: start + size };
            let mut text = Vec::new();
            content_range(&mut text, part, part.end + more);
            prop_assert_eq!(parse_content_range(&text), Some((part, Some(part.end + more))));
        }

        #[test]
        fn ranges_lie_inside_and_sum_up(
            specs in proptest::collection::vec((0u64..300, 0u64..300, 0..4), 1..8),
            length in 0u64..256,
        ) {
            let specs: Vec<String> = specs.iter().map(|(first, last, kind)| match kind {
                0 => format!("{first}-"),
                1 => format!("-{last}"),
                _ => format!("{first}-{last}"),
            }).collect();
            let (answer, found) = ranges(&format!("bytes={}", specs.join(",")), length, None);
            if answer == RangeOutcome::Partial {
                prop_assert!(!found.is_empty());
                prop_assert!(found.iter().all(|(start, end)| start < end && *end <= length));
                let sum: u64 = found.iter().map(|(start, end)| end - start).sum();
                prop_assert!(sum <= length);
            }
        }

        #[test]
        fn the_announced_length_is_the_length_written(
            ends in proptest::collection::vec((0u64..1000, 1u64..1000), 0..6),
            boundary in any::<u64>(),
        ) {
            let multipart = MultipartLayout::new(boundary, b"text/html", None);
            let ranges: Vec<ByteRange> =
                ends.iter().map(|&(start, size)| ByteRange { start, end: start + size }).collect();
            let mut body = Vec::new();
            for range in &ranges {
                multipart.part(&mut body, *range, 5000);
                body.resize(body.len() + range.size() as usize, b'x');
            }
            multipart.last(&mut body);
            prop_assert_eq!(multipart.content_length(&ranges, 5000), body.len() as u64);
        }

        #[test]
        fn no_bytes_make_it_panic(value in proptest::collection::vec(any::<u8>(), 0..40), length in any::<u64>()) {
            let mut text = b"bytes=".to_vec();
            text.extend_from_slice(&value);
            let _ = parse(&text, length, None, &mut Vec::new());
            let _ = parse(&value, length, Some(3), &mut Vec::new());
            let _ = (first_byte(&text), first_byte(&value));
            let answer = [b"bytes ", &*value].concat();
            if let Some((part, _)) = parse_content_range(&answer) {
                prop_assert!(part.start < part.end);
            }
        }
    }

    #[test]
    fn a_body_of_several_ranges_is_as_long_as_is_announced() {
        let layout = MultipartLayout::new(12_345, b"text/plain", Some(b"utf-8"));
        let ranges = [ByteRange { start: 0, end: 1 }, ByteRange { start: 95, end: 105 }];
        assert_eq!(ranges.map(|range| range.size()), [1, 10]);
        let mut body = Vec::new();
        for range in ranges {
            layout.part(&mut body, range, 1000);
            body.resize(body.len() + range.size() as usize, b'x');
        }
        layout.last(&mut body);
        assert_eq!(layout.content_length(&ranges, 1000), body.len() as u64);
    }
}
