//! HTTP/2 against the real server: by a client of its own, byte by byte, and by real ones.

mod attacks;
pub(crate) mod client;
mod counts;
mod cut;
mod files;
mod go;
mod grpc;
mod hostile;
mod late;
mod lua;
mod order;
mod peer;
mod real;
mod reload;
mod slow;
mod streams;
use crate::support::tls;
mod upstream;
