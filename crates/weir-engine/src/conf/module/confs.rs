//! Settling the settings of all modules in one block ([`ModuleConfs`]), and installing them.

use std::any::Any;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use weir_conf::{Contexts, Error};

use super::{ModuleDef, UnnamedBlock};
use crate::conf::registry::ConfRegistry;
use crate::plan::PlanBuilder;
use crate::plan::module_confs::{ModuleConf, ModuleConfs, UnwrittenConfs};
use crate::typed_values::TypedValues;
use crate::worker::Worker;
use crate::worker::generation::ConfigurationLink;

/// What a block is to the one around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKin {
    /// A block with a name of its own.
    Inner,
    /// One without.
    Nested(UnnamedBlock),
}

impl BlockKin {
    /// Where its settings are among those of [`UnwrittenConfs::inside`].
    fn place(self) -> usize {
        match self {
            BlockKin::Inner => 0,
            BlockKin::Nested(UnnamedBlock::If) => 1,
            BlockKin::Nested(UnnamedBlock::LimitExcept) => 2,
        }
    }
}

/// Settles the blocks of one kind inside a block.
pub(crate) struct BlockHeirs<'p> {
    parent: &'p ModuleConfs,
    base: Arc<UnwrittenConfs>,
    kin: BlockKin,
    /// What blocks that say nothing of a module take from what their parent says itself.
    taken: Vec<(u16, ModuleConf)>,
    /// The modules, in order, of which the parent says nothing itself and no block here needed the settings yet.
    unmade: Vec<u16>,
}

/// What settling needs.
pub(crate) struct ConfSettling<'s> {
    pub(crate) modules: &'s [&'static ModuleDef],
    pub(crate) registry: &'s mut ConfRegistry,
    pub(crate) errors: &'s mut Vec<Error>,
}

impl ModuleConfs {
    /// Settings of a block of which nothing was read yet, beside others from `first`.
    pub(crate) fn like(first: &ModuleConfs) -> ModuleConfs {
        ModuleConfs { own: Vec::new(), base: first.base.clone() }
    }

    /// The first block's.
    pub(crate) fn new(modules: &[&ModuleDef]) -> ModuleConfs {
        let default = |module: &&ModuleDef| OnceLock::from(ModuleConf::from((module.new)()));
        let confs = modules.iter().map(default).collect();
        ModuleConfs { own: Vec::new(), base: Arc::new(UnwrittenConfs { confs, inside: Default::default() }) }
    }

