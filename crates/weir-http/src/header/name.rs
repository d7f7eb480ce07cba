//! The field names a server meets, as one table whose columns have the properties that nginx and the RFCs give each.
//!
//! [`classify`] turns a name into its row: its bytes as two integers choose
//! one candidate by a multiplication made perfect at compile time. No loop over bytes, no
//! allocation; about 5 ns a name.

/// The table: variant, canonical name, properties.
macro_rules! known {
    ($($variant:ident $name:literal $($flag:ident)*,)*) => {
        /// A field name with a row in the table.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum KnownField {
            /// Any name that is not in the table.
            #[default]
            Other = 0,
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        static ROWS: [KnownFieldRow; 1 $(+ { let _ = KnownField::$variant; 1 })*] = [
            KnownFieldRow { known: KnownField::Other, name: "", label: ": ", flags: 0, key: NameWords::ZERO },
            $(KnownFieldRow {
                known: KnownField::$variant,
                name: $name,
                label: concat!($name, ": "),
                flags: 0 $(| $flag)*,
                key: key($name),
            },)*
        ];
    };
}

known! {
    Host "Host" SINGLE NO_TRAILER,
    Connection "Connection" HOP NO_TRAILER,
    UserAgent "User-Agent",
    Accept "Accept",
    AcceptEncoding "Accept-Encoding",
    AcceptLanguage "Accept-Language",
    AcceptCharset "Accept-Charset",
    Cookie "Cookie",
    Referer "Referer",
    CacheControl "Cache-Control" NO_TRAILER,
    UpgradeInsecureRequests "Upgrade-Insecure-Requests",
    ContentLength "Content-Length" SINGLE NO_TRAILER,
    ContentType "Content-Type" NO_TRAILER,
    ContentEncoding "Content-Encoding" NO_TRAILER,
    ContentRange "Content-Range" SINGLE NO_TRAILER,
    ContentLanguage "Content-Language",
    ContentLocation "Content-Location",
    ContentDisposition "Content-Disposition",
    ContentMd5 "Content-MD5",
    ContentSecurityPolicy "Content-Security-Policy",
    ContentDigest "Content-Digest",
    ReprDigest "Repr-Digest",
    TransferEncoding "Transfer-Encoding" HOP SINGLE NO_TRAILER,
    Te "TE" HOP NO_TRAILER,
    Trailer "Trailer" HOP NO_TRAILER,
    Upgrade "Upgrade" HOP NO_TRAILER,
    KeepAlive "Keep-Alive" HOP NO_TRAILER,
    ProxyConnection "Proxy-Connection" HOP NO_TRAILER,
    Expect "Expect" SINGLE NO_TRAILER,
    IfModifiedSince "If-Modified-Since" SINGLE NO_TRAILER,
    IfNoneMatch "If-None-Match" SINGLE NO_TRAILER,
    IfMatch "If-Match" SINGLE NO_TRAILER,
    IfUnmodifiedSince "If-Unmodified-Since" SINGLE NO_TRAILER,
    IfRange "If-Range" SINGLE NO_TRAILER,
    Range "Range" NO_TRAILER,
    Authorization "Authorization" SINGLE NO_TRAILER,
    ProxyAuthorization "Proxy-Authorization" HOP SINGLE NO_TRAILER,
    MaxForwards "Max-Forwards" NO_TRAILER,
    Pragma "Pragma" NO_TRAILER,
    Origin "Origin",
    From "From",
    Via "Via",
    Forwarded "Forwarded",
    XForwardedFor "X-Forwarded-For",
    XForwardedProto "X-Forwarded-Proto",
    XForwardedHost "X-Forwarded-Host",
    XForwardedPort "X-Forwarded-Port",
    XRealIp "X-Real-IP",
    XRequestId "X-Request-ID",
    XRequestedWith "X-Requested-With",
    XHttpMethodOverride "X-HTTP-Method-Override",
    Dnt "DNT",
    Priority "Priority",
    Http2Settings "HTTP2-Settings" HOP NO_TRAILER,
    EarlyData "Early-Data" NO_TRAILER,
    SecFetchSite "Sec-Fetch-Site",
    SecFetchMode "Sec-Fetch-Mode",
    SecFetchDest "Sec-Fetch-Dest",
    SecFetchUser "Sec-Fetch-User",
    SecChUa "Sec-CH-UA",
    SecChUaMobile "Sec-CH-UA-Mobile",
    SecChUaPlatform "Sec-CH-UA-Platform",
    SecGpc "Sec-GPC",
    SecWebsocketKey "Sec-WebSocket-Key",
    SecWebsocketVersion "Sec-WebSocket-Version",
    SecWebsocketProtocol "Sec-WebSocket-Protocol",
    SecWebsocketExtensions "Sec-WebSocket-Extensions",
    SecWebsocketAccept "Sec-WebSocket-Accept",
    Traceparent "Traceparent",
    Tracestate "Tracestate",
    AccessControlRequestMethod "Access-Control-Request-Method",
    AccessControlRequestHeaders "Access-Control-Request-Headers",
    AccessControlAllowOrigin "Access-Control-Allow-Origin",
    AccessControlAllowMethods "Access-Control-Allow-Methods",
    AccessControlAllowHeaders "Access-Control-Allow-Headers",
    AccessControlAllowCredentials "Access-Control-Allow-Credentials",
    AccessControlExposeHeaders "Access-Control-Expose-Headers",
    AccessControlMaxAge "Access-Control-Max-Age",
    Depth "Depth",
    Destination "Destination",
    Overwrite "Overwrite",
    LockToken "Lock-Token",
    Timeout "Timeout",
    If "If",
    Dav "DAV",
    Date "Date",
    Server "Server",
    Etag "ETag",
    LastModified "Last-Modified",
    Location "Location" NO_TRAILER,
    SetCookie "Set-Cookie" NO_TRAILER,
    Vary "Vary" NO_TRAILER,
    Expires "Expires" NO_TRAILER,
    Age "Age" NO_TRAILER,
    AcceptRanges "Accept-Ranges",
    Allow "Allow",
    Link "Link",
    RetryAfter "Retry-After" NO_TRAILER,
    Refresh "Refresh",
    WwwAuthenticate "WWW-Authenticate" NO_TRAILER,
    ProxyAuthenticate "Proxy-Authenticate" HOP NO_TRAILER,
    AuthenticationInfo "Authentication-Info",
    AltSvc "Alt-Svc",
    ServerTiming "Server-Timing",
    StrictTransportSecurity "Strict-Transport-Security",
    XFrameOptions "X-Frame-Options",
    XContentTypeOptions "X-Content-Type-Options",
    XPoweredBy "X-Powered-By",
    XAccelRedirect "X-Accel-Redirect",
    XAccelExpires "X-Accel-Expires",
    XAccelLimitRate "X-Accel-Limit-Rate",
    XAccelBuffering "X-Accel-Buffering",
    XAccelCharset "X-Accel-Charset",
    Status "Status",
    GrpcStatus "Grpc-Status",
    GrpcMessage "Grpc-Message",
}

