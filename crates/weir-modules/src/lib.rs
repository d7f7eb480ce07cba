//! nginx's http modules, each in its own file: directives, settings, handlers and filters.
//!
//! They use what `weir-engine` makes public and nothing else. Their order is the program's list of modules.
#![forbid(unsafe_code)]

pub mod content;
pub mod filters;
#[doc(hidden)]
pub mod fuzzed;
pub mod gateway;
pub mod log;
pub mod otel;
pub mod rules;
pub mod session;
mod support;
#[cfg(test)]
mod testing;

pub use content::autoindex::Autoindex;
pub use content::compress_static::CompressStatic;
pub use content::dav::Dav;
pub use content::echo::Echo;
pub use content::empty_gif::EmptyGif;
pub use content::flv::Flv;
pub use content::index::Index;
pub use content::internal_redirect::RedirectInside;
pub use content::mp4::Mp4;
pub use content::random_index::RandomIndex;
pub use content::static_files::Static;
pub use content::status_json::StatusJson;
pub use content::stub_status::StubStatus;
pub use content::try_files::TryFiles;
pub use filters::addition::Addition;
pub use filters::brotli::Brotli;
pub use filters::charset::Charset;
pub use filters::compress_hint::CompressHint;
pub use filters::early_hint::EarlyHint;
pub use filters::edit_headers::EditHeaders;
pub use filters::gunzip::Gunzip;
pub use filters::gzip::Gzip;
pub use filters::headers::Headers;
pub use filters::headers_more::HeadersMore;
pub use filters::not_modified::NotModified;
pub use filters::range::Range;
pub use filters::reproxy::Reproxy;
pub use filters::slice::Slice;
pub use filters::ssi::Ssi;
pub use filters::sub::Sub;
pub use filters::subs::Subs;
pub use filters::throttle_response::ThrottleResponse;
pub use filters::trace_header::TraceHeader;
pub use filters::userid::UserId;
pub use filters::zstd::Zstd;
pub use gateway::fastcgi::FastCgi;
pub use gateway::fastcgi_spawn::FastCgiSpawn;
pub use gateway::grpc::Grpc;
pub use gateway::memcached::Memcached;
pub use gateway::mirror::Mirror;
pub use gateway::proxy::Proxy;
pub use gateway::scgi::Scgi;
pub use gateway::tunnel::Tunnel;
pub use gateway::uwsgi::Uwsgi;
pub use log::Log;
pub use log::profile_key::ProfileKey;
pub use otel::Otel;
pub use rules::access::Access;
pub use rules::auth_basic::AuthBasic;
pub use rules::auth_request::AuthRequest;
pub use rules::auth_require::AuthRequire;
pub use rules::browser::Browser;
pub use rules::geo::Geo;
pub use rules::limit_conn::LimitConn;
pub use rules::limit_req::LimitReq;
pub use rules::map::Map;
pub use rules::realip::Realip;
pub use rules::referer::Referer;
pub use rules::rewrite::Rewrite;
pub use rules::secure_link::SecureLink;
pub use rules::set_misc::SetMisc;
pub use rules::split_clients::SplitClients;
pub use session::core::StreamCore;
pub use session::pass::StreamPass;
pub use session::proxy::StreamProxy;
pub use session::returned::StreamReturn;
