//! Why a try failed: nginx's bits of `*_next_upstream`, and the status each ends in.

use weir_trace::Cause;

use weir_engine::phase::Verdict;
use weir_engine::worker::UpstreamCloseReason;

/// What went wrong with a try.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptFault {
    /// As `*_next_upstream` sees it.
    pub(crate) reason: FailureReason,
    /// As `$cause` reports it.
    pub(crate) cause: Cause,
}

/// Why the next server may be asked; one bit each, as in nginx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureReason(pub u32);

impl FailureReason {
    /// A connection failed: refused, reset, closed.
    pub const ERROR: FailureReason = FailureReason(0x0002);
    /// Something took too long.
    pub const TIMEOUT: FailureReason = FailureReason(0x0004);
    /// What came is not a response.
    pub const INVALID_HEADER: FailureReason = FailureReason(0x0008);
    /// The status 500.
    pub(crate) const HTTP_500: FailureReason = FailureReason(0x0010);
    /// The status 502.
    pub(crate) const HTTP_502: FailureReason = FailureReason(0x0020);
    /// The status 503.
    pub(crate) const HTTP_503: FailureReason = FailureReason(0x0040);
    /// The status 504.
    pub(crate) const HTTP_504: FailureReason = FailureReason(0x0080);
    /// The status 403.
    pub(crate) const HTTP_403: FailureReason = FailureReason(0x0100);
    /// The status 404.
    pub const HTTP_404: FailureReason = FailureReason(0x0200);
    /// The status 429.
    pub(crate) const HTTP_429: FailureReason = FailureReason(0x0400);
    /// Requests that must not be repeated are repeated all the same.
    pub const NON_IDEMPOTENT: FailureReason = FailureReason(0x4000);
    /// No server is available.
    pub(crate) const NO_LIVE: FailureReason = FailureReason(0x4000_0000);
    /// Never another.
    pub const OFF: FailureReason = FailureReason(0x8000_0000);

    /// The words of `*_next_upstream` and `*_cache_use_stale`. As in nginx each takes the other's one word, too, which says
    /// nothing there.
    pub const WORDS: [(&str, u32); 13] = [
        ("error", FailureReason::ERROR.0),
        ("timeout", FailureReason::TIMEOUT.0),
        ("invalid_header", FailureReason::INVALID_HEADER.0),
        ("non_idempotent", FailureReason::NON_IDEMPOTENT.0),
        ("http_500", FailureReason::HTTP_500.0),
        ("http_502", FailureReason::HTTP_502.0),
        ("http_503", FailureReason::HTTP_503.0),
        ("http_504", FailureReason::HTTP_504.0),
        ("http_403", FailureReason::HTTP_403.0),
        ("http_404", FailureReason::HTTP_404.0),
        ("http_429", FailureReason::HTTP_429.0),
        ("updating", crate::config::cache_directives::UPDATING),
        ("off", FailureReason::OFF.0),
    ];

    /// The reason that a response with this status is, if it can be one.
    pub fn of_status(status: u16) -> Option<FailureReason> {
        Some(match status {
            500 => FailureReason::HTTP_500,
            502 => FailureReason::HTTP_502,
            503 => FailureReason::HTTP_503,
            504 => FailureReason::HTTP_504,
            403 => FailureReason::HTTP_403,
            404 => FailureReason::HTTP_404,
            429 => FailureReason::HTTP_429,
            _ => return None,
        })
    }

    /// The status that the client gets when no other server is asked.
    pub fn status(self) -> u16 {
        match self {
            FailureReason::TIMEOUT | FailureReason::HTTP_504 => 504,
            FailureReason::HTTP_500 => 500,
            FailureReason::HTTP_503 => 503,
            FailureReason::HTTP_403 => 403,
            FailureReason::HTTP_404 => 404,
            FailureReason::HTTP_429 => 429,
            _ => 502,
        }
    }

    /// Whether it counts against the server: refusing a client, or not having a resource, does not.
    pub fn counts(self) -> bool {
        !matches!(self, FailureReason::HTTP_403 | FailureReason::HTTP_404)
    }
}

/// Why a try gave no response.
pub(crate) enum AttemptFailure {
    /// Another server may be asked.
    Next(AttemptFault),
    /// No server is asked any more.
    End(Verdict),
}

impl AttemptFailure {
    /// As [`AttemptFailure::closes`]; `unasked`: the connection was kept alive, and the server may have closed it before the
    /// request came.
    pub(crate) fn closes_kept(&self, unasked: bool) -> UpstreamCloseReason {
        match self.closes() {
            UpstreamCloseReason::BeforeResponse if unasked => UpstreamCloseReason::Idle,
            UpstreamCloseReason::Reset if unasked => UpstreamCloseReason::ResetIdle,
            reason => reason,
        }
    }

    /// Why the connection ends on which this happened.
    pub(crate) fn closes(&self) -> UpstreamCloseReason {
        match self {
            AttemptFailure::End(Verdict::Close(_)) => UpstreamCloseReason::ClientGone,
            AttemptFailure::End(_) => UpstreamCloseReason::RequestFailed,
            AttemptFailure::Next(fault) => match fault.cause {
                Cause::ReadTimeout => UpstreamCloseReason::ReadTimeout,
                Cause::SendTimeout => UpstreamCloseReason::SendTimeout,
                Cause::ConnectTimeout => UpstreamCloseReason::HandshakeTimeout,
                Cause::TlsFailed => UpstreamCloseReason::HandshakeFailed,
                Cause::ClosedBeforeResponse => UpstreamCloseReason::BeforeResponse,
                Cause::InvalidHeader | Cause::HeaderTooLarge => UpstreamCloseReason::BadResponse,
                Cause::UpstreamStatus => UpstreamCloseReason::NextServer,
                _ => UpstreamCloseReason::Reset,
            },
        }
    }
}
