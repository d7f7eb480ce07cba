//! Weir, the program.
fn main() {}
