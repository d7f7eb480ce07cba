//! `ngx.balancer`, below what its library checks.

use std::cell::Cell;
use std::ptr;

use weir_upstream::block::balancer_hook::BalancerChoice;
use weir_upstream::connection::upstream_connection::OwnKeepalive;
use weir_upstream::peer::ConnectionLane;

use crate::api::ffi::{FOUND, FfiAnswer, NOTHING, guarded, slice};
use crate::luajit::shared_page;
use crate::luajit::state::LuaState;
use crate::run::function::{
    ApiFunction, CallDone, CallOutcome, LuaRaise, expect_number, expect_string, fail, function,
};
use crate::run::lend;
use crate::vm::phase::ScriptPhase;

pub(crate) const TABLE: &[ApiFunction] = &[
    function("_balancer.set_more_tries", 0, set_more_tries),
    function("_balancer.get_last_failure", 0, last_failure),
    function("_balancer.set_timeouts", 0, |l| {
        let of = |at| l.number(at).filter(|ms| *ms > 0.0).map(|ms| (ms as u64).max(1));
        let limits = [of(1), of(2), of(3)];
        decide(l, |choice| {
            for (limit, new) in choice.timeouts.iter_mut().zip(limits) {
                *limit = new.or(*limit);
            }
            Ok(())
        })
    }),
    function("_balancer.enable_keepalive", 0, |l| {
        let unlimited = |number: f64| if number == 0.0 { u64::MAX } else { number as u64 };
        let own = OwnKeepalive {
            timeout: unlimited(expect_number(l, 1, "enable_keepalive")?),
            requests: unlimited(expect_number(l, 2, "enable_keepalive")?),
        };
        decide(l, |choice| {
            if !choice.has_peer() {
                return Err("no current peer set".to_owned());
            }
            choice.keep = Some(own);
            Ok(())
        })
    }),
    function("_balancer.recreate_request", 0, |l| {
        decide(l, |choice| {
            choice.recreate = true;
            Ok(())
        })
    }),
    function("_balancer.set_upstream_tls", 0, |l| {
        let on = l.boolean(1);
        decide(l, |choice| {
            if on && !choice.can_tls {
                return Err("no TLS settings: the location's servers are asked by http://".to_owned());
            }
            choice.tls = Some(on);
            Ok(())
        })
    }),
    function("_balancer.bind_to_local_addr", 0, |l| {
        let text = l.lossy(1);
        decide(l, |choice| {
            let local = weir_upstream::block::balancer_hook::local(&text);
            choice.local = Some(local.ok_or_else(|| format!("invalid addr {text}"))?);
            Ok(())
        })
    }),
    function("_balancer.set_lane", 0, |l| {
        let name = expect_string(&l, 1, "set_current_peer")?;
        let size = l.number(2).filter(|size| *size > 0.0).map_or(0, |size| size as usize);
        decide(l, |choice| {
            choice.lane = Some(ConnectionLane { name: name.into(), size });
            Ok(())
        })
    }),
    function("_balancer.refused", 0, refused),
];

