//! Which server, location, status and fields are due: configurations that a seed draws, requests for them, and a naive reference
//! that interprets both. The reference is written from nginx's documentation and shares no line with Weir.

mod asks;
mod configuration;
mod draws;
mod pattern;
pub mod plan;
mod reference;
mod selection;
mod target;
#[cfg(test)]
mod tests;

pub use reference::DueResponse;
