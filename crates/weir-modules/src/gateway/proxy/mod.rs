//! `proxy_pass`: requests answered by HTTP servers (nginx's `ngx_http_proxy_module`).
//!
//! The engine of upstreams is the core's; here are the directives, where a request goes ([`pass`]), what is sent
//! ([`request`]), and how an answer's head is read ([`http`]).

mod http;
pub(crate) mod pass;
pub(crate) mod request;
mod rewrite;
#[cfg(test)]
mod tests;
mod upgrade;

use weir_conf::names::{LIMIT_EXCEPT, LOCATION, LOCATION_IF};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::conf::registry::Registry;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::{Script, Variable};
use weir_engine::{Module, Unnamed, inherit};
use weir_upstream::tls_client::client::ClientConf;
use weir_upstream::{Family, ProxyHeader, pass_to};

use http::Http;
use pass::Pass;
use request::{Fields, SetHeaders};
use rewrite::{Cookies, Flags, Rule, Rules};
use upgrade::Upgrades;

/// The module.
pub struct Proxy;

impl Module for Proxy {
    const NAME: &'static str = "proxy";
    type Conf = ProxyConf;
    const DIRECTIVES: &'static [Directive<ProxyConf>] = weir_upstream::upstream_directives!(
        "proxy",
        ProxyConf,
        family,
        ssl,
        [
            Row::new("proxy_pass", LOCATION.or(LOCATION_IF).or(LIMIT_EXCEPT), ONE, ProxyConf::set_pass)
                .doc("Has requests answered by an HTTP server, or by one of a group."),
            Row::new("proxy_set_header", ANY, TWO, |c: &mut ProxyConf, l| {
                request::set_header(&mut c.set_headers, l)
            })
                .doc("A field of requests to servers; an empty value leaves the field out."),
            Row::new("proxy_set_body", ANY, ONE, |c: &mut ProxyConf, l| {
                let body = Script::compile(l, 0)?;
                l.once(&mut c.body, body)
            })
            .doc("The body of requests to servers, instead of the client's."),
            Row::new("proxy_send_lowat", ANY, ONE, |c: &mut ProxyConf, l| c.family.set_lowat(l))
                .doc("Has no effect on Linux, and a warning says so."),
            Row::new("proxy_headers_hash_max_size", ANY, ONE, |c: &mut ProxyConf, l| {
                l.number(&mut c.hash_sizes[0], ..)
            })
            .doc("Has no effect: names of fields are looked up without a table to be sized."),
            Row::new("proxy_headers_hash_bucket_size", ANY, ONE, |c: &mut ProxyConf, l| {
                l.number(&mut c.hash_sizes[1], ..)
            })
            .doc("Has no effect: names of fields are looked up without a table to be sized."),
            Row::new("proxy_method", ANY, ONE, |c: &mut ProxyConf, l| {
                let method = Script::compile(l, 0)?;
                l.once(&mut c.method, method)
            })
            .doc("The method of requests to servers, instead of the client's."),
            Row::new("proxy_http_version", ANY, ONE, |c: &mut ProxyConf, l| l
                .one_of(&mut c.version, &[("1.0", 10), ("1.1", 11), ("2", 20)]))
            .doc("The version of HTTP spoken to servers: 1.0, 1.1, 2."),
            Row::new("proxy_upgrade", ANY, MORE, |c: &mut ProxyConf, l| Upgrades::set(&mut c.upgrade, l))
                .doc("Passes the client's wish for another protocol on: on for websocket, or names; never h2c; off."),
            Row::new("proxy_protocol", ANY, ONE, ProxyConf::set_protocol)
                .doc("Begins connections to servers with the client's addresses (PROXY protocol): on or v1, v2; off."),
            Row::new("proxy_cache_convert_head", ANY, FLAG, |c: &mut ProxyConf, l| l
                .flag(&mut c.family.cache.convert_head))
            .doc("Asks with GET where the client asks with HEAD, so that the answer can be kept; on."),
            Row::new("proxy_redirect", ANY, ONE_OR_TWO, |c: &mut ProxyConf, l| {
                Rule::redirect(&mut c.redirects, c.pass.as_ref(), l)
            })
            .doc("Changes Location and Refresh of answers."),
            Row::new("proxy_pass_trailers", ANY, FLAG, |c: &mut ProxyConf, l| l
                .flag(&mut c.family.pass_trailers))
            .doc("Passes the trailer of a chunked answer on; off."),
            Row::new("proxy_cookie_domain", ANY, ONE_OR_TWO, |c: &mut ProxyConf, l| {
                Rule::cookie_domain(&mut c.cookie_domains, l)
            })
            .doc("Changes the domain of cookies."),
            Row::new("proxy_cookie_path", ANY, ONE_OR_TWO, |c: &mut ProxyConf, l| {
                Rule::cookie_path(&mut c.cookie_paths, l)
            })
            .doc("Changes the path of cookies."),
            Row::new("proxy_cookie_flags", ANY, Args::range(1, 4), |c: &mut ProxyConf, l| {
                Flags::set(&mut c.cookie_flags, l)
            })
            .doc("Changes the flags of cookies."),
        ]
    );
    const VARIABLES: &'static [Variable] = request::VARIABLES;

    fn nest(conf: &mut ProxyConf, parent: &ProxyConf, _: Unnamed) {
        inherit!(conf, parent, pass);
    }

    fn inherit(conf: &mut ProxyConf, parent: &ProxyConf) {
        conf.family.inherit(&parent.family);
        conf.ssl.inherit(&parent.ssl);
        inherit!(conf, parent, set_headers, body, method, version, upgrade);
        inherit!(conf, parent, redirects, cookie_domains, cookie_paths, cookie_flags);
    }

    fn resolve(conf: &mut ProxyConf, registry: &mut Registry) -> Result {
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

    fn install(conf: &ProxyConf, plan: &mut PlanBuilder<'_>) -> Result {
        let Some(pass) = &conf.pass else { return Ok(()) };
        let Some(settings) = conf.family.settings() else { return Ok(()) };
        let fields = Fields::new(conf.set_headers.as_deref().unwrap_or_default());
        let redirects = match &conf.redirects {
            Some(rules) => rules.list().to_vec(),
            None => pass.default_redirect().iter().map(|(url, to)| Rule::constant(url, to)).collect(),
        };
        let list = |rules: &Option<Rules<Rule>>| rules.as_ref().map_or_else(Vec::new, |r| r.list().to_vec());
        let cookies = Cookies {
            domains: list(&conf.cookie_domains),
            paths: list(&conf.cookie_paths),
            flags: conf.cookie_flags.as_ref().map_or_else(Vec::new, |rules| rules.list().to_vec()),
        };
        let protocol = Http {
            redirects,
            cookies,
            fields,
            version: conf.version.unwrap_or(11),
            upgrade: conf.upgrade.clone().unwrap_or_default(),
            method: conf.method.clone(),
            body: conf.body.clone(),
            settings: settings.clone(),
            tls: conf.ssl.tls(),
        };
        let target = pass.install(plan.worker)?;
        if let Some(goal) = target.goal() {
            plan.keep(goal);
        }
        pass_to(plan, Self::NAME, protocol, settings, target);
        Ok(())
    }
}

