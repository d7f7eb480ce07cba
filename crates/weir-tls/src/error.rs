//! What goes wrong with TLS, in words that fit after nginx's.

use std::fmt;

use crate::alert;

/// What went wrong with TLS; its text fits after nginx's.
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
    /// OpenSSL's number of the reason in its library for TLS: 1000 and the number of a received alert, or that of
    /// `wrong version number` where the peer speaks no TLS. `None` for all other errors.
    pub fn reason(&self) -> Option<u32> {
        match self {
            Error::Tls(rustls::Error::AlertReceived(alert)) => Some(alert::reason(*alert)),
            Error::Tls(error) if is_no_tls(error) => Some(WRONG_VERSION),
            _ => None,
        }
    }

    /// True when this side has failed: its key, or the system. rustls reports nothing else as its general error.
    pub fn is_own(&self) -> bool {
        matches!(self, Error::Tls(rustls::Error::General(_) | rustls::Error::FailedToGetRandomBytes))
    }
}

/// Why a handshake failed, as far as it can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// An alert of this number came (RFC 8446, section 6).
    Alert(u8),
    /// What came is no TLS.
    NoTls,
    /// No version is in common.
    NoVersion,
    /// No cipher suite is in common.
    NoCipher,
    /// No key exchange group is in common.
    NoGroup,
    /// No signature scheme is in common, or none that fits a certificate.
    NoSignature,
    /// No application protocol is in common.
    NoProtocol,
    /// The peer's certificate, or its signature, is invalid.
    Certificate,
    /// The peer lacks or wants something else.
    Incompatible,
    /// A record could not be decrypted.
    Decrypt,
    /// The peer broke the rules of TLS.
    Misbehaved,
    /// This side has failed.
    Own,
}

impl Error {
    /// What kind of failure it is.
    pub fn failure(&self) -> HandshakeFailure {
        use rustls::Error as Tls;
        let Error::Tls(error) = self else { return HandshakeFailure::Own };
        match error {
            _ if self.is_own() => HandshakeFailure::Own,
            _ if is_no_tls(error) => HandshakeFailure::NoTls,
            Tls::AlertReceived(alert) => HandshakeFailure::Alert(u8::from(*alert)),
            Tls::PeerIncompatible(why) => incompatible(why),
            Tls::NoApplicationProtocol => HandshakeFailure::NoProtocol,
            Tls::InvalidCertificate(_) | Tls::NoCertificatesPresented | Tls::InvalidCertRevocationList(_) => {
                HandshakeFailure::Certificate
            }
            Tls::DecryptError => HandshakeFailure::Decrypt,
            Tls::EncryptError
            | Tls::FailedToGetCurrentTime
            | Tls::HandshakeNotComplete
            | Tls::InconsistentKeys(_)
            | Tls::Other(_) => HandshakeFailure::Own,
            _ => HandshakeFailure::Misbehaved,
        }
    }
}

fn incompatible(why: &rustls::PeerIncompatible) -> HandshakeFailure {
    use rustls::PeerIncompatible as Why;
    match why {
        Why::ServerDoesNotSupportTls12Or13
        | Why::ServerTlsVersionIsDisabledByOurConfig
        | Why::SupportedVersionsExtensionRequired
        | Why::Tls12NotOffered
        | Why::Tls12NotOfferedOrEnabled => HandshakeFailure::NoVersion,
        Why::NoCipherSuitesInCommon => HandshakeFailure::NoCipher,
        Why::NoKxGroupsInCommon
        | Why::NamedGroupsExtensionRequired
        | Why::NoEcPointFormatsInCommon
        | Why::KeyShareExtensionRequired => HandshakeFailure::NoGroup,
        Why::NoSignatureSchemesInCommon
        | Why::NoCertificateRequestSignatureSchemesInCommon
        | Why::SignatureAlgorithmsExtensionRequired => HandshakeFailure::NoSignature,
        _ => HandshakeFailure::Incompatible,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Tls(rustls::Error::AlertReceived(alert)) => f.write_str(&alert::text(*alert)),
            Error::Tls(error) if is_no_tls(error) => f.write_str("wrong version number"),
            Error::Tls(error) => write!(f, "{error}"),
            Error::Content(text) | Error::Unsupported(text) => f.write_str(text),
            Error::Password => f.write_str("bad decrypt: none of the passwords opens the key"),
        }
    }
}

impl std::error::Error for Error {}

/// What came is no record of TLS.
fn is_no_tls(error: &rustls::Error) -> bool {
    use rustls::InvalidMessage::{InvalidContentType, UnknownProtocolVersion};
    matches!(error, rustls::Error::InvalidMessage(InvalidContentType | UnknownProtocolVersion))
}

/// `SSL_R_WRONG_VERSION_NUMBER`
const WRONG_VERSION: u32 = 267;

impl From<rustls::Error> for Error {
    fn from(error: rustls::Error) -> Error {
        Error::Tls(error)
    }
}

/// The file holds something else than was expected.
pub(crate) fn content(text: impl Into<String>) -> Error {
    Error::Content(text.into())
}
