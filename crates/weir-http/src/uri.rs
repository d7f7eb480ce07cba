//! The request target: split into path and arguments, and the path normalised as nginx does it.
//!
//! Percent-escapes are decoded once, `.` and `..` segments are resolved (written plainly or escaped), runs of `/` are
//! merged when `merge_slashes` is on, the fragment is cut, and the arguments stay exactly as they were sent. A path
//! that climbs above the root, a bad escape, `%00` and raw control bytes are refused with 400.
//!
//! Nearly every target needs none of this: one pass of sixteen bytes at a time finds that out.

use std::borrow::Cow;
use std::fmt;

use memchr::{memchr, memrchr};
use weir_sys::bytes;

use crate::Span;
use crate::block::{BLOCK, below, load};
use crate::escape::{self, UnescapeMode, digit_value};

/// What [`normalize`] found; the path itself is the whole of the `out` buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NormalizedUri {
    /// Length of the normalised path, in bytes; equals `out.len()`.
    pub path_len: usize,
    /// The arguments after `?`, without it and without a fragment, raw; a span into the target. `None` when there is
    /// no `?`, an empty span when nothing follows it.
    pub args: Option<Span>,
    /// The extension of the last path segment without its dot, a span into `out`; `None` when it is absent or
    /// empty. A leading dot starts a hidden file's name, not an extension.
    pub exten: Option<Span>,
    /// Whether the path differs from what was sent. When `false`, `target[..path_len]` is the path too, and no copy
    /// is needed to keep it.
    pub changed: bool,
}

/// Why a target was refused. All of them are the client's fault; the response is 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadUri {
    /// The target does not begin with `/`.
    NotAbsolutePath,
    /// `%` is not followed by two hexadecimal digits.
    BadEscape,
    /// `%00`.
    Nul,
    /// A raw control byte, space or DEL.
    Control,
    /// `..` climbs above the root.
    AboveRoot,
    /// The target is longer than a [`Span`] can express.
    TooLong,
    /// A URI given by an upstream or the configuration is empty, holds NUL or a `..` segment.
    Unsafe,
}

impl BadUri {
    /// The status of the response.
    pub fn status(self) -> u16 {
        400
    }
}

impl fmt::Display for BadUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadUri::NotAbsolutePath => "the request target does not begin with \"/\"",
            BadUri::BadEscape => "invalid percent-escape in the request target",
            BadUri::Nul => "NUL in the request target",
            BadUri::Control => "control character in the request target",
            BadUri::AboveRoot => "the request target points above the root",
            BadUri::TooLong => "the request target is too long",
            BadUri::Unsafe => "unsafe URI was detected",
        })
    }
}

impl std::error::Error for BadUri {}

/// Normalises an origin-form target (RFC 9112, section 3.2.1) into `out`, which is cleared first.
///
/// # Errors
/// [`BadUri`]; `out` then holds nothing of use.
pub fn normalize(target: &[u8], merge_slashes: bool, out: &mut Vec<u8>) -> Result<NormalizedUri, BadUri> {
    if target.first() != Some(&b'/') {
        return Err(BadUri::NotAbsolutePath);
    }
    out.clear();
    if let Some(normalized) = short(target) {
        out.extend_from_slice(target);
        return Ok(normalized);
    }
    long(target, merge_slashes, out)
}

/// [`normalize`] into the empty `out`, for a target of any form.
fn long(target: &[u8], merge_slashes: bool, out: &mut Vec<u8>) -> Result<NormalizedUri, BadUri> {
    let plain = plain_prefix(target);
    let (path_end, changed) = match target.get(plain) {
        None | Some(b'?') => {
            out.extend_from_slice(target.get(..plain).unwrap_or_default());
            (plain, false)
        }
        Some(_) => {
            let end = decode_path(target, merge_slashes, out)?;
            (end, target.get(..end) != Some(out.as_slice()))
        }
    };
    Ok(NormalizedUri {
        path_len: out.len(),
        args: args(target, path_end)?,
        exten: extension(out, LEADING_DOTS_OF_REQUEST),
        changed,
    })
}

