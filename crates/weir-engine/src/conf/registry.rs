//! What the modules of one configuration share while it is read: variables, and anything else by its type.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use weir_conf::{Contexts, Error, Span};

use crate::conf::absent;
use crate::plan::tables::RequestTables;
use crate::plan::variable::{
    ValueBasis, Variable, VariableDefinition, VariableGetter, VariableSource, VariableTable,
};
use crate::plan::{InsertedInstruction, MakeInstruction};
use crate::variable_index::VarIndex;
use crate::worker::configuration::SharedValues;

/// Lent to setters through `LineCx::ext`.
pub struct ConfRegistry {
    table: VariableTable,
    /// Where each variable was used first, for the error if it is never declared.
    used: Vec<Option<Span>>,
    declared: Vec<bool>,
    plain: HashMap<&'static str, &'static Variable>,
    prefixes: Vec<&'static Variable>,
    shared: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
    /// See [`ConfRegistry::around`].
    pub(crate) outer: SharedValues,
    /// How many nested blocks the block being read has, and what the line being read wants of its own.
    nested: (usize, Option<Contexts>),
    /// What is to be reported of what was found when blocks were settled; the configuration is used.
    pub warnings: Vec<Error>,
    /// See [`ConfRegistry::location`].
    location: Option<String>,
    /// See [`ConfRegistry::accept_connect`].
    accepts_connect: bool,
    /// See [`ConfRegistry::order`] and [`ConfRegistry::instruct`].
    order: u32,
    instructed: Vec<InsertedInstruction>,
    /// See [`ConfRegistry::claim_content`].
    content: Option<&'static str>,
    /// True while the settings of `http` itself are settled: nothing is served by them alone, and blocks inside may
    /// add to them.
    pub settles_http: bool,
    /// True while the block of another protocol than HTTP is read (`stream`): what modules have by default for requests is
    /// not there.
    pub is_stream: bool,
    /// Where relative paths begin.
    pub paths: weir_conf::ConfPaths,
    /// The settings outside of `http`; complete when `http` is read, whatever the order in the file.
    pub main: crate::settings::main::MainConf,
}

impl ConfRegistry {
    /// For a configuration in which modules have these variables; of one name the last counts.
    pub(crate) fn new(
        variables: impl Iterator<Item = &'static Variable>,
        paths: weir_conf::ConfPaths,
    ) -> ConfRegistry {
        let mut registry = ConfRegistry {
            table: VariableTable::default(),
            used: Vec::new(),
            declared: Vec::new(),
            plain: HashMap::new(),
            prefixes: Vec::new(),
            shared: HashMap::new(),
            outer: SharedValues::new(),
            nested: (0, None),
            warnings: Vec::new(),
            location: None,
            accepts_connect: false,
            order: 0,
            instructed: Vec::new(),
            content: None,
            settles_http: false,
            is_stream: false,
            paths,
            main: Default::default(),
        };
        for variable in variables {
            match variable.get {
                VariableSource::Plain(_) => {
                    registry.plain.insert(variable.name, variable);
                }
                VariableSource::Prefix(_) => registry.prefixes.push(variable),
            }
        }
        // The longest prefix wins: `upstream_http_` before `upstream_`.
        registry.prefixes.sort_by_key(|variable| std::cmp::Reverse(variable.name.len()));
        registry
    }

    /// The number of variable `name`, which the configuration uses at `span`. It may be declared later in the file.
    pub fn use_variable(&mut self, name: &str, span: Span) -> VarIndex {
        let index = match self.table.by_name.get(name) {
            // All names there are in lower case.
            Some(index) => *index,
            None => self.index(&name.to_ascii_lowercase()),
        };
        self.used[index.0 as usize].get_or_insert(span);
        index
    }

    /// Declares a variable of the configuration (`map`, `geo`, ...).
    ///
    /// # Errors
    /// nginx's words when a module has one of that name that may not be changed.
    pub fn define(
        &mut self,
        name: &str,
        getter: VariableGetter,
        cacheable: bool,
    ) -> Result<VarIndex, String> {
        let name = &*name.to_ascii_lowercase();
        if self.plain.get(name).is_some_and(|variable| !variable.changeable) {
            return Err(format!("the duplicate \"{name}\" variable"));
        }
        let index = self.index(name);
        let definition = &mut self.table.definitions[index.0 as usize];
        definition.getter = getter;
        definition.cacheable = cacheable;
        definition.basis = ValueBasis::Request;
        self.declared[index.0 as usize] = true;
        Ok(index)
    }

    /// Declares a variable that `set`, a named capture or the like gives values to.
    ///
    /// # Errors
    /// nginx's words when a module has one of that name that may not be changed.
    pub fn define_assigned(&mut self, name: &str) -> Result<VarIndex, String> {
        let name = &*name.to_ascii_lowercase();
        if self.plain.get(name).is_some_and(|variable| !variable.changeable) {
            return Err(format!("the duplicate \"{name}\" variable"));
        }
        let index = self.index(name);
        self.table.definitions[index.0 as usize].basis = ValueBasis::Request;
        self.declared[index.0 as usize] = true;
        Ok(index)
    }

    /// As [`ConfRegistry::define_assigned`], for `set`: a variable that is not yet declared is computed by `unset` as
    /// long as no value was given to it.
    ///
    /// # Errors
    /// As [`ConfRegistry::define_assigned`].
    pub fn define_set(&mut self, name: &str, unset: VariableGetter) -> Result<VarIndex, String> {
        let lower = name.to_ascii_lowercase();
        let at = self.index(&lower).0 as usize;
        if !self.declared[at] {
            self.table.definitions[at].getter = unset;
        }
        self.define_assigned(&lower)
    }

