//! Sessions of `stream`: what a seed draws of those over TCP ([`plan`]), the bytes that they carry ([`bytes`]), what it draws of
//! datagrams ([`flows`]).

pub mod bytes;
mod configuration;
pub mod flows;
pub mod plan;
