//! The environment of the process, cut down to what is wanted.

use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::OnceLock;

use super::thread_count;

/// Takes every variable out of the environment that `wanted` does not name, and sets those that it gives a value.
///
/// # Errors
/// `EBUSY` if there are other threads, which might be reading the environment. `EINVAL` for a name that is empty or
/// has a `=` or NUL in it, or a value with a NUL; nothing is changed then.
pub fn set_environment(wanted: &[(OsString, Option<OsString>)]) -> io::Result<()> {
    if thread_count() > 1 {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    if !wanted.iter().all(|(name, value)| is_valid(name, value.as_deref())) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let gone = std::env::vars_os().filter(|(name, _)| !wanted.iter().any(|(kept, _)| kept == name));
    let gone: Vec<_> = gone.collect();
    for (name, _) in &gone {
        // SAFETY: there is one thread, so nothing reads the environment meanwhile.
        unsafe { std::env::remove_var(name) };
    }
    // Of a second call: what is gone is not in the environment any more, and stays known.
    let _ = REMOVED.set(gone);
    for (name, value) in wanted {
        if let Some(value) = value {
            // SAFETY: there is one thread, so nothing reads the environment meanwhile.
            unsafe { std::env::set_var(name, value) };
        }
    }
    Ok(())
}

/// What the first [`set_environment`] has taken out.
static REMOVED: OnceLock<Vec<(OsString, OsString)>> = OnceLock::new();

/// The value that `name` had when the process began, if [`set_environment`] has taken it out.
pub fn removed_variable(name: &OsStr) -> Option<&'static OsStr> {
    let removed = REMOVED.get()?;
    removed.iter().find_map(|(known, value)| (known == name).then_some(value.as_os_str()))
}

fn is_valid(name: &OsStr, value: Option<&OsStr>) -> bool {
    let name = name.as_encoded_bytes();
    let value = value.unwrap_or_default().as_encoded_bytes();
    !name.is_empty() && !name.contains(&b'=') && !name.contains(&0) && !value.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_must_be_possible() {
        let valid = |name: &str, value: Option<&str>| is_valid(name.as_ref(), value.map(OsStr::new));
        assert!(valid("TZ", None) && valid("A", Some("")) && valid("A", Some("b=c")));
        assert!(!valid("", None) && !valid("A=B", None) && !valid("A\0", None) && !valid("A", Some("\0")));
    }

    #[test]
    fn beside_other_threads_nothing_is_changed() {
        let before = std::env::vars_os().count();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || ended.recv());
        let error = set_environment(&[]).expect_err("the test runner and we are two");
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
        assert_eq!(std::env::vars_os().count(), before);
        drop(end);
        let _ = other.join();
    }
}
