//! The PROXY protocol header, versions 1 and 2, that a load balancer sends ahead of the first byte of a connection.
//!
//! Incremental and without I/O: hand [`parse`] what has arrived so far; it returns the header, asks for more, or
//! refuses. Nothing is stored between calls, headers are short.

use std::borrow::Cow;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::Span;
use crate::escape::digit_value;

/// The longest header accepted, in bytes: nginx's limit. Version 1 ends after 107 by definition.
pub const MAX_HEADER: usize = 4096;

const V1_MAX: usize = 107;
const V1_PREFIX: &[u8] = b"PROXY ";
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_HEAD: usize = 16;

/// What the bytes so far amount to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProtocolParse {
    /// A whole header; the connection's own bytes begin at [`ProxyProtocolHeader::len`].
    Complete(ProxyProtocolHeader),
    /// The beginning of a header; call again with these bytes and more.
    Incomplete,
}

/// A complete PROXY protocol header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyProtocolHeader {
    /// Its length in bytes.
    pub len: usize,
    /// Whose connection it is; `None` for `UNKNOWN`, `LOCAL`, and what is not TCP over IP: the connection then stands
    /// for itself.
    pub addresses: Option<ProxiedEnds>,
    /// The type-length-values of version 2, a span into the bytes given; see [`tlvs`].
    pub tlvs: Span,
}

/// The two ends of the proxied connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxiedEnds {
    /// The client: `$proxy_protocol_addr`, `$proxy_protocol_port`.
    pub source: SocketAddr,
    /// What it connected to: `$proxy_protocol_server_addr`, `$proxy_protocol_server_port`.
    pub destination: SocketAddr,
}

/// The bytes are not a PROXY header; the connection is closed without a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadProxy {
    /// Neither signature, or a version 1 line that breaks the form. nginx logs `broken header: "…"`.
    Broken,
    /// Version 2's signature with another version in it.
    Version(u8),
    /// Version 2 announces more than [`MAX_HEADER`] bytes, or too few for its addresses.
    Length,
    /// A type-length-value reaches beyond the header.
    Tlv,
}

impl std::fmt::Display for BadProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadProxy::Broken => f.write_str("broken PROXY protocol header"),
            BadProxy::Version(version) => write!(f, "unknown PROXY protocol version: {version}"),
            BadProxy::Length => f.write_str("bad length of PROXY protocol header"),
            BadProxy::Tlv => f.write_str("broken PROXY protocol TLV"),
        }
    }
}

impl std::error::Error for BadProxy {}

/// Reads a header from the first bytes of a connection.
///
/// # Errors
/// [`BadProxy`] as soon as the bytes cannot become a header.
pub fn parse(bytes: &[u8]) -> Result<ProxyProtocolParse, BadProxy> {
    if bytes.starts_with(V2_SIGNATURE) {
        return parse_v2(bytes);
    }
    if bytes.starts_with(V1_PREFIX) {
        return parse_v1(bytes);
    }
    if V2_SIGNATURE.starts_with(bytes) || V1_PREFIX.starts_with(bytes) {
        return Ok(ProxyProtocolParse::Incomplete);
    }
    Err(BadProxy::Broken)
}

fn parse_v1(bytes: &[u8]) -> Result<ProxyProtocolParse, BadProxy> {
    let window = bytes.get(..V1_MAX).unwrap_or(bytes);
    let Some(end) = memchr::memchr(b'\n', window) else {
        return if bytes.len() < V1_MAX { Ok(ProxyProtocolParse::Incomplete) } else { Err(BadProxy::Broken) };
    };
    let line = window.get(V1_PREFIX.len()..end).and_then(|line| line.strip_suffix(b"\r"));
    let line = line.ok_or(BadProxy::Broken)?;
    let addresses = match line.strip_prefix(b"UNKNOWN") {
        Some(_) => None,
        None => Some(addresses_v1(line).ok_or(BadProxy::Broken)?),
    };
    Ok(ProxyProtocolParse::Complete(ProxyProtocolHeader { len: end + 1, addresses, tlvs: Span::default() }))
}

