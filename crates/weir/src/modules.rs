//! The modules of this build, in the order that counts: within a phase the first runs first.

use weir_core::ModuleDef;
use weir_core::conf::http_core::HttpCore;
use weir_core::conf::main_core::MainCore;
use weir_core::conf::server_core::ServerCore;
use weir_modules::{
    Access, AuthBasic, Autoindex, Headers, Index, LimitConn, LimitReq, Log, Map, NotModified, RandomIndex,
    Range, Realip, Rewrite, SplitClients, Static, TempFolders, TryFiles,
};

use crate::welcome::Welcome;

/// Every module. The core's own come first, since the others read what they set.
pub(crate) static MODULES: &[ModuleDef] = &[
    ModuleDef::of::<MainCore>(),
    ModuleDef::of::<HttpCore>(),
    ModuleDef::of::<ServerCore>(),
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
    ModuleDef::of::<Welcome>(),
    ModuleDef::of::<RandomIndex>(),
    ModuleDef::of::<Index>(),
    ModuleDef::of::<Autoindex>(),
    ModuleDef::of::<Static>(),
    ModuleDef::of::<NotModified>(),
    ModuleDef::of::<Headers>(),
    ModuleDef::of::<Range>(),
];
