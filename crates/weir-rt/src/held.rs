//! Memory by what it is held for: counted from lengths and capacities when it is asked for, by nothing before.

use std::ops::AddAssign;

/// Things of one kind, and the bytes that they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldMemory {
    /// How many there are.
    pub things: u64,
    /// Bytes of memory, what they own among it.
    pub bytes: u64,
}

impl HeldMemory {
    /// `things` that take `bytes`.
    pub const fn new(things: usize, bytes: usize) -> HeldMemory {
        HeldMemory { things: things as u64, bytes: bytes as u64 }
    }
}

impl AddAssign for HeldMemory {
    fn add_assign(&mut self, other: HeldMemory) {
        self.things += other.things;
        self.bytes += other.bytes;
    }
}
