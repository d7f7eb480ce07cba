//! `ssl_stapling`: what issuers say of a server's certificates, given to clients with them.
//!
//! As in nginx the first handshake asks and does not wait; later ones staple what came, as long as it holds, and ask
//! again in time. All workers of a configuration share what is known.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_tls::certificate::CertificateDer;
use weir_tls::ocsp::{self, CertificateStatus, OcspSigner};
use weir_tls::{Certificate, ServerConfig};

use super::{OcspResponder, ResponderNames};
use crate::tls::server::FixedCertificates;
use weir_engine::log::{self, LogLevel};
use weir_engine::services;

/// The stapling of one server.
#[derive(Debug)]
pub(in crate::tls) struct OcspStapling {
    /// All certificates of the server, as they are without a response.
    certificates: Vec<Certificate>,
    asked: Vec<AskedResponder>,
    signer: OcspSigner,
    state: Mutex<StaplingState>,
}

/// A certificate whose issuer is asked.
#[derive(Debug)]
struct AskedResponder {
    /// Which it is.
    index: usize,
    /// Its file, for messages.
    name: String,
    id: Vec<u8>,
    issuer: CertificateDer<'static>,
    responder: OcspResponder,
}

#[derive(Debug)]
struct StaplingState {
    /// For each that is asked.
    known: Vec<KnownStaple>,
    /// What handshakes use: HTTP/1 only, and HTTP/2 too. `None`: nothing is known.
    configs: Option<[ServerConfig; 2]>,
}

/// Times are seconds since 1970.
#[derive(Clone, Debug, Default)]
struct KnownStaple {
    response: Option<HeldStaple>,
    /// From then on it is asked again.
    refresh: u64,
    /// A request to the responder is in flight.
    busy: bool,
    /// Why the last one came to nothing.
    error: Option<String>,
}

/// What is known of a certificate whose issuer is asked.
pub(in crate::tls) enum KnownStatus {
    /// It is stapled.
    Held {
        /// Seconds since 1970.
        until: u64,
    },
    /// It is not.
    Absent {
        /// `None`: nobody has asked yet.
        why: Option<String>,
    },
}

#[derive(Clone, Debug)]
struct HeldStaple {
    bytes: Vec<u8>,
    until: u64,
}

/// What a server staples by: its own settings.
pub(in crate::tls) struct WantedStaple<'c> {
    /// `ssl_stapling_responder`
    pub(in crate::tls) responder: Option<&'c str>,
    /// `ssl_stapling_verify`
    pub(in crate::tls) verify: bool,
    /// `ssl_trusted_certificate` and `ssl_client_certificate`, where issuers are looked for, too.
    pub(in crate::tls) trusted: &'c [CertificateDer<'static>],
}

impl OcspStapling {
    /// Stapling for `certificates`; `None`: there is no responder to ask. `warn` gets the reason.
    pub(in crate::tls) fn new(
        certificates: &[FixedCertificates],
        wanted: &WantedStaple<'_>,
        warn: &mut dyn FnMut(String),
    ) -> Option<OcspStapling> {
        let mut asked = Vec::new();
        for (index, FixedCertificates { certificate, name, .. }) in certificates.iter().enumerate() {
            match AskedResponder::new(index, certificate, name, wanted) {
                Ok(new) => asked.push(new),
                Err(why) => warn(format!("\"ssl_stapling\" ignored, {why} \"{name}\"")),
            }
        }
        if asked.is_empty() {
            return None;
        }
        let known = vec![KnownStaple::default(); asked.len()];
        Some(OcspStapling {
            certificates: certificates.iter().map(|it| it.certificate.clone()).collect(),
            asked,
            signer: if wanted.verify { OcspSigner::Issuer } else { OcspSigner::Any },
            state: Mutex::new(StaplingState { known, configs: None }),
        })
    }

    /// `plain` (for HTTP/1, and HTTP/2 too) with what is known now, and begins to ask where that is old.
    pub(in crate::tls) fn config(
        self: &Arc<Self>,
        plain: &[ServerConfig; 2],
        http2: bool,
        names: &ResponderNames,
    ) -> ServerConfig {
        let now = weir_rt::unix_time().0;
        let mut due = Vec::new();
        let mut state = self.lock();
        for (at, known) in state.known.iter_mut().enumerate() {
            if now >= known.refresh && !known.busy {
                known.busy = true;
                due.push(at);
            }
        }
        if !due.is_empty() {
            // The request that asks takes the lock.
            drop(state);
            due.into_iter().for_each(|at| self.ask_soon(at, names));
            state = self.lock();
        }
        let expired = |known: &KnownStaple| known.response.as_ref().is_some_and(|held| held.until < now);
        if state.known.iter().any(expired) {
            for known in state.known.iter_mut().filter(|known| expired(known)) {
                known.response = None;
            }
            state.configs = None;
        }
        if state.known.iter().all(|known| known.response.is_none()) {
            return plain[usize::from(http2)].clone();
        }
        let known = &state.known;
        let configs = match &state.configs {
            Some(configs) => configs.clone(),
            None => {
                let certificates = self.stapled(known);
                let made = plain.each_ref().map(|config| config.with_certificates(certificates.clone()));
                state.configs = Some(made.clone());
                made
            }
        };
        let [http1, both] = configs;
        if http2 { both } else { http1 }
    }

