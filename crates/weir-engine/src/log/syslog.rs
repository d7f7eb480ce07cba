//! Logging to syslog by datagrams (RFC 3164), as nginx's `syslog:` parameters say.
//!
//! In a buffer each message follows its length, since a message is one datagram and may hold anything.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self as unix, UnixDatagram};
use std::sync::{Arc, Mutex, PoisonError};

use weir_conf::{Error, LineCx};
use weir_rt::clock;
use weir_rt::net::SockAddr;

use super::LogLevel;
use super::file::WriteFailure;
use super::line::LONGEST;
use crate::privileged;

/// A syslog server and how messages to it are marked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyslogServer {
    /// Where datagrams are sent.
    pub server: SockAddr,
    facility: u8,
    /// Of access logs; an error log's messages have that of their level.
    severity: u8,
    tag: String,
    /// None with `nohostname`.
    hostname: Option<String>,
}

impl SyslogServer {
    /// Reads `server=address[,facility=...][,severity=...][,tag=...][,nohostname]`.
    ///
    /// # Errors
    /// nginx's words.
    pub fn parse(line: &LineCx<'_>, parameters: &[u8]) -> Result<SyslogServer, Error> {
        let mut parsed = SyslogParameters::default();
        for parameter in parameters.split(|byte| *byte == b',') {
            parsed.set(&String::from_utf8_lossy(parameter)).map_err(|message| line.fail_arg(0, message))?;
        }
        let server = parsed.server.ok_or_else(|| line.fail_arg(0, "no syslog server specified"))?;
        let hostname = match parsed.nohostname {
            true => None,
            false => Some(weir_rt::process::hostname().unwrap_or_else(|_| "localhost".to_owned())),
        };
        Ok(SyslogServer {
            server,
            facility: parsed.facility.unwrap_or(LOCAL7),
            severity: parsed.severity.unwrap_or(LogLevel::Info as u8 - 1),
            tag: parsed.tag.unwrap_or_else(|| "nginx".to_owned()),
            hostname,
        })
    }

    /// Begins a message: room for its length, then `<PRI>TIME HOST TAG: `.
    pub(super) fn begin(&self, out: &mut Vec<u8>, level: Option<LogLevel>, time: &[u8; 15]) {
        let severity = level.map_or(self.severity, |level| (level as u8).saturating_sub(1));
        out.extend_from_slice(&[0; PREFIX]);
        out.push(b'<');
        weir_http::h1::number(out, u64::from(self.facility) * 8 + u64::from(severity));
        out.push(b'>');
        out.extend_from_slice(time);
        out.push(b' ');
        if let Some(hostname) = &self.hostname {
            out.extend_from_slice(hostname.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(self.tag.as_bytes());
        out.extend_from_slice(b": ");
    }
}

/// Ends the message that began at `start`: no newline, nginx's limit, its length in front.
pub(super) fn end(out: &mut Vec<u8>, start: usize) {
    if out.last() == Some(&b'\n') {
        out.pop();
    }
    out.truncate(start + PREFIX + LONGEST + HEADER);
    let length = out.len() - start - PREFIX;
    if let Some(prefix) = out.get_mut(start..start + PREFIX) {
        prefix.copy_from_slice(&(length as u32).to_ne_bytes());
    }
}

/// The messages in `bytes`.
pub(super) fn frames(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (prefix, tail) = rest.split_first_chunk::<PREFIX>()?;
        let (message, tail) = tail.split_at_checked(u32::from_ne_bytes(*prefix) as usize)?;
        rest = tail;
        Some(message)
    })
}

/// The time now as syslog writes it, for threads that keep no dates.
pub(super) fn now() -> [u8; 15] {
    let (seconds, _) = clock::unix_time();
    weir_http::date::syslog(seconds as i64, clock::local_offset(seconds) / 60)
}

/// What was written, before it is whole.
#[derive(Default)]
struct SyslogParameters {
    server: Option<SockAddr>,
    facility: Option<u8>,
    severity: Option<u8>,
    tag: Option<String>,
    nohostname: bool,
}

impl SyslogParameters {
    fn set(&mut self, parameter: &str) -> Result<(), String> {
        match parameter.split_once('=') {
            Some(("server", server)) => fill(&mut self.server, "server", || address(server)),
            Some(("facility", name)) => fill(&mut self.facility, "facility", || {
                position(&FACILITIES, name).ok_or_else(|| format!("unknown syslog facility \"{name}\""))
            }),
            Some(("severity", name)) => fill(&mut self.severity, "severity", || {
                position(&SEVERITIES, name).ok_or_else(|| format!("unknown syslog severity \"{name}\""))
            }),
            Some(("tag", tag)) => fill(&mut self.tag, "tag", || self::tag(tag)),
            None if parameter == "nohostname" => {
                self.nohostname = true;
                Ok(())
            }
            _ => Err(format!("unknown syslog parameter \"{parameter}\"")),
        }
    }
}

