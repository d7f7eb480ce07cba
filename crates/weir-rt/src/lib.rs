//! (being written)

pub mod blocking;
pub mod clock;
pub mod file;
mod inbox;
pub mod net;
pub mod process;
pub mod signal;
mod timer;