    /// The settings of type `C`, to change them before the block is settled.
    pub(crate) fn get_mut<C: Default + Send + Sync + 'static>(&mut self) -> &mut C {
        self.find_mut().expect("the module is in the list")
    }

    /// As [`ModuleConfs::get_mut`], of a module that need not be in the list.
    pub(crate) fn find_mut<C: Default + Send + Sync + 'static>(&mut self) -> Option<&mut C> {
        let is = |conf: &OnceLock<ModuleConf>| conf.get().is_some_and(|conf| conf.is::<C>());
        let at = self.base.confs.iter().position(is)?;
        self.own_mut(at, || Arc::new(C::default())).downcast_mut()
    }

    /// The settings of the module at `at` of the list, to change them before the block is settled.
    pub(crate) fn of_mut(&mut self, at: usize, module: &ModuleDef) -> &mut dyn Any {
        self.own_mut(at, || ModuleConf::from((module.new)()))
    }

    fn own_mut(&mut self, at: usize, new: impl FnOnce() -> ModuleConf) -> &mut dyn Any {
        let place = match self.own.binary_search_by_key(&at, |(own, _)| usize::from(*own)) {
            Ok(place) => place,
            Err(place) => {
                self.own.insert(place, (number(at), new()));
                place
            }
        };
        Arc::get_mut(&mut self.own[place].1).expect("nobody else has it before the block is settled")
    }

    /// The settings of the module at `at` of the list, of a settled block.
    fn of(&self, at: usize) -> &dyn Any {
        match self.own.binary_search_by_key(&at, |(own, _)| usize::from(*own)) {
            Ok(place) => &*self.own[place].1,
            Err(_) => &**self.base.confs[at].get().expect("the block is settled"),
        }
    }

    /// The settings of each module, in the order of the list.
    fn all(&self) -> impl Iterator<Item = &(dyn Any + Send + Sync)> {
        let mut own = self.own.iter().peekable();
        self.base.confs.iter().enumerate().map(move |(at, conf)| {
            match own.next_if(|(own, _)| usize::from(*own) == at) {
                Some((_, own)) => &**own,
                None => &**conf.get().expect("the block is settled"),
            }
        })
    }

    /// Settles the block outside of all: only modules that have directives there have settings in it, and the others must
    /// not open files for an `http` block that may not exist.
    pub(crate) fn settle_main(&mut self, cx: &mut ConfSettling<'_>) {
        let outside = Contexts::MAIN.or(Contexts::EVENTS);
        for (at, module) in cx.modules.iter().enumerate() {
            if module.directives().iter().any(|row| outside.allows(row.contexts)) {
                cx.resolve(module, self.of_mut(at, module));
            }
        }
    }

    /// All settings become such as blocks inside have in common, whether the block says something of them or not: of a
    /// settled block with very many others in it.
    pub(crate) fn share(&mut self) {
        let confs = self.base.confs.iter().cloned();
        let mut confs: Box<[_]> = confs.collect();
        for (at, conf) in self.own.drain(..) {
            confs[usize::from(at)] = OnceLock::from(conf);
        }
        self.base = Arc::new(UnwrittenConfs { confs, inside: Default::default() });
    }

    /// Makes what modules need to be installed in the block.
    pub(crate) fn prepare(
        &self,
        modules: &[&ModuleDef],
        link: &Rc<ConfigurationLink>,
        worker: &Rc<Worker>,
    ) -> Result<(), Error> {
        for (at, module) in modules.iter().enumerate() {
            if let Some(prepare) = module.hooks.prepare {
                prepare(self.of(at), link, worker)?;
            }
        }
        Ok(())
    }

    pub(crate) fn install(&self, modules: &[&ModuleDef], plan: &mut PlanBuilder<'_>) -> Result<(), Error> {
        self.prepare(modules, plan.link, plan.worker)?;
        for (at, (module, conf)) in modules.iter().zip(self.all()).enumerate() {
            plan.rank = number(at + 1);
            (module.install)(conf, plan);
        }
        Ok(())
    }
}

impl ModuleConfs {
    /// As [`ModuleConfs::install`], for what runs without a request.
    pub(crate) fn install_alone(
        &self,
        modules: &[&ModuleDef],
        plan: &mut PlanBuilder<'_>,
    ) -> Result<(), Error> {
        self.prepare(modules, plan.link, plan.worker)?;
        let alone = modules.iter().zip(self.all()).filter(|(module, _)| module.alone);
        for (module, conf) in alone {
            (module.install)(conf, plan);
        }
        Ok(())
    }
}

impl ModuleConfs {
    /// What modules keep with the server whose block this is.
    pub(crate) fn server_parts(&self, modules: &[&ModuleDef]) -> TypedValues {
        let mut parts = TypedValues::default();
        for (module, conf) in modules.iter().zip(self.all()) {
            if let Some(make) = module.hooks.server_part {
                parts.push(make(conf));
            }
        }
        parts
    }
}

