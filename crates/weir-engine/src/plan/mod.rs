//! What a request goes by: its virtual server, and the compiled plan of its location. Only what is configured is in a plan,
//! so what is not costs nothing. Beside it what it is made of: handlers of phases and filters, variables, and what these
//! give, bodies and redirects; and the blocks of a configuration as read, which servers and locations are built of.

pub mod blocks;
pub mod body;
pub mod filter;
pub mod hosts;
pub(crate) mod included;
pub(crate) mod location;
pub(crate) mod module_confs;
pub(crate) mod module_names;
pub mod phase;
pub mod redirect;
pub mod rehearsed;
pub mod server;
pub mod tables;
pub mod variable;

use std::rc::Rc;
use std::sync::Arc;

use weir_conf::Span as ConfSpan;
use weir_trace::{ConnectionStep, KeepRule, Site, SiteKind, SiteTable};

use crate::exchange::Exchange;
use crate::filter::{FilterSlot, HeaderEntry, HeaderFilter};
use crate::phase::{Handler, HandlerEntry, Phase, Verdict};
use crate::plan::module_names::ModuleNames;
use crate::settings::location::CoreSettings;
use crate::typed_values::TypedValues;
use crate::worker::Worker;
use crate::worker::generation::ConfigurationLink;

/// What runs for a request in one location, on one worker.
pub struct Plan {
    /// The location as it is named in traces: `/img/`, `= /`, `~ \.php$`, `@fallback`, or the server's name.
    pub name: Rc<str>,
    /// Where its block begins in the configuration; `None` of what has no block.
    pub place: Option<ConfSpan>,
    /// The core's settings of the location.
    pub core: CoreSettings,
    entries: Box<[HandlerEntry]>,
    /// Index of the first entry of each phase, and the number of all.
    first: [u16; 12],
    /// The location's own content handler, which runs in place of the phase's; that of an `if` may be the enclosing
    /// location's. `None`: the phase's handlers run.
    pub content: Option<Rc<HandlerEntry>>,
    /// Header filters in order of their slots.
    pub header_filters: Box<[HeaderEntry]>,
    /// All header filters are fixed ([`HeaderFilter::is_fixed`]).
    pub(crate) has_fixed_filters: bool,
    /// The location as a whole, for counts by route.
    pub route: Site,
    /// What finds the response of an error's status.
    pub(crate) special_response: Site,
    auto_redirect: bool,
    /// `profile`: boundaries are recorded.
    pub(crate) profile: bool,
    /// `profile_redact args`: records hold no arguments.
    pub(crate) redact_args: bool,
    /// The number of the rule that says which trees are retained.
    pub(crate) rule: u16,
    /// `limit_except`: the methods that are not limited (bits by `Method as u32`), and the plan of all others; `None`
    /// without it.
    pub limit_except: Option<(u32, Rc<Plan>)>,
    /// The plans of the blocks inside that inherit everything (`if`), in the order of the file.
    pub nested: Box<[Rc<Plan>]>,
    /// Beside the number of its type: to ask the values themselves is a call for each.
    kept: TypedValues,
}

impl Plan {
    /// The first value of type `T` that a module added with [`PlanBuilder::keep`]; `None` if no module did.
    pub fn kept<T: 'static>(&self) -> Option<&T> {
        self.all_kept().next()
    }

    /// All that modules left under this type, in order.
    pub fn all_kept<T: 'static>(&self) -> impl Iterator<Item = &T> {
        self.kept.all()
    }

    /// The handlers of `phase`, in order.
    #[inline]
    pub fn phase(&self, phase: Phase) -> &[HandlerEntry] {
        let at = phase as usize;
        &self.entries[self.first[at] as usize..self.first[at + 1] as usize]
    }

    /// The handlers from the phase `from` on and before `to`, in order.
    pub(crate) fn between(&self, from: Phase, to: Phase) -> &[HandlerEntry] {
        &self.entries[self.first[from as usize] as usize..self.first[to as usize] as usize]
    }

    /// Where the handlers of `phase` begin and end, for [`Plan::entry`].
    #[inline]
    pub(crate) fn range(&self, phase: Phase) -> (u16, u16) {
        let at = phase as usize;
        (self.first[at], self.first[at + 1])
    }

    /// No handler runs before `phase`.
    #[inline]
    pub(crate) fn is_empty_before(&self, phase: Phase) -> bool {
        self.first[phase as usize] == 0
    }

    /// After find-config nothing runs but the content phase's handlers.
    #[inline]
    pub(crate) fn is_only_content(&self) -> bool {
        self.content.is_none() && self.first[Phase::Rewrite as usize] == self.first[Phase::Content as usize]
    }

    /// One of the handlers of all phases.
    #[inline]
    pub(crate) fn entry(&self, at: u16) -> &HandlerEntry {
        &self.entries[at as usize]
    }

    /// `profile_redact`: what is exported of requests has no arguments.
    pub fn redacts_args(&self) -> bool {
        self.redact_args
    }

    /// See [`PlanBuilder::redirect_missing_slash`].
    pub(crate) fn auto_redirect(&self) -> bool {
        self.auto_redirect
    }
}

