//! HTTP/3 (RFC 9114) without input and output: one [`H3Connection`] for either side.
//!
//! QUIC is below: it opens streams, and hands over the bytes of each in order. Those of a unidirectional stream go into
//! [`H3Connection::receive_uni`], those of a request's into [`H3Connection::receive`], which returns an [`H3Event`] for what its
//! caller has to know. What has to be sent on our own unidirectional streams is in vectors that the caller takes
//! ([`H3Connection::decoder_output`], [`H3Connection::encoder_output`]); header sections are written by [`H3Connection::head`], and
//! before content the caller puts a [`frame_head`]. Content is never stored here.
//!
//! No input makes it panic; each way to fail is an [`H3Failure`] or an event about one stream.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod conn;
mod control;
mod frame;
mod guard;
mod priority;
mod recv;
mod repeat;
mod settings;
mod stream;
#[cfg(test)]
mod tests;
mod uni;
mod varint;

use std::fmt;

pub use conn::{H3Config, H3Connection};
pub use frame::{frame_head, kind};
pub use guard::H3Abuse;
pub use recv::H3Event;
pub use settings::H3Settings;
pub use uni::UniInterest;

use crate::qpack::QpackError;

/// Error codes (RFC 9114 section 8.1, RFC 9204 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum H3ErrorCode {
    /// Nothing is wrong.
    No = 0x100,
    /// The peer broke the protocol in a way that has no code of its own.
    GeneralProtocol = 0x101,
    /// We are at fault.
    Internal = 0x102,
    /// The peer opened a stream that is not taken.
    StreamCreation = 0x103,
    /// A stream was closed without which there is no connection.
    ClosedCriticalStream = 0x104,
    /// A frame that may not come here, or now.
    FrameUnexpected = 0x105,
    /// A frame of a wrong size, or one that is cut.
    Frame = 0x106,
    /// The peer does too much of something.
    ExcessiveLoad = 0x107,
    /// An identifier that may not be used, or was used before.
    Id = 0x108,
    /// The peer's settings are wrong.
    Settings = 0x109,
    /// The control stream does not begin with settings.
    MissingSettings = 0x10a,
    /// The request was not looked at; it may be sent again.
    RequestRejected = 0x10b,
    /// The request or its response is not wanted any more.
    RequestCancelled = 0x10c,
    /// The stream ended without a whole request.
    RequestIncomplete = 0x10d,
    /// The message is malformed.
    Message = 0x10e,
    /// The connection of a tunnel broke.
    Connect = 0x10f,
    /// An earlier version of HTTP is needed.
    VersionFallback = 0x110,
    /// A header section can't be read.
    QpackDecompressionFailed = 0x200,
    /// The instructions of an encoder can't be followed.
    QpackEncoderStream = 0x201,
    /// The instructions of a decoder can't be followed.
    QpackDecoderStream = 0x202,
}

impl H3ErrorCode {
    const ALL: [H3ErrorCode; 20] = [
        H3ErrorCode::No,
        H3ErrorCode::GeneralProtocol,
        H3ErrorCode::Internal,
        H3ErrorCode::StreamCreation,
        H3ErrorCode::ClosedCriticalStream,
        H3ErrorCode::FrameUnexpected,
        H3ErrorCode::Frame,
        H3ErrorCode::ExcessiveLoad,
        H3ErrorCode::Id,
        H3ErrorCode::Settings,
        H3ErrorCode::MissingSettings,
        H3ErrorCode::RequestRejected,
        H3ErrorCode::RequestCancelled,
        H3ErrorCode::RequestIncomplete,
        H3ErrorCode::Message,
        H3ErrorCode::Connect,
        H3ErrorCode::VersionFallback,
        H3ErrorCode::QpackDecompressionFailed,
        H3ErrorCode::QpackEncoderStream,
        H3ErrorCode::QpackDecoderStream,
    ];

    /// Its number.
    pub const fn number(self) -> u64 {
        self as u64
    }

    /// The code of that number; one that is not known is as good as H3_NO_ERROR (RFC 9114 section 8).
    pub fn of(number: u64) -> H3ErrorCode {
        let known = H3ErrorCode::ALL.into_iter().find(|code| code.number() == number);
        known.unwrap_or(H3ErrorCode::No)
    }

    /// The name in the RFCs.
    pub const fn as_str(self) -> &'static str {
        match self {
            H3ErrorCode::No => "H3_NO_ERROR",
            H3ErrorCode::GeneralProtocol => "H3_GENERAL_PROTOCOL_ERROR",
            H3ErrorCode::Internal => "H3_INTERNAL_ERROR",
            H3ErrorCode::StreamCreation => "H3_STREAM_CREATION_ERROR",
            H3ErrorCode::ClosedCriticalStream => "H3_CLOSED_CRITICAL_STREAM",
            H3ErrorCode::FrameUnexpected => "H3_FRAME_UNEXPECTED",
            H3ErrorCode::Frame => "H3_FRAME_ERROR",
            H3ErrorCode::ExcessiveLoad => "H3_EXCESSIVE_LOAD",
            H3ErrorCode::Id => "H3_ID_ERROR",
            H3ErrorCode::Settings => "H3_SETTINGS_ERROR",
            H3ErrorCode::MissingSettings => "H3_MISSING_SETTINGS",
            H3ErrorCode::RequestRejected => "H3_REQUEST_REJECTED",
            H3ErrorCode::RequestCancelled => "H3_REQUEST_CANCELLED",
            H3ErrorCode::RequestIncomplete => "H3_REQUEST_INCOMPLETE",
            H3ErrorCode::Message => "H3_MESSAGE_ERROR",
            H3ErrorCode::Connect => "H3_CONNECT_ERROR",
            H3ErrorCode::VersionFallback => "H3_VERSION_FALLBACK",
            H3ErrorCode::QpackDecompressionFailed => "QPACK_DECOMPRESSION_FAILED",
            H3ErrorCode::QpackEncoderStream => "QPACK_ENCODER_STREAM_ERROR",
            H3ErrorCode::QpackDecoderStream => "QPACK_DECODER_STREAM_ERROR",
        }
    }
}

/// Why a connection ends: the peer's fault, which the caller reports to it by closing the connection with this code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct H3Failure {
    /// The error code that the peer gets.
    pub code: H3ErrorCode,
    /// What the log says after "client" or "upstream".
    pub reason: &'static str,
    /// The limit that was overrun, if it was one.
    pub abuse: Option<H3Abuse>,
}

impl H3Failure {
    pub(crate) const fn new(code: H3ErrorCode, reason: &'static str) -> H3Failure {
        H3Failure { code, reason, abuse: None }
    }

    /// The peer closed, reset, or has asked us to stop, a stream without which there is no connection (RFC 9114 section 6.2.1, RFC
    /// 9204 section 4.2).
    pub const CLOSED_CRITICAL_STREAM: H3Failure =
        H3Failure::new(H3ErrorCode::ClosedCriticalStream, "closed critical stream");
}

impl From<QpackError> for H3Failure {
    fn from(error: QpackError) -> H3Failure {
        let abuse = match error {
            QpackError::TooLarge => Some(H3Abuse::Headers),
            QpackError::Copies => Some(H3Abuse::Table),
            _ => None,
        };
        H3Failure { code: H3ErrorCode::of(error.code()), reason: error.reason(), abuse }
    }
}

impl fmt::Display for H3Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for H3Failure {}
