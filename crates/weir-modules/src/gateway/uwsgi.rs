//! `uwsgi_pass`: passes requests to uwsgi servers (nginx's `ngx_http_uwsgi_module`).

use std::sync::Arc;

use weir_conf::names::{ANY, LOCATION, LOCATION_IF, ONE};
use weir_conf::{ArgCount, Directive, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::log::LogLevel;
use weir_engine::plan::PlanBuilder;
use weir_engine::worker::UpstreamCloseProtocol;
use weir_engine::{Exchange, Module, UnnamedBlock, Verdict, inherit};
use weir_upstream::protocol::{
    HeadProgress, IncomingHead, OutgoingRequest, RequestFraming, UpstreamProtocol,
};
use weir_upstream::tls_client::SecureUpstream;
use weir_upstream::tls_client::client::{ClientConf, ClientTls};
use weir_upstream::{UpstreamFamily, UpstreamSettings};

use crate::gateway::cgi::answer;
use crate::gateway::cgi::params::{ParamLine, RequestParams};
use crate::gateway::cgi::target::{CgiPass, SecureName, pass_requests};
use crate::gateway::family_rows::family_row;

/// The module `uwsgi`.
pub struct Uwsgi;

impl Module for Uwsgi {
    const NAME: &'static str = "uwsgi";
    type Conf = UwsgiConf;
    const DIRECTIVES: &'static [Directive<UwsgiConf>] = &[
        UwsgiRow::new("uwsgi_pass", LOCATION.or(LOCATION_IF), ONE, |c, l| {
            l.ext::<ConfRegistry>().claim_content(Uwsgi::NAME);
            CgiPass::set_behind(&mut c.pass, l, SCHEME)
        })
        .syntax("uwsgi_pass address").doc("Passes requests to a uwsgi server or an `upstream`; `uwsgi://` (the default) or `suwsgi://`, which uses TLS, may precede the address, which may contain variables."),
        UwsgiRow::new("uwsgi_param", ANY, ArgCount::range(2, 3), |c, l| ParamLine::push(
            &mut c.params,
            l
        ))
        .syntax("uwsgi_param parameter value [if_not_empty]").doc("Sets a parameter of requests to the uwsgi server; with `if_not_empty` only where the value is not empty."),
        UwsgiRow::new("uwsgi_modifier1", ANY, ONE, |c, l| l.number(&mut c.modifier1, 0..=255))
            .syntax("uwsgi_modifier1 number").default("0").doc("First byte of the uwsgi packet header: the kind of application; 0 is WSGI."),
        UwsgiRow::new("uwsgi_modifier2", ANY, ONE, |c, l| l.number(&mut c.modifier2, 0..=255))
            .syntax("uwsgi_modifier2 number").default("0").doc("Fourth byte of the uwsgi packet header."),
        UwsgiRow::new("uwsgi_string", ANY, ONE, |c, l| {
            let text = l.arg(0).as_bytes().to_vec();
            l.once(&mut c.string, text)
        })
        .syntax("uwsgi_string string").doc("Bytes that are sent after the parameters of a request, as they are."),
        family_row!(bind, "uwsgi_bind"),
        family_row!(socket_keepalive, "uwsgi_socket_keepalive"),
        family_row!(socket_rcvbuf, "uwsgi_socket_rcvbuf"),
        family_row!(socket_sndbuf, "uwsgi_socket_sndbuf"),
        family_row!(connect_timeout, "uwsgi_connect_timeout"),
        family_row!(send_timeout, "uwsgi_send_timeout"),
        family_row!(read_timeout, "uwsgi_read_timeout"),
        family_row!(buffering, "uwsgi_buffering"),
        family_row!(request_buffering, "uwsgi_request_buffering"),
        family_row!(buffer_size, "uwsgi_buffer_size"),
        family_row!(buffers, "uwsgi_buffers"),
        family_row!(busy_buffers_size, "uwsgi_busy_buffers_size"),
        family_row!(max_temp_file_size, "uwsgi_max_temp_file_size"),
        family_row!(temp_file_write_size, "uwsgi_temp_file_write_size"),
        family_row!(temp_path, "uwsgi_temp_path").default("uwsgi_temp 1 2"),
        family_row!(next_upstream, "uwsgi_next_upstream"),
        family_row!(next_upstream_tries, "uwsgi_next_upstream_tries"),
        family_row!(next_upstream_timeout, "uwsgi_next_upstream_timeout"),
        family_row!(ignore_client_abort, "uwsgi_ignore_client_abort"),
        family_row!(intercept_errors, "uwsgi_intercept_errors"),
        family_row!(pass_request_headers, "uwsgi_pass_request_headers"),
        family_row!(pass_request_body, "uwsgi_pass_request_body"),
        family_row!(pass_header, "uwsgi_pass_header"),
        family_row!(hide_header, "uwsgi_hide_header"),
        family_row!(ignore_headers, "uwsgi_ignore_headers"),
        family_row!(limit_rate, "uwsgi_limit_rate"),
        family_row!(force_ranges, "uwsgi_force_ranges"),
        family_row!(cache_path, "uwsgi_cache_path"),
        family_row!(cache, "uwsgi_cache"),
        family_row!(cache_key, "uwsgi_cache_key"),
        family_row!(cache_valid, "uwsgi_cache_valid"),
        family_row!(cache_min_uses, "uwsgi_cache_min_uses"),
        family_row!(cache_methods, "uwsgi_cache_methods"),
        family_row!(cache_bypass, "uwsgi_cache_bypass"),
        family_row!(cache_purge, "uwsgi_cache_purge"),
        family_row!(cache_use_stale, "uwsgi_cache_use_stale"),
        family_row!(cache_background_update, "uwsgi_cache_background_update"),
        family_row!(cache_revalidate, "uwsgi_cache_revalidate"),
        family_row!(cache_lock, "uwsgi_cache_lock"),
        family_row!(cache_lock_age, "uwsgi_cache_lock_age"),
        family_row!(cache_lock_timeout, "uwsgi_cache_lock_timeout"),
        family_row!(cache_max_range_offset, "uwsgi_cache_max_range_offset"),
        family_row!(no_cache, "uwsgi_no_cache"),
        family_row!(store, "uwsgi_store"),
        family_row!(store_access, "uwsgi_store_access"),
        family_row!(ssl_session_reuse, "uwsgi_ssl_session_reuse"),
        family_row!(ssl_protocols, "uwsgi_ssl_protocols"),
        family_row!(ssl_ciphers, "uwsgi_ssl_ciphers"),
        family_row!(ssl_name, "uwsgi_ssl_name"),
        family_row!(ssl_server_name, "uwsgi_ssl_server_name"),
        family_row!(ssl_verify, "uwsgi_ssl_verify"),
        family_row!(ssl_verify_depth, "uwsgi_ssl_verify_depth"),
        family_row!(ssl_trusted_certificate, "uwsgi_ssl_trusted_certificate"),
        family_row!(ssl_crl, "uwsgi_ssl_crl"),
        family_row!(ssl_certificate, "uwsgi_ssl_certificate"),
        family_row!(ssl_certificate_key, "uwsgi_ssl_certificate_key"),
        family_row!(ssl_certificate_cache, "uwsgi_ssl_certificate_cache"),
        family_row!(ssl_password_file, "uwsgi_ssl_password_file"),
        family_row!(ssl_conf_command, "uwsgi_ssl_conf_command"),
    ];

    fn nest(conf: &mut UwsgiConf, parent: &UwsgiConf, _: UnnamedBlock) {
        inherit!(conf, parent, pass);
    }

    fn inherit(conf: &mut UwsgiConf, parent: &UwsgiConf) {
        conf.family.inherit(&parent.family);
        conf.ssl.inherit(&parent.ssl);
        inherit!(conf, parent, params, modifier1, modifier2, string);
    }

    fn resolve(conf: &mut UwsgiConf, registry: &mut ConfRegistry) -> Result {
        // nginx shows `Status` here, unlike with FastCGI and SCGI.
        conf.family.resolve("uwsgi", &[], registry)?;
        if let Some(pass) = &mut conf.pass {
            pass.resolve(registry)?;
            if pass.may_be_secure() {
                conf.ssl.resolve("uwsgi", registry)?;
            }
        }
        Ok(())
    }

    fn install(conf: &UwsgiConf, plan: &mut PlanBuilder<'_>) {
        let modifier = |number: Option<u64>| number.and_then(|n| u8::try_from(n).ok()).unwrap_or(0);
        pass_requests(plan, Self::NAME, conf.pass.as_ref(), &conf.family, |settings| UwsgiProtocol {
            params: RequestParams::new(
                conf.params.as_deref().unwrap_or_default(),
                settings.pass_request_headers,
            ),
            modifiers: [modifier(conf.modifier1), modifier(conf.modifier2)],
            string: conf.string.clone().unwrap_or_default(),
            tls: conf.ssl.tls(),
            settings: settings.clone(),
        });
    }
}

