//! nginx's http modules, each in its own file: directives, settings, handlers and filters.
//!
//! They use what `weir-core` makes public and nothing else. Their order is the program's list of modules.
#![forbid(unsafe_code)]

pub mod autoindex;
pub mod index;
pub mod static_files;

pub use autoindex::Autoindex;
pub use index::Index;
pub use static_files::Static;
