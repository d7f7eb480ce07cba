//! Variables that blocks of the configuration compute (`map`, `split_clients`), and what they have in common.

use std::cell::Cell;
use std::sync::Arc;

use weir_conf::{LineCx, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::variable::{ValueScript, VariableGetter};
use weir_engine::{Exchange, Text};

/// The name after the `$` of argument 1 of a block that defines a variable.
pub(crate) fn name<'a>(line: &LineCx<'a>) -> Result<&'a str> {
    name_at(line, 1)
}

/// As [`name`], of another argument.
pub(crate) fn name_at<'a>(line: &LineCx<'a>, at: usize) -> Result<&'a str> {
    line.arg(at)
        .strip_prefix('$')
        .ok_or_else(|| line.fail_arg(at, format!("invalid variable name \"{}\"", line.arg(at))))
}

/// How long a computed value holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueLifetime {
    /// The whole request.
    Request,
    /// One use (`volatile`).
    Use,
}

impl ValueLifetime {
    /// As blocks say it by `volatile`.
    pub(crate) fn of(volatile: bool) -> ValueLifetime {
        if volatile { ValueLifetime::Use } else { ValueLifetime::Request }
    }
}

/// Defines variable `name`, which `compute` computes.
pub(crate) fn define(
    line: &mut LineCx<'_>,
    name: &str,
    lifetime: ValueLifetime,
    compute: impl Fn(&mut Exchange) -> Option<Text> + Send + Sync + 'static,
) -> Result {
    let shown = Arc::<str>::from(name);
    let guarded = move |x: &mut Exchange| within(x, &shown, &compute);
    let registry: &mut ConfRegistry = line.ext();
    match registry.define(
        name,
        VariableGetter::Computed(Arc::new(guarded)),
        lifetime == ValueLifetime::Request,
    ) {
        Ok(_) => Ok(()),
        Err(message) => Err(line.fail_arg(1, message)),
    }
}

/// A value: constants are copied to the request, which costs less than sharing them between threads.
pub(crate) fn value(x: &mut Exchange, script: &ValueScript) -> Text {
    match script.constant() {
        Some(b"") => Text::EMPTY,
        Some(bytes) => Text::Span(x.arena.push(bytes)),
        None => script.value(x),
    }
}

/// Computes, unless the variable goes round in circles: nginx gives up at its hundredth.
fn within(x: &mut Exchange, name: &str, compute: &impl Fn(&mut Exchange) -> Option<Text>) -> Option<Text> {
    thread_local! {
        static DEPTH: Cell<u8> = const { Cell::new(0) };
    }
    let depth = DEPTH.get();
    if depth >= DEEPEST {
        x.log_error(&format_args!("cycle while evaluating variable \"{name}\""));
        return None;
    }
    DEPTH.set(depth + 1);
    let value = compute(x);
    DEPTH.set(depth);
    value
}

/// nginx's bound.
const DEEPEST: u8 = 100;