impl<'p> BlockHeirs<'p> {
    /// For the blocks inside a settled one.
    pub(crate) fn of(parent: &'p ModuleConfs, kin: BlockKin) -> BlockHeirs<'p> {
        let base = parent.base.inside[kin.place()].get_or_init(|| {
            let confs = parent.base.confs.iter().map(|_| OnceLock::new()).collect();
            Arc::new(UnwrittenConfs { confs, inside: Default::default() })
        });
        let is_unmade = |at: &u16| {
            base.confs[usize::from(*at)].get().is_none()
                && parent.own.binary_search_by_key(at, |(own, _)| *own).is_err()
        };
        let unmade = (0..number(base.confs.len())).filter(is_unmade).collect();
        BlockHeirs { parent, base: base.clone(), kin, taken: Vec::new(), unmade }
    }

    /// Gives `confs` what they inherit and checks them.
    pub(crate) fn settle(&mut self, confs: &mut ModuleConfs, cx: &mut ConfSettling<'_>) {
        let mut unmade = std::mem::take(&mut self.unmade);
        let mut made = unmade.iter().copied().peekable();
        let mut read = std::mem::take(&mut confs.own).into_iter().peekable();
        let mut around = self.parent.own.iter().peekable();
        confs.own.reserve_exact(read.len() + around.len());
        // Modules in their order, without those of which all is known: of a hundred that is all but three.
        loop {
            let first =
                [read.peek().map(|(at, _)| *at), around.peek().map(|(at, _)| *at), made.peek().copied()];
            let Some(place) = first.into_iter().flatten().min() else { break };
            let (at, module) = (usize::from(place), cx.modules[usize::from(place)]);
            made.next_if_eq(&place);
            let own = read.next_if(|(own, _)| *own == place);
            let parent = around.next_if(|(own, _)| *own == place);
            match (own, parent) {
                (Some((_, mut conf)), _) => {
                    let from = match parent {
                        Some((_, parent)) => parent,
                        None => self.parent.base.confs[at].get().expect("the parent is settled"),
                    };
                    let new =
                        Arc::get_mut(&mut conf).expect("nobody else has it before the block is settled");
                    self.inherit(new, &**from, module, cx);
                    confs.own.push((place, conf));
                }
                (None, Some((_, parent))) => {
                    let conf = self.take(at, parent, module, cx);
                    confs.own.push((place, conf));
                }
                (None, None) => {
                    self.base.confs[at].get_or_init(|| {
                        let from = self.parent.base.confs[at].get().expect("the parent is settled");
                        self.heir(&**from, module, cx)
                    });
                }
            }
        }
        unmade.retain(|at| self.base.confs[usize::from(*at)].get().is_none());
        self.unmade = unmade;
        confs.own.shrink_to_fit();
        confs.base = self.base.clone();
    }

    /// What a block that says nothing has of what `parent` says.
    fn take(
        &mut self,
        at: usize,
        parent: &ModuleConf,
        module: &ModuleDef,
        cx: &mut ConfSettling<'_>,
    ) -> ModuleConf {
        if let Some((_, conf)) = self.taken.iter().find(|(taken, _)| usize::from(*taken) == at) {
            return conf.clone();
        }
        let conf = self.heir(&**parent, module, cx);
        self.taken.push((number(at), conf.clone()));
        conf
    }

    fn heir(&self, parent: &dyn Any, module: &ModuleDef, cx: &mut ConfSettling<'_>) -> ModuleConf {
        let mut conf = (module.new)();
        self.inherit(&mut *conf, parent, module, cx);
        ModuleConf::from(conf)
    }

    fn inherit(&self, conf: &mut dyn Any, parent: &dyn Any, module: &ModuleDef, cx: &mut ConfSettling<'_>) {
        if let BlockKin::Nested(block) = self.kin {
            (module.nest)(conf, parent, block);
        }
        (module.inherit)(conf, parent);
        cx.resolve(module, conf);
    }
}

impl ConfSettling<'_> {
    fn resolve(&mut self, module: &ModuleDef, conf: &mut dyn Any) {
        // What is wrong with an inherited value is so in each block that inherits it, and is said once.
        if let Err(error) = (module.resolve)(conf, self.registry)
            && !self.errors.contains(&error)
        {
            self.errors.push(error);
        }
    }
}

fn number(at: usize) -> u16 {
    u16::try_from(at).expect("a program has some hundred modules")
}

