//! A server of HTTP/2 without I/O, which Weir asks: it is given what comes and what time it is, and has bytes to send and lines to
//! note. What it says to a request stands in the request's path; what it allows is its connection's plan.
//!
//! All times are microseconds of the simulation's clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::asked::AskedStream;
use super::frame::{
    self, ACK, END_HEADERS, END_STREAM, Frame, FrameReader, PADDED, PREFACE, PRIORITY, code, kind,
};
use super::hpack::{FieldPair, HpackReader, USUAL, encode};
use super::inbound::unpadded;
use super::server_plan::{ContentCredit, Http2ServerPlan};
use crate::draw::Draw;
use crate::framed::FramedManner;

/// A connection of the server.
#[derive(Clone, Debug)]
pub struct Http2Server {
    pub(super) plan: Http2ServerPlan,
    draw: Draw,
    out: VecDeque<u8>,
    preface: Vec<u8>,
    frames: FrameReader,
    hpack: HpackReader,
    pub(super) streams: BTreeMap<u32, AskedStream>,
    highest: u32,
    /// A header block that goes on: its stream, what has come, and whether the stream ends with it.
    block: Option<(u32, Vec<u8>, bool)>,
    steps: BTreeSet<(u64, u64, ServerStep)>,
    numbers: u64,
    lines: Vec<String>,
    /// What may be sent, of the connection and of a new stream, and in a frame.
    send_window: i64,
    client_window: u32,
    /// What may come, and what has come and was not given back.
    receive_window: i64,
    owed: u64,
    is_acknowledged: bool,
    pings: VecDeque<[u8; 8]>,
    /// Streams above this one are not done.
    last: Option<u32>,
    wish: ServerWish,
}

/// What the server wants of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerWish {
    /// Nothing.
    Stay,
    /// To close it when all is sent.
    Close,
    /// To close it at once.
    Cut,
}

/// What the server does at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ServerStep {
    Responds(u32),
    Content(u32),
    Credits(u32),
    Pings,
    Cuts,
}

/// What is wrong with a frame, if anything is.
type FrameFault = Option<String>;

