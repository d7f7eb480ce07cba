//! A request: what is asked for, how it is sent, and what is due.

use std::fmt::Write;

use crate::draw::Draw;
use crate::framed::{FramedAsk, FramedManner};
use crate::limits::{CROWD_MS, LIMIT_KEYS};
use crate::routing::plan::RoutedAsk;
use crate::wire::in_chunks;

/// A request of a client.
#[derive(Clone, Debug)]
pub struct RequestPlan {
    /// Its number, which the response must have.
    pub number: u64,
    /// What it asks for.
    pub target: Target,
    /// Its body.
    pub body: Option<BodyPlan>,
    /// Whether it is sent with the one before, whose response has not come.
    pub is_pipelined: bool,
    /// How long the client waits before it.
    pub pause: u64,
    /// What it asks the servers of routing, if it does.
    pub ask: Option<RoutedAsk>,
}

/// A body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyPlan {
    /// Bytes.
    pub length: u64,
    /// In chunks, in place of Content-Length.
    pub is_chunked: bool,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A text of the configuration.
    Return,
    /// A file of so many bytes, one of [`FILES`].
    File(u64),
    /// A script that sleeps so many milliseconds.
    Lua(u64),
    /// What an upstream server says, and how.
    Proxied(UpstreamManner, u64),
    /// The same of a server that speaks TLS, through the location of this number.
    Secret(usize, UpstreamManner, u64),
    /// What a server that speaks HTTP/2 says.
    Framed(FramedAsk),
    /// One of [`OBJECTS`], through the cache.
    Cached(usize),
    /// A text behind `limit_req`, with the key.
    Paced(u64),
    /// A script behind `limit_conn` that sleeps, with the key and milliseconds.
    Crowded(u64, u64),
    /// What the request's [`RoutedAsk`] says.
    Routed,
    /// A short text of one of the servers that fail and recover.
    Watched,
}

/// Sizes of the files that are served.
pub const FILES: [u64; 4] = [0, 300, 20_000, 400_000];

/// How an upstream server responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamManner {
    /// With Content-Length.
    Length,
    /// In chunks.
    Chunked,
    /// To the end of the connection.
    ToClose,
    /// As `Length`, in pieces with pauses.
    Slow,
    /// A status of its own.
    NotFound,
    /// It closes instead.
    Closes,
    /// It closes in the middle of the body.
    CutShort,
    /// It never says anything.
    Silent,
}

/// All manners, with the word of the request's path.
pub const MANNERS: [(UpstreamManner, &str); 8] = [
    (UpstreamManner::Length, "length"),
    (UpstreamManner::Chunked, "chunked"),
    (UpstreamManner::ToClose, "toclose"),
    (UpstreamManner::Slow, "slow"),
    (UpstreamManner::NotFound, "notfound"),
    (UpstreamManner::Closes, "closes"),
    (UpstreamManner::CutShort, "cutshort"),
    (UpstreamManner::Silent, "silent"),
];

impl UpstreamManner {
    fn word(self) -> &'static str {
        MANNERS.iter().find(|(one, _)| *one == self).map_or("", |(_, word)| word)
    }
}

/// What is asked for through the cache: how the upstream server responds, and bytes of the body. Some of them are served from
/// memory, others from their files.
pub const OBJECTS: [(UpstreamManner, u64); 6] = [
    (UpstreamManner::Length, 10),
    (UpstreamManner::Chunked, 3000),
    (UpstreamManner::Length, 60_000),
    (UpstreamManner::Chunked, 90_000),
    (UpstreamManner::Length, 300_000),
    (UpstreamManner::Slow, 80_000),
];

/// How long clients wait before a request.
const PAUSES: [u64; 5] = [0, 0, 100, 20_000, 1_200_000];

/// The contents of objects are those of numbers that no request has.
pub const OBJECT_NUMBERS: u64 = 1_000_000;

impl RequestPlan {
    pub(crate) fn drawn(draw: &mut Draw, may_follow: bool, number: &mut u64) -> RequestPlan {
        *number += 1;
        let target = Target::drawn(draw);
        let takes_body = matches!(target, Target::Proxied(..));
        let body = (takes_body && draw.chance(1, 3)).then(|| BodyPlan {
            length: *draw.one_of(&[0, 1, 1000, 9000, 100_000]),
            is_chunked: draw.chance(1, 3),
        });
        RequestPlan {
            number: *number,
            target,
            body,
            is_pipelined: may_follow && draw.chance(1, 4),
            pause: *draw.one_of(&PAUSES),
            ask: None,
        }
    }

