//! HTTP/2 (RFC 9113) without input and output: one [`H2Connection`] for either side.
//!
//! Bytes that came go into [`H2Connection::receive`], which takes whole frames (and pieces of DATA), replies to what
//! the protocol itself replies to, and returns an [`H2Event`] for what its caller has to know. What has to be sent is
//! appended to a vector that the caller passes and sends: control frames at once, heads by [`H2Connection::head`], and
//! data when the scheduler says whose turn it is ([`H2Connection::next_data`]), so that priorities count up to the
//! moment at which bytes leave. Content is never stored here: for what comes the caller gets its place in its input, of
//! what goes how many bytes it may append.
//!
//! Time comes in as milliseconds. No input makes it panic; each way to fail is an [`H2Failure`] or resets one stream.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod conn;
mod control;
mod dependency;
mod flow;
mod frame;
mod guard;
mod heads;
mod priority;
mod recv;
mod send;
mod settings;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod tree;

use std::fmt;

pub use crate::message::StreamEnd;
pub use crate::priority::Priority;
pub use conn::{H2Config, H2Connection, H2Role, MIN_FRAME};
pub use frame::{END_STREAM, FrameHead, HEAD, kind};
pub use guard::H2Abuse;
pub use recv::H2Event;
pub use send::DataGrant;
pub use settings::H2Settings;
pub use state::StreamState;
pub use store::StreamKey;

/// What a client's connection begins with (section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Error codes (section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// Nothing is wrong.
    No = 0,
    /// The peer broke the protocol.
    Protocol = 1,
    /// We are at fault.
    Internal = 2,
    /// The peer sent more than it was allowed to.
    FlowControl = 3,
    /// Our settings were not acknowledged in time.
    SettingsTimeout = 4,
    /// A frame on a stream that had ended.
    StreamClosed = 5,
    /// A frame of a wrong size.
    FrameSize = 6,
    /// The stream was not begun; its request may be sent again.
    Refused = 7,
    /// The stream is not wanted any more.
    Cancel = 8,
    /// The tables of header compression differ.
    Compression = 9,
    /// The connection of a tunnel broke.
    Connect = 10,
    /// The peer does too much of something.
    EnhanceYourCalm = 11,
    /// The transport is too weak.
    InadequateSecurity = 12,
    /// HTTP/1.1 is needed.
    Http11Required = 13,
}

impl ErrorCode {
    /// How many codes there are.
    pub const COUNT: usize = 14;

    /// All codes; the position of each is its number.
    pub const ALL: [ErrorCode; ErrorCode::COUNT] = [
        ErrorCode::No,
        ErrorCode::Protocol,
        ErrorCode::Internal,
        ErrorCode::FlowControl,
        ErrorCode::SettingsTimeout,
        ErrorCode::StreamClosed,
        ErrorCode::FrameSize,
        ErrorCode::Refused,
        ErrorCode::Cancel,
        ErrorCode::Compression,
        ErrorCode::Connect,
        ErrorCode::EnhanceYourCalm,
        ErrorCode::InadequateSecurity,
        ErrorCode::Http11Required,
    ];

    /// The code of that number; one that is not known is as good as INTERNAL_ERROR (section 7).
    pub fn of(number: u32) -> ErrorCode {
        ErrorCode::ALL.get(number as usize).copied().unwrap_or(ErrorCode::Internal)
    }

    /// The name in RFC 9113, section 7.
    pub const fn as_str(self) -> &'static str {
        match self {
            ErrorCode::No => "NO_ERROR",
            ErrorCode::Protocol => "PROTOCOL_ERROR",
            ErrorCode::Internal => "INTERNAL_ERROR",
            ErrorCode::FlowControl => "FLOW_CONTROL_ERROR",
            ErrorCode::SettingsTimeout => "SETTINGS_TIMEOUT",
            ErrorCode::StreamClosed => "STREAM_CLOSED",
            ErrorCode::FrameSize => "FRAME_SIZE_ERROR",
            ErrorCode::Refused => "REFUSED_STREAM",
            ErrorCode::Cancel => "CANCEL",
            ErrorCode::Compression => "COMPRESSION_ERROR",
            ErrorCode::Connect => "CONNECT_ERROR",
            ErrorCode::EnhanceYourCalm => "ENHANCE_YOUR_CALM",
            ErrorCode::InadequateSecurity => "INADEQUATE_SECURITY",
            ErrorCode::Http11Required => "HTTP_1_1_REQUIRED",
        }
    }
}

/// Why a connection ends: the peer's fault, reported to it by a GOAWAY frame that is in the output already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct H2Failure {
    /// The error code that the peer gets.
    pub code: ErrorCode,
    /// What the log says after "client" or "upstream".
    pub reason: &'static str,
    /// The limit that was overrun, if it was one.
    pub abuse: Option<H2Abuse>,
}

impl H2Failure {
    pub(crate) const fn new(code: ErrorCode, reason: &'static str) -> H2Failure {
        H2Failure { code, reason, abuse: None }
    }
}

impl fmt::Display for H2Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for H2Failure {}
