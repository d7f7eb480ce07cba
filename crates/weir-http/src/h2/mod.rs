//! HTTP/2 (RFC 9113) without input and output: one [`Connection`] for either side.
//!
//! Bytes that came go into [`Connection::receive`], which takes whole frames (and pieces of DATA), answers what the
//! protocol itself answers, and returns an [`Event`] for what its caller has to know. What has to be sent is appended to
//! a vector that the caller passes and sends: control frames at once, heads by [`Connection::head`], and data when the
//! scheduler says whose turn it is ([`Connection::next_data`]), so that priorities count up to the moment at which
//! bytes leave. Content is never kept here: of what comes the caller is told where it lies in its input, of what goes
//! how many bytes it may append.
//!
//! Time comes in as milliseconds. No input makes it panic; each way to fail is a [`Failure`] or resets one stream.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod conn;
mod control;
mod flow;
mod frame;
mod guard;
mod heads;
mod message;
mod priority;
mod recv;
mod send;
mod settings;
mod state;
mod store;
#[cfg(test)]
mod tests;

use std::fmt;

pub use conn::{Config, Connection, MIN_FRAME, Role};
pub use frame::{END_STREAM, FrameHead, HEAD, kind};
pub use guard::Abuse;
pub use message::{Malformed, Message};
pub use priority::Priority;
pub use recv::Event;
pub use send::Grant;
pub use settings::Settings;
pub use state::State;
pub use store::Key;

/// What a client's connection begins with (section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Error codes (section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
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
    /// The connection behind a tunnel broke.
    Connect = 10,
    /// The peer does too much of something.
    EnhanceYourCalm = 11,
    /// The transport is too weak.
    InadequateSecurity = 12,
    /// HTTP/1.1 is needed.
    Http11Required = 13,
}

impl Code {
    /// The code of that number; one that is not known is as good as INTERNAL_ERROR (section 7).
    pub fn of(number: u32) -> Code {
        const CODES: [Code; 14] = [
            Code::No,
            Code::Protocol,
            Code::Internal,
            Code::FlowControl,
            Code::SettingsTimeout,
            Code::StreamClosed,
            Code::FrameSize,
            Code::Refused,
            Code::Cancel,
            Code::Compression,
            Code::Connect,
            Code::EnhanceYourCalm,
            Code::InadequateSecurity,
            Code::Http11Required,
        ];
        CODES.get(number as usize).copied().unwrap_or(Code::Internal)
    }
}

/// Why a connection ends: the peer's fault, told to it by a GOAWAY frame that stands in the output already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the peer is told.
    pub code: Code,
    /// What the log says behind "client" or "upstream".
    pub reason: &'static str,
    /// The limit that was overrun, if it was one.
    pub abuse: Option<Abuse>,
}

impl Failure {
    pub(crate) const fn new(code: Code, reason: &'static str) -> Failure {
        Failure { code, reason, abuse: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for Failure {}
