//! WebSockets: what a seed draws of connections that change their protocol ([`plan`]), their heads and bytes ([`bytes`]).

pub mod bytes;
mod configuration;
pub mod plan;
