//! The configuration that a child has from its master: the one that the master has built. Of a large one that is served
//! the master keeps only the settings outside of blocks; a later child builds it again from the same texts, contents of
//! files and addresses of names, whatever has become of those since.

use std::sync::Arc;

use weir_engine::Configuration;
use weir_engine::log::{self, HeldLogs};
use weir_engine::privileged;

use crate::bundle::ReadFiles;
use crate::load::ConfLocation;
use crate::run::failed;

/// See the module.
pub(crate) enum InheritedConf {
    /// As it was built.
    Whole(Arc<Configuration>),
    /// What it is built from, and the logs that are open for it.
    Texts(Box<ReadFiles>, HeldLogs),
}

impl InheritedConf {
    /// The configuration. Logs that the master has open are those, also where their paths lead elsewhere by now: a server
    /// that is started again must not depend on what has become of a directory.
    ///
    /// # Errors
    /// What keeps it from being built, as the same texts were before: want of descriptors or memory, a device for keys that
    /// is not there. The child ends with [`UNBUILT`], and the next one tries again.
    pub(crate) fn built(self, paths: &ConfLocation) -> Result<Arc<Configuration>, Vec<String>> {
        let (mut record, held) = match self {
            InheritedConf::Whole(configuration) => return Ok(configuration),
            InheritedConf::Texts(record, held) => (record, held),
        };
        let found = privileged::give(std::mem::take(&mut record.findings));
        let logs = log::opened().map_err(failed("fcntl(F_DUPFD_CLOEXEC) failed"));
        let built = logs.and_then(|logs| {
            let given = log::give(logs);
            let built = paths.load(&*record);
            drop(given);
            built
        });
        drop((found, held));
        // The master has logged the warnings.
        built.map(|(configuration, _)| Arc::new(configuration)).map_err(|mut errors| {
            errors
                .push("the configuration in force can't be built again, another process will try".to_owned());
            errors
        })
    }
}

/// Exit status of a child that could not build what its master has built before: unlike [`FATAL`](crate::server::FATAL) it
/// says nothing of the next one.
pub(crate) const UNBUILT: i32 = 3;