/// `true`, or `nil` and why not.
fn decide(l: LuaState, decide: impl FnOnce(&mut BalancerChoice<'_>) -> Result<(), String>) -> CallOutcome {
    match here(decide)? {
        Ok(()) => {
            l.push_boolean(true);
            Ok(CallDone::Results(1))
        }
        Err(why) => fail(l, &why),
    }
}

/// Uses what the running script decides.
///
/// # Errors
/// Raised: there is no request. Inside: why nothing can be decided here, or what `use_it` says.
fn here<T>(
    use_it: impl FnOnce(&mut BalancerChoice<'_>) -> Result<T, String>,
) -> Result<Result<T, String>, LuaRaise> {
    let asked = lend::any_exchange(|x| weir_upstream::has_asked_servers(x))?;
    let found = if lend::phase() == ScriptPhase::Balancer { current(use_it) } else { None };
    let why = if asked { "API disabled in the current context" } else { "no upstream found" };
    Ok(found.unwrap_or_else(|| Err(why.to_owned())))
}

fn set_more_tries(l: LuaState) -> CallOutcome {
    let wanted = expect_number(l, 1, "set_more_tries")? as i64;
    let set = here(|choice| {
        let total = i64::try_from(choice.asked + choice.left).unwrap_or(i64::MAX) - 1;
        let limit = i64::try_from(choice.limit).unwrap_or(i64::MAX);
        let reduced = limit > 0 && total.saturating_add(wanted) > limit;
        choice.more_tries = if reduced { limit - total } else { wanted };
        Ok(reduced)
    })?;
    match set {
        Ok(reduced) => {
            l.push_boolean(true);
            if reduced {
                l.push_bytes(b"reduced tries due to limit");
            }
            Ok(CallDone::Results(1 + i32::from(reduced)))
        }
        Err(why) => fail(l, &why),
    }
}

fn last_failure(l: LuaState) -> CallOutcome {
    match here(|choice| Ok(choice.failure))? {
        Ok(None) => {
            l.push_nil();
            Ok(CallDone::Results(1))
        }
        Ok(Some(failure)) => {
            l.push_bytes(if failure.next { b"next" } else { b"failed" });
            l.push_number(f64::from(failure.status));
            Ok(CallDone::Results(2))
        }
        Err(why) => {
            l.push_nil();
            l.push_nil();
            l.push_bytes(why.as_bytes());
            Ok(CallDone::Results(3))
        }
    }
}

/// Why [`set_peer`] has nothing to set here.
fn refused(l: LuaState) -> CallOutcome {
    match here(|_| Ok(()))? {
        Ok(()) => fail(l, "bad argument"),
        Err(why) => fail(l, &why),
    }
}

/// `set_current_peer`: the address, a port for one that has none, and the name that the server is known by.
///
/// Found: it is set; nothing: the result says why not; refused: `_balancer.refused` does.
pub(crate) unsafe extern "C" fn set_peer(
    addr: *const u8,
    len: usize,
    port: i32,
    host: *const u8,
    host_len: usize,
    answer: *mut FfiAnswer,
) -> i32 {
    // SAFETY: the prelude passes Lua strings, which its stack keeps during the call, and lends its own result struct.
    let (addr, host, answer) = unsafe { (slice(addr, len), slice(host, host_len), &mut *answer) };
    shared_page::changed();
    guarded(|| {
        if lend::phase() != ScriptPhase::Balancer {
            return crate::api::ffi::REFUSED;
        }
        let set = current(|choice| {
            // As a number of 16 bits, whatever it was.
            let set = choice.set_peer(addr, port as u16);
            let named = !host.is_empty();
            choice.host = named.then(|| String::from_utf8_lossy(host).into());
            choice.lane = None;
            set
        });
        match set {
            Some(Ok(())) => FOUND,
            Some(Err(why)) => {
                answer.keep(why.as_bytes());
                NOTHING
            }
            None => crate::api::ffi::REFUSED,
        }
    })
}

thread_local! {
    /// What the script that runs decides.
    pub(crate) static CURRENT: Cell<*mut BalancerChoice<'static>> = const { Cell::new(ptr::null_mut()) };
    /// What it has said by `ngx.exit`.
    pub(crate) static EXIT: Cell<Option<i64>> = const { Cell::new(None) };
}

/// The time in which a script may decide.
pub(crate) struct ChoiceLoan(*mut BalancerChoice<'static>);

impl ChoiceLoan {
    pub(crate) fn begin(choice: &mut BalancerChoice<'_>) -> ChoiceLoan {
        EXIT.set(None);
        // The lifetime is that of the servers' memory, which outlives this value as `choice` does.
        ChoiceLoan(CURRENT.replace(ptr::from_mut(choice).cast()))
    }

    /// Whether a server was named.
    pub(crate) fn end(self) -> bool {
        current(|choice| choice.has_peer()).unwrap_or(false)
    }
}

impl Drop for ChoiceLoan {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Uses what the running script decides; `None`: it is no such script.
pub(crate) fn current<T>(use_it: impl FnOnce(&mut BalancerChoice<'_>) -> T) -> Option<T> {
    // SAFETY: `BalancerScript::choose`, to which the choice is lent exclusively, does not touch it between `ChoiceLoan::begin` and the
    // end of `ChoiceLoan`; here it is borrowed once at a time, since `use_it` never runs Lua.
    unsafe { CURRENT.get().as_mut() }.map(use_it)
}

/// `ngx.exit(status)` in such a script: it goes on, as it does in OpenResty.
pub(crate) fn exit(status: i64) {
    EXIT.set(Some(status));
}
