//! Sockets of datagrams that several processes have: after a binary upgrade, and where a reload has started another server process.
//!
//! One of the processes reads, the one that began last; it hands over what belongs to the others' connections, by unix sockets, and
//! each sends by itself. Who reads listens on an abstract unix name (unix(7)), which has the number of the address' first socket in
//! it (SO_COOKIE), since that is the same in all of them. A process that begins connects to that name and asks for the reading; its
//! connection becomes the way on which it hands over. When the process that reads has ended, so have these connections, and one of
//! those that are left takes the name. Nobody is let in but processes of the same user, and root's.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use weir_engine::log::{self, LogLevel};
use weir_engine::transport::sharing::{self, ProcessTag, SharedDatagram};
use weir_rt::net::SockAddr;
use weir_rt::poller::Poller;

use link::SiblingLink;

mod keeper;
mod link;
#[cfg(test)]
mod tests;

/// Gives a datagram that came from another process to whom it belongs.
pub(crate) type DeliverDatagram = fn(SharedDatagram<&[u8]>);

/// The sockets of an address, as this process has them.
pub(crate) struct SocketSharing {
    /// The cookie of the first socket.
    group: u64,
    /// For the log.
    address: SockAddr,
    deliver: DeliverDatagram,
    reads: AtomicBool,
    /// No socket is left.
    over: AtomicBool,
    poller: Poller,
    siblings: Mutex<Vec<SiblingProcess>>,
    members: Mutex<Vec<SharingMember>>,
}

/// A socket of this process.
struct SharingMember {
    id: u64,
    /// Called when it is to begin or to end reading.
    changed: Box<dyn Fn() + Send>,
}

/// A process that has connections on these sockets, and does not read.
struct SiblingProcess {
    tag: ProcessTag,
    way: SiblingWay,
}

enum SiblingWay {
    Link(Arc<SiblingLink>),
    /// It can't be reached any more. Until then it may come back on another way, and its clients are not told that their
    /// connections are gone.
    LostUntil(Instant),
}

/// That a socket takes part, as long as it is there.
pub(crate) struct SharedSocket {
    sharing: Arc<SocketSharing>,
    id: u64,
}

/// What this process takes part in.
static ALL: Mutex<Vec<Weak<SocketSharing>>> = Mutex::new(Vec::new());

/// That of this process, drawn when it is asked for first.
pub(crate) fn own_tag() -> ProcessTag {
    static OWN: OnceLock<ProcessTag> = OnceLock::new();
    *OWN.get_or_init(|| {
        let random = weir_tls::random_bytes().expect("a system without random bytes has no TLS either");
        ProcessTag(random)
    })
}

impl SharedSocket {
    /// Takes part with a socket of the address whose first socket has the cookie `group`. `changed` is called, by any thread, when
    /// [`SharedSocket::reads`] has changed.
    pub(crate) fn enter(
        group: u64,
        address: &SockAddr,
        deliver: DeliverDatagram,
        changed: impl Fn() + Send + 'static,
    ) -> SharedSocket {
        let mut all = lock(&ALL);
        all.retain(|sharing| sharing.strong_count() > 0);
        let mut open = all.iter().filter_map(Weak::upgrade).filter(|it| !it.over.load(Relaxed));
        let known = open.find(|it| it.group == group);
        drop(open);
        let sharing = known.unwrap_or_else(|| {
            let begun = SocketSharing::begin(group, address, deliver);
            all.push(Arc::downgrade(&begun));
            begun
        });
        let mut members = lock(&sharing.members);
        let id = members.last().map_or(0, |last| last.id + 1);
        members.push(SharingMember { id, changed: Box::new(changed) });
        drop(members);
        SharedSocket { sharing, id }
    }

    /// Whether this process is to read from the socket.
    pub(crate) fn reads(&self) -> bool {
        self.sharing.reads.load(Relaxed)
    }

    /// Hands a datagram over to the process `tag`; `false`: there is none.
    pub(crate) fn forward(
        &self,
        tag: ProcessTag,
        from: SocketAddr,
        here: Option<IpAddr>,
        bytes: &[u8],
    ) -> bool {
        let link = {
            let siblings = lock(&self.sharing.siblings);
            match siblings.iter().find(|sibling| sibling.tag == tag).map(|sibling| &sibling.way) {
                None => return false,
                Some(SiblingWay::LostUntil(end)) => return Instant::now() < *end,
                Some(SiblingWay::Link(link)) => link.clone(),
            }
        };
        // What there is no room for is lost, as in a network, and sent again.
        link.send(&sharing::datagram_frame(&SharedDatagram { from, here, bytes }));
        true
    }
}

impl Drop for SharedSocket {
    fn drop(&mut self) {
        // In this order, as a socket that begins has it.
        let _all = lock(&ALL);
        let mut members = lock(&self.sharing.members);
        members.retain(|member| member.id != self.id);
        if members.is_empty() {
            self.sharing.over.store(true, Relaxed);
            self.sharing.poller.wake();
        }
    }
}

impl SocketSharing {
    fn begin(group: u64, address: &SockAddr, deliver: DeliverDatagram) -> Arc<SocketSharing> {
        let poller = Poller::new().expect("a process without a descriptor has no socket either");
        let sharing = Arc::new(SocketSharing {
            group,
            address: address.clone(),
            deliver,
            reads: AtomicBool::new(false),
            over: AtomicBool::new(false),
            poller,
            siblings: Mutex::default(),
            members: Mutex::default(),
        });
        keeper::start(&sharing);
        sharing
    }

    /// From here on this process reads, or does not.
    fn set_reads(&self, reads: bool) {
        if self.reads.swap(reads, Relaxed) != reads {
            lock(&self.members).iter().for_each(|member| (member.changed)());
        }
    }

    /// What is for `tags` goes over `link`.
    fn add(&self, tags: &[ProcessTag], link: &Arc<SiblingLink>) {
        let mut siblings = lock(&self.siblings);
        siblings.retain(|sibling| !tags.contains(&sibling.tag));
        siblings.extend(tags.iter().map(|&tag| SiblingProcess { tag, way: SiblingWay::Link(link.clone()) }));
    }

    /// This process reads, whoever else does: the others can't be asked.
    fn read_alone(&self, error: &std::io::Error) {
        self.say(&format_args!(
            "this process reads alone, and hands over nothing that is for another one: {error}"
        ));
        self.set_reads(true);
    }

    fn say(&self, what: &dyn fmt::Display) {
        log::cycle(LogLevel::Notice, &format_args!("datagrams of {}: {what}", self.address));
    }

    /// `link` leads nowhere any more.
    fn lose(&self, link: &Arc<SiblingLink>) {
        let now = Instant::now();
        let mut siblings = lock(&self.siblings);
        siblings.retain(|sibling| !matches!(sibling.way, SiblingWay::LostUntil(end) if end <= now));
        for sibling in siblings.iter_mut() {
            if matches!(&sibling.way, SiblingWay::Link(its) if Arc::ptr_eq(its, link)) {
                sibling.way = SiblingWay::LostUntil(now + RETURN);
            }
        }
    }

    /// The processes that are known, this one first; they are forgotten.
    fn leave(&self) -> Vec<ProcessTag> {
        let siblings = std::mem::take(&mut *lock(&self.siblings));
        std::iter::once(own_tag()).chain(siblings.iter().map(|sibling| sibling.tag)).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a process that can't be reached may take to come back: it connects again at once.
const RETURN: Duration = Duration::from_secs(2);
