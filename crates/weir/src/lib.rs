//! Weir as a library: the modules of this build, and servers inside of other programs.
#![forbid(unsafe_code)]

pub mod modules;
pub mod show;
mod welcome;
