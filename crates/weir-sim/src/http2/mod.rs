//! HTTP/2: what a seed draws of clients ([`plan`]) and of servers ([`server_plan`]), what they do and what they must never see
//! ([`client`], [`server`]).
//!
//! Frames and header blocks are read and written by the letter of RFC 9113 and RFC 7541, on purpose with none of Weir's code.

mod asked;
pub mod client;
pub mod frame;
pub mod hpack;
mod huffman;
mod inbound;
pub mod plan;
pub mod server;
pub mod server_plan;
#[cfg(test)]
mod server_tests;
mod stream;
