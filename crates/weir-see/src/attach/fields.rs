//! What a request of nginx is: read out of its memory, whose layout depends on version and build.
//!
//! So fields are recognised by their content. A request that was forgotten can be read until its memory is used
//! for the next one; the reader has to make sure that this had not happened yet.

use super::memory::ProcessMemory;

/// Where fields are, once they have been seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FieldLayout {
    /// Of `method`: after it come the version, the request line, path, arguments, extension and unparsed target.
    method: Option<usize>,
    /// Of `headers_out.status`.
    status: Option<usize>,
}

/// Method, path and status, as far as they are there: of a request that was forgotten the path may be gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestTexts {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) status: u16,
}

impl FieldLayout {
    /// What the request at `address` is; nothing if it has no request line yet, or there is no request.
    pub(super) fn read(&mut self, address: u64, memory: &ProcessMemory) -> Option<RequestTexts> {
        let words = memory.words(address, WORDS);
        if words.first().is_none_or(|first| *first as u32 != SIGNATURE) {
            return None;
        }
        let text = |at: usize| {
            let (length, start) = (*words.get(at)?, *words.get(at + 1)?);
            memory.bytes(start, usize::try_from(length).ok().filter(|length| (1..=LONGEST).contains(length))?)
        };
        self.method = self.method.or_else(|| (8..WORDS).find(|&at| is_method(&words, at, &text)));
        self.status = self.status.or_else(|| find_status(&words));
        let method = METHODS.iter().find(|(bit, _)| Some(bit) == self.method.and_then(|at| words.get(at)));
        // After its end a request's path may be something else already.
        let path = self.method.and_then(|at| text(at + 4)).filter(|path| path.starts_with(b"/"));
        let path = path.and_then(|path| String::from_utf8(path).ok()).unwrap_or_default();
        let status = self.status.and_then(|at| words.get(at)).copied().unwrap_or(0);
        Some(RequestTexts {
            method: method.map_or("-", |(_, name)| name).to_owned(),
            path,
            status: u16::try_from(status).ok().filter(|status| (100..600).contains(status)).unwrap_or(0),
        })
    }
}

/// Whether `method` is there: a bit, after it a version of HTTP, and after that a request line that begins with the
/// method's name and has the path in it that follows.
fn is_method(words: &[u64], at: usize, text: &impl Fn(usize) -> Option<Vec<u8>>) -> bool {
    let [Some(method), Some(version)] = [words.get(at), words.get(at + 1)] else { return false };
    let Some((_, name)) = METHODS.iter().find(|(bit, _)| bit == method) else { return false };
    if !VERSIONS.contains(version) {
        return false;
    }
    // A forgotten request has no request line any more, but its path begins as paths do.
    let path = text(at + 4).is_some_and(|path| path.starts_with(b"/"));
    path && text(at + 2).is_none_or(|line| line.starts_with(name.as_bytes()))
}

/// The status is after the lists of fields and of trailers: each ends with the size of an element, how many there is
/// room for (20 and 4), and the request's pool.
fn find_status(words: &[u64]) -> Option<usize> {
    let list = |at: usize, room: u64| {
        let &[size, count, pool, ..] = words.get(at..)? else { return None };
        ([48, 56].contains(&size) && count == room && pool > 4096).then_some(pool)
    };
    (8..words.len()).find(|&at| list(at, 20).is_some() && list(at + 7, 4) == list(at, 20)).map(|at| at + 10)
}

/// The bits of `ngx_http_request.h`.
const METHODS: &[(u64, &str)] = &[
    (2, "GET"),
    (4, "HEAD"),
    (8, "POST"),
    (0x10, "PUT"),
    (0x20, "DELETE"),
    (0x40, "MKCOL"),
    (0x80, "COPY"),
    (0x100, "MOVE"),
    (0x200, "OPTIONS"),
    (0x400, "PROPFIND"),
    (0x800, "PROPPATCH"),
    (0x4000, "PATCH"),
];
const VERSIONS: &[u64] = &[9, 1000, 1001, 2000, 3000];
const SIGNATURE: u32 = 0x5054_5448;
/// Words of a request that are looked at.
const WORDS: usize = 200;
/// Longer request lines are not read.
const LONGEST: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_behind_two_lists_of_one_pool() {
        let mut words = vec![0u64; 60];
        let pool = 0x5555_0000_1000;
        words[20..23].copy_from_slice(&[56, 20, pool]);
        assert_eq!(find_status(&words), None, "the request's own fields are one list");
        words[27..30].copy_from_slice(&[56, 4, pool]);
        words[30] = 200;
        assert_eq!(find_status(&words), Some(30));
        words[29] = pool + 8;
        assert_eq!(find_status(&words), None, "another pool");
    }

    #[test]
    fn the_method_is_known_by_what_stands_behind_it() {
        let mut words = vec![0u64; 30];
        words[10..14].copy_from_slice(&[8, 1001, 14, 1]);
        let line = |text: &'static str| {
            move |at: usize| match at {
                12 => Some(text.as_bytes().to_vec()),
                14 => Some(b"/a".to_vec()),
                _ => None,
            }
        };
        assert!(is_method(&words, 10, &line("POST /a HTTP/1.1")));
        assert!(!is_method(&words, 10, &line("GET /a HTTP/1.1")) && !is_method(&words, 11, &line("")));
        assert!(!is_method(&words, 29, &line("")), "at the end");
    }
}
