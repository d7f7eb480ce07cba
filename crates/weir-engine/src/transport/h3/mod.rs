//! A request's end of an HTTP/3 connection: what its streams share ([`H3Mux`]), and a stream's own side ([`H3Stream`]).
//!
//! QUIC itself is the server's: what streams have to send is handed to a [`StreamSink`], what came is given to
//! [`H3Mux::receive`].

mod mux;
mod open;
mod pump;
mod slot;
mod stream;

pub use mux::{H3Mux, H3Pause};
pub use open::QuicEntry;
pub use pump::{SinkOutcome, StreamSink};
pub use stream::H3Stream;
