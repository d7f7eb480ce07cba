//! Variables: declared by modules and by the configuration, numbered when used, computed when asked for.

pub mod core;
pub mod script;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use weir_http::Span;

use crate::exchange::Exchange;
use crate::text::{Arena, Text};
pub use crate::variable_index::VarIndex;

pub use script::ValueScript;

/// A variable that a module declares in its table.
pub struct Variable {
    /// Its name without `$`; for a prefix (`http_`) the prefix.
    pub name: &'static str,
    /// How its value is computed.
    pub get: VariableSource,
    /// What `set` does with it; `None`: it can't be changed.
    pub set: Option<fn(&mut Exchange, &[u8])>,
    /// True when it is computed once per request, false when each time (nginx's `NOCACHEABLE`).
    pub cacheable: bool,
    /// True when the configuration may define it again, by `set`, `map` and the like (nginx's `CHANGEABLE`).
    pub changeable: bool,
}

/// How a module's variable is computed.
#[derive(Clone, Copy)]
pub enum VariableSource {
    /// By this function.
    Plain(fn(&mut Exchange) -> Option<Text>),
    /// By this function from what follows the prefix.
    Prefix(fn(&mut Exchange, &str) -> Option<Text>),
}

impl Variable {
    /// A variable `name`, without `$`, that `get` computes once per request; `get` returns `None` where the variable is
    /// not found.
    pub const fn new(name: &'static str, get: fn(&mut Exchange) -> Option<Text>) -> Variable {
        Variable { name, get: VariableSource::Plain(get), set: None, cacheable: true, changeable: false }
    }

    /// All variables whose names begin with `name` (`http_`), computed each time; `get` receives the rest of the name,
    /// and returns `None` where the variable is not found.
    pub const fn prefix(name: &'static str, get: fn(&mut Exchange, &str) -> Option<Text>) -> Variable {
        Variable { name, get: VariableSource::Prefix(get), set: None, cacheable: false, changeable: false }
    }

    /// Computed once per request; what [`Variable::prefix`] does not say of itself.
    pub const fn kept(mut self) -> Variable {
        self.cacheable = true;
        self
    }

    /// Computed each time it is asked for.
    pub const fn volatile(mut self) -> Variable {
        self.cacheable = false;
        self
    }

    /// Has `set $name` call `set` with the new value; the configuration may define the variable again.
    pub const fn settable(mut self, set: fn(&mut Exchange, &[u8])) -> Variable {
        self.set = Some(set);
        self.changeable()
    }

    /// The configuration may define it again; the module then asks for it like any other user.
    pub const fn changeable(mut self) -> Variable {
        self.changeable = true;
        self
    }
}

/// How the configuration computes a value.
pub(crate) type ValueFunction = dyn Fn(&mut Exchange) -> Option<Text> + Send + Sync;

/// How a variable of one configuration is computed.
#[derive(Clone)]
pub enum VariableGetter {
    /// A module's function.
    Plain(fn(&mut Exchange) -> Option<Text>),
    /// A module's function for a prefix, and what followed the prefix.
    Prefix(fn(&mut Exchange, &str) -> Option<Text>, Arc<str>),
    /// Made by the configuration (`map`, `geo`, `split_clients`).
    Computed(Arc<ValueFunction>),
    /// Has a value only where something gave it one (`set`, named captures).
    Assigned,
}

/// A variable of one configuration.
#[derive(Clone)]
pub(crate) struct VariableDefinition {
    /// Its name without `$`.
    pub name: Arc<str>,
    /// How its value is computed.
    pub getter: VariableGetter,
    /// What `set` calls with a new value; `None`: `set` can't change it.
    pub set: Option<fn(&mut Exchange, &[u8])>,
    /// True when it is computed once per request.
    pub cacheable: bool,
    /// `set` and named captures may change it (`false` for modules' own).
    pub changeable: bool,
}

/// All variables of one configuration: by number for requests, by name for scripts that ask at run time.
#[derive(Clone, Default)]
pub struct VariableTable {
    pub(crate) definitions: Vec<VariableDefinition>,
    pub(crate) by_name: HashMap<Arc<str>, VarIndex>,
}

impl VariableTable {
    /// The number of the variable `name`, without `$`; `None` if the configuration does not use it.
    pub fn find(&self, name: &str) -> Option<VarIndex> {
        self.by_name.get(name).copied()
    }

    /// Whether a request may give the variable a value; `None` when the configuration does not know it.
    pub fn settable(&self, name: &str) -> Option<bool> {
        let definition = self.definitions.get(usize::from(self.find(name)?.0))?;
        // One of a prefix is known by being asked for; nothing can be set there.
        if matches!(definition.getter, VariableGetter::Prefix(..)) && definition.set.is_none() {
            return None;
        }
        Some(definition.changeable || definition.set.is_some())
    }
}

/// The values of one request.
#[derive(Clone, Default)]
pub(crate) struct VariableValues {
    slots: Vec<VariableSlot>,
    used: bool,
}

#[derive(Clone, Default)]
enum VariableSlot {
    #[default]
    Unknown,
    NotFound,
    Known(Text),
}

