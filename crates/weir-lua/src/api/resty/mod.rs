//! Libraries of lua-resty-core and others that scripts require (`resty.*`), and what they need of Rust.

pub(crate) mod aes;
pub(crate) mod digest;
