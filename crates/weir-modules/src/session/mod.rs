//! Modules of `stream` alone: what a session is passed to, and what it gets without a server. What it shares with requests (access,
//! limits, `map`, `set`, logs, upstreams) is where that is.

pub mod core;
pub mod pass;
pub mod proxy;
pub mod returned;
