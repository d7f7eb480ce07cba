//! Frames as bytes against what the RFC has said to them, and pairs of connections under faults.

mod clients;
mod frames;
mod order;
mod pair;
