//! Messages between master and server.
//!
//! The server builds the configuration that the master has built, out of the same texts: it may not read the files
//! itself any more, and they may have changed since. A [`ReadFiles`] has every text and every response to a pattern, in
//! the form in which they were given.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use weir_conf::{ConfFiles, RealFiles};
use weir_engine::privileged::BuildFindings;
use weir_engine::wire::{IpcReader, IpcWriter};

/// The files of a configuration as they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadFiles {
    texts: BTreeMap<PathBuf, Vec<u8>>,
    patterns: BTreeMap<PathBuf, Vec<PathBuf>>,
    /// What building it has found besides: keys and their like, addresses of names.
    pub findings: BuildFindings,
}

impl ConfFiles for ReadFiles {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.texts.get(path).cloned().ok_or_else(|| io::Error::from_raw_os_error(ENOENT))
    }

    fn glob(&self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.patterns.get(pattern).cloned().unwrap_or_default())
    }
}

/// The file system, and a record of what was read from it.
#[derive(Default)]
pub(crate) struct FileRecorder(RefCell<ReadFiles>);

impl FileRecorder {
    /// What was read, with what building it has found besides.
    pub(crate) fn finish(self, findings: BuildFindings) -> ReadFiles {
        ReadFiles { findings, ..self.0.into_inner() }
    }
}

impl ConfFiles for FileRecorder {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let text = RealFiles.read(path)?;
        self.0.borrow_mut().texts.insert(path.to_path_buf(), text.clone());
        Ok(text)
    }

    fn glob(&self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        let found = RealFiles.glob(pattern)?;
        self.0.borrow_mut().patterns.insert(pattern.to_path_buf(), found.clone());
        Ok(found)
    }
}

/// What the master asks of its server. Descriptors come beside the message, in the order of the lists.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MasterOrder {
    /// A new configuration.
    Reload(ConfBundle),
    /// New descriptors for these logs.
    Reopen(Vec<PathBuf>),
    /// There is a privileged agent: two sockets, for what it asks and for what it hears.
    Agent,
}

/// A configuration on its way to the server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfBundle {
    /// Its files.
    pub record: ReadFiles,
    /// Its listening sockets.
    pub sockets: Vec<BundledSocket>,
    /// Its logs, and those that are still open of the one before.
    pub logs: Vec<PathBuf>,
}

/// A listening socket, identified by its address as text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BundledSocket {
    /// As configured.
    pub address: String,
    /// `reuseport`
    pub reuseport: bool,
    /// Which of the address' sockets.
    pub index: usize,
}

/// Whether a configuration wants a privileged agent, which its scripts say when they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantsAgent(pub bool);

/// What the server says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ServerReply {
    /// It accepts connections.
    Ready(WantsAgent),
    /// It could not start; the reasons, which it has logged.
    Failed(Vec<String>),
    /// The configuration is in force, or why it is not.
    Reloaded(Result<WantsAgent, Vec<String>>),
}

impl MasterOrder {
    /// The bytes of the message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = IpcWriter::default();
        match self {
            MasterOrder::Reload(ConfBundle { record, sockets, logs }) => {
                out.number(RELOAD);
                out.list(record.texts.iter(), |out, (path, text)| {
                    out.path(path);
                    out.bytes(text);
                });
                out.list(record.patterns.iter(), |out, (pattern, paths)| {
                    out.path(pattern);
                    out.list(paths.iter(), |out, path| out.path(path));
                });
                write_findings(&mut out, &record.findings);
                out.list(sockets.iter(), |out, socket| {
                    out.bytes(socket.address.as_bytes());
                    out.number(u64::from(socket.reuseport));
                    out.number(socket.index as u64);
                });
                out.list(logs.iter(), |out, path| out.path(path));
            }
            MasterOrder::Reopen(logs) => {
                out.number(REOPEN);
                out.list(logs.iter(), |out, path| out.path(path));
            }
            MasterOrder::Agent => out.number(AGENT),
        }
        out.0
    }

    /// Reads a message; `None` if it is invalid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<MasterOrder> {
        let mut from = IpcReader(bytes);
        let order = match from.number()? {
            RELOAD => MasterOrder::Reload(ConfBundle {
                record: ReadFiles {
                    texts: files(&mut from)?,
                    patterns: from
                        .list(|from| Some((from.path()?, from.list(IpcReader::path)?)))?
                        .into_iter()
                        .collect(),
                    findings: findings(&mut from)?,
                },
                sockets: from.list(|from| {
                    let address = from.string()?;
                    Some(BundledSocket {
                        address,
                        reuseport: from.number()? != 0,
                        index: from.number()? as usize,
                    })
                })?,
                logs: from.list(IpcReader::path)?,
            }),
            REOPEN => MasterOrder::Reopen(from.list(IpcReader::path)?),
            AGENT => MasterOrder::Agent,
            _ => return None,
        };
        from.whole(order)
    }
}

