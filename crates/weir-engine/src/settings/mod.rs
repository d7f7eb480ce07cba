//! What directives set, as requests, connections and workers read it: resolved, with nginx's defaults. The directives
//! themselves are in [`conf`](crate::conf).

pub mod http2;
pub mod http3;
pub mod listen;
pub mod location;
pub(crate) mod location_list;
pub mod main;
pub mod server;
pub mod server_name;
pub mod session;
