//! The key exchange group of a session, stored with the session: in TLS 1.2 one that is resumed has no key exchange of
//! its own, and OpenSSL names the earlier one's group (`$ssl_curve`). rustls keeps no such thing in its sessions, so
//! the number of the group goes before them in tickets and caches.

use std::sync::Arc;

use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::server::{ProducesTickets, StoresServerSessions};
use rustls::{Error, NamedGroup, ProtocolVersion};

use crate::session::{HandshakeNotes, ResumedFrom};
use crate::suites;

/// The groups, wrapped so that the one that is used is noted with the session.
pub(crate) fn noted(groups: &[&'static dyn SupportedKxGroup]) -> Vec<&'static dyn SupportedKxGroup> {
    let noted = |group: &&'static dyn SupportedKxGroup| {
        let own = NOTED.iter().find(|it| it.0 == group.name());
        own.map_or(*group, |it| it as &'static dyn SupportedKxGroup)
    };
    groups.iter().map(noted).collect()
}

/// Those that [`suites::group_of`] has.
static NOTED: [NotedGroup; 5] = [
    NotedGroup(NamedGroup::X25519MLKEM768),
    NotedGroup(NamedGroup::X25519),
    NotedGroup(NamedGroup::secp256r1),
    NotedGroup(NamedGroup::secp384r1),
    NotedGroup(NamedGroup::secp521r1),
];

/// A group that is noted when it is used.
#[derive(Debug)]
struct NotedGroup(NamedGroup);

impl NotedGroup {
    fn own(&self) -> Result<&'static dyn SupportedKxGroup, Error> {
        HandshakeNotes::note_group(u16::from(self.0));
        suites::group_of(self.0).ok_or_else(|| Error::General("a group is absent".to_owned()))
    }
}

impl SupportedKxGroup for NotedGroup {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        self.own()?.start()
    }

    fn start_and_complete(&self, peer: &[u8]) -> Result<CompletedKeyExchange, Error> {
        self.own()?.start_and_complete(peer)
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        self.0
    }

    fn fips(&self) -> bool {
        suites::group_of(self.0).is_some_and(SupportedKxGroup::fips)
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        suites::group_of(self.0).is_some_and(|group| group.usable_for_version(version))
    }
}

/// Tickets, or a cache, whose sessions have the number of their group before them.
#[derive(Debug)]
pub(crate) struct WithGroup<T: ?Sized>(pub(crate) Arc<T>);

/// `session` with the number of the group that this handshake uses.
fn with_group(session: &[u8]) -> Vec<u8> {
    [&HandshakeNotes::group().to_be_bytes()[..], session].concat()
}

/// The session alone; its group is noted, and where it was.
fn without_group(kept: Vec<u8>, found: ResumedFrom) -> Option<Vec<u8>> {
    let (group, session) = kept.split_first_chunk()?;
    HandshakeNotes::note_group(u16::from_be_bytes(*group));
    HandshakeNotes::note_found(found);
    Some(session.to_vec())
}

impl<T: ProducesTickets + ?Sized> ProducesTickets for WithGroup<T> {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        self.0.encrypt(&with_group(session))
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.0.decrypt(ticket).and_then(|kept| without_group(kept, ResumedFrom::Ticket))
    }
}

impl<T: StoresServerSessions + ?Sized> StoresServerSessions for WithGroup<T> {
    fn put(&self, id: Vec<u8>, session: Vec<u8>) -> bool {
        self.0.put(id, with_group(&session))
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.0.get(id).and_then(|kept| without_group(kept, ResumedFrom::Cache))
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.0.take(id).and_then(|kept| without_group(kept, ResumedFrom::Cache))
    }

    fn can_cache(&self) -> bool {
        self.0.can_cache()
    }
}
