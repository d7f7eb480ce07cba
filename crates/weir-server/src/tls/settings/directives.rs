//! The rows of the module's directives, and their setters.

use weir_conf::names::*;
use weir_conf::{ArgCount, Contexts, Directive, LineCx, Result, parse_size};
use weir_tls::suites;

use super::{ClientVerify, KeyPolicy, OcspMode, SessionCacheSetting, SslConf};
use crate::tls::ocsp::OcspResponder;
use weir_engine::variable::ValueScript;
use weir_upstream::tls_client::commands::TlsSide;
use weir_upstream::tls_client::files::{self, BUILDING};
use weir_upstream::tls_client::values::{
    absolute, alpn_protocols, certificate_cache, ciphers, protocols, warn_of_groups,
};

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

/// Certificates and keys: a path relative to the configuration's directory, `data:`, or either with variables.
fn push_file(slot: &mut Option<Vec<(ValueScript, String)>>, line: &mut LineCx<'_>) -> Result {
    // What variables come to is made absolute when it is known.
    let name = if line.arg(0).contains('$') { line.arg(0).to_owned() } else { absolute(line, 0) };
    let script = ValueScript::compile_text(line, 0, name.as_bytes())?;
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
            ["off" | "none"] => SessionCacheSetting::None,
            // OpenSSL's default is 20,480 sessions.
            ["builtin"] => cache
                .filter(|it| matches!(it, SessionCacheSetting::Shared(..)))
                .unwrap_or(SessionCacheSetting::Own(20_480 * 256)),
            ["builtin", number] => {
                let sessions: u64 = number.parse().map_err(|_| invalid())?;
                cache
                    .filter(|it| matches!(it, SessionCacheSetting::Shared(..)))
                    .unwrap_or(SessionCacheSetting::Own(sessions * 256))
            }
            ["shared", name, size] if !name.is_empty() => {
                let bytes = parse_size(size.as_bytes()).ok_or_else(invalid)?;
                if bytes < LEAST_ZONE {
                    return Err(line.fail_arg(i, format!("session cache \"{text}\" is too small")));
                }
                SessionCacheSetting::Shared(name.to_owned(), bytes)
            }
            _ => return Err(invalid()),
        });
    }
    line.once(&mut c.set().session_cache, cache.unwrap_or(SessionCacheSetting::None))
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
    line.note("\"ssl_dhparam\" has no effect: there are no ciphers with DHE");
    Ok(())
}

