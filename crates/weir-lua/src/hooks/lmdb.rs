//! The directives of lua-resty-lmdb's module for nginx.

use weir_conf::names::{MAIN, ONE};
use weir_conf::{Directive, Result};
use weir_engine::Module;
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::conf::temp_path::TempPaths;
use weir_engine::plan::PlanBuilder;

use crate::api::lmdb::LmdbSettings;

/// The module `lmdb`.
pub struct Lmdb;

type LmdbRow = Directive<LmdbConf>;

impl Module for Lmdb {
    const NAME: &'static str = "lmdb";
    type Conf = LmdbConf;
    const DIRECTIVES: &'static [LmdbRow] = &[
        LmdbRow::new("lmdb_environment_path", MAIN, ONE, |conf, line| line.path(&mut conf.path))
            .syntax("lmdb_environment_path path")
            .doc(
                "Directory of the LMDB databases that scripts use with lua-resty-lmdb, which fail without it. It is \
                 created, and all workers share it.",
            )
            .example("lmdb_environment_path dbless.lmdb;\nlmdb_map_size 2048m;"),
        LmdbRow::new("lmdb_max_databases", MAIN, ONE, |conf, line| line.size(&mut conf.databases))
            .syntax("lmdb_max_databases number")
            .default("1")
            .doc("Maximum number of named LMDB databases."),
        LmdbRow::new("lmdb_map_size", MAIN, ONE, |conf, line| line.size(&mut conf.map_size))
            .syntax("lmdb_map_size size")
            .default("1m")
            .doc("Size of the memory map of the LMDB databases, which they can't outgrow."),
        LmdbRow::new("lmdb_validation_tag", MAIN, ONE, |conf, line| line.text(&mut conf.tag))
            .syntax("lmdb_validation_tag value")
            .doc("Text that is stored with the LMDB databases; where another one is found at the start, they are emptied."),
    ];

    fn inherit(_conf: &mut LmdbConf, _parent: &LmdbConf) {}

    fn resolve(conf: &mut LmdbConf, registry: &mut ConfRegistry) -> Result {
        // Blocks inside say nothing of it.
        let Some(path) = &conf.path else { return Ok(()) };
        registry.shared::<TempPaths>().add(&std::sync::Arc::new(path.clone()));
        let settings = registry.shared::<LmdbSettings>();
        settings.path = Some(path.clone());
        (settings.databases, settings.map_size, settings.tag) =
            (conf.databases, conf.map_size, conf.tag.clone());
        Ok(())
    }

    fn install(_conf: &LmdbConf, _plan: &mut PlanBuilder<'_>) {}
}

/// The settings outside of blocks.
#[derive(Default)]
pub struct LmdbConf {
    path: Option<std::path::PathBuf>,
    databases: Option<u64>,
    map_size: Option<u64>,
    tag: Option<String>,
}