#[cfg(test)]
mod tests {
    use crate::conf::http_core::HttpCoreConf;
    use crate::conf::http2::Http2Conf;
    use crate::conf::test::load;
    use crate::conf::{CORE_MODULES, Configuration};

    fn conf(http: &str) -> Configuration {
        load(&format!("events {{ }} http {{ {http} }}"), &CORE_MODULES).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn what_servers_do_not_say_is_there_once() {
        let conf = conf(
            "http2_max_concurrent_streams 7; server { listen 81; } server { listen 82; location / { } }
             server { listen 83; http2_max_concurrent_streams 9; location / { } location /b { } }",
        );
        let http2 = |index: usize| conf.servers()[index].confs.get::<Http2Conf>();
        let streams = |index: usize| http2(index).settings().max_concurrent_streams;
        assert_eq!([streams(0), streams(1), streams(2)], [7, 7, 9]);
        assert!(std::ptr::eq(http2(0), http2(1)));
        let [a, b] = [0, 1].map(|at: usize| conf.servers()[2].locations[at].confs.get::<Http2Conf>());
        assert!(std::ptr::eq(a, b) && a.settings().max_concurrent_streams == 9);
        assert_eq!(
            conf.servers()[1].locations[0].confs.get::<Http2Conf>().settings().max_concurrent_streams,
            7
        );
        assert_eq!(conf.servers()[0].confs.own.len(), 1, "what listens");
    }

    /// Which settings are made once follows from what the blocks before said: whatever that was, each block has what it
    /// would have alone.
    #[test]
    fn blocks_beside_each_other_have_what_each_has_alone() {
        const LINES: [&str; 3] = ["send_timeout 3s;", "root /srv;", "http2_chunk_size 9k;"];
        let around = "send_timeout 2s; http2_chunk_size 7k;";
        let block = |written: usize| -> String {
            LINES.iter().enumerate().filter(|(at, _)| written >> at & 1 == 1).map(|(_, line)| *line).collect()
        };
        let said = |confs: &super::ModuleConfs| {
            let (core, http2) = (confs.get::<HttpCoreConf>(), confs.get::<Http2Conf>());
            let root = core.root.as_ref().and_then(|root| root.path.constant().map(<[u8]>::to_vec));
            (core.send_timeout, root, http2.chunk())
        };
        let alone: Vec<_> = (0..8)
            .map(|written| {
                let conf = conf(&format!("{around} server {{ location / {{ {} }} }}", block(written)));
                said(&conf.servers()[0].locations[0].confs)
            })
            .collect();
        for first in 0..8 {
            let order: Vec<usize> = (0..8).map(|at| (first + at * 5) % 8).collect();
            let locations: String = order
                .iter()
                .map(|written| format!("location /{written} {{ {} }} ", block(*written)))
                .collect();
            let conf = conf(&format!("{around} server {{ {locations} }}"));
            for (written, location) in order.iter().zip(&conf.servers()[0].locations) {
                assert_eq!(said(&location.confs), alone[*written], "{written} after {first}");
            }
        }
    }

    #[test]
    fn inheritance_goes_through_blocks_that_say_nothing() {
        let conf = conf(
            "send_timeout 1s; server { listen 81; send_timeout 2s; location / { location /a { limit_except GET { } } } }
             server { listen 82; location / { location /a { send_timeout 3s; location /a/b { } } } }",
        );
        let timeout = |confs: &super::ModuleConfs| confs.get::<HttpCoreConf>().send_timeout;
        let inner = |index: usize| &conf.servers()[index].locations[0].locations[0];
        let (_, except) = inner(0).limit_except.as_ref().expect("it has one");
        assert_eq!([timeout(&inner(0).confs), timeout(except)], [Some(2000); 2]);
        assert_eq!(timeout(&conf.servers()[1].locations[0].confs), Some(1000));
        assert_eq!(timeout(&inner(1).locations[0].confs), Some(3000));
    }
}