/// Gives the closures of the table the type of their argument.
type UwsgiRow = Directive<UwsgiConf>;

/// The settings of one block.
#[derive(Default)]
pub struct UwsgiConf {
    family: UpstreamFamily,
    ssl: ClientConf,
    pass: Option<CgiPass>,
    params: Option<Vec<ParamLine>>,
    modifier1: Option<u64>,
    modifier2: Option<u64>,
    string: Option<Vec<u8>>,
}

/// A location's way of speaking uwsgi.
struct UwsgiProtocol {
    params: RequestParams,
    modifiers: [u8; 2],
    string: Vec<u8>,
    /// `uwsgi_ssl_...`, where servers may speak TLS.
    tls: Option<Arc<ClientTls>>,
    settings: Arc<UpstreamSettings>,
}

impl UpstreamProtocol for UwsgiProtocol {
    fn closes_as(&self) -> UpstreamCloseProtocol {
        UpstreamCloseProtocol::Uwsgi
    }

    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn secure_scheme(&self) -> &'static str {
        "suwsgi://"
    }

    fn secure(&self, x: &mut Exchange) -> Option<SecureUpstream> {
        let host = x.state_if::<SecureName>()?.0.clone()?;
        let host = String::from_utf8_lossy(x.text(&host)).into_owned();
        Some(self.tls.as_ref()?.secure(x, &host))
    }

    fn needs_length(&self) -> bool {
        true
    }

    fn request(&self, x: &mut Exchange, out: &mut OutgoingRequest) -> std::result::Result<(), Verdict> {
        let mut pairs = Vec::with_capacity(1024);
        let mut fits = true;
        self.params.for_each(x, |name, value| fits &= pair(&mut pairs, name, value));
        pairs.extend_from_slice(&self.string);
        let Some(length) = u16::try_from(pairs.len()).ok().filter(|_| fits) else {
            fits_not(x, pairs.len());
            return Err(Verdict::Status(500));
        };
        let [low, high] = length.to_le_bytes();
        out.head = vec![self.modifiers[0], low, high, self.modifiers[1]];
        out.head.append(&mut pairs);
        if self.settings.passes_body(x) {
            out.framing = RequestFraming::Plain;
        }
        Ok(())
    }

    fn head(
        &self,
        x: &mut Exchange,
        bytes: &[u8],
        incoming: &mut IncomingHead,
    ) -> std::result::Result<HeadProgress, String> {
        answer::read(x, bytes, self.settings.buffer_size as usize, incoming)
    }
}

/// A name and a value, each after its length; `false`: one is longer than can be written.
fn pair(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> bool {
    let mut fits = true;
    for text in [name, value] {
        let length = u16::try_from(text.len());
        fits &= length.is_ok();
        out.extend_from_slice(&length.unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(text);
    }
    fits
}

fn fits_not(x: &Exchange, length: usize) {
    x.log(LogLevel::Alert, &format_args!("uwsgi request is too big: {length}"));
}

const SCHEME: &str = "uwsgi://";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_two_texts_with_lengths() {
        let mut out = Vec::new();
        assert!(pair(&mut out, b"A", b"bc"));
        assert_eq!(out, b"\x01\0A\x02\0bc");
        assert!(!pair(&mut Vec::new(), b"A", &[0; 70_000]));
    }
}
