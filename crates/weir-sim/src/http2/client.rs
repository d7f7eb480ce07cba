//! A client of HTTP/2 without I/O: it is given what comes and what time it is, and has bytes to send and lines to note.
//!
//! All times are microseconds of the simulation's clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::frame::{self, END_HEADERS, END_STREAM, FrameReader, PADDED, PREFACE, PRIORITY, code, kind};
use super::hpack::{FieldPair, HpackReader, encode, integer};
use super::plan::{BrokenFrame, FLOODS, FloodKind, Http2ClientPlan, Http2End, Http2Noise, StreamPlan};
use super::stream::{ClientStream, RemoteEnd};
use crate::draw::Draw;
use crate::framed::trailer_words;
use crate::request::Target;
use crate::routing::DueResponse;

/// A client's connection.
#[derive(Clone, Debug)]
pub struct Http2Client {
    pub(super) plan: Http2ClientPlan,
    draw: Draw,
    out: VecDeque<u8>,
    pub(super) frames: FrameReader,
    pub(super) hpack: HpackReader,
    pub(super) streams: BTreeMap<u32, ClientStream>,
    /// The next request of the plan.
    next: usize,
    pub(super) next_stream: u32,
    steps: BTreeSet<(u64, u64, ClientStep)>,
    numbers: u64,
    pub(super) lines: Vec<String>,
    pub(super) wish: ClientWish,
    pub(super) server: ServerSide,
    pub(super) send_window: i64,
    pub(super) receive_window: i64,
    pub(super) owed: u64,
    /// SETTINGS_INITIAL_WINDOW_SIZE as last sent, and by how much streams shrink with each acknowledgement that is due.
    pub(super) window: u32,
    pub(super) shrinks: VecDeque<WindowShrink>,
    pub(super) pings: VecDeque<[u8; 8]>,
    /// DATA frames that have come: a client with small windows widens them in the end.
    pub(super) contents: u32,
    pub(super) has_broken: bool,
    has_said_goaway: bool,
}

/// What the client wants of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientWish {
    /// Nothing.
    Stay,
    /// To shut down its sending side when all is sent.
    End,
    /// To close when all is sent, for this reason.
    Close(&'static str),
    /// To close at once: what has come is wrong.
    Cut(&'static str),
}

/// What the server has said of itself.
#[derive(Clone, Debug)]
pub(super) struct ServerSide {
    /// SETTINGS have come.
    pub(super) is_known: bool,
    pub(super) window: u32,
    pub(super) frame: usize,
    pub(super) most_streams: usize,
    /// The last stream and the code of its GOAWAY.
    pub(super) goaway: Option<(u32, u32)>,
    /// The stream of a header block that goes on, what has come of it, and whether the stream ends with it.
    pub(super) block: Option<(u32, Vec<u8>, bool)>,
}

/// By how much the windows of streams before a number shrink when SETTINGS are acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowShrink {
    pub(super) by: i64,
    pub(super) before: u32,
}

/// What the client does at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClientStep {
    Opens,
    Content(u32),
    Cancels(u32),
    Credits(u32),
    Noise(usize),
    Ends,
}

/// After so many DATA frames windows are widened.
const PATIENT: u32 = 200;
/// By how much.
const WIDE: u32 = 1 << 20;

impl Http2Client {
    /// A client that has just connected at `now`.
    pub fn new(plan: &Http2ClientPlan, now: u64) -> Http2Client {
        let mut client = Http2Client {
            draw: Draw::new(plan.seed),
            out: VecDeque::new(),
            frames: FrameReader::default(),
            hpack: HpackReader::new(plan.table as usize),
            streams: BTreeMap::new(),
            next: 0,
            next_stream: 1,
            steps: BTreeSet::new(),
            numbers: 0,
            lines: Vec::new(),
            wish: ClientWish::Stay,
            server: ServerSide {
                is_known: false,
                window: 65_535,
                frame: 16_384,
                most_streams: usize::MAX,
                goaway: None,
                block: None,
            },
            send_window: 65_535,
            receive_window: 65_535 + i64::from(plan.room),
            owed: 0,
            window: plan.window,
            shrinks: VecDeque::from([WindowShrink::default()]),
            pings: VecDeque::new(),
            contents: 0,
            has_broken: false,
            has_said_goaway: false,
            plan: plan.clone(),
        };
        client.begin(now);
        client
    }

