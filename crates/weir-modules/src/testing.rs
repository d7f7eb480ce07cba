//! What the modules' own tests share.

use weir_core::conf::{HttpCore, MainCore, ServerCore};
use weir_core::{Module, ModuleDef};

/// The core's modules, and the one that is tested.
pub(crate) const fn core_and<M: Module>() -> [ModuleDef; 4] {
    [
        ModuleDef::of::<MainCore>(),
        ModuleDef::of::<HttpCore>(),
        ModuleDef::of::<ServerCore>(),
        ModuleDef::of::<M>(),
    ]
}
