//! What a seed draws of clients that speak HTTP/2, and of the server's settings for them.

use std::fmt::Write;

use super::hpack::FieldForm;
use crate::draw::Draw;
use crate::request::{RequestPlan, Target};
use crate::routing::plan::ROUTED_PORT;
use crate::tls::TlsPlan;

/// Everything about HTTP/2 that a seed draws.
#[derive(Clone, Debug, Default)]
pub struct Http2Plan {
    /// Those who ask.
    pub clients: Vec<Http2ClientPlan>,
    /// `http2_max_concurrent_streams`.
    pub max_streams: u64,
    /// `http2_body_preread_size`, bytes.
    pub preread: u64,
    /// `http2_recv_buffer_size`, bytes.
    pub receive_buffer: u64,
    /// `http2_chunk_size`, bytes.
    pub chunk: u64,
}

/// A client's connection.
#[derive(Clone, Debug)]
pub struct Http2ClientPlan {
    /// When it connects.
    pub at: u64,
    /// The seed of what it chooses on its way.
    pub seed: u64,
    /// What it asks, a stream each.
    pub requests: Vec<StreamPlan>,
    /// How fast it sends and reads.
    pub pace: ClientPace,
    /// SETTINGS_INITIAL_WINDOW_SIZE.
    pub window: u32,
    /// SETTINGS_HEADER_TABLE_SIZE.
    pub table: u32,
    /// SETTINGS_MAX_FRAME_SIZE.
    pub frame: u32,
    /// Bytes that the connection's window has more than it begins with.
    pub room: u32,
    /// How it gives windows back.
    pub credit: WindowCredit,
    /// Streams that it has open at once.
    pub most_streams: usize,
    /// What else it sends, so long after it has connected.
    pub noises: Vec<(u64, Http2Noise)>,
    /// How it leaves.
    pub end: Http2End,
    /// What it does of TLS, if it speaks it.
    pub tls: Option<TlsPlan>,
}

/// How fast a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPace {
    /// Longest piece in which it sends, bytes.
    pub piece: u64,
    /// Longest time between two pieces.
    pub gap: u64,
    /// Longest time between two of its reads.
    pub read_gap: u64,
    /// Most that it reads at once, bytes.
    pub read: u64,
    /// Whether its receive buffer is small.
    pub is_narrow: bool,
}

/// How a client gives back the windows of what it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowCredit {
    /// With each DATA frame.
    AtOnce,
    /// So much later.
    Late(u64),
    /// When so many bytes are due.
    Gathered(u64),
    /// Never: a response that is longer than the window does not end.
    Never,
}

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http2End {
    /// By closing after the last response.
    Closes,
    /// With GOAWAY after its last request; the server closes.
    SaysGoaway,
    /// It stays until the server closes.
    Stays,
    /// It closes, whatever is under way, after so long.
    Leaves(u64),
    /// It closes when it has sent so many bytes.
    CutAt(u64),
    /// It shuts down its sending side after the last request, and reads on.
    HalfCloses,
    /// It sends what is against the protocol after so long.
    Breaks(u64, BrokenFrame),
    /// It sends far too much of what costs it nothing.
    Floods(u64, FloodKind),
}

/// What is against the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenFrame {
    /// DATA on stream 0.
    DataOnZero,
    /// HEADERS on a stream of the server's.
    HeadersOnEven,
    /// WINDOW_UPDATE by nothing.
    WindowByZero,
    /// WINDOW_UPDATE above 2^31 - 1.
    WindowTooLarge,
    /// A frame that is longer than was allowed.
    TooLong,
    /// A header block with an index that there is not.
    BadIndex,
    /// CONTINUATION after nothing.
    LooseContinuation,
    /// PING in the middle of a header block.
    BlockCut,
    /// SETTINGS of five bytes.
    SettingsLength,
    /// An acknowledgement that carries something.
    AckOfFive,
    /// PING of seven bytes.
    PingLength,
    /// RST_STREAM of a stream that was never opened.
    ResetOfIdle,
    /// More padding than frame.
    Padding,
    /// PUSH_PROMISE.
    Push,
    /// SETTINGS_ENABLE_PUSH of 2.
    PushOfTwo,
    /// SETTINGS_INITIAL_WINDOW_SIZE of 2^31.
    HugeWindow,
}

/// All of them.
pub const BROKEN_FRAMES: [BrokenFrame; 16] = [
    BrokenFrame::DataOnZero,
    BrokenFrame::HeadersOnEven,
    BrokenFrame::WindowByZero,
    BrokenFrame::WindowTooLarge,
    BrokenFrame::TooLong,
    BrokenFrame::BadIndex,
    BrokenFrame::LooseContinuation,
    BrokenFrame::BlockCut,
    BrokenFrame::SettingsLength,
    BrokenFrame::AckOfFive,
    BrokenFrame::PingLength,
    BrokenFrame::ResetOfIdle,
    BrokenFrame::Padding,
    BrokenFrame::Push,
    BrokenFrame::PushOfTwo,
    BrokenFrame::HugeWindow,
];

