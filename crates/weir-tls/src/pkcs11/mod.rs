//! Private keys that never leave their device: smart cards, HSMs, whatever has a PKCS#11 library.
//!
//! A signature blocks the thread for as long as the device takes, so handshakes with such keys run on pool threads
//! ([`crate::KeyEffort::Device`]). Without the feature `pkcs11` names are read, and the keys refused.

#[cfg(feature = "pkcs11")]
mod device;
#[cfg(feature = "pkcs11")]
mod sign;
mod uri;

use std::sync::Arc;

use crate::error::Error;
use crate::key::SigningKey;
pub use uri::KeyUri;

/// The key that `uri` names, of `certificate`. Its public half is the certificate's: devices need not have it.
///
/// # Errors
/// The device does not have it, or it is of a kind that is not used here.
#[cfg(feature = "pkcs11")]
pub fn key(uri: KeyUri, certificate: &[u8]) -> Result<Arc<dyn SigningKey>, Error> {
    sign::key(uri, certificate)
}

/// Refuses the key: this is built without the feature `pkcs11`.
///
/// # Errors
/// Always.
#[cfg(not(feature = "pkcs11"))]
pub fn key(_: KeyUri, _: &[u8]) -> Result<Arc<dyn SigningKey>, Error> {
    Err(Error::Unsupported("keys in devices can't be used: this is built without PKCS#11".to_owned()))
}
