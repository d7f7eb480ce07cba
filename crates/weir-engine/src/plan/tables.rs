//! The variables of a configuration, and those of its modules.

use std::collections::HashMap;

use super::variable::{Variable, VariableSource, VariableTable};
use crate::exchange::Exchange;

/// The variables of a configuration, and those that its modules have
/// ([`ConfRegistry`](crate::conf::registry::ConfRegistry)).
#[derive(Default)]
pub struct RequestTables {
    /// The variables that the configuration uses.
    pub variables: VariableTable,
    pub(crate) plain: HashMap<&'static str, &'static Variable>,
    pub(crate) prefixes: Vec<&'static Variable>,
}

impl RequestTables {
    /// What gives a module's variable a value, if it takes one.
    pub fn modules_setter(&self, name: &str) -> Option<fn(&mut Exchange, &[u8])> {
        self.plain.get(name)?.set
    }

    /// A module's variable by its name without `$`, whether or not the configuration uses it: how it is computed, and
    /// for a prefix variable (`http_`) the part of the name after the prefix. `None` if no module has such a variable.
    pub fn modules_variable<'n>(&self, name: &'n str) -> Option<(VariableSource, &'n str)> {
        if let Some(variable) = self.plain.get(name) {
            return Some((variable.get, ""));
        }
        let variable = self.prefixes.iter().find(|variable| name.starts_with(variable.name))?;
        Some((variable.get, &name[variable.name.len()..]))
    }
}
