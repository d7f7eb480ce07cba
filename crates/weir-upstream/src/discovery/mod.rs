//! Where the servers of an upstream come from: lines of the configuration, names in the DNS, and sources that are read at
//! run time.

pub mod source;

pub(crate) mod dns;
pub mod server_address;
pub(crate) mod server_list;
