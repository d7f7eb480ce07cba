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
    /// 0.0.0.0:0, for an address that the system does not give.
    pub const UNSPECIFIED: SockAddr = SockAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

    /// The address without port; `None` for a unix socket.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            SockAddr::V4(a) => Some((*a.ip()).into()),
            SockAddr::V6(a) => Some((*a.ip()).into()),
            SockAddr::Unix(_) => None,
        }
    }

    /// Address and port; `None` for a unix socket.
    pub fn to_socket_addr(&self) -> Option<SocketAddr> {
        match self {
            SockAddr::V4(a) => Some((*a).into()),
            SockAddr::V6(a) => Some((*a).into()),
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

    /// Whether it is 0.0.0.0 or `[::]`, whatever the port.
    pub fn is_wildcard(&self) -> bool {
        self.ip().is_some_and(|ip| ip.is_unspecified())
    }

    /// Whether a socket bound to it takes what comes to `other`: it is the wildcard of that family, with that port.
    pub fn is_wildcard_of(&self, other: &SockAddr) -> bool {
        self.is_wildcard() && self.family() == other.family() && self.port() == other.port()
    }

    /// What `$remote_addr` and `$server_addr` show: no port, no brackets; `unix:` for any unix socket.
    pub fn host(&self) -> LoggedHost {
        LoggedHost(self.ip())
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
    pub(crate) fn to_raw(&self) -> RawAddr {
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

    /// The kernel counts a path's NUL or not, depending on how it was bound.
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
pub struct LoggedHost(Option<IpAddr>);

impl fmt::Display for LoggedHost {
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
    pub(crate) fn as_mut_ptrs(&mut self) -> (*mut libc::sockaddr, *mut libc::socklen_t) {
        (self.bytes.as_mut_ptr().cast(), &mut self.len)
    }

    /// What the kernel has written is so long.
    pub(crate) fn set_len(&mut self, len: libc::socklen_t) {
        self.len = len.min(self.bytes.len() as libc::socklen_t);
    }

    /// The length of the address in bytes, for bind(2) and connect(2).
    #[allow(clippy::len_without_is_empty)] // never empty: there is always a family
    pub fn len(&self) -> libc::socklen_t {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<SockAddr, InvalidAddr> {
        text.parse()
    }

    #[test]
    fn prints_what_it_parses() {
        for text in [
            "127.0.0.1:80",
            "0.0.0.0:65535",
            "[::1]:8080",
            "[::]:443",
            "[2001:db8::1]:1",
            "[2001:db8:0:1:1:1:1:1]:1",
            "[::ffff:1.2.3.4]:80",
            "[::1.2.3.4]:80",
            "unix:/run/weir.sock",
            "unix:relative",
            "unix:@abstract name",
        ] {
            assert_eq!(parse(text).map(|a| a.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn refuses_what_is_no_address() {
        let long = format!("unix:/{}", "x".repeat(107));
        for text in ["", "80", "127.0.0.1", "::1:80", "[::1]", "127.0.0.1:65536", "1.2.3:80", "localhost:80"]
        {
            assert_eq!(parse(text), Err(InvalidAddr), "{text}");
        }
        for text in ["unix:", "unix:@", "unix:a\0b", &long] {
            assert_eq!(parse(text), Err(InvalidAddr), "{text}");
        }
    }

    #[test]
    fn the_host_has_neither_port_nor_brackets_nor_scope() {
        let scoped = SockAddr::V6(SocketAddrV6::new("fe80::1".parse().expect("valid"), 80, 0, 2));
        assert_eq!(scoped.to_string(), "[fe80::1]:80");
        for (text, host) in [("1.2.3.4:5", "1.2.3.4"), ("[::2]:5", "::2"), ("unix:/a", "unix:")] {
            assert_eq!(parse(text).expect("valid").host().to_string(), host);
        }
    }

    #[test]
    fn the_kernels_form_is_exact() {
        let raw = parse("1.2.3.4:258").expect("valid").to_raw();
        assert_eq!(raw.bytes[2..8], [1, 2, 1, 2, 3, 4]);
        assert_eq!(raw.len(), 16);
        assert_eq!(parse("[::1]:1").expect("valid").to_raw().len(), 28);
        assert_eq!(parse("unix:/ab").expect("valid").to_raw().len(), 2 + 3 + 1);
        assert_eq!(parse("unix:@ab").expect("valid").to_raw().len(), 2 + 3);
    }

    #[test]
    fn unix_names_know_their_kind() {
        let path = UnixAddr::from_path(Path::new("/a")).expect("valid");
        assert_eq!((path.path(), path.abstract_name()), (Some(Path::new("/a")), None));
        let name = UnixAddr::from_abstract(b"a\0b").expect("valid");
        assert_eq!((name.path(), name.abstract_name()), (None, Some(&b"a\0b"[..])));
        let none = UnixAddr::from_kernel(&[]);
        assert_eq!((none.path(), none.abstract_name()), (None, None));
    }

    proptest! {
        #[test]
        fn ip_addresses_survive_text_and_kernel(ip: IpAddr, port: u16) {
            let a = SockAddr::from((ip, port));
            prop_assert_eq!(parse(&a.to_string()), Ok(a.clone()));
            prop_assert_eq!(SockAddr::from_raw(&a.to_raw()), Some(a));
        }

        #[test]
        fn unix_addresses_survive_text_and_kernel(name in "@?[^@\0]{1,20}") {
            let a = parse(&format!("unix:{name}")).expect("short");
            prop_assert_eq!(a.to_string(), format!("unix:{name}"));
            prop_assert_eq!(SockAddr::from_raw(&a.to_raw()), Some(a));
        }

        #[test]
        fn no_text_and_no_kernel_bytes_panic(text in "\\PC*", bytes in prop::collection::vec(any::<u8>(), 0..128)) {
            let _ = parse(&text);
            let mut raw = RawAddr::empty();
            raw.bytes[..bytes.len()].copy_from_slice(&bytes);
            for family in [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX, 77] {
                raw.bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
                raw.len = bytes.len() as u32;
                let _ = SockAddr::from_raw(&raw);
            }
            raw.len = u32::MAX;
            prop_assert_eq!(SockAddr::from_raw(&raw), None);
        }
    }
}
