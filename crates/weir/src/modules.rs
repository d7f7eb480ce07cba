//! The modules of this build, in the order that counts: within a phase the first runs first.

use weir_core::ModuleDef;
use weir_core::conf::{CORE_MODULES, with_core};
use weir_core::upstream::UpstreamModule;
use weir_modules::{
    Access, AuthBasic, Autoindex, Headers, Index, LimitConn, LimitReq, Log, Map, NotModified, Proxy,
    RandomIndex, Range, Realip, Rewrite, SplitClients, Static, TempFolders, TryFiles,
};

use crate::welcome::Welcome;

/// Every module. The core's own come first, since the others read what they set.
pub static MODULES: &[ModuleDef] = &with_core::<{ CORE_MODULES.len() + OWN.len() }>(OWN);

/// The modules that are not the core's.
const OWN: &[ModuleDef] = &[
    ModuleDef::of::<UpstreamModule>(),
    ModuleDef::of::<TempFolders>(),
    ModuleDef::of::<Log>(),
    ModuleDef::of::<Realip>(),
    ModuleDef::of::<Map>(),
    ModuleDef::of::<SplitClients>(),
    ModuleDef::of::<Rewrite>(),
    ModuleDef::of::<LimitReq>(),
    ModuleDef::of::<LimitConn>(),
    ModuleDef::of::<Access>(),
    ModuleDef::of::<AuthBasic>(),
    ModuleDef::of::<TryFiles>(),
    ModuleDef::of::<Proxy>(),
    ModuleDef::of::<Welcome>(),
    ModuleDef::of::<RandomIndex>(),
    ModuleDef::of::<Index>(),
    ModuleDef::of::<Autoindex>(),
    ModuleDef::of::<Static>(),
    ModuleDef::of::<NotModified>(),
    ModuleDef::of::<Headers>(),
    ModuleDef::of::<Range>(),
];
