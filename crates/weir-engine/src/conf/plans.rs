//! From the settings of a block to its plan, and to those of the blocks without a name inside it.

use std::rc::Rc;

use weir_conf::Error;

use super::http_core::HttpCoreConf;
use super::http2::Http2Conf;
use super::server_core::ServerCoreConf;
use crate::module::{ModuleConfs, ModuleDef, UnnamedBlock};
use crate::plan::{ContentHandler, NestedPlans, Plan, PlanBuilder, PlanLevel};
use crate::settings::location::CoreSettings;
use crate::worker::Worker;
use crate::worker::generation::ConfigurationLink;

/// Makes the plans of one server's blocks.
pub(super) struct PlanMaker<'m> {
    modules: &'m [&'static ModuleDef],
    worker: &'m Rc<Worker>,
    link: &'m Rc<ConfigurationLink>,
}

impl<'m> PlanMaker<'m> {
    /// For one server on `worker`.
    pub(super) fn new(worker: &'m Rc<Worker>, link: &'m Rc<ConfigurationLink>) -> Self {
        PlanMaker { modules: link.configuration.modules(), worker, link }
    }

    /// The plan of a server or location, and of the blocks without a name inside it.
    pub(super) fn block(
        &self,
        confs: &ModuleConfs,
        except: Option<&(u32, ModuleConfs)>,
        nested: &[ModuleConfs],
        level: PlanLevel,
        name: &str,
    ) -> Result<Rc<Plan>, Error> {
        let core = self.core(confs);
        let mut plan = self.installed(confs, &core, level, name)?;
        let content = plan.take_content(confs.get::<HttpCoreConf>().content, None);
        let inner = |confs, block| self.unnamed(confs, name, block, content.as_ref());
        let limit_except = match except {
            Some((methods, confs)) => Some((*methods, inner(confs, UnnamedBlock::LimitExcept)?)),
            None => None,
        };
        let nested = nested.iter().map(|confs| inner(confs, UnnamedBlock::If)).collect::<Result<_, _>>()?;
        Ok(Rc::new(plan.build(core.clone(), content, NestedPlans { limit_except, nested })))
    }

    fn unnamed(
        &self,
        confs: &ModuleConfs,
        name: &str,
        block: UnnamedBlock,
        around: Option<&ContentHandler>,
    ) -> Result<Rc<Plan>, Error> {
        let core = self.core(confs);
        let mut plan = self.installed(confs, &core, PlanLevel::Nested, name)?;
        let around = around.map(|content| (block, content));
        let content = plan.take_content(confs.get::<HttpCoreConf>().content, around);
        Ok(Rc::new(plan.build(core.clone(), content, NestedPlans::default())))
    }

    fn core(&self, confs: &ModuleConfs) -> CoreSettings {
        let mut core: CoreSettings = confs.get::<HttpCoreConf>().core();
        core.http2_chunk_size = confs.get::<Http2Conf>().chunk();
        core
    }

    fn installed<'c>(
        &'c self,
        confs: &'c ModuleConfs,
        core: &'c CoreSettings,
        level: PlanLevel,
        name: &str,
    ) -> Result<PlanBuilder<'c>, Error> {
        let mut plan = PlanBuilder::new(self.worker, self.link, level, core, Rc::from(name));
        plan.place = confs.get::<HttpCoreConf>().place.or(confs.get::<ServerCoreConf>().span);
        plan.instructed = &confs.get::<HttpCoreConf>().instructed;
        confs.install(self.modules, &mut plan)?;
        Ok(plan)
    }
}
