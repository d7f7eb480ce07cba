//! `admin_host`: other servers whose figures this one shows, and how their addresses are written.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use weir_conf::{LineCx, Result};

use super::settings;

/// An `admin_host` line: a server that is asked for its figures.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminHost {
    /// Where its admin listener is.
    pub address: HostAddress,
    /// What is in `token_file=`; `None`: requests show no token.
    pub token: Option<String>,
}

/// Where an admin listener of another server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostAddress {
    /// `HOST:PORT`
    Tcp(String),
    /// `unix:PATH`
    Unix(PathBuf),
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostAddress::Tcp(host) => f.write_str(host),
            HostAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Debug for AdminHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminHost").field("address", &self.address).finish_non_exhaustive()
    }
}

impl HostAddress {
    /// `HOST`, `HOST:PORT`, `[ADDRESS]:PORT`, `unix:PATH`; also with `http://`. Without a port it is 9180.
    ///
    /// # Errors
    /// It is empty, or has a path; for people.
    pub fn parse(word: &str) -> std::result::Result<HostAddress, String> {
        let wrong = || format!("\"{word}\" is no address of an admin listener: HOST:PORT or unix:PATH");
        if let Some(path) = word.strip_prefix("unix:") {
            return if path.is_empty() { Err(wrong()) } else { Ok(HostAddress::Unix(path.into())) };
        }
        let host = word.strip_prefix("http://").unwrap_or(word).trim_end_matches('/');
        if host.is_empty() || host.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control()) {
            return Err(wrong());
        }
        let has_port = host.rsplit_once(':').is_some_and(|(before, port)| {
            !port.is_empty()
                && port.bytes().all(|b| b.is_ascii_digit())
                && (!before.contains(':') || before.ends_with(']'))
        });
        Ok(HostAddress::Tcp(if has_port { host.to_owned() } else { format!("{host}:{DEFAULT_PORT}") }))
    }
}

/// `admin_host address [token_file=file]`
pub(super) fn set(line: &mut LineCx<'_>) -> Result {
    let text = line.arg(0).to_owned();
    let address = HostAddress::parse(&text).map_err(|problem| line.fail_arg(0, problem))?;
    let mut token = None;
    if line.args().len() > 1 {
        let file = line.arg(1).strip_prefix("token_file=").filter(|file| !file.is_empty());
        let file = line.paths().conf_prefix.join(file.ok_or_else(|| line.invalid_parameter(1))?);
        token = Some(read_token(&file).map_err(|problem| line.fail_arg(1, problem))?);
    }
    if settings(line).hosts.iter().any(|host| host.address == address) {
        return Err(line.fail_arg(0, format!("a duplicate admin_host {text}")));
    }
    if settings(line).hosts.len() >= MOST_HOSTS {
        return Err(line.fail_arg(0, format!("more than {MOST_HOSTS} lines \"admin_host\"")));
    }
    settings(line).hosts.push(AdminHost { address, token });
    Ok(())
}

/// The one word of a file.
fn read_token(path: &Path) -> std::result::Result<String, String> {
    let name = path.display();
    let text = read_small(path).map_err(|error| format!("token_file \"{name}\": {error}"))?;
    match text.trim() {
        token if token.is_empty() || token.contains(|c: char| c.is_whitespace() || c.is_control()) => {
            Err(format!("token_file \"{name}\" holds no token"))
        }
        token => Ok(token.to_owned()),
    }
}

/// Waits for no pipe or device that the line names.
fn read_small(path: &Path) -> io::Result<String> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("is no regular file"));
    }
    let mut text = String::new();
    std::fs::File::open(path)?.take(LONGEST_TOKEN).read_to_string(&mut text)?;
    Ok(text)
}

/// The port of the embedded configuration's admin listener.
const DEFAULT_PORT: u16 = 9180;
/// Each is asked by a thread of its own.
const MOST_HOSTS: usize = 64;
/// Bytes of a file that are looked at: a field of a request is not longer.
const LONGEST_TOKEN: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port() {
        let shown = |word: &str| HostAddress::parse(word).map(|address| address.to_string());
        for (word, expected) in [
            ("a", "a:9180"),
            ("a:1", "a:1"),
            ("http://a:1/", "a:1"),
            ("[::1]:8", "[::1]:8"),
            ("[::1]", "[::1]:9180"),
            ("unix:/run/admin.sock", "unix:/run/admin.sock"),
        ] {
            assert_eq!(shown(word), Ok(expected.to_owned()), "{word}");
        }
        for wrong in ["", "http://", "a/b", "a b", "a\r\nX: 1", "unix:"] {
            assert!(shown(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_token_is_one_word_of_a_file_and_is_not_shown() {
        let directory = std::env::temp_dir().join(format!("weir-admin-host-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let file = directory.join("token");
        for (text, expected) in [("0123\n", Some("0123")), ("", None), ("two words", None), ("a\0b", None)] {
            std::fs::write(&file, text).expect("a file");
            assert_eq!(read_token(&file).ok().as_deref(), expected, "{text:?}");
        }
        for none in [directory.as_path(), Path::new("/nonexistent"), Path::new("/dev/zero")] {
            assert!(read_token(none).is_err_and(|why| why.contains("token_file")), "{none:?}");
        }
        std::fs::remove_dir_all(&directory).expect("it is removed");
        let host = AdminHost { address: HostAddress::Tcp("a:1".into()), token: Some("secret".into()) };
        assert!(!format!("{host:?}").contains("secret"));
    }
}
