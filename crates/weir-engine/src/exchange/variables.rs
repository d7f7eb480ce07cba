//! The values of a request's variables: computed when they are asked for, and what its regular expressions have captured.

use std::rc::Rc;

use weir_http::Span;

use super::Exchange;
use crate::deep_traces::{self, DeepKind};
use crate::plan::variable::{VariableGetter, VariableSource};
use crate::text::{Arena, Text};
use crate::variable_index::VarIndex;

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
    match x.variables.slots.get(index.0 as usize) {
        Some(VariableSlot::Known(text)) => return Some(text.clone()),
        Some(VariableSlot::NotFound) => return None,
        Some(VariableSlot::Unknown) | None => {}
    }
    let definition = x.server.tables.variables.definitions.get(index.0 as usize)?;
    let cacheable = definition.cacheable;
    let value = match definition.getter {
        // Most are such: nothing has to be held while it is computed.
        VariableGetter::Plain(get) if !deep_traces::is_asked() => get(x),
        _ => computed(x, index),
    };
    if cacheable {
        *x.variables.slot(index) = value.clone().map_or(VariableSlot::NotFound, VariableSlot::Known);
    }
    value
}

/// Computes the value of `index`, which has a definition.
fn computed(x: &mut Exchange, index: VarIndex) -> Option<Text> {
    let server = x.server.clone();
    let definition = server.tables.variables.definitions.get(index.0 as usize)?;
    let compute = |x: &mut Exchange| match &definition.getter {
        VariableGetter::Plain(get) => get(x),
        VariableGetter::Prefix(get, rest) => get(x, rest),
        VariableGetter::Computed(get) => get(x),
        VariableGetter::Assigned => None,
    };
    match deep_traces::is_asked() {
        false => compute(x),
        true => x.inside(DeepKind::Variable, &definition.name, compute),
    }
}

impl Exchange {
    /// Gives a variable a value for the rest of the request, as `set` does.
    pub fn set_variable(&mut self, index: VarIndex, value: Text) {
        let setter = self.server.tables.variables.definitions.get(index.0 as usize).and_then(|d| d.set);
        if let Some(set) = setter {
            let bytes = self.text(&value).to_vec();
            return set(self, &bytes);
        }
        self.assign_variable(index, value);
    }

    /// As [`set_variable`](Exchange::set_variable), of a variable whose module does not want to know
    /// ([`ConfRegistry::is_assigned`](crate::conf::registry::ConfRegistry::is_assigned)).
    #[inline]
    pub fn assign_variable(&mut self, index: VarIndex, value: Text) {
        *self.variables.slot(index) = VariableSlot::Known(value);
    }

    /// [`assign_variable`](Exchange::assign_variable) of each: gateways have dozens, for which room is made once where the one with
    /// the highest number is the last.
    pub fn assign_variables(&mut self, values: &[(VarIndex, Text)]) {
        let Some((last, _)) = values.last() else { return };
        self.variables.slot(*last);
        for (index, value) in values {
            let value = VariableSlot::Known(value.clone());
            match self.variables.slots.get_mut(index.0 as usize) {
                Some(slot) => *slot = value,
                None => *self.variables.slot(*index) = value,
            }
        }
    }

    /// The value of `index`, if it was computed or assigned before and is remembered.
    pub(crate) fn known_variable(&self, index: VarIndex) -> Option<&Text> {
        match self.variables.slots.get(index.0 as usize) {
            Some(VariableSlot::Known(text)) => Some(text),
            _ => None,
        }
    }

    /// What `name` was is not remembered: it is computed when it is asked for again.
    pub(crate) fn forget_variable(&mut self, name: &str) {
        if let Some(index) = self.server.tables.variables.find(name) {
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
        let tables = &self.server.tables;
        if let Some(index) = tables.variables.find(name) {
            return self.variable(index);
        }
        match tables.modules_variable(name)? {
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