fn fill<T>(
    slot: &mut Option<T>,
    name: &str,
    value: impl FnOnce() -> Result<T, String>,
) -> Result<(), String> {
    if slot.is_some() {
        return Err(format!("duplicate syslog \"{name}\""));
    }
    *slot = Some(value()?);
    Ok(())
}

fn position(names: &[&str], name: &str) -> Option<u8> {
    names.iter().zip(0..).find(|(known, _)| **known == name).map(|(_, at)| at)
}

fn tag(tag: &str) -> Result<String, String> {
    if tag.len() > 32 {
        return Err("syslog tag length exceeds 32".to_owned());
    }
    match tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        true => Ok(tag.to_owned()),
        false => Err("syslog \"tag\" only allows alphanumeric characters and underscore".to_owned()),
    }
}

/// `unix:/path`, `address`, `address:port`, `name`, `name:port`.
fn address(text: &str) -> Result<SockAddr, String> {
    if text.starts_with("unix:") {
        return text.parse().map_err(|error| format!("{error} in syslog server \"{text}\""));
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let unknown = || format!("host not found in syslog server \"{text}\"");
    // The colons of `[::1]` do not precede a port.
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().map_err(|_| unknown())?),
        _ => (bare, PORT),
    };
    let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let found = privileged::look_up(host, port).map_err(|_| unknown())?;
    found.first().copied().map(SockAddr::from).ok_or_else(unknown)
}

/// The socket to a server: made when the first message leaves, and again when one could not.
pub(super) struct SyslogSocket {
    syslog: Arc<SyslogServer>,
    connected: Mutex<Option<SyslogConnection>>,
}

enum SyslogConnection {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

impl SyslogSocket {
    pub(super) fn new(syslog: Arc<SyslogServer>) -> SyslogSocket {
        SyslogSocket { syslog, connected: Mutex::new(None) }
    }

    /// Sends every message of `bytes`; stops at the first that fails twice.
    pub(super) fn send_all(&self, bytes: &[u8]) -> Result<(), WriteFailure> {
        let mut written = 0;
        for message in frames(bytes) {
            // A server that was restarted refuses the first datagram of the old socket.
            self.send(message)
                .or_else(|_| self.send(message))
                .map_err(|error| WriteFailure { error, written })?;
            written += PREFIX + message.len();
        }
        Ok(())
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = match connected.take() {
            Some(socket) => socket,
            None => connect(&self.syslog.server)?,
        };
        match &socket {
            SyslogConnection::Udp(socket) => socket.send(message)?,
            SyslogConnection::Unix(socket) => socket.send(message)?,
        };
        *connected = Some(socket);
        Ok(())
    }
}

fn connect(server: &SockAddr) -> io::Result<SyslogConnection> {
    let ip = |any: &str, server: SocketAddr| {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(server)?;
        socket.set_nonblocking(true)?;
        Ok(SyslogConnection::Udp(socket))
    };
    match server {
        SockAddr::V4(server) => ip("0.0.0.0", (*server).into()),
        SockAddr::V6(server) => ip("::", (*server).into()),
        SockAddr::Unix(server) => {
            let socket = UnixDatagram::unbound()?;
            match (server.path(), server.abstract_name()) {
                (Some(path), _) => socket.connect(path)?,
                (None, Some(name)) => socket.connect_addr(&unix::SocketAddr::from_abstract_name(name)?)?,
                (None, None) => return Err(io::ErrorKind::InvalidInput.into()),
            }
            socket.set_nonblocking(true)?;
            Ok(SyslogConnection::Unix(socket))
        }
    }
}

/// Bytes of a length in front of a message.
const PREFIX: usize = 4;
/// What a header adds at most: priority, time, host, tag.
const HEADER: usize = 21 + 256 + 32 + 2;
/// RFC 3164.
const PORT: u16 = 514;
/// nginx's default.
const LOCAL7: u8 = 23;
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "intern", "lpr", "news", "uucp", "clock", "authpriv", "ftp",
    "ntp", "audit", "alert", "cron", "local0", "local1", "local2", "local3", "local4", "local5", "local6",
    "local7",
];
const SEVERITIES: [&str; 8] = ["emerg", "alert", "crit", "error", "warn", "notice", "info", "debug"];