    fn begin(&mut self, now: u64) {
        self.put(PREFACE);
        // No pushes, then what the plan says.
        let (table, window, frame) = (self.plan.table, self.plan.window, self.plan.frame);
        self.put(&frame::settings(&[(1, table), (2, 0), (4, window), (5, frame)]));
        if self.plan.room > 0 {
            self.put(&frame::of_number(kind::WINDOW_UPDATE, 0, self.plan.room));
        }
        for which in 0..self.plan.noises.len() {
            self.at(now + self.plan.noises[which].0, ClientStep::Noise(which));
        }
        if let Http2End::Breaks(after, _) | Http2End::Floods(after, _) = self.plan.end {
            self.at(now + after, ClientStep::Ends);
        }
        self.opens_later(now);
    }

    /// When it does something next.
    pub fn next_time(&self) -> Option<u64> {
        self.steps.first().map(|(time, ..)| *time)
    }

    /// What is to be sent.
    pub fn output(&mut self) -> &mut VecDeque<u8> {
        &mut self.out
    }

    /// What it wants of its connection.
    pub fn wish(&self) -> ClientWish {
        self.wish
    }

    /// What has happened since this was called last, in lines for the journal.
    pub fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    /// Does what its time has come for.
    pub fn step(&mut self, now: u64) {
        while let Some(due) = self.steps.first().copied().filter(|(time, ..)| *time <= now) {
            self.steps.remove(&due);
            match due.2 {
                ClientStep::Opens => self.opens(now),
                ClientStep::Content(stream) => self.content(now, stream),
                ClientStep::Cancels(stream) => self.cancels(now, stream),
                ClientStep::Credits(stream) => self.credits(stream),
                ClientStep::Noise(which) => self.noise(now, self.plan.noises[which].1),
                ClientStep::Ends => self.misbehaves(),
            }
        }
    }

    pub(super) fn at(&mut self, time: u64, step: ClientStep) {
        self.numbers += 1;
        self.steps.insert((time, self.numbers, step));
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.out.extend(bytes);
    }

    /// The connection is over: what has not come is noted. What was at the server when it closed, and why, is in `why`.
    pub fn leave(&mut self, now: u64, why: &str) {
        let why = match (why, self.has_broken) {
            ("closed" | "reset", true) => "broke",
            (why, _) => why,
        };
        let streams: Vec<u32> = self.streams.keys().copied().collect();
        for stream in streams {
            self.note_end(now, stream, why);
        }
    }

    /// What the server has said in GOAWAY: its code.
    pub fn goaway(&self) -> Option<u32> {
        self.server.goaway.map(|(_, code)| code)
    }

    /// Whether it has done what is against the protocol, or too much.
    pub fn has_broken(&self) -> bool {
        self.has_broken
    }

    /// Notes what has become of a stream, once.
    pub(super) fn note_end(&mut self, now: u64, number: u32, why: &str) {
        let Some(stream) = self.streams.get_mut(&number).filter(|stream| !stream.is_noted) else { return };
        stream.is_noted = true;
        let plan = &self.plan.requests[stream.place];
        let (end, body) = match stream.remote {
            RemoteEnd::Whole => ("whole", body_word(plan, stream)),
            _ if stream.status > 0 => ("cut", "-"),
            _ => ("none", "-"),
        };
        if stream.remote == RemoteEnd::Whole && plan.request.ask.is_some() {
            let fields = stream.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let words = DueResponse::of(stream.status, &stream.got, fields).words();
            self.lines.push(format!("w n={} {words}", plan.request.number));
        }
        let is_framed = matches!(plan.request.target, Target::Framed(_));
        if stream.remote == RemoteEnd::Whole && stream.status == 200 && is_framed && !plan.is_head {
            let trailers = stream.trailers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            self.lines.push(format!("gt n={} trailers={}", plan.request.number, trailer_words(trailers)));
        }
        let (n, at, status, us) =
            (plan.request.number, number.div_ceil(2), stream.status, now - stream.since);
        self.lines.push(format!("r n={n} at={at} status={status} end={end} body={body} why={why} us={us}"));
        let text = std::mem::take(&mut stream.got);
        drop(text);
        self.opens_later(now);
        self.maybe_end();
    }

