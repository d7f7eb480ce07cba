//! `ssl_ocsp`: issuers are asked about clients' certificates, once the handshake is over and before the first request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use weir_tls::certificate::CertificateDer;
use weir_tls::ocsp::{self, CertificateStatus, OcspAnswer, OcspSigner};

use super::{OcspResponder, ResponderNames};
use weir_engine::log::LogLevel;
use weir_engine::transport::ClientConnection;

/// How a server asks.
#[derive(Debug)]
pub(in crate::tls) struct ClientCertificateCheck {
    /// The client's own certificate only (`leaf`), not those that issued it.
    pub(in crate::tls) leaf: bool,
    /// `ssl_ocsp_responder`; else the one that the certificate names.
    pub(in crate::tls) responder: Option<OcspResponder>,
    /// `ssl_ocsp_cache`
    pub(in crate::tls) cache: Option<Arc<AnswerCache>>,
}

impl ClientCertificateCheck {
    /// Asks about `path`, from the client's certificate to the trusted end, which is not asked about.
    ///
    /// # Errors
    /// nginx's words for `$ssl_client_verify`; why is logged.
    pub(in crate::tls) async fn check(
        &self,
        connection: &ClientConnection,
        path: &[CertificateDer<'static>],
        names: &ResponderNames,
    ) -> Result<(), &'static str> {
        let pairs = path.windows(2).take(if self.leaf { 1 } else { path.len() });
        for pair in pairs {
            let status = match self.status(&pair[0], &pair[1], path, names).await {
                Ok(status) => status,
                Err(why) => {
                    let message = format_args!("{why} while requesting certificate status");
                    connection.log(LogLevel::Error, &message);
                    return Err(FAILED);
                }
            };
            match status {
                CertificateStatus::Good => {}
                CertificateStatus::Revoked => return Err("certificate revoked"),
                CertificateStatus::Unknown => return Err(FAILED),
            }
        }
        Ok(())
    }

    async fn status(
        &self,
        certificate: &CertificateDer<'static>,
        issuer: &CertificateDer<'static>,
        path: &[CertificateDer<'static>],
        names: &ResponderNames,
    ) -> Result<CertificateStatus, String> {
        let id = ocsp::id(certificate, issuer).ok_or("malformed certificate")?;
        let now = weir_rt::unix_time().0;
        if let Some(known) = self.cache.as_ref().and_then(|cache| cache.find(&id, now)) {
            return Ok(known);
        }
        let named;
        let responder = match &self.responder {
            Some(responder) => responder,
            None => {
                let url = ocsp::responder(certificate).ok_or("no OCSP responder URL in certificate")?;
                named = OcspResponder::parse(&url)
                    .map_err(|why| format!("{why} in OCSP responder \"{url}\" in certificate"))?;
                &named
            }
        };
        let of = |why: &dyn std::fmt::Display| format!("{why}, responder: {}", responder.url);
        let bytes = responder.ask(names, &id).await.map_err(|why| of(&why))?;
        let now = weir_rt::unix_time().0;
        let response = ocsp::check_response(&bytes, certificate, issuer, path, OcspSigner::Issuer, now);
        let response = response.map_err(|error| of(&error))?;
        if let Some(cache) = &self.cache {
            cache.add(id, response, now);
        }
        Ok(response.status)
    }
}

const FAILED: &str = "certificate status request failed";

/// `ssl_ocsp_cache shared:name:size`: responses that still hold, of all servers that name it.
#[derive(Debug)]
pub(in crate::tls) struct AnswerCache {
    /// Responses.
    most: usize,
    kept: Mutex<HashMap<Vec<u8>, CachedStatus>>,
}

/// Times are seconds since 1970.
#[derive(Debug)]
struct CachedStatus {
    status: CertificateStatus,
    until: u64,
    used: u64,
}

impl AnswerCache {
    /// A cache of `bytes`.
    pub(in crate::tls) fn new(bytes: u64) -> AnswerCache {
        /// A CertID of 80 bytes, the entry, the table's slack.
        const ENTRY: u64 = 256;
        let most = usize::try_from(bytes / ENTRY).unwrap_or(usize::MAX).max(1);
        AnswerCache { most, kept: Mutex::default() }
    }

    fn find(&self, id: &[u8], now: u64) -> Option<CertificateStatus> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.get_mut(id).filter(|it| it.until >= now)?;
        found.used = now;
        Some(found.status)
    }

    /// When it is full, what has expired makes room, then the one that was used longest ago.
    fn add(&self, id: Vec<u8>, response: OcspAnswer, now: u64) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= self.most {
            kept.retain(|_, it| it.until >= now);
        }
        if kept.len() >= self.most
            && let Some(oldest) = kept.iter().min_by_key(|(_, it)| it.used).map(|(id, _)| id.clone())
        {
            kept.remove(&oldest);
        }
        let until = response.until.unwrap_or(u64::MAX);
        kept.insert(id, CachedStatus { status: response.status, until, used: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_kept_as_long_as_they_hold_and_there_is_room() {
        let cache = AnswerCache::new(512);
        let response = |until| OcspAnswer { status: CertificateStatus::Revoked, until };
        cache.add(vec![1], response(Some(20)), 10);
        cache.add(vec![2], response(None), 11);
        assert_eq!(cache.find(&[1], 20), Some(CertificateStatus::Revoked));
        assert_eq!(cache.find(&[1], 21), None);
        cache.add(vec![3], response(Some(100)), 21);
        cache.add(vec![4], response(Some(100)), 22);
        let there = [1, 2, 3, 4].map(|id: u8| cache.find(&[id], 22).is_some());
        assert_eq!(there, [false, false, true, true], "the expired one went, then the one not used for long");
    }
}