/// `ssl_ocsp_responder url`
fn ocsp_responder(c: &mut SslConf, line: &mut LineCx<'_>) -> Result {
    let url = line.arg(0);
    let responder = OcspResponder::parse(url).map_err(|why| {
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

/// `ssl_ech_file`: accepting it would promise what is not done.
fn ech_file(_: &mut SslConf, line: &mut LineCx<'_>) -> Result {
    Err(line.fail("\"ssl_ech_file\" can't be had: there is no Encrypted ClientHello here"))
}

/// `ssl on|off`, which nginx had until 1.25.1.
fn gone(_: &mut SslConf, line: &mut LineCx<'_>) -> Result {
    Err(line.fail("unknown directive \"ssl\": each address has its own, \"listen ... ssl\""))
}

// The alias gives the closures of the table what `c` is.
type SslRow = Directive<SslConf>;

const HTTP_HERE: Contexts = HTTP.or(SERVER);
const HERE: Contexts = HTTP_HERE.or(STREAM_ANY);

pub(in crate::tls) const TABLE: &[SslRow] = &[
    SslRow::new("ssl", HTTP_HERE, ONE, gone)
        .syntax("ssl on | off")
        .doc("Refused, as in nginx since 1.25.1: `listen ... ssl` takes its place."),
    SslRow::new("ssl_certificate", HERE, ONE, |c, line| push_file(&mut c.certificates, line))
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
    SslRow::new("ssl_certificate_key", HERE, ONE_OR_TWO, certificate_key)
        .syntax("ssl_certificate_key file | data:value | pkcs11:uri [inline | pool]")
        .doc(
            "Private key of the certificate in PEM (PKCS#8, PKCS#1 or SEC1, encrypted or \
             not), or in a device by a PKCS#11 URI (RFC 7512). Weir's own: `inline` or \
             `pool`, whether a worker or another thread uses it; by default RSA keys of 3,072 \
             bits and more are used on other threads.",
        ),
    SslRow::new("ssl_password_file", HERE, ONE, |c, line| line.conf_path(&mut c.set().password_file))
        .syntax("ssl_password_file file")
        .doc("File of passphrases for private keys, one per line, which are tried in turn."),
    SslRow::new("ssl_certificate_cache", HERE, ArgCount::range(1, 3), |c, line| {
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
    SslRow::new("ssl_certificate_compression", HERE, FLAG, |c, line| line.flag(&mut c.set().compression))
        .syntax("ssl_certificate_compression on | off")
        .default("off")
        .doc("Compresses certificates with zlib for clients that support it in TLS 1.3 (RFC 8879)."),
    SslRow::new("ssl_protocols", HERE, MORE, |c, line| protocols(&mut c.set().protocols, line))
        .syntax("ssl_protocols TLSv1.2 | TLSv1.3 ...")
        .default("TLSv1.2 TLSv1.3")
        .doc("Enabled TLS protocols. Older ones are not available.")
        .example("ssl_protocols TLSv1.3;"),
    SslRow::new("ssl_ciphers", HERE, ONE, |c, line| ciphers(&mut c.set().ciphers, line))
        .syntax("ssl_ciphers ciphers")
        .doc(
            "Enabled TLS 1.2 ciphers, as an OpenSSL cipher string; there are six, with ECDHE \
             and AEAD, all enabled by default. `@SECLEVEL=3` and more are refused.",
        ),
    SslRow::new("ssl_ecdh_curve", HERE, ONE, curves).syntax("ssl_ecdh_curve curve").default("auto").doc(
        "Key exchange groups, separated by colons: `X25519MLKEM768`, `X25519`, \
             `prime256v1`, `secp384r1`, `secp521r1`; `auto` is all but the last.",
    ),
    SslRow::new("ssl_dhparam", HERE, ONE, dhparam)
        .syntax("ssl_dhparam file")
        .doc("Accepted without effect, with a note in the log: there are no DHE ciphers."),
    SslRow::new("ssl_prefer_server_ciphers", HERE, FLAG, |c, line| {
        line.flag(&mut c.set().prefer_server_ciphers)
    })
    .syntax("ssl_prefer_server_ciphers on | off")
    .default("off")
    .doc("Prefers the order of the server's ciphers to that of the client's."),
    SslRow::new("ssl_buffer_size", HTTP_HERE, ONE, |c, line| line.size(&mut c.set().buffer_size))
        .syntax("ssl_buffer_size size")
        .default("16k")
        .doc(
            "Size of TLS records of responses, at most 16k. A connection begins with shorter ones for 64 KB, \
             and again after a second without output. A client can read nothing of a record before its end \
             has come, which may be a round trip later.",
        ),
    SslRow::new("ssl_verify_client", HERE, ONE, |c, line| line.one_of(&mut c.set().verify, VERIFY))
        .syntax("ssl_verify_client on | off | optional | optional_no_ca")
        .default("off")
        .doc(
            "Verifies client certificates: `on` requires one, `optional` verifies it if \
             present, `optional_no_ca` accepts one of any issuer. The result is in \
             `$ssl_client_verify`.",
        )
        .example("ssl_client_certificate conf/clients-ca.crt;\nssl_verify_client on;"),
    SslRow::new("ssl_verify_depth", HERE, ONE, |c, line| line.number(&mut c.set().verify_depth, ..))
        .syntax("ssl_verify_depth number")
        .default("1")
        .doc(
            "Maximum length of the certificate chain between a client's certificate and a \
             trusted one.",
        ),
    SslRow::new("ssl_client_certificate", HERE, ONE, |c, line| {
        line.conf_path(&mut c.set().client_certificate)
    })
    .syntax("ssl_client_certificate file")
    .doc(
        "Trusted CA certificates in PEM for client certificates; their names are sent to \
             clients.",
    ),
    SslRow::new("ssl_trusted_certificate", HERE, ONE, |c, line| {
        line.conf_path(&mut c.set().trusted_certificate)
    })
    .syntax("ssl_trusted_certificate file")
    .doc(
        "Trusted CA certificates in PEM for client certificates and OCSP responses; their \
             names are not sent to clients.",
    ),
    SslRow::new("ssl_crl", HERE, ONE, |c, line| line.conf_path(&mut c.set().crl))
        .syntax("ssl_crl file")
        .doc("Certificate revocation lists in PEM for client certificates."),
    SslRow::new("ssl_session_cache", HERE, ONE_OR_TWO, session_cache)
        .syntax(
            "ssl_session_cache off | none | builtin[:number]\n\
             ssl_session_cache [builtin[:number]] shared:name:size",
        )
        .default("none")
        .doc(
            "Cache of TLS 1.2 sessions, for all workers. `builtin` is one of this server alone, with a number of \
             sessions. `shared` has this size, and servers with the same zone name share it.",
        )
        .example("ssl_session_cache shared:tls:10m;\nssl_session_timeout 1h;"),
    SslRow::new("ssl_session_tickets", HERE, FLAG, |c, line| line.flag(&mut c.set().session_tickets))
        .syntax("ssl_session_tickets on | off")
        .default("on")
        .doc("Resumes sessions by tickets."),
    SslRow::new("ssl_session_ticket_key", HERE, ONE, |c, line| {
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
    SslRow::new("ssl_session_timeout", HERE, ONE, |c, line| line.time_s(&mut c.set().session_timeout))
        .syntax("ssl_session_timeout time")
        .default("5m")
        .doc("Time during which a session can be resumed."),
    SslRow::new("ssl_stapling", HERE, FLAG, |c, line| line.flag(&mut c.set().stapling))
        .syntax("ssl_stapling on | off")
        .default("off")
        .doc(
            "Sends OCSP responses to clients that ask for them; they are fetched at the first \
             handshake and refreshed in time.",
        ),
    SslRow::new("ssl_stapling_file", HERE, ONE, |c, line| line.conf_path(&mut c.set().stapling_file))
        .syntax("ssl_stapling_file file")
        .doc("OCSP response in DER that is sent instead of a fetched one."),
    SslRow::new("ssl_stapling_responder", HERE, ONE, |c, line| line.text(&mut c.set().stapling_responder))
        .syntax("ssl_stapling_responder url")
        .doc(
            "OCSP responder (`http://host[:port]/path`) instead of the one that the \
             certificate names.",
        ),
    SslRow::new("ssl_stapling_verify", HERE, FLAG, |c, line| line.flag(&mut c.set().stapling_verify))
        .syntax("ssl_stapling_verify on | off")
        .default("off")
        .doc("Verifies that OCSP responses are signed by the issuer or by its appointed responder."),
    SslRow::new("ssl_early_data", HTTP_HERE, FLAG, |c, line| line.flag(&mut c.set().early_data))
        .syntax("ssl_early_data on | off")
        .default("off")
        .doc(
            "Accepts requests in TLS 1.3 early data; they can be replayed, and \
             `$ssl_early_data` is `1` for them.",
        ),
    SslRow::new("ssl_reject_handshake", HERE, FLAG, |c, line| line.flag(&mut c.set().reject_handshake))
        .syntax("ssl_reject_handshake on | off")
        .default("off")
        .doc("Rejects TLS handshakes for this server.")
        .example("server {\n    listen 443 ssl default_server;\n    ssl_reject_handshake on;\n}"),
    SslRow::new("ssl_conf_command", HERE, TWO, |c, line| {
        c.set().commands.get_or_insert_default().add(TlsSide::Server, line)
    })
    .syntax("ssl_conf_command name value")
    .doc(
        "Sets an OpenSSL command, after all other directives. The names are `MinProtocol`, `MaxProtocol`, \
             `Protocol`, `CipherString`, `Ciphersuites`, `Groups` (`Curves`, `ECDHParameters`), \
             `SignatureAlgorithms`, `ClientSignatureAlgorithms`, `NumTickets`, and `Certificate` with \
             `PrivateKey`. `Options` takes a list of `ServerPreference`, `PrioritizeChaCha` and \
             `SessionTicket`, each with `-` for its opposite. `KTLS` \
             is accepted with a warning; options that describe what is so anyway are accepted; others are errors.",
    ),
    SslRow::new("ssl_ocsp", HERE, ONE, |c, line| line.one_of(&mut c.set().ocsp, OCSP))
        .syntax("ssl_ocsp on | off | leaf")
        .default("off")
        .doc(
            "Verifies client certificates by OCSP: all of the chain, or only the client's own \
             (`leaf`).",
        ),
    SslRow::new("ssl_ocsp_responder", HERE, ONE, ocsp_responder).syntax("ssl_ocsp_responder url").doc(
        "OCSP responder (`http://host[:port]/path`) for client certificates, instead of \
             the one that the certificate names.",
    ),
    SslRow::new("ssl_ocsp_cache", HERE, ONE, ocsp_cache)
        .syntax("ssl_ocsp_cache off | shared:name:size")
        .default("off")
        .doc("Cache of the OCSP status of client certificates."),
    SslRow::new("ssl_alpn", STREAM_ANY, MORE, |c, line| alpn_protocols(&mut c.set().alpn, line))
        .syntax("ssl_alpn protocol ...")
        .doc(
            "Protocols for ALPN (RFC 7301): a client that offers protocols must offer one of these, else its handshake fails. \
             The one that was agreed on is in `$ssl_alpn_protocol`.",
        ),
    SslRow::new("ssl_handshake_timeout", STREAM_ANY, ONE, |c, line| {
        line.time_ms(&mut c.set().handshake_timeout)
    })
    .syntax("ssl_handshake_timeout time")
    .default("60s")
    .doc("Timeout for TLS handshakes; then the session ends with 500."),
    SslRow::new("ssl_ech_file", HTTP_HERE, ONE, ech_file)
        .syntax("ssl_ech_file file")
        .doc("Refused: Encrypted ClientHello is not available."),
];

const VERIFY: &[(&str, ClientVerify)] = &[
    ("off", ClientVerify::Off),
    ("on", ClientVerify::On),
    ("optional", ClientVerify::Optional),
    ("optional_no_ca", ClientVerify::OptionalNoCa),
];

const OCSP: &[(&str, OcspMode)] = &[("off", OcspMode::Off), ("on", OcspMode::On), ("leaf", OcspMode::Leaf)];

/// Bytes of a zone at least: eight pages, as for nginx.
const LEAST_ZONE: u64 = 8 * 4096;