    /// After a stream has ended another one may be opened.
    pub(super) fn opens_later(&mut self, now: u64) {
        let Some(request) = self.plan.requests.get(self.next) else { return };
        let pause = request.request.pause;
        if !self.steps.iter().any(|(_, _, step)| *step == ClientStep::Opens) {
            self.at(now + pause, ClientStep::Opens);
        }
    }

    fn opens(&mut self, now: u64) {
        let open = self.streams.values().filter(|stream| stream.is_open()).count();
        let most = self.plan.most_streams.min(self.server.most_streams);
        let may = self.wish == ClientWish::Stay && self.server.goaway.is_none() && !self.has_broken;
        if !may || open >= most {
            // The end of a stream opens the next one.
            return;
        }
        let Some(plan) = self.plan.requests.get(self.next).cloned() else { return };
        let (place, number) = (self.next, self.next_stream);
        (self.next, self.next_stream) = (self.next + 1, self.next_stream + 2);
        let windows = (i64::from(self.server.window), i64::from(self.window));
        let stream = ClientStream::new(place, &plan, now, windows);
        self.put_head(number, &plan, stream.has_ended);
        if stream.has_content() {
            let gap = self.draw.below(plan.gap + 1);
            self.at(now + gap, ClientStep::Content(number));
        }
        if let Some(after) = plan.cancel {
            self.at(now + after, ClientStep::Cancels(number));
        }
        self.streams.insert(number, stream);
        self.opens_later(now);
        self.maybe_end();
    }

    fn put_head(&mut self, number: u32, plan: &StreamPlan, is_end: bool) {
        let block = encode(&fields(plan), plan.form);
        let size = block.len().div_ceil(plan.blocks as usize).clamp(1, self.server.frame - 300);
        let mut flags = if is_end { END_STREAM } else { 0 };
        let count = block.chunks(size).count();
        for (at, piece) in block.chunks(size).enumerate() {
            let last = if at + 1 == count { END_HEADERS } else { 0 };
            if at > 0 {
                self.put(&frame::frame(kind::CONTINUATION, last, number, piece));
                continue;
            }
            let mut payload = Vec::new();
            let padding = self.draw.below(u64::from(plan.padding) + 1) as u8;
            if padding > 0 {
                flags |= PADDED;
                payload.push(padding);
            }
            if plan.has_priority {
                flags |= PRIORITY;
                payload.extend([0x80, 0, 0, 0, 15]);
            }
            payload.extend_from_slice(piece);
            payload.resize(payload.len() + usize::from(padding), 0);
            self.put(&frame::frame(kind::HEADERS, flags | last, number, &payload));
        }
    }

