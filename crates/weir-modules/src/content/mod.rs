//! Handlers that make responses by themselves.

pub mod autoindex;
pub mod compress_static;
pub mod dav;
pub mod echo;
pub mod empty_gif;
pub mod flv;
pub mod index;
pub mod internal_redirect;
pub mod mp4;
pub mod random_index;
pub mod static_files;
pub mod status_json;
pub mod stub_status;
pub mod try_files;