impl KnownField {
    /// A field of requests that asks for less than the whole response: conditions and ranges.
    pub const fn is_partial(self) -> bool {
        matches!(
            self,
            KnownField::IfModifiedSince
                | KnownField::IfUnmodifiedSince
                | KnownField::IfNoneMatch
                | KnownField::IfMatch
                | KnownField::Range
                | KnownField::IfRange
        )
    }

    /// How many rows there are, `Other` included: the size of a table indexed by `known as usize`.
    pub const COUNT: usize = ROWS.len();

    /// Every name with a row, `Other` left out.
    pub fn all() -> impl Iterator<Item = KnownField> {
        ROWS.iter().skip(1).map(|row| row.known)
    }

    /// The name as written in messages, `"Content-Length"`; empty for `Other`.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The name with what precedes a value, `"Content-Length: "`.
    pub const fn label(self) -> &'static str {
        self.row().label
    }

    /// The name in lower case, `"content-length"`, as HTTP/2, HTTP/3 and variables spell it; empty for `Other`.
    pub const fn lower(self) -> &'static str {
        LOWER_NAMES[self as usize]
    }

    /// Whether a request may carry the field only once; nginx responds with 400 to a second line.
    pub const fn is_single(self) -> bool {
        self.row().flags & SINGLE != 0
    }

    /// Whether the parser of requests acts on the field: framing, the connection, and what may come only once.
    #[inline(always)]
    pub(crate) const fn is_noticed(self) -> bool {
        NOTICED[self as usize / 64] >> (self as usize % 64) & 1 != 0
    }

    /// Whether the field is about one connection and is not passed on (RFC 9110 section 7.6.1).
    pub const fn is_hop_by_hop(self) -> bool {
        self.row().flags & HOP != 0
    }

    /// Whether the field may not come in a trailer section: framing, routing, control data, authentication and
    /// fields that say how to read the content (RFC 9110 section 6.5.1).
    pub const fn forbidden_in_trailer(self) -> bool {
        self.row().flags & NO_TRAILER != 0
    }

    const fn row(self) -> &'static KnownFieldRow {
        &ROWS[self as usize]
    }
}