/// Tells the closures of the table what they are given.
type Row = Directive<ProxyConf>;

/// The settings of one block.
#[derive(Default)]
pub struct ProxyConf {
    family: Family,
    ssl: ClientConf,
    pass: Option<Pass>,
    set_headers: Option<SetHeaders>,
    body: Option<Script>,
    method: Option<Script>,
    version: Option<u8>,
    upgrade: Option<Upgrades>,
    redirects: Option<Rules<Rule>>,
    cookie_domains: Option<Rules<Rule>>,
    cookie_paths: Option<Rules<Rule>>,
    cookie_flags: Option<Rules<Flags>>,
    /// `proxy_headers_hash_max_size` and `_bucket_size`: taken once each.
    hash_sizes: [Option<u64>; 2],
}

impl ProxyConf {
    fn set_pass(&mut self, line: &mut LineCx<'_>) -> Result {
        if self.pass.is_some() {
            return Err(line.refuse("is duplicate"));
        }
        line.ext::<Registry>().claim_content(Proxy::NAME);
        let location = line.ext::<Registry>().location();
        self.pass = Some(Pass::parse(line, location)?);
        Ok(())
    }

    /// `proxy_protocol on | off | v1 | v2`
    fn set_protocol(&mut self, line: &mut LineCx<'_>) -> Result {
        let version = match line.arg(0) {
            "off" => None,
            "on" | "v1" => Some(ProxyHeader::V1),
            "v2" => Some(ProxyHeader::V2),
            _ => return Err(line.invalid_value(0)),
        };
        line.once(&mut self.family.proxy_protocol, version)
    }
}
