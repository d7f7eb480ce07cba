//! A name server with the answers a test gives it.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::DEADLINE;
use crate::port::free_listener;

/// A name server on a port of 127.0.0.1, over UDP and TCP. Dropped, it ends.
pub struct NameServer {
    shared: Arc<NameServerState>,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedName {
    /// The name, as it was asked for.
    pub name: String,
    /// The type's number: 1 A, 28 AAAA, 33 SRV.
    pub kind: u16,
    /// It came over TCP.
    pub stream: bool,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameReply {
    /// Those of the addresses that are of the type asked for, which hold this many seconds.
    Addresses(Vec<IpAddr>, u32),
    /// A service: priority, weight, port and name of each server; they hold this many seconds.
    Services(Vec<(u16, u16, u16, &'static str)>, u32),
    /// An error's code: 2 failure, 3 no such name.
    Code(u8),
    /// That the response is to be had over TCP.
    Cut,
    /// Nothing at all.
    Silence,
}

type NameBehaviour = Box<dyn Fn(&AskedName) -> NameReply + Send>;

struct NameServerState {
    behave: Mutex<NameBehaviour>,
    asked: AtomicUsize,
    over: AtomicBool,
}

/// How often the threads look whether they are to end.
const LOOK: Duration = Duration::from_millis(20);

impl NameServer {
    /// Starts one.
    ///
    /// # Panics
    /// When no port is free for both protocols.
    pub fn start(behave: impl Fn(&AskedName) -> NameReply + Send + 'static) -> NameServer {
        let bind = |_| {
            let tcp = free_listener();
            Some((UdpSocket::bind(tcp.local_addr().ok()?).ok()?, tcp))
        };
        let (udp, tcp) = (0..50).find_map(bind).expect("a port that is free for UDP and TCP");
        let address = udp.local_addr().expect("bound above");
        udp.set_read_timeout(Some(LOOK)).expect("a valid timeout");
        tcp.set_nonblocking(true).expect("a socket of our own");
        let shared = Arc::new(NameServerState {
            behave: Mutex::new(Box::new(behave)),
            asked: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        });
        let (one, other) = (shared.clone(), shared.clone());
        let threads = vec![
            std::thread::spawn(move || one.datagrams(&udp)),
            std::thread::spawn(move || other.streams(&tcp)),
        ];
        NameServer { shared, address, threads }
    }

    /// Replaces the answers from now on.
    pub fn set(&self, behave: impl Fn(&AskedName) -> NameReply + Send + 'static) {
        *self.shared.behave.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(behave);
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many questions have come.
    pub fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::SeqCst)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl NameServerState {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn datagrams(&self, socket: &UdpSocket) {
        let mut buffer = [0; 4096];
        while !self.is_over() {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
            if let Some(reply) = self.answer(&buffer[..length], false) {
                // The asker may have gone.
                let _ = socket.send_to(&reply, from);
            }
        }
    }

    fn streams(self: &Arc<Self>, listener: &TcpListener) {
        while !self.is_over() {
            let Ok((stream, _)) = listener.accept() else {
                std::thread::sleep(LOOK);
                continue;
            };
            let shared = self.clone();
            // A thread of its own, which ends with the connection: one that says nothing must not hold up others. The
            // asker may have gone.
            std::thread::spawn(move || drop(shared.talk(stream)));
        }
    }

    fn talk(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut query)?;
        if let Some(reply) = self.answer(&query, true) {
            stream.write_all(&(reply.len() as u16).to_be_bytes())?;
            stream.write_all(&reply)?;
        }
        Ok(())
    }

    fn answer(&self, query: &[u8], stream: bool) -> Option<Vec<u8>> {
        let (asked, end) = question(query, stream)?;
        self.asked.fetch_add(1, Ordering::SeqCst);
        let say = self.behave.lock().unwrap_or_else(PoisonError::into_inner)(&asked);
        let (code, cut, records) = match say {
            NameReply::Silence => return None,
            NameReply::Cut => (0, true, Vec::new()),
            NameReply::Code(code) => (code, false, Vec::new()),
            NameReply::Addresses(addresses, ttl) => {
                (0, false, addresses.iter().filter_map(|ip| address(*ip, asked.kind, ttl)).collect())
            }
            NameReply::Services(list, ttl) if asked.kind == 33 => (
                0,
                false,
                list.iter()
                    .map(|&(priority, weight, port, target)| {
                        record(33, ttl, &rdata(priority, weight, port, target))
                    })
                    .collect(),
            ),
            NameReply::Services(..) => (0, false, Vec::new()),
        };
        let mut reply = query[..2].to_vec();
        reply.extend([0x81 | u8::from(cut) << 1, 0x80 | code, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
        reply.extend_from_slice(&query[12..end]);
        records.iter().for_each(|record| reply.extend_from_slice(record));
        Some(reply)
    }
}

/// What is asked, and where the question ends.
fn question(query: &[u8], stream: bool) -> Option<(AskedName, usize)> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(query.get(at..at + length)?).into_owned());
        at += length;
    }
    let kind = u16::from_be_bytes(query.get(at..at + 2)?.try_into().ok()?);
    Some((AskedName { name: labels.join("."), kind, stream }, at + 4))
}

fn address(ip: IpAddr, kind: u16, ttl: u32) -> Option<Vec<u8>> {
    match ip {
        IpAddr::V4(v4) if kind == 1 => Some(record(1, ttl, &v4.octets())),
        IpAddr::V6(v6) if kind == 28 => Some(record(28, ttl, &v6.octets())),
        _ => None,
    }
}

fn rdata(priority: u16, weight: u16, port: u16, target: &str) -> Vec<u8> {
    let mut data = [priority, weight, port].map(u16::to_be_bytes).concat();
    for label in target.split('.') {
        data.push(label.len() as u8);
        data.extend_from_slice(label.as_bytes());
    }
    data.push(0);
    data
}

/// A record of the name in the question.
fn record(kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let mut record = vec![0xc0, 12];
    record.extend(kind.to_be_bytes());
    record.extend([0, 1]);
    record.extend(ttl.to_be_bytes());
    record.extend((data.len() as u16).to_be_bytes());
    record.extend_from_slice(data);
    record
}
