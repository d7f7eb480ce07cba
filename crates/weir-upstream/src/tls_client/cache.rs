//! `ssl_certificate_cache`: certificates whose names have variables in them, cached between handshakes.
//!
//! There may be a hundred thousand: finding one does not depend on how many there are, and nothing is read before
//! a request needs it. A file that has changed is noticed when its time is over ([`CertificateCacheLimits::valid`]),
//! without a reload.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_tls::Certificate;

use super::files::{self, CertificateSource, KeyMaking};

/// What is cached. Times are seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CertificateCacheLimits {
    /// Files; a certificate and its key are two.
    pub(crate) max: usize,
    /// After that files are read again, if they have changed.
    pub(crate) valid: u64,
    /// What was not used for so long is forgotten.
    pub(crate) inactive: u64,
}

/// The certificates of one configuration, shared by all workers.
#[derive(Debug)]
pub struct CertificateCache {
    /// `None`: each handshake reads its files.
    keep: Option<CertificateCacheLimits>,
    state: Mutex<CertificateCacheState>,
}

/// The names of a certificate's file and of its key's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CertificateFiles {
    /// The file of the certificate, as the directive names it.
    pub certificate: String,
    /// The file of the key.
    pub key: String,
}

#[derive(Debug, Default)]
struct CertificateCacheState {
    kept: HashMap<Arc<CertificateFiles>, CachedCertificate>,
    /// By [`CachedCertificate::turn`], that used longest ago first.
    order: BTreeMap<u64, Arc<CertificateFiles>>,
    turns: u64,
}

#[derive(Debug)]
struct CachedCertificate {
    certificate: Certificate,
    /// The files as they were.
    stamps: [CertificateStamp; 2],
    checked: Instant,
    used: Instant,
    /// When it was used last: a higher one for a later use.
    turn: u64,
}

/// What distinguishes a file's content from another's: a hash of its place, size and time, since there may be very
/// many. Any other is one that has changed.
type CertificateStamp = u64;

impl CertificateCache {
    /// An empty cache; `None`: it keeps nothing.
    pub fn new(keep: Option<CertificateCacheLimits>) -> CertificateCache {
        CertificateCache { keep, state: Mutex::default() }
    }

    /// The certificate of these names if it is known and need not be looked at again; does not block.
    pub fn known(&self, names: &CertificateFiles) -> Option<Certificate> {
        let keep = self.keep?;
        let now = Instant::now();
        let mut state = self.state();
        state.forget(now, Duration::from_secs(keep.inactive));
        state.touch(names, now, Duration::from_secs(keep.valid))
    }

    /// The certificate in these files; blocks while they are looked at.
    ///
    /// # Errors
    /// What is wrong with them, in nginx's words.
    pub fn certificate(&self, names: CertificateFiles, passwords: &[Vec<u8>]) -> Result<Certificate, String> {
        let CertificateFiles { certificate, key } = &names;
        let source = CertificateSource { certificate, key, passwords };
        let read = || source.certificate(files::SERVING, KeyMaking::Now, None);
        let Some(keep) = self.keep else { return read() };
        if let Some(found) = self.known(&names) {
            return Ok(found);
        }
        // Before the content, so that what changes meanwhile is noticed next time.
        let stamps = [stamp(certificate), stamp(key)];
        let now = Instant::now();
        if let Some(same) = self.state().confirm(&names, stamps, now) {
            return Ok(same);
        }
        let certificate = read()?;
        let new =
            CachedCertificate { certificate: certificate.clone(), stamps, checked: now, used: now, turn: 0 };
        self.state().add(names, new, keep.max / 2);
        Ok(certificate)
    }

    /// The certificates that are cached, with the names of their files.
    pub fn all(&self) -> Vec<(String, Certificate)> {
        let state = self.state();
        state.kept.iter().map(|(names, it)| (names.certificate.clone(), it.certificate.clone())).collect()
    }

    fn state(&self) -> MutexGuard<'_, CertificateCacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CertificateCacheState {
    /// The certificate of `names`, used at `now`, unless it was last looked at `valid` ago.
    fn touch(&mut self, names: &CertificateFiles, now: Instant, valid: Duration) -> Option<Certificate> {
        let found = self.kept.get_mut(names)?;
        if now.duration_since(found.checked) >= valid {
            return None;
        }
        self.turns += 1;
        let before = std::mem::replace(&mut found.turn, self.turns);
        found.used = now;
        let certificate = found.certificate.clone();
        if let Some(names) = self.order.remove(&before) {
            self.order.insert(self.turns, names);
        }
        Some(certificate)
    }

