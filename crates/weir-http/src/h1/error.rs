//! Why a request head is refused, with nginx's status and words for it.

use crate::header::KnownField;

/// The outcome of a request head that is not HTTP, or not HTTP this server speaks. The connection is closed after
/// the response: where the next request begins is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRequest {
    /// A byte other than `A`-`Z`, `_`, `-` in the method, or none before the space.
    InvalidMethod,
    /// HTTP/0.9 knows only `GET`.
    InvalidMethod09,
    /// A target that is no path, no absolute URI, no authority (`CONNECT`) and not `*` (`OPTIONS`), or has
    /// control bytes in it (RFC 9112 section 3.2).
    InvalidTarget,
    /// An absolute target without a host.
    InvalidHost,
    /// The text after the target is not `HTTP/1.x` and the end of the line.
    InvalidVersion,
    /// A major version above 1.
    VersionNotSupported,
    /// The request line is longer than [`HeadLimits::max_line`](super::HeadLimits::max_line).
    LineTooLong,
    /// A field line is longer than that.
    FieldTooLong,
    /// The head is longer than [`HeadLimits::max_head`](super::HeadLimits::max_head).
    HeadTooLarge,
    /// More field lines than [`HeadLimits::max_fields`](super::HeadLimits::max_fields).
    TooManyFields,
    /// A line that begins with whitespace (RFC 9112 section 5.2).
    ObsFold,
    /// Whitespace between name and colon (RFC 9112 section 5.1).
    SpaceBeforeColon,
    /// An empty name, or a control byte in it.
    InvalidName,
    /// A line without a colon.
    MissingColon,
    /// NUL in a value.
    InvalidValue,
    /// A CR that does not end a line (RFC 9112 section 2.2).
    BareCr,
    /// Two `Host` fields (RFC 9112 section 3.2).
    RepeatedHost,
    /// No `Host` in HTTP/1.1 (RFC 9112 section 3.2); found by [`RequestHead::require_host`](super::RequestHead).
    MissingHost,
    /// `Content-Length` is not a number of digits, or above 2^63-1.
    ContentLengthInvalid,
    /// Two `Content-Length` fields, equal or not.
    ContentLengthRepeated,
    /// Another field that may come once came twice.
    RepeatedField(KnownField),
    /// `Content-Length` and `Transfer-Encoding` together (RFC 9112 section 6.1).
    BothLengths,
    /// A `Transfer-Encoding` other than `chunked`.
    TransferEncodingUnknown,
    /// `Transfer-Encoding` in HTTP/1.0 (RFC 9112 section 6.1).
    TransferEncodingHttp10,
}

impl BadRequest {
    /// The status of nginx's response; 494 is sent as 400 and logged as 494.
    pub const fn status(self) -> u16 {
        match self {
            BadRequest::VersionNotSupported => 505,
            BadRequest::TransferEncodingUnknown => 501,
            BadRequest::LineTooLong => 414,
            BadRequest::FieldTooLong | BadRequest::HeadTooLarge | BadRequest::TooManyFields => 494,
            _ => 400,
        }
    }

    /// nginx's message for the error log, without the text it quotes (see [`RequestHead::log_message`] for that)
    /// and without the action.
    ///
    /// [`RequestHead::log_message`]: super::RequestHead::log_message
    pub const fn message(self) -> &'static str {
        match self {
            BadRequest::InvalidMethod => "client sent invalid method",
            BadRequest::InvalidMethod09 => "client sent invalid method in HTTP/0.9 request",
            BadRequest::InvalidTarget | BadRequest::InvalidVersion => "client sent invalid request",
            BadRequest::InvalidHost => "client sent invalid host in request line",
            BadRequest::VersionNotSupported => "client sent invalid version",
            BadRequest::LineTooLong => "client sent too long URI",
            BadRequest::FieldTooLong => "client sent too long header line",
            BadRequest::HeadTooLarge => "client sent too large request",
            BadRequest::TooManyFields => "client sent too many header lines",
            BadRequest::ObsFold
            | BadRequest::SpaceBeforeColon
            | BadRequest::InvalidName
            | BadRequest::MissingColon
            | BadRequest::InvalidValue
            | BadRequest::BareCr => "client sent invalid header line",
            BadRequest::RepeatedHost => "client sent duplicate host header",
            BadRequest::MissingHost => "client sent HTTP/1.1 request without \"Host\" header",
            BadRequest::ContentLengthInvalid => "client sent invalid \"Content-Length\" header",
            BadRequest::ContentLengthRepeated | BadRequest::RepeatedField(_) => {
                "client sent duplicate header line"
            }
            BadRequest::BothLengths => {
                "client sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time"
            }
            BadRequest::TransferEncodingUnknown => "client sent unknown \"Transfer-Encoding\"",
            BadRequest::TransferEncodingHttp10 => {
                "client sent HTTP/1.0 request with \"Transfer-Encoding\" header"
            }
        }
    }

    /// What nginx was doing, for the words after "while".
    pub const fn action(self) -> &'static str {
        match self {
            BadRequest::InvalidMethod
            | BadRequest::InvalidMethod09
            | BadRequest::InvalidTarget
            | BadRequest::InvalidHost
            | BadRequest::InvalidVersion
            | BadRequest::VersionNotSupported
            | BadRequest::LineTooLong => "reading client request line",
            _ => "reading client request headers",
        }
    }
}
