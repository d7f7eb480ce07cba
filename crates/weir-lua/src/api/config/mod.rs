//! `ngx.config`

use crate::run::function::{ApiFunction, CallDone, function};
use crate::run::lend;

pub(crate) const TABLE: &[ApiFunction] = &[
    function("config._debug", 0, |l| {
        l.push_boolean(weir_engine::log::main_limit() == weir_engine::log::LogLevel::Debug);
        Ok(CallDone::Results(1))
    }),
    function("config.nginx_configure", 0, |l| {
        l.push_bytes(weir_engine::configure_arguments::text().as_bytes());
        Ok(CallDone::Results(1))
    }),
    function("config.prefix", 0, |l| {
        let prefix = lend::vm(|vm| vm.main_conf.prefix.display().to_string());
        let slash = if prefix.ends_with('/') { "" } else { "/" };
        l.push_bytes(format!("{prefix}{slash}").as_bytes());
        Ok(CallDone::Results(1))
    }),
];
