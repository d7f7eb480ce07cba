//! `internal_redirect`: a request goes on in another location once limits and access control have let it pass, as nginx's
//! `ngx_http_internal_redirect_module` of its commercial edition has it.

use weir_conf::Directive;
use weir_conf::names::{LOCATION, ONE, SERVER};
use weir_engine::plan::PlanBuilder;
use weir_engine::redirect::InternalRedirect;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Handler, Module, Phase, Verdict, inherit};

/// The module.
pub struct RedirectInside;

impl Module for RedirectInside {
    const NAME: &'static str = "internal_redirect";
    type Conf = InternalRedirectConf;
    const DIRECTIVES: &'static [Directive<InternalRedirectConf>] = &[Directive::<InternalRedirectConf>::new(
        "internal_redirect",
        SERVER.or(LOCATION),
        ONE,
        |conf, line| {
            let target = ValueScript::compile(line, 0)?;
            line.once(&mut conf.target, target)
        },
    )
    .syntax("internal_redirect uri")
    .doc(
        "Redirects requests internally to this URI, or named location, after limits and access control \
             were checked; an empty value does not redirect.",
    )
    .example("location / {\n    auth_request /auth;\n    internal_redirect @limited;\n}")];

    fn inherit(conf: &mut InternalRedirectConf, parent: &InternalRedirectConf) {
        inherit!(conf, parent, target);
    }

    fn install(conf: &InternalRedirectConf, plan: &mut PlanBuilder<'_>) {
        if let Some(target) = &conf.target {
            plan.handler(Phase::Precontent, Self::NAME, GoInside(target.clone()));
        }
    }
}

/// The setting of one block.
#[derive(Default)]
pub struct InternalRedirectConf {
    target: Option<ValueScript>,
}

struct GoInside(ValueScript);

impl Handler for GoInside {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        let target = self.0.value(x);
        let target = x.text(&target).to_vec();
        if target.is_empty() {
            return Verdict::Declined;
        }
        InternalRedirect::to(x, &target).into()
    }
}