/// What there may be too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloodKind {
    /// Streams that are opened and reset.
    Resets,
    /// PING.
    Pings,
    /// SETTINGS.
    Settings,
    /// DATA with nothing in it, on a stream whose request does not end.
    Empty,
    /// PRIORITY.
    Priorities,
    /// WINDOW_UPDATE.
    Windows,
    /// Frames of a kind that there is not.
    Unknown,
    /// CONTINUATION.
    Continuations,
    /// GOAWAY.
    GoAways,
}

/// All of them, with how many frames are sent.
pub const FLOODS: [(FloodKind, u32); 9] = [
    (FloodKind::Resets, 6000),
    (FloodKind::Pings, 6000),
    (FloodKind::Settings, 500),
    (FloodKind::Empty, 3000),
    (FloodKind::Priorities, 9000),
    (FloodKind::Windows, 20_000),
    (FloodKind::Unknown, 5000),
    (FloodKind::Continuations, 3000),
    (FloodKind::GoAways, 300),
];

/// What a client sends beside its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http2Noise {
    /// PING with these bytes.
    Ping(u64),
    /// SETTINGS with another initial window.
    Window(u32),
    /// SETTINGS with nothing in it.
    Settings,
    /// PRIORITY of a stream.
    Priority(u32),
    /// A frame of a kind that there is not, with so many bytes.
    Unknown(u16),
    /// WINDOW_UPDATE of the connection.
    Room(u32),
    /// RST_STREAM of the first stream that is open.
    Reset,
}

/// A request.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    /// Its number, target, body, and the pause before it.
    pub request: RequestPlan,
    /// HEAD in place of GET.
    pub is_head: bool,
    /// Bytes of a field that is only there to be long.
    pub filler: u64,
    /// Into how many frames its header block is cut.
    pub blocks: u64,
    /// How its fields are written.
    pub form: FieldForm,
    /// Whether HEADERS carries a priority.
    pub has_priority: bool,
    /// The longest DATA frame of its body, bytes.
    pub data: u64,
    /// Most bytes of padding of its frames.
    pub padding: u8,
    /// The longest time between two DATA frames.
    pub gap: u64,
    /// Whether trailers follow the body.
    pub has_trailers: bool,
    /// Whether it is cancelled, so long after it has begun.
    pub cancel: Option<u64>,
}

/// A field longer than this may be refused.
const LONG_FIELD: u64 = 8000;

impl StreamPlan {
    /// Whether the server may refuse its fields for their length.
    pub fn is_large(&self) -> bool {
        self.filler > LONG_FIELD
    }

    fn drawn(draw: &mut Draw, number: &mut u64) -> StreamPlan {
        let request = RequestPlan::drawn(draw, false, number);
        let length = request.body.map_or(0, |body| body.length);
        StreamPlan {
            is_head: request.body.is_none()
                && !matches!(request.target, Target::Proxied(..))
                && draw.chance(1, 8),
            filler: *draw.one_of(&[0, 0, 0, 0, 40, 3000, 7500, 9000, 40_000]),
            blocks: *draw.one_of(&[1, 1, 1, 2, 5]),
            form: *draw.one_of(&[FieldForm::Plain, FieldForm::Never, FieldForm::Added]),
            has_priority: draw.chance(1, 6),
            data: (*draw.one_of(&[1, 100, 5000, 16_384])).max(length / 100),
            padding: *draw.one_of(&[0, 0, 1, 255]),
            gap: *draw.one_of(&[0, 0, 100, 20_000]),
            has_trailers: draw.chance(1, 6),
            cancel: draw.chance(1, 8).then(|| *draw.one_of(&[0, 100, 3000, 50_000, 500_000])),
            request,
        }
    }
}

impl Http2Plan {
    /// What `draw` draws; requests have the numbers after `number`.
    pub fn drawn(draw: &mut Draw, span: u64, number: &mut u64) -> Http2Plan {
        let count = *draw.one_of(&[0, 0, 1, 2, 5, 10]);
        Http2Plan {
            max_streams: *draw.one_of(&[1, 3, 128, 128]),
            preread: *draw.one_of(&[0, 1, 1000, 65_536]),
            receive_buffer: *draw.one_of(&[33, 5000, 262_144]),
            chunk: *draw.one_of(&[100, 1000, 8192, 100_000]),
            clients: (0..count)
                .map(|which| Http2ClientPlan::drawn(&mut draw.apart(which), span, number))
                .collect(),
        }
    }

    /// Lines of `http`, and of `server`.
    pub fn configuration(&self) -> (String, String) {
        let (mut http, mut server) = (String::new(), String::new());
        if !self.clients.is_empty() {
            let _ = writeln!(http, "    http2_recv_buffer_size {};", self.receive_buffer);
            let _ = writeln!(server, "        http2 on;");
            let _ = writeln!(server, "        http2_max_concurrent_streams {};", self.max_streams);
            let _ = writeln!(server, "        http2_body_preread_size {};", self.preread);
            let _ = writeln!(server, "        http2_chunk_size {};", self.chunk);
        }
        (http, server)
    }

