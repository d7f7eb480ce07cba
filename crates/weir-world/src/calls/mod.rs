//! The C library's functions that are the simulation's. Each takes and returns what its manual page says.

mod clock;
mod datagrams;
mod files;
mod machine;
mod sockets;
mod tasks;
mod waits;
