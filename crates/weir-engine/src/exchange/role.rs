//! Two states of an exchange: what kind of request it is, and what has become of its response.

use super::StandaloneRun;

/// What an exchange is of.
#[derive(Default)]
pub(crate) enum ExchangeRole {
    /// A client's request.
    #[default]
    Request,
    /// A subrequest of a request.
    Subrequest,
    /// No request: what runs by itself.
    Alone(StandaloneRun),
}

/// What has become of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ResponseDelivery {
    /// It has not been handed over as a whole, and may never be.
    #[default]
    Open,
    /// All of it was handed over (`$request_completion`).
    Whole,
    /// No response: the connection is closed without one, on purpose ([`Exchange::abandon`]).
    ///
    /// [`Exchange::abandon`]: super::Exchange::abandon
    Abandoned,
}
