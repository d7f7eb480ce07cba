//! The directives of TLS servers, as written.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use weir_conf::names::*;
use weir_conf::{Args, Contexts, Directive, Error, LineCx, Result, Span, parse_size};
use weir_tls::suites::{self, Protocols};

use super::clients::{ClientPolicy, ClientTrust};
use super::command::conf_command;
use super::ocsp::Responder;
use super::server::{Build, Known, ServerTls};
use crate::conf::registry::Registry;
use crate::inherit;
use crate::tls_client::cache::Keep;
use crate::tls_client::files::{self, BUILDING};
use crate::tls_client::values::{absolute, certificate_cache, ciphers, protocols, warn_of_groups};
use crate::variable::Script;

/// The settings of one block as written.
#[derive(Default)]
pub struct SslConf {
    /// The `server` word, set by the builder: only servers are resolved.
    pub(crate) span: Option<Span>,
    pub(super) certificates: Option<Vec<(Script, String)>>,
    pub(super) keys: Option<Vec<(Script, String)>>,
    /// Where the key is used; of one block's keys the last that says so counts.
    pub(super) key_policy: Option<KeyPolicy>,
    /// All others; `None`: nothing is said.
    settings: Option<Arc<Settings>>,
    dhparam: Option<PathBuf>,
    /// What handshakes use; of a server with certificates or `ssl_reject_handshake`.
    pub resolved: Option<Arc<ServerTls>>,
    /// Whom a server without certificates takes clients' certificates from, if it asks for them; or why that can't be
    /// known.
    trust: Option<std::result::Result<Arc<ClientTrust>, String>>,
}

/// What very many servers may have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Settings {
    pub(super) password_file: Option<PathBuf>,
    pub(super) protocols: Option<Protocols>,
    pub(super) ciphers: Option<String>,
    pub(super) ciphersuites: Option<String>,
    pub(super) curves: Option<String>,
    pub(super) prefer_server_ciphers: Option<bool>,
    /// With that order, clients that begin with ChaCha20 get it.
    pub(super) prioritize_chacha: Option<bool>,
    pub(super) buffer_size: Option<u64>,
    pub(super) verify: Option<Verify>,
    pub(super) verify_depth: Option<usize>,
    pub(super) client_certificate: Option<PathBuf>,
    pub(super) trusted_certificate: Option<PathBuf>,
    pub(super) crl: Option<PathBuf>,
    pub(super) session_cache: Option<Cache>,
    pub(super) session_tickets: Option<bool>,
    pub(super) ticket_keys: Option<Vec<PathBuf>>,
    pub(super) session_timeout: Option<u64>,
    pub(super) stapling: Option<bool>,
    pub(super) stapling_file: Option<PathBuf>,
    pub(super) stapling_responder: Option<String>,
    pub(super) stapling_verify: Option<bool>,
    pub(super) ocsp: Option<Ocsp>,
    pub(super) ocsp_responder: Option<Responder>,
    /// Name and bytes; `None` inside: no cache.
    pub(super) ocsp_cache: Option<Option<(String, u64)>>,
    pub(super) early_data: Option<bool>,
    pub(super) reject_handshake: Option<bool>,
    pub(super) certificate_cache: Option<Option<Keep>>,
    pub(super) compression: Option<bool>,
}

/// `ssl_verify_client`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verify {
    /// Clients are not asked.
    Off,
    /// Clients need a certificate that is trusted.
    On,
    /// Clients may have one; if they do, it must be trusted.
    Optional,
    /// Clients may have one; whether it is trusted is told.
    OptionalNoCa,
}

/// `ssl_ocsp`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ocsp {
    /// Nobody is asked about clients' certificates.
    Off,
    /// About all of the path but the trusted end.
    On,
    /// About the client's own only.
    Leaf,
}

/// Where a server's keys are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyPolicy {
    /// On the worker's own thread.
    Inline,
    /// On threads that give way to workers.
    Pool,
}

