//! HTTP/2 against the real server: by a client of its own, byte by byte, and by real ones.

mod attacks;
mod client;
mod counts;
mod go;
mod grpc;
mod hostile;
mod late;
mod lua;
mod peer;
mod real;
mod reload;
mod streams;
#[allow(dead_code, reason = "only certificates are needed here")]
#[path = "../support/tls.rs"]
mod tls;
mod upstream;
