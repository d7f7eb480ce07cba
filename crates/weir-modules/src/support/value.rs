//! A value of a directive as one worker uses it: a constant is shared by all requests, anything else computed.

use weir_engine::variable::Script;
use weir_engine::{Exchange, Text};

/// A compiled value on one worker.
pub(crate) enum Value {
    /// The same for all requests.
    Constant(Text),
    /// Computed for each.
    Script(Script),
}

impl Value {
    /// `script` on this worker.
    pub(crate) fn new(script: &Script) -> Value {
        match script.constant() {
            Some(b"") => Value::Constant(Text::EMPTY),
            Some(bytes) => Value::Constant(Text::shared(bytes)),
            None => Value::Script(script.clone()),
        }
    }

    /// The value in `x` as a field may have it: [`Exchange::field_value`]. What the configuration writes itself is as it is.
    pub(crate) fn field(&self, x: &mut Exchange) -> Text {
        match self {
            Value::Constant(text) => text.clone(),
            Value::Script(script) => x.field_value(script),
        }
    }

    /// The value in `x`.
    pub(crate) fn get(&self, x: &mut Exchange) -> Text {
        match self {
            Value::Constant(text) => text.clone(),
            Value::Script(script) => script.value(x),
        }
    }
}
