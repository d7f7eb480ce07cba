//! A stream of a server: what has come of its request, and what is sent of its response.

use super::hpack::FieldPair;
use crate::framed::FramedManner;
use crate::request::content;

/// A stream that Weir has opened.
#[derive(Clone, Debug)]
pub(super) struct AskedStream {
    /// The number of the request.
    pub(super) number: u64,
    pub(super) manner: FramedManner,
    size: u64,
    is_grpc: bool,
    length: Option<u64>,
    /// What has come of the request's content.
    pub(super) got: Vec<u8>,
    /// The request has come whole.
    pub(super) is_asked: bool,
    /// RST_STREAM has ended it, whoever has sent that.
    pub(super) is_reset: bool,
    /// Weir has sent it.
    pub(super) has_been_reset: bool,
    pub(super) send_window: i64,
    pub(super) receive_window: i64,
    pub(super) owed: u64,
    /// The response's content, and how much of it is sent.
    pub(super) out: Vec<u8>,
    pub(super) sent: usize,
    has_begun: bool,
    pub(super) has_responded: bool,
}

impl AskedStream {
    /// The stream of a request with these fields; `windows`: what may be sent, and what may come.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub(super) fn new(fields: Vec<FieldPair>, windows: (i64, i64)) -> Result<AskedStream, String> {
        let wrong = |what: &str| Err(format!("{what}: {fields:?}"));
        let value = |name: &str| fields.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
        let pseudo = fields.iter().take_while(|(name, _)| name.starts_with(':')).count();
        if fields.iter().skip(pseudo).any(|(name, _)| name.starts_with(':')) || pseudo > 4 {
            return wrong("pseudo fields that are not first");
        }
        if fields.iter().any(|(name, _)| FORBIDDEN.contains(&name.as_str())) {
            return wrong("a field that HTTP/2 does not have");
        }
        if value("te").is_some_and(|te| te != "trailers") {
            return wrong("te");
        }
        let (Some(path), Some(_), Some("http")) = (value(":path"), value(":method"), value(":scheme")) else {
            return wrong("a pseudo field is missing");
        };
        let argument = |name: &str| {
            let pairs = path.split(['?', '&']).filter_map(|pair| pair.split_once('='));
            pairs.filter(|(own, _)| *own == name).find_map(|(_, value)| value.parse::<u64>().ok())
        };
        let words: Vec<&str> = path.split('?').next().unwrap_or_default().split('/').collect();
        let manner = words.get(3).and_then(|word| FramedManner::of(word));
        let (Some(number), Some(size), Some(manner)) = (argument("n"), argument("size"), manner) else {
            return wrong("a path that nobody asks");
        };
        Ok(AskedStream {
            number,
            manner,
            size,
            is_grpc: words.get(2) == Some(&"grpc"),
            length: value("content-length").and_then(|length| length.parse().ok()),
            got: Vec::new(),
            is_asked: false,
            is_reset: false,
            has_been_reset: false,
            send_window: windows.0,
            receive_window: windows.1,
            owed: 0,
            out: Vec::new(),
            sent: 0,
            has_begun: false,
            has_responded: false,
        })
    }

    /// What is wrong with a request that has come whole.
    pub(super) fn fault_at_end(&self) -> Option<String> {
        let length = self.got.len() as u64;
        if self.length.is_some_and(|said| said != length) {
            return Some(format!(
                "content-length {:?}, and {length} bytes of n={}",
                self.length, self.number
            ));
        }
        (self.got != content(self.number, length))
            .then(|| format!("another content than n={}'s", self.number))
    }

    /// Whether it counts for SETTINGS_MAX_CONCURRENT_STREAMS.
    pub(super) fn is_open(&self) -> bool {
        !(self.is_reset || self.is_asked && self.has_responded)
    }

    /// Whether some of the response remains to be sent.
    pub(super) fn has_content(&self) -> bool {
        self.has_begun && !self.has_responded && !self.is_reset
    }

    /// The response begins; its head.
    pub(super) fn begins(&mut self) -> Vec<FieldPair> {
        self.has_begun = true;
        let body = if self.ends_with_head() { Vec::new() } else { content(self.number, self.size) };
        let most = if self.is_cut() { body.len() / 2 } else { body.len() };
        self.out = body[..most].to_vec();
        let status = if self.manner == FramedManner::NotFound { "404" } else { "200" };
        let mut head = vec![(":status".to_owned(), status.to_owned())];
        if self.manner != FramedManner::Plain && !self.ends_with_head() {
            head.push(("content-length".to_owned(), self.size.to_string()));
        }
        if self.is_grpc {
            head.push(("content-type".to_owned(), "application/grpc".to_owned()));
        }
        if self.ends_with_head() {
            head.extend(self.status_fields("7"));
        }
        head
    }

    /// Whether there is nothing after the head.
    pub(super) fn ends_with_head(&self) -> bool {
        self.manner == FramedManner::HeadOnly
    }

    /// Whether it ends before its end.
    pub(super) fn is_cut(&self) -> bool {
        self.manner == FramedManner::CutShort
    }

    /// What follows the content.
    pub(super) fn trailers(&self) -> Vec<FieldPair> {
        if self.is_grpc && !self.is_cut() { self.status_fields("0").into() } else { Vec::new() }
    }

    fn status_fields(&self, status: &str) -> [FieldPair; 2] {
        [
            ("grpc-status".to_owned(), status.to_owned()),
            ("grpc-message".to_owned(), format!("n={}", self.number)),
        ]
    }
}

/// Fields of HTTP/1 (RFC 9113 section 8.2.2).
const FORBIDDEN: [&str; 5] = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(fields: &[(&str, &str)]) -> Result<AskedStream, String> {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        AskedStream::new(fields.collect(), (1, 1))
    }

    #[test]
    fn a_request_is_read_and_what_is_none_is_refused() {
        let good = [
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/framed/grpc/cut?n=7&size=10"),
            ("te", "trailers"),
        ];
        let mut read = stream(&good).expect("good");
        assert_eq!((read.number, read.manner, read.is_grpc), (7, FramedManner::CutShort, true));
        assert_eq!(read.begins()[0].1, "200");
        assert_eq!(read.out.len(), 5);
        for at in 0..3 {
            let less: Vec<_> =
                good.iter().enumerate().filter(|(n, _)| *n != at).map(|(_, one)| *one).collect();
            assert!(stream(&less).is_err(), "{at}");
        }
        assert!(stream(&[&good[..], &[("connection", "close")]].concat()).is_err());
        assert!(stream(&[&good[..3], &[("te", "gzip")]].concat()).is_err());
        assert!(stream(&[&good[3..], &good[..3]].concat()).is_err());
    }
}
