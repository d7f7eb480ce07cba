//! The settings of the `*_by_lua*` and `lua_*` directives.

use std::path::PathBuf;
use std::sync::Arc;

use weir_conf::{LineCx, Result};
use weir_core::conf::registry::Registry;
use weir_core::variable::Script;
use weir_core::zone::{SharedZone, Zones};

use crate::chunk::{self, Code, Source};
use crate::phase::Phase;

/// Settings of the `http` block: those of a VM.
#[derive(Clone, Default)]
pub(crate) struct Main {
    pub(crate) package_path: Option<String>,
    pub(crate) package_cpath: Option<String>,
    pub(crate) init: Option<Source>,
    pub(crate) init_worker: Option<Source>,
    pub(crate) thread_cache: Option<usize>,
    pub(crate) dicts: Vec<Arc<SharedZone>>,
    /// Where relative names of files begin.
    pub(crate) prefix: PathBuf,
    /// How many workers there are.
    pub(crate) workers: usize,
    /// The number of the one that the VM is for.
    pub(crate) worker: Option<u8>,
}

impl Main {
    /// `lua_thread_cache_max_entries`
    pub(crate) fn spare_coroutines(&self) -> usize {
        self.thread_cache.unwrap_or(1024)
    }

    /// `init_by_lua` and the other scripts that need no request.
    pub(crate) fn has_scripts(&self) -> bool {
        self.init.is_some() || self.init_worker.is_some()
    }
}

/// The settings of one block.
#[derive(Default)]
pub struct LuaConf {
    pub(crate) main: Main,
    pub(crate) server_rewrite: Option<Source>,
    pub(crate) rewrite: Option<Source>,
    pub(crate) access: Option<Source>,
    pub(crate) precontent: Option<Source>,
    pub(crate) content: Option<Source>,
    pub(crate) header_filter: Option<Source>,
    pub(crate) body_filter: Option<Source>,
    pub(crate) log: Option<Source>,
    pub(crate) need_body: Option<bool>,
    pub(crate) use_default_type: Option<bool>,
}

impl LuaConf {
    /// The place of a phase's script.
    pub(crate) fn slot(&mut self, phase: Phase) -> &mut Option<Source> {
        match phase {
            Phase::Init => &mut self.main.init,
            Phase::InitWorker => &mut self.main.init_worker,
            Phase::ServerRewrite => &mut self.server_rewrite,
            Phase::Rewrite => &mut self.rewrite,
            Phase::Access => &mut self.access,
            Phase::Precontent => &mut self.precontent,
            Phase::HeaderFilter => &mut self.header_filter,
            Phase::BodyFilter => &mut self.body_filter,
            Phase::Log => &mut self.log,
            _ => &mut self.content,
        }
    }

    /// Whether the block has a script that runs for its requests.
    pub(crate) fn has_scripts(&self) -> bool {
        [
            &self.server_rewrite,
            &self.rewrite,
            &self.access,
            &self.precontent,
            &self.content,
            &self.header_filter,
            &self.body_filter,
            &self.log,
        ]
        .iter()
        .any(|source| source.is_some())
    }

    /// `x_by_lua_block { code }`
    pub(crate) fn block(&mut self, line: &mut LineCx<'_>, phase: Phase) -> Result {
        let text = line.raw().map(|raw| raw.text.clone()).unwrap_or_default();
        self.put(line, phase, Code::Inline(text))
    }

    /// `x_by_lua 'code'`
    pub(crate) fn inline(&mut self, line: &mut LineCx<'_>, phase: Phase) -> Result {
        let text = line.bytes(0).to_vec();
        self.put(line, phase, Code::Inline(text))
    }

    /// `x_by_lua_file path`
    pub(crate) fn file(&mut self, line: &mut LineCx<'_>, phase: Phase) -> Result {
        let path = Script::compile(line, 0)?;
        let prefix = line.paths().prefix.clone();
        self.put(line, phase, Code::File(path, prefix))
    }

    /// `lua_shared_dict name size`
    pub(crate) fn dict(&mut self, line: &mut LineCx<'_>) -> Result {
        let name = line.arg(0).to_owned();
        if name.is_empty() {
            return Err(line.fail_arg(0, "invalid lua shared dict name \"\""));
        }
        let size = weir_conf::parse_size(line.bytes(1))
            .filter(|size| *size > 8191)
            .ok_or_else(|| line.fail_arg(1, format!("invalid lua shared dict size \"{}\"", line.arg(1))))?;
        if self.main.dicts.iter().any(|zone| *zone.name == *name) {
            return Err(
                line.fail_arg(0, format!("lua_shared_dict \"{name}\" is already defined as \"{name}\""))
            );
        }
        let zone = line.ext::<Registry>().shared::<Zones>().named("lua_shared_dict", &name);
        let zone = zone.map_err(|message| line.fail_arg(0, message))?;
        zone.declare(size, "", ()).map_err(|message| line.fail_arg(0, message))?;
        self.main.dicts.push(zone);
        Ok(())
    }

    fn put(&mut self, line: &mut LineCx<'_>, phase: Phase, code: Code) -> Result {
        let place = line.source().place(line.line().name.span);
        let (file, at) =
            place.map_or((String::new(), 0), |place| (place.path.display().to_string(), place.line as usize));
        let source = Source { name: chunk::name(phase, &file, at), code };
        line.once(self.slot(phase), source)
    }
}
