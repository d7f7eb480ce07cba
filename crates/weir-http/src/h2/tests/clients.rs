//! What honest clients do at full speed, and attacks that look like it.

use super::super::*;
use super::frames::{CONFIG, Peer, frame};

/// As Go's client reads: an update of the stream and one of the connection for each 4 KB, all in no time.
#[test]
fn updates_that_follow_content_are_no_flood() {
    let mut peer = Peer::new();
    let key = peer.open(1, END_STREAM, &[]);
    let wide =
        [&frame(8, 0, 0, &(1_u32 << 30).to_be_bytes())[..], &frame(8, 0, 1, &(1_u32 << 22).to_be_bytes())];
    assert_eq!(peer.send(&wide.concat()), Ok(vec![]));
    peer.server.offer(key, 300 << 20, StreamEnd::Last);
    let mut unread = 0;
    while let Some(grant) = peer.server.next_data(&mut peer.out) {
        unread += grant.len;
        peer.out.clear();
        let mut updates = Vec::new();
        while unread >= 4096 {
            unread -= 4096;
            updates.extend(frame(8, 0, 0, &4096_u32.to_be_bytes()));
            updates.extend(frame(8, 0, 1, &4096_u32.to_be_bytes()));
        }
        assert_eq!(peer.send(&updates), Ok(vec![]));
    }
    assert_eq!(peer.server.pending(key), 0, "all was sent");
}

/// A byte of content for each update is what an attack is made of, however fast the updates come.
#[test]
fn a_window_that_opens_by_single_bytes_is_a_flood() {
    let mut peer = Peer::new();
    assert_eq!(peer.send(&frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])), Ok(vec![]));
    let key = peer.open(1, END_STREAM, &[]);
    peer.server.offer(key, 1 << 20, StreamEnd::Last);
    let ended = (0..20_000).find_map(|_| {
        let failed = peer.send(&frame(8, 0, 1, &[0, 0, 0, 1])).err();
        while peer.server.next_data(&mut peer.out).is_some() {}
        peer.out.clear();
        failed
    });
    assert_eq!(ended, Some(ErrorCode::EnhanceYourCalm));
}

/// gRPC's clients measure the connection by a PING for each frame of data, at whatever speed those come; and where a method
/// responds early they reset the rest of their request.
#[test]
fn what_grpc_does_at_full_speed_is_no_flood() {
    let mut peer = Peer::new();
    for round in 0..20_000 {
        let id = 2 * round + 1;
        let key = peer.open(id, 0, &[]);
        peer.server.head(key, StreamEnd::More, &mut peer.out, |coder, out| coder.status(200, out));
        peer.server.offer(key, 20, StreamEnd::More);
        while peer.server.next_data(&mut peer.out).is_some() {}
        peer.server.head(key, StreamEnd::Last, &mut peer.out, |coder, out| coder.status(200, out));
        peer.server.release(key, &mut peer.out);
        peer.out.clear();
        assert_eq!(peer.send(&frame(6, 0, 0, &[0; 8])), Ok(vec![]), "PING {round}");
        assert_eq!(peer.send(&frame(8, 0, 0, &[0, 0, 0, 20])), Ok(vec![]), "WINDOW_UPDATE {round}");
        assert_eq!(peer.send(&frame(3, 0, id, &[0; 4])), Ok(vec![]), "RST_STREAM {round}");
    }
}

/// Requests that get their response at once and are cancelled together are still what rapid reset is made of; so are
/// requests that we have to reset.
#[test]
fn answers_do_not_pay_for_requests_that_are_cancelled_at_once_or_malformed() {
    let flood = |request: &dyn Fn(&mut Peer, u32) -> Vec<u8>| {
        let mut peer = Peer::new();
        (0..2000).find_map(|round| {
            let bytes = request(&mut peer, 2 * round + 1);
            let mut at = 0;
            while at < bytes.len() {
                match peer.server.receive(&bytes[at..], 1000, &mut peer.out) {
                    Ok((used, event)) => {
                        at += used;
                        if let Some(H2Event::Head { key, .. }) = event {
                            peer.server.head(key, StreamEnd::Last, &mut peer.out, |coder, out| {
                                coder.status(200, out);
                            });
                            peer.server.release(key, &mut peer.out);
                        }
                    }
                    Err(failure) => return Some(failure.abuse),
                }
            }
            None
        })
    };
    let cancelled = |peer: &mut Peer, id| {
        let block = peer.block(&[]);
        [frame(1, 5, id, &block), frame(3, 0, id, &[0, 0, 0, 8])].concat()
    };
    assert_eq!(flood(&cancelled), Some(Some(H2Abuse::Resets)));
    let malformed = |peer: &mut Peer, id| {
        let block = peer.block(&[("Upper", "x")]);
        frame(1, 5, id, &block)
    };
    assert_eq!(flood(&malformed), Some(Some(H2Abuse::Resets)));
}

