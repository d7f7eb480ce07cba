//! What a file of the cache begins with: the times, the key, what the response depends on, and the response's head.
//!
//! ```text
//!   0  "weircach"   8  version     12  CRC-32 of all from byte 56 to the body
//!  16  times that change while the file stays: valid until, written, and for how long more it may be used
//!  48  CRC-32 of the times
//!  56  status       60  where the body begins          64  length of the body
//!  72  lengths: key, vary, head                        84  CRC-32 of the body
//!  88  the variant, 16 bytes                          104  "\nKEY: " key "\n" vary head
//! ```
//!
//! Numbers are little-endian. The line with the key is text, so that `grep -r "KEY: …"` finds files, as with nginx.
//! A file that does not begin so, or whose length is not what it says, is not a response.

use super::key::CacheKey;

/// The times of a response, in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheTimes {
    /// Seconds since 1970: it is fresh up to and with this second.
    pub valid: u64,
    /// Seconds since 1970: when it was written, or last confirmed by the server.
    pub date: u64,
    /// Seconds after that for which it may be used while a newer one is fetched.
    pub updating: u64,
    /// Seconds after that for which it may be used when a newer one can't be fetched.
    pub error: u64,
}

/// The beginning of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheHead<'f> {
    /// When the response was received, and until when it is fresh.
    pub times: CacheTimes,
    /// The response's status.
    pub status: u16,
    /// The length of the body, in bytes.
    pub body: u64,
    /// The CRC-32 of the body.
    pub body_sum: u32,
    /// The text of its key.
    pub key: &'f [u8],
    /// The names of fields of requests that the response depends on (`Vary`).
    pub vary: &'f [u8],
    /// The name of the variant it is, where it depends on any.
    pub variant: CacheKey,
    /// Status and reason, and the fields; each line ends with CRLF, the last one is empty.
    pub head: &'f [u8],
}

/// Why a file is not a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadCacheHead {
    /// It is shorter than any.
    Small,
    /// It is not this version's.
    Version,
    /// Its fixed part or the response's head is not what was written: a checksum or a length is wrong.
    Damaged,
    /// Its body is not the one that was written.
    Body,
}

impl BadCacheHead {
    /// nginx's words, after `cache file "…" `.
    pub fn message(self) -> &'static str {
        match self {
            BadCacheHead::Small => "is too small",
            BadCacheHead::Version => "version mismatch",
            BadCacheHead::Damaged => "contains invalid header",
            BadCacheHead::Body => "has a body that does not fit its checksum",
        }
    }
}

impl CacheHead<'_> {
    /// Bytes of all that precedes the body.
    pub fn len(&self) -> usize {
        FIXED + KEY.len() + self.key.len() + 1 + self.vary.len() + self.head.len()
    }

    /// Never: the fixed part is there.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The head as bytes, in the layout that the module describes and with both checksums; the body follows it in the
    /// file.
    pub fn compose(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.times.compose());
        out.extend_from_slice(&u32::from(self.status).to_le_bytes());
        out.extend_from_slice(&(self.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.body.to_le_bytes());
        for part in [self.key, self.vary, self.head] {
            out.extend_from_slice(&(part.len() as u32).to_le_bytes());
        }
        out.extend_from_slice(&self.body_sum.to_le_bytes());
        out.extend_from_slice(&self.variant.0);
        out.extend_from_slice(KEY);
        out.extend_from_slice(self.key);
        out.push(b'\n');
        out.extend_from_slice(self.vary);
        out.extend_from_slice(self.head);
        seal(&mut out);
        out
    }
}

/// Writes the checksums of `head`, a whole one without what follows it, into it.
pub fn seal(head: &mut [u8]) {
    if let Some((times, rest)) = head.get_mut(TIMES..).and_then(|rest| rest.split_at_mut_checked(32))
        && let Some(place) = rest.get_mut(..4)
    {
        place.copy_from_slice(&crc32fast::hash(times).to_le_bytes());
    }
    let sum = head.get(SUMMED..).map(crc32fast::hash);
    if let (Some(sum), Some(place)) = (sum, head.get_mut(12..16)) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
}

