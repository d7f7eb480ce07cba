//! The admin listener: everything the commands show, as HTTP, for browsers, Prometheus, `go tool pprof` and curl.
//!
//! It has threads of its own and plain blocking sockets, so it responds while every worker is stuck. It is reached over
//! a unix socket or loopback, or from anywhere with a token; at most [`listener::MOST`] connections at once that may
//! ask.

mod connection;
mod known_names;
mod listener;
mod page;
mod recordings;
mod route;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use weir_engine::Configuration;

use crate::fleet::watch::FleetWatch;
use crate::responses::history;
use crate::source::ServerSource;
use listener::{AdminListener, AdminSocket};

/// The open doors; closed when dropped.
pub struct AdminListeners {
    source: Arc<ServerSource>,
    hosts: Arc<FleetWatch>,
    doors: Mutex<Vec<AdminListener>>,
}

/// Listeners that are bound while this process still may, and not served yet.
pub struct BoundListeners(Vec<(weir_engine::trace::AdminLine, io::Result<AdminSocket>)>);

impl BoundListeners {
    /// Binds what the `admin` lines of `configuration` name. Unix sockets are given to `owner`, the user that the server
    /// will run as, if one is named.
    #[must_use]
    pub fn new(configuration: &Configuration, owner: Option<u32>) -> BoundListeners {
        let bind =
            |line: &weir_engine::trace::AdminLine| (line.clone(), AdminSocket::bind(&line.address, owner));
        BoundListeners(configuration.trace().admin().iter().map(bind).collect())
    }

    /// Serves them, out of `source`. What could not be bound is logged and tried again, since an older server may
    /// still have the address: a server without its admin listener serves all the same.
    #[must_use]
    pub fn open(self, source: &Arc<ServerSource>) -> AdminListeners {
        let hosts = Arc::<FleetWatch>::default();
        let open = |(line, listener): (weir_engine::trace::AdminLine, _)| {
            AdminListener::open(line.address, listener, line.token, DoorSources::new(source, &hosts))
        };
        let doors: Vec<AdminListener> = self.0.into_iter().map(open).collect();
        if !doors.is_empty() {
            history::remember(source);
        }
        AdminListeners { source: source.clone(), hosts, doors: Mutex::new(doors) }
    }
}

/// What responses of a door are made from.
struct DoorSources {
    server: Arc<ServerSource>,
    /// Other servers.
    hosts: Arc<FleetWatch>,
}

impl DoorSources {
    fn new(server: &Arc<ServerSource>, hosts: &Arc<FleetWatch>) -> DoorSources {
        DoorSources { server: server.clone(), hosts: hosts.clone() }
    }
}

impl AdminListeners {
    /// Where browsers find the page, as far as the addresses could be had at the start.
    #[must_use]
    pub fn pages(&self) -> Vec<String> {
        let doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        doors.iter().filter_map(AdminListener::page).collect()
    }

    /// Opens and closes so that there is a door for each `admin` line of a new configuration. Sockets in directories
    /// that only root may write to can't be opened any more; they are with the next start.
    pub fn update(&self, configuration: &Configuration) {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = configuration.trace().admin();
        if !lines.is_empty() {
            history::remember(&self.source);
        }
        doors.retain(|door| lines.iter().any(|line| line.address == *door.address()));
        for line in lines {
            match doors.iter().find(|door| *door.address() == line.address) {
                Some(door) => door.set_token(line.token.clone()),
                None => {
                    let listener = AdminSocket::bind(&line.address, None);
                    let (address, token) = (line.address.clone(), line.token.clone());
                    let sources = DoorSources::new(&self.source, &self.hosts);
                    doors.push(AdminListener::open(address, listener, token, sources));
                }
            }
        }
    }
}