    /// The request with a number, and who sends it.
    pub fn find(&self, number: u64) -> Option<(&Http2ClientPlan, &StreamPlan)> {
        let all = self.clients.iter().flat_map(|client| client.requests.iter().map(move |one| (client, one)));
        all.into_iter().find(|(_, one)| one.request.number == number)
    }
}

impl Http2ClientPlan {
    fn drawn(draw: &mut Draw, span: u64, number: &mut u64) -> Http2ClientPlan {
        let count = *draw.one_of(&[1, 2, 5, 20]);
        let requests = (0..count).map(|_| StreamPlan::drawn(draw, number)).collect();
        let noises = (0..draw.below(5)).map(|_| (draw.below(300_000), Http2Noise::drawn(draw))).collect();
        Http2ClientPlan {
            at: draw.below(span),
            seed: draw.number(),
            requests,
            pace: ClientPace {
                piece: *draw.one_of(&[1, 7, 100, 1500, 1 << 20]),
                gap: *draw.one_of(&[0, 10, 1000, 30_000]),
                read_gap: *draw.one_of(&[0, 10, 1000, 5000]),
                read: *draw.one_of(&[100, 1500, 1 << 16]),
                is_narrow: draw.chance(1, 3),
            },
            window: *draw.one_of(&[1, 100, 10_000, 65_535, 1 << 20, 0x7fff_ffff]),
            table: *draw.one_of(&[0, 100, 4096, 65_536]),
            frame: *draw.one_of(&[16_384, 16_385, (1 << 24) - 1]),
            room: *draw.one_of(&[0, 1, 1 << 20, 0x7f00_0000]),
            credit: match draw.below(12) {
                0..5 => WindowCredit::AtOnce,
                5..8 => WindowCredit::Late(*draw.one_of(&[10, 1000, 20_000])),
                8..11 => WindowCredit::Gathered(*draw.one_of(&[10, 4000, 30_000])),
                _ => WindowCredit::Never,
            },
            most_streams: *draw.one_of(&[1, 3, 100]),
            noises,
            end: Http2End::drawn(draw),
            tls: None,
        }
    }

    /// One that asks the servers of routing.
    pub(crate) fn routed(draw: &mut Draw, span: u64, number: &mut u64) -> Http2ClientPlan {
        let mut client = Http2ClientPlan::drawn(draw, span, &mut 0);
        if draw.chance(2, 3) {
            client.end = Http2End::Closes;
        }
        let count = client.requests.len();
        for (at, stream) in client.requests.iter_mut().enumerate() {
            stream.request = RequestPlan::routed(draw, at + 1 == count, number);
            stream.request.ask.iter_mut().for_each(|ask| ask.absolute = None);
            (stream.is_head, stream.filler) = (false, stream.filler.min(40));
            stream.cancel = stream.cancel.filter(|_| draw.chance(1, 4));
        }
        client
    }

    /// Where it connects; `usual`: where most do.
    pub fn port(&self, usual: u16) -> u16 {
        match self.requests.first() {
            Some(stream) if stream.request.ask.is_some() => ROUTED_PORT,
            _ => self.tls.map_or(usual, |tls| tls.port()),
        }
    }

    /// Whether the server may end it before its time: it does what forbids others to go on.
    pub fn is_rough(&self) -> bool {
        let ends = matches!(
            self.end,
            Http2End::Leaves(_)
                | Http2End::CutAt(_)
                | Http2End::HalfCloses
                | Http2End::Breaks(..)
                | Http2End::Floods(..)
        );
        ends || self.requests.iter().any(StreamPlan::is_large)
    }
}

impl Http2End {
    fn drawn(draw: &mut Draw) -> Http2End {
        match draw.below(16) {
            0..6 => Http2End::Closes,
            6 | 7 => Http2End::SaysGoaway,
            8 | 9 => Http2End::Stays,
            10 => Http2End::Leaves(draw.below(400_000)),
            11 => Http2End::CutAt(draw.below(3000)),
            12 => Http2End::HalfCloses,
            13 | 14 => Http2End::Breaks(draw.below(200_000), *draw.one_of(&BROKEN_FRAMES)),
            _ => Http2End::Floods(draw.below(50_000), draw.one_of(&FLOODS).0),
        }
    }
}

impl Http2Noise {
    fn drawn(draw: &mut Draw) -> Http2Noise {
        match draw.below(8) {
            0 | 1 => Http2Noise::Ping(draw.number()),
            2 => Http2Noise::Window(*draw.one_of(&[10, 65_535, 1 << 24])),
            3 => Http2Noise::Settings,
            4 => Http2Noise::Priority(1 + 2 * draw.below(20) as u32),
            5 => Http2Noise::Unknown(draw.below(300) as u16),
            6 => Http2Noise::Room(1 + draw.below(1000) as u32),
            _ => Http2Noise::Reset,
        }
    }
}
