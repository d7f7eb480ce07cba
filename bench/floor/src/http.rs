//! The one answer, and how many of it a piece of input asks for.

/// The answer, repeated so that pipelined requests get theirs in one send.
pub struct Answers {
    bytes: Vec<u8>,
    one: usize,
}

impl Answers {
    /// An answer with `body` bytes of content and the fields a static file has.
    pub fn new(body: usize) -> Self {
        let mut one = format!(
            "HTTP/1.1 200 OK\r\nServer: floor\r\nDate: Sat, 21 Nov 2026 05:26:56 GMT\r\nContent-Type: text/plain\r\n\
             Content-Length: {body}\r\nLast-Modified: Sat, 21 Nov 2026 05:26:56 GMT\r\nConnection: keep-alive\r\n\
             ETag: \"6740c1a0-6\"\r\nAccept-Ranges: bytes\r\n\r\n"
        )
        .into_bytes();
        one.extend(b"hello\n".iter().cycle().take(body));
        let copies = if body > LARGE { 1 } else { COPIES };
        Self { bytes: one.repeat(copies), one: one.len() }
    }

    /// As many answers as are there, up to `count`, and how many those are.
    pub fn take(&self, count: usize) -> (&[u8], usize) {
        let taken = count.min(self.bytes.len() / self.one);
        (&self.bytes[..taken * self.one], taken)
    }
}

/// What of a connection's input is no whole request yet; nearly always empty.
#[derive(Default)]
pub struct Input {
    left: Vec<u8>,
}

impl Input {
    /// Counts the requests that `piece` completes. Requests have no bodies here.
    pub fn requests(&mut self, piece: &[u8]) -> usize {
        if self.left.is_empty() {
            let (count, used) = count(piece);
            self.left.extend_from_slice(&piece[used..]);
            return count;
        }
        self.left.extend_from_slice(piece);
        let (count, used) = count(&self.left);
        self.left.drain(..used);
        count
    }

    pub fn clear(&mut self) {
        self.left.clear();
    }
}

/// Whole requests at the beginning of `bytes`, and how many bytes they take.
fn count(bytes: &[u8]) -> (usize, usize) {
    let (mut requests, mut used) = (0, 0);
    while used < bytes.len() {
        let mut fields = [httparse::EMPTY_HEADER; 32];
        match httparse::Request::new(&mut fields).parse(&bytes[used..]) {
            Ok(httparse::Status::Complete(length)) => {
                requests += 1;
                used += length;
            }
            Ok(httparse::Status::Partial) => break,
            Err(error) => panic!("only the bench's own client may ask: {error}"),
        }
    }
    (requests, used)
}

/// Answers kept ready for pipelined requests.
const COPIES: usize = 32;
/// Bodies above this many bytes are not pipelined in the bench.
const LARGE: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_requests_are_counted_and_parts_are_kept() {
        let mut input = Input::default();
        assert_eq!(input.requests(b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\nGE"), 2);
        assert_eq!(input.requests(b"T / HTTP/1.1\r\n"), 0);
        assert_eq!(input.requests(b"\r\n"), 1);
        assert_eq!(input.requests(b"GET / HTTP/1.1\r\n\r\n"), 1);
    }

    #[test]
    fn answers_come_in_one_piece() {
        let answers = Answers::new(6);
        let (one, _) = answers.take(1);
        assert!(one.ends_with(b"\r\n\r\nhello\n"));
        assert_eq!(answers.take(3), (&one.repeat(3)[..], 3));
        assert_eq!(answers.take(100).1, COPIES);
    }
}
