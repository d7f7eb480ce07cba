//! Names of what is cached: the MD5 of a key, as in nginx, so that tools that compute the name of a file find it here
//! too.

use std::path::{Path, PathBuf};

use md5::{Digest as _, Md5};

/// The name of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheKey(pub [u8; 16]);

impl CacheKey {
    /// The MD5 digest of `text`, the value of `*_cache_key`.
    pub fn of(text: &[u8]) -> CacheKey {
        CacheKey(Md5::digest(text).into())
    }

    /// The name of the file: 32 hexadecimal digits.
    pub fn name(&self) -> String {
        self.0
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .map(|digit| DIGITS[usize::from(digit)])
            .collect()
    }

    /// What a file of this name holds; `None`: no response does.
    pub fn parse(name: &str) -> Option<CacheKey> {
        let mut key = [0; 16];
        let (pairs, rest) = name.as_bytes().as_chunks::<2>();
        if pairs.len() != key.len() || !rest.is_empty() {
            return None;
        }
        for (byte, pair) in key.iter_mut().zip(pairs) {
            let digit = |text: u8| DIGITS.iter().position(|digit| *digit == char::from(text));
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Some(CacheKey(key))
    }

    /// The path of the file below `folder`: each level is named by the last characters of the name that are left.
    pub fn path(&self, directory: &Path, levels: [u8; 3]) -> PathBuf {
        let name = self.name();
        let mut path = directory.to_path_buf();
        let mut end = name.len();
        for level in levels.into_iter().map(usize::from).take_while(|level| *level > 0) {
            let start = end.saturating_sub(level);
            path.push(&name[start..end]);
            end = start;
        }
        path.push(name);
        path
    }
}

/// The name of the variant of the response `main` whose chosen fields are `fields` (what
/// `Vary` names, normalised).
pub fn variant(main: CacheKey, fields: &[u8]) -> CacheKey {
    CacheKey(Md5::new().chain_update(main.0).chain_update(fields).finalize().into())
}

const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_where_nginx_has_them() {
        let key = CacheKey::of(b"http://127.0.0.1:8000/index.html");
        assert_eq!(CacheKey::parse(&key.name()), Some(key));
        let key = CacheKey::parse("b7f54b2df7773722d382f4809d65029c").expect("a name");
        let at = |levels| key.path(Path::new("/data"), levels).display().to_string();
        assert_eq!(at([1, 2, 0]), "/data/c/29/b7f54b2df7773722d382f4809d65029c");
        assert_eq!(at([0, 0, 0]), "/data/b7f54b2df7773722d382f4809d65029c");
        assert_eq!(at([2, 2, 2]), "/data/9c/02/65/b7f54b2df7773722d382f4809d65029c");
        assert_eq!(CacheKey::of(b"").name(), "d41d8cd98f00b204e9800998ecf8427e");
    }

    #[test]
    fn other_names_are_none() {
        for name in ["", "b7", "b7f54b2df7773722d382f4809d65029", "B7F54B2DF7773722D382F4809D65029C"] {
            assert_eq!(CacheKey::parse(name), None, "{name}");
        }
        assert_eq!(CacheKey::parse("b7f54b2df7773722d382f4809d65029c.0000000001"), None);
        assert_ne!(variant(CacheKey::of(b"a"), b"accept:x"), variant(CacheKey::of(b"a"), b"accept:y"));
    }
}
