//! Weir as a C library, for programs in any language that can call C. `include/weir.h` is its documentation: who may call
//! what from which thread, and who frees what.
//!
//! The functions that C sees are in files called `*_calls.rs`. They turn pointers into references, check what can be checked
//! (NULL, lengths, state), and pass no panic on. What they call is safe Rust: a server ([`server`]), requests that any thread may
//! hold ([`request`]), and the side of them that runs on a worker ([`serving`]).
#![allow(clippy::missing_safety_doc, reason = "include/weir.h says what a caller must keep to")]

mod builder;
mod builder_calls;
mod code;
mod data;
mod queue;
mod request;
mod request_calls;
mod request_head;
mod response_calls;
mod server;
mod server_calls;
mod serving;
mod task;
mod task_calls;
mod text;
