//! Content codings, end to end: which responses are compressed, against nginx on the same configuration, and what
//! becomes of long bodies, slow clients and broken data.

mod dense;
mod laborious;
mod memory;
mod packed;
mod rules;
mod sides;
mod streams;