    /// A request for the servers of routing; `is_last`: the connection may end with it.
    pub(crate) fn routed(draw: &mut Draw, is_last: bool, number: &mut u64) -> RequestPlan {
        *number += 1;
        let ask = RoutedAsk::drawn(draw, is_last);
        RequestPlan {
            number: *number,
            target: Target::Routed,
            body: None,
            // What is sent before a bad request is over is not responded to.
            is_pipelined: !is_last && draw.chance(1, 3),
            pause: *draw.one_of(&PAUSES),
            ask: Some(ask),
        }
    }

    /// One that comes to a limit.
    pub(crate) fn limited(draw: &mut Draw, may_follow: bool, number: &mut u64) -> RequestPlan {
        let mut request = RequestPlan::drawn(draw, may_follow, number);
        (request.target, request.body) = (Target::limited(draw), None);
        request.pause = *draw.one_of(&PAUSES[..4]);
        request
    }

    /// A request for the servers that fail and recover.
    pub(crate) fn watching(number: u64) -> RequestPlan {
        RequestPlan { number, target: Target::Watched, body: None, is_pipelined: false, pause: 0, ask: None }
    }

    /// The target of the request, and its host.
    pub(crate) fn target_and_host(&self) -> (String, &str) {
        match &self.ask {
            Some(ask) => (ask.target.clone(), &ask.host),
            None => (self.target.path(self.number), "sim"),
        }
    }

    /// Fields that requests for the servers of routing have.
    pub(crate) fn routed_fields(&self) -> Vec<(&'static str, String)> {
        let Some(ask) = &self.ask else { return Vec::new() };
        let mark = ask.mark.iter().map(|mark| ("x-m", mark.clone()));
        [("x-n", self.number.to_string())].into_iter().chain(mark).collect()
    }

    /// Every other body is put: that may be done twice.
    pub(crate) fn method(&self) -> &'static str {
        match self.body {
            None => "GET",
            Some(_) if self.number.is_multiple_of(2) => "PUT",
            Some(_) => "POST",
        }
    }

    /// Whether another server may be asked when one has failed: nothing is done twice that must not be, and all of the
    /// body is there, which it is if it `is_buffered`.
    pub(crate) fn may_be_repeated(&self, is_buffered: bool) -> bool {
        self.body.is_none() || self.method() == "PUT" && is_buffered
    }

    /// The request's bytes; `close`: it is the connection's last one.
    pub fn bytes(&self, close: bool) -> Vec<u8> {
        let (method, (path, host)) = (self.method(), self.target_and_host());
        let absolute = self.ask.as_ref().and_then(|ask| ask.absolute.as_ref());
        let before = absolute.map_or(String::new(), |host| format!("http://{host}"));
        let mut text = format!("{method} {before}{path} HTTP/1.1\r\nHost: {host}\r\n");
        for (name, value) in self.routed_fields() {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        if close {
            text.push_str("Connection: close\r\n");
        }
        let Some(body) = self.body else { return [text.as_bytes(), b"\r\n"].concat() };
        let content = content(self.number, body.length);
        if !body.is_chunked {
            let _ = write!(text, "Content-Length: {}\r\n\r\n", body.length);
            return [text.as_bytes(), &content].concat();
        }
        text.push_str("Transfer-Encoding: chunked\r\n\r\n");
        [text.into_bytes(), in_chunks(&content, 3000)].concat()
    }
}

impl Target {
    fn drawn(draw: &mut Draw) -> Target {
        match draw.below(10) {
            0 | 1 => Target::Return,
            2 | 3 => Target::File(*draw.one_of(&FILES)),
            4 => Target::Lua(*draw.one_of(&[0, 1, 20, 300])),
            _ => {
                let manner = match draw.below(12) {
                    0..4 => UpstreamManner::Length,
                    4 | 5 => UpstreamManner::Chunked,
                    6 => UpstreamManner::ToClose,
                    7 => UpstreamManner::Slow,
                    8 => UpstreamManner::NotFound,
                    9 => UpstreamManner::Closes,
                    10 => UpstreamManner::CutShort,
                    _ => UpstreamManner::Silent,
                };
                Target::Proxied(manner, *draw.one_of(&[0, 10, 2000, 50_000, 300_000]))
            }
        }
    }

    /// What an upstream server is asked for, if that is its own.
    pub(crate) fn manner(self) -> Option<(UpstreamManner, u64)> {
        match self {
            Target::Proxied(manner, size) | Target::Secret(_, manner, size) => Some((manner, size)),
            _ => None,
        }
    }

