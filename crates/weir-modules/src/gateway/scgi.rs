//! `scgi_pass`: passes requests to SCGI servers (nginx's `ngx_http_scgi_module`).

use std::sync::Arc;

use weir_conf::names::{ANY, LOCATION, LOCATION_IF, ONE};
use weir_conf::{ArgCount, Directive, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::plan::PlanBuilder;
use weir_engine::worker::UpstreamCloseProtocol;
use weir_engine::{Exchange, Module, UnnamedBlock, Verdict, inherit};
use weir_upstream::protocol::{
    HeadProgress, IncomingHead, OutgoingRequest, RequestFraming, UpstreamProtocol,
};
use weir_upstream::{UpstreamFamily, UpstreamSettings};

use crate::gateway::cgi::answer;
use crate::gateway::cgi::params::{ParamLine, RequestParams};
use crate::gateway::cgi::target::{CgiPass, pass_requests};
use crate::gateway::family_rows::family_row;

/// The module `scgi`.
pub struct Scgi;

impl Module for Scgi {
    const NAME: &'static str = "scgi";
    type Conf = ScgiConf;
    const DIRECTIVES: &'static [Directive<ScgiConf>] = &[
        ScgiRow::new("scgi_pass", LOCATION.or(LOCATION_IF), ONE, |c, l| {
            l.ext::<ConfRegistry>().claim_content(Scgi::NAME);
            CgiPass::set(&mut c.pass, l)
        })
        .syntax("scgi_pass address").doc("Passes requests to an SCGI server or an `upstream`; the address may contain variables."),
        ScgiRow::new("scgi_param", ANY, ArgCount::range(2, 3), |c, l| ParamLine::push(&mut c.params, l))
            .syntax("scgi_param parameter value [if_not_empty]").doc("Sets a parameter of requests to the SCGI server; with `if_not_empty` only where the value is not empty."),
        family_row!(bind, "scgi_bind"),
        family_row!(socket_keepalive, "scgi_socket_keepalive"),
        family_row!(socket_rcvbuf, "scgi_socket_rcvbuf"),
        family_row!(socket_sndbuf, "scgi_socket_sndbuf"),
        family_row!(connect_timeout, "scgi_connect_timeout"),
        family_row!(send_timeout, "scgi_send_timeout"),
        family_row!(read_timeout, "scgi_read_timeout"),
        family_row!(buffering, "scgi_buffering"),
        family_row!(request_buffering, "scgi_request_buffering"),
        family_row!(buffer_size, "scgi_buffer_size"),
        family_row!(buffers, "scgi_buffers"),
        family_row!(busy_buffers_size, "scgi_busy_buffers_size"),
        family_row!(max_temp_file_size, "scgi_max_temp_file_size"),
        family_row!(temp_file_write_size, "scgi_temp_file_write_size"),
        family_row!(temp_path, "scgi_temp_path").default("scgi_temp 1 2"),
        family_row!(next_upstream, "scgi_next_upstream"),
        family_row!(next_upstream_tries, "scgi_next_upstream_tries"),
        family_row!(next_upstream_timeout, "scgi_next_upstream_timeout"),
        family_row!(ignore_client_abort, "scgi_ignore_client_abort"),
        family_row!(intercept_errors, "scgi_intercept_errors"),
        family_row!(pass_request_headers, "scgi_pass_request_headers"),
        family_row!(pass_request_body, "scgi_pass_request_body"),
        family_row!(pass_header, "scgi_pass_header"),
        family_row!(hide_header, "scgi_hide_header"),
        family_row!(ignore_headers, "scgi_ignore_headers"),
        family_row!(limit_rate, "scgi_limit_rate"),
        family_row!(force_ranges, "scgi_force_ranges"),
        family_row!(cache_path, "scgi_cache_path"),
        family_row!(cache, "scgi_cache"),
        family_row!(cache_key, "scgi_cache_key"),
        family_row!(cache_valid, "scgi_cache_valid"),
        family_row!(cache_min_uses, "scgi_cache_min_uses"),
        family_row!(cache_methods, "scgi_cache_methods"),
        family_row!(cache_bypass, "scgi_cache_bypass"),
        family_row!(cache_purge, "scgi_cache_purge"),
        family_row!(cache_use_stale, "scgi_cache_use_stale"),
        family_row!(cache_background_update, "scgi_cache_background_update"),
        family_row!(cache_revalidate, "scgi_cache_revalidate"),
        family_row!(cache_lock, "scgi_cache_lock"),
        family_row!(cache_lock_age, "scgi_cache_lock_age"),
        family_row!(cache_lock_timeout, "scgi_cache_lock_timeout"),
        family_row!(cache_max_range_offset, "scgi_cache_max_range_offset"),
        family_row!(no_cache, "scgi_no_cache"),
        family_row!(store, "scgi_store"),
        family_row!(store_access, "scgi_store_access"),
    ];

    fn nest(conf: &mut ScgiConf, parent: &ScgiConf, _: UnnamedBlock) {
        inherit!(conf, parent, pass);
    }

    fn inherit(conf: &mut ScgiConf, parent: &ScgiConf) {
        conf.family.inherit(&parent.family);
        inherit!(conf, parent, params);
    }

    fn resolve(conf: &mut ScgiConf, registry: &mut ConfRegistry) -> Result {
        conf.family.resolve("scgi", &["Status"], registry)?;
        if let Some(pass) = &mut conf.pass {
            pass.resolve(registry)?;
        }
        Ok(())
    }

    fn install(conf: &ScgiConf, plan: &mut PlanBuilder<'_>) {
        pass_requests(plan, Self::NAME, conf.pass.as_ref(), &conf.family, |settings| ScgiProtocol {
            params: RequestParams::new(
                conf.params.as_deref().unwrap_or_default(),
                settings.pass_request_headers,
            ),
            settings: settings.clone(),
        });
    }
}

/// Gives the closures of the table the type of their argument.
type ScgiRow = Directive<ScgiConf>;

/// The settings of one block.
#[derive(Default)]
pub struct ScgiConf {
    family: UpstreamFamily,
    pass: Option<CgiPass>,
    params: Option<Vec<ParamLine>>,
}

/// A location's way of speaking SCGI.
struct ScgiProtocol {
    params: RequestParams,
    settings: Arc<UpstreamSettings>,
}

impl UpstreamProtocol for ScgiProtocol {
    fn closes_as(&self) -> UpstreamCloseProtocol {
        UpstreamCloseProtocol::Scgi
    }

    fn scheme(&self) -> &'static str {
        "scgi://"
    }

    fn needs_length(&self) -> bool {
        true
    }

    fn request(&self, x: &mut Exchange, out: &mut OutgoingRequest) -> std::result::Result<(), Verdict> {
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