/// A target of at most 16 bytes that is a plain path and nothing else: all at once.
#[inline]
fn short(target: &[u8]) -> Option<NormalizedUri> {
    let length = target.len();
    if length > BLOCK {
        return None;
    }
    let (block, inside) = (load(target), below(length));
    let slashes = u32::from(bytes::equal(&block, b'/'));
    let dots = u32::from(bytes::equal(&block, b'.'));
    // A dot after a dot may be a leading one, or no extension's.
    if (special(&block) | slashes << 1 & (slashes | dots) | dots << 1 & dots) & inside != 0 {
        return None;
    }
    let end = length as u32;
    let start = u32::BITS - (slashes | dots).leading_zeros();
    let is_extension = dots > slashes && start < end;
    let exten = is_extension.then_some(Span { start, end });
    Some(NormalizedUri { path_len: length, args: None, exten, changed: false })
}

/// As [`normalize`], for what follows the authority of an absolute-form target: an empty path means `/`
/// (RFC 9112, section 3.2.2). Then `changed` is set, and arguments still are a span into `rest`.
///
/// # Errors
/// [`BadUri`], as [`normalize`].
pub fn normalize_absolute(
    rest: &[u8],
    merge_slashes: bool,
    out: &mut Vec<u8>,
) -> Result<NormalizedUri, BadUri> {
    if !matches!(rest.first(), None | Some(b'?' | b'#')) {
        return normalize(rest, merge_slashes, out);
    }
    out.clear();
    out.push(b'/');
    Ok(NormalizedUri { path_len: 1, args: args(rest, 0)?, exten: None, changed: true })
}

/// The extension (without dot) of an already normalised path that did not come from [`normalize`]: after a rewrite
/// or an internal redirect. A span into `path`; `None` when it is absent or empty.
pub fn exten(path: &[u8]) -> Option<Span> {
    extension(path, LEADING_DOTS_OF_REDIRECT)
}

/// A checked target of an internal redirect, `X-Accel-Redirect`, `error_page` or a Lua `exec`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InternalTarget<'a> {
    /// The path, decoded when it held escapes.
    pub path: Cow<'a, [u8]>,
    /// What follows `?`, not decoded; `None` without `?`.
    pub args: Option<&'a [u8]>,
}

/// Splits and checks a URI named by an upstream or a script: it may not be empty, hold NUL or a `..` segment, neither
/// as written nor decoded.
///
/// # Errors
/// [`BadUri::Unsafe`]; nginx logs `unsafe URI "…" was detected`.
pub fn internal_target(uri: &[u8]) -> Result<InternalTarget<'_>, BadUri> {
    let (path, args) = match memchr(b'?', uri).and_then(|at| uri.split_at_checked(at)) {
        Some((path, query)) => (path, query.get(1..)),
        None => (uri, None),
    };
    if path.is_empty() || is_unsafe(path) {
        return Err(BadUri::Unsafe);
    }
    if memchr(b'%', path).is_none() {
        return Ok(InternalTarget { path: Cow::Borrowed(path), args });
    }
    let mut decoded = Vec::with_capacity(path.len());
    escape::unescape(&mut decoded, path, UnescapeMode::All);
    if is_unsafe(&decoded) {
        return Err(BadUri::Unsafe);
    }
    Ok(InternalTarget { path: Cow::Owned(decoded), args })
}

/// Whether a path holds NUL or a `..` segment and so must not be mapped to a file.
pub fn is_unsafe(path: &[u8]) -> bool {
    memchr(0, path).is_some() || path.split(|&byte| byte == b'/').any(|segment| segment == b"..")
}

/// nginx's request parser lets up to three leading dots of a segment pass without starting an extension…
const LEADING_DOTS_OF_REQUEST: usize = 3;
/// …and its internal redirects one.
const LEADING_DOTS_OF_REDIRECT: usize = 1;

