//! Programs and abilities a test needs and a machine may lack.

use std::env;
use std::path::{Path, PathBuf};

/// Finds a program this test compares with or drives: the path in `WEIR_TEST_NAME` (upper case), else in `PATH`.
///
/// `None` means that the test should return: the reason has been printed.
///
/// # Panics
/// When it is not there and `WEIR_REQUIRE=all`.
#[must_use]
#[track_caller]
pub fn require_program(name: &str) -> Option<PathBuf> {
    let found = find(name);
    if found.is_none() {
        skip(&format!("{name} is not installed"));
    }
    found
}

/// Prints that the current test is skipped and why; to be followed by `return`.
///
/// # Panics
/// When `WEIR_REQUIRE=all`, which makes a skipped test a failed one.
#[track_caller]
pub fn skip(reason: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    assert!(env::var("WEIR_REQUIRE").as_deref() != Ok("all"), "{test} may not be skipped: {reason}");
    eprintln!("skipped: {test}: {reason}");
}

fn find(name: &str) -> Option<PathBuf> {
    let variable = format!("WEIR_TEST_{}", name.to_uppercase().replace(['-', '.'], "_"));
    if let Some(path) = env::var_os(variable) {
        return Some(PathBuf::from(path)).filter(|path| is_program(path));
    }
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(name)).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_found_and_a_nonsense_name_is_not() {
        assert!(require_program("sh").is_some_and(|path| path.ends_with("sh")));
        assert_eq!(find("no-such-program-anywhere"), None);
    }
}
