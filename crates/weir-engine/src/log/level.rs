//! The severity of a message.

/// How grave a message is; nginx's order, so that `level <= limit` is what gets logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// To standard error and to every log.
    #[default]
    Stderr,
    /// The server can't run.
    Emerg,
    /// Something must be done at once.
    Alert,
    /// Critical: something is broken.
    Crit,
    /// A request could not be served as it should.
    Error,
    /// Something is probably not as it was meant.
    Warn,
    /// Normal, and worth a line.
    Notice,
    /// Normal operation, in detail.
    Info,
    /// For debugging.
    Debug,
}

impl LogLevel {
    /// The names that `error_log` takes, and their levels.
    pub(super) const NAMES: [(&'static str, LogLevel); 8] = [
        ("emerg", LogLevel::Emerg),
        ("alert", LogLevel::Alert),
        ("crit", LogLevel::Crit),
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("notice", LogLevel::Notice),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
    ];

    /// The level that `error_log` calls `name`; nginx's names of parts of debug (`debug_http`) are all of it here.
    /// `None` for a word that is not a level.
    pub fn parse(name: &[u8]) -> Option<LogLevel> {
        let parts = [
            "debug_core",
            "debug_alloc",
            "debug_mutex",
            "debug_event",
            "debug_http",
            "debug_mail",
            "debug_stream",
        ];
        if parts.iter().any(|part| part.as_bytes() == name) {
            return Some(LogLevel::Debug);
        }
        LogLevel::NAMES.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, level)| *level)
    }

    /// As it is written in brackets in a line.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Stderr => "",
            level => LogLevel::NAMES[level as usize - 1].0,
        }
    }

    /// Whether a line of this level is written before its caller goes on.
    pub(crate) fn is_urgent(self) -> bool {
        self <= LogLevel::Alert
    }
}
