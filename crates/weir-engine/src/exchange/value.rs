//! What a value with variables in it is for a request.

use weir_http::escape::EscapeSet;

use super::Exchange;
use crate::plan::variable::ValueBasis;
use crate::text::Text;
use crate::value_script::{ScriptPart, ValueScript};

/// How what a capture brings is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CaptureEscape {
    /// As it is.
    None,
    /// Escaped as an argument of a URI.
    Argument,
}

impl ValueScript {
    /// The value in `x`; a variable without value is empty.
    pub fn value(&self, x: &mut Exchange) -> Text {
        self.compose(x, CaptureEscape::None)
    }

    /// As [`ValueScript::value`], with what captures bring escaped as an argument of a URI.
    pub fn value_escaped(&self, x: &mut Exchange) -> Text {
        self.compose(x, CaptureEscape::Argument)
    }

    /// What the value in `x`, whose request no handler has changed, follows from.
    pub fn basis(&self, x: &Exchange) -> ValueBasis {
        let definitions = &x.server.tables.variables.definitions;
        let basis = |part: &ScriptPart| match part {
            ScriptPart::Literal(_) => ValueBasis::Head,
            ScriptPart::Variable(index) => {
                definitions.get(usize::from(index.0)).map_or(ValueBasis::Request, |variable| variable.basis)
            }
            ScriptPart::Capture(_) => ValueBasis::Request,
        };
        self.parts.iter().map(basis).max().unwrap_or(ValueBasis::Head)
    }

    /// Whether `test` holds for what one of the variables or captures brings.
    pub(crate) fn brings(&self, x: &mut Exchange, test: impl Fn(&[u8]) -> bool) -> bool {
        self.parts.iter().any(|part| match part {
            ScriptPart::Literal(_) => false,
            ScriptPart::Variable(index) => {
                let value = x.variable(*index).unwrap_or(Text::EMPTY);
                test(x.text(&value))
            }
            ScriptPart::Capture(n) => test(x.arena.get(x.captures.get(usize::from(*n)).unwrap_or_default())),
        })
    }

    fn compose(&self, x: &mut Exchange, escape: CaptureEscape) -> Text {
        if let [ScriptPart::Variable(index)] = &*self.parts {
            return x.variable(*index).unwrap_or(Text::EMPTY);
        }
        // Variables may write to the arena while they are computed, so they come first; then the pieces are laid
        // down one after the other. Few have many: those of most need no memory from the heap.
        let (mut few, mut many) = ([const { Text::EMPTY }; FEW], Vec::new());
        let count = self.parts.iter().filter(|part| part.variable().is_some()).count();
        let values = match few.get_mut(..count) {
            Some(few) => few,
            None => {
                many.resize(count, Text::EMPTY);
                &mut many[..]
            }
        };
        for (value, index) in values.iter_mut().zip(self.parts.iter().filter_map(ScriptPart::variable)) {
            *value = x.variable(index).unwrap_or(Text::EMPTY);
        }
        let mut values = values.iter();
        let start = x.arena.mark();
        for part in &*self.parts {
            match part {
                ScriptPart::Literal(bytes) => {
                    x.arena.push(bytes);
                }
                ScriptPart::Variable(_) => {
                    if let Some(value) = values.next() {
                        x.arena.append(value);
                    }
                }
                ScriptPart::Capture(n) => {
                    let span = x.captures.get(usize::from(*n)).unwrap_or_default();
                    if escape == CaptureEscape::Argument {
                        let raw = x.arena.get(span).to_vec();
                        x.arena.write(|out| weir_http::escape::escape(out, &raw, EscapeSet::Args));
                    } else {
                        x.arena.copy(span);
                    }
                }
            }
        }
        Text::Span(x.arena.since(start))
    }
}

/// As many variables of a value are computed without memory from the heap.
const FEW: usize = 6;
