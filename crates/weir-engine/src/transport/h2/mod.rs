//! A request's end of an HTTP/2 connection: what its streams share ([`Mux`]), and a stream's own side ([`Stream`]).

mod encode;
pub mod mux;
mod pump;
mod stream;

pub use mux::Mux;
pub use stream::H2Stream;
