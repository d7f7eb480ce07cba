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
pub enum Set {
    /// A path: everything RFC 3986 does not allow in one, and `#`, `%`, `?`.
    Uri,
    /// A query argument: as [`Set::Uri`], and `&`, `+`, `;`.
    Args,
    /// One component: all but letters, digits, `-`, `.`, `_` and `~`.
    UriComponent,
    /// A link inside an HTML attribute: as [`Set::Uri`] without `?`, and both quotes.
    Html,
    /// The URL of a `Refresh` field or a `<meta>` refresh: an already escaped URI, made safe against quotes.
    Refresh,
    /// A memcached key: controls, space and `%`.
    Memcached,
}

impl Set {
    fn bytes(self) -> &'static ByteSet {
        match self {
            Set::Uri => &URI,
            Set::Args => &ARGS,
            Set::UriComponent => &COMPONENT,
            Set::Html => &HTML,
            Set::Refresh => &REFRESH,
            Set::Memcached => &MEMCACHED,
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
pub fn count(source: &[u8], set: Set) -> usize {
    let bytes = set.bytes();
    source.iter().filter(|&&byte| bytes.contains(byte)).count()
}

/// Appends `source` to `out`, each byte of `set` as `%XX` with upper-case digits.
pub fn escape(out: &mut Vec<u8>, source: &[u8], set: Set) {
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
pub enum Unescape {
    /// Everything, `?` is an ordinary byte.
    All,
    /// A path: stops behind the first `?`, raw or escaped.
    Uri,
    /// A redirect: as [`Unescape::Uri`], and only printable bytes above `%` are decoded; the others stay escaped.
    Redirect,
}

/// Appends the decoded `source` to `out` and returns how many bytes of it were read.
///
/// Lenient, as nginx is with text from its own configuration and from upstreams: a `%` not followed by two digits is
/// dropped together with the digits read so far. Request targets go through [`crate::uri::normalize`], which refuses.
pub fn unescape(out: &mut Vec<u8>, source: &[u8], until: Unescape) -> usize {
    let mut at = 0;
    while let Some(&byte) = source.get(at) {
        at += 1;
        if byte != b'%' {
            out.push(byte);
            if byte == b'?' && until != Unescape::All {
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
        if decoded == b'?' && until != Unescape::All {
            out.push(decoded);
            return at;
        }
        if until == Unescape::Redirect && !(b'&'..0x7f).contains(&decoded) {
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
