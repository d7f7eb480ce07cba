//! Escaping and unescaping, one set of bytes per destination, as nginx has them.
//!
//! What must be escaped depends on where the text goes: a path sent upstream, an argument, a component, a link in an
//! HTML page, a `Refresh` field, a memcached key, a log line. The sets are small constants; the loops copy runs of
//! harmless bytes at once, since nearly every input needs no escape at all.

/// A set of byte values, tested with one shift.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByteSet([u64; 4]);

impl ByteSet {
    /// Every control byte, DEL, everything above ASCII, and the bytes of `more`.
    const fn unprintable_and(more: &[u8]) -> Self {
        let mut words = [0xffff_ffff, 1 << 63, u64::MAX, u64::MAX];
        let mut rest = more;
        while let Some((&byte, tail)) = rest.split_first() {
            words = with(words, byte);
            rest = tail;
        }
        ByteSet(words)
    }

    /// `0x00`-`0x1f` and the bytes of `more`; DEL and bytes above ASCII are not in it.
    const fn controls_and(more: &[u8]) -> Self {
        let ByteSet([low, high, _, _]) = Self::unprintable_and(more);
        ByteSet([low, high & !(1 << 63), 0, 0])
    }

    /// Whether `byte` is in the set.
    #[inline]
    pub(crate) fn contains(&self, byte: u8) -> bool {
        let word = self.0.get(usize::from(byte >> 6)).copied().unwrap_or(0);
        word >> (byte & 63) & 1 != 0
    }
}

const fn with(words: [u64; 4], byte: u8) -> [u64; 4] {
    let [a, b, c, d] = words;
    let bit = 1 << (byte & 63);
    match byte >> 6 {
        0 => [a | bit, b, c, d],
        1 => [a, b | bit, c, d],
        2 => [a, b, c | bit, d],
        _ => [a, b, c, d | bit],
    }
}

/// Where percent-escaped text is going; decides which bytes are escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EscapeSet {
    /// A path: everything RFC 3986 does not allow in one, and `#`, `%`, `?`.
    Uri,
    /// A query argument: as [`EscapeSet::Uri`], and `&`, `+`, `;`.
    Args,
    /// One component: all but letters, digits, `-`, `.`, `_` and `~`.
    UriComponent,
    /// A link inside an HTML attribute: as [`EscapeSet::Uri`] without `?`, and both quotes.
    Html,
    /// The URL of a `Refresh` field or a `<meta>` refresh: an already escaped URI, made safe against quotes.
    Refresh,
    /// A memcached key: controls, space and `%`.
    Memcached,
}

impl EscapeSet {
    fn bytes(self) -> &'static ByteSet {
        match self {
            EscapeSet::Uri => &URI,
            EscapeSet::Args => &ARGS,
            EscapeSet::UriComponent => &COMPONENT,
            EscapeSet::Html => &HTML,
            EscapeSet::Refresh => &REFRESH,
            EscapeSet::Memcached => &MEMCACHED,
        }
    }
}

static URI: ByteSet = ByteSet::unprintable_and(b" \"#%<>?\\^`{|}");
static ARGS: ByteSet = ByteSet::unprintable_and(b" \"#%&+;<>?\\^`{|}");
static COMPONENT: ByteSet = ByteSet::unprintable_and(b" !\"#$%&'()*+,/:;<=>?@[\\]^`{|}");
static HTML: ByteSet = ByteSet::unprintable_and(b" \"#%'<>\\^`{|}");
static REFRESH: ByteSet = ByteSet::unprintable_and(b" \"'<>\\^`{|}");
static MEMCACHED: ByteSet = ByteSet::controls_and(b" %");
static LOG: ByteSet = ByteSet::unprintable_and(b"\"\\");

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// How many bytes of `source` [`escape`] would replace by three.
pub fn count(source: &[u8], set: EscapeSet) -> usize {
    let bytes = set.bytes();
    source.iter().filter(|&&byte| bytes.contains(byte)).count()
}

/// Appends `source` to `out`, each byte of `set` as `%XX` with upper-case digits.
pub fn escape(out: &mut Vec<u8>, source: &[u8], set: EscapeSet) {
    let bytes = set.bytes();
    runs(out, source, |byte| bytes.contains(byte), |out, byte| hex(out, b"%", byte));
}

/// Appends `source` with `<`, `>`, `&` and `"` as character references, for text inside an HTML page.
pub fn html(out: &mut Vec<u8>, source: &[u8]) {
    runs(
        out,
        source,
        |byte| matches!(byte, b'<' | b'>' | b'&' | b'"'),
        |out, byte| {
            out.extend_from_slice(match byte {
                b'<' => b"&lt;",
                b'>' => b"&gt;",
                b'&' => b"&amp;",
                _ => b"&quot;",
            });
        },
    );
}

