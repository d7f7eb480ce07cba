//! The thread of an address that settles with other processes which of them reads from its sockets.

use std::io::{ErrorKind, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use weir_sys::socket::{effective_user, peer};

use super::link::{FrameReader, SiblingLink};
use super::{SocketSharing, own_tag};
use weir_engine::transport::sharing::{ProcessTag, SharedDatagram, SharingFrame};

/// Starts the thread. Where there can be none this process reads, whoever else does.
pub(super) fn start(sharing: &Arc<SocketSharing>) {
    let keeper = SharingKeeper { sharing: sharing.clone(), is_newest: true, fails_since: None };
    let builder = std::thread::Builder::new().name("weir sockets".to_owned()).stack_size(STACK);
    if let Err(error) = builder.spawn(move || keeper.run()) {
        sharing.read_alone(&error);
    }
}

struct SharingKeeper {
    sharing: Arc<SocketSharing>,
    /// No other process has asked for the reading.
    is_newest: bool,
    /// Since when neither the name nor who has it can be had.
    fails_since: Option<Instant>,
}

/// Who reads when a process asks.
enum CurrentReader {
    Nobody,
    /// The other has handed over; it has the connections of these processes.
    Former(FrameReader, Vec<ProcessTag>),
    /// It goes on reading, and hands over.
    Other(FrameReader),
}

impl SharingKeeper {
    fn run(mut self) {
        while !self.is_over() {
            let settled = match self.ask() {
                Ok(CurrentReader::Nobody) => self.listen().map(|listener| self.read(listener, None)),
                Ok(CurrentReader::Former(link, tags)) => self.take_over(link, &tags),
                Ok(CurrentReader::Other(link)) => {
                    self.hear(link);
                    Ok(())
                }
                Err(error) => Err(error),
            };
            match settled {
                Ok(()) => self.fails_since = None,
                Err(error) => {
                    if self.fails_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                        return self.sharing.read_alone(&error);
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.sharing.over.load(Relaxed)
    }

    /// Asks who reads: the newest process to hand over to it, others to get what is theirs.
    fn ask(&self) -> std::io::Result<CurrentReader> {
        let deadline = Instant::now() + GRACE;
        let socket = loop {
            match UnixStream::connect_addr(&self.name()?) {
                // Who has handed over leaves the name for a moment to those that are newer.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    if self.is_newest || Instant::now() >= deadline || self.is_over() {
                        return Ok(CurrentReader::Nobody);
                    }
                    std::thread::sleep(PAUSE);
                }
                connected => break connected?,
            }
        };
        check(&socket)?;
        let own = own_tag();
        let asks = if self.is_newest { SharingFrame::Take(own) } else { SharingFrame::Join(own) };
        (&socket).write_all(&asks.write())?;
        let mut link = FrameReader::new(socket);
        if !self.is_newest {
            return Ok(CurrentReader::Other(link));
        }
        match link.next(ANSWER) {
            Some(SharingFrame::Yours(tags)) => Ok(CurrentReader::Former(link, tags)),
            _ => Err(ErrorKind::ConnectionReset.into()),
        }
    }

    fn take_over(&mut self, link: FrameReader, tags: &[ProcessTag]) -> std::io::Result<()> {
        let link = Arc::new(SiblingLink::new(link.into_socket())?);
        self.sharing.add(tags, &link);
        let listener = self.listen().inspect_err(|_| self.sharing.lose(&link))?;
        self.sharing.say(&"from here on this process reads, in the place of another one");
        self.read(listener, Some(link));
        Ok(())
    }

    fn listen(&self) -> std::io::Result<UnixListener> {
        let listener = UnixListener::bind_addr(&self.name()?)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Has the sockets read, until another process takes that over or no socket is left. `link` leads to one that has read before.
    fn read(&mut self, listener: UnixListener, link: Option<Arc<SiblingLink>>) {
        let poller = &self.sharing.poller;
        let (mut links, mut ready) = (ReaderLinks::new(&self.sharing), Vec::new());
        if let Err(error) = poller.watch(&listener, LISTENER) {
            return self.sharing.read_alone(&error);
        }
        if let Some(link) = link {
            links.add(link);
        }
        self.sharing.set_reads(true);
        let taken = 'reading: loop {
            poller.wait(None, &mut ready);
            if self.is_over() {
                break None;
            }
            // Who does not read says nothing more: it has ended.
            links.remove(&ready);
            while let Ok((socket, _)) = listener.accept() {
                match accepted(socket) {
                    Some((SharingFrame::Take(_), link)) => break 'reading Some(link),
                    Some((SharingFrame::Join(tag), link)) => {
                        if let Ok(link) = SiblingLink::new(link.into_socket()) {
                            let link = Arc::new(link);
                            self.sharing.add(&[tag], &link);
                            links.add(link);
                        }
                    }
                    _ => {}
                }
            }
        };
        poller.forget(&listener);
        drop((links, listener));
        if let Some(link) = taken {
            self.hand_over(link);
        }
    }

    /// Another process reads from here on.
    fn hand_over(&mut self, mut link: FrameReader) {
        self.is_newest = false;
        self.sharing.set_reads(false);
        self.sharing.say(&"from here on another process reads");
        let tags = self.sharing.leave();
        if link.say(&SharingFrame::Yours(tags)).is_ok() {
            self.hear(link);
        }
    }

    /// Takes what another process hands over, until that has ended.
    fn hear(&self, mut link: FrameReader) {
        let poller = &self.sharing.poller;
        if link.no_waiting().and_then(|()| poller.watch(&link, LISTENER)).is_err() {
            return;
        }
        let mut ready = Vec::new();
        let deliver = |frame| {
            if let SharingFrame::Datagram(SharedDatagram { from, here, bytes }) = frame {
                (self.sharing.deliver)(SharedDatagram { from, here, bytes: &bytes });
            }
        };
        while !self.is_over() && link.all(deliver) {
            poller.wait(None, &mut ready);
        }
        poller.forget(&link);
    }

    fn name(&self) -> std::io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(format!("weir-sockets-{:x}", self.sharing.group))
    }
}

/// The ways to processes that do not read, as long as one does; each is watched for its end.
struct ReaderLinks {
    sharing: Arc<SocketSharing>,
    links: Vec<(u64, Arc<SiblingLink>)>,
    next: u64,
}

impl ReaderLinks {
    fn new(sharing: &Arc<SocketSharing>) -> ReaderLinks {
        ReaderLinks { sharing: sharing.clone(), links: Vec::new(), next: FIRST_LINK }
    }

    fn add(&mut self, link: Arc<SiblingLink>) {
        if self.sharing.poller.watch(&*link, self.next).is_err() {
            return self.sharing.lose(&link);
        }
        self.links.push((self.next, link));
        self.next += 1;
    }

    /// Those whose tokens are `ready` lead nowhere any more.
    fn remove(&mut self, ready: &[u64]) {
        for (_, link) in self.links.extract_if(.., |(token, _)| ready.contains(token)) {
            self.sharing.poller.forget(&*link);
            self.sharing.lose(&link);
        }
    }
}

impl Drop for ReaderLinks {
    fn drop(&mut self) {
        self.links.iter().for_each(|(_, link)| self.sharing.poller.forget(&**link));
    }
}

/// What a process says that has come, if it may.
fn accepted(socket: UnixStream) -> Option<(SharingFrame, FrameReader)> {
    check(&socket).ok()?;
    let mut link = FrameReader::new(socket);
    link.next(ANSWER).map(|frame| (frame, link))
}

/// Whether the process at the other end is one of this user's, or of root's.
fn check(socket: &UnixStream) -> std::io::Result<()> {
    let user = peer(socket)?.uid;
    if user == effective_user() || user == 0 { Ok(()) } else { Err(ErrorKind::PermissionDenied.into()) }
}

const LISTENER: u64 = 0;
const FIRST_LINK: u64 = 1;
/// A process that reads answers at once.
const ANSWER: Duration = Duration::from_secs(1);
/// How long nobody may read before one reads that has handed over.
const GRACE: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(10);
/// How long the name may be nobody's of ours before this process reads without it.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of the thread's stack.
const STACK: usize = 128 << 10;
