//! What a seed draws of upstream servers that speak HTTP/2, for `grpc_pass` and `proxy_http_version 2`: what is asked of them, how
//! they respond, and the locations.

use std::fmt::Write;

use crate::draw::Draw;

/// Where the servers listen.
pub const FRAMED_PORTS: [u16; 2] = [9021, 9022];

/// Servers that speak HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramedPlan {
    /// Of 1,000 connections, so many are cut off.
    pub cuts: u64,
    /// `grpc_buffer_size`, bytes.
    pub buffer: u64,
    /// `keepalive` of the upstream; 0: each request has a connection of its own.
    pub keepalive: u64,
}

/// Through which location they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramedDoor {
    /// `grpc_pass`.
    Grpc,
    /// `proxy_pass` with `proxy_http_version 2`.
    Proxy,
}

/// How such a server responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramedManner {
    /// With `content-length`.
    Length,
    /// Without it.
    Plain,
    /// As `Length`, with pauses.
    Slow,
    /// A status of its own.
    NotFound,
    /// With a head that is the end, too: what gRPC calls trailers alone.
    HeadOnly,
    /// RST_STREAM in the middle of the content.
    CutShort,
    /// RST_STREAM in place of a response.
    ResetEarly,
    /// REFUSED_STREAM the first time.
    RefusedOnce,
    /// The first time GOAWAY says that the stream is not done.
    GoesAway,
    /// GOAWAY says that the stream is the last one.
    GoesLater,
    /// It responds, and does not want the request's content: RST_STREAM with NO_ERROR.
    EarlyEnd,
    /// It never says anything.
    Silent,
}

/// All manners, with the word of the request's path.
const MANNERS: [(FramedManner, &str); 12] = [
    (FramedManner::Length, "length"),
    (FramedManner::Plain, "plain"),
    (FramedManner::Slow, "slow"),
    (FramedManner::NotFound, "notfound"),
    (FramedManner::HeadOnly, "head"),
    (FramedManner::CutShort, "cut"),
    (FramedManner::ResetEarly, "reset"),
    (FramedManner::RefusedOnce, "refused"),
    (FramedManner::GoesAway, "goaway"),
    (FramedManner::GoesLater, "later"),
    (FramedManner::EarlyEnd, "early"),
    (FramedManner::Silent, "silent"),
];

impl FramedManner {
    /// That of a word.
    pub(crate) fn of(word: &str) -> Option<FramedManner> {
        MANNERS.iter().find(|(_, own)| *own == word).map(|(manner, _)| *manner)
    }

    fn word(self) -> &'static str {
        MANNERS.iter().find(|(one, _)| *one == self).map_or("", |(_, word)| word)
    }

    /// Whether a connection takes no more streams after it.
    pub(crate) fn ends_connection(self) -> bool {
        matches!(self, FramedManner::GoesAway | FramedManner::GoesLater)
    }

    fn drawn(draw: &mut Draw) -> FramedManner {
        // Half of them are usual.
        MANNERS[if draw.chance(1, 2) { draw.below(3) } else { draw.below(12) } as usize].0
    }
}

/// What is asked of a server that speaks HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramedAsk {
    /// Through which location.
    pub door: FramedDoor,
    /// How the server responds.
    pub manner: FramedManner,
    /// Bytes of the response.
    pub size: u64,
}

impl FramedAsk {
    /// What `draw` draws, of so many bytes.
    pub(crate) fn drawn(draw: &mut Draw, size: u64) -> FramedAsk {
        let door = *draw.one_of(&[FramedDoor::Grpc, FramedDoor::Proxy]);
        let manner = match FramedManner::drawn(draw) {
            // Of no content nothing is missing.
            FramedManner::CutShort if size == 0 => FramedManner::Length,
            manner => manner,
        };
        FramedAsk { door, manner, size }
    }

    /// The path and arguments.
    pub(crate) fn path(&self, number: u64) -> String {
        let door = match self.door {
            FramedDoor::Grpc => "grpc",
            FramedDoor::Proxy => "proxy",
        };
        format!("/framed/{door}/{}?n={number}&size={}", self.manner.word(), self.size)
    }

    /// Bytes of the response that has come whole.
    pub(crate) fn due_size(&self) -> u64 {
        if self.manner == FramedManner::HeadOnly { 0 } else { self.size }
    }

    /// The trailers that are due with a whole response of the server.
    pub(crate) fn has_trailers(&self) -> bool {
        self.door == FramedDoor::Grpc && self.manner != FramedManner::HeadOnly
    }
}

/// What a journal's line says of trailers: their values, or `-` for none of gRPC's.
pub fn trailer_words<'t>(trailers: impl Iterator<Item = (&'t str, &'t str)>) -> String {
    let values: Vec<&str> =
        trailers.filter(|(name, _)| name.starts_with("grpc-")).map(|(_, value)| value).collect();
    if values.is_empty() { "-".to_owned() } else { values.join(",") }
}

impl FramedPlan {
    /// What `draw` draws.
    pub(crate) fn drawn(draw: &mut Draw) -> Option<FramedPlan> {
        draw.chance(1, 3).then(|| FramedPlan {
            cuts: *draw.one_of(&[0, 0, 0, 100, 400]),
            buffer: *draw.one_of(&[4096, 8192, 32_768]),
            keepalive: *draw.one_of(&[0, 1, 8, 32]),
        })
    }

    /// The block `upstream`.
    pub(crate) fn block(&self) -> String {
        let mut lines = String::new();
        for port in FRAMED_PORTS {
            let _ = writeln!(lines, "        server 127.0.0.1:{port} max_fails=0;");
        }
        format!("    upstream framed {{\n{lines}        keepalive {};\n    }}\n", self.keepalive)
    }

    /// The locations; `proxied` has the lines of all locations with an upstream server, `patience` is in seconds.
    pub(crate) fn locations(&self, proxied: &str, is_buffered: bool, patience: u64) -> String {
        let proxied = proxied.replace("proxy_http_version 1.1;", "proxy_http_version 2;");
        let buffering = if is_buffered { "on" } else { "off" };
        format!(
            "        location /framed/grpc/ {{ grpc_pass grpc://framed; grpc_connect_timeout 3s; \
             grpc_read_timeout {patience}s; grpc_next_upstream_tries 2; grpc_buffer_size {}; }}
        location /framed/proxy/ {{\n            proxy_buffering {buffering};
            proxy_pass http://framed;\n{proxied}        }}\n",
            self.buffer,
        )
    }
}