impl Http2Server {
    /// A server that has just accepted a connection at `now`.
    pub fn new(plan: Http2ServerPlan, now: u64) -> Http2Server {
        let mut server = Http2Server {
            draw: Draw::new(plan.seed),
            out: VecDeque::new(),
            preface: Vec::new(),
            frames: FrameReader::default(),
            hpack: HpackReader::new(USUAL),
            streams: BTreeMap::new(),
            highest: 0,
            block: None,
            steps: BTreeSet::new(),
            numbers: 0,
            lines: Vec::new(),
            send_window: 65_535,
            client_window: 65_535,
            receive_window: 65_535,
            owed: 0,
            is_acknowledged: false,
            pings: VecDeque::new(),
            last: None,
            wish: ServerWish::Stay,
            plan,
        };
        let Http2ServerPlan { table, most_streams, window, .. } = server.plan;
        server.put(&frame::settings(&[(1, table), (3, most_streams), (4, window)]));
        if let Some(after) = server.plan.pings {
            server.at(now + after, ServerStep::Pings);
        }
        if let Some(after) = server.plan.cut {
            server.at(now + after, ServerStep::Cuts);
        }
        server
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
    pub fn wish(&self) -> ServerWish {
        self.wish
    }

    /// What has happened since this was called last, in lines for the journal.
    pub fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    /// Does what its time has come for; `tries` says how often a request was not done before, and counts on.
    pub fn step(&mut self, now: u64, tries: &mut BTreeMap<u64, u32>) {
        while let Some(due) = self.steps.first().copied().filter(|(time, ..)| *time <= now) {
            self.steps.remove(&due);
            match due.2 {
                ServerStep::Responds(stream) => self.responds(now, stream, tries),
                ServerStep::Content(stream) => self.content(now, stream),
                ServerStep::Credits(stream) => self.credits(stream),
                ServerStep::Pings => {
                    self.pings.push_back(now.to_be_bytes());
                    self.put(&frame::frame(kind::PING, 0, 0, &now.to_be_bytes()));
                    self.put(&frame::frame(0xfa, 0xff, 0, &[7; 9]));
                }
                ServerStep::Cuts => {
                    self.lines.push(format!("gc cut t={now}"));
                    self.wish = ServerWish::Cut;
                }
            }
        }
    }

    fn at(&mut self, time: u64, step: ServerStep) {
        self.numbers += 1;
        self.steps.insert((time, self.numbers, step));
    }

    fn put(&mut self, bytes: &[u8]) {
        self.out.extend(bytes);
    }

    /// Bytes have come.
    pub fn receive(&mut self, now: u64, bytes: &[u8]) {
        let missing = PREFACE.len() - self.preface.len();
        let (preface, rest) = bytes.split_at(missing.min(bytes.len()));
        self.preface.extend_from_slice(preface);
        if !PREFACE.starts_with(&self.preface) {
            return self.breaks("no preface".to_owned());
        }
        self.frames.add(rest);
        while let Some(frame) = self.frames.next_frame() {
            if let Some(fault) = self.take(now, &frame) {
                let Frame { kind, flags, stream, payload } = frame;
                let length = payload.len();
                return self.breaks(format!(
                    "{fault} (kind {kind}, flags {flags:x}, stream {stream}, {length} bytes)"
                ));
            }
        }
        self.maybe_close();
    }

    fn breaks(&mut self, fault: String) {
        self.lines.push(format!("bad http2 server: {fault}"));
        self.wish = ServerWish::Cut;
    }

    fn take(&mut self, now: u64, frame: &Frame) -> FrameFault {
        if frame.payload.len() > 16_384 {
            return fault("a frame that is too long");
        }
        if let Some((stream, ..)) = &self.block
            && (frame.kind != kind::CONTINUATION || frame.stream != *stream)
        {
            return fault("another frame in the middle of a header block");
        }
        let is_of_connection = matches!(frame.kind, kind::SETTINGS | kind::PING | kind::GOAWAY);
        if is_of_connection != (frame.stream == 0) && frame.kind != kind::WINDOW_UPDATE {
            return fault("a frame on a stream that can't have it");
        }
        match frame.kind {
            kind::DATA => self.data(now, frame),
            kind::HEADERS => self.headers(now, frame),
            kind::CONTINUATION => self.continuation(now, frame),
            kind::RST_STREAM => self.reset(frame),
            kind::SETTINGS => self.settings(now, frame),
            kind::PING => self.ping(frame),
            kind::GOAWAY | kind::PRIORITY => None,
            kind::WINDOW_UPDATE => self.window_update(now, frame),
            kind => fault(&format!("a frame of kind {kind}")),
        }
    }

    fn headers(&mut self, now: u64, frame: &Frame) -> FrameFault {
        let skipped = if frame.has(PRIORITY) { 5 } else { 0 };
        let Some(block) = unpadded(frame, skipped) else { return fault("more padding than frame") };
        let block = block.to_vec();
        let is_end = frame.has(END_STREAM);
        if frame.has(END_HEADERS) {
            return self.section(now, frame.stream, &block, is_end);
        }
        self.block = Some((frame.stream, block, is_end));
        None
    }

    fn continuation(&mut self, now: u64, frame: &Frame) -> FrameFault {
        let Some((stream, mut block, is_end)) = self.block.take() else {
            return fault("CONTINUATION after nothing");
        };
        block.extend_from_slice(&frame.payload);
        if frame.has(END_HEADERS) {
            return self.section(now, stream, &block, is_end);
        }
        self.block = Some((stream, block, is_end));
        None
    }

    fn section(&mut self, now: u64, number: u32, block: &[u8], is_end: bool) -> FrameFault {
        let fields: Vec<FieldPair> = match self.hpack.decode(block) {
            Ok(fields) => fields,
            Err(bad) => return fault(&bad.0),
        };
        if number.is_multiple_of(2) || number <= self.highest {
            return fault("HEADERS on a stream that is not the next one");
        }
        self.highest = number;
        if self.last.is_some_and(|last| number > last) {
            // It was on its way when GOAWAY came.
            return None;
        }
        let open = self.streams.values().filter(|stream| stream.is_open()).count();
        if self.is_acknowledged && open >= self.plan.most_streams as usize {
            return fault("more streams than are allowed");
        }
        let windows = (i64::from(self.client_window), i64::from(self.plan.window));
        let mut stream = match AskedStream::new(fields, windows) {
            Ok(stream) => stream,
            Err(wrong) => return Some(wrong),
        };
        stream.is_asked = is_end;
        let reads_all = stream.manner != FramedManner::EarlyEnd;
        let fault = if is_end { stream.fault_at_end() } else { None };
        self.streams.insert(number, stream);
        if fault.is_none() && (is_end || !reads_all) {
            self.responds_later(now, number);
        }
        fault
    }

    fn responds_later(&mut self, now: u64, number: u32) {
        let delay = self.draw.below(2000);
        self.at(now + delay, ServerStep::Responds(number));
    }

    fn data(&mut self, now: u64, frame: &Frame) -> FrameFault {
        let length = frame.payload.len() as i64;
        if length > self.receive_window {
            return fault(&format!("DATA above the connection's window of {}", self.receive_window));
        }
        self.receive_window -= length;
        self.owed += length as u64;
        let Some(content) = unpadded(frame, 0) else { return fault("more padding than frame") };
        let Some(stream) = self.streams.get_mut(&frame.stream) else {
            let is_gone = frame.stream <= self.highest;
            self.credits(0);
            return if is_gone { None } else { fault("DATA on a stream that is idle") };
        };
        if stream.is_reset {
            self.credits(0);
            return None;
        }
        if stream.is_asked {
            return fault("DATA after the stream's end");
        }
        // What is acknowledged late is judged by the larger window.
        let spare = if self.is_acknowledged { 0 } else { 65_535 };
        if length > 0 && length > stream.receive_window + spare {
            return fault(&format!("DATA above the stream's window of {}", stream.receive_window));
        }
        stream.receive_window -= length;
        stream.owed += length as u64;
        stream.got.extend_from_slice(content);
        stream.is_asked = frame.has(END_STREAM);
        let is_early = stream.manner == FramedManner::EarlyEnd;
        let fault = if stream.is_asked { stream.fault_at_end() } else { None };
        let (is_asked, is_empty) = (stream.is_asked, stream.receive_window <= 0 || self.receive_window <= 0);
        if is_asked && fault.is_none() && !is_early {
            self.responds_later(now, frame.stream);
        }
        match self.plan.credit {
            ContentCredit::AtOnce => self.credits(frame.stream),
            ContentCredit::Late(us) => self.at(now + us, ServerStep::Credits(frame.stream)),
            ContentCredit::WhenEmpty if is_empty || is_asked => self.credits(frame.stream),
            ContentCredit::WhenEmpty => (),
        }
        fault
    }

    /// Gives back what has been read of a stream and of the connection.
    fn credits(&mut self, number: u32) {
        let owed = std::mem::take(&mut self.owed);
        if owed > 0 {
            self.receive_window += owed as i64;
            self.put(&frame::of_number(kind::WINDOW_UPDATE, 0, owed as u32));
        }
        let Some(stream) = self.streams.get_mut(&number) else { return };
        let owed = std::mem::take(&mut stream.owed);
        if owed > 0 && !stream.is_asked && !stream.is_reset {
            stream.receive_window += owed as i64;
            self.put(&frame::of_number(kind::WINDOW_UPDATE, number, owed as u32));
        }
    }

    fn reset(&mut self, frame: &Frame) -> FrameFault {
        if frame.payload.len() != 4 {
            return fault("RST_STREAM of another length");
        }
        match self.streams.get_mut(&frame.stream) {
            Some(stream) if stream.has_been_reset => return fault("a second RST_STREAM"),
            Some(stream) => (stream.is_reset, stream.has_been_reset) = (true, true),
            None if frame.stream <= self.highest => (),
            None => return fault("RST_STREAM of a stream that is idle"),
        }
        None
    }

    fn settings(&mut self, now: u64, frame: &Frame) -> FrameFault {
        if frame.has(ACK) {
            // A smaller table counts from here on.
            self.hpack.allow(self.plan.table as usize);
            let is_second = std::mem::replace(&mut self.is_acknowledged, true);
            return if is_second { fault("an acknowledgement of nothing") } else { None };
        }
        if !frame.payload.len().is_multiple_of(6) {
            return fault("SETTINGS of another length");
        }
        for at in (0..frame.payload.len()).step_by(6) {
            let (name, value) = (frame.number(at) >> 16, frame.number(at + 2));
            match name {
                2 if value != 0 => return fault("pushes are allowed"),
                4 if value > 0x7fff_ffff => return fault("SETTINGS_INITIAL_WINDOW_SIZE"),
                4 => {
                    let change = i64::from(value) - i64::from(self.client_window);
                    self.client_window = value;
                    self.streams.values_mut().for_each(|stream| stream.send_window += change);
                }
                5 if !(16_384..1 << 24).contains(&value) => return fault("SETTINGS_MAX_FRAME_SIZE"),
                _ => (),
            }
        }
        self.put(&frame::frame(kind::SETTINGS, ACK, 0, b""));
        self.go_on(now);
        None
    }

    fn ping(&mut self, frame: &Frame) -> FrameFault {
        if frame.payload.len() != 8 {
            return fault("PING of another length");
        }
        if !frame.has(ACK) {
            let payload = frame.payload.clone();
            self.put(&frame::frame(kind::PING, ACK, 0, &payload));
            return None;
        }
        let sent = self.pings.pop_front();
        let is_due = sent.is_some_and(|sent| sent[..] == frame.payload[..]);
        if is_due { None } else { fault("a PING that nobody has sent") }
    }

    fn window_update(&mut self, now: u64, frame: &Frame) -> FrameFault {
        let by = i64::from(frame.number(0));
        if frame.payload.len() != 4 || by == 0 {
            return fault("WINDOW_UPDATE by nothing");
        }
        let window = match frame.stream {
            0 => &mut self.send_window,
            number => match self.streams.get_mut(&number) {
                Some(stream) => &mut stream.send_window,
                None if number <= self.highest => return None,
                None => return fault("WINDOW_UPDATE of a stream that is idle"),
            },
        };
        *window += by;
        if *window > 0x7fff_ffff {
            return fault("a window above 2^31 - 1");
        }
        self.go_on(now);
        None
    }

    fn go_on(&mut self, now: u64) {
        let waiting = self.streams.iter().filter(|(_, stream)| stream.has_content()).map(|(n, _)| *n);
        for number in waiting.collect::<Vec<u32>>() {
            if !self.steps.iter().any(|(_, _, step)| *step == ServerStep::Content(number)) {
                self.at(now, ServerStep::Content(number));
            }
        }
    }

    /// Says what the request's path says, but for what a first try does not get.
    fn responds(&mut self, now: u64, number: u32, tries: &mut BTreeMap<u64, u32>) {
        let Some(stream) = self.streams.get_mut(&number).filter(|stream| !stream.is_reset) else { return };
        let (n, manner) = (stream.number, stream.manner);
        let tried = tries.entry(n).or_default();
        *tried += 1;
        let is_first = *tried == 1;
        match manner {
            FramedManner::Silent => return,
            FramedManner::ResetEarly => return self.resets(number, code::INTERNAL_ERROR),
            FramedManner::RefusedOnce if is_first => return self.resets(number, code::REFUSED_STREAM),
            FramedManner::GoesAway if is_first && self.last.is_none() => return self.goes(number - 1),
            FramedManner::GoesLater if self.last.is_none() => self.goes(number),
            _ => (),
        }
        let Some(stream) = self.streams.get_mut(&number) else { return };
        let head = stream.begins();
        let is_over = stream.ends_with_head();
        let flags = END_HEADERS | if is_over { END_STREAM } else { 0 };
        let form = self.plan.form;
        self.put(&frame::frame(kind::HEADERS, flags, number, &encode(&head, form)));
        match is_over {
            true => self.has_responded(number),
            false => self.at(now, ServerStep::Content(number)),
        }
    }

    fn resets(&mut self, number: u32, code: u32) {
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.is_reset = true;
        }
        self.put(&frame::of_number(kind::RST_STREAM, number, code));
        self.maybe_close();
    }

