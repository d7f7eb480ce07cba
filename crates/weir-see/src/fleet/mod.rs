//! Several servers: what they have counted, fetched from their admin listeners. `weir top --hosts` adds it up for a
//! command, the page of an admin listener for a browser.

pub(crate) mod fetch;
mod host_tables;
pub(crate) mod host_totals;
pub(crate) mod watch;
