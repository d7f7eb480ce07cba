//! Variables of tracing: times of the request so far, in milliseconds with three decimals.
//!
//! They have no value where boundaries are not recorded: `profile off`, level `off`, and at level `sampled` the requests
//! that were not drawn.

use weir_http::h1;
use weir_rt::clock;
use weir_trace::{Cause, PHASES, Trace};

use crate::exchange::Exchange;
use crate::text::Text;
use crate::variable::Variable;
use crate::variable::core::request_id;

/// The module's variables.
pub(super) const VARIABLES: &[Variable] = &[
    Variable::new("trace_id", request_id).changeable(),
    Variable::new("traceparent", traceparent).changeable(),
    Variable::new("cause", cause).volatile().changeable(),
    Variable::new("trace_run", run).volatile().changeable(),
    Variable::new("trace_cpu", cpu).volatile().changeable(),
    Variable::new("trace_kernel", kernel).volatile().changeable(),
    Variable::new("trace_wait", wait).volatile().changeable(),
    Variable::new("trace_total", total).volatile().changeable(),
    Variable::prefix("trace_phase_", phase),
];

fn traceparent(x: &mut Exchange) -> Option<Text> {
    let value = x.traceparent();
    Some(Text::Span(x.arena.push(value.as_bytes())))
}

/// `$cause`: why the request failed, where the server itself knows.
fn cause(x: &mut Exchange) -> Option<Text> {
    (x.cause != Cause::None).then(|| Text::Static(x.cause.as_str().as_bytes()))
}

/// `$trace_run`: the time it ran.
fn run(x: &mut Exchange) -> Option<Text> {
    milliseconds(x, |trace, now| trace.total_run() + now.saturating_sub(trace.start() + trace.total()))
}

/// `$trace_cpu`: the time of processors that it took.
fn cpu(x: &mut Exchange) -> Option<Text> {
    let taken = x.cpu()?;
    milliseconds(x, |_, _| taken)
}

/// `$trace_kernel`: what the kernel did for it besides, with what it will do to send what is there.
fn kernel(x: &mut Exchange) -> Option<Text> {
    let due = x.transport.due_kernel();
    milliseconds(x, |_, _| due)
}

/// `$trace_wait`: the time it waited, in the loop's queue too.
fn wait(x: &mut Exchange) -> Option<Text> {
    milliseconds(x, |trace, _| trace.total_wait())
}

/// `$trace_total`: both; `$request_time` with three more digits.
fn total(x: &mut Exchange) -> Option<Text> {
    milliseconds(x, |trace, now| now.saturating_sub(trace.start()))
}

/// `$trace_phase_access` and so on: run and wait of the phase's handlers.
fn phase(x: &mut Exchange, name: &str) -> Option<Text> {
    let phase = PHASES.iter().position(|phase| *phase == name)? as u8;
    let present = x.worker.present.clone();
    milliseconds(x, |trace, now| trace.phase(phase, &present.phases.borrow(), now))
}

fn milliseconds(x: &mut Exchange, ticks: impl FnOnce(&Trace, u64) -> u64) -> Option<Text> {
    if !x.shared.is_on() {
        return None;
    }
    let ticks = x.shared.with_trace(|trace| ticks(trace, clock::ticks()));
    let us = clock::scale().ticks_to_ns(ticks) / 1_000;
    let digit = |power| b'0' + (us / power % 10) as u8;
    Some(Text::Span(x.arena.write(|out| {
        h1::number(out, us / 1_000);
        out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
    })))
}
