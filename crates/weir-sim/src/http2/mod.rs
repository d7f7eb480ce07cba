//! Clients of HTTP/2: what a seed draws of them ([`plan`]), what they do and what they must never see
//! ([`client`]).
//!
//! Frames and header blocks are read and written by the letter of RFC 9113 and RFC 7541, on purpose with none of Weir's code.

pub mod client;
pub mod frame;
pub mod hpack;
mod huffman;
mod inbound;
pub mod plan;
mod stream;