impl VariableSlot {
    /// The very same value; equal ones that are elsewhere may be others.
    fn is(&self, other: &VariableSlot) -> bool {
        match (self, other) {
            (VariableSlot::Known(Text::Span(one)), VariableSlot::Known(Text::Span(other))) => one == other,
            (VariableSlot::Known(Text::Static(one)), VariableSlot::Known(Text::Static(other))) => {
                one == other
            }
            (VariableSlot::Known(Text::Shared(one)), VariableSlot::Known(Text::Shared(other))) => {
                Rc::ptr_eq(one, other)
            }
            _ => false,
        }
    }
}

/// A copy of a request's variables after its subrequest.
pub(crate) struct ChangedVariables<'v> {
    /// As they are now.
    pub(crate) now: &'v VariableValues,
    /// Where their text is: up to `mark` the same as in the request's arena.
    pub(crate) arena: &'v Arena,
    /// As they were when the copy was made.
    pub(crate) before: &'v VariableValues,
    /// Where the arena ended then.
    pub(crate) mark: u32,
}

impl VariableValues {
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.used) {
            self.slots.fill(VariableSlot::Unknown);
        }
    }

    /// Takes over what has changed in a copy of these variables.
    pub(crate) fn take_changes(&mut self, arena: &mut Arena, changed: ChangedVariables<'_>) {
        let ChangedVariables { now, arena: theirs, before, mark } = changed;
        for (at, slot) in now.slots.iter().enumerate() {
            let VariableSlot::Known(text) = slot else { continue };
            if before.slots.get(at).is_some_and(|before| before.is(slot)) {
                continue;
            }
            let text = match text {
                Text::Span(span) if span.end > mark => Text::Span(arena.push(theirs.get(*span))),
                text => text.clone(),
            };
            *self.slot(VarIndex(at as u16)) = VariableSlot::Known(text);
        }
    }

    fn slot(&mut self, index: VarIndex) -> &mut VariableSlot {
        let at = index.0 as usize;
        if self.slots.len() <= at {
            self.slots.resize(at + 1, VariableSlot::Unknown);
        }
        self.used = true;
        &mut self.slots[at]
    }
}

/// The value of `index` in `x`: as cached, or computed now.
pub(crate) fn value(x: &mut Exchange, index: VarIndex) -> Option<Text> {
    match x.variables.slot(index) {
        VariableSlot::Known(text) => return Some(text.clone()),
        VariableSlot::NotFound => return None,
        VariableSlot::Unknown => {}
    }
    let generation = x.server.generation();
    let definition = generation.variables().definitions.get(index.0 as usize)?;
    let value = match &definition.getter {
        VariableGetter::Plain(get) => get(x),
        VariableGetter::Prefix(get, rest) => get(x, rest),
        VariableGetter::Computed(get) => get(x),
        VariableGetter::Assigned => None,
    };
    if definition.cacheable {
        *x.variables.slot(index) = value.clone().map_or(VariableSlot::NotFound, VariableSlot::Known);
    }
    value
}

impl Exchange {
    /// Gives a variable a value for the rest of the request, as `set` does.
    pub fn set_variable(&mut self, index: VarIndex, value: Text) {
        let generation = self.server.generation();
        let setter = generation.variables().definitions.get(index.0 as usize).and_then(|d| d.set);
        if let Some(set) = setter {
            let bytes = self.text(&value).to_vec();
            return set(self, &bytes);
        }
        *self.variables.slot(index) = VariableSlot::Known(value);
    }

    /// What `name` was is not remembered: it is computed when it is asked for again.
    pub(crate) fn forget_variable(&mut self, name: &str) {
        if let Some(index) = self.server.generation().variables().find(name) {
            *self.variables.slot(index) = VariableSlot::default();
        }
    }

    /// Makes a variable not found for the rest of the request.
    pub fn clear_variable(&mut self, index: VarIndex) {
        *self.variables.slot(index) = VariableSlot::NotFound;
    }

    /// The value of the variable `name`, without `$` and in any letter case, as scripts ask for it at run time; also of
    /// variables that the configuration never uses. `None` if no module has the variable, or it has no value for this
    /// request.
    pub fn variable_by_name(&mut self, name: &str) -> Option<Text> {
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return self.variable_by_name(&name.to_ascii_lowercase());
        }
        let generation = self.server.generation();
        if let Some(index) = generation.variables().find(name) {
            return self.variable(index);
        }
        match generation.modules_variable(name)? {
            (VariableSource::Plain(get), _) => get(self),
            (VariableSource::Prefix(get), rest) => get(self, rest),
        }
    }
}

/// The groups of the regular expression that matched last.
#[derive(Clone, Default, Debug)]
pub struct RegexCaptures {
    /// What was matched against, copied to the arena.
    pub subject: Span,
    /// Group 0 and on, as spans of the arena; an unset group is empty.
    pub groups: Vec<Span>,
}

impl RegexCaptures {
    pub(crate) fn clear(&mut self) {
        self.subject = Span::default();
        self.groups.clear();
    }

    /// The place of capture group `n` (`$n`; 0 is the whole match) in the arena, empty if the group is not set; `None`
    /// if the expression has no such group.
    pub fn get(&self, n: usize) -> Option<Span> {
        self.groups.get(n).copied()
    }
}