/// RFC 9113 section 6.8: after the GOAWAY frame whatever comes on a stream above its last one is ignored, but header
/// compression and the connection's window go on.
#[test]
fn late_frames_behind_a_goaway_are_ignored_and_counted() {
    let update = |increment: u32| frame(8, 0, 3, &increment.to_be_bytes());
    let mut peer = Peer::with(&H2Config { window: 100_000, ..CONFIG });
    let key = peer.open(1, END_STREAM, &[]);
    peer.server.go_away(ErrorCode::No, &mut peer.out);
    peer.out.clear();
    // A field that enters the table, on a stream that is not taken.
    let block = b"\x82\x86\x84\x01\x01a\x40\x01n\x01v";
    assert_eq!(peer.send(&frame(1, 4, 3, block)), Ok(vec![]));
    for (name, late) in [
        ("DATA", frame(0, 0, 3, &[0; 1000])),
        ("DATA that ends", frame(0, 1, 3, b"x")),
        ("trailers", frame(1, 5, 3, b"\xbe")),
        ("WINDOW_UPDATE", update(1000)),
        ("WINDOW_UPDATE of 0", update(0)),
        ("PRIORITY", frame(2, 0, 3, &[0, 0, 0, 0, 5])),
        ("short PRIORITY", frame(2, 0, 3, &[0; 4])),
        ("PRIORITY_UPDATE", frame(16, 0, 0, b"\0\0\0\x03u=1")),
        ("RST_STREAM", frame(3, 0, 3, &[0, 0, 0, 8])),
        ("DATA behind it", frame(0, 0, 3, b"x")),
        ("DATA of a stream whose head was not seen", frame(0, 0, 5, b"x")),
    ] {
        assert_eq!(peer.send(&late), Ok(vec![]), "{name}");
        assert_eq!(peer.said(), [], "{name}");
        assert!(!peer.server.expire_head(&frame(1, 4, 7, b"x")[..9], &mut peer.out), "{name}");
    }
    // The table has the field, and all of the window that late content used comes back.
    let known = [&block[..6], b"\xbe"].concat();
    assert_eq!(peer.send(&frame(1, 5, 5, &known)), Ok(vec![]));
    assert_eq!(peer.server.section().items.len(), 5);
    for _ in 0..20 {
        assert_eq!(peer.send(&frame(0, 0, 7, &[0; 16_384])), Ok(vec![]), "more than the window");
    }
    assert!(peer.said().iter().all(|(kind, stream, _)| (*kind, *stream) == (kind::WINDOW_UPDATE, 0)));
    peer.server.head(key, StreamEnd::Last, &mut peer.out, |coder, out| coder.status(200, out));
    peer.server.release(key, &mut peer.out);
    assert!(peer.server.is_over());
    // Without end they are a flood all the same.
    let mut peer = Peer::new();
    peer.open(1, END_STREAM, &[]);
    peer.server.go_away(ErrorCode::No, &mut peer.out);
    let ended = (0..50_000).find_map(|_| peer.send(&update(1)).err());
    assert_eq!(ended, Some(ErrorCode::EnhanceYourCalm));
}

/// A block that is far too large ends the connection before it is read to its end; a little too large is an error of its request.
#[test]
fn header_bombs_end_the_connection_at_the_first_block() {
    // A name of 4,000 bytes without a value.
    let entry = [&b"\x82\x86\x84\x01\x01a\x40\x7f\xa1\x1e"[..], &[b'x'; 4000], b"\0"].concat();
    let references = [&b"\x82\x86\x84\x01\x01a"[..], &[0xbe; 16_000]].concat();
    let named = [&b"\x82\x86\x84\x01\x01a"[..], &b"\x0f\x2f\0".repeat(5000)].concat();
    let empty = [&b"\x82\x86\x84\x01\x01a"[..], &b"\0\0\0".repeat(2000)].concat();
    for (name, block) in [("references", references), ("names by reference", named), ("empty names", empty)] {
        let mut peer = Peer::new();
        assert!(matches!(peer.send(&frame(1, 5, 1, &entry)).as_deref(), Ok([H2Event::Head { .. }])));
        assert_eq!(peer.send(&frame(1, 5, 3, &block)), Err(ErrorCode::EnhanceYourCalm), "{name}");
    }
    let mut peer = Peer::new();
    assert!(matches!(peer.send(&frame(1, 5, 1, &entry)).as_deref(), Ok([H2Event::Head { .. }])));
    let little = [&b"\x82\x86\x84\x01\x01a"[..], &[0xbe; 3]].concat();
    assert!(matches!(peer.send(&frame(1, 5, 3, &little)).as_deref(), Ok([H2Event::Head { .. }])));
    assert!(peer.server.section().too_large);
}
