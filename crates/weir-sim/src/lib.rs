//! Simulations of a whole Weir: what a seed draws ([`plan`]), and what must hold when it is over ([`oracle`]).
//!
//! The program itself is simulated, unchanged: `weir-world`, a library that is loaded before the C library, gives it a
//! clock, an order of its threads, sockets, clients and upstream servers, all of which follow from the seed.
//! docs/explanation/simulation.md says how it works, how a seed is played again and how an oracle is written.
#![forbid(unsafe_code)]

pub mod cached;
mod configuration;
pub mod crash;
pub mod cut;
pub mod downtime;
pub mod draw;
mod due;
mod file_oracle;
pub mod files;
mod flow_oracle;
pub mod framed;
mod framed_oracle;
pub mod health;
mod health_oracle;
pub mod http2;
mod http2_oracle;
mod limit_oracle;
mod limited;
pub mod limits;
pub mod oracle;
mod outcome;
pub mod plan;
mod request;
pub mod routing;
mod routing_oracle;
mod session_oracle;
pub mod sessions;
mod time_oracle;
pub mod tls;
mod tunnel_oracle;
pub mod tunnels;
pub mod upstream_tls;
mod upstream_tls_oracle;
pub mod wire;
