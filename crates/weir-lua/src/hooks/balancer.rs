//! `balancer_by_lua`: a script names the server of each try of an `upstream` block's requests.
//!
//! The script runs inside of the engine's choice, at once and without waiting; what it says through `ngx.balancer` goes
//! into the [`BalancerChoice`] that is in [`CURRENT`](crate::api::balancer::CURRENT) meanwhile. Its usual call, `set_current_peer`, has an entry in
//! the table of compiled code ([`set_peer`](crate::api::balancer::set_peer)).

use std::sync::Arc;

use weir_conf::{LineCx, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::log::LogLevel;
use weir_engine::{Exchange, Verdict};
use weir_upstream::block::balancer_hook::{BalancerChoice, BalancerHook, UpstreamDraft, WorkerBalancerHook};

use crate::api::balancer::{ChoiceLoan, EXIT};
use crate::hooks::phases::ScriptHome;
use crate::run::lend::DOING_BALANCER;
use crate::vm::chunk::{ScriptChunk, ScriptSource};
use crate::vm::phase::ScriptPhase;

/// Whether the configuration has such scripts: then all of its locations need the VM.
#[derive(Default)]
pub(crate) struct HasBalancers(pub(crate) bool);

/// Makes a script of the block that is being read the balancer of its upstream.
///
/// # Errors
/// There is one already.
pub(crate) fn read(line: &mut LineCx<'_>, source: ScriptSource) -> Result {
    let draft = line.ext::<ConfRegistry>().shared::<UpstreamDraft>();
    if draft.guide.is_some() {
        return Err(line.refuse("is duplicate"));
    }
    draft.guide = Some(Arc::new(ConfiguredScript(source)));
    if draft.chosen {
        line.warn("load balancing method redefined");
    }
    line.ext::<ConfRegistry>().shared::<HasBalancers>().0 = true;
    Ok(())
}

/// `balancer_keepalive number`
///
/// # Errors
/// OpenResty's words for what is no such number, or is repeated.
pub(crate) fn keepalive(line: &mut LineCx<'_>) -> Result {
    let number = weir_conf::parse_number(line.bytes(0)).filter(|number| *number > 0);
    let number = number.ok_or_else(|| {
        line.fail_arg(0, format!("invalid value \"{}\" in \"{}\" directive", line.arg(0), line.name()))
    })?;
    let draft = line.ext::<ConfRegistry>().shared::<UpstreamDraft>();
    if draft.keepalive.replace(number as usize).is_some() {
        return Err(line.refuse("is duplicate"));
    }
    Ok(())
}

/// A script as configured.
struct ConfiguredScript(ScriptSource);

impl std::fmt::Debug for ConfiguredScript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.name)
    }
}

impl BalancerHook for ConfiguredScript {
    fn on_worker(&self) -> Box<dyn WorkerBalancerHook> {
        Box::new(BalancerScript(ScriptChunk::new(self.0.clone())))
    }
}

/// A script on one worker.
struct BalancerScript(ScriptChunk);

impl WorkerBalancerHook for BalancerScript {
    fn choose(&self, x: &mut Exchange, choice: &mut BalancerChoice<'_>) -> std::result::Result<(), Verdict> {
        let home = x.plan.kept::<ScriptHome>().cloned().ok_or(Verdict::Status(500))?;
        let asked = ChoiceLoan::begin(choice);
        if let Err(message) = home.vm(x).and_then(|vm| vm.run_for(&self.0, ScriptPhase::Balancer, x)) {
            x.log(LogLevel::Error, &format_args!("{message}{DOING_BALANCER}"));
            return Err(Verdict::Status(500));
        }
        let (exit, named) = (EXIT.take(), asked.end());
        match exit {
            // What nginx does with a chooser's NGX_ERROR and NGX_DECLINED; statuses are the request's.
            Some(-5) => Err(Verdict::Status(502)),
            Some(status) if status >= 300 => Err(Verdict::Status(u16::try_from(status).unwrap_or(500))),
            Some(status) if status != 0 => Err(Verdict::Status(500)),
            _ if !named && !choice.has_servers => {
                x.log(LogLevel::Error, &format_args!("lua balancer: no peer set{DOING_BALANCER}"));
                Err(Verdict::Status(500))
            }
            _ => Ok(()),
        }
    }
}