/// Appends `source` as nginx's `log_format escape=default`: quotes, backslash, controls, DEL and bytes above ASCII
/// as `\xXX`. A variable without a value is a single `-`; that is the caller's to write.
pub fn log_default(out: &mut Vec<u8>, source: &[u8]) {
    runs(out, source, |byte| LOG.contains(byte), |out, byte| hex(out, b"\\x", byte));
}

/// Appends `source` as the inside of a JSON string (RFC 8259, section 7), as `log_format escape=json` does. Bytes
/// above ASCII pass unchanged, so the line is valid JSON only when the value is valid UTF-8.
pub fn json(out: &mut Vec<u8>, source: &[u8]) {
    runs(out, source, |byte| byte < 0x20 || byte == b'"' || byte == b'\\', json_byte);
}

fn json_byte(out: &mut Vec<u8>, byte: u8) {
    match byte {
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        0x08 => out.extend_from_slice(b"\\b"),
        0x0c => out.extend_from_slice(b"\\f"),
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        control => hex(out, b"\\u00", control),
    }
}

/// How far [`unescape`] decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnescapeMode {
    /// Everything, `?` is an ordinary byte.
    All,
    /// A path: stops after the first `?`, raw or escaped.
    Uri,
    /// A redirect: as [`UnescapeMode::Uri`], and only printable bytes above `%` are decoded; the others stay escaped.
    Redirect,
}

/// Appends the decoded `source` to `out` and returns how many bytes of it were read.
///
/// Lenient, as nginx is with text from its own configuration and from upstreams: a `%` not followed by two digits is
/// dropped together with the digits read so far. Request targets go through [`crate::uri::normalize`], which refuses.
pub fn unescape(out: &mut Vec<u8>, source: &[u8], until: UnescapeMode) -> usize {
    let mut at = 0;
    while let Some(&byte) = source.get(at) {
        at += 1;
        if byte != b'%' {
            out.push(byte);
            if byte == b'?' && until != UnescapeMode::All {
                return at;
            }
            continue;
        }
        let Some((&first, high)) = source.get(at).and_then(|digit| Some((digit, digit_value(*digit)?)))
        else {
            out.extend(source.get(at));
            at += 1;
            continue;
        };
        let Some(&second) = source.get(at + 1) else { return source.len() };
        at += 2;
        let Some(low) = digit_value(second) else { continue };
        let decoded = high << 4 | low;
        if decoded == b'?' && until != UnescapeMode::All {
            out.push(decoded);
            return at;
        }
        if until == UnescapeMode::Redirect && !(b'&'..0x7f).contains(&decoded) {
            out.extend_from_slice(&[b'%', first, second]);
        } else {
            out.push(decoded);
        }
    }
    source.len()
}

/// The value of a hexadecimal digit, either case.
#[inline]
pub(crate) fn digit_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Copies `source` in runs, handing each byte that `special` names to `write`.
fn runs(out: &mut Vec<u8>, source: &[u8], special: impl Fn(u8) -> bool, write: impl Fn(&mut Vec<u8>, u8)) {
    out.reserve(source.len());
    let mut rest = source;
    while let Some(at) = rest.iter().position(|&byte| special(byte)) {
        let (plain, tail) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((&byte, tail)) = tail.split_first() else { return };
        write(out, byte);
        rest = tail;
    }
    out.extend_from_slice(rest);
}

