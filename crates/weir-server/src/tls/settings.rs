//! The directives of TLS servers, as written.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use weir_conf::names::*;
use weir_conf::{Args, Contexts, Directive, Error, LineCx, Result, Span, parse_size};
use weir_tls::suites::{self, ProtocolVersions};

use super::clients::{ClientPolicy, ClientTrust};
use super::command::conf_command;
use super::ocsp::Responder;
use super::server::{Build, Known, ServerTls};
use weir_engine::conf::registry::Registry;
use weir_engine::inherit;
use weir_engine::variable::Script;
use weir_upstream::tls_client::cache::Keep;
use weir_upstream::tls_client::files::{self, BUILDING};
use weir_upstream::tls_client::values::{absolute, certificate_cache, ciphers, protocols, warn_of_groups};

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
    pub(super) protocols: Option<ProtocolVersions>,
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
    Row::new("ssl", HERE, ONE, gone)
        .syntax("ssl on | off")
        .doc("Refused, as in nginx since 1.25.1: `listen ... ssl` takes its place."),
    Row::new("ssl_certificate", HERE, ONE, |c, line| push_file(&mut c.certificates, line))
        .syntax("ssl_certificate file | data:value")
        .doc(
            "Certificate of the server in PEM, followed by intermediate certificates. Several \
             lines give certificates of different types, such as RSA and ECDSA. The value may \
             contain variables; `data:` is a value instead of a file.",
        )
        .example(
            "server {\n\
             \x20   listen 443 ssl;\n\
             \x20   server_name example.com;\n\
             \x20   ssl_certificate conf/example.com.crt;\n\
             \x20   ssl_certificate_key conf/example.com.key;\n\
             }",
        ),
    Row::new("ssl_certificate_key", HERE, ONE_OR_TWO, certificate_key)
        .syntax("ssl_certificate_key file | data:value | pkcs11:uri [inline | pool]")
        .doc(
            "Private key of the certificate in PEM (PKCS#8, PKCS#1 or SEC1, encrypted or \
             not), or in a device by a PKCS#11 URI (RFC 7512). Weir's own: `inline` or \
             `pool`, whether a worker or another thread uses it; by default RSA keys of 3,072 \
             bits and more are used on other threads.",
        ),
    Row::new("ssl_password_file", HERE, ONE, |c, line| line.conf_path(&mut c.set().password_file))
        .syntax("ssl_password_file file")
        .doc("File of passphrases for private keys, one per line, which are tried in turn."),
    Row::new("ssl_certificate_cache", HERE, Args::range(1, 3), |c, line| {
        certificate_cache(&mut c.set().certificate_cache, line)
    })
    .syntax(
        "ssl_certificate_cache off\n\
             ssl_certificate_cache max=number [inactive=time] [valid=time]",
    )
    .default("off")
    .doc(
        "Caches certificates and keys whose names contain variables: at most `max`; those \
             not used for `inactive` (10s) are removed, others are read again after `valid` \
             (60s).",
    ),
    Row::new("ssl_certificate_compression", HERE, FLAG, |c, line| line.flag(&mut c.set().compression))
        .syntax("ssl_certificate_compression on | off")
        .default("off")
        .doc("Compresses certificates with zlib for clients that support it in TLS 1.3 (RFC 8879)."),
    Row::new("ssl_protocols", HERE, MORE, |c, line| protocols(&mut c.set().protocols, line))
        .syntax("ssl_protocols TLSv1.2 | TLSv1.3 ...")
        .default("TLSv1.2 TLSv1.3")
        .doc("Enabled TLS protocols. Older ones are not available.")
        .example("ssl_protocols TLSv1.3;"),
    Row::new("ssl_ciphers", HERE, ONE, |c, line| ciphers(&mut c.set().ciphers, line))
        .syntax("ssl_ciphers ciphers")
        .doc(
            "Enabled TLS 1.2 ciphers, as an OpenSSL cipher string; there are six, with ECDHE \
             and AEAD, all enabled by default.",
        ),
    Row::new("ssl_ecdh_curve", HERE, ONE, curves).syntax("ssl_ecdh_curve curve").default("auto").doc(
        "Groups of the key exchange, separated by colons: `X25519MLKEM768`, `X25519`, \
             `prime256v1`, `secp384r1`, `secp521r1`; `auto` is all but the last.",
    ),
    Row::new("ssl_dhparam", HERE, ONE, dhparam)
        .syntax("ssl_dhparam file")
        .doc("Accepted with a warning, without effect: there are no DHE ciphers."),
    Row::new("ssl_prefer_server_ciphers", HERE, FLAG, |c, line| {
        line.flag(&mut c.set().prefer_server_ciphers)
    })
    .syntax("ssl_prefer_server_ciphers on | off")
    .default("off")
    .doc("Prefers the order of the server's ciphers to that of the client's."),
    Row::new("ssl_buffer_size", HERE, ONE, |c, line| line.size(&mut c.set().buffer_size))
        .syntax("ssl_buffer_size size")
        .default("16k")
        .doc("Size of TLS records of responses, at most 16k."),
    Row::new("ssl_verify_client", HERE, ONE, |c, line| line.one_of(&mut c.set().verify, VERIFY))
        .syntax("ssl_verify_client on | off | optional | optional_no_ca")
        .default("off")
        .doc(
            "Verifies client certificates: `on` requires one, `optional` verifies it if \
             present, `optional_no_ca` accepts one of any issuer. The result is in \
             `$ssl_client_verify`.",
        )
        .example("ssl_client_certificate conf/clients-ca.crt;\nssl_verify_client on;"),
    Row::new("ssl_verify_depth", HERE, ONE, |c, line| line.number(&mut c.set().verify_depth, ..))
        .syntax("ssl_verify_depth number")
        .default("1")
        .doc(
            "Maximum length of the certificate chain between a client's certificate and a \
             trusted one.",
        ),
    Row::new("ssl_client_certificate", HERE, ONE, |c, line| line.conf_path(&mut c.set().client_certificate))
        .syntax("ssl_client_certificate file")
        .doc(
            "Trusted CA certificates in PEM for client certificates; their names are sent to \
             clients.",
        ),
    Row::new("ssl_trusted_certificate", HERE, ONE, |c, line| {
        line.conf_path(&mut c.set().trusted_certificate)
    })
    .syntax("ssl_trusted_certificate file")
    .doc(
        "Trusted CA certificates in PEM for client certificates and OCSP responses; their \
             names are not sent to clients.",
    ),
    Row::new("ssl_crl", HERE, ONE, |c, line| line.conf_path(&mut c.set().crl))
        .syntax("ssl_crl file")
        .doc("Certificate revocation lists in PEM for client certificates."),
    Row::new("ssl_session_cache", HERE, ONE_OR_TWO, session_cache)
        .syntax(
            "ssl_session_cache off | none | builtin[:number]\n\
             ssl_session_cache [builtin[:number]] shared:name:size",
        )
        .default("none")
        .doc(
            "Cache of TLS 1.2 sessions: none, one per worker (`builtin`, with a number of \
             sessions), or one of this size shared by all workers.",
        )
        .example("ssl_session_cache shared:tls:10m;\nssl_session_timeout 1h;"),
    Row::new("ssl_session_tickets", HERE, FLAG, |c, line| line.flag(&mut c.set().session_tickets))
        .syntax("ssl_session_tickets on | off")
        .default("on")
        .doc("Resumes sessions by tickets."),
    Row::new("ssl_session_ticket_key", HERE, ONE, |c, line| {
        let mut path = None;
        line.conf_path(&mut path)?;
        c.set().ticket_keys.get_or_insert_default().extend(path);
        Ok(())
    })
    .syntax("ssl_session_ticket_key file")
    .doc(
        "File with a key of session tickets, 80 or 48 random bytes. The first one encrypts, \
         all of them decrypt. By default keys are random and rotate.",
    ),
    Row::new("ssl_session_timeout", HERE, ONE, |c, line| line.time_s(&mut c.set().session_timeout))
        .syntax("ssl_session_timeout time")
        .default("5m")
        .doc("Time during which a session can be resumed."),
    Row::new("ssl_stapling", HERE, FLAG, |c, line| line.flag(&mut c.set().stapling))
        .syntax("ssl_stapling on | off")
        .default("off")
        .doc(
            "Sends OCSP responses to clients that ask for them; they are fetched at the first \
             handshake and refreshed in time.",
        ),
    Row::new("ssl_stapling_file", HERE, ONE, |c, line| line.conf_path(&mut c.set().stapling_file))
        .syntax("ssl_stapling_file file")
        .doc("OCSP response in DER that is sent instead of a fetched one."),
    Row::new("ssl_stapling_responder", HERE, ONE, |c, line| line.text(&mut c.set().stapling_responder))
        .syntax("ssl_stapling_responder url")
        .doc(
            "OCSP responder (`http://host[:port]/path`) instead of the one that the \
             certificate names.",
        ),
    Row::new("ssl_stapling_verify", HERE, FLAG, |c, line| line.flag(&mut c.set().stapling_verify))
        .syntax("ssl_stapling_verify on | off")
        .default("off")
        .doc("Verifies that OCSP responses are signed by the issuer or by its appointed responder."),
    Row::new("ssl_early_data", HERE, FLAG, |c, line| line.flag(&mut c.set().early_data))
        .syntax("ssl_early_data on | off")
        .default("off")
        .doc(
            "Accepts requests in TLS 1.3 early data; they can be replayed, and \
             `$ssl_early_data` is `1` for them.",
        ),
    Row::new("ssl_reject_handshake", HERE, FLAG, |c, line| line.flag(&mut c.set().reject_handshake))
        .syntax("ssl_reject_handshake on | off")
        .default("off")
        .doc("Rejects TLS handshakes for this server.")
        .example("server {\n    listen 443 ssl default_server;\n    ssl_reject_handshake on;\n}"),
    Row::new("ssl_conf_command", HERE, TWO, conf_command).syntax("ssl_conf_command name value").doc(
        "Sets an OpenSSL command: `Ciphersuites`, `Groups` or `Curves`, `CipherString`, \
             or `Options` with a list of `ServerPreference`, `PrioritizeChaCha` and \
             `SessionTicket` (each with `-` for its opposite). `KTLS` is accepted with a \
             warning; options that describe what is so anyway are accepted; others are \
             errors.",
    ),
    Row::new("ssl_ocsp", HERE, ONE, |c, line| line.one_of(&mut c.set().ocsp, OCSP))
        .syntax("ssl_ocsp on | off | leaf")
        .default("off")
        .doc(
            "Verifies client certificates by OCSP: all of the chain, or only the client's own \
             (`leaf`).",
        ),
    Row::new("ssl_ocsp_responder", HERE, ONE, ocsp_responder).syntax("ssl_ocsp_responder url").doc(
        "OCSP responder (`http://host[:port]/path`) for client certificates, instead of \
             the one that the certificate names.",
    ),
    Row::new("ssl_ocsp_cache", HERE, ONE, ocsp_cache)
        .syntax("ssl_ocsp_cache off | shared:name:size")
        .default("off")
        .doc("Cache of the OCSP status of client certificates."),
    Row::new("ssl_ech_file", HERE, ONE, ech_file)
        .syntax("ssl_ech_file file")
        .doc("Refused: Encrypted ClientHello is not available."),
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
