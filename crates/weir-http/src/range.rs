//! Byte ranges (RFC 9110, section 14) with nginx's rules: which requests are answered in parts, which as a whole, and
//! the texts around the parts.

use std::io::Write as _;

use crate::date;

/// A part of a representation, `start..end` in bytes, never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// One behind the last byte.
    pub end: u64,
}

impl ByteRange {
    /// Length in bytes.
    pub fn size(&self) -> u64 {
        self.end - self.start
    }
}

/// How a request with a `Range` field is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranges {
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
/// With `Some(0)` every request is answered as a whole.
pub fn parse(value: &[u8], length: u64, max_ranges: Option<u32>, out: &mut Vec<ByteRange>) -> Ranges {
    let Some((unit, set)) = value.split_at_checked(6) else { return Ranges::Whole };
    if max_ranges == Some(0) || set.is_empty() || !unit.eq_ignore_ascii_case(b"bytes=") {
        return Ranges::Whole;
    }
    let mut sum: u64 = 0;
    for spec in set.split(|&byte| byte == b',') {
        let Some((start, end)) = parse_spec(spec, length) else { return Ranges::NotSatisfiable };
        if start >= end {
            if start == 0 {
                return Ranges::Whole;
            }
            continue;
        }
        out.push(ByteRange { start, end });
        sum = sum.saturating_add(end - start);
        if max_ranges.is_some_and(|max| out.len() > max as usize) {
            return Ranges::Whole;
        }
    }
    match out.len() {
        0 => Ranges::NotSatisfiable,
        1 => Ranges::Partial,
        count if exceeds(sum, count as u64, length, max_ranges) => Ranges::Whole,
        _ => Ranges::Partial,
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

/// Appends the value of `Content-Range` for a 416: `bytes */10`.
pub fn unsatisfied(out: &mut Vec<u8>, length: u64) {
    append(out, format_args!("bytes */{length}"));
}

fn append(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a Vec takes every write");
}

/// The layout of a `multipart/byteranges` body (RFC 9110, section 14.6), byte for byte as nginx writes it.
#[derive(Debug, Clone)]
pub struct Multipart {
    boundary: [u8; 20],
    /// From the CRLF before the boundary to `Content-Range: bytes `, the same for each part.
    head: Vec<u8>,
}

impl Multipart {
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
        Multipart { boundary: digits, head }
    }

    /// Appends the response's `Content-Type`.
    pub fn content_type(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"multipart/byteranges; boundary=");
        out.extend_from_slice(&self.boundary);
    }

    /// Appends what stands before the bytes of a part.
    pub fn part(&self, out: &mut Vec<u8>, range: ByteRange, length: u64) {
        out.extend_from_slice(&self.head);
        append(out, format_args!("{}-{}/{length}\r\n\r\n", range.start, range.end - 1));
    }

    /// Appends what stands behind the last part.
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
