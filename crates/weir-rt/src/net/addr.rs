//! Socket addresses, written the way nginx writes them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;

/// Room for a path in `sockaddr_un`, its final NUL included.
const SUN_PATH: usize = 108;

/// Where a socket is bound or connected to. Text form: `127.0.0.1:80`, `[::1]:80`, `unix:/path`, and for Linux's
/// abstract names `unix:@name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SockAddr {
    /// IPv4 address and port.
    V4(SocketAddrV4),
    /// IPv6 address and port; the scope is kept but not printed.
    V6(SocketAddrV6),
    /// A path or abstract name.
    Unix(UnixAddr),
}

impl SockAddr {
    /// The address without port; `None` for a unix socket.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            SockAddr::V4(a) => Some((*a.ip()).into()),
            SockAddr::V6(a) => Some((*a.ip()).into()),
            SockAddr::Unix(_) => None,
        }
    }

    /// The port; `None` for a unix socket.
    pub fn port(&self) -> Option<u16> {
        match self {
            SockAddr::V4(a) => Some(a.port()),
            SockAddr::V6(a) => Some(a.port()),
            SockAddr::Unix(_) => None,
        }
    }

    /// Replaces the port; nothing happens to a unix socket.
    pub fn set_port(&mut self, port: u16) {
        match self {
            SockAddr::V4(a) => a.set_port(port),
            SockAddr::V6(a) => a.set_port(port),
            SockAddr::Unix(_) => {}
        }
    }

    /// Whether it is 0.0.0.0 or [::], whatever the port.
    pub fn is_wildcard(&self) -> bool {
        self.ip().is_some_and(|ip| ip.is_unspecified())
    }

    /// What `$remote_addr` and `$server_addr` show: no port, no brackets; `unix:` for any unix socket.
    pub fn host(&self) -> Host {
        Host(self.ip())
    }

    /// The address family for socket(2).
    pub fn family(&self) -> libc::c_int {
        match self {
            SockAddr::V4(_) => libc::AF_INET,
            SockAddr::V6(_) => libc::AF_INET6,
            SockAddr::Unix(_) => libc::AF_UNIX,
        }
    }

    /// The kernel's form.
    pub fn to_raw(&self) -> RawAddr {
        let mut raw = RawAddr::empty();
        raw.bytes[..2].copy_from_slice(&(self.family() as u16).to_ne_bytes());
        raw.len = match self {
            SockAddr::V4(a) => {
                raw.bytes[2..4].copy_from_slice(&a.port().to_be_bytes());
                raw.bytes[4..8].copy_from_slice(&a.ip().octets());
                size_of::<libc::sockaddr_in>()
            }
            SockAddr::V6(a) => {
                raw.bytes[2..4].copy_from_slice(&a.port().to_be_bytes());
                raw.bytes[4..8].copy_from_slice(&a.flowinfo().to_be_bytes());
                raw.bytes[8..24].copy_from_slice(&a.ip().octets());
                raw.bytes[24..28].copy_from_slice(&a.scope_id().to_ne_bytes());
                size_of::<libc::sockaddr_in6>()
            }
            SockAddr::Unix(a) => {
                raw.bytes[2..2 + a.name.len()].copy_from_slice(&a.name);
                // A path is counted with its NUL, an abstract or empty name has none.
                2 + a.name.len() + usize::from(a.path().is_some())
            }
        } as libc::socklen_t;
        raw
    }

    /// From the kernel's form; `None` for another family or too few bytes.
    pub fn from_raw(raw: &RawAddr) -> Option<SockAddr> {
        let bytes = raw.bytes.get(..raw.len as usize)?;
        let family = u16::from_ne_bytes(*bytes.first_chunk()?);
        let port = || Some(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?));
        match i32::from(family) {
            libc::AF_INET => {
                let ip: [u8; 4] = *bytes.get(4..)?.first_chunk()?;
                Some(SockAddr::V4(SocketAddrV4::new(ip.into(), port()?)))
            }
            libc::AF_INET6 => {
                let flow = u32::from_be_bytes(*bytes.get(4..)?.first_chunk()?);
                let ip: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
                let scope = u32::from_ne_bytes(*bytes.get(24..)?.first_chunk()?);
                Some(SockAddr::V6(SocketAddrV6::new(ip.into(), port()?, flow, scope)))
            }
            libc::AF_UNIX => Some(SockAddr::Unix(UnixAddr::from_kernel(&bytes[2..]))),
            _ => None,
        }
    }
}

impl From<SocketAddr> for SockAddr {
    fn from(a: SocketAddr) -> SockAddr {
        match a {
            SocketAddr::V4(a) => SockAddr::V4(a),
            SocketAddr::V6(a) => SockAddr::V6(a),
        }
    }
}

impl From<(IpAddr, u16)> for SockAddr {
    fn from(a: (IpAddr, u16)) -> SockAddr {
        SocketAddr::from(a).into()
    }
}

impl fmt::Display for SockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SockAddr::V4(a) => write!(f, "{a}"),
            SockAddr::V6(a) => write!(f, "[{}]:{}", self.host(), a.port()),
            SockAddr::Unix(a) => write!(f, "{a}"),
        }
    }
}

/// Text that is no address with a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidAddr;

