//! Handlers that pass requests to upstream servers.

pub(crate) mod answer_head;
pub(crate) mod cgi;
pub(crate) mod family_rows;
pub mod fastcgi;
pub mod fastcgi_spawn;
pub mod grpc;
pub mod memcached;
pub mod mirror;
pub mod proxy;
pub mod scgi;
pub mod tunnel;
pub mod uwsgi;
