//! Which server a command is about.

use std::path::PathBuf;

/// Which server is meant, as the command line says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSelector {
    /// `--socket`: the control socket itself.
    pub socket: Option<PathBuf>,
    /// `-c`: the server's configuration file.
    pub conf: Option<PathBuf>,
    /// `-p`: its prefix.
    pub prefix: Option<PathBuf>,
}

/// Finds the control socket of the server that is meant.
pub type LocateSocket<'a> = &'a dyn Fn(&ServerSelector) -> Result<PathBuf, String>;
