//! What a location needs to pass requests on.

use std::rc::Rc;
use std::sync::Arc;

use crate::config::directives::Settings;
use crate::location::peer_sites::PeerSites;
use crate::protocol::Protocol;

/// What a location needs to ask servers.
pub struct Upstream {
    /// What they speak.
    pub protocol: Rc<dyn Protocol>,
    /// The location's settings.
    pub settings: Arc<Settings>,
    /// Where a try's time goes.
    pub sites: PeerSites,
}