    /// The next DATA frame of a request, or its trailers.
    fn content(&mut self, now: u64, number: u32) {
        let Some(stream) = self.streams.get_mut(&number).filter(|stream| stream.has_content()) else {
            return;
        };
        let plan = self.plan.requests[stream.place].clone();
        let left = stream.body.len() - stream.sent;
        let window = stream.send_window.min(self.send_window).max(0) as usize;
        let padding = self.draw.below(u64::from(plan.padding) + 1) as usize;
        // The padding and its length count as well.
        let extra = if padding > 0 { padding + 1 } else { 0 };
        let most = (plan.data as usize).min(self.server.frame - 300).min(left);
        let (most, extra) = if most + extra > window { (most.min(window), 0) } else { (most, extra) };
        if left > 0 && most == 0 {
            // WINDOW_UPDATE goes on.
            return;
        }
        let piece = stream.body[stream.sent..stream.sent + most].to_vec();
        stream.sent += most;
        stream.send_window -= (most + extra) as i64;
        self.send_window -= (most + extra) as i64;
        let is_last = stream.sent == stream.body.len();
        stream.has_ended = is_last;
        let end = if is_last && !plan.has_trailers { END_STREAM } else { 0 };
        let mut payload = piece;
        if extra > 0 {
            payload.insert(0, padding as u8);
            payload.resize(payload.len() + padding, 0);
        }
        let padded = if extra > 0 { PADDED } else { 0 };
        self.put(&frame::frame(kind::DATA, end | padded, number, &payload));
        if is_last && plan.has_trailers {
            let block = encode(&[("x-trailer".to_owned(), "1".to_owned())], plan.form);
            self.put(&frame::frame(kind::HEADERS, END_STREAM | END_HEADERS, number, &block));
        }
        if is_last {
            self.opens_later(now);
            return self.maybe_end();
        }
        let gap = self.draw.below(plan.gap + 1);
        self.at(now + gap, ClientStep::Content(number));
    }

    /// Windows have grown: requests go on.
    pub(super) fn go_on(&mut self, now: u64) {
        let waiting =
            self.streams.iter().filter(|(_, stream)| stream.has_content()).map(|(number, _)| *number);
        for number in waiting.collect::<Vec<u32>>() {
            if !self.steps.iter().any(|(_, _, step)| *step == ClientStep::Content(number)) {
                self.at(now, ClientStep::Content(number));
            }
        }
    }

    fn cancels(&mut self, now: u64, number: u32) {
        let Some(stream) = self.streams.get_mut(&number).filter(|stream| stream.is_open()) else { return };
        stream.is_cancelled = true;
        self.put(&frame::of_number(kind::RST_STREAM, number, code::CANCEL));
        self.note_end(now, number, "cancelled");
    }

    /// Gives back what has been read of a stream and of the connection.
    pub(super) fn credits(&mut self, number: u32) {
        let wide = if self.contents > PATIENT { WIDE } else { 0 };
        let owed = std::mem::take(&mut self.owed);
        let owed = (owed as i64 + i64::from(wide)).min(0x7fff_ffff - self.receive_window);
        if owed > 0 {
            self.receive_window += owed;
            self.put(&frame::of_number(kind::WINDOW_UPDATE, 0, owed as u32));
        }
        let Some(stream) = self.streams.get_mut(&number) else { return };
        let owed = std::mem::take(&mut stream.owed);
        let owed = (owed as i64 + i64::from(wide)).min(0x7fff_ffff - stream.receive_window);
        if owed > 0 && stream.is_open() && stream.remote == RemoteEnd::Open {
            stream.receive_window += owed;
            self.put(&frame::of_number(kind::WINDOW_UPDATE, number, owed as u32));
        }
        if wide > 0 {
            self.contents = 0;
        }
    }

    fn noise(&mut self, now: u64, noise: Http2Noise) {
        match noise {
            Http2Noise::Ping(number) => {
                self.pings.push_back(number.to_be_bytes());
                self.put(&frame::frame(kind::PING, 0, 0, &number.to_be_bytes()));
            }
            Http2Noise::Window(window) => self.changes_window(window),
            Http2Noise::Settings => {
                self.shrinks.push_back(WindowShrink::default());
                self.put(&frame::settings(&[]));
            }
            Http2Noise::Priority(stream) => {
                self.put(&frame::frame(kind::PRIORITY, 0, stream, &[0, 0, 0, 0, 7]));
            }
            Http2Noise::Unknown(length) => {
                self.put(&frame::frame(0xfa, 0xff, 0, &vec![7; usize::from(length)]));
            }
            Http2Noise::Room(bytes) => {
                let bytes = i64::from(bytes).min(0x7fff_ffff - self.receive_window);
                if bytes > 0 {
                    self.receive_window += bytes;
                    self.put(&frame::of_number(kind::WINDOW_UPDATE, 0, bytes as u32));
                }
            }
            Http2Noise::Reset => {
                if let Some(number) = self.streams.iter().find(|(_, s)| s.is_open()).map(|(n, _)| *n) {
                    self.cancels(now, number);
                }
            }
        }
    }

