//! nginx's http modules, each in its own file: directives, settings, handlers and filters.
//!
//! They use what `weir-core` makes public and nothing else. Their order is the program's list of modules.
#![forbid(unsafe_code)]

pub mod access;
pub mod auth_basic;
pub mod auth_request;
pub mod autoindex;
mod base64;
pub mod browser;
mod cidr;
mod computed;
pub mod empty_gif;
mod expires;
mod forwarded;
pub mod geo;
pub mod headers;
mod hostnames;
pub mod index;
mod limit;
pub mod limit_conn;
pub mod limit_req;
pub mod log;
pub mod map;
mod media;
pub mod mirror;
pub mod not_modified;
mod password;
pub mod proxy;
pub mod random_index;
pub mod range;
pub mod realip;
pub mod referer;
pub mod rewrite;
pub mod secure_link;
pub mod split_clients;
pub mod ssi;
pub mod static_files;
pub mod stub_status;
pub mod sub;
pub mod temp_paths;
#[cfg(test)]
mod testing;
pub mod try_files;
pub mod userid;
mod value;

pub use access::Access;
pub use auth_basic::AuthBasic;
pub use auth_request::AuthRequest;
pub use autoindex::Autoindex;
pub use browser::Browser;
pub use empty_gif::EmptyGif;
pub use geo::Geo;
pub use headers::Headers;
pub use index::Index;
pub use limit_conn::LimitConn;
pub use limit_req::LimitReq;
pub use log::Log;
pub use map::Map;
pub use mirror::Mirror;
pub use not_modified::NotModified;
pub use proxy::Proxy;
pub use random_index::RandomIndex;
pub use range::Range;
pub use realip::Realip;
pub use referer::Referer;
pub use rewrite::Rewrite;
pub use secure_link::SecureLink;
pub use split_clients::SplitClients;
pub use ssi::Ssi;
pub use static_files::Static;
pub use stub_status::StubStatus;
pub use sub::Sub;
pub use temp_paths::TempFolders;
pub use try_files::TryFiles;
pub use userid::UserId;
