//! Compressors that are used again: each has some hundred KB of tables, which a worker makes once.

use std::cell::RefCell;
use std::thread::LocalKey;

/// What a worker keeps for the next response.
pub(crate) trait ReusedState: Sized + 'static {
    /// The settings it was made with, which can't be changed.
    type Key: Copy + PartialEq;

    /// Makes one.
    fn new(key: Self::Key) -> Self;

    /// What it was made with.
    fn key(&self) -> Self::Key;

    /// Whether [`ReusedState::reset`] may be called; if not it is dropped.
    fn is_reusable(&self) -> bool;

    /// As fresh from [`ReusedState::new`].
    fn reset(&mut self);

    /// Where this thread keeps them.
    fn shelf() -> &'static LocalKey<FreeShelf<Self>>;
}

/// Those that are free, the last used at the end.
pub(crate) type FreeShelf<T> = RefCell<Vec<T>>;

/// One in use; it goes back to its shelf when dropped.
pub(crate) struct LentState<T: ReusedState>(Option<T>);

impl<T: ReusedState> LentState<T> {
    /// One of these settings, used before if there is such a one.
    pub(crate) fn take(key: T::Key) -> LentState<T> {
        let free = T::shelf().with_borrow_mut(|shelf| {
            let at = shelf.iter().rposition(|free| free.key() == key)?;
            Some(shelf.remove(at))
        });
        let used = free.map(|mut used| {
            used.reset();
            used
        });
        LentState(Some(used.unwrap_or_else(|| T::new(key))))
    }
}

impl<T: ReusedState> std::ops::Deref for LentState<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("taken by drop alone")
    }
}

impl<T: ReusedState> std::ops::DerefMut for LentState<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("taken by drop alone")
    }
}

impl<T: ReusedState> Drop for LentState<T> {
    fn drop(&mut self) {
        let Some(used) = self.0.take().filter(T::is_reusable) else { return };
        // A thread that ends has no shelf any more.
        let _ = T::shelf().try_with(|shelf| {
            let mut shelf = shelf.borrow_mut();
            if shelf.len() == MOST {
                shelf.remove(0);
            }
            shelf.push(used);
        });
    }
}

/// A worker keeps this many of a kind for reuse: a megabyte of gzip's, some of zstd's at its usual levels.
const MOST: usize = 4;
