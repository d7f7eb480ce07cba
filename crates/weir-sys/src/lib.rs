//! Safe wrappers around C libraries and process calls.
//!
//! One of the few homes of `unsafe` (STYLE rule 8): every wrapper here is a thin, safe face of calls that have no
//! safe one in `std`, with no logic of its own. `brotli` is the compressor, [`regex`] PCRE2, [`process`] signals and limits, [`socket`] the
//! socket options `std` lacks, [`bytes`] the vector instructions that parsers want, [`heap`] an
//! allocator that counts, [`probe`] the places for tracers from outside, [`perf`] such a tracer, [`switches`] the
//! kernel's records of when a thread runs, [`counters`] what it and the processor count of a thread, [`library`] the dynamic linker,
//! `lmdb` databases in files. [`json`] has no unsafe
//! call: it is here because all crates above may use it.
//!
//! Without its feature `regex` (on by default) the crate needs no C compiler, which is how `weir-http` uses it.

#[cfg(feature = "brotli")]
pub mod brotli;
pub mod bytes;
pub mod counters;
pub mod heap;
pub mod json;
pub mod library;
#[cfg(feature = "lmdb")]
pub mod lmdb;
pub mod perf;
pub mod probe;
pub mod process;
#[cfg(feature = "regex")]
pub mod regex;
pub mod socket;
pub mod switches;