    /// Another initial window: what grows may come at once, what shrinks is due when it is acknowledged.
    fn changes_window(&mut self, window: u32) {
        let change = i64::from(window) - i64::from(self.window);
        let open: Vec<u32> = self.streams.iter().filter(|(_, s)| s.is_open()).map(|(n, _)| *n).collect();
        if open.iter().any(|n| self.streams[n].receive_window + change > 0x7fff_ffff) {
            return;
        }
        self.window = window;
        self.put(&frame::settings(&[(4, window)]));
        if change > 0 {
            open.iter().for_each(|n| {
                if let Some(stream) = self.streams.get_mut(n) {
                    stream.receive_window += change;
                }
            });
        }
        self.shrinks.push_back(WindowShrink { by: -change.min(0), before: self.next_stream });
    }

    /// After its last request the client may leave, as it is planned.
    pub(super) fn maybe_end(&mut self) {
        let is_last = self.next >= self.plan.requests.len() || self.server.goaway.is_some();
        let is_sent = self.streams.values().all(|stream| !stream.has_content());
        if self.wish != ClientWish::Stay || !is_last || !is_sent {
            return;
        }
        let is_done = self.streams.values().all(|stream| !stream.is_open());
        match self.plan.end {
            Http2End::Closes if is_done => self.wish = ClientWish::Close("done"),
            Http2End::SaysGoaway if !self.has_said_goaway => {
                self.has_said_goaway = true;
                self.put(&frame::frame(kind::GOAWAY, 0, 0, &[0; 8]));
            }
            Http2End::HalfCloses => self.wish = ClientWish::End,
            _ => (),
        }
    }

    fn misbehaves(&mut self) {
        self.has_broken = true;
        match self.plan.end {
            Http2End::Breaks(_, broken) => self.breaks(broken),
            Http2End::Floods(_, flood) => self.floods(flood),
            _ => (),
        }
    }

    fn breaks(&mut self, broken: BrokenFrame) {
        let next = self.next_stream;
        let bytes = match broken {
            BrokenFrame::DataOnZero => frame::frame(kind::DATA, 0, 0, b"x"),
            BrokenFrame::HeadersOnEven => {
                frame::frame(kind::HEADERS, END_STREAM | END_HEADERS, 2, &plain_head("/return"))
            }
            BrokenFrame::WindowByZero => frame::of_number(kind::WINDOW_UPDATE, 0, 0),
            BrokenFrame::WindowTooLarge => {
                [frame::of_number(kind::WINDOW_UPDATE, 0, 0x7fff_ffff), frame::of_number(8, 0, 0x7fff_ffff)]
                    .concat()
            }
            BrokenFrame::TooLong => frame::frame(0xfa, 0, 0, &vec![0; 16_385]),
            BrokenFrame::BadIndex => {
                let mut block = Vec::new();
                integer(&mut block, 0x80, 7, 9000);
                frame::frame(kind::HEADERS, END_STREAM | END_HEADERS, next, &block)
            }
            BrokenFrame::LooseContinuation => frame::frame(kind::CONTINUATION, END_HEADERS, next, b""),
            BrokenFrame::BlockCut => {
                let head = frame::frame(kind::HEADERS, END_STREAM, next, &plain_head("/return"));
                [head, frame::frame(kind::PING, 0, 0, &[0; 8])].concat()
            }
            BrokenFrame::SettingsLength => frame::frame(kind::SETTINGS, 0, 0, &[0; 5]),
            BrokenFrame::AckOfFive => frame::frame(kind::SETTINGS, frame::ACK, 0, &[0; 6]),
            BrokenFrame::PingLength => frame::frame(kind::PING, 0, 0, &[0; 7]),
            BrokenFrame::ResetOfIdle => frame::of_number(kind::RST_STREAM, next + 100, code::CANCEL),
            BrokenFrame::Padding => frame::frame(kind::HEADERS, PADDED | END_HEADERS, next, &[200, 1, 1]),
            BrokenFrame::Push => frame::frame(kind::PUSH_PROMISE, END_HEADERS, next, &[0, 0, 0, 2]),
            BrokenFrame::PushOfTwo => frame::settings(&[(2, 2)]),
            BrokenFrame::HugeWindow => frame::settings(&[(4, 1 << 31)]),
        };
        self.put(&bytes);
    }

