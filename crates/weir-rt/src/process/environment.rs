//! The environment of the process, cut down to what is wanted.

use std::ffi::{OsStr, OsString};
use std::io;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use super::{memory_file_with, thread_count};

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

/// What [`set_environment`] has taken out and nothing has set since: names and values.
pub fn removed_variables() -> impl Iterator<Item = (&'static OsStr, &'static OsStr)> {
    let all = REMOVED.get().into_iter().flatten();
    all.filter(|(name, _)| std::env::var_os(name).is_none()).map(|(name, value)| (&**name, &**value))
}

/// A file in memory with commands of a shell that export what [`set_environment`] has taken out and nothing has set since.
/// Programs that are started while it is open inherit it, and find it as `/dev/fd/NUMBER`. `None`: there is nothing.
///
/// # Errors
/// The file can't be made or written.
pub fn removed_for_shell() -> io::Result<Option<OwnedFd>> {
    let mut text = Vec::new();
    for (name, value) in removed_variables() {
        if is_exported(name.as_encoded_bytes()) {
            export(&mut text, name.as_encoded_bytes(), value.as_encoded_bytes());
        }
    }
    if text.is_empty() {
        return Ok(None);
    }
    // Not closed by exec(2).
    let mut file = memory_file_with("environment", 0)?;
    file.write_all(&text)?;
    Ok(Some(file.into()))
}

/// Whether a shell takes `name` for a variable.
fn is_exported(name: &[u8]) -> bool {
    let letter = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    name.first().is_some_and(letter) && name.iter().all(|byte| letter(byte) || byte.is_ascii_digit())
}

fn export(text: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    text.extend([b"export ", name, b"='"].concat());
    for byte in value {
        match byte {
            b'\'' => text.extend(b"'\\''"),
            byte => text.push(*byte),
        }
    }
    text.extend(b"'\n");
}

fn is_valid(name: &OsStr, value: Option<&OsStr>) -> bool {
    let name = name.as_encoded_bytes();
    let value = value.unwrap_or_default().as_encoded_bytes();
    !name.is_empty() && !name.contains(&b'=') && !name.contains(&0) && !value.contains(&0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn names_and_values_must_be_possible() {
        let valid = |name: &str, value: Option<&str>| is_valid(name.as_ref(), value.map(OsStr::new));
        assert!(valid("TZ", None) && valid("A", Some("")) && valid("A", Some("b=c")));
        assert!(!valid("", None) && !valid("A=B", None) && !valid("A\0", None) && !valid("A", Some("\0")));
    }

    #[test]
    fn a_shell_reads_what_is_exported() {
        let mut text = Vec::new();
        for (name, value) in [("A", "plain"), ("_B2", "it's $HOME `x` \"y\"\nz"), ("C", "")] {
            assert!(is_exported(name.as_bytes()));
            export(&mut text, name.as_bytes(), value.as_bytes());
        }
        text.extend(b"printf '%s|%s|%s' \"$A\" \"$_B2\" \"$C\"");
        let said = std::process::Command::new("/bin/sh").arg("-c").arg(OsStr::from_bytes(&text)).output();
        let said = String::from_utf8(said.expect("a shell").stdout).expect("text");
        assert_eq!(said, "plain|it's $HOME `x` \"y\"\nz|");
        assert!(["", "2A", "A-B", "BASH_FUNC_x%%"].iter().all(|name| !is_exported(name.as_bytes())));
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
