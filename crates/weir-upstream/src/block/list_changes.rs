//! Members that come, go and change while the server runs: by the admin listener, or by a [`source`](crate::discovery::source).
//!
//! A change replaces the upstream's list, makes its members again and moves its version; each worker sees that with its
//! next choice (one load of a word), and makes its chooser again. No worker is asked or waited for, requests in flight
//! end where they are.

use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::{fmt, io};

use weir_http::json::{JsonValue, JsonWriter};

use crate::block::upstream::Upstream;
use crate::discovery::server_list;
use crate::discovery::server_list::{ServerEntry, ServerPlace};
use crate::peer::{Peer, PeerTier, PeerTurn};
use weir_engine::log::{self, LogLevel};

/// Why the list is as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListRefusal {
    /// What was sent is wrong: why.
    Wrong(String),
    /// There is no such server.
    Unknown,
    /// It is there already.
    There,
    /// The list is its source's.
    Sourced,
}

impl fmt::Display for ListRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ListRefusal::Wrong(why) => why,
            ListRefusal::Unknown => "there is no such server in this upstream",
            ListRefusal::There => "this server is in the upstream already",
            ListRefusal::Sourced => "the servers of this upstream are those of its source",
        })
    }
}

/// A server as it is listed, with its addresses.
#[derive(Debug)]
pub struct ListedServer {
    /// The address as it is written.
    pub server: Box<str>,
    /// What the list says of it, as a JSON object.
    pub settings: String,
    /// Its parameters, for a caller that reads no JSON; the address and state in it have no meaning.
    pub model: Peer,
    /// `backup`: it is asked only when all others fail.
    pub backup: bool,
    /// What is known of its name, if it is one.
    pub resolved: Option<ResolvedServer>,
    /// The peers of its addresses.
    pub peers: Vec<Arc<Peer>>,
}

/// What name servers said.
#[derive(Clone, Copy, Debug)]
pub struct ResolvedServer {
    /// Milliseconds since they did; `None`: they have not yet.
    pub age: Option<u64>,
    /// True when it is out of date: no newer list is to be had.
    pub stale: bool,
}

impl Upstream {
    /// The servers as they are listed now.
    pub fn listed(&self) -> Vec<ListedServer> {
        let (list, members) = {
            let origins = self.origins();
            (origins.list.clone(), self.members())
        };
        let primary = members.primary.iter().map(|peer| (peer.clone(), false));
        let mut peers: Vec<_> =
            primary.chain(members.backup.iter().map(|peer| (peer.clone(), true))).collect();
        let listed = |origin: &ServerEntry| {
            // Several lines may name one server: each has as many peers as it made.
            let mut left = origin.peers().len();
            let own = peers.extract_if(.., |(peer, backup)| {
                let own = left > 0 && origin.has_made(peer, *backup);
                left -= usize::from(own);
                own
            });
            let own = own.map(|(peer, _)| peer).collect();
            let mut json = JsonWriter::default();
            origin.write(&mut json);
            let resolved = match &origin.place {
                ServerPlace::Fixed(_) => None,
                ServerPlace::Name(named) => {
                    let last = named.last();
                    let stale = last.as_ref().is_some_and(|(answer, _)| answer.stale);
                    Some(ResolvedServer { age: last.map(|(_, age)| age), stale })
                }
            };
            let model = origin.model.clone();
            let server = model.server.clone();
            ListedServer { server, settings: json.into(), model, backup: origin.backup, resolved, peers: own }
        };
        list.iter().map(listed).collect()
    }

    /// Number of idle connections to the upstream that any worker may take.
    pub fn idle_of_all(&self) -> u64 {
        self.idle.count() as u64
    }

    /// Whether the list was changed at run time.
    pub(crate) fn is_moved(&self) -> bool {
        self.origins().moved
    }

