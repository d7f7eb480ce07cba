//! What comes to a client: each frame is taken, or is a fault of the server's.

use super::client::{ClientStep, ClientWish, Http2Client};
use super::frame::{self, ACK, END_HEADERS, END_STREAM, Frame, PADDED, PRIORITY, kind};
use super::hpack::FieldPair;
use super::plan::WindowCredit;
use super::stream::RemoteEnd;

/// What is wrong with a frame, if anything is.
type FrameFault = Option<String>;

/// The longest frame that every client takes.
const LEAST_FRAME: usize = 16_384;

impl Http2Client {
    /// Bytes have come.
    pub fn receive(&mut self, now: u64, bytes: &[u8]) {
        self.frames.add(bytes);
        while let Some(frame) = self.frames.next_frame() {
            if let Some(fault) = self.take(now, &frame) {
                let Frame { kind, flags, stream, payload } = frame;
                let length = payload.len();
                self.lines.push(format!(
                    "bad http2 {fault} (kind {kind}, flags {flags:x}, stream {stream}, {length} bytes)"
                ));
                self.wish = ClientWish::Cut("bad");
                return;
            }
        }
        self.maybe_end();
    }

    fn take(&mut self, now: u64, frame: &Frame) -> FrameFault {
        let is_first = !self.server.is_known;
        if is_first && (frame.kind != kind::SETTINGS || frame.has(ACK)) {
            return fault("the first frame is not SETTINGS");
        }
        if frame.payload.len() > LEAST_FRAME.max(self.plan.frame as usize) {
            return fault("a frame that is too long");
        }
        if let Some((stream, ..)) = &self.server.block
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
            kind::RST_STREAM => self.reset(now, frame),
            kind::SETTINGS => self.settings(now, frame),
            kind::PING => self.ping(frame),
            kind::GOAWAY => self.goes(now, frame),
            kind::WINDOW_UPDATE => self.window_update(now, frame),
            kind => fault(&format!("a frame of kind {kind}")),
        }
    }

    fn data(&mut self, now: u64, frame: &Frame) -> FrameFault {
        let length = frame.payload.len() as i64;
        if length > self.receive_window {
            return fault(&format!("DATA above the connection's window of {}", self.receive_window));
        }
        self.receive_window -= length;
        self.owed += length as u64;
        self.contents += 1;
        let Some(content) = unpadded(frame, 0) else { return fault("more padding than frame") };
        let content = content.to_vec();
        let has_broken = self.has_broken;
        let Some(stream) = self.streams.get_mut(&frame.stream) else {
            return if has_broken { None } else { fault("DATA on a stream that is idle") };
        };
        if stream.is_cancelled {
            self.credits(0);
            return None;
        }
        if stream.remote != RemoteEnd::Open {
            return fault("DATA after the stream's end");
        }
        if stream.status == 0 {
            return fault("DATA before HEADERS");
        }
        if length > 0 && length > stream.receive_window {
            return fault(&format!("DATA above the stream's window of {}", stream.receive_window));
        }
        stream.receive_window -= length;
        stream.owed += length as u64;
        stream.got.extend_from_slice(&content);
        if frame.has(END_STREAM) {
            return self.ends(now, frame.stream);
        }
        self.gives_back(now, frame.stream);
        None
    }

    /// Gives windows back, as the plan says.
    fn gives_back(&mut self, now: u64, number: u32) {
        let Some(stream) = self.streams.get(&number) else { return };
        let is_empty = stream.receive_window <= 0 || self.receive_window <= 0;
        match self.plan.credit {
            WindowCredit::AtOnce => self.credits(number),
            WindowCredit::Late(us) => self.at(now + us, ClientStep::Credits(number)),
            WindowCredit::Gathered(bytes) if is_empty || stream.owed >= bytes => self.credits(number),
            WindowCredit::Gathered(_) | WindowCredit::Never => (),
        }
    }

    fn headers(&mut self, now: u64, frame: &Frame) -> FrameFault {
        let skipped = if frame.has(PRIORITY) { 5 } else { 0 };
        let Some(block) = unpadded(frame, skipped) else { return fault("more padding than frame") };
        let block = block.to_vec();
        if !self.streams.contains_key(&frame.stream) && !self.has_broken {
            return fault("HEADERS on a stream that is idle");
        }
        let is_end = frame.has(END_STREAM);
        if frame.has(END_HEADERS) {
            return self.section(now, frame.stream, &block, is_end);
        }
        self.server.block = Some((frame.stream, block, is_end));
        None
    }

    fn continuation(&mut self, now: u64, frame: &Frame) -> FrameFault {
        let Some((stream, mut block, is_end)) = self.server.block.take() else {
            return fault("CONTINUATION after nothing");
        };
        block.extend_from_slice(&frame.payload);
        if frame.has(END_HEADERS) {
            return self.section(now, stream, &block, is_end);
        }
        self.server.block = Some((stream, block, is_end));
        None
    }

    fn section(&mut self, now: u64, number: u32, block: &[u8], is_end: bool) -> FrameFault {
        let fields: Vec<FieldPair> = match self.hpack.decode(block) {
            Ok(fields) => fields,
            Err(bad) => return fault(&bad.0),
        };
        // Of a stream that is not the plan's.
        let stream = self.streams.get_mut(&number)?;
        if stream.is_cancelled {
            return None;
        }
        if stream.remote != RemoteEnd::Open {
            return fault("HEADERS after the stream's end");
        }
        let is_trailers =
            stream.status > 0 && is_end && !fields.iter().any(|(name, _)| name.starts_with(':'));
        if is_trailers {
            stream.trailers = fields;
        } else if let Some(wrong) = stream.head(fields) {
            return Some(wrong);
        }
        if is_end { self.ends(now, number) } else { None }
    }

    /// The response has come whole.
    fn ends(&mut self, now: u64, number: u32) -> FrameFault {
        let stream = self.streams.get_mut(&number)?;
        stream.remote = RemoteEnd::Whole;
        let wrong = stream.fault_at_end(&self.plan.requests[stream.place]);
        if self.plan.credit != WindowCredit::Never {
            // What is owed to the connection is due, though the stream has ended.
            self.credits(number);
        }
        self.note_end(now, number, "-");
        wrong
    }

    fn reset(&mut self, now: u64, frame: &Frame) -> FrameFault {
        if frame.payload.len() != 4 {
            return fault("RST_STREAM of another length");
        }
        let has_broken = self.has_broken;
        let Some(stream) = self.streams.get_mut(&frame.stream) else {
            return if has_broken { None } else { fault("RST_STREAM of a stream that is idle") };
        };
        if stream.is_cancelled {
            return None;
        }
        match stream.remote {
            RemoteEnd::Reset => return fault("a second RST_STREAM"),
            RemoteEnd::Whole if stream.is_bodiless => return fault("RST_STREAM of a stream that has ended"),
            RemoteEnd::Whole if frame.number(0) != frame::code::NO_ERROR => {
                return fault(&format!("RST_STREAM with code {} after a whole response", frame.number(0)));
            }
            RemoteEnd::Whole | RemoteEnd::Open => (),
        }
        stream.remote = RemoteEnd::Reset;
        self.note_end(now, frame.stream, &format!("reset{}", frame.number(0)));
        self.opens_later(now);
        None
    }

    fn settings(&mut self, now: u64, frame: &Frame) -> FrameFault {
        if frame.has(ACK) {
            if !frame.payload.is_empty() {
                return fault("an acknowledgement that carries something");
            }
            let Some(shrink) = self.shrinks.pop_front() else {
                return if self.has_broken { None } else { fault("an acknowledgement of nothing") };
            };
            self.streams.range_mut(..shrink.before).for_each(|(_, s)| s.receive_window -= shrink.by);
            return None;
        }
        if !frame.payload.len().is_multiple_of(6) {
            return fault("SETTINGS of another length");
        }
        for at in (0..frame.payload.len()).step_by(6) {
            let name = frame.number(at) >> 16;
            let value = frame.number(at + 2);
            match name {
                2 if value != 0 => return fault("SETTINGS_ENABLE_PUSH of a server"),
                3 => self.server.most_streams = value as usize,
                4 if value > 0x7fff_ffff => return fault("SETTINGS_INITIAL_WINDOW_SIZE"),
                4 => {
                    let change = i64::from(value) - i64::from(self.server.window);
                    self.server.window = value;
                    self.streams.values_mut().for_each(|stream| stream.send_window += change);
                }
                5 if !(16_384..1 << 24).contains(&value) => return fault("SETTINGS_MAX_FRAME_SIZE"),
                5 => self.server.frame = value as usize,
                _ => (),
            }
        }
        self.server.is_known = true;
        self.put(&frame::frame(kind::SETTINGS, ACK, 0, b""));
        self.go_on(now);
        self.opens_later(now);
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
        if is_due || self.has_broken { None } else { fault("a PING that nobody has sent") }
    }

    fn goes(&mut self, now: u64, frame: &Frame) -> FrameFault {
        if frame.payload.len() < 8 {
            return fault("GOAWAY of another length");
        }
        let (last, code) = (frame.number(0), frame.number(4));
        if self.server.goaway.is_some_and(|(before, _)| last > before) {
            return fault("GOAWAY whose last stream is higher than before");
        }
        self.server.goaway = Some((last, code));
        let refused: Vec<u32> = self.streams.keys().copied().filter(|number| *number > last).collect();
        for number in refused {
            if let Some(stream) = self.streams.get_mut(&number) {
                if stream.status > 0 {
                    return fault("GOAWAY below a stream that has a response");
                }
                if stream.remote == RemoteEnd::Open {
                    stream.remote = RemoteEnd::Reset;
                }
            }
            self.note_end(now, number, &format!("goaway{code}"));
        }
        None
    }

    fn window_update(&mut self, now: u64, frame: &Frame) -> FrameFault {
        let by = i64::from(frame.number(0));
        if frame.payload.len() != 4 || by == 0 {
            return fault("WINDOW_UPDATE by nothing");
        }
        let window = match frame.stream {
            0 => &mut self.send_window,
            number => match self.streams.get_mut(&number) {
                Some(stream) if stream.remote == RemoteEnd::Reset && !stream.is_cancelled => {
                    let is_refused = self.server.goaway.is_some_and(|(last, _)| number > last);
                    return if is_refused { None } else { fault("WINDOW_UPDATE after RST_STREAM") };
                }
                Some(stream) => &mut stream.send_window,
                None if self.has_broken => return None,
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
}

fn fault(what: &str) -> FrameFault {
    Some(what.to_owned())
}

/// What a frame carries without its padding and the first `skipped` bytes.
pub(super) fn unpadded(frame: &Frame, skipped: usize) -> Option<&[u8]> {
    let (from, padding) = match frame.has(PADDED) {
        true => (1, usize::from(*frame.payload.first()?)),
        false => (0, 0),
    };
    let end = frame.payload.len().checked_sub(padding)?;
    frame.payload.get(from + skipped..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::hpack::{FieldForm, encode};
    use crate::http2::plan::{ClientPace, Http2ClientPlan, Http2End, StreamPlan};
    use crate::request::{RequestPlan, Target};

    fn client() -> Http2Client {
        let request = RequestPlan {
            number: 7,
            target: Target::Return,
            body: None,
            is_pipelined: false,
            pause: 0,
            ask: None,
        };
        let stream = StreamPlan {
            request,
            is_head: false,
            filler: 0,
            blocks: 2,
            form: FieldForm::Plain,
            has_priority: false,
            data: 10,
            padding: 0,
            gap: 0,
            has_trailers: false,
            cancel: None,
        };
        let plan = Http2ClientPlan {
            at: 0,
            seed: 1,
            requests: vec![stream],
            pace: ClientPace { piece: 1, gap: 0, read_gap: 0, read: 1, is_narrow: false },
            window: 4,
            table: 4096,
            frame: 16_384,
            room: 0,
            credit: WindowCredit::Never,
            most_streams: 1,
            noises: Vec::new(),
            end: Http2End::Closes,
            tls: None,
        };
        let mut client = Http2Client::new(&plan, 0);
        client.step(0);
        client
    }

    fn head(flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
        let fields: Vec<FieldPair> =
            fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        frame::frame(kind::HEADERS, END_HEADERS | flags, 1, &encode(&fields, FieldForm::Added))
    }

    /// The lines that come of what the server sends after its SETTINGS.
    fn lines(frames: &[Vec<u8>]) -> Vec<String> {
        let mut client = client();
        client.receive(5, &frame::settings(&[]));
        client.receive(9, &frames.concat());
        client.leave(10, "closed");
        client.take_lines()
    }

    #[test]
    fn a_whole_response_is_noted() {
        let data = frame::frame(kind::DATA, END_STREAM, 1, b"n=7\n");
        assert_eq!(
            lines(&[head(0, &[(":status", "200")]), data]),
            ["r n=7 at=1 status=200 end=whole body=right why=- us=9"]
        );
        let reset = frame::of_number(kind::RST_STREAM, 1, 2);
        assert_eq!(
            lines(&[head(0, &[(":status", "200")]), reset]),
            ["r n=7 at=1 status=200 end=cut body=- why=reset2 us=9"]
        );
        let goaway = frame::frame(kind::GOAWAY, 0, 0, &[0; 8]);
        assert_eq!(lines(&[goaway]), ["r n=7 at=1 status=0 end=none body=- why=goaway0 us=9"]);
    }

    #[test]
    fn what_a_server_must_not_send_is_a_fault() {
        let good = head(0, &[(":status", "200")]);
        let data = |flags, stream, bytes: &[u8]| frame::frame(kind::DATA, flags, stream, bytes);
        for (what, frames) in [
            ("above the stream's window", vec![good.clone(), data(0, 1, b"12345")]),
            ("before HEADERS", vec![data(0, 1, b"1")]),
            ("DATA after the stream's end", vec![head(END_STREAM, &[(":status", "200")]), data(0, 1, b"")]),
            ("DATA on a stream that is idle", vec![data(0, 3, b"")]),
            (
                "content-length 9, and 1",
                vec![head(0, &[(":status", "200"), ("content-length", "9")]), data(1, 1, b"n")],
            ),
            ("a second head", vec![good.clone(), good.clone()]),
            ("without :status", vec![head(0, &[("a", "b")])]),
            ("does not have: connection", vec![head(0, &[(":status", "200"), ("connection", "close")])]),
            (
                "RST_STREAM of a stream that has ended",
                vec![head(END_STREAM, &[(":status", "200")]), frame::of_number(kind::RST_STREAM, 1, 0)],
            ),
            ("a PING that nobody has sent", vec![frame::frame(kind::PING, ACK, 0, &[0; 8])]),
            ("a frame of kind 5", vec![frame::frame(kind::PUSH_PROMISE, END_HEADERS, 1, &[0; 4])]),
            ("GOAWAY below a stream", vec![good.clone(), frame::frame(kind::GOAWAY, 0, 0, &[0; 8])]),
            (
                "an acknowledgement of nothing",
                vec![frame::frame(4, ACK, 0, b""), frame::frame(4, ACK, 0, b"")],
            ),
            ("WINDOW_UPDATE by nothing", vec![frame::of_number(kind::WINDOW_UPDATE, 0, 0)]),
            ("in the middle of a header block", vec![frame::frame(1, 0, 1, b""), data(0, 1, b"")]),
        ] {
            let lines = lines(&frames);
            assert!(
                lines.iter().any(|line| line.starts_with("bad ") && line.contains(what)),
                "{what}: {lines:?}"
            );
        }
    }
}
