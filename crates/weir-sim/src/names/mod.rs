//! Names and their servers: what a seed draws of them ([`plan`]), and messages of DNS ([`message`]).

pub mod message;
pub mod plan;