impl ServerReply {
    /// The bytes of the message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = IpcWriter::default();
        match self {
            ServerReply::Ready(WantsAgent(wanted)) => {
                out.number(READY);
                out.number(u64::from(*wanted));
            }
            ServerReply::Failed(lines) => {
                out.number(FAILED);
                out.list(lines.iter(), |out, line| out.bytes(line.as_bytes()));
            }
            ServerReply::Reloaded(Ok(WantsAgent(wanted))) => {
                out.number(RELOADED);
                out.number(u64::from(*wanted));
            }
            ServerReply::Reloaded(Err(lines)) => {
                out.number(REFUSED);
                out.list(lines.iter(), |out, line| out.bytes(line.as_bytes()));
            }
        }
        out.0
    }

    /// Reads a message; `None` if it is invalid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<ServerReply> {
        let mut from = IpcReader(bytes);
        let answer = match from.number()? {
            READY => ServerReply::Ready(WantsAgent(from.number()? != 0)),
            FAILED => ServerReply::Failed(from.list(IpcReader::string)?),
            RELOADED => ServerReply::Reloaded(Ok(WantsAgent(from.number()? != 0))),
            REFUSED => ServerReply::Reloaded(Err(from.list(IpcReader::string)?)),
            _ => return None,
        };
        from.whole(answer)
    }
}

const RELOAD: u64 = 1;
const REOPEN: u64 = 2;
const READY: u64 = 3;
const RELOADED: u64 = 4;
const REFUSED: u64 = 5;
const AGENT: u64 = 6;
const FAILED: u64 = 7;

fn write_findings(out: &mut IpcWriter, findings: &BuildFindings) {
    out.list(findings.files.iter(), |out, (path, content)| {
        out.path(path);
        out.bytes(content);
    });
    out.list(findings.names.iter(), |out, ((name, port), addresses)| {
        out.bytes(name.as_bytes());
        out.number(u64::from(*port));
        out.list(addresses.iter(), |out, address| out.bytes(address.to_string().as_bytes()));
    });
}

fn findings(from: &mut IpcReader<'_>) -> Option<BuildFindings> {
    let files = files(from)?;
    let names = from.list(|from| {
        let key = (from.string()?, u16::try_from(from.number()?).ok()?);
        Some((key, from.list(|from| from.string()?.parse().ok())?))
    })?;
    let names = names.into_iter().collect();
    Some(BuildFindings { files, names })
}

/// The files of a record.
fn files<C: FromIterator<(PathBuf, Vec<u8>)>>(from: &mut IpcReader<'_>) -> Option<C> {
    let files = from.list(|from| Some((from.path()?, from.bytes()?.to_vec())));
    files.map(|files| files.into_iter().collect())
}

const ENOENT: i32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn reload() -> MasterOrder {
        let record = ReadFiles {
            texts: [("/a".into(), b"x;".to_vec()), ("/b\u{fe}".into(), Vec::new())].into(),
            patterns: [("/c/*".into(), vec!["/c/1".into(), "/c/2".into()]), ("/d/*".into(), vec![])].into(),
            findings: BuildFindings {
                files: [("/key".into(), b"secret".to_vec())].into(),
                names: [(("a.test".to_owned(), 80), vec!["[::1]:80".parse().expect("an address")])].into(),
            },
        };
        let sockets = vec![BundledSocket { address: "127.0.0.1:80".to_owned(), reuseport: true, index: 3 }];
        MasterOrder::Reload(ConfBundle { record, sockets, logs: vec!["/l".into()] })
    }

    #[test]
    fn messages_read_back() {
        for order in [
            reload(),
            MasterOrder::Reload(ConfBundle::default()),
            MasterOrder::Reopen(vec!["/a".into()]),
            MasterOrder::Agent,
        ] {
            assert_eq!(MasterOrder::decode(&order.encode()), Some(order));
        }
        let refused = ServerReply::Reloaded(Err(vec!["why".to_owned(), String::new()]));
        let failed = ServerReply::Failed(vec!["why".to_owned()]);
        for answer in [
            ServerReply::Ready(WantsAgent(true)),
            ServerReply::Reloaded(Ok(WantsAgent(false))),
            refused,
            failed,
        ] {
            assert_eq!(ServerReply::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn what_is_cut_or_changed_is_no_message() {
        let whole = reload().encode();
        for end in 0..whole.len() {
            assert_eq!(MasterOrder::decode(&whole[..end]), None, "{end}");
        }
        assert_eq!(MasterOrder::decode(&[&whole[..], b"x"].concat()), None);
        // A list that claims to be long ends with the bytes.
        let mut long = RELOAD.to_le_bytes().to_vec();
        long.extend_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(MasterOrder::decode(&long), None);
        assert_eq!(ServerReply::decode(&9u64.to_le_bytes()), None);
    }

    #[test]
    fn a_record_gives_what_was_read() {
        let dir = weir_test::TempDir::new();
        let directory = dir.path().join("conf");
        std::fs::create_dir(&directory).expect("a fresh folder");
        let (one, pattern) = (directory.join("one.conf"), directory.join("*.conf"));
        std::fs::write(&one, "a;").expect("ours");
        let recorder = FileRecorder::default();
        let found = recorder.glob(&pattern).expect("there");
        assert_eq!(recorder.read(&one).expect("there"), b"a;");
        assert!(recorder.read(&directory.join("two.conf")).is_err());
        std::fs::remove_dir_all(&directory).expect("ours");
        let record = recorder.finish(BuildFindings::default());
        assert_eq!(record.glob(&pattern).expect("recorded"), found);
        assert_eq!(record.read(&one).expect("recorded"), b"a;");
        let missing = record.read(&directory.join("two.conf")).expect_err("not read");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
