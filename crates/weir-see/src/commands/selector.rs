//! Which server a command is about.

use std::path::PathBuf;

/// Which server is meant, as the command line says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSelector {
    /// `--socket`: the path of the control socket; `None`: it is found by the configuration.
    pub socket: Option<PathBuf>,
    /// `-c`: the path of the server's configuration file; `None`: the default one.
    pub conf: Option<PathBuf>,
    /// `-p`: the server's prefix; `None`: the default one.
    pub prefix: Option<PathBuf>,
}

/// Finds the control socket of the server that is meant.
pub type LocateSocket<'a> = &'a dyn Fn(&ServerSelector) -> Result<PathBuf, String>;
