//! One connection: what is sent, and all that comes back.

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use weir_test::{DEADLINE, ReceivedPart, RequestKind, Response};

use crate::compare::table::Request;

/// What a server sent on one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// The client's port, by which its lines of the access log are found.
    pub(crate) client: u16,
    /// Every byte.
    pub(crate) bytes: Vec<u8>,
    /// A response did not come while the client could still have sent more.
    pub(crate) late: bool,
    /// What went wrong, if anything did.
    pub(crate) trouble: Option<String>,
}

/// Sends `bytes` in one write and reads until the server closes.
///
/// The client ends its own direction after the last response, or at once if the request says so: nothing depends on
/// how long a server keeps an idle connection.
pub(crate) fn ask(server: SocketAddr, request: &Request, bytes: &[u8], used: &mut HashSet<u16>) -> Answer {
    let stream = connect(server, used);
    stream.set_nodelay(true).expect("a TCP socket has the option");
    stream.set_write_timeout(Some(DEADLINE)).expect("the limit is not zero");
    let client = stream.local_addr().expect("connected").port();
    let mut asking = Asking { stream, answer: Answer { client, ..Answer::default() }, ended: false };
    if let Err(error) = asking.stream.write_all(bytes) {
        // What a server that closes early has sent still counts.
        asking.answer.trouble = Some(format!("sending: {error}"));
    }
    if !request.eof {
        asking.read_answers(&request.heads);
    }
    asking.half_close();
    while !asking.ended {
        asking.read(DEADLINE, "an end");
    }
    asking.answer
}

/// A connection from a port that was not used before: the lines of the access log are distinguished by it.
fn connect(server: SocketAddr, used: &mut HashSet<u16>) -> TcpStream {
    let mut others = Vec::new();
    loop {
        let stream =
            TcpStream::connect_timeout(&server, DEADLINE).unwrap_or_else(|error| panic!("{server}: {error}"));
        if used.insert(stream.local_addr().expect("connected").port()) {
            return stream;
        }
        others.push(stream);
    }
}

struct Asking {
    stream: TcpStream,
    answer: Answer,
    ended: bool,
}

impl Asking {
    fn read_answers(&mut self, heads: &[bool]) {
        let mut heads = heads.iter();
        let mut head = heads.next();
        let mut at = 0;
        while let Some(&to_head) = head {
            let kind = if to_head { RequestKind::Head } else { RequestKind::Other };
            match Response::parse_to(kind, &self.answer.bytes[at..], ReceivedPart::SoFar) {
                Ok(Some((response, taken))) => {
                    at += taken;
                    if response.status >= 200 {
                        head = heads.next();
                    }
                }
                Ok(None) if self.ended => return,
                Ok(None) => self.read(ANSWER, "an answer"),
                // Without a head (HTTP/0.9) the response ends with the connection.
                Err(_) => return,
            }
        }
    }

    fn half_close(&mut self) {
        // An error says that the server has gone already, which reading shows as well.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Reads once; what takes longer than `limit` is noted, and ends the connection's responses.
    fn read(&mut self, limit: Duration, what: &str) {
        let until = Instant::now() + limit;
        self.stream.set_read_timeout(Some(limit)).expect("the limit is not zero");
        let mut piece = [0; 64 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => self.ended = true,
            Ok(count) => self.answer.bytes.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                self.ended = true;
                self.answer.late = Instant::now() >= until;
                self.answer.trouble = Some(match self.answer.late {
                    true => format!("no {what} within {limit:?}"),
                    false => error.kind().to_string(),
                });
            }
        }
    }
}

/// How long one read waits for a response that one of the servers may not give.
const ANSWER: Duration = Duration::from_secs(30);
