//! What the plans of blocks with scripts get: handlers, filters, hooks of handshakes, and the VM that they share.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_conf::{Error, Result};
use weir_engine::Phase as EnginePhase;
use weir_engine::filter::FilterSlot;
use weir_engine::plan::{PlanBuilder, PlanLevel};
use weir_engine::rehearsed::RehearsedConfiguration;
use weir_engine::worker::generation::ConfigurationLink;
use weir_engine::worker::{AGENT, Worker};
use weir_trace::SiteKind;

use crate::api::lmdb::LmdbSettings;
use crate::api::socket;
use crate::hooks::balancer::HasBalancers;
use crate::hooks::conf::LuaConf;
use crate::hooks::filters::{BodyScript, HeaderScript};
use crate::hooks::malloc_trim;
use crate::hooks::phases::{LogScript, PhaseScript, ScriptHome};
use crate::hooks::session::SessionScript;
use crate::hooks::set_by::VmSlot;
use crate::hooks::tls::clients::ClientScripts;
use crate::hooks::tls::upstream::UpstreamScripts;
use crate::hooks::wiring::WIRING;
use crate::run::settings::ScriptSettings;
use crate::vm::chunk::{ScriptChunk, ScriptSource};
use crate::vm::lua_vm::LuaVm;
use crate::vm::phase::ScriptPhase;
use crate::vm::settings::VmSettings;

/// Starts the VM of the configuration on its worker, if a block has a use for one.
///
/// # Errors
/// The script of `init_by_lua` that failed, or a VM that can't be made.
pub(super) fn prepare(conf: &LuaConf, link: &Rc<ConfigurationLink>, worker: &Rc<Worker>) -> Result {
    if has_vm(conf, link) {
        vm_of(conf, link, worker)?;
    }
    Ok(())
}

/// Whether a block of these settings has a use for a VM: scripts, or that another block may have a balancer.
fn has_vm(conf: &LuaConf, link: &ConfigurationLink) -> bool {
    let balances = link.configuration.shared::<HasBalancers>().is_some_and(|any| any.0);
    conf.has_scripts() || conf.main.has_scripts() || balances
}

/// Installs what a plan has of scripts.
pub(super) fn install(conf: &LuaConf, plan: &mut PlanBuilder<'_>) {
    if plan.level == PlanLevel::Alone {
        plan.keep(conf.settings());
        plan.keep(socket::SocketSettings::new(&conf.sockets, plan.core));
        return;
    }
    if let Some(every) = conf.main.malloc_trim.filter(|every| *every > 0) {
        let Ok(count) = plan.link.local(|| Ok::<_, Infallible>(Rc::new(malloc_trim::TrimCount::default())));
        plan.handler(EnginePhase::Log, "lua_malloc_trim", malloc_trim::MallocTrim::new(every, count));
    }
    if !has_vm(conf, plan.link) {
        return;
    }
    let vm = vm_of(conf, plan.link, plan.worker).expect("the block was prepared");
    let slot = VmSlot::of(plan.link);
    let settings = conf.settings();
    let home = ScriptHome::new(&vm, &settings);
    slot.0.get_or_init(|| home.clone());
    plan.keep(settings);
    plan.keep(home.clone());
    plan.keep(socket::SocketSettings::new(&conf.sockets, plan.core));
    install_tls(conf, plan, &home, settings);
    if plan.level == PlanLevel::Session {
        install_session(conf, plan, &home, settings);
        return;
    }
    install_phases(conf, plan, &vm, settings);
    install_responses(conf, plan, &home, settings);
}

/// The scripts of the phases before the content.
fn install_phases(conf: &LuaConf, plan: &mut PlanBuilder<'_>, vm: &Rc<LuaVm>, settings: ScriptSettings) {
    let of_server = plan.level == PlanLevel::Server;
    let handlers = [
        (&conf.server_rewrite, EnginePhase::ServerRewrite, ScriptPhase::ServerRewrite, of_server),
        (&conf.rewrite, EnginePhase::Rewrite, ScriptPhase::Rewrite, true),
        (&conf.access, EnginePhase::Access, ScriptPhase::Access, true),
        (&conf.precontent, EnginePhase::Precontent, ScriptPhase::Precontent, true),
    ];
    let main = &conf.main;
    let first = |phase| match phase {
        // ngx_lua's handler of this phase is not put off to its end, unlike those of the others.
        ScriptPhase::ServerRewrite => true,
        ScriptPhase::Rewrite => main.rewrite_first == Some(true),
        ScriptPhase::Access => main.access_first == Some(true),
        ScriptPhase::Precontent => main.precontent_first == Some(true),
        _ => false,
    };
    for (source, at, phase, here) in handlers {
        let (Some(source), true) = (source, here) else { continue };
        let script = PhaseScript::new(vm, phase, ScriptChunk::new(source.clone()), settings);
        match first(phase) {
            true => plan.first_handler(at, phase.label(), script),
            false => plan.handler(at, phase.label(), script),
        }
    }
}

