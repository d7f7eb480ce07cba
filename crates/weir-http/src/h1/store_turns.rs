/// Which heads that differ from the stored one are stored in its place: the first, and while none comes again fewer and
/// fewer, so that a peer that never repeats itself costs a copy only now and then.
#[derive(Debug, Default)]
pub struct StoreTurns {
    /// So many heads are let pass before one is stored, ...
    passes: u8,
    /// ... and after that one so many.
    patience: u8,
}

impl StoreTurns {
    /// Whether the head at hand is to be stored.
    #[inline]
    pub fn stores(&mut self) -> bool {
        if self.passes > 0 {
            self.passes -= 1;
            return false;
        }
        self.patience = (2 * self.patience + 1).min(PATIENCE);
        self.passes = self.patience;
        true
    }

    /// The stored head came again: the next one that differs is stored.
    #[inline]
    pub fn recalled(&mut self) {
        *self = StoreTurns::default();
    }
}

/// Of heads that differ each time one in this many and one more is stored.
const PATIENCE: u8 = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_are_stored_until_one_comes_again() {
        let mut turns = StoreTurns::default();
        let stored: Vec<usize> = (0..60).filter(|_| turns.stores()).collect();
        assert_eq!(stored, [0, 2, 6, 14, 30, 46]);
        turns.recalled();
        assert!(turns.stores(), "one has come again");
    }
}
