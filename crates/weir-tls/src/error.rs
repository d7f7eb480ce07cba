//! What goes wrong with TLS, in words that fit behind nginx's.

use std::fmt;

/// What went wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// What a peer did, or what rustls says of it.
    Tls(rustls::Error),
    /// A file holds no PEM, no certificate, no key, or not the wanted one.
    Content(String),
    /// A key is encrypted, and none of the passwords opens it.
    Password,
    /// What was asked for does not exist here: an old cipher, an engine, an unknown curve.
    Unsupported(String),
}

impl Error {
    /// It is this side that failed: a key, or the system. Nothing else is told in rustls' most general way.
    pub fn is_own(&self) -> bool {
        matches!(self, Error::Tls(rustls::Error::General(_) | rustls::Error::FailedToGetRandomBytes))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Tls(error) => write!(f, "{error}"),
            Error::Content(text) | Error::Unsupported(text) => f.write_str(text),
            Error::Password => f.write_str("bad decrypt: none of the passwords opens the key"),
        }
    }
}

impl std::error::Error for Error {}

impl From<rustls::Error> for Error {
    fn from(error: rustls::Error) -> Error {
        Error::Tls(error)
    }
}

/// The file holds something else than was expected.
pub(crate) fn content(text: impl Into<String>) -> Error {
    Error::Content(text.into())
}
