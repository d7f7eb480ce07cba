//! Which event driver a test runs on.

use std::cell::Cell;

use crate::program;

/// An event driver, by its name in `events { use …; }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// `use io_uring;`
    IoUring,
    /// `use epoll;`
    Epoll,
}

impl Driver {
    /// The word of the `use` directive.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
        }
    }

    /// The driver servers are started with now: that of the enclosing [`run_on`], else that of `WEIR_TEST_DRIVER`,
    /// else `None`, the server's own choice.
    ///
    /// # Panics
    /// When `WEIR_TEST_DRIVER` names no driver.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.get().or_else(Self::from_environment)
    }

    fn from_environment() -> Option<Self> {
        let name = std::env::var("WEIR_TEST_DRIVER").ok()?;
        let driver = [Self::IoUring, Self::Epoll].into_iter().find(|driver| driver.name() == name);
        Some(driver.unwrap_or_else(|| panic!("WEIR_TEST_DRIVER={name}: io_uring or epoll")))
    }
}

/// Runs `test` with every server it starts (on this thread) on `driver`; what [`both_drivers!`](crate::both_drivers)
/// expands to.
///
/// The test is skipped with a printed reason when `WEIR_TEST_DRIVER` names the other driver, or when this machine
/// has no io_uring, unless `WEIR_REQUIRE=all`.
///
/// # Panics
/// As `test` does; and when io_uring is required and absent.
pub fn run_on(driver: Driver, test: impl FnOnce(Driver)) {
    if Driver::from_environment().is_some_and(|only| only != driver) {
        eprintln!("skipped: WEIR_TEST_DRIVER asks for the other driver than {}", driver.name());
        return;
    }
    if driver == Driver::IoUring && !weir_sys::process::io_uring_available() {
        program::skip("io_uring is not available here");
        return;
    }
    let _reset = DriverReset(CURRENT.replace(Some(driver)));
    test(driver);
}

/// Restores the driver also when the test panics: test threads are reused under `--test-threads=1`.
struct DriverReset(Option<Driver>);

impl Drop for DriverReset {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

thread_local! {
    static CURRENT: Cell<Option<Driver>> = const { Cell::new(None) };
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::both_drivers! {
        /// The macro hands the driver to the test and to the servers it starts.
        fn a_test_knows_its_driver(driver) {
            assert_eq!(Driver::current(), Some(driver));
        }
    }

    #[test]
    fn the_driver_ends_with_the_test() {
        let before = Driver::current();
        let failed = std::panic::catch_unwind(|| run_on(Driver::Epoll, |_| panic!("a failing test")));
        assert_eq!(failed.is_err(), Driver::from_environment() != Some(Driver::IoUring));
        assert_eq!(Driver::current(), before);
    }
}
