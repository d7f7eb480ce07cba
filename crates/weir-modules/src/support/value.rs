//! A value of a directive as one worker uses it: a constant is shared by all requests, anything else computed.

use weir_engine::variable::{ValueBasis, ValueScript};
use weir_engine::{Exchange, Text};

/// A compiled value on one worker.
pub(crate) enum WorkerValue {
    /// A value without variables, which is the same for all requests.
    Constant(Text),
    /// A value with variables, computed for each request.
    Script(ValueScript),
}

impl WorkerValue {
    /// `script` on this worker.
    pub(crate) fn new(script: &ValueScript) -> WorkerValue {
        match script.constant() {
            Some(b"") => WorkerValue::Constant(Text::EMPTY),
            Some(bytes) => WorkerValue::Constant(Text::shared(bytes)),
            None => WorkerValue::Script(script.clone()),
        }
    }

    /// The value in `x` as a field may have it: [`Exchange::field_value`]. What the configuration writes itself is as it is.
    pub(crate) fn field(&self, x: &mut Exchange) -> Text {
        match self {
            WorkerValue::Constant(text) => text.clone(),
            WorkerValue::Script(script) => x.field_value(script),
        }
    }

    /// What the value in `x` follows from.
    pub(crate) fn basis(&self, x: &Exchange) -> ValueBasis {
        match self {
            WorkerValue::Constant(_) => ValueBasis::Head,
            WorkerValue::Script(script) => script.basis(x),
        }
    }

    /// The value in `x`.
    pub(crate) fn get(&self, x: &mut Exchange) -> Text {
        match self {
            WorkerValue::Constant(text) => text.clone(),
            WorkerValue::Script(script) => script.value(x),
        }
    }
}
