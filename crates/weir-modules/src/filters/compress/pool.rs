//! Compressors that are used again: each has some hundred KB of tables, which a worker makes once.

use std::cell::RefCell;
use std::thread::LocalKey;

/// What a worker keeps for the next response.
pub(crate) trait Reused: Sized + 'static {
    /// The settings it was made with, which can't be changed.
    type Key: Copy + PartialEq;

    /// Makes one.
    fn new(key: Self::Key) -> Self;

    /// What it was made with.
    fn key(&self) -> Self::Key;

    /// Whether [`Reused::reset`] may be called; if not it is dropped.
    fn is_reusable(&self) -> bool;

    /// As fresh from [`Reused::new`].
    fn reset(&mut self);

    /// Where this thread keeps them.
    fn shelf() -> &'static LocalKey<Shelf<Self>>;
}

/// Those that are free, the last used at the end.
pub(crate) type Shelf<T> = RefCell<Vec<T>>;

/// One in use; it goes back to its shelf when dropped.
pub(crate) struct Lent<T: Reused>(Option<T>);

impl<T: Reused> Lent<T> {
    /// One of these settings, used before if there is such a one.
    pub(crate) fn take(key: T::Key) -> Lent<T> {
        let free = T::shelf().with_borrow_mut(|shelf| {
            let at = shelf.iter().rposition(|free| free.key() == key)?;
            Some(shelf.remove(at))
        });
        let used = free.map(|mut used| {
            used.reset();
            used
        });
        Lent(Some(used.unwrap_or_else(|| T::new(key))))
    }
}

impl<T: Reused> std::ops::Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("taken by drop alone")
    }
}

impl<T: Reused> std::ops::DerefMut for Lent<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("taken by drop alone")
    }
}

impl<T: Reused> Drop for Lent<T> {
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

/// So many of a kind are kept by a worker: a megabyte of gzip's, some of zstd's at its usual levels.
const MOST: usize = 4;
