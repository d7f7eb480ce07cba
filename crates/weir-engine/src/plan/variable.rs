//! Variables as modules and the configuration declare them: functions of an exchange.

use std::collections::HashMap;
use std::sync::Arc;

use crate::exchange::Exchange;
use crate::text::Text;
use crate::variable_index::VarIndex;

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
    /// What its value follows from.
    pub basis: ValueBasis,
}

/// What a value follows from besides the configuration, where no handler has changed the request: a value that follows from less
/// is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueBasis {
    /// The head of the request, and the virtual server that it leads to.
    Head,
    /// These and what other connections may have in common with this one: the client's address without the port, the address it
    /// connected to, and whether it speaks TLS.
    Connection,
    /// More: it is to be computed for each request.
    Request,
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
        Variable {
            name,
            get: VariableSource::Plain(get),
            set: None,
            cacheable: true,
            changeable: false,
            basis: ValueBasis::Request,
        }
    }

    /// All variables whose names begin with `name` (`http_`), computed each time; `get` receives the rest of the name,
    /// and returns `None` where the variable is not found.
    pub const fn prefix(name: &'static str, get: fn(&mut Exchange, &str) -> Option<Text>) -> Variable {
        Variable {
            name,
            get: VariableSource::Prefix(get),
            set: None,
            cacheable: false,
            changeable: false,
            basis: ValueBasis::Request,
        }
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

    /// Its value is the same for all requests with the same head.
    pub const fn of_head(mut self) -> Variable {
        self.basis = ValueBasis::Head;
        self
    }

    /// Its value is the same for all requests with the same head on connections that are alike, see [`ValueBasis::Connection`].
    pub const fn of_connection(mut self) -> Variable {
        self.basis = ValueBasis::Connection;
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
    /// What its value follows from.
    pub basis: ValueBasis,
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

    /// The names of all, in the order of their numbers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.definitions.iter().map(|definition| &*definition.name)
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
