//! Hellos out of first datagrams, real ones and those that are made here.

use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::*;
use rustls::quic::{DirectionalKeys, Version};
use weir_tls::HelloFields;
use weir_tls::quic::{InitialProgress, InitialReader, QuicServerConfig};

use crate::pair::{H3, Identity, NAME, Pair, Reception, client, server, settings};

const ID: &[u8] = b"\x83\x94\xc8\xf0\x3e\x51\x57\x08";

fn client_keys(id: &[u8], version: Version) -> DirectionalKeys {
    let suite =
        rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().expect("of TLS 1.3");
    suite.quic_suite().expect("of QUIC").keys(id, rustls::Side::Client, version).local
}

/// A sealed packet of type `kind` (0: Initial) with `frames`.
fn packet(kind: u8, id: &[u8], number: u32, frames: &[u8]) -> Vec<u8> {
    packet_of(1, Version::V1, kind, id, number, frames)
}

fn packet_of(version: u32, salt: Version, kind: u8, id: &[u8], number: u32, frames: &[u8]) -> Vec<u8> {
    let keys = client_keys(id, salt);
    let mut packet = vec![0xc3 | kind << 4];
    packet.extend(version.to_be_bytes());
    packet.push(id.len() as u8);
    packet.extend(id);
    packet.push(0);
    if kind == 0 {
        packet.push(0);
    }
    let length = (4 + frames.len() + 16) as u16;
    packet.extend((0x4000 | length).to_be_bytes());
    let at = packet.len();
    packet.extend(number.to_be_bytes());
    let (header, mut payload) = (packet.clone(), frames.to_vec());
    let tag = keys.packet.encrypt_in_place(u64::from(number), &header, &mut payload).expect("short");
    packet.extend(&payload);
    packet.extend(tag.as_ref());
    let (start, rest) = packet.split_at_mut(at + 4);
    let (first, start) = start.split_first_mut().expect("a header");
    keys.header.encrypt_in_place(&rest[..16], first, &mut start[at - 1..]).expect("a sample");
    packet
}

/// A CRYPTO frame with this part of `hello`.
fn crypto(hello: &[u8], part: Range<usize>) -> Vec<u8> {
    let number = |n: usize| (0x8000_0000 | n as u32).to_be_bytes();
    [&[6], &number(part.start)[..], &number(part.len()), &hello[part]].concat()
}

/// A ClientHello of rustls, with its header.
fn hello() -> Vec<u8> {
    let config = client(&Identity::new(), None, H3);
    let name = NAME.try_into().expect("a name");
    let mut client = rustls::quic::ClientConnection::new(Arc::new(config), Version::V1, name, vec![1, 2, 3])
        .expect("a client");
    let mut hello = Vec::new();
    assert!(client.write_hs(&mut hello).is_none());
    hello
}

fn fields(hello: &[u8]) -> InitialProgress {
    InitialProgress::Hello(Box::new(HelloFields::parse(&hello[4..]).expect("well formed")))
}

/// The first datagrams of quinn-proto's client.
fn real() -> Vec<Vec<u8>> {
    let identity = Identity::new();
    let quic = QuicServerConfig::new(&server(&settings(), &identity), H3).expect("TLS 1.3");
    Pair::new(&client(&identity, None, H3), quic, Reception::Accept).first_datagrams()
}

fn is_of_client(progress: &InitialProgress) -> bool {
    let InitialProgress::Hello(fields) = progress else { return false };
    fields.server_name.as_deref() == Some(NAME) && fields.alpn == H3 && fields.groups.contains(&0x11ec)
}

/// The keys of a post-quantum group do not fit into one datagram.
#[test]
fn a_hello_in_two_datagrams_is_read_in_either_order() {
    let datagrams = real();
    assert_eq!(datagrams.len(), 2);
    for order in [[0, 1], [1, 0]] {
        let mut reader = InitialReader::new();
        assert_eq!(reader.push(&datagrams[order[0]]), InitialProgress::NeedsMore);
        assert_eq!(reader.push(&datagrams[order[0]]), InitialProgress::NeedsMore, "the same once more");
        assert!(is_of_client(&reader.push(&datagrams[order[1]])));
    }
}

#[test]
fn frames_may_be_split_and_shuffled_and_packets_coalesced() {
    let hello = hello();
    let cuts = [0, 1, 3, 4, 5, 40, 41, 300, 900, hello.len()];
    let mut parts: Vec<Range<usize>> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
    parts.reverse();
    let frames: Vec<Vec<u8>> =
        parts.iter().map(|part| [&[0, 1, 0][..], &crypto(&hello, part.clone())].concat()).collect();
    let whole = packet(0, ID, 7, &frames.concat());
    assert_eq!(InitialReader::new().push(&whole), fields(&hello));
    // Early data, packets of the handshake and of others between; a short header at the end, and bytes without any sense.
    let between = [
        packet(1, ID, 0, b"early data"),
        packet(2, ID, 0, b"a handshake's"),
        packet(0, b"another", 0, &[1; 30]),
    ];
    let mut datagram = Vec::new();
    for (number, frame) in frames.iter().enumerate() {
        datagram.extend(packet(0, ID, 3 * number as u32, frame));
        datagram.extend(&between[number % 3]);
    }
    datagram.extend(*b"\x40 one with a short header");
    assert_eq!(InitialReader::new().push(&datagram), fields(&hello));
    // Each in a datagram of its own, by their order or not.
    let mut reader = InitialReader::new();
    for (number, frame) in frames.iter().enumerate() {
        let progress = reader.push(&packet(0, ID, number as u32 ^ 1, frame));
        let expected = if number + 1 < frames.len() { InitialProgress::NeedsMore } else { fields(&hello) };
        assert_eq!(progress, expected, "{number}");
    }
}