/// `ssl_session_cache`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cache {
    /// `off`, `none`: nothing is kept here.
    None,
    /// `builtin`: this server's own, of so many bytes.
    Own(u64),
    /// `shared:name:size`
    Shared(String, u64),
}

impl SslConf {
    pub(super) fn inherit(&mut self, parent: &SslConf) {
        inherit!(self, parent, certificates, keys, key_policy);
        match (&mut self.settings, &parent.settings) {
            (Some(own), Some(parent)) => Arc::make_mut(own).inherit(parent),
            (Some(_), None) => {}
            (own, parent) => own.clone_from(parent),
        }
    }

    /// All but certificates and keys.
    pub(super) fn settings(&self) -> &Settings {
        static NONE: OnceLock<Settings> = OnceLock::new();
        self.settings.as_deref().unwrap_or_else(|| NONE.get_or_init(Settings::default))
    }

    pub(super) fn set(&mut self) -> &mut Settings {
        Arc::make_mut(self.settings.get_or_insert_default())
    }

    /// Whether handshakes can be completed.
    pub(super) fn has_certificates(&self) -> bool {
        self.certificates.is_some()
    }

    /// `ssl_verify_client`
    fn verify_client(&self) -> Verify {
        self.settings().verify.unwrap_or(Verify::Off)
    }

    /// What the server asks of clients' certificates.
    pub(crate) fn client_policy(&self) -> ClientPolicy {
        let off = ClientPolicy::off();
        let trust = match (&self.resolved, &self.trust) {
            (Some(resolved), _) => resolved.trust().clone(),
            (None, Some(Ok(trust))) => trust.clone(),
            (None, None | Some(Err(_))) => off.trust,
        };
        let depth = self.settings().verify_depth.unwrap_or(off.depth);
        ClientPolicy { verify: self.verify_client(), depth, trust }
    }

    /// What is wrong with a server on an address with TLS that asks for clients' certificates and has none itself.
    pub(super) fn doubt(&self) -> Option<Error> {
        let problem = match self.trust.as_ref()? {
            Err(message) => Error::new(message.clone()),
            Ok(_) if self.settings().lacks_authority() => Error::warning(format!(
                "{NO_AUTHORITY}: every certificate is refused, the default server's authorities are not this server's"
            )),
            Ok(_) => return None,
        };
        Some(match self.span {
            Some(span) => problem.at(span),
            None => problem,
        })
    }

    /// `ssl_reject_handshake`
    pub(super) fn rejects(&self) -> bool {
        self.settings().reject_handshake.unwrap_or(false)
    }

    pub(super) fn resolve(&mut self, registry: &mut Registry) -> Result {
        let Some(span) = self.span else { return Ok(()) };
        if !self.has_certificates() && !self.rejects() {
            self.resolve_trust(registry);
            return Ok(());
        }
        let at = |message: String| Error::new(message).at(span);
        let keys = self.keys.as_deref().unwrap_or_default().len();
        if let Some((_, name)) = self.certificates.as_deref().unwrap_or_default().get(keys) {
            return Err(at(format!("no \"ssl_certificate_key\" is defined for certificate \"{name}\"")));
        }
        self.settings().check().map_err(|message| at(message.to_owned()))?;
        let mut warnings = Vec::new();
        let built = Build::new(self, registry, &mut |why| warnings.push(why));
        registry.warnings.extend(warnings.into_iter().map(|why| Error::warning(why).at(span)));
        let built = built.map_err(at)?;
        for names in [&mut self.certificates, &mut self.keys] {
            names.iter_mut().for_each(Vec::shrink_to_fit);
        }
        self.settings = Some(built.common().settings.clone());
        self.resolved = Some(Arc::new(built));
        Ok(())
    }