/// Sixteen bytes of a field's name, as the table compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameWords {
    /// The first eight.
    pub(crate) first: u64,
    /// The last eight.
    pub(crate) last: u64,
}

impl NameWords {
    const ZERO: NameWords = NameWords { first: 0, last: 0 };

    /// The words of sixteen bytes read as a little-endian number.
    #[inline(always)]
    pub(crate) const fn of(bytes: u128) -> NameWords {
        NameWords { first: bytes as u64, last: (bytes >> 64) as u64 }
    }

    /// With bit 5 set in every byte, which makes letters small.
    #[inline(always)]
    const fn small(self) -> NameWords {
        NameWords { first: self.first | SMALL, last: self.last | SMALL }
    }
}

/// The row of `name`, whatever its case; [`KnownField::Other`] when it has none.
pub fn classify(name: &[u8]) -> KnownField {
    let words = words(name);
    let row = candidate(words);
    // Above 16 bytes the words are the end of the name only.
    let start = name.len().saturating_sub(16);
    let starts = name.get(..start).zip(row.name.as_bytes().get(..start));
    let same = starts.is_some_and(|(start, row_start)| start.eq_ignore_ascii_case(row_start));
    if same && row.has(words, name.len()) { row.known } else { KnownField::Other }
}

/// The row of a name of at most 16 bytes, given as the two words of [`words`] and its length.
#[inline(always)]
pub(crate) fn lookup(words: NameWords, length: usize) -> KnownField {
    let row = candidate(words);
    if row.has(words, length) { row.known } else { KnownField::Other }
}

/// As [`lookup`], for a name without control bytes, at a third of the cost: then bit 5 set in every byte makes no
/// byte into one that a row has, but for letters, and a name is its row's when both words and the length are.
#[inline(always)]
pub(crate) fn lookup_clean(words: NameWords, length: usize) -> KnownField {
    let words = words.small();
    let found = &CLEAN[SLOTS[slot(words, MULTIPLIER)] as usize];
    if differ_clean(words, found.words) | (length as u64 ^ found.length) == 0 {
        found.known
    } else {
        KnownField::Other
    }
}

/// The row of a name of any length without control bytes.
pub(crate) fn classify_clean(name: &[u8]) -> KnownField {
    let Some((start, end)) = name.first_chunk::<16>().zip(name.last_chunk::<16>()) else {
        return lookup_clean(words(name), name.len());
    };
    let (start, end) = (words(start).small(), words(end).small());
    let found = &CLEAN[SLOTS[slot(end, MULTIPLIER)] as usize];
    let differ = differ_clean(end, found.words) | differ_clean(start, found.start);
    if differ | (name.len() as u64 ^ found.length) == 0 { found.known } else { KnownField::Other }
}

#[inline(always)]
const fn differ_clean(words: NameWords, row: NameWords) -> u64 {
    (words.first ^ row.first) | (words.last ^ row.last)
}

/// A row as [`lookup_clean`] and [`classify_clean`] compare it.
#[derive(Clone, Copy)]
struct CleanName {
    /// As [`words`], bit 5 set everywhere.
    words: NameWords,
    /// The first 16 bytes in the same way; zeros where there are fewer.
    start: NameWords,
    length: u64,
    known: KnownField,
}

/// As many as a slot can name, so that no index needs a check.
static CLEAN: [CleanName; 256] = {
    let none =
        CleanName { words: NameWords::ZERO, start: NameWords::ZERO, length: 0, known: KnownField::Other };
    let (mut rows, mut row) = ([none; 256], 1);
    while row < ROWS.len() {
        let KnownFieldRow { key, name, known, .. } = ROWS[row];
        let start = match name.as_bytes().first_chunk::<16>() {
            Some(start) => words(start),
            None => NameWords::ZERO,
        };
        rows[row] = CleanName { words: key.small(), start: start.small(), length: name.len() as u64, known };
        row += 1;
    }
    rows
};