impl fmt::Display for InvalidAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid address")
    }
}

impl std::error::Error for InvalidAddr {}

impl FromStr for SockAddr {
    type Err = InvalidAddr;

    fn from_str(text: &str) -> Result<SockAddr, InvalidAddr> {
        if let Some(name) = text.strip_prefix("unix:") {
            return Ok(SockAddr::Unix(UnixAddr::from_text(name)?));
        }
        text.parse::<SocketAddr>().map(SockAddr::from).map_err(|_| InvalidAddr)
    }
}

/// The name of a unix socket: a path, an abstract name, or none at all (an unbound client).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnixAddr {
    /// Abstract names start with NUL; paths contain none.
    name: Box<[u8]>,
}

impl UnixAddr {
    /// The address of the file at `path`.
    ///
    /// # Errors
    /// [`InvalidAddr`] if it is empty, contains NUL or is longer than 107 bytes.
    pub fn from_path(path: &Path) -> Result<UnixAddr, InvalidAddr> {
        let name = path.as_os_str().as_bytes();
        if name.is_empty() || name.len() >= SUN_PATH || name.contains(&0) {
            return Err(InvalidAddr);
        }
        Ok(UnixAddr { name: name.into() })
    }

    /// An abstract name, without its leading NUL.
    ///
    /// # Errors
    /// [`InvalidAddr`] if it is empty or longer than 107 bytes.
    pub fn from_abstract(name: &[u8]) -> Result<UnixAddr, InvalidAddr> {
        if name.is_empty() || name.len() >= SUN_PATH {
            return Err(InvalidAddr);
        }
        Ok(UnixAddr { name: [&[0], name].concat().into() })
    }

    /// The file, if this is the address of one.
    pub fn path(&self) -> Option<&Path> {
        match self.name.first() {
            None | Some(0) => None,
            Some(_) => Some(Path::new(std::ffi::OsStr::from_bytes(&self.name))),
        }
    }

    /// The abstract name, if it is one.
    pub fn abstract_name(&self) -> Option<&[u8]> {
        self.name.strip_prefix(&[0])
    }

    fn from_text(name: &str) -> Result<UnixAddr, InvalidAddr> {
        match name.strip_prefix('@') {
            Some(name) => UnixAddr::from_abstract(name.as_bytes()),
            None => UnixAddr::from_path(Path::new(name)),
        }
    }

    /// The kernel counts a path's NUL or not, depending on who bound it.
    fn from_kernel(name: &[u8]) -> UnixAddr {
        let end = match name.first() {
            Some(0) => name.len(),
            _ => name.iter().position(|&b| b == 0).unwrap_or(name.len()),
        };
        UnixAddr { name: name[..end].into() }
    }
}

/// Bytes that are not UTF-8 are shown as U+FFFD.
impl fmt::Display for UnixAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mark, name) = match self.abstract_name() {
            Some(name) => ("@", name),
            None => ("", &*self.name),
        };
        write!(f, "unix:{mark}{}", String::from_utf8_lossy(name))
    }
}

/// An address without port, as the log shows clients. IPv6 as RFC 5952, section 4, with the dotted tail nginx
/// gives to `::ffff:1.2.3.4` and `::1.2.3.4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host(Option<IpAddr>);

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("unix:"),
            Some(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Some(IpAddr::V6(ip)) => match dotted_tail(ip) {
                Some(tail) => write!(f, "::{tail}"),
                None => write!(f, "{ip}"),
            },
        }
    }
}

/// The IPv4 address in a "compatible" one, which the standard library would print in hexadecimal. Not for `::`,
/// `::1` and others that are plainly no IPv4 address.
fn dotted_tail(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let octets = ip.octets();
    let (zeros, tail) = octets.split_last_chunk::<4>()?;
    let compatible = zeros.iter().all(|&b| b == 0) && (tail[..2] != [0, 0] || (tail[2] != 0 && tail[3] != 1));
    compatible.then(|| Ipv4Addr::from(*tail))
}

/// An address as the kernel takes and gives it. Keeps its place in memory only if its owner does: io_uring wants
/// [`RawAddr::as_ptr`] to stay valid until the operation is submitted.
#[derive(Clone)]
#[repr(C, align(8))]
pub struct RawAddr {
    bytes: [u8; size_of::<libc::sockaddr_storage>()],
    len: libc::socklen_t,
}

impl RawAddr {
    /// Zeroes, with the length of the whole room: to be filled by the kernel.
    pub fn empty() -> RawAddr {
        let bytes = [0; size_of::<libc::sockaddr_storage>()];
        RawAddr { bytes, len: bytes.len() as libc::socklen_t }
    }

    /// For reading [`RawAddr::len`] bytes.
    pub fn as_ptr(&self) -> *const libc::sockaddr {
        self.bytes.as_ptr().cast()
    }

    /// For the kernel to write an address and its length into.
    pub fn as_mut_ptrs(&mut self) -> (*mut libc::sockaddr, *mut libc::socklen_t) {
        (self.bytes.as_mut_ptr().cast(), &mut self.len)
    }

    /// Bytes in use.
    #[allow(clippy::len_without_is_empty)] // never empty: there is always a family
    pub fn len(&self) -> libc::socklen_t {
        self.len
    }
}