    /// Whether a value that is given to the variable is only remembered: its module does nothing with it.
    pub fn is_assigned(&self, index: VarIndex) -> bool {
        self.table.definitions.get(usize::from(index.0)).is_some_and(|definition| definition.set.is_none())
    }

    /// Called by the setter of a block directive in `server` or `location`: the block's lines are read as those of
    /// `inside`, into settings that inherit everything from the block around. The number is the index of its plan in
    /// [`Plan::nested`](crate::plan::Plan::nested).
    pub fn nest(&mut self, inside: Contexts) -> usize {
        self.nested.1 = Some(inside);
        self.nested.0
    }

    /// The place of an instruction among those of its block, wherever in the file included lines are.
    pub fn order(&mut self) -> u32 {
        self.order += 1;
        self.order
    }

    /// Called by a setter: `instruction` runs among those of `rewrite`, `set` and `if` of the block, at its place.
    pub fn instruct(&mut self, instruction: Arc<dyn MakeInstruction>) {
        let order = self.order();
        self.instructed.push(InsertedInstruction { order, instruction });
    }

    /// What the line just read has left with [`ConfRegistry::instruct`].
    pub(crate) fn take_instructed(&mut self) -> Vec<InsertedInstruction> {
        std::mem::take(&mut self.instructed)
    }

    /// Called by the setter of a directive that gives its block the content handler of `module`: as in nginx the last such
    /// directive of a block counts.
    pub fn claim_content(&mut self, module: &'static str) {
        self.content = Some(module);
    }

    /// What the line just read has left with [`ConfRegistry::claim_content`].
    pub(crate) fn take_content(&mut self) -> Option<&'static str> {
        self.content.take()
    }

    /// The path of the location whose lines are being read; `None` outside of locations, in those by regular
    /// expression or name, and in blocks without a name inside (`if`, `limit_except`).
    pub fn location(&self) -> Option<String> {
        self.location.clone()
    }

    /// From here on lines of that location are read; what was before is returned.
    pub(crate) fn enter_location(&mut self, location: Option<String>) -> Option<String> {
        std::mem::replace(&mut self.location, location)
    }

    /// The server whose lines are being read takes requests with the method CONNECT; others refuse them.
    pub fn accept_connect(&mut self) {
        self.accepts_connect = true;
    }

    /// Whether the server read last does.
    pub(crate) fn take_accepts_connect(&mut self) -> bool {
        std::mem::take(&mut self.accepts_connect)
    }

    pub(crate) fn begin_line(&mut self, nested: usize) {
        self.nested = (nested, None);
    }

    pub(crate) fn end_line(&mut self) -> Option<Contexts> {
        self.nested.1.take()
    }

    /// Something that modules share by its type; made by `Default` when asked for first.
    pub fn shared<T: Default + Send + Sync + 'static>(&mut self) -> &mut T {
        let entry = self.shared.entry(TypeId::of::<T>()).or_insert_with(|| Box::<T>::default());
        entry.downcast_mut().expect("kept under its own type")
    }

    /// While a section is read, what modules of `http` have shared; nothing else has it.
    pub fn around<T: 'static>(&self) -> Option<&T> {
        self.outer.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// Names of variables are the same in any case, and are stored in lower case.
    fn index(&mut self, name: &str) -> VarIndex {
        if let Some(index) = self.table.by_name.get(name) {
            return *index;
        }
        let name: Arc<str> = Arc::from(name);
        let index = VarIndex(self.table.definitions.len() as u16);
        let (definition, known) = self.definition(&name);
        self.table.definitions.push(definition);
        self.declared.push(known);
        self.used.push(None);
        self.table.by_name.insert(name, index);
        index
    }

    /// What modules know of `name`.
    fn definition(&self, name: &Arc<str>) -> (VariableDefinition, bool) {
        let found = self.plain.get(&**name).copied().map(|variable| (variable, ""));
        let found = found.or_else(|| {
            let variable = self.prefixes.iter().find(|variable| name.starts_with(variable.name))?;
            Some((*variable, &name[variable.name.len()..]))
        });
        let definition = |getter, set, cacheable, changeable, basis| VariableDefinition {
            name: name.clone(),
            getter,
            set,
            cacheable,
            changeable,
            basis,
        };
        match found {
            Some((variable, rest)) => {
                let getter = match variable.get {
                    VariableSource::Plain(get) => VariableGetter::Plain(get),
                    VariableSource::Prefix(get) => VariableGetter::Prefix(get, Arc::from(rest)),
                };
                let Variable { set, cacheable, changeable, basis, .. } = *variable;
                (definition(getter, set, cacheable, changeable, basis), true)
            }
            None => (definition(VariableGetter::Assigned, None, true, true, ValueBasis::Request), false),
        }
    }

    /// The finished tables, what modules share, and an error for each variable that was used but not declared.
    pub(crate) fn finish(self) -> (RequestTables, SharedValues, Vec<Error>) {
        let unknown = self.declared.iter().zip(&self.used).zip(&self.table.definitions);
        let errors = unknown
            .filter(|((declared, used), _)| !**declared && used.is_some())
            .map(|((_, used), definition)| {
                let error = Error::new(format!("unknown \"{}\" variable", definition.name));
                let error = used.map_or(error.clone(), |span| error.at(span));
                match absent::variable(&definition.name) {
                    Some(hint) => error.hint(hint),
                    None => error,
                }
            })
            .collect();
        let tables = RequestTables { variables: self.table, plain: self.plain, prefixes: self.prefixes };
        let shared = self.shared.into_iter().map(|(id, value)| (id, Arc::from(value))).collect();
        (tables, shared, errors)
    }
}
