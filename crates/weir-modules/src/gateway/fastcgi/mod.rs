//! `fastcgi_pass`: requests answered by FastCGI applications, PHP above all (nginx's `ngx_http_fastcgi_module`).
//!
//! The engine of upstreams is the core's; here are the directives, what is sent and how the head of an answer is read
//! ([`protocol`]), how its body is taken out of records ([`body`]), and which script a URI names ([`script`]).

mod body;
mod protocol;
mod script;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use weir_conf::names::{LOCATION, LOCATION_IF};
use weir_conf::{Directive, Result};
use weir_engine::conf::registry::Registry;
use weir_engine::plan::PlanBuilder;
use weir_engine::regex::Pattern;
use weir_engine::variable::Variable;
use weir_engine::{Module, Unnamed, inherit};
use weir_upstream::{Family, pass_to};

use crate::gateway::cgi::params::{Param, Params};
use crate::gateway::cgi::target::Pass;
use protocol::FastCgiProtocol;

/// The module.
pub struct FastCgi;

impl Module for FastCgi {
    const NAME: &'static str = "fastcgi";
    type Conf = FastCgiConf;
    const DIRECTIVES: &'static [Directive<FastCgiConf>] = weir_upstream::upstream_directives!(
        "fastcgi",
        FastCgiConf,
        family,
        [
            Row::new("fastcgi_pass", LOCATION.or(LOCATION_IF), ONE, |c: &mut FastCgiConf, l| {
                l.ext::<Registry>().claim_content(FastCgi::NAME);
                Pass::set(&mut c.pass, l)
            })
            .doc("Has requests answered by a FastCGI application, or by one of a group."),
            Row::new("fastcgi_send_lowat", ANY, ONE, |c: &mut FastCgiConf, l| c.family.set_lowat(l))
                .doc("Has no effect on Linux, and a warning says so."),
            Row::new("fastcgi_param", ANY, Args::range(2, 3), |c: &mut FastCgiConf, l| {
                Param::push(&mut c.params, l)
            })
            .doc("A parameter of requests to applications."),
            Row::new("fastcgi_index", ANY, ONE, |c: &mut FastCgiConf, l| l.text(&mut c.index))
                .doc("What a URI that ends with a slash is completed with in $fastcgi_script_name."),
            Row::new("fastcgi_split_path_info", ANY, ONE, |c: &mut FastCgiConf, l| {
                script::set_split(&mut c.split, l)
            })
            .doc("Takes $fastcgi_script_name and $fastcgi_path_info from a URI, by the two groups of a pattern."),
            Row::new("fastcgi_keep_conn", ANY, FLAG, |c: &mut FastCgiConf, l| l.flag(&mut c.keep_conn))
                .doc("Asks applications to leave connections open."),
            Row::new("fastcgi_catch_stderr", ANY, ONE, |c: &mut FastCgiConf, l| l.push(&mut c.catch_stderr))
                .doc("Text in an application's messages that makes its answer invalid."),
        ]
    );
    const VARIABLES: &'static [Variable] = script::VARIABLES;

    fn nest(conf: &mut FastCgiConf, parent: &FastCgiConf, _: Unnamed) {
        inherit!(conf, parent, pass);
    }

    fn inherit(conf: &mut FastCgiConf, parent: &FastCgiConf) {
        conf.family.inherit(&parent.family);
        inherit!(conf, parent, params, index, split, keep_conn, catch_stderr);
    }

    fn resolve(conf: &mut FastCgiConf, registry: &mut Registry) -> Result {
        conf.family.resolve("fastcgi", &["Status"], registry)?;
        if let Some(pass) = &mut conf.pass {
            pass.resolve(registry)?;
        }
        Ok(())
    }

    fn install(conf: &FastCgiConf, plan: &mut PlanBuilder<'_>) -> Result {
        if conf.index.is_some() || conf.split.is_some() {
            plan.keep(script::Names::new(conf.index.as_deref(), conf.split.clone()));
        }
        let Some(pass) = &conf.pass else { return Ok(()) };
        let Some(settings) = conf.family.settings() else { return Ok(()) };
        let protocol = FastCgiProtocol {
            params: Params::new(conf.params.as_deref().unwrap_or_default(), settings.pass_request_headers),
            keep: conf.keep_conn.unwrap_or(false),
            catch_stderr: conf.catch_stderr.iter().flatten().map(|text| text.as_bytes().into()).collect(),
            settings: settings.clone(),
        };
        let target = pass.install(plan.worker);
        pass_to(plan, Self::NAME, protocol, settings, target);
        Ok(())
    }
}

/// Tells the closures of the table what they are given.
type Row = Directive<FastCgiConf>;

/// The settings of one block.
#[derive(Default)]
pub struct FastCgiConf {
    family: Family,
    pass: Option<Pass>,
    params: Option<Vec<Param>>,
    index: Option<Vec<u8>>,
    split: Option<Arc<Pattern>>,
    keep_conn: Option<bool>,
    catch_stderr: Option<Vec<String>>,
}
