//! `scgi_pass`: requests answered by SCGI applications (nginx's `ngx_http_scgi_module`).

use std::sync::Arc;

use weir_conf::names::{LOCATION, LOCATION_IF};
use weir_conf::{Directive, Result};
use weir_engine::conf::registry::Registry;
use weir_engine::plan::PlanBuilder;
use weir_engine::{Exchange, Module, Unnamed, Verdict, inherit};
use weir_upstream::protocol::{Framing, Head, Incoming, Outgoing, Protocol};
use weir_upstream::{Family, Settings, pass_to};

use crate::gateway::cgi::answer;
use crate::gateway::cgi::params::{Param, Params};
use crate::gateway::cgi::target::Pass;

/// The module.
pub struct Scgi;

impl Module for Scgi {
    const NAME: &'static str = "scgi";
    type Conf = ScgiConf;
    const DIRECTIVES: &'static [Directive<ScgiConf>] = weir_upstream::upstream_directives!(
        "scgi",
        ScgiConf,
        family,
        [
            Row::new("scgi_pass", LOCATION.or(LOCATION_IF), ONE, |c: &mut ScgiConf, l| {
                l.ext::<Registry>().claim_content(Scgi::NAME);
                Pass::set(&mut c.pass, l)
            })
            .doc("Has requests answered by an SCGI application, or by one of a group."),
            Row::new("scgi_param", ANY, Args::range(2, 3), |c: &mut ScgiConf, l| Param::push(
                &mut c.params,
                l
            ))
            .doc("A parameter of requests to applications."),
        ]
    );

    fn nest(conf: &mut ScgiConf, parent: &ScgiConf, _: Unnamed) {
        inherit!(conf, parent, pass);
    }

    fn inherit(conf: &mut ScgiConf, parent: &ScgiConf) {
        conf.family.inherit(&parent.family);
        inherit!(conf, parent, params);
    }

    fn resolve(conf: &mut ScgiConf, registry: &mut Registry) -> Result {
        conf.family.resolve("scgi", &["Status"], registry)?;
        if let Some(pass) = &mut conf.pass {
            pass.resolve(registry)?;
        }
        Ok(())
    }

    fn install(conf: &ScgiConf, plan: &mut PlanBuilder<'_>) -> Result {
        let Some(pass) = &conf.pass else { return Ok(()) };
        let Some(settings) = conf.family.settings() else { return Ok(()) };
        let protocol = ScgiProtocol {
            params: Params::new(conf.params.as_deref().unwrap_or_default(), settings.pass_request_headers),
            settings: settings.clone(),
        };
        let target = pass.install(plan.worker);
        pass_to(plan, Self::NAME, protocol, settings, target);
        Ok(())
    }
}

/// Tells the closures of the table what they are given.
type Row = Directive<ScgiConf>;

/// The settings of one block.
#[derive(Default)]
pub struct ScgiConf {
    family: Family,
    pass: Option<Pass>,
    params: Option<Vec<Param>>,
}

/// A location's way of speaking SCGI.
struct ScgiProtocol {
    params: Params,
    settings: Arc<Settings>,
}

impl Protocol for ScgiProtocol {
    fn scheme(&self) -> &'static str {
        "scgi://"
    }

    fn needs_length(&self) -> bool {
        true
    }

    fn request(&self, x: &mut Exchange, out: &mut Outgoing) -> std::result::Result<(), Verdict> {
        let length = match (self.settings.pass_request_body, x.body.is_read()) {
            (false, _) => 0,
            (true, true) => x.body.file().map_or(x.body.memory().len() as u64, |file| file.len),
            (true, false) => x.request.head.content_length.unwrap_or(0),
        };
        let mut pairs = Vec::with_capacity(1024);
        pair(&mut pairs, b"CONTENT_LENGTH", length.to_string().as_bytes());
        self.params.for_each(x, |name, value| pair(&mut pairs, name, value));
        out.head = format!("{}:", pairs.len()).into_bytes();
        out.head.append(&mut pairs);
        out.head.push(b',');
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

/// A name and a value, each ended by a zero.
fn pair(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for text in [name, value] {
        out.extend_from_slice(text);
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_two_texts_with_zeros() {
        let mut out = Vec::new();
        pair(&mut out, b"A", b"bc");
        assert_eq!(out, b"A\0bc\0");
    }
}
