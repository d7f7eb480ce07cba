//! Upstreams, seen and changed by scripts: below `ngx.upstream` and `weir.upstream`.
//!
//! What is known of servers is shared by all workers (`weir_upstream`), so what one script changes holds for all of
//! them at once. The upstreams are those of the configuration the VM belongs to.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use weir_http::json::{JsonValue, JsonWriter};
use weir_rt::notify::either;
use weir_trace::WaitKind;
use weir_upstream::block::list_changes::{ListRefusal, ListedServer};
use weir_upstream::peer::{PeerTier, PeerTurn};
use weir_upstream::{Peer, Upstream, Upstreams};

use crate::luajit::state::LuaState;
use crate::run::function::{
    ApiFunction, CallDone, CallOutcome, LuaRaise, expect_number, expect_string, fail, function,
};
use crate::run::lend;
use crate::run::op::{PushResults, ThreadOp};
use crate::vm::phase::YIELDABLE;

pub(crate) const TABLE: &[ApiFunction] = &[
    function("_upstream.names", 0, names),
    function("_upstream.servers", 0, |l| with_upstream(l, "get_servers", servers)),
    function("_upstream.peers", 0, |l| with_upstream(l, "get_peers", peers)),
    function("_upstream.turn", 0, |l| with_upstream(l, "set_peer_down", turn)),
    function("_upstream.current", 0, |l| {
        match lend::exchange(|x| weir_upstream::upstream_name(x))? {
            Some(name) => l.push_bytes(name.as_bytes()),
            None => l.push_nil(),
        }
        Ok(CallDone::Results(1))
    }),
    function("_upstream.describe", 0, |l| {
        with_upstream(l, "get", |l, upstream| {
            let mut json = JsonWriter::default();
            upstream.describe(&mut json);
            l.push_bytes(String::from(json).as_bytes());
            Ok(CallDone::Results(1))
        })
    }),
    function("_upstream.change", 0, |l| with_upstream(l, "change", change)),
    function("_upstream.changes", 0, |l| {
        with_upstream(l, "changes", |l, upstream| {
            l.push_number(upstream.changes() as f64);
            Ok(CallDone::Results(1))
        })
    }),
    function("_upstream.wait", YIELDABLE, |l| with_upstream(l, "wait", wait)),
];

/// Uses the upstreams of the VM's configuration.
fn upstreams<T>(use_them: impl FnOnce(&Upstreams) -> T) -> Option<T> {
    let link = lend::vm(|vm| vm.home.upgrade())?;
    link.configuration.shared::<Upstreams>().map(use_them)
}

fn names(l: LuaState) -> CallOutcome {
    let names = upstreams(|all| all.iter().map(|upstream| upstream.name.clone()).collect::<Vec<_>>());
    let names = names.unwrap_or_default();
    l.new_table(names.len(), 0);
    for (at, name) in names.iter().enumerate() {
        l.push_bytes(name.as_bytes());
        l.raw_set_index(-2, at + 1);
    }
    Ok(CallDone::Results(1))
}

/// Does something with the upstream that the first argument names.
fn with_upstream(
    l: LuaState,
    function: &str,
    then: impl FnOnce(LuaState, &Arc<Upstream>) -> CallOutcome,
) -> CallOutcome {
    let name = expect_string(&l, 1, function)?;
    let upstream = upstreams(|all| {
        let named = |upstream: &&Arc<Upstream>| upstream.name.as_bytes() == name;
        // As elsewhere the case of names does not matter; the name of an address is not that of an `upstream` block.
        let found = all.iter().find(named).or_else(|| all.find(std::str::from_utf8(&name).ok()?));
        found.cloned()
    });
    match upstream.flatten() {
        Some(upstream) => then(l, &upstream),
        None => fail(l, "upstream not found"),
    }
}

fn number(l: LuaState, key: &std::ffi::CStr, value: u64) {
    l.push_number(value as f64);
    l.set_field(-2, key);
}

fn text(l: LuaState, key: &std::ffi::CStr, value: &str) {
    l.push_bytes(value.as_bytes());
    l.set_field(-2, key);
}

/// `get_servers`: what `server` lines say.
fn servers(l: LuaState, upstream: &Arc<Upstream>) -> CallOutcome {
    let listed = upstream.listed();
    l.new_table(listed.len(), 0);
    for (at, server) in listed.iter().enumerate() {
        push_server(l, server);
        l.raw_set_index(-2, at + 1);
    }
    Ok(CallDone::Results(1))
}

fn push_server(l: LuaState, server: &ListedServer) {
    l.new_table(0, 7);
    text(l, c"name", &server.server);
    match &*server.peers {
        [only] => text(l, c"addr", &only.name),
        peers => {
            l.new_table(peers.len(), 0);
            for (at, peer) in peers.iter().enumerate() {
                l.push_bytes(peer.name.as_bytes());
                l.raw_set_index(-2, at + 1);
            }
            l.set_field(-2, c"addr");
        }
    }
    let model = &server.model;
    number(l, c"weight", model.weight.into());
    number(l, c"max_fails", model.max_fails.into());
    number(l, c"fail_timeout", model.fail_timeout);
    for (key, set) in [(c"backup", server.backup), (c"down", model.down)] {
        if set {
            l.push_boolean(true);
            l.set_field(-2, key);
        }
    }
}

