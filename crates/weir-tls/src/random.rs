//! Random bytes, for names that must not be guessed.

use aws_lc_rs::rand;

use crate::error::{Error, content};

/// `N` bytes that nobody can foresee.
///
/// # Errors
/// The system gives none.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| content("no random bytes can be had"))?;
    Ok(bytes)
}
