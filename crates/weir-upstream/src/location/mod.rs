//! What a location needs to pass requests on.

pub(crate) mod peer_sites;
pub(crate) mod upstream_location;
