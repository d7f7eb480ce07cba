//! Servers that speak TLS (nginx's `ngx_http_ssl_module`): `listen ... ssl`, certificates, sessions, clients' certificates.
//!
//! There are TLS 1.2 and 1.3, the six ciphers of TLS 1.2 that have ECDHE and AEAD, and the groups X25519MLKEM768, X25519,
//! prime256v1, secp384r1 and, where it is named, secp521r1. What else a directive asks for is an error or a warning that says so. Not there are DHE,
//! renegotiation, engines and OpenSSL's key stores, keys encrypted with other ciphers than AES, Encrypted ClientHello.
//! A client's certificate is judged by our own path building, with OpenSSL's verdicts; certificates with name constraints
//! are refused, since nothing holds names to them.

use weir_conf::{Directive, Error};

use super::server_part;
use super::settings::{self, SslConf};
use super::variables;
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::module::{BuildHooks, Module};
use weir_engine::variable::Variable;

/// The module of `ssl_...` in `http` and `server`.
pub struct Ssl;

impl Module for Ssl {
    const NAME: &'static str = "ssl";
    type Conf = SslConf;
    const DIRECTIVES: &'static [Directive<SslConf>] = settings::directives::TABLE;
    const VARIABLES: &'static [Variable] = variables::VARIABLES;

    const HOOKS: BuildHooks<SslConf> = BuildHooks {
        begin_server: Some(|conf, span| conf.span = Some(span)),
        check_addresses: Some(super::check),
        server_part: Some(server_part::make),
        ..BuildHooks::NONE
    };

    fn inherit(conf: &mut SslConf, parent: &SslConf) {
        conf.inherit(parent);
    }

    fn resolve(conf: &mut SslConf, registry: &mut ConfRegistry) -> Result<(), Error> {
        conf.resolve(registry)
    }
}