    /// One that a limit judges.
    pub(crate) fn limited(draw: &mut Draw) -> Target {
        let key = draw.below(LIMIT_KEYS);
        match draw.chance(1, 2) {
            true => Target::Paced(key),
            false => Target::Crowded(key, *draw.one_of(&CROWD_MS)),
        }
    }

    /// The path and arguments, with the request's number.
    pub fn path(self, number: u64) -> String {
        match self {
            Target::Return => format!("/return?n={number}"),
            Target::File(size) => format!("/file/{size}?n={number}"),
            Target::Lua(ms) => format!("/lua?n={number}&ms={ms}"),
            Target::Proxied(manner, size) => {
                format!("/up/{}?n={number}&size={size}", manner.word())
            }
            Target::Secret(door, manner, size) => {
                format!("/tls/{door}/{}?n={number}&size={size}", manner.word())
            }
            Target::Framed(ask) => ask.path(number),
            Target::Cached(object) => {
                let (manner, _) = OBJECTS[object];
                format!("/cached/{}?n={number}&o={object}", manner.word())
            }
            Target::Paced(key) => format!("/paced?n={number}&k={key}"),
            Target::Crowded(key, ms) => format!("/crowded?n={number}&k={key}&ms={ms}"),
            Target::Watched => format!("/watched?n={number}"),
            Target::Routed => String::new(),
        }
    }

    /// The statuses that may come; the first one is of a body that is checked.
    pub fn statuses(self) -> &'static [u16] {
        match self.manner() {
            Some((UpstreamManner::NotFound, _)) => &[404],
            Some((UpstreamManner::Closes, _)) => &[502],
            Some((UpstreamManner::CutShort, _)) => &[200, 502],
            Some((UpstreamManner::Silent, _)) => &[504],
            None if matches!(self, Target::Paced(_) | Target::Crowded(..)) => &[200, 503],
            _ => &[200],
        }
    }

    /// The body of the response with the first status, if it is not a page of the server's own.
    pub fn body(self, number: u64) -> Option<Vec<u8>> {
        match self {
            Target::Return | Target::Lua(_) | Target::Paced(_) | Target::Crowded(..) => {
                Some(format!("n={number}\n").into_bytes())
            }
            Target::File(size) => Some(content(size, size)),
            Target::Proxied(manner, size) | Target::Secret(_, manner, size) => match manner {
                UpstreamManner::Closes | UpstreamManner::Silent => None,
                _ => Some(content(number, size)),
            },
            Target::Framed(ask) => Some(content(number, ask.due_size())),
            Target::Watched => Some(content(number, 60)),
            Target::Routed => None,
            Target::Cached(object) => Some(content(OBJECT_NUMBERS + object as u64, OBJECTS[object].1)),
        }
    }

    /// Whether an upstream server is asked, or may be.
    pub fn is_proxied(self) -> bool {
        matches!(
            self,
            Target::Proxied(..)
                | Target::Secret(..)
                | Target::Framed(_)
                | Target::Cached(_)
                | Target::Watched
        )
    }

    /// Whether the response ends before its end.
    pub fn is_cut(self) -> bool {
        let is_framed = matches!(self, Target::Framed(ask) if ask.manner == FramedManner::CutShort);
        is_framed || matches!(self.manner(), Some((UpstreamManner::CutShort, size)) if size > 0)
    }
}

/// `length` bytes that only `number` has: lines with the number, over and over.
pub fn content(number: u64, length: u64) -> Vec<u8> {
    let line = format!("n={number};");
    line.bytes().cycle().take(length as usize).collect()
}

/// Whether `bytes` are what `whole` has from `at`.
pub fn content_part(whole: &[u8], at: usize, bytes: &[u8]) -> bool {
    whole.get(at..at + bytes.len()) == Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunked_body_is_its_content_in_chunks() {
        let body = Some(BodyPlan { length: 3001, is_chunked: true });
        let target = Target::Proxied(UpstreamManner::Length, 0);
        let request = RequestPlan { number: 5, target, body, is_pipelined: false, pause: 0, ask: None };
        let text = String::from_utf8(request.bytes(true)).expect("ours");
        assert!(
            text.starts_with("POST /up/length?n=5&size=0 HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n")
        );
        assert!(
            text.contains("\r\n\r\nbb8\r\nn=5;n=5;") && text.ends_with("\r\n1\r\nn\r\n0\r\n\r\n"),
            "{text}"
        );
    }
}
