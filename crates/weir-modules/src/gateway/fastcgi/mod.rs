//! `fastcgi_pass`: passes requests to FastCGI servers, such as PHP-FPM (nginx's `ngx_http_fastcgi_module`).
//!
//! Upstreams themselves are in `weir-upstream`. Here are the directives, and how requests are sent and the head of a
//! response is read ([`protocol`]). Its body is taken out of records by [`body`]; [`script`] says which script a URI
//! names.

mod body;
mod protocol;
mod script;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use weir_conf::names::{ANY, FLAG, LOCATION, LOCATION_IF, ONE};
use weir_conf::{ArgCount, Directive, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::plan::PlanBuilder;
use weir_engine::regex::RegexPattern;
use weir_engine::variable::Variable;
use weir_engine::{Module, UnnamedBlock, inherit};
use weir_http::fastcgi::FastcgiConnection;
use weir_upstream::UpstreamFamily;

use crate::gateway::cgi::params::{ParamLine, RequestParams};
use crate::gateway::cgi::target::{CgiPass, pass_requests};
use crate::gateway::family_rows::family_row;
use protocol::FastCgiProtocol;

/// The module `fastcgi`.
pub struct FastCgi;

impl Module for FastCgi {
    const NAME: &'static str = "fastcgi";
    type Conf = FastCgiConf;
    const DIRECTIVES: &'static [Directive<FastCgiConf>] = &[
        FastcgiRow::new("fastcgi_pass", LOCATION.or(LOCATION_IF), ONE, |c, l| {
            l.ext::<ConfRegistry>().claim_content(FastCgi::NAME);
            CgiPass::set(&mut c.pass, l)
        })
        .syntax("fastcgi_pass address").doc("Passes requests to a FastCGI server or an `upstream`; the address may contain variables."),
        family_row!(send_lowat, "fastcgi_send_lowat"),
        FastcgiRow::new("fastcgi_param", ANY, ArgCount::range(2, 3), |c, l| ParamLine::push(&mut c.params, l))
            .syntax("fastcgi_param parameter value [if_not_empty]").doc("Sets a parameter of requests to the FastCGI server; with `if_not_empty` only where the value is not empty."),
        FastcgiRow::new("fastcgi_index", ANY, ONE, |c, l| l.text(&mut c.index))
            .syntax("fastcgi_index name").doc("File name that is appended to a URI that ends with a slash, in `$fastcgi_script_name`."),
        FastcgiRow::new("fastcgi_split_path_info", ANY, ONE, |c, l| script::set_split(&mut c.split, l)).syntax("fastcgi_split_path_info regex").doc("Regular expression with two captures: they become `$fastcgi_script_name` and `$fastcgi_path_info`."),
        FastcgiRow::new("fastcgi_keep_conn", ANY, FLAG, |c, l| l.flag(&mut c.keep_conn))
            .syntax("fastcgi_keep_conn on | off").default("off").doc("Asks the FastCGI server to keep connections open after responses."),
        FastcgiRow::new("fastcgi_catch_stderr", ANY, ONE, |c, l| l.push(&mut c.catch_stderr))
            .syntax("fastcgi_catch_stderr string").doc("String in the error stream of a FastCGI server that makes its response invalid."),
        family_row!(bind, "fastcgi_bind"),
        family_row!(socket_keepalive, "fastcgi_socket_keepalive"),
        family_row!(socket_rcvbuf, "fastcgi_socket_rcvbuf"),
        family_row!(socket_sndbuf, "fastcgi_socket_sndbuf"),
        family_row!(connect_timeout, "fastcgi_connect_timeout"),
        family_row!(send_timeout, "fastcgi_send_timeout"),
        family_row!(read_timeout, "fastcgi_read_timeout"),
        family_row!(buffering, "fastcgi_buffering"),
        family_row!(request_buffering, "fastcgi_request_buffering"),
        family_row!(buffer_size, "fastcgi_buffer_size"),
        family_row!(buffers, "fastcgi_buffers"),
        family_row!(busy_buffers_size, "fastcgi_busy_buffers_size"),
        family_row!(max_temp_file_size, "fastcgi_max_temp_file_size"),
        family_row!(temp_file_write_size, "fastcgi_temp_file_write_size"),
        family_row!(temp_path, "fastcgi_temp_path").default("fastcgi_temp 1 2"),
        family_row!(next_upstream, "fastcgi_next_upstream"),
        family_row!(next_upstream_tries, "fastcgi_next_upstream_tries"),
        family_row!(next_upstream_timeout, "fastcgi_next_upstream_timeout"),
        family_row!(ignore_client_abort, "fastcgi_ignore_client_abort"),
        family_row!(intercept_errors, "fastcgi_intercept_errors"),
        family_row!(pass_request_headers, "fastcgi_pass_request_headers"),
        family_row!(pass_request_body, "fastcgi_pass_request_body"),
        family_row!(pass_header, "fastcgi_pass_header"),
        family_row!(hide_header, "fastcgi_hide_header"),
        family_row!(ignore_headers, "fastcgi_ignore_headers"),
        family_row!(limit_rate, "fastcgi_limit_rate"),
        family_row!(force_ranges, "fastcgi_force_ranges"),
        family_row!(cache_path, "fastcgi_cache_path"),
        family_row!(cache, "fastcgi_cache"),
        family_row!(cache_key, "fastcgi_cache_key"),
        family_row!(cache_valid, "fastcgi_cache_valid"),
        family_row!(cache_min_uses, "fastcgi_cache_min_uses"),
        family_row!(cache_methods, "fastcgi_cache_methods"),
        family_row!(cache_bypass, "fastcgi_cache_bypass"),
        family_row!(cache_purge, "fastcgi_cache_purge"),
        family_row!(cache_use_stale, "fastcgi_cache_use_stale"),
        family_row!(cache_background_update, "fastcgi_cache_background_update"),
        family_row!(cache_revalidate, "fastcgi_cache_revalidate"),
        family_row!(cache_lock, "fastcgi_cache_lock"),
        family_row!(cache_lock_age, "fastcgi_cache_lock_age"),
        family_row!(cache_lock_timeout, "fastcgi_cache_lock_timeout"),
        family_row!(cache_max_range_offset, "fastcgi_cache_max_range_offset"),
        family_row!(no_cache, "fastcgi_no_cache"),
        family_row!(store, "fastcgi_store"),
        family_row!(store_access, "fastcgi_store_access"),
    ];
    const VARIABLES: &'static [Variable] = script::VARIABLES;

    fn nest(conf: &mut FastCgiConf, parent: &FastCgiConf, _: UnnamedBlock) {
        inherit!(conf, parent, pass);
    }

    fn inherit(conf: &mut FastCgiConf, parent: &FastCgiConf) {
        conf.family.inherit(&parent.family);
        inherit!(conf, parent, params, index, split, keep_conn, catch_stderr);
    }

    fn resolve(conf: &mut FastCgiConf, registry: &mut ConfRegistry) -> Result {
        conf.family.resolve("fastcgi", &["Status"], registry)?;
        if let Some(pass) = &mut conf.pass {
            pass.resolve(registry)?;
        }
        Ok(())
    }

    fn install(conf: &FastCgiConf, plan: &mut PlanBuilder<'_>) {
        if conf.index.is_some() || conf.split.is_some() {
            plan.keep(script::ScriptNames::new(conf.index.as_deref(), conf.split.clone()));
        }
        pass_requests(plan, Self::NAME, conf.pass.as_ref(), &conf.family, |settings| FastCgiProtocol {
            params: RequestParams::new(
                conf.params.as_deref().unwrap_or_default(),
                settings.pass_request_headers,
            ),
            connection: match conf.keep_conn {
                Some(true) => FastcgiConnection::Kept,
                _ => FastcgiConnection::Closed,
            },
            catch_stderr: conf.catch_stderr.iter().flatten().map(|text| text.as_bytes().into()).collect(),
            settings: settings.clone(),
        });
    }
}

/// Gives the closures of the table the type of their argument.
type FastcgiRow = Directive<FastCgiConf>;

/// The settings of one block.
#[derive(Default)]
pub struct FastCgiConf {
    family: UpstreamFamily,
    pass: Option<CgiPass>,
    params: Option<Vec<ParamLine>>,
    index: Option<Vec<u8>>,
    split: Option<Arc<RegexPattern>>,
    keep_conn: Option<bool>,
    catch_stderr: Option<Vec<String>>,
}
