//! The directives and variables of lua-kong-nginx-module, which Kong's nginx is built with. What its Lua calls is in
//! [`api::kong`](crate::api::kong).

use weir_conf::names::{ANY, HTTP, LOCATION, ONE, STREAM_SERVER};
use weir_conf::{Contexts, Directive, LineCx, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::plan::{PlanBuilder, PlanLevel};
use weir_engine::request_log::LoggedVariable;
use weir_engine::variable::{VarIndex, Variable};
use weir_engine::{Exchange, Handler, Module, Phase, Text, Verdict, inherit};

use crate::api::kong::StaticTag;

/// Where there are requests or sessions.
const TAGGED: Contexts = LOCATION.or(STREAM_SERVER);

/// The module `lua_kong`.
pub struct LuaKong;

impl Module for LuaKong {
    const NAME: &'static str = "lua_kong";
    type Conf = KongConf;
    const DIRECTIVES: &'static [Directive<KongConf>] = &[
        Directive::<KongConf>::new("lua_kong_load_var_index", HTTP, ONE, |_, line| load_index(line))
            .syntax("lua_kong_load_var_index $variable | default")
            .doc(
                "Gives a variable a number, by which lua-kong-nginx-module's `resty.kong.var` reads and sets it; `default`: \
                 the variables that Kong uses. Those that the configuration uses have one anyway.",
            )
            .example("lua_kong_load_var_index default;\nlua_kong_load_var_index $ssl_curve;"),
        Directive::<KongConf>::new("lua_kong_set_static_tag", TAGGED, ONE, |conf, line| line.text(&mut conf.tag))
            .syntax("lua_kong_set_static_tag value")
            .doc("Text that scripts of the location, or of the server of `stream`, get from `resty.kong.tag`; it is not inherited."),
        Directive::new("lua_kong_error_log_request_id", ANY, ONE, KongConf::set_request_id)
            .syntax("lua_kong_error_log_request_id $variable")
            .doc(
                "Variable whose value ends lines of the error log about requests, as `request_id: \"...\"`. It is computed \
                 when a request begins, unless it is set later.",
            )
            .example("lua_kong_error_log_request_id $request_id;"),
    ];
    const VARIABLES: &'static [Variable] =
        &[Variable::new("kong_request_id", |x| x.variable_by_name("request_id"))];

    fn inherit(conf: &mut KongConf, parent: &KongConf) {
        inherit!(conf, parent, request_id);
    }

    fn install(conf: &KongConf, plan: &mut PlanBuilder<'_>) {
        if let Some(tag) = &conf.tag {
            plan.keep(StaticTag(tag.as_str().into()));
        }
        let Some(index) = conf.request_id else { return };
        plan.keep(LoggedVariable(index));
        if plan.level == PlanLevel::Server {
            plan.first_handler(Phase::PostRead, Self::NAME, RequestIdentifier(index));
        } else {
            plan.first_handler(Phase::Rewrite, Self::NAME, RequestIdentifier(index));
        }
    }
}

/// The settings of one block.
#[derive(Default)]
pub struct KongConf {
    tag: Option<String>,
    request_id: Option<VarIndex>,
}

impl KongConf {
    fn set_request_id(&mut self, line: &mut LineCx<'_>) -> Result {
        let index = variable(line)?;
        line.once(&mut self.request_id, index)
    }
}

/// Has a variable's value be known when something is logged.
struct RequestIdentifier(VarIndex);

impl Handler for RequestIdentifier {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        let _: Option<Text> = x.variable(self.0);
        Verdict::Passed
    }
}

fn load_index(line: &mut LineCx<'_>) -> Result {
    if line.arg(0) != "default" {
        return variable(line).map(drop);
    }
    let span = line.line().name.span;
    let registry = line.ext::<ConfRegistry>();
    for name in DEFAULT {
        registry.use_variable(name, span);
    }
    Ok(())
}

/// The number of the variable that the line names.
fn variable(line: &mut LineCx<'_>) -> Result<VarIndex> {
    let span = line.args().first().map_or(line.line().name.span, |arg| arg.span);
    let Some(name) = line.arg(0).strip_prefix('$').map(str::to_owned) else {
        return Err(line.fail_arg(0, format!("invalid variable name \"{}\"", line.arg(0))));
    };
    Ok(line.ext::<ConfRegistry>().use_variable(&name, span))
}

/// What `lua_kong_load_var_index default` means.
const DEFAULT: &[&str] = &[
    "args",
    "bytes_sent",
    "content_type",
    "http2",
    "http_authorization",
    "http_connection",
    "http_host",
    "http_kong_debug",
    "http_proxy",
    "http_proxy_connection",
    "http_te",
    "http_upgrade",
    "http_via",
    "http_x_forwarded_for",
    "http_x_forwarded_host",
    "http_x_forwarded_path",
    "http_x_forwarded_port",
    "http_x_forwarded_prefix",
    "http_x_forwarded_proto",
    "http_x_kong_request_debug",
    "http_x_kong_request_debug_log",
    "http_x_kong_request_debug_token",
    "https",
    "is_args",
    "kong_request_id",
    "kong_upstream_ssl_protocol",
    "kong_upstream_ssl_server_raw_cert",
    "realip_remote_addr",
    "realip_remote_port",
    "remote_port",
    "request_length",
    "request_method",
    "request_uri",
    "scheme",
    "server_addr",
    "server_port",
    "ssl_cipher",
    "ssl_client_raw_cert",
    "ssl_client_verify",
    "ssl_protocol",
    "ssl_server_name",
    "upstream_connect_timestamp_us",
    "upstream_header_timestamp_us",
    "upstream_http_connection",
    "upstream_http_trailer",
    "upstream_http_upgrade",
    "upstream_request_timestamp_us",
    "upstream_response_timestamp_us",
    "upstream_start_timestamp_us",
    "upstream_status",
];
