//! Two states of an exchange: what kind of request it is, or that it is a session, and what has become of its response.

use std::rc::Rc;

use super::session_bytes::SessionBytes;
use super::{Exchange, StandaloneRun};

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
    /// A session of `stream`, from its client's connection to its end.
    Session(Rc<SessionBytes>),
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

impl Exchange {
    /// The bytes of the session; `None` of a request.
    pub fn session(&self) -> Option<&Rc<SessionBytes>> {
        if let ExchangeRole::Session(bytes) = &self.role { Some(bytes) } else { None }
    }

    /// `, bytes from/to client:1/2, bytes from/to upstream:2/1`: nginx's words for what has passed.
    pub fn passed_bytes(&self) -> String {
        let Some(bytes) = self.session() else { return String::new() };
        let client = format!("{}/{}", bytes.from_client.get(), self.bytes_sent());
        let server = format!("{}/{}", bytes.from_server.get(), bytes.to_server.get());
        format!(", bytes from/to client:{client}, bytes from/to upstream:{server}")
    }

    /// Whether it is a session of `stream`.
    pub fn is_session(&self) -> bool {
        self.session().is_some()
    }
}
