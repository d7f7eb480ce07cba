//! Compiling values with variables in them.

use std::sync::Arc;

use weir_conf::{Error, LineCx};

use super::registry::ConfRegistry;
use crate::value_script::{RawPart, ScriptPart, ValueScript, parse};

impl ValueScript {
    /// Compiles the argument with the number `argument`, counted from 0 without the directive's name; every variable in
    /// it is declared as used.
    ///
    /// # Errors
    /// nginx's "invalid variable name"; unknown variables are reported when the whole file was read.
    pub fn compile(line: &mut LineCx<'_>, argument: usize) -> Result<ValueScript, Error> {
        ValueScript::compile_text(line, argument, line.bytes(argument))
    }

    /// Compiles `source`, which was made from the argument with the number `argument`, counted from 0: a part of it, or
    /// the whole with a prefix. If the line lacks that argument, errors point at the directive's name.
    ///
    /// # Errors
    /// As [`ValueScript::compile`], at the argument.
    pub fn compile_text(line: &mut LineCx<'_>, argument: usize, source: &[u8]) -> Result<ValueScript, Error> {
        if !source.is_empty() && !source.contains(&b'$') {
            return Ok(ValueScript::literal(source));
        }
        let parsed = parse(source).map_err(|message| line.fail_arg(argument, message))?;
        let span = line.args().get(argument).unwrap_or(&line.line().name).span;
        let registry: &mut ConfRegistry = line.ext();
        let part = |raw| match raw {
            RawPart::Literal(bytes) => ScriptPart::Literal(Arc::from(bytes)),
            RawPart::Variable(name) => ScriptPart::Variable(registry.use_variable(&name, span)),
            RawPart::Capture(n) => ScriptPart::Capture(n),
        };
        Ok(ValueScript { parts: parsed.into_iter().map(part).collect() })
    }
}