/// The scripts of handshakes.
fn install_tls(conf: &LuaConf, plan: &mut PlanBuilder<'_>, home: &ScriptHome, settings: ScriptSettings) {
    if matches!(plan.level, PlanLevel::Server | PlanLevel::Session) && conf.secure.are_for_clients() {
        weir_server::tls::handle_client_hello(plan, ClientScripts::new(home, settings, &conf.secure));
    }
    if conf.secure.are_for_servers() {
        weir_upstream::tls_client::handle_upstream_handshakes(
            plan,
            UpstreamScripts::new(home, settings, &conf.secure),
        );
    }
}

/// The scripts of sessions.
fn install_session(conf: &LuaConf, plan: &mut PlanBuilder<'_>, home: &ScriptHome, settings: ScriptSettings) {
    let script = |phase, source: &ScriptSource| {
        SessionScript::new(home, phase, ScriptChunk::new(source.clone()), settings)
    };
    if let Some(source) = &conf.preread {
        let (label, script) = (ScriptPhase::Preread.label(), script(ScriptPhase::Preread, source));
        match conf.main.preread_first {
            Some(true) => plan.first_handler(EnginePhase::Precontent, label, script),
            // After `set`, which is in the place of the last handlers before the content.
            _ => plan.handler(EnginePhase::ServerRewrite, label, script),
        }
    }
    if let Some(source) = &conf.content {
        plan.content(ScriptPhase::Content.label(), script(ScriptPhase::Content, source));
    }
    if let Some(source) = &conf.log {
        // What it gives to variables is in the lines of access logs.
        plan.first_handler(EnginePhase::Log, ScriptPhase::Log.label(), LogScript::new(home, source));
    }
}

/// The scripts that make, change and log responses.
fn install_responses(
    conf: &LuaConf,
    plan: &mut PlanBuilder<'_>,
    home: &ScriptHome,
    settings: ScriptSettings,
) {
    if let Some(source) = &conf.content {
        let script =
            PhaseScript::new(&home.vm, ScriptPhase::Content, ScriptChunk::new(source.clone()), settings);
        plan.content(ScriptPhase::Content.label(), script);
    }
    if let Some(source) = &conf.log {
        // What it gives to variables is in the lines of access logs.
        plan.first_handler(EnginePhase::Log, ScriptPhase::Log.label(), LogScript::new(home, source));
    }
    if let Some(source) = &conf.header_filter {
        plan.header_filter(
            FilterSlot::Aux,
            ScriptPhase::HeaderFilter.label(),
            HeaderScript::new(home, source),
        );
    }
    if let Some(source) = &conf.body_filter {
        let site = plan.site(SiteKind::BodyFilter, ScriptPhase::BodyFilter.label());
        plan.header_filter(
            FilterSlot::Aux,
            ScriptPhase::BodyFilter.label(),
            BodyScript::new(home, source, site),
        );
    }
}

/// The VM of the configuration on its worker.
fn vm_of(conf: &LuaConf, link: &Rc<ConfigurationLink>, worker: &Worker) -> Result<Rc<LuaVm>> {
    link.local(|| {
        let configuration = &link.configuration;
        let mut conf_main = conf.main.clone();
        if configuration.shared::<RehearsedConfiguration>().is_some() {
            // Nothing runs: neither scripts of requests nor those of a start.
            (conf_main.init, conf_main.init_worker, conf_main.exit_worker) = (None, None, None);
        }
        let rehearsed = configuration.shared::<RehearsedConfiguration>().is_some();
        let lmdb = configuration.around::<LmdbSettings>().filter(|_| !rehearsed);
        let lmdb = lmdb.map_or(Ok(None), |lmdb| lmdb.environment(configuration)).map_err(Error::new)?;
        // Scripts of the configuration before this one may have refused some.
        worker.counters.refused.clear();
        let turn = configuration.shared::<FirstInit>().filter(|_| !rehearsed);
        let (first, repeats_init) = FirstInit::take(turn, worker.id);
        let main = VmSettings {
            repeats_init,
            lmdb,
            counters: Some(worker.counters.clone()),
            prefix: configuration.prefix.clone(),
            workers: configuration.main.workers(),
            one_process: !configuration.main.master_process(),
            worker: Some(worker.id),
            ..conf_main
        };
        let started = LuaVm::start(main, Rc::downgrade(link), WIRING).map_err(Error::new);
        drop(first);
        started
    })
}

/// Which worker's VM of a configuration runs `init_by_lua` first: the others wait until it has, since they find in
/// dictionaries what it has written. A value that the configuration shares.
#[derive(Default)]
pub(super) struct FirstInit(Mutex<bool>);

impl FirstInit {
    /// What the first one holds until `init_by_lua` is over, and whether another one was before. The privileged agent, whose
    /// dictionaries are the server's, is never the first.
    fn take(turn: Option<&FirstInit>, worker: u8) -> (Option<MutexGuard<'_, bool>>, bool) {
        let Some(turn) = turn.filter(|_| worker != AGENT) else { return (None, worker == AGENT) };
        let mut taken = turn.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *taken, true) {
            true => (None, true),
            false => (Some(taken), false),
        }
    }
}
