//! What is wrong with a file, in nginx's words.

use std::fmt;
use std::io;

/// Why no clip of a file can be made. Its text needs the file's name: see [`Mp4Error::about`].
#[derive(Debug)]
pub(crate) enum Mp4Error {
    /// pread(2) failed.
    Read(io::Error),
    /// The file has become shorter.
    Short {
        /// Bytes that were read.
        read: usize,
        /// Bytes that should have been.
        wanted: usize,
    },
    /// Words that come after the file's name.
    File(String),
    /// Words that come before the file's name, and `in`.
    Within(String),
}

impl Mp4Error {
    /// `"FILE" mp4 NAME atom too small`.
    pub(super) fn too_small(name: &str) -> Mp4Error {
        Mp4Error::File(format!("mp4 {name} atom too small"))
    }

    /// `duplicate mp4 NAME atom in "FILE"`.
    pub(super) fn duplicate(name: &str) -> Mp4Error {
        Mp4Error::Within(format!("duplicate mp4 {name} atom"))
    }

    /// `no mp4 WHAT found in "FILE"`.
    pub(super) fn absent(what: &str) -> Mp4Error {
        Mp4Error::Within(format!("no mp4 {what} found"))
    }

    /// `WORDS in "FILE"`.
    pub(super) fn within(words: &str) -> Mp4Error {
        Mp4Error::Within(words.to_owned())
    }

    /// Whether the system is at fault and not the file: nginx's level is `crit` then.
    pub(super) fn is_of_system(&self) -> bool {
        matches!(self, Mp4Error::Read(_) | Mp4Error::Short { .. })
    }

    /// The line of the error log about `path`.
    pub(super) fn about<'a>(&'a self, path: &'a str) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| match self {
            Mp4Error::Read(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                write!(f, "pread() \"{path}\" failed ({errno}: {})", weir_rt::file::errno_text(errno))
            }
            Mp4Error::Short { read, wanted } => {
                write!(f, "pread() read only {read} of {wanted} from \"{path}\"")
            }
            Mp4Error::File(words) => write!(f, "\"{path}\" {words}"),
            Mp4Error::Within(words) => write!(f, "{words} in \"{path}\""),
        })
    }
}
