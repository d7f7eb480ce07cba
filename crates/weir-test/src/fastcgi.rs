//! A FastCGI application for tests, written apart from the one under test: what both get wrong shows.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::port::free_listener;
use crate::wait::DEADLINE;

/// A request as the application got it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FcgiRequest {
    /// The parameters in the order they came.
    pub params: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The server wishes to keep the connection.
    pub keep: bool,
}

impl FcgiRequest {
    /// The value of the last parameter of this name; empty if it is absent.
    #[must_use]
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().rfind(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// What an application writes, piece by piece.
#[derive(Clone, Debug)]
pub enum FcgiOut {
    /// A record of stdout; an empty one closes it.
    Stdout(Vec<u8>),
    /// A record of stderr.
    Stderr(Vec<u8>),
    /// The end of the request.
    End,
    /// Bytes as they are.
    Raw(Vec<u8>),
}

impl FcgiOut {
    /// A whole response.
    #[must_use]
    pub fn answer(text: &str) -> Vec<FcgiOut> {
        vec![FcgiOut::Stdout(text.into()), FcgiOut::Stdout(Vec::new()), FcgiOut::End]
    }

    /// The bytes on the wire; stdout has some padding, which must not matter.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let record = |kind: u8, content: &[u8], padding: u8| {
            let length = u16::try_from(content.len()).expect("a test's record is short");
            let [high, low] = length.to_be_bytes();
            let head = [1, kind, 0, 1, high, low, padding, 0];
            [&head, content, &vec![0; usize::from(padding)]].concat()
        };
        match self {
            FcgiOut::Stdout(content) => record(6, content, 3),
            FcgiOut::Stderr(content) => record(7, content, 0),
            FcgiOut::End => record(3, &[0; 8], 0),
            FcgiOut::Raw(bytes) => bytes.clone(),
        }
    }
}

/// A listening application; each connection has a thread, which ends with it.
pub struct FcgiApp {
    port: u16,
    visits: Arc<AtomicUsize>,
}

impl FcgiApp {
    /// Listens on a free port of 127.0.0.1 and responds to every request with what `answer` returns. A connection is
    /// closed after the response unless the server wished to keep it and the response has an end.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn start(answer: impl Fn(&FcgiRequest) -> Vec<FcgiOut> + Send + Sync + 'static) -> FcgiApp {
        let listener = free_listener();
        let port = listener.local_addr().expect("it is bound").port();
        let (answer, visits) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
        let counted = visits.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                let answer = answer.clone();
                thread::spawn(move || serve(stream, &*answer));
            }
        });
        FcgiApp { port, visits }
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections have come.
    #[must_use]
    pub fn visits(&self) -> usize {
        self.visits.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&FcgiRequest) -> Vec<FcgiOut>) {
    // A socket that takes no timeout reads without one.
    let _ = stream.set_read_timeout(Some(DEADLINE));
    while let Some(request) = read(&mut stream) {
        let out = answer(&request);
        let ended = out.iter().any(|piece| matches!(piece, FcgiOut::End));
        let sent = out.iter().all(|piece| stream.write_all(&piece.bytes()).is_ok());
        if !(sent && ended && request.keep) {
            return;
        }
    }
}

/// The next request; `None` when the connection ends before.
fn read(stream: &mut TcpStream) -> Option<FcgiRequest> {
    let mut request = FcgiRequest::default();
    let mut params = Vec::new();
    loop {
        let mut head = [0; 8];
        stream.read_exact(&mut head).ok()?;
        let mut content = vec![0; usize::from(u16::from_be_bytes([head[4], head[5]]))];
        stream.read_exact(&mut content).ok()?;
        stream.read_exact(&mut vec![0; usize::from(head[6])]).ok()?;
        match (head[1], content.is_empty()) {
            (1, _) => request.keep = content[2] & 1 == 1,
            (4, false) => params.extend(content),
            (4, true) => request.params = pairs(&params),
            (5, false) => request.body.extend(content),
            (5, true) => return Some(request),
            (kind, _) => panic!("a server sends no record of kind {kind}"),
        }
    }
}

fn pairs(mut bytes: &[u8]) -> Vec<(String, String)> {
    let mut list = Vec::new();
    let length = |bytes: &mut &[u8]| {
        let long = bytes[0] >= 128;
        let (length, rest) = bytes.split_at(if long { 4 } else { 1 });
        *bytes = rest;
        length.iter().enumerate().fold(0, |sum, (at, byte)| {
            let byte = if at == 0 { byte & 127 } else { *byte };
            sum << 8 | usize::from(byte)
        })
    };
    while !bytes.is_empty() {
        let (name, value) = (length(&mut bytes), length(&mut bytes));
        let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        list.push((text(&bytes[..name]), text(&bytes[name..name + value])));
        bytes = &bytes[name + value..];
    }
    list
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_application_reads_pairs_and_answers() {
        let long = "x".repeat(200);
        let mut wire = vec![1, 1, b'A', b'b', 4, 128, 0, 0, 200];
        wire.extend_from_slice(b"LONG");
        wire.extend_from_slice(long.as_bytes());
        assert_eq!(pairs(&wire), [("A".to_owned(), "b".to_owned()), ("LONG".to_owned(), long)]);

        let app = FcgiApp::start(|request| FcgiOut::answer(&format!("{:?}", request.body)));
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, app.port())).expect("it listens");
        let records: [&[u8]; 5] = [
            &[1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0],
            &[1, 4, 0, 1, 0, 0, 0, 0],
            &[1, 5, 0, 1, 0, 2, 1, 0, 7, 8, 0],
            &[1, 5, 0, 1, 0, 0, 0, 0],
            &[],
        ];
        stream.write_all(&records.concat()).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it closes");
        assert!(answer.starts_with(b"\x01\x06\x00\x01\x00\x06\x03\x00[7, 8]"), "{answer:?}");
        assert_eq!(app.visits(), 1);
    }
}