    /// Adds a server: a string or an object, see docs/reference/admin.yaml.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn add(self: &Arc<Self>, server: &JsonValue) -> Result<(), ListRefusal> {
        let origin = ServerEntry::read(server).map_err(ListRefusal::Wrong)?;
        self.change(|list| {
            if list.iter().any(|known| known.model.server == origin.model.server) {
                return Err(ListRefusal::There);
            }
            list.push(origin);
            Ok(())
        })
    }

    /// Takes a server out, named as it is written or by its address. Its requests end, its idle connections close.
    ///
    /// # Errors
    /// It is absent.
    pub fn remove(self: &Arc<Self>, server: &str) -> Result<(), ListRefusal> {
        self.change(|list| {
            let before = list.len();
            list.retain(|origin| !origin.is(server));
            if list.len() < before { Ok(()) } else { Err(ListRefusal::Unknown) }
        })
    }

    /// Changes what is said of a server: `{"weight": 3, "drain": true}`.
    ///
    /// # Errors
    /// It is absent, or what is wrong with the object.
    pub fn edit(self: &Arc<Self>, server: &str, settings: &JsonValue) -> Result<(), ListRefusal> {
        let JsonValue::Object(fields) = settings else {
            return Err(ListRefusal::Wrong("settings are an object".to_owned()));
        };
        if fields.iter().any(|(key, _)| matches!(&**key, "server" | "service")) {
            return Err(ListRefusal::Wrong("another server is added, not set".to_owned()));
        }
        self.change(|list| {
            let mut found = Err(ListRefusal::Unknown);
            for origin in list.iter_mut().filter(|origin| origin.is(server)) {
                found = origin.set(fields).map_err(ListRefusal::Wrong);
            }
            found
        })?;
        if fields.iter().any(|(key, _)| key == "down") {
            let members = self.members();
            let named = |peer: &&Arc<Peer>| *peer.server == *server || *peer.name == *server;
            members.all().filter(named).for_each(|peer| peer.turn_as_listed());
        }
        Ok(())
    }

    /// Turns peer number `id` of the backup or the primary ones, counted from 0, down or up again, for all workers
    /// and until the list sets `down` itself ([`Upstream::edit`]). Returns `false` if there is no such peer.
    pub fn turn(&self, tier: PeerTier, id: usize, turn: PeerTurn) -> bool {
        let members = self.members();
        let peers = match tier {
            PeerTier::Primary => &members.primary,
            PeerTier::Backup => &members.backup,
        };
        let Some(peer) = peers.get(id) else { return false };
        peer.turn(turn);
        self.changes.tell();
        true
    }

    /// Takes another list for the whole of it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn replace(self: &Arc<Self>, list: &JsonValue) -> Result<(), ListRefusal> {
        let new = server_list::read(list).map_err(ListRefusal::Wrong)?;
        self.change(|list| {
            *list = new;
            Ok(())
        })
    }

    fn change(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Vec<ServerEntry>) -> Result<(), ListRefusal>,
    ) -> Result<(), ListRefusal> {
        if self.source.is_some() {
            return Err(ListRefusal::Sourced);
        }
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list: Vec<ServerEntry> = self.origins().list.clone();
        change(&mut list)?;
        self.take_list(list)?;
        self.keep_list();
        Ok(())
    }

    /// Takes `list` into use.
    pub(crate) fn take_list(self: &Arc<Self>, list: Vec<ServerEntry>) -> Result<(), ListRefusal> {
        self.fits(&list).map_err(ListRefusal::Wrong)?;
        let mut origins = self.origins();
        origins.list = list;
        origins.moved = true;
        self.rebuild(&origins, &self.members());
        drop(origins);
        self.follow_new();
        Ok(())
    }

    /// Whether the upstream can have these servers.
    pub(crate) fn fits(&self, list: &[ServerEntry]) -> Result<(), String> {
        let general = self.method.is_general();
        for origin in list {
            if matches!(origin.place, ServerPlace::Name(_)) {
                self.may_ask()?;
            }
            let missing = if origin.backup { "backup" } else { "slow_start" };
            if !general && (origin.backup || origin.model.slow_start > 0) {
                return Err(format!("balancing method does not support parameter \"{missing}\""));
            }
        }
        Ok(())
    }

    /// Writes the list to its file; what can't be written is logged.
    pub(crate) fn keep_list(&self) {
        let Some(path) = &self.kept else { return };
        let text = server_list::write(&self.origins().list);
        if let Err(error) = keep(path, &text) {
            let (name, path) = (&self.name, path.display());
            log::cycle(
                LogLevel::Error,
                &format_args!("the servers of upstream \"{name}\" can't be kept in \"{path}\": {error}"),
            );
        }
    }

    /// The stored list, if it exists and can be read. One that can't is logged, and treated as absent.
    pub(crate) fn kept_list(&self) -> Option<Vec<ServerEntry>> {
        let path = self.kept.as_ref()?;
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                self.complain(path, &error);
                return None;
            }
        };
        let list = JsonValue::parse(&text)
            .map_err(|error| error.to_string())
            .and_then(|value| server_list::read(&value));
        list.map_err(|error| self.complain(path, &error)).ok()
    }

    fn complain(&self, path: &Path, error: &dyn fmt::Display) {
        let (name, path) = (&self.name, path.display());
        log::cycle(
            LogLevel::Error,
            &format_args!("the servers of upstream \"{name}\" kept in \"{path}\" can't be read: {error}"),
        );
    }
}

/// Replaces a file as a whole: a reader finds the old text or the new one.
fn keep(path: &Path, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    weir_rt::file::replace_file(path, Path::new(&beside), 0o644, text.as_bytes())
}
