//! Media types by file extension: the `types` directive and its defaults.
//!
//! Asked once per static response, so the table is built for that: an extension of up to fifteen bytes is lower-cased
//! into one 128-bit key, and the table is open-addressed and at most half full. Longer ones, hardly ever seen, are
//! stored in a list.

use std::fmt;

use crate::block::load;

/// A table from extension to media type. Extensions compare without case.
#[derive(Clone, Default)]
pub struct MediaTypeTable {
    /// Key (0 is a free slot) and index into `names`; the length is a power of two or zero.
    slots: Vec<(u128, u32)>,
    used: usize,
    names: Vec<Box<[u8]>>,
    long: Vec<(Box<[u8]>, u32)>,
}

impl MediaTypeTable {
    /// A table without types, for the lines of a `types` block.
    pub fn new() -> Self {
        Self::default()
    }

    /// nginx's table when no `types` block is given: html, gif and jpg.
    pub fn builtin() -> Self {
        Self::from_table(BUILTIN)
    }

    /// The table of Weir's embedded default configuration.
    pub fn common() -> Self {
        Self::from_table(COMMON)
    }

    /// A table of rows of a type and its extensions apart by spaces.
    pub(crate) fn from_table(rows: &[(&str, &str)]) -> Self {
        let mut types = Self::new();
        for (name, extensions) in rows {
            for extension in extensions.split_ascii_whitespace() {
                types.insert(extension.as_bytes(), name.as_bytes());
            }
        }
        types
    }

    /// Sets the type of `extension` (without dot); returns whether it had another one before, of which nginx warns as
    /// `duplicate extension`.
    pub fn insert(&mut self, extension: &[u8], name: &[u8]) -> bool {
        let name = self.intern(name);
        let Some(key) = key(extension) else { return self.insert_long(extension, name) };
        if (self.used + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let index = find(&self.slots, key);
        let Some(slot) = self.slots.get_mut(index) else { return false };
        let duplicate = slot.0 == key && slot.1 != name;
        self.used += usize::from(slot.0 == 0);
        *slot = (key, name);
        duplicate
    }

    /// The type of `extension` (without dot); `None` means `default_type`.
    pub fn find(&self, extension: &[u8]) -> Option<&[u8]> {
        let index = match key(extension) {
            Some(key) => self.slots.get(find(&self.slots, key)).filter(|slot| slot.0 == key)?.1,
            None => self.long.iter().find(|(long, _)| long.eq_ignore_ascii_case(extension))?.1,
        };
        self.names.get(index as usize).map(AsRef::as_ref)
    }

    /// Number of extensions.
    pub fn len(&self) -> usize {
        self.used + self.long.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn intern(&mut self, name: &[u8]) -> u32 {
        let known = self.names.iter().position(|known| **known == *name);
        let index = known.unwrap_or_else(|| {
            self.names.push(name.into());
            self.names.len() - 1
        });
        // A configuration of four thousand million types does not fit in memory.
        index as u32
    }

    fn insert_long(&mut self, extension: &[u8], name: u32) -> bool {
        let extension = extension.to_ascii_lowercase().into_boxed_slice();
        match self.long.iter_mut().find(|(long, _)| *long == extension) {
            Some((_, old)) => std::mem::replace(old, name) != name,
            None => {
                self.long.push((extension, name));
                false
            }
        }
    }

    fn grow(&mut self) {
        let mut slots = vec![(0, 0); (self.slots.len() * 2).max(16)];
        for &(key, name) in self.slots.iter().filter(|slot| slot.0 != 0) {
            let index = find(&slots, key);
            if let Some(slot) = slots.get_mut(index) {
                *slot = (key, name);
            }
        }
        self.slots = slots;
    }
}

impl fmt::Debug for MediaTypeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Types").field("extensions", &self.len()).field("types", &self.names.len()).finish()
    }
}

/// The lower-cased extension and, in the top byte, its length plus one, so never 0; `None` when longer than fifteen bytes.
fn key(extension: &[u8]) -> Option<u128> {
    if extension.len() > 15 {
        return None;
    }
    let block = u128::from_le_bytes(load(extension));
    let small = u128::from(lower((block >> 64) as u64)) << 64 | u128::from(lower(block as u64));
    Some(small | (extension.len() as u128 + 1) << 120)
}