/// The first and the last 16 bytes are all there is of a name.
const _: () = assert!(LONGEST <= 32);

/// The only row that a name with these words can have.
#[inline(always)]
fn candidate(words: NameWords) -> &'static KnownFieldRow {
    ROWS.get(SLOTS[slot(words, MULTIPLIER)] as usize).unwrap_or(&ROWS[0])
}

/// One row of the table.
#[derive(Clone, Copy)]
struct KnownFieldRow {
    known: KnownField,
    name: &'static str,
    label: &'static str,
    flags: u8,
    key: NameWords,
}

impl KnownFieldRow {
    /// Whether the row's name has these words, in any case, and this length: padding alone would let NUL pass.
    #[inline(always)]
    const fn has(&self, words: NameWords, length: usize) -> bool {
        differ(words.first, self.key.first) | differ(words.last, self.key.last) == 0
            && self.name.len() == length
    }
}

/// The parser keeps one bit for each row.
const _: () = assert!(ROWS.len() <= 128);

/// One bit for each row: see [`KnownField::is_noticed`].
static NOTICED: [u64; 2] = {
    let (mut noticed, mut row) = ([0; 2], 1);
    while row < ROWS.len() {
        if matches!(ROWS[row].known, KnownField::Connection) || ROWS[row].flags & SINGLE != 0 {
            noticed[row / 64] |= 1 << (row % 64);
        }
        row += 1;
    }
    noticed
};

/// Hop-by-hop.
const HOP: u8 = 1;
/// Once per request.
const SINGLE: u8 = 2;
/// Not in trailers.
const NO_TRAILER: u8 = 4;

/// The longest name in the table, in bytes.
const LONGEST: usize = {
    let (mut longest, mut row) = (0, 0);
    while row < ROWS.len() {
        if ROWS[row].name.len() > longest {
            longest = ROWS[row].name.len();
        }
        row += 1;
    }
    longest
};

/// Bits of a slot number: 8 slots a row, so that about one odd multiplier in thirty parts all rows.
const SLOT_BITS: u32 = 11;

/// Gives every row a slot of its own; searched at compile time, from a value where the search ends soon.
const MULTIPLIER: u64 = {
    let mut multiplier = 0x9e37_79b9_7f4a_7c15;
    while !parts_all_rows(multiplier) {
        multiplier += 2;
    }
    multiplier
};

/// The row that lives in each slot, 0 (`Other`) where none does.
static SLOTS: [u8; 1 << SLOT_BITS] = {
    let mut slots = [0; 1 << SLOT_BITS];
    let mut row = 1;
    while row < ROWS.len() {
        slots[slot(ROWS[row].key, MULTIPLIER)] = row as u8;
        row += 1;
    }
    slots
};

const fn parts_all_rows(multiplier: u64) -> bool {
    let mut taken = [false; 1 << SLOT_BITS];
    let mut row = 1;
    while row < ROWS.len() {
        let slot = slot(ROWS[row].key, multiplier);
        if taken[slot] {
            return false;
        }
        taken[slot] = true;
        row += 1;
    }
    true
}

/// Bit 5 of every byte.
const SMALL: u64 = 0x2020_2020_2020_2020;

/// The slot of a name with these words, in any case: bit 5 set makes letters small.
#[inline(always)]
const fn slot(words: NameWords, multiplier: u64) -> usize {
    let words = words.small();
    let mixed = (words.first ^ words.last.rotate_left(25)).wrapping_mul(multiplier);
    (mixed >> (64 - SLOT_BITS)) as usize
}

/// The bits in which `word` differs from `key`, a word of a name in lower case, other than by case: bit 5 is free
/// where the key has a letter, which is where it has bit 6 set.
#[inline(always)]
const fn differ(word: u64, key: u64) -> u64 {
    const LETTER: u64 = 0x4040_4040_4040_4040;
    (word ^ key) & !((key & LETTER) >> 1)
}

/// The names in lower case, padded with zeros.
static LOWER: [[u8; LONGEST]; ROWS.len()] = {
    let mut table = [[0; LONGEST]; ROWS.len()];
    let mut row = 0;
    while row < ROWS.len() {
        let name = ROWS[row].name.as_bytes();
        let mut at = 0;
        while at < name.len() {
            table[row][at] = name[at].to_ascii_lowercase();
            at += 1;
        }
        row += 1;
    }
    table
};

