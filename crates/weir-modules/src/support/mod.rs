//! What several modules use.

pub(crate) mod computed;
pub(crate) mod forwarded;
pub(crate) mod hostnames;
pub(crate) mod limit;
pub(crate) mod moment;
pub(crate) mod password;
pub(crate) mod value;