/// Eight bytes with their capital letters made small; `to_ascii_lowercase` of an array is a loop.
const fn lower(word: u64) -> u64 {
    const fn all(byte: u8) -> u64 {
        u64::from_ne_bytes([byte; 8])
    }
    let low = word & all(0x7f);
    let capital = (low + all(0x80 - b'A')) & !(low + all(0x7f - b'Z')) & !word & all(0x80);
    word | capital >> 2
}

/// The slot of `key`, or the free one where it belongs. `slots` is at most half full, so there always is one.
fn find(slots: &[(u128, u32)], key: u128) -> usize {
    let mask = slots.len().wrapping_sub(1);
    let folded = (key as u64) ^ ((key >> 64) as u64).rotate_left(29);
    // Fibonacci hashing: the odd number next to 2^64 divided by the golden ratio; the high half is the well-mixed one.
    let mut index = (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
    while slots.get(index).is_some_and(|slot| slot.0 != 0 && slot.0 != key) {
        index = (index + 1) & mask;
    }
    index
}

/// nginx's built-in types, used when the configuration has no `types` block.
pub const BUILTIN: &[(&str, &str)] = &[("text/html", "html"), ("image/gif", "gif"), ("image/jpeg", "jpg")];

/// The types of Weir's embedded default configuration: what browsers and tools ask a web server for.
pub(crate) const COMMON: &[(&str, &str)] = &[
    ("application/atom+xml", "atom"),
    ("application/epub+zip", "epub"),
    ("application/gzip", "gz tgz"),
    ("application/java-archive", "ear jar war"),
    ("application/javascript", "cjs js mjs"),
    ("application/json", "json map"),
    ("application/ld+json", "jsonld"),
    ("application/manifest+json", "webmanifest"),
    ("application/msword", "doc"),
    ("application/octet-stream", "bin deb dll dmg exe img iso msi msm msp"),
    ("application/pdf", "pdf"),
    ("application/postscript", "ai eps ps"),
    ("application/rss+xml", "rss"),
    ("application/rtf", "rtf"),
    ("application/vnd.apple.mpegurl", "m3u8"),
    ("application/vnd.google-earth.kml+xml", "kml"),
    ("application/vnd.google-earth.kmz", "kmz"),
    ("application/vnd.ms-excel", "xls"),
    ("application/vnd.ms-fontobject", "eot"),
    ("application/vnd.ms-powerpoint", "ppt"),
    ("application/vnd.oasis.opendocument.graphics", "odg"),
    ("application/vnd.oasis.opendocument.presentation", "odp"),
    ("application/vnd.oasis.opendocument.spreadsheet", "ods"),
    ("application/vnd.oasis.opendocument.text", "odt"),
    ("application/vnd.openxmlformats-officedocument.presentationml.presentation", "pptx"),
    ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xlsx"),
    ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "docx"),
    ("application/wasm", "wasm"),
    ("application/x-7z-compressed", "7z"),
    ("application/x-bzip2", "bz2"),
    ("application/x-perl", "pl pm"),
    ("application/x-rar-compressed", "rar"),
    ("application/x-redhat-package-manager", "rpm"),
    ("application/x-tar", "tar"),
    ("application/x-x509-ca-cert", "crt der pem"),
    ("application/x-xpinstall", "xpi"),
    ("application/x-xz", "xz"),
    ("application/xhtml+xml", "xhtml"),
    ("application/xspf+xml", "xspf"),
    ("application/zip", "zip"),
    ("application/zstd", "zst"),
    ("audio/aac", "aac"),
    ("audio/flac", "flac"),
    ("audio/midi", "kar mid midi"),
    ("audio/mpeg", "mp3"),
    ("audio/ogg", "oga ogg opus"),
    ("audio/wav", "wav"),
    ("audio/x-m4a", "m4a"),
    ("font/collection", "ttc"),
    ("font/otf", "otf"),
    ("font/ttf", "ttf"),
    ("font/woff", "woff"),
    ("font/woff2", "woff2"),
    ("image/apng", "apng"),
    ("image/avif", "avif"),
    ("image/gif", "gif"),
    ("image/heic", "heic"),
    ("image/jpeg", "jpeg jpg"),
    ("image/jxl", "jxl"),
    ("image/png", "png"),
    ("image/svg+xml", "svg svgz"),
    ("image/tiff", "tif tiff"),
    ("image/webp", "webp"),
    ("image/x-icon", "cur ico"),
    ("image/x-ms-bmp", "bmp"),
    ("text/calendar", "ics"),
    ("text/css", "css"),
    ("text/csv", "csv"),
    ("text/html", "htm html shtml"),
    ("text/markdown", "markdown md"),
    ("text/mathml", "mml"),
    ("text/plain", "conf log text toml txt"),
    ("text/vtt", "vtt"),
    ("text/x-component", "htc"),
    ("text/xml", "xml xsd xsl"),
    ("text/yaml", "yaml yml"),
    ("video/3gpp", "3gp 3gpp"),
    ("video/mp2t", "ts"),
    ("video/mp4", "mp4"),
    ("video/mpeg", "mpeg mpg"),
    ("video/ogg", "ogv"),
    ("video/quicktime", "mov"),
    ("video/webm", "webm"),
    ("video/x-flv", "flv"),
    ("video/x-m4v", "m4v"),
    ("video/x-matroska", "mkv"),
    ("video/x-ms-asf", "asf asx"),
    ("video/x-ms-wmv", "wmv"),
    ("video/x-msvideo", "avi"),
];

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_made_small_as_bytes_are() {
        for byte in 0..=255_u8 {
            let word = [byte, b'A', 0, byte, b'Z', 0xff, b'@', byte];
            assert_eq!(
                lower(u64::from_le_bytes(word)).to_le_bytes(),
                word.map(|byte| byte.to_ascii_lowercase())
            );
        }
    }

    #[test]
    fn the_builtin_table_is_that_of_nginx() {
        let types = MediaTypeTable::builtin();
        assert_eq!(types.len(), 3);
        assert_eq!(types.find(b"html"), Some(b"text/html".as_slice()));
        assert_eq!(types.find(b"GIF"), Some(b"image/gif".as_slice()));
        assert_eq!(types.find(b"jpg"), Some(b"image/jpeg".as_slice()));
        assert_eq!(types.find(b"jpeg"), None);
        assert_eq!(types.find(b""), None);
    }

    #[test]
    fn the_common_table_names_no_extension_twice() {
        let mut types = MediaTypeTable::new();
        for (name, extensions) in COMMON {
            for extension in extensions.split_ascii_whitespace() {
                assert_eq!(types.find(extension.as_bytes()), None, "{extension}");
                types.insert(extension.as_bytes(), name.as_bytes());
                assert_eq!(types.find(extension.as_bytes()), Some(name.as_bytes()));
            }
        }
        assert_eq!(MediaTypeTable::common().len(), types.len());
    }

    #[test]
    fn an_empty_table_finds_nothing_and_a_new_type_replaces_the_old() {
        let mut types = MediaTypeTable::new();
        assert!(types.is_empty());
        assert_eq!(types.find(b"html"), None);
        assert!(!types.insert(b"html", b"text/html"));
        assert!(!types.insert(b"HTML", b"text/html"));
        assert!(types.insert(b"html", b"text/plain"));
        assert_eq!(types.find(b"html"), Some(b"text/plain".as_slice()));
        let long = b"a-very-long-extension";
        assert!(!types.insert(long, b"x/y"));
        assert!(types.insert(b"A-very-long-extension", b"x/z"));
        assert_eq!(types.find(long), Some(b"x/z".as_slice()));
        assert_eq!(types.len(), 2);
    }

    proptest! {
        #[test]
        fn it_answers_as_a_map_does(rows in vec((vec(0u8..5, 0..18), 0u8..4), 0..80), ask in vec(0u8..5, 0..18)) {
            let (mut types, mut map) = (MediaTypeTable::new(), HashMap::new());
            for (extension, name) in rows {
                types.insert(&extension, &[name]);
                map.insert(extension, name);
            }
            prop_assert_eq!(types.len(), map.len());
            for (extension, name) in &map {
                prop_assert_eq!(types.find(extension), Some(std::slice::from_ref(name)));
            }
            prop_assert_eq!(types.find(&ask), map.get(&ask).map(std::slice::from_ref));
        }
    }
}