fn hex(out: &mut Vec<u8>, prefix: &[u8], byte: u8) {
    let digit = |value: u8| HEX.get(usize::from(value)).copied().unwrap_or(b'0');
    out.extend_from_slice(prefix);
    out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const SETS: [EscapeSet; 6] = [
        EscapeSet::Uri,
        EscapeSet::Args,
        EscapeSet::UriComponent,
        EscapeSet::Html,
        EscapeSet::Refresh,
        EscapeSet::Memcached,
    ];

    fn escaped(source: &str, set: EscapeSet) -> String {
        let mut out = Vec::new();
        escape(&mut out, source.as_bytes(), set);
        String::from_utf8(out).expect("ASCII in these tests")
    }

    /// Every printable ASCII byte a set escapes, as one string.
    fn printable(set: EscapeSet) -> String {
        (b' '..0x7f).filter(|&byte| set.bytes().contains(byte)).map(char::from).collect()
    }

    #[test]
    fn each_set_escapes_exactly_what_nginx_does() {
        assert_eq!(printable(EscapeSet::Uri), " \"#%<>?\\^`{|}");
        assert_eq!(printable(EscapeSet::Args), " \"#%&+;<>?\\^`{|}");
        assert_eq!(printable(EscapeSet::UriComponent), " !\"#$%&'()*+,/:;<=>?@[\\]^`{|}");
        assert_eq!(printable(EscapeSet::Html), " \"#%'<>\\^`{|}");
        assert_eq!(printable(EscapeSet::Refresh), " \"'<>\\^`{|}");
        assert_eq!(printable(EscapeSet::Memcached), " %");
        for set in SETS {
            let high = set != EscapeSet::Memcached;
            for byte in (0..0x20).chain(0x7f..=0xff) {
                assert_eq!(set.bytes().contains(byte), byte < 0x20 || high, "{set:?} {byte:#x}");
            }
        }
    }

    #[test]
    fn escapes_are_upper_case() {
        assert_eq!(escaped("/a b/\u{fc}?", EscapeSet::Uri), "/a%20b/%C3%BC%3F");
        assert_eq!(escaped("a=1&b+c", EscapeSet::Args), "a=1%26b%2Bc");
        assert_eq!(count("/a b/?".as_bytes(), EscapeSet::Uri), 2);
    }

    #[test]
    fn log_forms_are_those_of_log_format() {
        let with = |write: fn(&mut Vec<u8>, &[u8]), source: &[u8]| {
            let mut out = Vec::new();
            write(&mut out, source);
            String::from_utf8(out).expect("ASCII in these tests")
        };
        assert_eq!(with(log_default, b"a\"b\\c\n\x7f\xff\x00"), "a\\x22b\\x5Cc\\x0A\\x7F\\xFF\\x00");
        assert_eq!(
            with(json, b"a\"b\\c\n\r\t\x08\x0c\x01\x1f\x7f/"),
            "a\\\"b\\\\c\\n\\r\\t\\b\\f\\u0001\\u001F\x7f/"
        );
        assert_eq!(with(html, b"<a href=\"x\">&'</a>"), "&lt;a href=&quot;x&quot;&gt;&amp;'&lt;/a&gt;");
    }

    #[test]
    fn unescaping_is_as_lenient_as_nginx() {
        for (source, until, expected, read) in [
            ("a%20b", UnescapeMode::All, "a b", 5),
            ("a?%3f", UnescapeMode::All, "a??", 5),
            ("a?b%20", UnescapeMode::Uri, "a?", 2),
            ("a%3Fb", UnescapeMode::Uri, "a?", 4),
            ("a%3fb", UnescapeMode::Redirect, "a?", 4),
            ("%41%20%25%7f%26", UnescapeMode::Redirect, "A%20%25%7f&", 15),
            ("%zz", UnescapeMode::All, "zz", 3),
            ("%4zx", UnescapeMode::All, "x", 4),
            ("a%", UnescapeMode::All, "a", 2),
            ("a%4", UnescapeMode::All, "a", 3),
            ("%?b", UnescapeMode::Uri, "?b", 3),
        ] {
            let mut out = Vec::new();
            assert_eq!(unescape(&mut out, source.as_bytes(), until), read, "{source}");
            assert_eq!(String::from_utf8_lossy(&out), expected, "{source}");
        }
    }

    proptest! {
        #[test]
        fn what_is_escaped_with_percent_comes_back(source in vec(any::<u8>(), 0..64)) {
            for set in [EscapeSet::Uri, EscapeSet::Args, EscapeSet::UriComponent, EscapeSet::Html, EscapeSet::Memcached] {
                let (mut out, mut back) = (Vec::new(), Vec::new());
                escape(&mut out, &source, set);
                prop_assert_eq!(out.len(), source.len() + 2 * count(&source, set));
                prop_assert_eq!(unescape(&mut back, &out, UnescapeMode::All), out.len());
                prop_assert_eq!(&back, &source);
            }
        }

        #[test]
        fn log_lines_stay_one_line(source in vec(any::<u8>(), 0..64)) {
            for write in [log_default, json] {
                let mut out = Vec::new();
                write(&mut out, &source);
                prop_assert!(!out.iter().any(|&byte| byte < b' '));
            }
        }

        #[test]
        fn any_bytes_can_be_unescaped(source in vec(any::<u8>(), 0..64)) {
            for until in [UnescapeMode::All, UnescapeMode::Uri, UnescapeMode::Redirect] {
                let mut out = Vec::new();
                prop_assert!(unescape(&mut out, &source, until) <= source.len());
                prop_assert!(out.len() <= source.len());
            }
        }
    }
}
