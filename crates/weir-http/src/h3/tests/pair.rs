//! A client's and a server's connection against each other, with streams whose bytes come late and in pieces.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::header::KnownField;

/// Streams in one direction: bytes on their way, and whether they end with them.
#[derive(Default)]
struct Way {
    streams: BTreeMap<u64, (VecDeque<u8>, StreamEnd)>,
}

impl Way {
    fn send(&mut self, id: u64, bytes: &[u8], end: StreamEnd) {
        let (queue, last) = self.streams.entry(id).or_insert((VecDeque::new(), StreamEnd::More));
        queue.extend(bytes);
        *last = end;
    }

    /// Up to `most` bytes of the stream in place `pick`, and whether that is its end.
    fn take(&mut self, pick: u8, most: usize) -> Option<(u64, Vec<u8>, StreamEnd)> {
        let count = self.streams.len();
        let id = *self.streams.keys().nth(usize::from(pick) % count.max(1))?;
        let (queue, end) = self.streams.get_mut(&id)?;
        let bytes: Vec<u8> = queue.drain(..most.min(queue.len())).collect();
        let end = StreamEnd::last_if(queue.is_empty() && *end == StreamEnd::Last);
        if queue.is_empty() {
            self.streams.remove(&id);
        }
        Some((id, bytes, end))
    }
}

/// One side with what it has of each stream.
struct Side {
    conn: H3Connection,
    /// The first of its unidirectional streams: control, encoder, decoder follow in steps of four.
    uni: u64,
    /// Bytes that were not taken, of streams that wait.
    waiting: BTreeMap<u64, (Vec<u8>, StreamEnd)>,
    /// What was received of each stream.
    messages: BTreeMap<u64, Message>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Message {
    fields: Vec<(String, String)>,
    content: Vec<u8>,
    trailers: usize,
    ended: bool,
}

impl Side {
    fn new(conn: H3Connection, uni: u64, way: &mut Way) -> Side {
        let mut bytes = Vec::new();
        conn.begin_control(&mut bytes);
        way.send(uni, &bytes, StreamEnd::More);
        let mut bytes = Vec::new();
        conn.begin_encoder(&mut bytes);
        way.send(uni + 4, &bytes, StreamEnd::More);
        let mut bytes = Vec::new();
        conn.begin_decoder(&mut bytes);
        way.send(uni + 8, &bytes, StreamEnd::More);
        Side { conn, uni, waiting: BTreeMap::new(), messages: BTreeMap::new() }
    }

    fn flush(&mut self, way: &mut Way) {
        let bytes = std::mem::take(self.conn.encoder_output());
        way.send(self.uni + 4, &bytes, StreamEnd::More);
        let bytes = std::mem::take(self.conn.decoder_output());
        way.send(self.uni + 8, &bytes, StreamEnd::More);
    }

    fn receive(&mut self, id: u64, bytes: Vec<u8>, end: StreamEnd) -> Result<(), H3Failure> {
        if !id.is_multiple_of(4) {
            self.conn.receive_uni(id, &bytes, end)?;
            while let Some(id) = self.conn.unblocked() {
                let (bytes, end) = self.waiting.remove(&id).expect("it waits");
                self.request(id, &bytes, end)?;
            }
            return Ok(());
        }
        if let Some((waiting, last)) = self.waiting.get_mut(&id) {
            waiting.extend_from_slice(&bytes);
            *last = end;
            return Ok(());
        }
        self.request(id, &bytes, end)
    }

    fn request(&mut self, id: u64, bytes: &[u8], end: StreamEnd) -> Result<(), H3Failure> {
        let mut rest = bytes;
        loop {
            let (used, event) = self.conn.receive(id, rest, end)?;
            let message = self.messages.entry(id).or_default();
            let section = self.conn.section();
            let mut is_last = StreamEnd::More;
            match event {
                None => return Ok(()),
                Some(H3Event::Blocked) => {
                    self.waiting.insert(id, (rest[used..].to_vec(), end));
                    return Ok(());
                }
                Some(H3Event::Head { end }) => {
                    let text = |span: crate::header::Span| {
                        String::from_utf8_lossy(span.of(&section.text)).into_owned()
                    };
                    assert!(self.conn.checked().is_ok() && message.fields.is_empty());
                    message.fields =
                        section.items.iter().map(|item| (text(item.label), text(item.value))).collect();
                    is_last = end;
                }
                Some(H3Event::Data { range, end }) => {
                    message.content.extend_from_slice(&rest[range]);
                    is_last = end;
                }
                Some(H3Event::Trailers { end }) => {
                    message.trailers = section.items.len();
                    is_last = end;
                }
                Some(H3Event::Interim) => assert!(message.fields.is_empty()),
                Some(H3Event::End) => is_last = StreamEnd::Last,
                Some(H3Event::Malformed { reason } | H3Event::Reset { reason, .. }) => panic!("{reason}"),
            }
            assert!(!message.ended, "the end comes once");
            message.ended = is_last == StreamEnd::Last;
            rest = &rest[used..];
        }
    }

