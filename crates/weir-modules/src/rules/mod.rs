//! What happens to a request before it has a response: access, limits, variables, rewriting.

pub mod access;
pub mod auth_basic;
pub mod auth_request;
pub mod auth_require;
pub mod browser;
pub mod geo;
pub mod limit_conn;
pub mod limit_req;
pub mod map;
pub mod realip;
pub mod referer;
pub mod rewrite;
pub mod secure_link;
pub mod set_misc;
pub mod split_clients;
