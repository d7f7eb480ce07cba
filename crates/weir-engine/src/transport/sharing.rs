//! What processes that share sockets say to each other on their unix sockets.
//!
//! A frame is a length of four bytes, most significant first, of what follows; a byte that says what it is; and its content.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// What distinguishes a process from others that have its sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ProcessTag(pub [u8; TAG_BYTES]);

/// Bytes of a [`ProcessTag`].
pub const TAG_BYTES: usize = 3;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SharingFrame {
    /// This process is to read from here on.
    Take(ProcessTag),
    /// This process does not read, and has connections.
    Join(ProcessTag),
    /// The other reads now; what is for these processes comes here.
    Yours(Vec<ProcessTag>),
    /// A datagram that is for a connection of the process, or of one that it knows.
    Datagram(SharedDatagram<Vec<u8>>),
}

/// A datagram on its way to another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedDatagram<B> {
    /// Its sender.
    pub from: SocketAddr,
    /// To which of our addresses it was sent, where the socket has several.
    pub here: Option<IpAddr>,
    /// Its content.
    pub bytes: B,
}

/// What is not a frame.
#[derive(Debug, PartialEq, Eq)]
pub struct BadSharingFrame;

impl SharingFrame {
    /// The frame's bytes.
    pub fn write(&self) -> Vec<u8> {
        match self {
            SharingFrame::Take(tag) => framed(TAKE, &tag.0),
            SharingFrame::Join(tag) => framed(JOIN, &tag.0),
            SharingFrame::Yours(tags) => {
                framed(YOURS, &tags.iter().flat_map(|tag| tag.0).collect::<Vec<_>>())
            }
            SharingFrame::Datagram(SharedDatagram { from, here, bytes }) => {
                datagram_frame(&SharedDatagram { from: *from, here: *here, bytes: &bytes[..] })
            }
        }
    }