/// `TCP4 192.0.2.1 198.51.100.1 56324 443`, the parts apart by single spaces.
fn addresses_v1(line: &[u8]) -> Option<ProxiedEnds> {
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    if !matches!(words.next()?, "TCP4" | "TCP6") {
        return None;
    }
    let source: IpAddr = words.next()?.parse().ok()?;
    let destination: IpAddr = words.next()?.parse().ok()?;
    let source = SocketAddr::new(source, port(words.next()?)?);
    let destination = SocketAddr::new(destination, port(words.next()?)?);
    words.next().is_none().then_some(ProxiedEnds { source, destination })
}

fn port(word: &str) -> Option<u16> {
    // FromStr would take a plus sign.
    word.bytes().all(|byte| byte.is_ascii_digit()).then(|| word.parse().ok())?
}

fn parse_v2(bytes: &[u8]) -> Result<ProxyProtocolParse, BadProxy> {
    let Some(&[version_command, family_transport, length @ ..]) =
        bytes.get(V2_SIGNATURE.len()..).and_then(|rest| rest.first_chunk::<4>())
    else {
        return Ok(ProxyProtocolParse::Incomplete);
    };
    if version_command >> 4 != 2 {
        return Err(BadProxy::Version(version_command >> 4));
    }
    let len = V2_HEAD + usize::from(u16::from_be_bytes(length));
    if len > MAX_HEADER {
        return Err(BadProxy::Length);
    }
    let Some(body) = bytes.get(V2_HEAD..len) else { return Ok(ProxyProtocolParse::Incomplete) };
    // Low nibbles 1: the PROXY command, and a stream. Everything else leaves the connection as it is, as in nginx.
    let proxied = version_command & 0x0f == 1 && family_transport & 0x0f == 1;
    let (addresses, used) = match family_transport >> 4 {
        1 if proxied => (addresses_v4(body), 12),
        2 if proxied => (addresses_v6(body), 36),
        _ => {
            return Ok(ProxyProtocolParse::Complete(ProxyProtocolHeader {
                len,
                addresses: None,
                tlvs: Span::default(),
            }));
        }
    };
    let addresses = Some(addresses.ok_or(BadProxy::Length)?);
    // Both fit: len is at most MAX_HEADER.
    let tlvs = Span { start: (V2_HEAD + used) as u32, end: len as u32 };
    Ok(ProxyProtocolParse::Complete(ProxyProtocolHeader { len, addresses, tlvs }))
}

fn addresses_v4(body: &[u8]) -> Option<ProxiedEnds> {
    let (source, rest) = body.split_first_chunk::<4>()?;
    let (destination, rest) = rest.split_first_chunk::<4>()?;
    ports(Ipv4Addr::from(*source).into(), Ipv4Addr::from(*destination).into(), rest)
}

fn addresses_v6(body: &[u8]) -> Option<ProxiedEnds> {
    let (source, rest) = body.split_first_chunk::<16>()?;
    let (destination, rest) = rest.split_first_chunk::<16>()?;
    ports(Ipv6Addr::from(*source).into(), Ipv6Addr::from(*destination).into(), rest)
}

fn ports(source: IpAddr, destination: IpAddr, rest: &[u8]) -> Option<ProxiedEnds> {
    let (source_port, rest) = rest.split_first_chunk::<2>()?;
    let (destination_port, _) = rest.split_first_chunk::<2>()?;
    Some(ProxiedEnds {
        source: SocketAddr::new(source, u16::from_be_bytes(*source_port)),
        destination: SocketAddr::new(destination, u16::from_be_bytes(*destination_port)),
    })
}

/// The type-length-values in `bytes`, as type and value. The iterator ends after an error.
pub fn tlvs(bytes: &[u8]) -> ProxyTlvs<'_> {
    ProxyTlvs { rest: bytes }
}

/// Iterates over the type-length-values of a version 2 header; made by [`tlvs`].
#[derive(Debug, Clone)]
pub struct ProxyTlvs<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for ProxyTlvs<'a> {
    type Item = Result<(u8, &'a [u8]), BadProxy>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let parts = self.rest.split_first_chunk::<3>().and_then(|(&[kind, high, low], rest)| {
            let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([high, low])))?;
            Some((kind, value, rest))
        });
        self.rest = parts.map_or(&[], |(_, _, rest)| rest);
        Some(parts.map(|(kind, value, _)| (kind, value)).ok_or(BadProxy::Tlv))
    }
}

const TLV_SSL: u8 = 0x20;
/// In front of the values inside the SSL value: client bits and a 32-bit verification result.
const SSL_HEAD: usize = 5;

