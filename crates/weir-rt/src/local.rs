//! Interior mutability of a single thread's state, without the reference counting of `RefCell`.

use std::cell::UnsafeCell;

/// A value reached only through short windows that never nest.
///
/// Contract of every caller in this crate: the closure given to [`LoopLocal::with`] runs no foreign code (no future is
/// polled or dropped, no waker cloned, woken or dropped, no closure of a user called) and does not come back to the
/// same `LoopLocal`. Debug builds check it; release builds, where a window is opened some thirty times per request, do
/// not pay for the check.
pub(crate) struct LoopLocal<T> {
    value: UnsafeCell<T>,
    #[cfg(debug_assertions)]
    open: std::cell::Cell<bool>,
}

impl<T> LoopLocal<T> {
    pub(crate) const fn new(value: T) -> LoopLocal<T> {
        LoopLocal {
            value: UnsafeCell::new(value),
            #[cfg(debug_assertions)]
            open: std::cell::Cell::new(false),
        }
    }

    /// Opens the window.
    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        #[cfg(debug_assertions)]
        let _window = LoopLocalWindow::open(&self.open);
        // SAFETY: `UnsafeCell` keeps the value on this thread; the contract above (checked in debug builds) is that
        // windows of one `LoopLocal` do not nest, so this is the only reference.
        f(unsafe { &mut *self.value.get() })
    }
}

#[cfg(debug_assertions)]
struct LoopLocalWindow<'a>(&'a std::cell::Cell<bool>);

#[cfg(debug_assertions)]
impl LoopLocalWindow<'_> {
    fn open(flag: &std::cell::Cell<bool>) -> LoopLocalWindow<'_> {
        assert!(!flag.replace(true), "a Local was entered from within itself");
        LoopLocalWindow(flag)
    }
}

#[cfg(debug_assertions)]
impl Drop for LoopLocalWindow<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::LoopLocal;

    #[test]
    fn windows_follow_one_another() {
        let local = LoopLocal::new(1);
        local.with(|v| *v += 1);
        assert_eq!(local.with(|v| *v), 2);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "entered from within itself")]
    fn nested_windows_are_caught_in_debug_builds() {
        let local = LoopLocal::new(1);
        local.with(|_| local.with(|v| *v));
    }
}
