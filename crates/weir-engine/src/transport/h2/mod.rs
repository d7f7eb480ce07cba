//! A request's end of an HTTP/2 connection: what its streams share ([`H2Mux`]), and a stream's own side ([`H2Stream`]).

mod deadlines;
mod encode;
mod file;
mod held;
mod ledger;
mod line;
pub mod mux;
mod pump;
mod slot;
mod stream;
mod upload;

pub use mux::H2Mux;
pub use stream::H2Stream;
