//! `uwsgi_pass`: requests answered by uwsgi applications (nginx's `ngx_http_uwsgi_module`).

use std::sync::Arc;

use weir_conf::names::{LOCATION, LOCATION_IF};
use weir_conf::{Directive, Result};
use weir_engine::conf::registry::Registry;
use weir_engine::log::Level;
use weir_engine::plan::PlanBuilder;
use weir_engine::{Exchange, Module, Unnamed, Verdict, inherit};
use weir_upstream::protocol::{Framing, Head, Incoming, Outgoing, Protocol};
use weir_upstream::tls_client::Secure;
use weir_upstream::tls_client::client::{ClientConf, ClientTls};
use weir_upstream::{Family, Settings, pass_to};

use crate::gateway::cgi::answer;
use crate::gateway::cgi::params::{Param, Params};
use crate::gateway::cgi::target::{Pass, Secured};

/// The module.
pub struct Uwsgi;

impl Module for Uwsgi {
    const NAME: &'static str = "uwsgi";
    type Conf = UwsgiConf;
    const DIRECTIVES: &'static [Directive<UwsgiConf>] = weir_upstream::upstream_directives!(
        "uwsgi",
        UwsgiConf,
        family,
        ssl,
        [
            Row::new("uwsgi_pass", LOCATION.or(LOCATION_IF), ONE, |c: &mut UwsgiConf, l| {
                l.ext::<Registry>().claim_content(Uwsgi::NAME);
                Pass::set_behind(&mut c.pass, l, SCHEME)
            })
            .doc("Has requests answered by a uwsgi application, or by one of a group; suwsgi:// before it for TLS."),
            Row::new("uwsgi_param", ANY, Args::range(2, 3), |c: &mut UwsgiConf, l| Param::push(
                &mut c.params,
                l
            ))
            .doc("A parameter of requests to applications."),
            Row::new("uwsgi_modifier1", ANY, ONE, |c: &mut UwsgiConf, l| l.number(&mut c.modifier1, 0..=255))
                .doc("The first byte of requests: what kind of application is asked; 0, WSGI."),
            Row::new("uwsgi_modifier2", ANY, ONE, |c: &mut UwsgiConf, l| l.number(&mut c.modifier2, 0..=255))
                .doc("The fourth byte of requests; 0."),
            Row::new("uwsgi_string", ANY, ONE, |c: &mut UwsgiConf, l| {
                let text = l.arg(0).as_bytes().to_vec();
                l.once(&mut c.string, text)
            })
            .doc("Bytes that follow the parameters of requests, as they are."),
        ]
    );

    fn nest(conf: &mut UwsgiConf, parent: &UwsgiConf, _: Unnamed) {
        inherit!(conf, parent, pass);
    }

    fn inherit(conf: &mut UwsgiConf, parent: &UwsgiConf) {
        conf.family.inherit(&parent.family);
        conf.ssl.inherit(&parent.ssl);
        inherit!(conf, parent, params, modifier1, modifier2, string);
    }

    fn resolve(conf: &mut UwsgiConf, registry: &mut Registry) -> Result {
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

    fn install(conf: &UwsgiConf, plan: &mut PlanBuilder<'_>) -> Result {
        let Some(pass) = &conf.pass else { return Ok(()) };
        let Some(settings) = conf.family.settings() else { return Ok(()) };
        let modifier = |number: Option<u64>| number.and_then(|n| u8::try_from(n).ok()).unwrap_or(0);
        let protocol = UwsgiProtocol {
            params: Params::new(conf.params.as_deref().unwrap_or_default(), settings.pass_request_headers),
            modifiers: [modifier(conf.modifier1), modifier(conf.modifier2)],
            string: conf.string.clone().unwrap_or_default(),
            tls: conf.ssl.tls(),
            settings: settings.clone(),
        };
        let target = pass.install(plan.worker);
        pass_to(plan, Self::NAME, protocol, settings, target);
        Ok(())
    }
}

/// Tells the closures of the table what they are given.
type Row = Directive<UwsgiConf>;

/// The settings of one block.
#[derive(Default)]
pub struct UwsgiConf {
    family: Family,
    ssl: ClientConf,
    pass: Option<Pass>,
    params: Option<Vec<Param>>,
    modifier1: Option<u64>,
    modifier2: Option<u64>,
    string: Option<Vec<u8>>,
}

/// A location's way of speaking uwsgi.
struct UwsgiProtocol {
    params: Params,
    modifiers: [u8; 2],
    string: Vec<u8>,
    /// `uwsgi_ssl_...`, where servers may speak TLS.
    tls: Option<Arc<ClientTls>>,
    settings: Arc<Settings>,
}

impl Protocol for UwsgiProtocol {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn secure_scheme(&self) -> &'static str {
        "suwsgi://"
    }

    fn secure(&self, x: &mut Exchange) -> Option<Secure> {
        let host = x.state_if::<Secured>()?.0.clone()?;
        let host = String::from_utf8_lossy(x.text(&host)).into_owned();
        Some(self.tls.as_ref()?.secure(x, &host))
    }

    fn needs_length(&self) -> bool {
        true
    }

    fn request(&self, x: &mut Exchange, out: &mut Outgoing) -> std::result::Result<(), Verdict> {
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
            out.framing = Framing::Plain;
        }
        Ok(())
    }

    fn head(
        &self,
        x: &mut Exchange,
        bytes: &[u8],
        incoming: &mut Incoming,
    ) -> std::result::Result<Head, String> {
        answer::read(x, bytes, self.settings.buffer_size as usize, incoming)
    }
}

/// A name and a value behind their lengths; `false`: one is longer than can be told.
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
    x.log(Level::Alert, &format_args!("uwsgi request is too big: {length}"));
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