#[test]
fn versions_have_their_salts() {
    let hello = hello();
    let frames = crypto(&hello, 0..hello.len());
    for (version, salt) in [(1, Version::V1), (0xff00_001d, Version::V1Draft), (0xff00_0022, Version::V1)] {
        let packet = packet_of(version, salt, 0, ID, 0, &frames);
        assert_eq!(InitialReader::new().push(&packet), fields(&hello), "{version:x}");
    }
    for (version, salt) in
        [(0xff00_001d, Version::V1), (1, Version::V1Draft), (0x6b33_43cf, Version::V2), (0, Version::V1)]
    {
        let packet = packet_of(version, salt, 0, ID, 0, &frames);
        assert_eq!(InitialReader::new().push(&packet), InitialProgress::NotInitial, "{version:x}");
    }
}

/// What cannot be opened does not count, even when it comes first.
#[test]
fn damaged_packets_do_not_count() {
    let hello = hello();
    let good = packet(0, ID, 0, &crypto(&hello, 0..hello.len()));
    for at in [0, 1, 6, 20, 30, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        let mut reader = InitialReader::new();
        assert_eq!(reader.push(&bad), InitialProgress::NotInitial, "{at}");
        assert_eq!(reader.push(&good), fields(&hello), "{at}");
    }
    for other in [&b""[..], b"\x80", b"GET / HTTP/1.1\r\n\r\n", &[0xff; 1200], &[0xc0; 1200], &[0; 1200]] {
        assert_eq!(InitialReader::new().push(other), InitialProgress::NotInitial);
    }
}

#[test]
fn what_breaks_the_rules_is_malformed() {
    let hello = hello();
    let server_hello = [&[2], &hello[1..]].concat();
    let stream = [&[8, 0][..], &[1; 40]].concat();
    let wrong = [
        ("a ServerHello", crypto(&server_hello, 0..20)),
        ("a stream's frame", stream),
        ("half a frame", crypto(&hello, 0..200)[..100].to_vec()),
        ("no frames", Vec::new()),
        ("far too much", [&[6, 0x80, 0, 0x40, 0, 1, 1][..], &[0; 20]].concat()),
    ];
    for (what, frames) in wrong {
        assert_eq!(
            InitialReader::new().push(&packet(0, ID, 0, &frames)),
            InitialProgress::Malformed,
            "{what}"
        );
    }
    let mut reader = InitialReader::new();
    for number in 0..32 {
        assert_eq!(reader.push(&packet(0, ID, number, &[1; 30])), InitialProgress::NeedsMore, "{number}");
    }
    assert_eq!(
        reader.push(&packet(0, ID, 32, &[1; 30])),
        InitialProgress::Malformed,
        "it begins with nothing"
    );
}

/// A datagram cut anywhere, and one with any byte changed: no panic, and no hello but the client's.
#[test]
fn any_part_of_a_datagram_is_taken() {
    let datagrams = real();
    for cut in 0..datagrams[0].len() {
        let mut reader = InitialReader::new();
        assert_eq!(reader.push(&datagrams[0][..cut]), InitialProgress::NotInitial, "cut at {cut}");
        reader.push(&datagrams[1]);
        assert!(is_of_client(&reader.push(&datagrams[0])), "cut at {cut}");
    }
    for at in 0..datagrams[0].len() {
        let mut changed = datagrams[0].clone();
        changed[at] = !changed[at];
        let mut reader = InitialReader::new();
        reader.push(&changed);
        reader.push(&datagrams[0]);
        assert!(is_of_client(&reader.push(&datagrams[1])), "changed at {at}");
    }
}

proptest! {
    /// However frames are cut, put into packets and sorted: the hello is read with the last of them.
    #[test]
    fn every_way_to_send_a_hello_is_understood(
        cuts in prop::collection::vec(1_usize..1500, 0..30),
        sizes in prop::collection::vec(1_usize..6, 1..30),
        seed in any::<u32>(),
    ) {
        let hello = hello();
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < hello.len()).collect();
        cuts.extend([0, hello.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        let mut parts: Vec<Range<usize>> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
        let count = parts.len();
        for at in 0..count {
            parts.swap(at, seed as usize % (at + 1));
        }
        let (mut reader, mut number, mut left) = (InitialReader::new(), seed % 1000, &parts[..]);
        for size in sizes.iter().cycle() {
            let (now, rest) = left.split_at((*size).min(left.len()));
            left = rest;
            let frames: Vec<u8> = now.iter().flat_map(|part| crypto(&hello, part.clone())).collect();
            let progress = reader.push(&packet(0, ID, number, &[&frames[..], &[0; 20]].concat()));
            number += 1;
            if left.is_empty() {
                prop_assert_eq!(progress, fields(&hello));
                break;
            }
            prop_assert_eq!(progress, InitialProgress::NeedsMore);
        }
    }

    /// Any frames under good keys, and any bytes at all.
    #[test]
    fn nothing_panics(frames in prop::collection::vec(any::<u8>(), 0..300), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut reader = InitialReader::new();
        reader.push(&packet(0, ID, 0, &frames));
        reader.push(&bytes);
        reader.push(&[&[0xc0, 0, 0, 0, 1][..], &bytes].concat());
    }
}
