//! A virtual server on one worker: its settings, its plan and those of its locations.

use std::rc::Rc;
use std::sync::Arc;

use super::Plan;
use super::location::LocationSet;
use super::tables::RequestTables;
use crate::exchange::reuse::RequestCaches;
use crate::name_map::NameMap;
use crate::settings::http2::Http2Settings;
use crate::settings::http3::Http3Settings;
use crate::settings::server::ServerSettings;
use crate::typed_values::TypedValues;
use crate::worker::generation::ConfigurationLink;

/// A virtual server on one worker.
pub struct VirtualServer {
    /// Its first name (`$server_name`); empty if it has none.
    pub name: Rc<[u8]>,
    /// Settings that hold before a location is known.
    pub settings: ServerSettings,
    /// The settings of HTTP/2.
    pub http2: Http2Settings,
    /// The settings of HTTP/3 and QUIC.
    pub http3: Http3Settings,
    /// Runs post-read and server-rewrite, and requests without a location.
    pub plan: Rc<Plan>,
    pub(crate) locations: LocationSet,
    pub(crate) named: NameMap<Rc<Plan>>,
    /// See [`VirtualServer::part`].
    pub(crate) parts: TypedValues,
    pub(crate) link: Rc<ConfigurationLink>,
    pub(crate) tables: Arc<RequestTables>,
    /// See [`RequestCaches`].
    pub(crate) caches: Rc<RequestCaches>,
    pub(crate) plain: bool,
}

impl VirtualServer {
    /// Nothing runs between the choice of the server and that of the location, and that one takes no regular expression.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// There is a newer configuration than the server's: what is cached of it would keep it, and its scripts.
    pub(crate) fn is_retired(&self) -> bool {
        self.link.retired.get()
    }

    /// What a module has added to the server ([`BuildHooks::server_part`](crate::module::BuildHooks::server_part));
    /// `None` if no module adds a `P`.
    pub fn part<P: 'static>(&self) -> Option<&P> {
        self.parts.find()
    }

    /// The configuration the server belongs to.
    pub fn generation(&self) -> Rc<ConfigurationLink> {
        self.link.clone()
    }

    /// The variables that its requests have.
    pub fn tables(&self) -> &RequestTables {
        &self.tables
    }

    /// The plan of the named location `name`, with its `@`; `None` if the server does not have it.
    pub fn named(&self, name: &[u8]) -> Option<Rc<Plan>> {
        self.named.get(name).cloned()
    }
}