fn extension(path: &[u8], leading_dots: usize) -> Option<Span> {
    // Names are short, and a dot after another byte than these is no leading one.
    let last = path.iter().rposition(|byte| matches!(byte, b'.' | b'/'))?;
    match path.get(last.wrapping_sub(1)..=last) {
        Some([_, b'/']) => return None,
        Some([b'.' | b'/', b'.']) | None => {}
        Some(_) => return (last + 1 < path.len()).then(|| span(last + 1, path.len()).ok())?,
    }
    let start = memrchr(b'/', path).map_or(0, |at| at + 1);
    let name = path.get(start..)?;
    let dots = name.iter().take(leading_dots).take_while(|&&byte| byte == b'.').count();
    let dot = start + dots + memrchr(b'.', name.get(dots..)?)?;
    (dot + 1 < path.len()).then(|| span(dot + 1, path.len()).ok())?
}

/// The arguments of a target whose path ends at `path_end`.
fn args(target: &[u8], path_end: usize) -> Result<Option<Span>, BadUri> {
    let Some((b'?', query)) = target.get(path_end..).and_then(<[u8]>::split_first) else { return Ok(None) };
    let query = memchr(b'#', query).and_then(|end| query.get(..end)).unwrap_or(query);
    if query.iter().any(|&byte| is_control(byte)) {
        return Err(BadUri::Control);
    }
    span(path_end + 1, path_end + 1 + query.len()).map(Some)
}

fn span(start: usize, end: usize) -> Result<Span, BadUri> {
    let narrow = |at: usize| u32::try_from(at).map_err(|_| BadUri::TooLong);
    Ok(Span { start: narrow(start)?, end: narrow(end)? })
}

fn is_control(byte: u8) -> bool {
    byte <= b' ' || byte == 0x7f
}

/// Decodes and resolves the path part of `target` into the empty `out`; returns where the path ended in `target`.
fn decode_path(target: &[u8], merge_slashes: bool, out: &mut Vec<u8>) -> Result<usize, BadUri> {
    out.reserve(target.len());
    let mut path = PathBuilder { out, segment: 0, merge_slashes };
    let mut at = 0;
    while let Some(&byte) = target.get(at) {
        let (decoded, used) = match byte {
            b'?' | b'#' => break,
            b'%' => (decode_escape(target.get(at + 1..at + 3))?, 3),
            _ if is_control(byte) => return Err(BadUri::Control),
            _ => (byte, 1),
        };
        match decoded {
            b'/' => path.slash()?,
            _ => path.out.push(decoded),
        }
        at += used;
    }
    path.close()?;
    Ok(at)
}

fn decode_escape(digits: Option<&[u8]>) -> Result<u8, BadUri> {
    let Some(&[high, low]) = digits else { return Err(BadUri::BadEscape) };
    match (digit_value(high), digit_value(low)) {
        (Some(0), Some(0)) => Err(BadUri::Nul),
        (Some(high), Some(low)) => Ok(high << 4 | low),
        _ => Err(BadUri::BadEscape),
    }
}

/// The path under construction. Every finished segment in `out` is followed by its `/`.
struct PathBuilder<'a> {
    out: &'a mut Vec<u8>,
    /// Where the unfinished last segment starts in `out`.
    segment: usize,
    merge_slashes: bool,
}

impl PathBuilder<'_> {
    /// Resolves the last segment when it is `.` or `..`; then `out` ends with the `/` before what was removed.
    fn close(&mut self) -> Result<bool, BadUri> {
        let keep = match self.out.get(self.segment..) {
            Some(b".") => self.segment,
            Some(b"..") => {
                let parents = self.out.get(..self.segment.saturating_sub(1)).unwrap_or_default();
                memrchr(b'/', parents).ok_or(BadUri::AboveRoot)? + 1
            }
            _ => return Ok(false),
        };
        self.out.truncate(keep);
        Ok(true)
    }

    fn slash(&mut self) -> Result<(), BadUri> {
        let resolved = self.close()?;
        let merged = self.merge_slashes && self.out.last() == Some(&b'/');
        if !resolved && !merged {
            self.out.push(b'/');
        }
        self.segment = self.out.len();
        Ok(())
    }
}