    /// Handshakes are the default server's, but not its judgement. Whether the server is on an address with TLS is not
    /// known yet: what is wrong is said when it is ([`SslConf::doubt`]).
    fn resolve_trust(&mut self, registry: &mut Registry) {
        if self.verify_client() == Verify::Off {
            return;
        }
        let read = match self.settings().check_issuers() {
            Ok(()) => registry.shared::<Known>().trust(self.settings()),
            Err(message) => Err(message.to_owned()),
        };
        self.trust = Some(read);
    }
}

impl Settings {
    fn inherit(&mut self, parent: &Settings) {
        inherit!(
            self,
            parent,
            password_file,
            protocols,
            ciphers,
            ciphersuites,
            curves,
            prefer_server_ciphers,
            prioritize_chacha,
            buffer_size,
            verify,
            verify_depth,
            client_certificate,
            trusted_certificate,
            crl,
            session_cache,
            session_tickets,
            ticket_keys,
            session_timeout,
            stapling,
            stapling_file,
            stapling_responder,
            stapling_verify,
            ocsp,
            ocsp_responder,
            ocsp_cache,
            early_data,
            reject_handshake,
            certificate_cache,
            compression
        );
    }

    /// What contradicts itself.
    fn check(&self) -> std::result::Result<(), &'static str> {
        if self.lacks_authority() {
            return Err(NO_AUTHORITY);
        }
        self.check_issuers()
    }

    /// Clients need a certificate that is trusted, and nobody is.
    fn lacks_authority(&self) -> bool {
        let asks = !matches!(self.verify, None | Some(Verify::Off | Verify::OptionalNoCa));
        asks && self.client_certificate.is_none() && self.trusted_certificate.is_none()
    }

    fn check_issuers(&self) -> std::result::Result<(), &'static str> {
        if self.asks_issuers() && self.verify == Some(Verify::OptionalNoCa) {
            return Err("\"ssl_ocsp\" is incompatible with \"ssl_verify_client optional_no_ca\"");
        }
        Ok(())
    }

    /// `ssl_ocsp`
    pub(super) fn asks_issuers(&self) -> bool {
        !matches!(self.ocsp, None | Some(Ocsp::Off))
    }

    /// The passwords of keys.
    pub(super) fn passwords(&self) -> std::result::Result<Vec<Vec<u8>>, String> {
        self.password_file.as_ref().map_or(Ok(Vec::new()), |path| files::passwords(BUILDING, path))
    }
}

/// `ssl_certificate_key file [inline|pool]`
fn certificate_key(c: &mut SslConf, line: &mut LineCx<'_>) -> Result {
    match line.args().get(1) {
        None => {}
        Some(word) if word.is("inline") && line.arg(0).starts_with("pkcs11:") => {
            return Err(line.fail_arg(
                1,
                "\"inline\" can't be had for keys in devices: a worker must not wait for them",
            ));
        }
        Some(word) if word.is("inline") => c.key_policy = Some(KeyPolicy::Inline),
        Some(word) if word.is("pool") => c.key_policy = Some(KeyPolicy::Pool),
        Some(_) => return Err(line.invalid_parameter(1)),
    }
    push_file(&mut c.keys, line)
}

/// Certificates and keys: a path relative to the configuration's folder, `data:`, or either with variables.
fn push_file(slot: &mut Option<Vec<(Script, String)>>, line: &mut LineCx<'_>) -> Result {
    // What variables come to is made absolute when it is known.
    let name = if line.arg(0).contains('$') { line.arg(0).to_owned() } else { absolute(line, 0) };
    let script = Script::compile_text(line, 0, name.as_bytes())?;
    slot.get_or_insert_default().push((script, name));
    Ok(())
}

fn curves(c: &mut SslConf, line: &mut LineCx<'_>) -> Result {
    let list = line.arg(0);
    suites::select_groups(list).map_err(|error| {
        line.fail_arg(0, format!("SSL_CTX_set1_curves_list(\"{list}\") failed {}", files::ssl(&error)))
    })?;
    warn_of_groups(line, 0);
    line.once(&mut c.set().curves, list.to_owned())
}