/// The value of `$proxy_protocol_tlv_NAME`: `alpn`, `authority`, `unique_id`, `ssl`, `netns`, `ssl_verify` (a decimal
/// number), `ssl_version`, `ssl_cn`, `ssl_cipher`, `ssl_sig_alg`, `ssl_key_alg`, or a type in hexadecimal digits as
/// `0xNN` (`ssl_0xNN` inside the SSL value). `None` when it is absent or the name unknown.
///
/// # Errors
/// [`BadProxy::Tlv`] when the values are broken before the one sought.
pub fn tlv<'a>(bytes: &'a [u8], name: &str) -> Result<Option<Cow<'a, [u8]>>, BadProxy> {
    let Some(inner) = name.strip_prefix("ssl_") else {
        return Ok(kind(name, &NAMES).map_or(Ok(None), |kind| first_of(bytes, kind))?.map(Cow::Borrowed));
    };
    let Some(ssl) = first_of(bytes, TLV_SSL)? else { return Ok(None) };
    let (&[_, verify @ ..], values) = ssl.split_first_chunk::<SSL_HEAD>().ok_or(BadProxy::Tlv)?;
    if inner == "verify" {
        return Ok(Some(Cow::Owned(u32::from_be_bytes(verify).to_string().into_bytes())));
    }
    Ok(kind(inner, &SSL_NAMES).map_or(Ok(None), |kind| first_of(values, kind))?.map(Cow::Borrowed))
}

const NAMES: [(&str, u8); 5] =
    [("alpn", 0x01), ("authority", 0x02), ("unique_id", 0x05), ("ssl", TLV_SSL), ("netns", 0x30)];
const SSL_NAMES: [(&str, u8); 5] =
    [("version", 0x21), ("cn", 0x22), ("cipher", 0x23), ("sig_alg", 0x24), ("key_alg", 0x25)];

fn kind(name: &str, names: &[(&str, u8)]) -> Option<u8> {
    if let Some(digits) = name.strip_prefix("0x") {
        // Zeros in front change nothing; more digits than two are of no type.
        let zeros = digits.bytes().take_while(|digit| *digit == b'0').count();
        return match digits.as_bytes()[zeros..] {
            [] if zeros > 0 => Some(0),
            [low] => digit_value(low),
            [high, low] => Some(digit_value(high)? << 4 | digit_value(low)?),
            _ => None,
        };
    }
    names.iter().find(|(known, _)| *known == name).map(|&(_, kind)| kind)
}

