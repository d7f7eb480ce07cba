//! A file of secrets, with which recorded connections can be read (`SSLKEYLOGFILE`, draft-ietf-tls-keylogfile). For
//! looking for faults only: lines are written by the thread that makes the handshake.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module. Opened with the first line, by the process that serves with the configuration: one that only checks
/// it leaves no file.
#[derive(Debug)]
pub struct KeyLogFile {
    path: PathBuf,
    state: Mutex<KeyLogState>,
}

#[derive(Debug)]
enum KeyLogState {
    Unopened,
    Open(File),
    /// Why lines are lost; reported once.
    Failed(Option<String>),
}

impl KeyLogFile {
    /// Lines will be appended to `path`.
    pub fn new(path: PathBuf) -> KeyLogFile {
        KeyLogFile { path, state: Mutex::new(KeyLogState::Unopened) }
    }

    /// What went wrong with the file, in nginx's words: `open() "FILE" failed (13: Permission denied)`. `None` when
    /// nothing did, and once it was taken.
    pub fn take_error(&self) -> Option<String> {
        match &mut *self.state() {
            KeyLogState::Failed(why) => why.take(),
            _ => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, KeyLogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, call: &str, error: &std::io::Error) -> KeyLogState {
        let number = error.raw_os_error().unwrap_or(0);
        let text = error.to_string();
        let text = text.split(" (os error").next().unwrap_or_default();
        KeyLogState::Failed(Some(format!("{call} \"{}\" failed ({number}: {text})", self.path.display())))
    }
}

impl rustls::KeyLog for KeyLogFile {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let line = format!("{label} {} {}\n", hex(client_random), hex(secret));
        let mut state = self.state();
        if matches!(*state, KeyLogState::Unopened) {
            let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path);
            *state = opened.map_or_else(|error| self.failed("open()", &error), KeyLogState::Open);
        }
        if let KeyLogState::Open(file) = &mut *state
            && let Err(error) = file.write_all(line.as_bytes())
        {
            *state = self.failed("write()", &error);
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls::KeyLog;

    use super::*;

    #[test]
    fn lines_are_appended_and_faults_told_once() {
        let name = format!("weir-key-log-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        for _ in 0..2 {
            let log = KeyLogFile::new(path.clone());
            log.log("CLIENT_RANDOM", &[1, 0xab], &[0xff]);
            assert_eq!(log.take_error(), None);
        }
        let text = std::fs::read_to_string(&path).expect("written");
        std::fs::remove_file(&path).expect("there");
        assert_eq!(text, "CLIENT_RANDOM 01ab ff\nCLIENT_RANDOM 01ab ff\n");
        let log = KeyLogFile::new(path.join("below-nothing"));
        log.log("CLIENT_RANDOM", &[], &[]);
        assert!(log.take_error().is_some_and(|why| why.starts_with("open() ")));
        log.log("CLIENT_RANDOM", &[], &[]);
        assert_eq!(log.take_error(), None);
    }
}