/// `ssl_session_cache off | none | [builtin[:size]] [shared:name:size]`
fn session_cache(c: &mut SslConf, line: &mut LineCx<'_>) -> Result {
    let mut cache = None;
    for i in 0..line.args().len() {
        let text = line.arg(i);
        let invalid = || line.fail_arg(i, format!("invalid session cache \"{text}\""));
        cache = Some(match text.split(':').collect::<Vec<_>>()[..] {
            ["off" | "none"] => Cache::None,
            // OpenSSL's default is 20,480 sessions.
            ["builtin"] => {
                cache.filter(|it| matches!(it, Cache::Shared(..))).unwrap_or(Cache::Own(20_480 * 256))
            }
            ["builtin", number] => {
                let sessions: u64 = number.parse().map_err(|_| invalid())?;
                cache.filter(|it| matches!(it, Cache::Shared(..))).unwrap_or(Cache::Own(sessions * 256))
            }
            ["shared", name, size] if !name.is_empty() => {
                let bytes = parse_size(size.as_bytes()).ok_or_else(invalid)?;
                if bytes < LEAST_ZONE {
                    return Err(line.fail_arg(i, format!("session cache \"{text}\" is too small")));
                }
                Cache::Shared(name.to_owned(), bytes)
            }
            _ => return Err(invalid()),
        });
    }
    line.once(&mut c.set().session_cache, cache.unwrap_or(Cache::None))
}

/// `ssl_dhparam`: the file must be there, as for nginx.
fn dhparam(c: &mut SslConf, line: &mut LineCx<'_>) -> Result {
    line.conf_path(&mut c.dhparam)?;
    if let Some(path) = &c.dhparam
        && let Err(error) = BUILDING(path)
    {
        let why = files::cannot_open(path, &error);
        return Err(line.fail(format!("BIO_new_file(\"{}\") failed {why}", path.display())));
    }
    line.warn("\"ssl_dhparam\" has no effect: there are no ciphers with DHE");
    Ok(())
}

/// `ssl_ocsp_responder url`
fn ocsp_responder(c: &mut SslConf, line: &mut LineCx<'_>) -> Result {
    let url = line.arg(0);
    let responder = Responder::parse(url).map_err(|why| {
        line.fail_arg(0, format!("{why} in OCSP responder \"{url}\" in \"ssl_ocsp_responder\""))
    })?;
    line.once(&mut c.set().ocsp_responder, responder)
}

/// `ssl_ocsp_cache off | shared:name:size`
fn ocsp_cache(c: &mut SslConf, line: &mut LineCx<'_>) -> Result {
    let text = line.arg(0);
    if text == "off" {
        return line.once(&mut c.set().ocsp_cache, None);
    }
    let parts = text.strip_prefix("shared:").and_then(|rest| rest.split_once(':'));
    let parsed = parts.and_then(|(name, size)| Some((name, parse_size(size.as_bytes())?)));
    match parsed.filter(|(name, _)| !name.is_empty()) {
        None => Err(line.fail_arg(0, format!("invalid OCSP cache \"{text}\""))),
        Some((_, bytes)) if bytes < LEAST_ZONE => {
            Err(line.fail_arg(0, format!("OCSP cache \"{text}\" is too small")))
        }
        Some((name, bytes)) => line.once(&mut c.set().ocsp_cache, Some((name.to_owned(), bytes))),
    }
}

/// `ssl_ech_file`: accepting it would be a promise that is not kept.
fn ech_file(_: &mut SslConf, line: &mut LineCx<'_>) -> Result {
    Err(line.fail("\"ssl_ech_file\" can't be had: there is no Encrypted ClientHello here"))
}

const NO_AUTHORITY: &str = "no ssl_client_certificate or ssl_trusted_certificate for ssl_verify_client";

