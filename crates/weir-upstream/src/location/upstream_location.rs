//! What a location needs to pass requests on.

use std::rc::Rc;
use std::sync::Arc;

use crate::config::directives::UpstreamSettings;
use crate::location::peer_sites::PeerSites;
use crate::protocol::UpstreamProtocol;

/// What a location needs to ask servers.
pub struct UpstreamLocation {
    /// The protocol that the servers speak.
    pub protocol: Rc<dyn UpstreamProtocol>,
    /// The location's settings.
    pub settings: Arc<UpstreamSettings>,
    /// Where a try's time goes.
    pub sites: PeerSites,
}