    /// What is known of the certificate at `index`; `None`: its issuer is not asked.
    pub(in crate::tls) fn known(&self, index: usize) -> Option<KnownStatus> {
        let at = self.asked.iter().position(|asked| asked.index == index)?;
        let known = &self.lock().known[at];
        let now = weir_rt::clock::unix_time().0;
        Some(match &known.response {
            Some(held) if held.until >= now => KnownStatus::Held { until: held.until },
            _ => KnownStatus::Absent { why: known.error.clone() },
        })
    }

    fn stapled(&self, known: &[KnownStaple]) -> Vec<Certificate> {
        let mut certificates = self.certificates.clone();
        for (asked, known) in self.asked.iter().zip(known) {
            if let Some(held) = &known.response {
                let certificate = &mut certificates[asked.index];
                *certificate = certificate.with_ocsp(Some(held.bytes.clone()));
            }
        }
        certificates
    }

    /// Notes what asking came to. What was known before an error is used until it expires.
    fn note(&self, at: usize, result: Result<HeldStaple, String>, now: u64) {
        let mut state = self.lock();
        let known = &mut state.known[at];
        known.busy = false;
        match result {
            Ok(held) => {
                known.refresh = refresh(now, held.until);
                known.error = None;
                known.response = Some(held);
                state.configs = None;
            }
            Err(why) => {
                known.refresh = now + SOON;
                known.error = Some(why.clone());
                drop(state);
                let AskedResponder { responder, name, .. } = &self.asked[at];
                let url = &responder.url;
                let message = format_args!(
                    "{why} while requesting certificate status, responder: {url}, certificate: \"{name}\""
                );
                log::cycle(LogLevel::Error, &message);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, StaplingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AskedResponder {
    fn new(
        index: usize,
        certificate: &Certificate,
        name: &str,
        wanted: &WantedStaple<'_>,
    ) -> Result<AskedResponder, &'static str> {
        let (own, others) = certificate.chain().split_first().ok_or("no certificate in")?;
        let issuer = ocsp::issuer(own, others.iter().chain(wanted.trusted));
        let issuer = issuer.ok_or("issuer certificate not found for certificate")?;
        let named = || ocsp::responder(own).ok_or("no OCSP responder URL in the certificate");
        let url = wanted.responder.map_or_else(named, |url| Ok(url.to_owned()))?;
        let responder =
            OcspResponder::parse(&url).map_err(|_| "invalid URL of the OCSP responder in the certificate")?;
        let id = ocsp::id(own, &issuer).ok_or("malformed certificate")?;
        Ok(AskedResponder { index, name: name.to_owned(), id, issuer, responder })
    }
}

/// A question under way. Given up, it can be asked again.
struct StapleRequest {
    stapling: Arc<OcspStapling>,
    at: usize,
}

impl Drop for StapleRequest {
    fn drop(&mut self) {
        self.stapling.lock().known[self.at].busy = false;
    }
}

impl OcspStapling {
    /// Has an issuer asked by the thread that no worker holds up.
    fn ask_soon(self: &Arc<Self>, at: usize, names: &ResponderNames) {
        let (asking, names) = (StapleRequest { stapling: self.clone(), at }, names.clone());
        let begun = services::run(move || {
            weir_rt::spawn(ask(asking, names));
        });
        if let Err(error) = begun {
            log::cycle(LogLevel::Alert, &format_args!("no thread to ask for OCSP responses: {error}"));
        }
    }
}

async fn ask(asking: StapleRequest, names: ResponderNames) {
    let StapleRequest { stapling, at } = &asking;
    let AskedResponder { id, issuer, responder, index, .. } = &stapling.asked[*at];
    let answered = responder.ask(&names, id).await;
    let now = weir_rt::unix_time().0;
    let result = answered.and_then(|bytes| {
        let chain = stapling.certificates[*index].chain();
        let response = ocsp::check_response(&bytes, &chain[0], issuer, chain, stapling.signer, now);
        let response = response.map_err(|error| error.to_string())?;
        match response.status {
            CertificateStatus::Good => Ok(HeldStaple { bytes, until: response.until.unwrap_or(u64::MAX) }),
            other => Err(format!("certificate status \"{}\" in the OCSP response", other.name())),
        }
    });
    stapling.note(*at, result, now);
}

/// nginx's times: five minutes before the response expires, in an hour at the latest, in five minutes at the earliest.
fn refresh(now: u64, until: u64) -> u64 {
    until.saturating_sub(SOON).min(now + 3600).max(now + SOON)
}

/// Seconds.
const SOON: u64 = 300;
