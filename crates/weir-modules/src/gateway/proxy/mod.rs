//! `proxy_pass`: passes requests to HTTP servers (nginx's `ngx_http_proxy_module`).
//!
//! Upstreams themselves are in `weir-upstream`; here are the directives, where a request goes ([`pass`]), what is
//! sent ([`request`]), and how a response's head is read ([`http`]).

mod http;
mod known_response;
pub(crate) mod pass;
pub(crate) mod request;
mod rewrite;
#[cfg(test)]
mod tests;
mod upgrade;

use weir_conf::names::{ANY, FLAG, LIMIT_EXCEPT, LOCATION, LOCATION_IF, MORE, ONE, ONE_OR_TWO, TWO};
use weir_conf::{ArgCount, Directive, LineCx, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::{ValueScript, Variable};
use weir_engine::{Module, UnnamedBlock, inherit};
use weir_upstream::tls_client::client::ClientConf;
use weir_upstream::{UpstreamFamily, pass_to};

use crate::gateway::family_rows::family_row;
use http::HttpPass;
use known_response::KnownResponse;
use pass::ProxyPass;
use request::{RequestFields, SetHeaders};
use rewrite::{CookieFlags, CookieRules, RuleList, ValueRule};
use upgrade::UpgradeProtocols;

/// The module `proxy`.
pub struct Proxy;

impl Module for Proxy {
    const NAME: &'static str = "proxy";
    type Conf = ProxyConf;
    const DIRECTIVES: &'static [Directive<ProxyConf>] = &[
        ProxyRow::new("proxy_pass", LOCATION.or(LOCATION_IF).or(LIMIT_EXCEPT), ONE, ProxyConf::set_pass)
            .syntax("proxy_pass URL").doc("Passes requests to an HTTP server or an `upstream`. A URI in the URL replaces the part of the request's URI that the location matches; the URL may contain variables."),
        ProxyRow::new("proxy_set_header", ANY, TWO, |c, l| request::set_header(&mut c.set_headers, l))
            .syntax("proxy_set_header field value").default("Host $proxy_host").doc("Sets a header field of requests to the upstream server; a field with an empty value is not sent."),
        ProxyRow::new("proxy_set_body", ANY, ONE, |c, l| {
            let body = ValueScript::compile(l, 0)?;
            l.once(&mut c.body, body)
        })
        .syntax("proxy_set_body value").doc("Body of requests to the upstream server, in place of the client's."),
        family_row!(send_lowat, "proxy_send_lowat"),
        ProxyRow::new("proxy_headers_hash_max_size", ANY, ONE, |c, l| l.number(&mut c.hash_sizes[0], ..))
            .syntax("proxy_headers_hash_max_size size").default("512").doc("Accepted for compatibility: it has no effect, since no such table has to be sized."),
        ProxyRow::new("proxy_headers_hash_bucket_size", ANY, ONE, |c, l| l.number(&mut c.hash_sizes[1], ..))
            .syntax("proxy_headers_hash_bucket_size size").default("64").doc("Accepted for compatibility: it has no effect, since no such table has to be sized."),
        ProxyRow::new("proxy_method", ANY, ONE, |c, l| {
            let method = ValueScript::compile(l, 0)?;
            l.once(&mut c.method, method)
        })
        .syntax("proxy_method method").doc("Method of requests to the upstream server, in place of the client's; it may contain variables."),
        ProxyRow::new("proxy_http_version", ANY, ONE, |c, l| {
            l.one_of(&mut c.version, &[("1.0", 10), ("1.1", 11), ("2", 20)])
        })
        .syntax("proxy_http_version 1.0 | 1.1 | 2").default("1.1").doc("Version of HTTP for requests to the upstream server."),
        ProxyRow::new("proxy_upgrade", ANY, MORE, |c, l| UpgradeProtocols::set(&mut c.upgrade, l)).syntax("proxy_upgrade on | off | protocol ...").default("off").doc("Passes the client's `Upgrade` field on: `on` for `websocket`, or for the protocols named; never for `h2c`."),
        ProxyRow::new("proxy_protocol", ANY, ONE, |c, line| c.family.set_proxy_protocol(line)).syntax("proxy_protocol on | off | v1 | v2").default("off").doc("Sends the client's addresses at the beginning of connections to the upstream server (PROXY protocol); `on` is version 1."),
        ProxyRow::new("proxy_cache_convert_head", ANY, FLAG, |c, l| l.flag(&mut c.family.cache.convert_head))
            .syntax("proxy_cache_convert_head on | off").default("on").doc("Converts HEAD to GET for requests whose responses are cached."),
        ProxyRow::new("proxy_redirect", ANY, ONE_OR_TWO, |c, l| {
            ValueRule::redirect(&mut c.redirects, c.pass.as_ref(), l)
        })
        .syntax("proxy_redirect default\nproxy_redirect off\nproxy_redirect redirect replacement").doc("Changes the fields `Location` and `Refresh` of responses."),
        family_row!(pass_trailers, "proxy_pass_trailers"),
        ProxyRow::new("proxy_cookie_domain", ANY, ONE_OR_TWO, |c, l| {
            ValueRule::cookie_domain(&mut c.cookie_domains, l)
        })
        .syntax("proxy_cookie_domain off\nproxy_cookie_domain domain replacement").default("off").doc("Changes the attribute `domain` of `Set-Cookie` fields of responses."),
        ProxyRow::new("proxy_cookie_path", ANY, ONE_OR_TWO, |c, l| ValueRule::cookie_path(&mut c.cookie_paths, l))
            .syntax("proxy_cookie_path off\nproxy_cookie_path path replacement").default("off").doc("Changes the attribute `path` of `Set-Cookie` fields of responses."),
        ProxyRow::new("proxy_cookie_flags", ANY, ArgCount::range(1, 4), |c, l| CookieFlags::set(&mut c.cookie_flags, l))
            .syntax("proxy_cookie_flags off\nproxy_cookie_flags cookie [flag ...]").default("off").doc("Sets or removes flags of cookies in responses: `secure`, `httponly`, `samesite=strict|lax|none`, and `nosecure` and its like."),
        family_row!(bind, "proxy_bind"),
        family_row!(socket_keepalive, "proxy_socket_keepalive"),
        family_row!(socket_rcvbuf, "proxy_socket_rcvbuf"),
        family_row!(socket_sndbuf, "proxy_socket_sndbuf"),
        family_row!(connect_timeout, "proxy_connect_timeout"),
        family_row!(send_timeout, "proxy_send_timeout"),
        family_row!(read_timeout, "proxy_read_timeout"),
        family_row!(buffering, "proxy_buffering"),
        family_row!(request_buffering, "proxy_request_buffering"),
        family_row!(buffer_size, "proxy_buffer_size"),
        family_row!(buffers, "proxy_buffers"),
        family_row!(busy_buffers_size, "proxy_busy_buffers_size"),
        family_row!(max_temp_file_size, "proxy_max_temp_file_size"),
        family_row!(temp_file_write_size, "proxy_temp_file_write_size"),
        family_row!(temp_path, "proxy_temp_path").default("proxy_temp 1 2"),
        family_row!(next_upstream, "proxy_next_upstream"),
        family_row!(next_upstream_tries, "proxy_next_upstream_tries"),
        family_row!(next_upstream_timeout, "proxy_next_upstream_timeout"),
        family_row!(ignore_client_abort, "proxy_ignore_client_abort"),
        family_row!(intercept_errors, "proxy_intercept_errors"),
        family_row!(pass_request_headers, "proxy_pass_request_headers"),
        family_row!(pass_request_body, "proxy_pass_request_body"),
        family_row!(pass_header, "proxy_pass_header"),
        family_row!(hide_header, "proxy_hide_header"),
        family_row!(ignore_headers, "proxy_ignore_headers"),
        family_row!(limit_rate, "proxy_limit_rate"),
        family_row!(force_ranges, "proxy_force_ranges"),
        family_row!(cache_path, "proxy_cache_path"),
        family_row!(cache, "proxy_cache"),
        family_row!(cache_key, "proxy_cache_key").default("$scheme$proxy_host$request_uri"),
        family_row!(cache_valid, "proxy_cache_valid"),
        family_row!(cache_min_uses, "proxy_cache_min_uses"),
        family_row!(cache_methods, "proxy_cache_methods"),
        family_row!(cache_bypass, "proxy_cache_bypass"),
        family_row!(cache_purge, "proxy_cache_purge"),
        family_row!(cache_use_stale, "proxy_cache_use_stale"),
        family_row!(cache_background_update, "proxy_cache_background_update"),
        family_row!(cache_revalidate, "proxy_cache_revalidate"),
        family_row!(cache_lock, "proxy_cache_lock"),
        family_row!(cache_lock_age, "proxy_cache_lock_age"),
        family_row!(cache_lock_timeout, "proxy_cache_lock_timeout"),
        family_row!(cache_max_range_offset, "proxy_cache_max_range_offset"),
        family_row!(no_cache, "proxy_no_cache"),
        family_row!(store, "proxy_store"),
        family_row!(store_access, "proxy_store_access"),
        family_row!(ssl_session_reuse, "proxy_ssl_session_reuse"),
        family_row!(ssl_protocols, "proxy_ssl_protocols"),
        family_row!(ssl_ciphers, "proxy_ssl_ciphers"),
        family_row!(ssl_name, "proxy_ssl_name").default("$proxy_host"),
        family_row!(ssl_server_name, "proxy_ssl_server_name"),
        family_row!(ssl_verify, "proxy_ssl_verify"),
        family_row!(ssl_verify_depth, "proxy_ssl_verify_depth"),
        family_row!(ssl_trusted_certificate, "proxy_ssl_trusted_certificate"),
        family_row!(ssl_crl, "proxy_ssl_crl"),
        family_row!(ssl_certificate, "proxy_ssl_certificate"),
        family_row!(ssl_certificate_key, "proxy_ssl_certificate_key"),
        family_row!(ssl_certificate_cache, "proxy_ssl_certificate_cache"),
        family_row!(ssl_password_file, "proxy_ssl_password_file"),
        family_row!(ssl_conf_command, "proxy_ssl_conf_command"),
    ];
    const VARIABLES: &'static [Variable] = request::VARIABLES;

    fn nest(conf: &mut ProxyConf, parent: &ProxyConf, _: UnnamedBlock) {
        inherit!(conf, parent, pass);
    }

    fn inherit(conf: &mut ProxyConf, parent: &ProxyConf) {
        conf.family.inherit(&parent.family);
        conf.ssl.inherit(&parent.ssl);
        inherit!(conf, parent, set_headers, body, method, version, upgrade);
        inherit!(conf, parent, redirects, cookie_domains, cookie_paths, cookie_flags);
    }

    fn resolve(conf: &mut ProxyConf, registry: &mut ConfRegistry) -> Result {
        conf.family.resolve("proxy", &["Date", "Server", "X-Pad"], registry)?;
        if let Some(pass) = &mut conf.pass {
            pass.resolve(registry)?;
            if pass.may_be_secure() {
                conf.ssl.http2 = conf.version == Some(20);
                conf.ssl.resolve("proxy", registry)?;
            }
        }
        Ok(())
    }

    fn install(conf: &ProxyConf, plan: &mut PlanBuilder<'_>) {
        let Some(pass) = &conf.pass else { return };
        let Some(settings) = conf.family.settings() else { return };
        let fields = RequestFields::new(conf.set_headers.as_deref().unwrap_or_default());
        let redirects = match &conf.redirects {
            Some(rules) => rules.list().to_vec(),
            None => pass.default_redirect().iter().map(|(url, to)| ValueRule::constant(url, to)).collect(),
        };
        let list =
            |rules: &Option<RuleList<ValueRule>>| rules.as_ref().map_or_else(Vec::new, |r| r.list().to_vec());
        let cookies = CookieRules {
            domains: list(&conf.cookie_domains),
            paths: list(&conf.cookie_paths),
            flags: conf.cookie_flags.as_ref().map_or_else(Vec::new, |rules| rules.list().to_vec()),
        };
        let protocol = HttpPass {
            redirects,
            cookies,
            fields,
            version: conf.version.unwrap_or(11),
            upgrade: conf.upgrade.clone().unwrap_or_default(),
            method: conf.method.clone(),
            body: conf.body.clone(),
            settings: settings.clone(),
            tls: conf.ssl.tls(),
            known: KnownResponse::default(),
        };
        let target = pass.install(plan.worker);
        if let Some(goal) = target.goal() {
            plan.keep(goal);
        }
        pass_to(plan, Self::NAME, protocol, settings, target);
    }
}