/// `ssl on|off`, which nginx had until 1.25.1.
fn gone(_: &mut SslConf, line: &mut LineCx<'_>) -> Result {
    Err(line.fail("unknown directive \"ssl\": each address has its own, \"listen ... ssl\""))
}

type Row = Directive<SslConf>;

const HERE: Contexts = HTTP.or(SERVER);

pub(super) const TABLE: &[Row] = &[
    Row::new("ssl", HERE, ONE, gone).doc("An error, as in nginx since 1.25.1: `listen ... ssl` takes its place."),
    Row::new("ssl_certificate", HERE, ONE, |c, line| push_file(&mut c.certificates, line))
        .doc("The server's certificate in PEM, others of its chain behind it; several of different kinds; variables."),
    Row::new("ssl_certificate_key", HERE, ONE_OR_TWO, certificate_key)
        .doc("The key of the certificate in PEM: PKCS#8, PKCS#1, SEC1, encrypted or not; or in a device: pkcs11:token=...;object=...?module-path=...&pin-source=file (RFC 7512). Weir's own: inline or pool, where it is used; RSA of 3,072 bits and more on a pool's threads."),
    Row::new("ssl_password_file", HERE, ONE, |c, line| line.conf_path(&mut c.set().password_file))
        .doc("Passwords of keys, one a line; each is tried."),
    Row::new("ssl_certificate_cache", HERE, Args::range(1, 3), |c, line| certificate_cache(&mut c.set().certificate_cache, line))
        .doc("Whether certificates with variables in their names are kept: off, max=N valid=60s inactive=10s."),
    Row::new("ssl_certificate_compression", HERE, FLAG, |c, line| line.flag(&mut c.set().compression))
        .doc("Certificates are sent compressed with zlib to clients of TLS 1.3 that can read that (RFC 8879); off."),
    Row::new("ssl_protocols", HERE, MORE, |c, line| protocols(&mut c.set().protocols, line))
        .doc("TLSv1.2, TLSv1.3; both. Older ones can't be had."),
    Row::new("ssl_ciphers", HERE, ONE, |c, line| ciphers(&mut c.set().ciphers, line))
        .doc("The ciphers of TLS 1.2 in OpenSSL's language; there are six, with ECDHE and AEAD."),
    Row::new("ssl_ecdh_curve", HERE, ONE, curves)
        .doc("The groups of the key exchange: X25519MLKEM768, X25519, prime256v1, secp384r1, secp521r1; auto, which is without the last."),
    Row::new("ssl_dhparam", HERE, ONE, dhparam).doc("Has no effect, of which a warning tells: there are no ciphers with DHE."),
    Row::new("ssl_prefer_server_ciphers", HERE, FLAG, |c, line| line.flag(&mut c.set().prefer_server_ciphers))
        .doc("The server's order of ciphers counts, not the client's; off."),
    Row::new("ssl_buffer_size", HERE, ONE, |c, line| line.size(&mut c.set().buffer_size))
        .doc("Bytes of a TLS record that is sent, at most 16k; 16k."),
    Row::new("ssl_verify_client", HERE, ONE, |c, line| line.one_of(&mut c.set().verify, VERIFY))
        .doc("Whether clients are asked for a certificate: off, on, optional, optional_no_ca."),
    Row::new("ssl_verify_depth", HERE, ONE, |c, line| line.number(&mut c.set().verify_depth, ..))
        .doc("The most certificates between a client's and a trusted one; 1."),
    Row::new("ssl_client_certificate", HERE, ONE, |c, line| line.conf_path(&mut c.set().client_certificate))
        .doc("Trusted certificates whose names clients are told."),
    Row::new("ssl_trusted_certificate", HERE, ONE, |c, line| line.conf_path(&mut c.set().trusted_certificate))
        .doc("Trusted certificates of which clients are not told."),
    Row::new("ssl_crl", HERE, ONE, |c, line| line.conf_path(&mut c.set().crl))
        .doc("Lists of revoked certificates of clients."),
    Row::new("ssl_session_cache", HERE, ONE_OR_TWO, session_cache)
        .doc("Sessions kept here: off, none, builtin[:number], shared:name:size; none."),
    Row::new("ssl_session_tickets", HERE, FLAG, |c, line| line.flag(&mut c.set().session_tickets))
        .doc("Sessions are given to clients to keep; on."),
    Row::new("ssl_session_ticket_key", HERE, ONE, |c, line| {
        let mut path = None;
        line.conf_path(&mut path)?;
        c.set().ticket_keys.get_or_insert_default().extend(path);
        Ok(())
    })
    .doc("A key of tickets, of 80 or 48 bytes; the first is used, all are known. Else keys change by themselves."),
    Row::new("ssl_session_timeout", HERE, ONE, |c, line| line.time_s(&mut c.set().session_timeout))
        .doc("How long a session can be resumed; 5m."),
    Row::new("ssl_stapling", HERE, FLAG, |c, line| line.flag(&mut c.set().stapling))
        .doc("An OCSP response is given to clients that ask for it; issuers are asked at the first handshake and in time; off."),
    Row::new("ssl_stapling_file", HERE, ONE, |c, line| line.conf_path(&mut c.set().stapling_file))
        .doc("The OCSP response, in DER; nobody is asked then."),
    Row::new("ssl_stapling_responder", HERE, ONE, |c, line| line.text(&mut c.set().stapling_responder))
        .doc("Who is asked (http://host[:port]/path); else whom certificates name."),
    Row::new("ssl_stapling_verify", HERE, FLAG, |c, line| line.flag(&mut c.set().stapling_verify))
        .doc("Responses that were fetched must be signed by the issuer or whom it has appointed; off."),
    Row::new("ssl_early_data", HERE, FLAG, |c, line| line.flag(&mut c.set().early_data))
        .doc("Requests may come with the first bytes of a resumed session ($ssl_early_data); off."),
    Row::new("ssl_reject_handshake", HERE, FLAG, |c, line| line.flag(&mut c.set().reject_handshake))
        .doc("Handshakes for this server are refused; off."),
    Row::new("ssl_conf_command", HERE, TWO, conf_command)
        .doc("OpenSSL's commands Ciphersuites, Groups, Curves, CipherString, and Options, a list in any letter case of ServerPreference, PrioritizeChaCha, SessionTicket, a minus before each takes it back; KTLS has no effect, of which a warning tells; NoRenegotiation, -UnsafeLegacyRenegotiation, NoResumptionOnRenegotiation, -Compression, ECDHSingle, DHSingle, ExtendedMasterSecret are so anyway. Others are errors."),
    Row::new("ssl_ocsp", HERE, ONE, |c, line| line.one_of(&mut c.set().ocsp, OCSP))
        .doc("Whether issuers are asked about clients' certificates: off, on (all of the path), leaf."),
    Row::new("ssl_ocsp_responder", HERE, ONE, ocsp_responder)
        .doc("Who is asked (http://host[:port]/path); else whom certificates name."),
    Row::new("ssl_ocsp_cache", HERE, ONE, ocsp_cache)
        .doc("What issuers said of clients' certificates is kept: off, shared:name:size; off."),
    Row::new("ssl_ech_file", HERE, ONE, ech_file).doc("An error: there is no Encrypted ClientHello."),
];

const VERIFY: &[(&str, Verify)] = &[
    ("off", Verify::Off),
    ("on", Verify::On),
    ("optional", Verify::Optional),
    ("optional_no_ca", Verify::OptionalNoCa),
];

const OCSP: &[(&str, Ocsp)] = &[("off", Ocsp::Off), ("on", Ocsp::On), ("leaf", Ocsp::Leaf)];

/// Bytes of a zone at least: eight pages, as for nginx.
const LEAST_ZONE: u64 = 8 * 4096;