fn first_of(bytes: &[u8], wanted: u8) -> Result<Option<&[u8]>, BadProxy> {
    for entry in tlvs(bytes) {
        let (kind, value) = entry?;
        if kind == wanted {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// Appends a version 1 header, for `proxy_protocol` towards an upstream; `UNKNOWN` when the families differ.
pub fn write_v1(out: &mut Vec<u8>, source: SocketAddr, destination: SocketAddr) {
    let family = match (source, destination) {
        (SocketAddr::V4(_), SocketAddr::V4(_)) => "TCP4",
        (SocketAddr::V6(_), SocketAddr::V6(_)) => "TCP6",
        _ => return out.extend_from_slice(b"PROXY UNKNOWN\r\n"),
    };
    let (from, to) = (source.ip(), destination.ip());
    let ports = (source.port(), destination.port());
    out.write_fmt(format_args!("PROXY {family} {from} {to} {} {}\r\n", ports.0, ports.1))
        .expect("a Vec takes every write");
}

/// Appends a version 2 header; one of the command `LOCAL` when the families differ.
pub fn write_v2(out: &mut Vec<u8>, source: SocketAddr, destination: SocketAddr) {
    out.extend_from_slice(V2_SIGNATURE);
    match (source, destination) {
        (SocketAddr::V4(from), SocketAddr::V4(to)) => {
            out.extend_from_slice(&[0x21, 0x11, 0, 12]);
            out.extend_from_slice(&from.ip().octets());
            out.extend_from_slice(&to.ip().octets());
        }
        (SocketAddr::V6(from), SocketAddr::V6(to)) => {
            out.extend_from_slice(&[0x21, 0x21, 0, 36]);
            out.extend_from_slice(&from.ip().octets());
            out.extend_from_slice(&to.ip().octets());
        }
        _ => return out.extend_from_slice(&[0x20, 0, 0, 0]),
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A version 2 header with the length filled in.
    fn v2(version_command: u8, family_transport: u8, body: &[u8]) -> Vec<u8> {
        let mut header = V2_SIGNATURE.to_vec();
        header.extend_from_slice(&[version_command, family_transport]);
        header.extend_from_slice(&u16::try_from(body.len()).expect("short").to_be_bytes());
        header.extend_from_slice(body);
        header
    }

    fn complete(bytes: &[u8]) -> ProxyProtocolHeader {
        match parse(bytes) {
            Ok(ProxyProtocolParse::Complete(header)) => header,
            other => panic!("{other:?} for {bytes:?}"),
        }
    }

    fn addresses(bytes: &[u8]) -> Option<(String, String)> {
        let addresses = complete(bytes).addresses?;
        Some((addresses.source.to_string(), addresses.destination.to_string()))
    }

    const V4_BODY: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 1, 0xdc, 0x04, 0x01, 0xbb];

    #[test]
    fn version_1_lines_are_read() {
        let line = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\nGET /";
        assert_eq!(complete(line).len, line.len() - 5);
        assert_eq!(addresses(line), Some(("192.0.2.1:56324".to_owned(), "198.51.100.1:443".to_owned())));
        assert_eq!(
            addresses(b"PROXY TCP6 2001:DB8::1 ::1 1 65535\r\n"),
            Some(("[2001:db8::1]:1".to_owned(), "[::1]:65535".to_owned()))
        );
        assert_eq!(addresses(b"PROXY UNKNOWN\r\n"), None);
        assert_eq!(addresses(b"PROXY UNKNOWN anything at all\r\n"), None);
    }

    #[test]
    fn version_2_headers_are_read() {
        let mut body = V4_BODY.to_vec();
        body.extend_from_slice(b"\x02\x00\x03abc");
        let header = v2(0x21, 0x11, &body);
        assert_eq!(addresses(&header), Some(("192.0.2.1:56324".to_owned(), "198.51.100.1:443".to_owned())));
        assert_eq!(complete(&header).len, header.len());
        assert_eq!(complete(&header).tlvs.of(&header), b"\x02\x00\x03abc");
        let mut body = [0; 36];
        body[15] = 1;
        body[31] = 2;
        body[33] = 80;
        assert_eq!(addresses(&v2(0x21, 0x21, &body)), Some(("[::1]:80".to_owned(), "[::2]:0".to_owned())));
    }

    #[test]
    fn what_is_not_tcp_over_ip_leaves_the_connection_as_it_is() {
        for (version_command, family_transport) in
            [(0x20, 0x00), (0x20, 0x11), (0x21, 0x12), (0x21, 0x31), (0x21, 0x00)]
        {
            let header = v2(version_command, family_transport, &V4_BODY);
            assert_eq!(complete(&header).addresses, None);
            assert_eq!(complete(&header).len, header.len());
        }
    }

    #[test]
    fn broken_headers_are_refused() {
        let long = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat();
        for (bytes, error) in [
            (b"GET / HTTP/1.1\r\n".as_slice(), BadProxy::Broken),
            (b"PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n", BadProxy::Broken),
            (b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 65536\r\n", BadProxy::Broken),
            (b"PROXY TCP4 192.0.2.1 198.51.100.1 +6324 443\r\n", BadProxy::Broken),
            (b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 \r\n", BadProxy::Broken),
            (b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443 1\r\n", BadProxy::Broken),
            (b"PROXY TCP4  192.0.2.1 198.51.100.1 56324 443\r\n", BadProxy::Broken),
            (b"PROXY TCP4 192.0.2.256 198.51.100.1 56324 443\r\n", BadProxy::Broken),
            (b"PROXY TCP5 192.0.2.1 198.51.100.1 56324 443\r\n", BadProxy::Broken),
            (b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\n", BadProxy::Broken),
            (&long, BadProxy::Broken),
            (&v2(0x11, 0x11, &V4_BODY), BadProxy::Version(1)),
            (&v2(0x21, 0x11, &V4_BODY[..11]), BadProxy::Length),
            (&v2(0x21, 0x21, &V4_BODY), BadProxy::Length),
            (&v2(0x21, 0x11, &[0; MAX_HEADER]), BadProxy::Length),
        ] {
            assert_eq!(parse(bytes), Err(error), "{bytes:?}");
        }
    }

    #[test]
    fn every_beginning_of_a_header_is_incomplete() {
        for header in [b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n".to_vec(), v2(0x21, 0x11, &V4_BODY)]
        {
            for end in 0..header.len() {
                assert_eq!(parse(&header[..end]), Ok(ProxyProtocolParse::Incomplete), "{end}");
            }
            complete(&header);
        }
    }

    #[test]
    fn values_are_found_by_nginx_names() {
        let ssl = b"\x01\x00\x00\x01\x00\x21\x00\x07TLSv1.3\x22\x00\x02cn";
        let mut bytes = b"\x01\x00\x02h2\x02\x00\x0bexample.com\x20\x00".to_vec();
        bytes.push(ssl.len() as u8);
        bytes.extend_from_slice(ssl);
        bytes.extend_from_slice(b"\xe0\x00\x01x");
        let find = |name: &str| {
            tlv(&bytes, name).map(|value| value.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
        };
        for (name, expected) in [
            ("alpn", Some("h2")),
            ("authority", Some("example.com")),
            ("unique_id", None),
            ("ssl_version", Some("TLSv1.3")),
            ("ssl_cn", Some("cn")),
            ("ssl_0x22", Some("cn")),
            ("ssl_cipher", None),
            ("ssl_verify", Some("256")),
            ("0xe0", Some("x")),
            ("0xE0", Some("x")),
            ("0x000e0", Some("x")),
            ("0x00", None),
            ("0x", None),
            ("nonsense", None),
        ] {
            assert_eq!(find(name), Ok(expected.map(str::to_owned)), "{name}");
        }
        assert_eq!(tlv(b"\x01\x00\x05h2", "alpn"), Err(BadProxy::Tlv));
        assert_eq!(tlv(b"\x20\x00\x01x", "ssl_verify"), Err(BadProxy::Tlv));
        assert_eq!(tlvs(b"\x01\x00").collect::<Vec<_>>(), [Err(BadProxy::Tlv)]);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(source: (u32, u16), destination: (u32, u16)) {
            let address = |(ip, port): (u32, u16)| SocketAddr::new(Ipv4Addr::from(ip).into(), port);
            let (source, destination) = (address(source), address(destination));
            let mut out = Vec::new();
            for write in [write_v1, write_v2] {
                out.clear();
                write(&mut out, source, destination);
                let header = complete(&out);
                prop_assert_eq!(header.addresses, Some(ProxiedEnds { source, destination }));
                prop_assert_eq!(header.len, out.len());
            }
        }

        #[test]
        fn no_bytes_make_it_panic(start in 0usize..4, bytes in vec(any::<u8>(), 0..80)) {
            let start = [b"".as_slice(), b"PROXY ", b"PROXY TCP4 ", V2_SIGNATURE][start];
            let bytes = [start, &bytes].concat();
            if let Ok(ProxyProtocolParse::Complete(header)) = parse(&bytes) {
                prop_assert!(header.len <= bytes.len());
                for name in ["alpn", "ssl_verify", "0x30"] {
                    let _ = tlv(header.tlvs.of(&bytes), name);
                }
            }
        }
    }

    #[test]
    fn addresses_of_both_families_are_written_as_they_are_read() {
        for (from, to) in [("192.0.2.1:5", "198.51.100.1:443"), ("[2001:db8::1]:5", "[2001:db8::2]:443")] {
            let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
            for write in [write_v1, write_v2] {
                let mut out = Vec::new();
                write(&mut out, address(from), address(to));
                assert_eq!(addresses(&out), Some((from.to_owned(), to.to_owned())));
                let mut out = Vec::new();
                write(&mut out, address(from), address("[::1]:1"));
                assert_eq!(addresses(&out).is_some(), from.starts_with('['), "of two families");
            }
        }
    }

    #[test]
    fn types_are_names_or_numbers() {
        for (name, found) in [
            ("alpn", Some(1)),
            ("0x", None),
            ("0x0", Some(0)),
            ("0x000", Some(0)),
            ("0x5", Some(5)),
            ("0xEa", Some(0xea)),
            ("0x00ea", Some(0xea)),
            ("0x1ea", None),
            ("0xg", None),
            ("other", None),
        ] {
            assert_eq!(kind(name, &[("alpn", 1)]), found, "{name}");
        }
    }
}