/// Gives the closures of the table the type of their argument.
type ProxyRow = Directive<ProxyConf>;

/// The settings of one block.
#[derive(Default)]
pub struct ProxyConf {
    family: UpstreamFamily,
    ssl: ClientConf,
    pass: Option<ProxyPass>,
    set_headers: Option<SetHeaders>,
    body: Option<ValueScript>,
    method: Option<ValueScript>,
    version: Option<u8>,
    upgrade: Option<UpgradeProtocols>,
    redirects: Option<RuleList<ValueRule>>,
    cookie_domains: Option<RuleList<ValueRule>>,
    cookie_paths: Option<RuleList<ValueRule>>,
    cookie_flags: Option<RuleList<CookieFlags>>,
    /// `proxy_headers_hash_max_size` and `_bucket_size`: taken once each.
    hash_sizes: [Option<u64>; 2],
}

impl ProxyConf {
    fn set_pass(&mut self, line: &mut LineCx<'_>) -> Result {
        if self.pass.is_some() {
            return Err(line.refuse("is duplicate"));
        }
        line.ext::<ConfRegistry>().claim_content(Proxy::NAME);
        let location = line.ext::<ConfRegistry>().location();
        self.pass = Some(ProxyPass::parse(line, location)?);
        Ok(())
    }
}
