//! `ssl_certificate_cache`: certificates whose names have variables in them, kept between handshakes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_tls::Certificate;

use super::files;

/// What is kept. Times are seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keep {
    /// Files; a certificate and its key are two.
    pub(crate) max: usize,
    /// After that the files are read again.
    pub(crate) valid: u64,
    /// What was not used for so long is forgotten.
    pub(crate) inactive: u64,
}

/// The certificates of one configuration, shared by all workers.
#[derive(Debug)]
pub(crate) struct Cache {
    /// `None`: each handshake reads its files.
    keep: Option<Keep>,
    kept: Mutex<HashMap<(String, String), Kept>>,
}

#[derive(Debug)]
struct Kept {
    certificate: Certificate,
    read: Instant,
    used: Instant,
}

impl Cache {
    pub(crate) fn new(keep: Option<Keep>) -> Cache {
        Cache { keep, kept: Mutex::default() }
    }

    /// The certificate in these files; blocks while they are read.
    ///
    /// # Errors
    /// What is wrong with them, in nginx's words.
    pub(crate) fn certificate(
        &self,
        certificate: &str,
        key: &str,
        passwords: &[Vec<u8>],
    ) -> Result<Certificate, String> {
        let read = || files::certificate(|path| std::fs::read(path), certificate, key, passwords, None);
        let Some(keep) = self.keep else { return read() };
        let names = (certificate.to_owned(), key.to_owned());
        let now = Instant::now();
        if let Some(found) = self.find(&names, &keep, now) {
            return Ok(found);
        }
        let new = read()?;
        self.add(names, Kept { certificate: new.clone(), read: now, used: now }, &keep);
        Ok(new)
    }

    fn find(&self, names: &(String, String), keep: &Keep, now: Instant) -> Option<Certificate> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let inactive = Duration::from_secs(keep.inactive);
        kept.retain(|_, it| now.duration_since(it.used) < inactive);
        let found = kept.get_mut(names)?;
        if now.duration_since(found.read) >= Duration::from_secs(keep.valid) {
            return None;
        }
        found.used = now;
        Some(found.certificate.clone())
    }

    /// The one used longest ago makes room.
    fn add(&self, names: (String, String), new: Kept, keep: &Keep) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.remove(&names);
        while kept.len() * 2 + 2 > keep.max.max(2) {
            let Some(oldest) = kept.iter().min_by_key(|(_, it)| it.used).map(|(names, _)| names.clone())
            else {
                break;
            };
            kept.remove(&oldest);
        }
        kept.insert(names, new);
    }
}