    fn send(&mut self, id: u64, what: &Exchanged, begin: &[(&str, &str)], way: &mut Way) -> Message {
        let mut out = Vec::new();
        if what.interim && begin.len() == 1 {
            self.conn.head(id, &mut out, |coder, out| coder.status(103, out));
        }
        let mut message = Message { content: what.content.clone(), ended: true, ..Message::default() };
        self.conn.head(id, &mut out, |coder, out| {
            let mut field = |name: &str, value: &str| {
                coder.field(name.as_bytes(), value.as_bytes(), FieldIndexing::Allowed, out);
                message.fields.push((name.to_owned(), value.to_owned()));
            };
            begin.iter().for_each(|(name, value)| field(name, value));
            what.fields.iter().for_each(|(name, value)| field(name, value));
            coder.known(KnownField::Date, b"now", out);
            message.fields.push(("date".to_owned(), "now".to_owned()));
        });
        for piece in what.content.chunks(7) {
            frame_head(kind::DATA, piece.len() as u64, &mut out);
            out.extend_from_slice(piece);
        }
        if what.trailers {
            self.conn.head(id, &mut out, |coder, out| coder.known(KnownField::Etag, b"1", out));
            message.trailers = 1;
        }
        way.send(id, &out, StreamEnd::Last);
        message
    }
}

/// A request and a response of these fields, with this content.
#[derive(Clone, Debug)]
struct Exchanged {
    fields: Vec<(String, String)>,
    content: Vec<u8>,
    trailers: bool,
    interim: bool,
}

fn exchanges() -> impl Strategy<Value = Vec<Exchanged>> {
    let fields = proptest::collection::vec(("x-[ab]", "[a-c]{1,40}"), 0..4);
    let content = proptest::collection::vec(any::<u8>(), 0..40);
    let one = (fields, content, any::<bool>(), any::<bool>());
    let one =
        one.prop_map(|(fields, content, trailers, interim)| Exchanged { fields, content, trailers, interim });
    proptest::collection::vec(one, 1..12)
}

proptest! {
    #[test]
    fn what_one_side_sends_the_other_receives(
        exchanges in exchanges(),
        order in proptest::collection::vec((any::<bool>(), any::<u8>(), 0..60_usize), 300),
    ) {
        let (mut up, mut down) = (Way::default(), Way::default());
        let mut client = Side::new(H3Connection::client(CONFIG), 2, &mut up);
        let mut server = Side::new(H3Connection::new(CONFIG), 3, &mut down);
        let (mut asked, mut responded) = (BTreeMap::new(), BTreeMap::new());
        let mut order = order.into_iter();
        for turn in 0..20_000 {
            // New requests while there are some, in between of everything else.
            if turn % 25 == 0 && let Some(what) = exchanges.get(turn / 25) {
                let id = 4 * (turn as u64 / 25);
                asked.insert(id, client.send(id, what, &POST, &mut up));
            }
            let (is_up, pick, most) = order.next().unwrap_or((turn % 2 == 0, (turn / 2) as u8, 1000));
            let (from, to) = if is_up { (&mut up, &mut server) } else { (&mut down, &mut client) };
            if let Some((id, bytes, end)) = from.take(pick, most) {
                prop_assert_eq!(to.receive(id, bytes, end), Ok(()));
            }
            let done: Vec<u64> = server.messages.iter().filter(|(_, message)| message.ended).map(|(id, _)| *id).collect();
            for id in done {
                if let std::collections::btree_map::Entry::Vacant(place) = responded.entry(id) {
                    let what = &exchanges[(id / 4) as usize];
                    place.insert(server.send(id, what, &[(":status", "200")], &mut down));
                }
            }
            client.flush(&mut up);
            server.flush(&mut down);
            if responded.len() == exchanges.len() && client.messages.values().filter(|message| message.ended).count() == exchanges.len() {
                break;
            }
        }
        prop_assert_eq!(&server.messages, &asked);
        prop_assert_eq!(&client.messages, &responded);
    }

    #[test]
    fn no_bytes_make_a_connection_fall(
        pieces in proptest::collection::vec((0..24_u64, proptest::collection::vec(any::<u8>(), 0..40), any::<bool>()), 1..30),
        settled in any::<bool>(),
    ) {
        let mut conn = if settled { server() } else { H3Connection::new(CONFIG) };
        for (id, bytes, end) in pieces {
            let end = StreamEnd::last_if(end);
            let failed = match id % 4 {
                0 => received(&mut conn, id, &bytes, 40, end).is_err(),
                _ => conn.receive_uni(id, &bytes, end).is_err(),
            };
            if failed {
                break;
            }
        }
    }
}