/// A block without a name of its own inside another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnnamedBlock {
    /// `if`, in a server or a location.
    If,
    /// `limit_except`
    LimitExcept,
}

/// Which kind of block a plan is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanLevel {
    /// A server block: its plan runs post-read and server-rewrite, and is the plan of requests without a location.
    Server,
    /// A location: its plan runs the phases from rewrite on.
    Location,
    /// `limit_except`, `if`: a location that inherits everything from the one it is in.
    Nested,
    /// `http`, for what runs without a request: no handler runs, only its settings count.
    Alone,
    /// A server of `stream`: its plan runs all phases of a session.
    Session,
}

/// An instruction of another module's that is among those of `rewrite`, as configured.
pub trait MakeInstruction: Send + Sync {
    /// What runs for a request, on one worker.
    fn install(&self, plan: &PlanBuilder<'_>) -> PlanInstruction;
}

/// What a [`MakeInstruction`] does for a request; [`Verdict::Declined`] goes on with the next instruction.
pub type PlanInstruction = Box<dyn Fn(&mut Exchange) -> Verdict>;

/// An instruction of another module among those of `rewrite`.
pub struct InsertedInstruction {
    /// Its place among them ([`ConfRegistry::order`](crate::conf::registry::ConfRegistry::order)).
    pub order: u32,
    /// Makes the instruction for a plan.
    pub instruction: Arc<dyn MakeInstruction>,
}

/// Collects what modules add to a plan.
pub struct PlanBuilder<'a> {
    /// The worker the plan is for.
    pub worker: &'a Rc<Worker>,
    /// The configuration it is part of, on that worker.
    pub link: &'a Rc<ConfigurationLink>,
    /// Which block the plan is for.
    pub level: PlanLevel,
    /// The core's settings of the location, resolved.
    pub core: &'a CoreSettings,
    /// Instructions that other modules want run among those of `rewrite`, in their order.
    pub instructed: &'a [InsertedInstruction],
    name: Rc<str>,
    pub(crate) place: Option<ConfSpan>,
    entries: Vec<HandlerEntry>,
    /// The content handlers that modules offer, each with its module.
    contents: Vec<OfferedContent>,
    /// The number of the module that installs now, from 1.
    pub(crate) rank: u16,
    header_filters: Vec<HeaderEntry>,
    auto_redirect: bool,
    profile: bool,
    redact_args: bool,
    rule: u16,
    /// See [`PlanBuilder::name_modules`].
    module_names: ModuleNames,
    kept: TypedValues,
}

impl<'a> PlanBuilder<'a> {
    pub(crate) fn new(
        worker: &'a Rc<Worker>,
        link: &'a Rc<ConfigurationLink>,
        level: PlanLevel,
        core: &'a CoreSettings,
        name: Rc<str>,
    ) -> Self {
        PlanBuilder {
            worker,
            link,
            level,
            core,
            instructed: &[],
            name,
            place: None,
            entries: Vec::new(),
            contents: Vec::new(),
            rank: 1,
            header_filters: Vec::new(),
            auto_redirect: false,
            profile: true,
            redact_args: true,
            rule: 0,
            module_names: ModuleNames::default(),
            kept: TypedValues::default(),
        }
    }

