//! Bounded fuzz run of every parser.
fn main() {}
