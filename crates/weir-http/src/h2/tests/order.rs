//! The order in which a server serves a client that sends dependencies (RFC 7540), or urgencies as well.

use super::super::frame::{END_HEADERS, PRIORITY_FLAG};
use super::super::*;
use super::frames::{CONFIG, Peer, frame};

/// A PRIORITY frame.
fn depends(id: u32, parent: u32, weight: u16) -> Vec<u8> {
    frame(kind::PRIORITY, 0, id, &[&parent.to_be_bytes()[..], &[(weight - 1) as u8]].concat())
}

/// A server with these streams open, and 40,000 bytes to send on each.
fn peer(heads: &[&[(&str, &str)]], frames: &[u8]) -> Peer {
    let mut peer = Peer::with(&H2Config { max_streams: 100, ..CONFIG });
    let keys: Vec<_> =
        (0..).zip(heads).map(|(at, fields)| peer.open(2 * at + 1, END_STREAM, fields)).collect();
    assert_eq!(peer.send(frames), Ok(vec![]));
    for key in keys {
        peer.server.offer(key, 40_000, StreamEnd::Last);
    }
    peer
}

/// The streams of the next frames, of 1,000 bytes each; `None` once nobody has anything.
fn order(peer: &mut Peer, frames: usize) -> Vec<Option<u32>> {
    let mut next = || {
        let grant = peer.server.next_data_of(1000, &mut Vec::new())?;
        Some(peer.server.id(grant.key))
    };
    (0..frames).map(|_| next()).collect()
}

#[test]
fn a_stream_comes_before_those_that_depend_on_it() {
    let mut peer = peer(&[&[], &[], &[]], &[depends(5, 0, 16), depends(1, 3, 16), depends(3, 5, 1)].concat());
    assert_eq!(order(&mut peer, 40), [Some(5); 40]);
    assert_eq!(order(&mut peer, 25), [Some(3); 25], "the connection's window ends");
    assert_eq!(order(&mut peer, 2), [Some(3), None]);
    assert_eq!(peer.send(&frame(kind::WINDOW_UPDATE, 0, 0, &100_000_u32.to_be_bytes())), Ok(vec![]));
    // Its 15,000 bytes that are left, the first in a frame with what the window had left over.
    let rest = order(&mut peer, 60);
    assert_eq!(rest.iter().filter(|id| **id == Some(3)).count(), 15);
    assert_eq!(
        rest.iter().rposition(|id| *id == Some(3)),
        rest.iter().position(|id| *id == Some(1)).map(|at| at - 1)
    );
}

#[test]
fn a_stream_that_is_asked_for_says_what_it_depends_on() {
    let mut peer = Peer::new();
    let block = peer.block(&[]);
    let head = |id: u32, parent: u32, weight: u8, exclusive: u32| {
        let payload = [&(parent | exclusive << 31).to_be_bytes()[..], &[weight], &block].concat();
        frame(kind::HEADERS, END_STREAM | END_HEADERS | PRIORITY_FLAG, id, &payload)
    };
    let heads = [head(1, 0, 15, 0), head(3, 0, 255, 0), head(5, 0, 0, 1)].concat();
    let events = peer.send(&heads).expect("they are right");
    for event in events {
        let H2Event::Head { key, .. } = event else { panic!("{event:?}") };
        peer.server.offer(key, 3000, StreamEnd::Last);
    }
    assert_eq!(order(&mut peer, 3), [Some(5); 3], "it came between the root and both");
    let rest = order(&mut peer, 6);
    assert_eq!(rest[..3], [Some(3); 3], "of the others that with the larger weight: {rest:?}");
    assert!(peer.server.held_bytes() < 10_000);
}

#[test]
fn urgencies_take_the_place_of_dependencies() {
    let tree = [depends(3, 0, 1), depends(1, 3, 256)].concat();
    assert_eq!(order(&mut peer(&[&[], &[]], &tree), 1), [Some(3)]);
    // By the field, before or after the frames; by PRIORITY_UPDATE; by what settings say.
    assert_eq!(order(&mut peer(&[&[("priority", "u=3")], &[]], &tree), 1), [Some(1)]);
    let update = [&tree[..], &frame(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1")].concat();
    assert_eq!(order(&mut peer(&[&[], &[]], &update), 1), [Some(1)]);
    let settings = [&tree[..], &frame(kind::SETTINGS, 0, 0, &[0, 9, 0, 0, 0, 1])].concat();
    assert_eq!(order(&mut peer(&[&[], &[]], &settings), 1), [Some(1)]);
}

/// The tree of a client that opens and resets streams, and names others, does not grow.
#[test]
fn what_a_client_says_of_streams_takes_no_more_than_its_streams() {
    let mut peer = Peer::new();
    let mut most = 0;
    for round in 0..2000_u32 {
        let id = 2 * round + 1;
        peer.now += 10;
        assert_eq!(peer.send(&depends(id + 40, id, 200)), Ok(vec![]));
        let key = peer.open(id, END_STREAM, &[]);
        peer.server.offer(key, 10, StreamEnd::Last);
        if round % 2 == 0 {
            assert!(peer.server.next_data(&mut peer.out).is_some());
        }
        peer.server.release(key, &mut peer.out);
        peer.out.clear();
        most = most.max(peer.server.held_bytes());
    }
    assert!(most < 40_000, "{most} bytes");
    assert!(!peer.server.has_data());
}
