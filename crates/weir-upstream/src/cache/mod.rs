//! Responses cached in files, of all workers and through reloads (`proxy_cache_path` and its like).
//!
//! ```text
//!  Hot (one per worker)      heads and small bodies, in memory; asks the disk once per turn whether its file is
//!    │ not there, or old     still the one that was read
//!    ▼
//!  Index (one per zone)      what is cached, since when unused, which request fetches it again, which wait
//!    │
//!    ▼
//!  directory/c/29/b7f54b2df7773722d382f4809d65029c     a Head, the response's own head, the body
//! ```
//!
//! A file is written aside and renamed when it is whole, so that a crash leaves no half ones; it is read with the
//! suspicion that anybody may have written it. The [`keeper`] is the thread that reads the directory when the server
//! starts and removes what is not requested. What a response may be cached for and when it may be used is no business
//! of this part: that is [`upstream`](crate)'s.

mod body;
pub mod head;
pub mod hot;
pub(crate) mod hot_source;
mod index;
pub mod keeper;
mod key;
pub mod place;
mod read;
mod ticket;
pub mod write;

pub use index::{CacheIndex, CacheLookupResult};
pub use key::{CacheKey, variant};
pub use place::{CacheZone, CacheZones};
pub use ticket::{CacheTicket, CacheTurn};

#[cfg(test)]
mod tests;
