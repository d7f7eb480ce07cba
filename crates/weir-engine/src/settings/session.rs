//! The settings of a server of `stream` that hold before its content.

/// What a plan of [`PlanLevel::Session`](crate::plan::PlanLevel::Session) keeps. Times are milliseconds, sizes bytes.
#[derive(Clone, Copy, Debug)]
pub struct SessionSettings {
    /// For how long a PROXY protocol header is waited for (`proxy_protocol_timeout`).
    pub proxy_protocol_timeout: u64,
    /// How many bytes may be looked at before the content (`preread_buffer_size`).
    pub preread_buffer_size: u64,
    /// For how long they are waited for (`preread_timeout`).
    pub preread_timeout: u64,
}

impl Default for SessionSettings {
    fn default() -> Self {
        SessionSettings {
            proxy_protocol_timeout: 30_000,
            preread_buffer_size: 16 * 1024,
            preread_timeout: 30_000,
        }
    }
}
