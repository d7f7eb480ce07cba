//! The admin listener: everything the commands answer, as HTTP, for browsers, Prometheus, `go tool pprof` and curl.
//!
//! It has threads of its own and plain blocking sockets, so it answers while every worker is stuck. It is reached over a
//! unix socket or loopback, or from anywhere with a token; at most [`door::MOST`] connections at once.

mod connection;
mod door;
mod route;

use std::sync::{Arc, Mutex, PoisonError};

use weir_core::Configuration;

use crate::source::Source;
use door::Door;

/// The open doors; closed when dropped.
pub struct Admin {
    source: Arc<Source>,
    doors: Mutex<Vec<Door>>,
}

impl Admin {
    /// Opens what `configuration` says: see [`Admin::update`].
    #[must_use]
    pub fn start(configuration: &Configuration, source: &Arc<Source>) -> Admin {
        let admin = Admin { source: source.clone(), doors: Mutex::default() };
        admin.update(configuration);
        admin
    }

    /// Opens and closes so that there is a door for each `admin` line. One that can't be opened, perhaps because an
    /// older server still has the address, is logged and tried again: a server without it serves all the same.
    pub fn update(&self, configuration: &Configuration) {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = configuration.trace().admin();
        doors.retain(|door| lines.iter().any(|line| line.address == *door.address()));
        for line in lines {
            match doors.iter().find(|door| *door.address() == line.address) {
                Some(door) => door.set_token(line.token.clone()),
                None => doors.push(Door::open(line.address.clone(), line.token.clone(), self.source.clone())),
            }
        }
    }
}