    fn floods(&mut self, flood: FloodKind) {
        let count = FLOODS.iter().find(|(one, _)| *one == flood).map_or(0, |(_, count)| *count);
        let first = self.next_stream;
        self.next_stream += 2 * count;
        match flood {
            FloodKind::Empty => {
                self.put(&frame::frame(kind::HEADERS, END_HEADERS, first, &plain_head("/return")));
            }
            FloodKind::Continuations => {
                self.put(&frame::frame(kind::HEADERS, 0, first, &plain_head("/return")));
            }
            _ => (),
        }
        for at in 0..count {
            let bytes = match flood {
                FloodKind::Resets => {
                    let stream = first + 2 * at;
                    let head = frame::frame(
                        kind::HEADERS,
                        END_STREAM | END_HEADERS,
                        stream,
                        &plain_head("/lua?ms=20"),
                    );
                    [head, frame::of_number(kind::RST_STREAM, stream, code::CANCEL)].concat()
                }
                FloodKind::Pings => frame::frame(kind::PING, 0, 0, &[1; 8]),
                FloodKind::Settings => frame::settings(&[]),
                FloodKind::Empty => frame::frame(kind::DATA, 0, first, b""),
                FloodKind::Priorities => frame::frame(kind::PRIORITY, 0, first, &[0, 0, 0, 0, 7]),
                FloodKind::Windows => frame::of_number(kind::WINDOW_UPDATE, 0, 1),
                FloodKind::Unknown => frame::frame(0xfa, 0, 0, b""),
                FloodKind::Continuations => frame::frame(kind::CONTINUATION, 0, first, b""),
                FloodKind::GoAways => frame::frame(kind::GOAWAY, 0, 0, &[0; 8]),
            };
            self.put(&bytes);
        }
    }
}

/// Whether the body is the one that is due, a page of the server's own, or another.
fn body_word(plan: &StreamPlan, stream: &ClientStream) -> &'static str {
    let is_page = stream.got.starts_with(b"<html>") || plan.is_head && stream.status >= 400;
    match plan.request.target.body(plan.request.number) {
        Some(_) if plan.is_head && stream.status < 400 => "right",
        Some(body) if body == stream.got => "right",
        _ if is_page => "page",
        _ => "wrong",
    }
}

fn pair(name: &str, value: impl Into<String>) -> FieldPair {
    (name.to_owned(), value.into())
}

fn plain_head(path: &str) -> Vec<u8> {
    let fields =
        [pair(":method", "GET"), pair(":scheme", "http"), pair(":path", path), pair(":authority", "sim")];
    encode(&fields, super::hpack::FieldForm::Plain)
}

/// The header section of a request.
fn fields(plan: &StreamPlan) -> Vec<FieldPair> {
    let request = &plan.request;
    let method = match request.body {
        Some(_) => request.method(),
        None if plan.is_head => "HEAD",
        None => "GET",
    };
    let (path, host) = request.target_and_host();
    let mut fields =
        vec![pair(":method", method), pair(":scheme", "http"), pair(":path", path), pair(":authority", host)];
    fields.extend(request.routed_fields().into_iter().map(|(name, value)| pair(name, value)));
    if let Some(body) = request.body.filter(|body| !body.is_chunked) {
        fields.push(pair("content-length", body.length.to_string()));
    }
    if plan.filler > 0 {
        fields.push(pair("x-filler", "f".repeat(plan.filler as usize)));
    }
    fields
}
