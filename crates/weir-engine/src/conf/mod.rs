//! A configuration: its directives and modules, read once, and installed on each worker. What comes of it, as requests
//! go by it, is in [`plan`](crate::plan) and [`settings`](crate::settings).

pub mod absent;
pub mod build;
pub mod http2;
pub mod http3;
pub mod http_core;
mod install;
pub mod lint;
pub mod listen;
pub mod main_core;
pub mod mend;
pub mod module;
mod patterns;
mod plans;
pub(crate) mod profile;
pub mod registry;
mod scripts;
pub mod server_core;
pub mod temp_path;
#[doc(hidden)]
pub mod test;
mod title;

use crate::module::ModuleDef;

pub use crate::plan::blocks::{LocationConf, LocationMatcher, ServerConf};
pub use crate::worker::configuration::Configuration;
pub use http_core::HttpCore;
pub use main_core::MainCore;
use profile::Profile;
pub use server_core::ServerCore;

/// The modules that every configuration needs, the first of any list.
pub static CORE_MODULES: [ModuleDef; 6] = [
    ModuleDef::of::<MainCore>(),
    ModuleDef::of::<ServerCore>(),
    ModuleDef::of::<HttpCore>(),
    ModuleDef::of::<http2::Http2>(),
    ModuleDef::of::<http3::Http3>(),
    ModuleDef::of::<Profile>(),
];

/// The core's modules and `own` after them: the list of a build, with `N` entries.
///
/// # Panics
/// When `N` is not the number of both; in a constant, that is an error of the compiler.
pub const fn with_core<const N: usize>(own: &[ModuleDef]) -> [ModuleDef; N] {
    assert!(N == CORE_MODULES.len() + own.len());
    let mut all = [CORE_MODULES[0]; N];
    let mut at = 1;
    while at < N {
        all[at] = if at < CORE_MODULES.len() { CORE_MODULES[at] } else { own[at - CORE_MODULES.len()] };
        at += 1;
    }
    all
}