/// How many leading bytes of `target` are path bytes that need no work: stops at `%`, `?`, `#`, a byte never allowed,
/// and at `/` or `.` after a `/`.
fn plain_prefix(target: &[u8]) -> usize {
    let (blocks, tail) = target.as_chunks::<BLOCK>();
    let mut slash_before = 0;
    for (index, block) in blocks.iter().enumerate() {
        let marks = attention(block, &mut slash_before);
        if marks != 0 {
            return index * BLOCK + marks.trailing_zeros() as usize;
        }
    }
    let marks = attention(&load(tail), &mut slash_before) | !below(tail.len());
    target.len() - tail.len() + marks.trailing_zeros() as usize
}

/// A bit for each byte of `block` that ends the plain prefix. `slash_before` carries a `/` at the end of the block
/// before.
fn attention(block: &[u8; BLOCK], slash_before: &mut u32) -> u32 {
    let slashes = u32::from(bytes::equal(block, b'/'));
    let behind_slash = slashes << 1 | *slash_before;
    *slash_before = slashes >> (BLOCK - 1);
    special(block) | behind_slash & (slashes | u32::from(bytes::equal(block, b'.')))
}

/// The bytes that are no part of a path as it is.
#[inline(always)]
fn special(block: &[u8; BLOCK]) -> u32 {
    let marks = bytes::equal(block, b'%') | bytes::equal(block, b'?') | bytes::equal(block, b'#');
    u32::from(marks | bytes::target_ends(block))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::escape::EscapeSet;

    /// Path, args and extension as text.
    type Parts = (String, Option<String>, Option<String>);

    fn parts(target: &[u8], merge_slashes: bool) -> Result<Parts, BadUri> {
        let mut out = b"left over".to_vec();
        let found = normalize(target, merge_slashes, &mut out)?;
        assert_eq!(found.path_len, out.len());
        if !found.changed {
            assert_eq!(target.get(..found.path_len), Some(out.as_slice()));
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((
            text(&out),
            found.args.map(|span| text(span.of(target))),
            found.exten.map(|span| text(span.of(&out))),
        ))
    }

    fn path(target: &str) -> Result<String, BadUri> {
        parts(target.as_bytes(), true).map(|(path, ..)| path)
    }

    #[test]
    fn paths_come_out_as_nginx_sees_them() {
        for (target, expected) in [
            ("/", "/"),
            ("/index.html", "/index.html"),
            ("/a//b///c", "/a/b/c"),
            ("//", "/"),
            ("/./a/./b/.", "/a/b/"),
            ("/a/b/..", "/a/"),
            ("/a/b/../", "/a/"),
            ("/a/../b", "/b"),
            ("/a/b/../../c", "/c"),
            ("/a//../b", "/b"),
            ("/...", "/..."),
            ("/..a/.b", "/..a/.b"),
            ("/%61%2Fb", "/a/b"),
            ("/a/%2e%2e/b", "/b"),
            ("/a/.%2E/b", "/b"),
            ("/a%2f..%2fb", "/b"),
            ("/a/%2e", "/a/"),
            ("/%252e%252e/", "/%2e%2e/"),
            ("/a%23b%3fc%25", "/a#b?c%"),
            ("/..%3f", "/..?"),
            ("/a+b%2Bc", "/a+b+c"),
            ("/a#b?c", "/a"),
            ("/a/..#x", "/"),
            ("/a/..?x", "/"),
            ("/%20%0a%7f", "/ \n\x7f"),
            ("/well/.well-known/x", "/well/.well-known/x"),
            ("/eight77/.hidden/8", "/eight77/.hidden/8"),
            ("/seven77/../8", "/8"),
        ] {
            assert_eq!(path(target).as_deref(), Ok(expected), "{target}");
        }
    }

    #[test]
    fn slashes_stay_when_merging_is_off() {
        let path = |target: &str| parts(target.as_bytes(), false).map(|(path, ..)| path);
        assert_eq!(path("/a//b").as_deref(), Ok("/a//b"));
        assert_eq!(path("/a//../b").as_deref(), Ok("/a/b"));
        assert_eq!(path("//..").as_deref(), Ok("/"));
        assert_eq!(path("/.//").as_deref(), Ok("//"));
        assert_eq!(path("/a/%2f/b").as_deref(), Ok("/a///b"));
    }

    #[test]
    fn what_nginx_answers_with_400_is_refused() {
        for (target, error) in [
            ("", BadUri::NotAbsolutePath),
            ("a", BadUri::NotAbsolutePath),
            ("?a", BadUri::NotAbsolutePath),
            ("/..", BadUri::AboveRoot),
            ("/../", BadUri::AboveRoot),
            ("/a/../../b", BadUri::AboveRoot),
            ("//..%2f..", BadUri::AboveRoot),
            ("/..?a", BadUri::AboveRoot),
            ("/%", BadUri::BadEscape),
            ("/%4", BadUri::BadEscape),
            ("/%4?1", BadUri::BadEscape),
            ("/%g1", BadUri::BadEscape),
            ("/%1g", BadUri::BadEscape),
            ("/%00", BadUri::Nul),
            ("/a b", BadUri::Control),
            ("/aaaaaaaaaaaa\x01", BadUri::Control),
            ("/a\x7f", BadUri::Control),
            ("/a?b\n", BadUri::Control),
            ("/%61\t", BadUri::Control),
        ] {
            assert_eq!(path(target), Err(error), "{target:?}");
            assert_eq!(error.status(), 400);
        }
    }

    #[test]
    fn arguments_stay_raw_and_lose_the_fragment() {
        let args = |target: &str| parts(target.as_bytes(), true).map(|(_, args, _)| args);
        assert_eq!(args("/a"), Ok(None));
        assert_eq!(args("/a#?b"), Ok(None));
        assert_eq!(args("/a?"), Ok(Some(String::new())));
        assert_eq!(args("/a?b=%41&c=/../?d"), Ok(Some("b=%41&c=/../?d".to_owned())));
        assert_eq!(args("/%61?b#c"), Ok(Some("b".to_owned())));
        assert_eq!(args("/a?#"), Ok(Some(String::new())));
    }

    #[test]
    fn extensions_follow_nginx() {
        for (target, expected) in [
            ("/a", None),
            ("/a.html", Some("html")),
            ("/a.tar.gz?x.y", Some("gz")),
            ("/a.b/c", None),
            ("/a.", None),
            ("/a..", None),
            ("/...", None),
            ("/.bashrc", None),
            ("/.a.b", Some("b")),
            ("/..a", None),
            ("/...a", None),
            ("/....a", Some("a")),
            ("/x/../a.%68tml", Some("html")),
        ] {
            let exten = parts(target.as_bytes(), true).map(|(.., exten)| exten);
            assert_eq!(exten, Ok(expected.map(str::to_owned)), "{target}");
        }
        let after_redirect = |path: &'static [u8]| exten(path).map(|span| span.of(path));
        assert_eq!(after_redirect(b"/a.php"), Some(b"php".as_slice()));
        assert_eq!(after_redirect(b"/..a"), Some(b"a".as_slice()));
        assert_eq!(after_redirect(b"/.a"), None);
        assert_eq!(after_redirect(b""), None);
    }

    #[test]
    fn an_absolute_form_without_path_means_the_root() {
        let mut out = Vec::new();
        let found = normalize_absolute(b"?a=b#c", true, &mut out).expect("valid");
        assert_eq!(
            (out.as_slice(), found.args.map(|span| span.of(b"?a=b#c"))),
            (&b"/"[..], Some(&b"a=b"[..]))
        );
        assert!(found.changed);
        let found = normalize_absolute(b"/x/../y.z", true, &mut out).expect("valid");
        assert_eq!((out.as_slice(), found.changed), (&b"/y.z"[..], true));
        assert_eq!(normalize_absolute(b"x", true, &mut out), Err(BadUri::NotAbsolutePath));
    }

    #[test]
    fn internal_targets_may_not_climb() {
        for unsafe_uri in
            ["", "?a", "..", "../a", "/a/..", "/a/../b", "/%2e%2e/a", "/a%2f..", "/a\0", "/a%00", "%2e%2e"]
        {
            assert_eq!(internal_target(unsafe_uri.as_bytes()), Err(BadUri::Unsafe), "{unsafe_uri:?}");
        }
        for (uri, path, args) in [
            ("/a", "/a", None),
            ("/a?b/../c", "/a", Some("b/../c")),
            ("/%61%20b?", "/a b", Some("")),
            ("/..a/b../...", "/..a/b../...", None),
        ] {
            let target = internal_target(uri.as_bytes()).expect(uri);
            assert_eq!(&*target.path, path.as_bytes());
            assert_eq!(target.args, args.map(str::as_bytes));
        }
    }

    /// Targets made of what matters: segments, escapes, marks and a few plain bytes.
    fn target() -> impl Strategy<Value = Vec<u8>> {
        const PIECES: [&str; 20] = [
            "/",
            "/",
            ".",
            "..",
            "/../",
            "/./",
            "//",
            "a",
            "long-segment",
            ".html",
            "%2e",
            "%2F",
            "%41",
            "%25",
            "%3f",
            "%2",
            "?",
            "#",
            "+",
            "\u{fc}",
        ];
        vec(select(PIECES.as_slice()), 0..12).prop_map(|pieces| {
            let mut target = b"/".to_vec();
            pieces.iter().for_each(|piece| target.extend_from_slice(piece.as_bytes()));
            target
        })
    }

    proptest! {
        #[test]
        fn a_short_target_reads_as_a_long_one(rest in "[/.%?#a-z0-9 \\x00\\x1f\\x7f]{0,16}") {
            let (target, mut out) = (format!("/{rest}"), Vec::new());
            if let Some(short) = short(target.as_bytes()) {
                prop_assert_eq!(long(target.as_bytes(), true, &mut out), Ok(short));
                prop_assert_eq!(out, target.as_bytes());
            } else if target.len() <= BLOCK && !target.contains("..") && !target.contains("/.") && !target.contains('#') {
                let plain = long(target.as_bytes(), true, &mut out).is_ok_and(|found| !found.changed && found.args.is_none());
                prop_assert!(!plain, "{target:?} needs nothing");
            }
        }

        #[test]
        fn a_normalised_path_has_nothing_left_to_resolve(target in target()) {
            let mut out = Vec::new();
            if normalize(&target, true, &mut out).is_ok() {
                prop_assert!(out.starts_with(b"/"));
                prop_assert!(!out.windows(2).any(|pair| pair == b"//"));
                prop_assert!(!out.split(|&byte| byte == b'/').any(|name| name == b"." || name == b".."));
            }
        }

        #[test]
        fn escaping_a_path_brings_it_back(target in target(), merge in any::<bool>()) {
            let (mut once, mut escaped, mut twice) = (Vec::new(), Vec::new(), Vec::new());
            if normalize(&target, merge, &mut once).is_ok() {
                escape::escape(&mut escaped, &once, EscapeSet::Uri);
                prop_assert_eq!(normalize(&escaped, merge, &mut twice).map(|found| found.args), Ok(None));
                prop_assert_eq!(once, twice);
            }
        }

        #[test]
        fn the_fast_path_agrees_with_the_slow_one(target in target(), merge in any::<bool>()) {
            let (mut fast, mut slow) = (Vec::new(), Vec::new());
            let found = normalize(&target, merge, &mut fast);
            let end = decode_path(&target, merge, &mut slow);
            prop_assert_eq!(found.map(|_| fast), end.map(|_| slow));
        }

        #[test]
        fn the_plain_prefix_is_what_a_byte_loop_finds(target in vec(any::<u8>(), 0..40)) {
            let naive = target.iter().enumerate().position(|(at, &byte)| {
                let behind_slash = at > 0 && target[at - 1] == b'/';
                is_control(byte) || b"%?#".contains(&byte) || behind_slash && b"/.".contains(&byte)
            });
            prop_assert_eq!(plain_prefix(&target), naive.unwrap_or(target.len()));
        }

        #[test]
        fn no_bytes_make_it_panic(target in vec(any::<u8>(), 0..64), merge in any::<bool>()) {
            let mut out = Vec::new();
            let _ = normalize(&target, merge, &mut out);
            let _ = normalize_absolute(&target, merge, &mut out);
            let _ = internal_target(&target);
        }
    }
}
