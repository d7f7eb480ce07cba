//! The server's resolver, for scripts: below `weir.resolver`.
//!
//! It is that of `resolver` in the block the script belongs to: one cache for all workers, name servers that fail asked
//! last, expired answers where no server has a newer one.

use std::net::IpAddr;
use std::sync::Arc;

use weir_engine::resolver::{self, DnsAnswer, DnsQuestion, Resolver};
use weir_rt::clock;
use weir_trace::WaitKind;

use crate::api::socket;
use crate::luajit::state::LuaState;
use crate::run::function::{ApiFunction, CallDone, CallOutcome, expect_string, fail, function};
use crate::run::lend;
use crate::run::op::{PushResults, ThreadOp};
use crate::vm::phase::YIELDABLE;

pub(crate) const TABLE: &[ApiFunction] =
    &[function("_resolver.cached", 0, cached), function("_resolver.resolve", YIELDABLE, resolve)];

/// `addresses`, `service` or `names`, and of what; `None`: it is no name, or no address.
fn question(kind: &[u8], name: &str) -> Option<DnsQuestion> {
    match kind {
        b"service" => match resolver::question(name).ok()? {
            DnsQuestion::Addresses(name) => Some(DnsQuestion::Service(name)),
            other => Some(other),
        },
        b"names" => resolver::literal(name).map(DnsQuestion::Names),
        _ => resolver::question(name).ok(),
    }
}

/// A question, the servers that are asked, and for how many milliseconds.
type NameLookup = (DnsQuestion, Arc<Resolver>, u64);

/// What the arguments ask; or why that can't be asked.
fn asked(l: LuaState) -> Result<Result<NameLookup, &'static str>, crate::run::function::LuaRaise> {
    let kind = expect_string(&l, 1, "resolve")?;
    let name = expect_string(&l, 2, "resolve")?;
    let Some(question) = question(&kind, &String::from_utf8_lossy(&name)) else {
        return Ok(Err("invalid name"));
    };
    let Some((resolver, timeout)) = socket::tcp::resolver()? else { return Ok(Err("no resolver defined")) };
    Ok(Ok((question, resolver, timeout)))
}

/// `cached(kind, name)`: what is known without a query, or `nil`.
fn cached(l: LuaState) -> CallOutcome {
    match asked(l)? {
        Err(why) => return fail(l, why),
        Ok((question, resolver, _)) => match resolver.cached(&question) {
            Some(answer) => push(l, &answer),
            None => l.push_nil(),
        },
    }
    Ok(CallDone::Results(1))
}

/// `resolve(kind, name [, milliseconds])`
fn resolve(l: LuaState) -> CallOutcome {
    let (question, resolver, timeout) = match asked(l)? {
        Ok(asked) => asked,
        Err(why) => return fail(l, why),
    };
    if let Some(answer) = resolver.cached(&question) {
        push(l, &answer);
        return Ok(CallDone::Results(1));
    }
    let timeout = l.number(3).filter(|ms| *ms > 0.0).map_or(timeout, |ms| ms as u64);
    lend::run(|run| {
        run.wait = WaitKind::Resolver;
        run.op = Some(ThreadOp::Wait(Box::pin(async move {
            let found = resolver.resolve(&question, timeout).await;
            Box::new(move |l: LuaState| match found {
                Ok(answer) => {
                    push(l, &answer);
                    1
                }
                Err(failure) => {
                    l.push_nil();
                    l.push_bytes(failure.to_string().as_bytes());
                    l.push_number(f64::from(failure.number()));
                    3
                }
            }) as PushResults
        })));
    })?;
    Ok(CallDone::Yield(0))
}

/// Pushes `{ addresses = …, services = …, names = …, ttl = seconds, stale = true }`, of the lists what was asked for.
fn push(l: LuaState, answer: &DnsAnswer) {
    l.reserve(8);
    l.new_table(0, 4);
    if !answer.services.is_empty() {
        l.new_table(answer.services.len(), 0);
        for (at, service) in answer.services.iter().enumerate() {
            l.new_table(0, 5);
            let numbers =
                [(c"priority", service.priority), (c"weight", service.weight), (c"port", service.port)];
            for (key, value) in numbers {
                l.push_number(value.into());
                l.set_field(-2, key);
            }
            l.push_bytes(service.target.to_string().as_bytes());
            l.set_field(-2, c"target");
            push_addresses(l, &service.addresses);
            l.raw_set_index(-2, at + 1);
        }
        l.set_field(-2, c"services");
    } else if !answer.names.is_empty() {
        l.new_table(answer.names.len(), 0);
        for (at, name) in answer.names.iter().enumerate() {
            l.push_bytes(name.to_string().as_bytes());
            l.raw_set_index(-2, at + 1);
        }
        l.set_field(-2, c"names");
    } else {
        push_addresses(l, &answer.addresses);
    }
    l.push_number(answer.until.saturating_sub(clock::monotonic_ms()) as f64 / 1000.0);
    l.set_field(-2, c"ttl");
    if answer.stale {
        l.push_boolean(true);
        l.set_field(-2, c"stale");
    }
}

fn push_addresses(l: LuaState, addresses: &[IpAddr]) {
    l.new_table(addresses.len(), 0);
    for (at, ip) in addresses.iter().enumerate() {
        l.push_bytes(ip.to_string().as_bytes());
        l.raw_set_index(-2, at + 1);
    }
    l.set_field(-2, c"addresses");
}
