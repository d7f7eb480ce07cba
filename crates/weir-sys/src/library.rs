//! Shared libraries: whether the dynamic linker finds one, and where.

use std::ffi::CString;
use std::fs;
use std::path::PathBuf;

/// OpenSSL's libcrypto and libssl by the names of their files, in the order in which scripts get them.
pub const OPENSSL: [(&str, &str); 3] =
    [("libcrypto.so", "libssl.so"), ("libcrypto.so.3", "libssl.so.3"), ("libcrypto.so.1.1", "libssl.so.1.1")];

/// The file that the dynamic linker finds by `name` (`libcrypto.so.3`, or a path). It is loaded for that, into this
/// process, and stays.
///
/// # Errors
/// The linker's reason.
pub fn load(name: &str) -> Result<PathBuf, String> {
    let text = CString::new(name).map_err(|error| error.to_string())?;
    // SAFETY: a C string. What a library does when it is loaded is its own; the caller has asked for that.
    let library = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    if library.is_null() {
        // SAFETY: null, or a C string that is this thread's until its next call.
        let reason = unsafe { libc::dlerror() };
        if reason.is_null() {
            return Err(format!("{name} can't be loaded"));
        }
        // SAFETY: see above.
        return Err(unsafe { std::ffi::CStr::from_ptr(reason) }.to_string_lossy().into_owned());
    }
    let file = name.rsplit('/').next().unwrap_or(name);
    Ok(mapped(std::process::id(), file).unwrap_or_else(|| PathBuf::from(name)))
}

/// The file with a name that begins with `name` which process `pid` has mapped. `None` as well where this user may not look.
pub fn mapped(pid: u32, name: &str) -> Option<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])));
    paths.into_iter().find(|path| {
        let file = path.file_name().map(std::ffi::OsStr::as_encoded_bytes).unwrap_or_default();
        file.starts_with(name.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::{load, mapped};

    #[test]
    fn a_library_that_is_there_and_one_that_is_not() {
        let libc = load("libc.so.6").expect("tests run with glibc");
        assert!(libc.is_absolute() && libc.ends_with("libc.so.6"), "{libc:?}");
        assert_eq!(mapped(std::process::id(), "libc.so"), Some(libc));
        assert_eq!(mapped(std::process::id(), "libweir-nowhere"), None);
        let reason = load("libweir-nowhere.so.9").expect_err("there is no such library");
        assert!(reason.contains("libweir-nowhere.so.9"), "{reason}");
        assert!(load("a\0b").is_err());
    }
}