    /// The certificate of `names`, if its files are still the same.
    fn confirm(
        &mut self,
        names: &CertificateFiles,
        stamps: [CertificateStamp; 2],
        now: Instant,
    ) -> Option<Certificate> {
        let found = self.kept.get_mut(names).filter(|it| it.stamps == stamps)?;
        found.checked = now;
        self.touch(names, now, Duration::MAX)
    }

    /// Those used longest ago make room.
    fn add(&mut self, names: CertificateFiles, new: CachedCertificate, most: usize) {
        self.remove(&names);
        while self.kept.len() >= most.max(1) {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.kept.remove(&oldest);
        }
        self.turns += 1;
        let names = Arc::new(names);
        self.order.insert(self.turns, names.clone());
        self.kept.insert(names, CachedCertificate { turn: self.turns, ..new });
    }

    fn remove(&mut self, names: &CertificateFiles) {
        if let Some(kept) = self.kept.remove(names) {
            self.order.remove(&kept.turn);
        }
    }

    /// Forgets up to two that were not used for `inactive`: more go with more handshakes.
    fn forget(&mut self, now: Instant, inactive: Duration) {
        for _ in 0..2 {
            let Some(names) = self.order.first_key_value().map(|(_, names)| names.clone()) else { return };
            let old = |kept: &CachedCertificate| now.duration_since(kept.used) >= inactive;
            if !self.kept.get(&*names).is_some_and(old) {
                return;
            }
            self.remove(&names);
        }
    }
}

/// 0 of what is no file, or can't be looked at: reading it will say why.
fn stamp(name: &str) -> CertificateStamp {
    let meta = if files::is_no_path(name) { None } else { std::fs::metadata(name).ok() };
    let parts = |it: std::fs::Metadata| (it.dev(), it.ino(), it.size(), it.mtime(), it.mtime_nsec());
    meta.map_or(0, |meta| BuildHasherDefault::<DefaultHasher>::default().hash_one(parts(meta)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(at: Instant) -> CachedCertificate {
        let key = rcgen::KeyPair::generate().expect("a key");
        let own =
            rcgen::CertificateParams::new(Vec::new()).expect("no names").self_signed(&key).expect("signed");
        let own = weir_tls::certificate::chain(own.pem().as_bytes()).expect("a certificate");
        let key = weir_tls::key::read(key.serialize_pem().as_bytes(), &[]).expect("a key");
        let certificate = Certificate::new(own, key, None).expect("they fit");
        CachedCertificate { certificate, stamps: [1; 2], checked: at, used: at, turn: 0 }
    }

    fn names(name: &str) -> CertificateFiles {
        CertificateFiles { certificate: name.to_owned(), key: "key".to_owned() }
    }

    #[test]
    fn the_one_used_longest_ago_makes_room() {
        let (mut state, now) = (CertificateCacheState::default(), Instant::now());
        let long = Duration::from_secs(100);
        for name in ["a", "b"] {
            state.add(names(name), kept(now), 2);
        }
        assert!(state.touch(&names("a"), now, long).is_some());
        state.add(names("c"), kept(now), 2);
        let there = ["a", "b", "c"].map(|name| state.touch(&names(name), now, long).is_some());
        assert_eq!(there, [true, false, true]);
        state.add(names("c"), kept(now), 2);
        assert_eq!((state.kept.len(), state.order.len()), (2, 2), "a new one in its own place");
    }

    #[test]
    fn what_is_not_used_is_forgotten_and_what_is_old_looked_at() {
        let (mut state, begin) = (CertificateCacheState::default(), Instant::now());
        let seconds = Duration::from_secs;
        for name in ["a", "b", "c"] {
            state.add(names(name), kept(begin), 9);
        }
        let later = begin + seconds(5);
        assert!(state.touch(&names("b"), later, seconds(5)).is_none(), "it is to be looked at");
        assert!(state.confirm(&names("b"), [1; 2], later).is_some(), "and has not changed");
        assert!(state.touch(&names("b"), later, seconds(5)).is_some());
        assert!(state.confirm(&names("a"), [2, 1], later).is_none(), "it has changed");
        state.forget(begin + seconds(10), seconds(10));
        assert_eq!(state.kept.len(), 1, "two go at a time");
        state.forget(begin + seconds(10), seconds(10));
        assert!(state.kept.contains_key(&names("b")), "it was used");
        assert_eq!(state.order.len(), 1);
    }
}