    /// The frame that `bytes` begin with and its length; `None`: there is more to come.
    ///
    /// # Errors
    /// What is there can't become a frame.
    pub fn read(bytes: &[u8]) -> Result<Option<(SharingFrame, usize)>, BadSharingFrame> {
        let Some((length, rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > LONGEST {
            return Err(BadSharingFrame);
        }
        let Some((content, _)) = rest.split_at_checked(length) else { return Ok(None) };
        let (kind, content) = content.split_first().ok_or(BadSharingFrame)?;
        let frame = match *kind {
            TAKE => SharingFrame::Take(tag(content)?),
            JOIN => SharingFrame::Join(tag(content)?),
            YOURS => SharingFrame::Yours(content.chunks(TAG_BYTES).map(tag).collect::<Result<_, _>>()?),
            DATAGRAM => SharingFrame::Datagram(read_datagram(content)?),
            _ => return Err(BadSharingFrame),
        };
        Ok(Some((frame, 4 + length)))
    }
}

/// The bytes of the frame of a datagram.
pub fn datagram_frame(datagram: &SharedDatagram<&[u8]>) -> Vec<u8> {
    let mut content = [0; HEAD];
    let (address, scope) = match datagram.from {
        SocketAddr::V4(from) => (from.ip().to_ipv6_mapped(), 0),
        SocketAddr::V6(from) => (*from.ip(), from.scope_id()),
    };
    content[0] = u8::from(datagram.from.is_ipv6()) | u8::from(datagram.here.is_some()) << 1;
    content[0] |= u8::from(datagram.here.is_some_and(|here| here.is_ipv6())) << 2;
    content[1..17].copy_from_slice(&address.octets());
    content[17..19].copy_from_slice(&datagram.from.port().to_be_bytes());
    content[19..23].copy_from_slice(&scope.to_be_bytes());
    let here = match datagram.here {
        Some(IpAddr::V4(here)) => here.to_ipv6_mapped(),
        Some(IpAddr::V6(here)) => here,
        None => Ipv6Addr::UNSPECIFIED,
    };
    content[23..39].copy_from_slice(&here.octets());
    framed(DATAGRAM, &[&content, datagram.bytes].concat())
}

fn read_datagram(content: &[u8]) -> Result<SharedDatagram<Vec<u8>>, BadSharingFrame> {
    let (head, bytes) = content.split_first_chunk::<HEAD>().ok_or(BadSharingFrame)?;
    let address = |at: usize| -> Result<Ipv6Addr, BadSharingFrame> {
        let octets: [u8; 16] = head[at..at + 16].try_into().map_err(|_| BadSharingFrame)?;
        Ok(Ipv6Addr::from(octets))
    };
    let v4 = |address: Ipv6Addr| address.to_ipv4_mapped().ok_or(BadSharingFrame);
    let port = u16::from_be_bytes([head[17], head[18]]);
    let scope = u32::from_be_bytes([head[19], head[20], head[21], head[22]]);
    let from = match head[0] & 1 {
        0 => (v4(address(1)?)?, port).into(),
        _ => SocketAddrV6::new(address(1)?, port, 0, scope).into(),
    };
    let here = match head[0] >> 1 {
        0 => None,
        1 => Some(v4(address(23)?)?.into()),
        3 => Some(address(23)?.into()),
        _ => return Err(BadSharingFrame),
    };
    Ok(SharedDatagram { from, here, bytes: bytes.to_vec() })
}

fn framed(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(1 + content.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), &[kind][..], content].concat()
}

fn tag(content: &[u8]) -> Result<ProcessTag, BadSharingFrame> {
    content.try_into().map(ProcessTag).map_err(|_| BadSharingFrame)
}

const TAKE: u8 = 0;
const JOIN: u8 = 1;
const YOURS: u8 = 2;
const DATAGRAM: u8 = 3;
/// Bytes before those of the datagram itself.
const HEAD: usize = 39;
/// More than any datagram has.
const LONGEST: usize = 1 << 17;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn frames() -> Vec<SharingFrame> {
        let tag = |byte| ProcessTag([byte, 2, 3]);
        let datagram = |from: &str, here: Option<&str>| {
            SharingFrame::Datagram(SharedDatagram {
                from: from.parse().expect("an address"),
                here: here.map(|here| here.parse().expect("an address")),
                bytes: b"content".to_vec(),
            })
        };
        vec![
            SharingFrame::Take(tag(1)),
            SharingFrame::Join(tag(4)),
            SharingFrame::Yours(vec![]),
            SharingFrame::Yours(vec![tag(1), tag(2), tag(3)]),
            datagram("127.0.0.1:443", None),
            datagram("127.0.0.1:443", Some("10.0.0.1")),
            datagram("[fe80::1%3]:443", Some("2001:db8::1")),
            datagram("[::ffff:10.0.0.1]:1", Some("::ffff:10.0.0.2")),
        ]
    }

    #[test]
    fn frames_read_back_whole_and_not_before_they_are() {
        for frame in frames() {
            let bytes = frame.write();
            for end in 0..bytes.len() {
                assert_eq!(SharingFrame::read(&bytes[..end]), Ok(None), "{frame:?} {end}");
            }
            let more = [&bytes[..], b"next"].concat();
            assert_eq!(SharingFrame::read(&more), Ok(Some((frame, bytes.len()))));
        }
    }

    proptest! {
        #[test]
        fn what_is_read_reads_back_and_nothing_panics(
            which in 0..8_usize,
            changes in vec((0..60_usize, any::<u8>()), 0..4),
        ) {
            let mut bytes = frames()[which].write();
            for (at, byte) in changes {
                let length = bytes.len();
                bytes[at % length] = byte;
            }
            if let Ok(Some((frame, length))) = SharingFrame::read(&bytes) {
                prop_assert!(length <= bytes.len());
                let again = frame.write();
                prop_assert_eq!(SharingFrame::read(&again), Ok(Some((frame, again.len()))));
            }
        }
    }
}