    /// Keeps `value` with the plan, for a caller that has the plan but not the handler: variables, blocks around this
    /// one. Of one type the first value counts.
    pub fn keep<T: 'static>(&mut self, value: T) {
        self.kept.push(Box::new(value));
    }

    /// Adds a handler to `phase`, after those of the modules listed before. `module` names it in traces.
    pub fn handler(&mut self, phase: Phase, module: &'static str, handler: impl Handler + 'static) {
        let site = self.site(SiteKind::Handler(phase as u8), module);
        self.entries.push(HandlerEntry { phase, site, rank: self.rank, handler: Box::new(handler) });
    }

    /// Adds a handler to `phase` before those of all modules so far.
    pub fn first_handler(&mut self, phase: Phase, module: &'static str, handler: impl Handler + 'static) {
        let site = self.site(SiteKind::Handler(phase as u8), module);
        self.entries.insert(0, HandlerEntry { phase, site, rank: 0, handler: Box::new(handler) });
    }

    /// Makes `handler` the location's only content handler. Where several modules ask for it the one wins whose directive
    /// is the last of the block ([`ConfRegistry::claim_content`](crate::conf::registry::ConfRegistry::claim_content)), as in
    /// nginx; without such a directive the last module.
    pub fn content(&mut self, module: &'static str, handler: impl Handler + 'static) {
        let site = self.site(SiteKind::Handler(Phase::Content as u8), module);
        let entry = HandlerEntry { phase: Phase::Content, site, rank: self.rank, handler: Box::new(handler) };
        self.contents.push(OfferedContent { module, entry });
    }

    /// Decides which content handler the block has. `claimed` is the module of the last such directive in the block.
    ///
    /// An `if` without one of its own goes on with that of the location `around`, by its own settings where the module
    /// hands them down ([`Module::nest`](crate::module::Module::nest)): nginx keeps the handler of the location when it
    /// enters the block. For the methods of a `limit_except` it looks for the handler again, and only modules that hand
    /// down where requests go are found.
    pub(crate) fn take_content(
        &mut self,
        claimed: Option<&'static str>,
        around: Option<(UnnamedBlock, &ContentHandler)>,
    ) -> Option<ContentHandler> {
        let inherited = around.map(|(_, content)| content.module);
        let place = |module: Option<&str>| self.contents.iter().position(|own| Some(own.module) == module);
        let at = match (place(claimed).or_else(|| place(inherited)), around) {
            (Some(at), _) => at,
            (None, Some((UnnamedBlock::If, content))) => return Some(content.clone()),
            (None, _) => self.contents.len().checked_sub(1)?,
        };
        let OfferedContent { module, entry } = self.contents.swap_remove(at);
        Some(ContentHandler { module, entry: Rc::new(entry) })
    }

    /// Adds a header filter at `slot`.
    pub fn header_filter(
        &mut self,
        slot: FilterSlot,
        module: &'static str,
        filter: impl HeaderFilter + 'static,
    ) {
        let site = self.site(SiteKind::HeaderFilter, module);
        let is_plain = filter.is_plain();
        self.header_filters.push(HeaderEntry { slot, site, is_plain, filter: Box::new(filter) });
    }

    /// A request for the location's path without its last slash is redirected to the location (proxying handlers).
    pub fn redirect_missing_slash(&mut self) {
        self.auto_redirect = true;
    }

    /// Whether boundaries of its requests are recorded.
    pub fn profile(&mut self, on: bool) {
        self.profile = on;
    }

    /// Whether records of its requests leave arguments out.
    pub(crate) fn redact_args(&mut self, on: bool) {
        self.redact_args = on;
    }

    /// Which trees of its requests are retained, instead of what holds for all.
    pub(crate) fn keep_traces(&mut self, rule: KeepRule) {
        self.rule = self.worker.present.add_rule(rule);
    }

    /// What people see handlers and filters as that are added from now on (`trace_name`).
    pub(crate) fn name_modules(&mut self, names: ModuleNames) {
        self.module_names = names;
    }

    /// A site of this location, for a body filter or anything else that a module accounts.
    pub fn site(&self, kind: SiteKind, module: &'static str) -> Site {
        let name = self.module_names.of(module).unwrap_or(module);
        SiteTable::global().intern_named(kind, &self.name, module, name)
    }

    /// The site of what finds the response of a status: the process's, unless the configuration calls it otherwise here.
    fn special_response(&self) -> Site {
        let step = ConnectionStep::SpecialResponse;
        match self.module_names.of(step.as_str()) {
            Some(_) => self.site(SiteKind::Connection(step), step.as_str()),
            None => Site::step(step),
        }
    }

    /// The location's name in traces.
    pub fn name(&self) -> &Rc<str> {
        &self.name
    }

    pub(crate) fn build(
        mut self,
        core: CoreSettings,
        content: Option<ContentHandler>,
        inside: NestedPlans,
    ) -> Plan {
        // Stable: within a phase or slot the order of the module list counts.
        self.entries.sort_by_key(|entry| entry.phase);
        self.header_filters.sort_by_key(|entry| entry.slot);
        let mut first = [0u16; 12];
        for phase in Phase::ALL {
            let end = self.entries.partition_point(|entry| entry.phase <= phase);
            first[phase as usize + 1] = end as u16;
        }
        Plan {
            route: SiteTable::global().intern(SiteKind::Request, &self.name, ""),
            special_response: self.special_response(),
            auto_redirect: self.auto_redirect,
            profile: self.profile,
            redact_args: self.redact_args,
            rule: self.rule,
            name: self.name,
            place: self.place,
            core,
            entries: self.entries.into(),
            first,
            content: content.map(|content| content.entry),
            has_fixed_filters: self.header_filters.iter().all(|entry| entry.filter.is_fixed()),
            header_filters: self.header_filters.into(),
            limit_except: inside.limit_except,
            nested: inside.nested.into(),
            kept: self.kept,
        }
    }
}

/// A content handler that a module offers for a block.
struct OfferedContent {
    module: &'static str,
    entry: HandlerEntry,
}

/// The content handler of a location, with its module.
#[derive(Clone)]
pub(crate) struct ContentHandler {
    module: &'static str,
    entry: Rc<HandlerEntry>,
}

/// The plans of a block's [`PlanLevel::Nested`] blocks.
#[derive(Default)]
pub(crate) struct NestedPlans {
    /// See [`Plan::limit_except`].
    pub(crate) limit_except: Option<(u32, Rc<Plan>)>,
    /// See [`Plan::nested`].
    pub(crate) nested: Vec<Rc<Plan>>,
}
