//! What a location says about its scripts, and what a response gets that no script has set.

use weir_engine::Exchange;

/// What a block says about its scripts.
#[derive(Clone, Copy)]
pub(crate) struct ScriptSettings {
    pub(crate) need_body: bool,
    pub(crate) use_default_type: bool,
    /// Each request has a VM of its own when this is off.
    pub(crate) code_cache: bool,
    pub(crate) check_client_abort: bool,
    pub(crate) http10_buffering: bool,
    /// `ngx.header.content_type` is `Content-Type`.
    pub(crate) underscores: bool,
    /// `ngx.ctx` survives internal redirects.
    pub(crate) ctx_keep: bool,
}

impl Default for ScriptSettings {
    /// Where nothing is said.
    fn default() -> ScriptSettings {
        ScriptSettings {
            need_body: false,
            use_default_type: true,
            code_cache: true,
            check_client_abort: false,
            http10_buffering: true,
            underscores: true,
            ctx_keep: true,
        }
    }
}

/// The status that a script has ended with, for a script that responds in its place (`error_page 404 = /page`): as in
/// OpenResty it has that one until it says another.
#[derive(Default)]
pub(crate) struct ExitedStatus(pub(crate) u16);

/// See [`ExitedStatus`].
pub(crate) fn exited(x: &mut Exchange) -> Option<u16> {
    let status = if x.internal { x.own_lasting::<ExitedStatus>().0 } else { 0 };
    (status != 0).then_some(status)
}

/// The script has removed the response's `Content-Type`.
#[derive(Default)]
pub(crate) struct TypeRemoved(pub(crate) bool);

/// What a head has that a script has not given it: 200, and the type of `default_type`.
pub(crate) fn prepare(x: &mut Exchange, default_type: bool) {
    if x.response.status == 0 {
        x.response.status = exited(x).unwrap_or(200);
    }
    x.response.end_apart = true;
    let typed = !matches!(x.response.status, 204 | 304)
        && x.state_if::<TypeRemoved>().is_none_or(|untyped| !untyped.0);
    if default_type && typed && !x.response.header_sent {
        x.set_content_type();
    }
}

/// The request's path, for the debug log.
pub(crate) struct ShownUri<'x>(pub(crate) &'x Exchange);

impl std::fmt::Display for ShownUri<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.0.uri()))
    }
}
