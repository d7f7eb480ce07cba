//! What people see modules as in traces, where the configuration calls them otherwise.

use std::sync::Arc;

/// The `trace_name` lines in force in a block: modules, each with the name that traces, counters and exports have for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModuleNames(Vec<(&'static str, Arc<str>)>);

impl ModuleNames {
    /// The name that the configuration has for `module`; `None` if it has none.
    pub(crate) fn of(&self, module: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == module).map(|(_, name)| &**name)
    }

    /// Calls `module` so; false if it has a name by now.
    pub(crate) fn add(&mut self, module: &'static str, name: Arc<str>) -> bool {
        let is_new = self.of(module).is_none();
        if is_new {
            self.0.push((module, name));
        }
        is_new
    }

    /// Adds the names of the block around for modules that have none here.
    pub(crate) fn inherit(&mut self, outer: &ModuleNames) {
        for (module, name) in &outer.0 {
            self.add(module, name.clone());
        }
    }
}