/// The same as texts: finding out that bytes are one takes a hundred instructions.
static LOWER_NAMES: [&str; ROWS.len()] = {
    let (mut names, mut row) = ([""; ROWS.len()], 0);
    while row < ROWS.len() {
        if let Ok(name) = core::str::from_utf8(LOWER[row].split_at(ROWS[row].name.len()).0) {
            names[row] = name;
        }
        row += 1;
    }
    names
};

/// A name of up to 16 bytes as two words, padded with zeros; of a longer one the last 16 bytes, which in the table
/// distinguish more than the first.
const fn words(name: &[u8]) -> NameWords {
    if let Some(end) = name.last_chunk::<16>() {
        let end = u128::from_le_bytes(*end);
        return NameWords::of(end);
    }
    let (mut both, mut at) = (0_u128, name.len());
    while at > 0 {
        at -= 1;
        both = both << 8 | name[at] as u128;
    }
    NameWords::of(both)
}

/// The words of a name in the table, in lower case.
const fn key(name: &str) -> NameWords {
    let NameWords { first, last } = words(name.as_bytes());
    NameWords { first: lower(first), last: lower(last) }
}

const fn lower(word: u64) -> u64 {
    let mut bytes = word.to_le_bytes();
    bytes.make_ascii_lowercase();
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_row_is_found_in_any_case() {
        assert_eq!(KnownField::all().count() + 1, KnownField::COUNT);
        for known in KnownField::all() {
            let name = known.name();
            assert_eq!(known.lower(), name.to_ascii_lowercase());
            assert_eq!(classify(name.as_bytes()), known);
            assert_eq!(classify(known.lower().as_bytes()), known);
            assert_eq!(classify(name.to_ascii_uppercase().as_bytes()), known);
            assert_eq!(ROWS[known as usize].known, known);
            assert_eq!(classify_clean(name.as_bytes()), known);
            assert_eq!(classify_clean(name.to_ascii_uppercase().as_bytes()), known);
        }
        assert_eq!(KnownField::Other.name(), "");
        assert_eq!(KnownField::Other.lower(), "");
    }

    /// Bytes that differ from those of names by a bit or two that folding case may lose.
    const EDGES: [u8; 14] =
        [0, b'\t', b'\r', 0x10, b' ', b'-', b'0', b'@', b'A', b'M', b'm', 0x7f, b'm' | 0x80, 0xff];

    /// The plain way to look a name up.
    fn linear(name: &[u8]) -> KnownField {
        KnownField::all().find(|known| known.name().as_bytes().eq_ignore_ascii_case(name)).unwrap_or_default()
    }

    #[test]
    fn one_byte_more_or_another_is_another_name() {
        for name in [&b""[..], b"x", b"\0", b"hos", b"hosts", b"content\rlength", b"content-lengtj", b"t\x05"]
        {
            assert_eq!(classify(name), KnownField::Other, "{}", name.escape_ascii());
        }
        for known in KnownField::all() {
            for (place, byte) in
                (0..known.name().len()).flat_map(|place| EDGES.map(move |byte| (place, byte)))
            {
                let mut name = known.name().as_bytes().to_vec();
                name[place] = byte;
                assert_eq!(classify(&name), linear(&name));
                assert!(byte < b' ' || classify_clean(&name) == linear(&name), "{}", name.escape_ascii());
                name[place] = known.name().as_bytes()[place];
                name.insert(place + 1, byte);
                assert_eq!(classify(&name), linear(&name));
                assert!(byte < b' ' || classify_clean(&name) == linear(&name), "{}", name.escape_ascii());
            }
        }
        assert_eq!(classify(&[b'a'; 300]), KnownField::Other);
    }

    #[test]
    fn columns_say_what_the_rfcs_and_nginx_say() {
        assert!(!KnownField::Connection.is_single());
        assert!(KnownField::Host.is_single());
        assert!(KnownField::ContentLength.forbidden_in_trailer() && !KnownField::Etag.forbidden_in_trailer());
        assert!(
            !KnownField::Cookie.is_single()
                && !KnownField::Range.is_single()
                && KnownField::IfRange.is_single()
        );
    }

    proptest! {
        #[test]
        fn agrees_with_a_linear_search(name in "[A-Za-z0-9-]{0,34}") {
            prop_assert_eq!(classify(name.as_bytes()), linear(name.as_bytes()));
            prop_assert_eq!(classify_clean(name.as_bytes()), linear(name.as_bytes()));
        }
    }
}