/// `get_primary_peers`, `get_backup_peers`: the second argument says which.
fn peers(l: LuaState, upstream: &Arc<Upstream>) -> CallOutcome {
    let members = upstream.members();
    let peers = if l.boolean(2) { &members.backup } else { &members.primary };
    l.new_table(peers.len(), 0);
    for (at, peer) in peers.iter().enumerate() {
        push_peer(l, peer, at);
        l.raw_set_index(-2, at + 1);
    }
    Ok(CallDone::Results(1))
}

fn push_peer(l: LuaState, peer: &Peer, id: usize) {
    let state = &peer.state;
    l.new_table(0, 12);
    number(l, c"id", id as u64);
    text(l, c"name", &peer.name);
    number(l, c"weight", peer.weight.into());
    // How far a worker has come in its turn is its own; all of them begin so.
    number(l, c"current_weight", 0);
    number(l, c"effective_weight", peer.weight.into());
    number(l, c"conns", state.in_flight().into());
    number(l, c"fails", state.fails.load(Relaxed).into());
    number(l, c"max_fails", peer.max_fails.into());
    number(l, c"fail_timeout", peer.fail_timeout);
    for (key, at) in [(c"accessed", &state.accessed), (c"checked", &state.checked)] {
        match at.load(Relaxed) {
            0 => {}
            second => number(l, key, second),
        }
    }
    if peer.is_down() {
        l.push_boolean(true);
        l.set_field(-2, c"down");
    }
}

/// `set_peer_down(name, is_backup, id, down)`
fn turn(l: LuaState, upstream: &Arc<Upstream>) -> CallOutcome {
    let tier = if l.boolean(2) { PeerTier::Backup } else { PeerTier::Primary };
    let turn = if l.boolean(4) { PeerTurn::Down } else { PeerTurn::Up };
    let id = expect_number(l, 3, "set_peer_down")?;
    if tier == PeerTier::Backup && upstream.members().backup.is_empty() {
        return fail(l, "no backup peers");
    }
    if !(0.0..1e9).contains(&id) || !upstream.turn(tier, id as usize, turn) {
        return fail(l, "bad peer id");
    }
    l.push_boolean(true);
    Ok(CallDone::Results(1))
}

/// `change(name, what, json [, server])`
fn change(l: LuaState, upstream: &Arc<Upstream>) -> CallOutcome {
    let what = expect_string(&l, 2, "change")?;
    let json = expect_string(&l, 3, "change")?;
    let server = l.lossy(4);
    let changed =
        JsonValue::parse(&json).map_err(|error| ListRefusal::Wrong(error.to_string())).and_then(|value| {
            match &*what {
                b"add" => upstream.add(&value),
                b"remove" => upstream.remove(&server),
                b"edit" => upstream.edit(&server, &value),
                _ => upstream.replace(&value),
            }
        });
    match changed {
        Ok(()) => {
            l.push_boolean(true);
            Ok(CallDone::Results(1))
        }
        Err(refusal) => fail(l, &refusal.to_string()),
    }
}

/// `wait(name, seen, seconds)`: what `changes` is, once that is another than `seen`.
fn wait(l: LuaState, upstream: &Arc<Upstream>) -> CallOutcome {
    let seen = expect_number(l, 2, "wait")? as u64;
    let seconds = expect_number(l, 3, "wait")?;
    if !(0.0..=f64::MAX).contains(&seconds) {
        return Err(LuaRaise::argument(3, "wait", "a time is not negative"));
    }
    if upstream.changes() != seen {
        l.push_number(upstream.changes() as f64);
        return Ok(CallDone::Results(1));
    }
    let limit = Duration::from_secs_f64(seconds.min(1e9));
    lend::vm(crate::vm::lua_vm::LuaVm::wake_when_leaving);
    lend::run(|run| {
        run.wait = WaitKind::Lock;
        run.op = Some(ThreadOp::Wait(Box::pin(waited(upstream.clone(), seen, limit))));
    })?;
    Ok(CallDone::Yield(0))
}

async fn waited(upstream: Arc<Upstream>, seen: u64, limit: Duration) -> PushResults {
    let (changed, late) = (pin!(upstream.changed(seen)), pin!(weir_rt::sleep(limit)));
    match either(changed, late).await {
        Some(now) => Box::new(move |l: LuaState| {
            l.push_number(now as f64);
            1
        }),
        None => Box::new(|l: LuaState| {
            l.push_nil();
            l.push_bytes(b"timeout");
            2
        }),
    }
}

impl crate::vm::lua_vm::LuaVm {
    /// Has scripts that wait for changes of upstreams look when the configuration is no longer in force.
    fn wake_when_leaving(&self) {
        if self.watches.replace(true) {
            return;
        }
        let (home, Some(link)) = (self.home.clone(), self.home.upgrade()) else { return };
        link.on_leave(move || {
            let Some(link) = home.upgrade() else { return };
            if let Some(all) = link.configuration.shared::<Upstreams>() {
                all.iter().for_each(|upstream| upstream.wake_waiting());
            }
        });
    }
}