    /// Takes no streams above `last`: those that have come are not done, either.
    fn goes(&mut self, last: u32) {
        self.last = Some(last);
        let payload = [last.to_be_bytes(), code::NO_ERROR.to_be_bytes()].concat();
        self.put(&frame::frame(kind::GOAWAY, 0, 0, &payload));
        for (_, stream) in self.streams.range_mut(last + 1..) {
            stream.is_reset = true;
            self.lines.push(format!("gd n={}", stream.number));
        }
        self.maybe_close();
    }

    /// The next DATA frame of a response, or its trailers.
    fn content(&mut self, now: u64, number: u32) {
        let Some(stream) = self.streams.get_mut(&number).filter(|stream| stream.has_content()) else {
            return;
        };
        let left = stream.out.len() - stream.sent;
        let window = stream.send_window.min(self.send_window).max(0) as usize;
        // A slow response takes some seconds, whatever its length.
        let longest = match stream.manner {
            FramedManner::Slow => self.plan.data.max(stream.out.len() as u64 / 10).min(16_000),
            _ => self.plan.data,
        };
        let most = (1 + self.draw.below(longest) as usize).min(left).min(window);
        if left > 0 && most == 0 {
            // WINDOW_UPDATE goes on.
            return;
        }
        let piece = stream.out[stream.sent..stream.sent + most].to_vec();
        stream.sent += most;
        stream.send_window -= most as i64;
        self.send_window -= most as i64;
        let is_last = stream.sent == stream.out.len();
        let trailers = stream.trailers();
        let end = if is_last && trailers.is_empty() && !stream.is_cut() { END_STREAM } else { 0 };
        let (is_cut, is_slow) = (stream.is_cut(), stream.manner == FramedManner::Slow);
        if most > 0 || end > 0 {
            let padded = if self.draw.chance(1, 8) { PADDED } else { 0 };
            // A pad of no bytes has a length all the same, which counts: it is sent where there is room.
            let has_room = self.send_window > 0 && self.streams[&number].send_window > 0;
            let padded = if has_room { padded } else { 0 };
            let mut payload = piece;
            if padded > 0 {
                payload.insert(0, 0);
                self.send_window -= 1;
                if let Some(stream) = self.streams.get_mut(&number) {
                    stream.send_window -= 1;
                }
            }
            self.put(&frame::frame(kind::DATA, end | padded, number, &payload));
        }
        if !is_last {
            let gap = if is_slow { 200_000 } else { self.plan.gap };
            let gap = self.draw.below(gap + 1);
            return self.at(now + gap, ServerStep::Content(number));
        }
        if is_cut {
            return self.resets(number, code::INTERNAL_ERROR);
        }
        if !trailers.is_empty() {
            let block = encode(&trailers, self.plan.form);
            self.put(&frame::frame(kind::HEADERS, END_STREAM | END_HEADERS, number, &block));
        }
        self.has_responded(number);
    }

    /// The response is sent. What remains of the request is not wanted.
    fn has_responded(&mut self, number: u32) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        stream.has_responded = true;
        if !stream.is_asked {
            self.resets(number, code::NO_ERROR);
        }
        self.maybe_close();
    }

    /// Closes a connection that takes no more streams, when all are done.
    fn maybe_close(&mut self) {
        let is_open = self.streams.values().any(AskedStream::is_open);
        if self.last.is_some() && !is_open && self.wish == ServerWish::Stay {
            self.wish = ServerWish::Close;
        }
    }
}

fn fault(what: &str) -> FrameFault {
    Some(what.to_owned())
}