impl CacheTimes {
    /// The bytes from [`TIMES`] on, with their checksum.
    pub fn compose(&self) -> [u8; 40] {
        let mut out = [0; 40];
        let parts = [self.valid, self.date, self.updating, self.error];
        for (place, part) in out.as_chunks_mut::<8>().0.iter_mut().zip(parts) {
            *place = part.to_le_bytes();
        }
        let sum = crc32fast::hash(&out[..32]);
        out[32..36].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// The reverse, of the beginning of a file; `None`: they are damaged.
    fn read(all: &[u8]) -> Option<CacheTimes> {
        let at = |number: usize| number64(all, TIMES + number * 8);
        let sum = crc32fast::hash(all.get(TIMES..TIMES + 32)?);
        (sum == number32(all, TIMES + 32)).then(|| CacheTimes {
            valid: at(0),
            date: at(1),
            updating: at(2),
            error: at(3),
        })
    }
}

/// How much must be read to know where the body of the file that begins with `bytes` begins.
///
/// # Errors
/// It is not the cache's, or its head is longer than [`MOST`].
pub fn length(bytes: &[u8]) -> Result<usize, BadCacheHead> {
    let fixed: &[u8; FIXED] = bytes.first_chunk().ok_or(BadCacheHead::Small)?;
    if !fixed.starts_with(MAGIC) || number32(fixed, 8) != VERSION {
        return Err(BadCacheHead::Version);
    }
    let length = number32(fixed, 60) as usize;
    if (FIXED..=MOST).contains(&length) { Ok(length) } else { Err(BadCacheHead::Damaged) }
}

/// Reads the beginning of a file, all of which is in `bytes`; what follows it may be there too.
///
/// # Errors
/// It is not a response.
pub fn parse(bytes: &[u8]) -> Result<CacheHead<'_>, BadCacheHead> {
    let length = length(bytes)?;
    let all = bytes.get(..length).ok_or(BadCacheHead::Small)?;
    if crc32fast::hash(&all[SUMMED..]) != number32(all, 12) {
        return Err(BadCacheHead::Damaged);
    }
    let (rest, whole) = (&all[FIXED..], BadCacheHead::Damaged);
    let rest = rest.strip_prefix(KEY).ok_or(whole)?;
    let (key, rest) = rest.split_at_checked(number32(all, 72) as usize).ok_or(whole)?;
    let rest = rest.strip_prefix(b"\n").ok_or(whole)?;
    let (vary, head) = rest.split_at_checked(number32(all, 76) as usize).ok_or(whole)?;
    let status = u16::try_from(number32(all, 56)).map_err(|_| whole)?;
    if head.len() != number32(all, 80) as usize || !(100..=999).contains(&status) {
        return Err(whole);
    }
    let times = CacheTimes::read(all).ok_or(whole)?;
    let variant = CacheKey(*all[88..].first_chunk().ok_or(whole)?);
    let (body, body_sum) = (number64(all, 64), number32(all, 84));
    Ok(CacheHead { times, status, body, body_sum, key, vary, variant, head })
}

/// The number at `at` of a fixed part.
fn number32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |number| u32::from_le_bytes(*number))
}

fn number64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |number| u64::from_le_bytes(*number))
}

const MAGIC: &[u8; 8] = b"weircach";
/// Changes with the layout; files of another version are fetched again.
const VERSION: u32 = 2;
/// Where the times are.
pub const TIMES: usize = 16;
/// From here on nothing changes while the file stays.
const SUMMED: usize = 56;
const FIXED: usize = 104;
/// What precedes the key.
const KEY: &[u8] = b"\nKEY: ";
/// No head is longer: that of a response is bounded by `*_buffer_size`, a key by the request.
pub const MOST: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMES: CacheTimes = CacheTimes { valid: 7, date: 5, updating: 3, error: u64::MAX };

    fn head<'f>(key: &'f [u8], vary: &'f [u8], head: &'f [u8]) -> CacheHead<'f> {
        CacheHead {
            times: TIMES,
            status: 200,
            body: 5,
            body_sum: 77,
            key,
            vary,
            variant: CacheKey([9; 16]),
            head,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let head = head(b"http://a/", b"Accept", b"200 OK\r\nA: b\r\n\r\n");
        let bytes = head.compose();
        assert_eq!(bytes.len(), head.len());
        assert_eq!(parse(&bytes), Ok(head));
        assert_eq!(length(&bytes), Ok(bytes.len()));
        assert!(memchr::memmem::find(&bytes, b"\nKEY: http://a/\n").is_some());
        let changed = CacheTimes { valid: 99, ..TIMES };
        let mut later = bytes;
        later[super::TIMES..][..40].copy_from_slice(&changed.compose());
        assert_eq!(parse(&later).map(|head| head.times), Ok(changed));
    }

    #[test]
    fn what_is_not_ours_is_told() {
        let bytes = head(b"k", b"", b"200\r\n\r\n").compose();
        assert_eq!(parse(&bytes[..50]), Err(BadCacheHead::Small));
        assert_eq!(parse(&bytes[..bytes.len() - 1]), Err(BadCacheHead::Small));
        for (at, bad) in [
            (0, BadCacheHead::Version),
            (8, BadCacheHead::Version),
            (17, BadCacheHead::Damaged),
            (60, BadCacheHead::Damaged),
            (86, BadCacheHead::Damaged),
            (110, BadCacheHead::Damaged),
        ] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(parse(&other), Err(bad), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn any_head_is_read_as_it_was_written(
            key in prop::collection::vec(any::<u8>(), 0..80),
            vary in prop::collection::vec(any::<u8>(), 0..20),
            text in prop::collection::vec(any::<u8>(), 0..200),
            after in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let head = head(&key, &vary, &text);
            let mut bytes = head.compose();
            bytes.extend_from_slice(&after);
            prop_assert_eq!(parse(&bytes), Ok(head));
        }

        #[test]
        fn a_damaged_file_is_no_answer(at in (16..160usize).prop_filter("what means nothing", |at| !(52..56).contains(at)), bit in 0..8u8, key in prop::collection::vec(any::<u8>(), 60)) {
            let mut bytes = head(&key, b"", b"200\r\n\r\n").compose();
            bytes[at] ^= 1u8 << bit;
            prop_assert!(parse(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut begun = MAGIC.to_vec();
            begun.extend_from_slice(&VERSION.to_le_bytes());
            begun.extend_from_slice(&bytes);
            let _ = (parse(&bytes), parse(&begun));
        }
    }
}
