//! FastCGI as a protocol of upstreams: one request of a responder at a time, on a new or a cached connection.

use std::sync::Arc;

use weir_engine::log::LogLevel;
use weir_engine::worker::UpstreamCloseProtocol;
use weir_engine::{Exchange, Verdict};
use weir_http::Method;
use weir_http::fastcgi::{self, FastcgiConnection, RecordEvent, RecordKind, RecordReader, RecordWriter};
use weir_upstream::UpstreamSettings;
use weir_upstream::protocol::{
    BodyDecoder, HeadProgress, IncomingHead, OutgoingRequest, RECORD, RequestFraming, UpstreamProtocol,
};

use super::body::{FastcgiBody, STDERR, stderr_text};
use crate::gateway::cgi::head;
use crate::gateway::cgi::params::RequestParams;

/// A location's way of speaking FastCGI.
pub(super) struct FastCgiProtocol {
    pub(super) params: RequestParams,
    pub(super) connection: FastcgiConnection,
    /// Text in messages that makes a response invalid.
    pub(super) catch_stderr: Vec<Box<[u8]>>,
    pub(super) settings: Arc<UpstreamSettings>,
}

/// The head of a response while it arrives.
struct ComingHead {
    reader: RecordReader,
    /// What came on stdout.
    head: Vec<u8>,
    /// The message that comes on stderr.
    stderr: Vec<u8>,
    /// Messages that have come.
    messages: u32,
}

impl UpstreamProtocol for FastCgiProtocol {
    fn closes_as(&self) -> UpstreamCloseProtocol {
        UpstreamCloseProtocol::FastCgi
    }

    fn scheme(&self) -> &'static str {
        "fastcgi://"
    }

    fn request(&self, x: &mut Exchange, out: &mut OutgoingRequest) -> Result<(), Verdict> {
        let mut params = Vec::with_capacity(1024);
        self.params.for_each(x, |name, value| fastcgi::pair(&mut params, name, value));
        fastcgi::begin(&mut out.head, self.connection);
        // More than a record holds are several; nginx refuses such requests.
        fastcgi::record(&mut out.head, RecordKind::Params, &params);
        fastcgi::record_head(&mut out.head, RecordKind::Params, 0);
        if self.settings.passes_body(x) {
            out.framing = RequestFraming::Records;
        } else {
            fastcgi::record_head(&mut out.head, RecordKind::Stdin, 0);
        }
        out.keep_alive = self.connection == FastcgiConnection::Kept;
        Ok(())
    }

    fn body(&self, piece: Vec<u8>, _framing: RequestFraming) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len() + 16);
        for part in piece.chunks(RECORD as usize) {
            fastcgi::record(&mut out, RecordKind::Stdin, part);
        }
        out
    }

    fn body_head(&self, len: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(8);
        fastcgi::record_head(
            &mut out,
            RecordKind::Stdin,
            u16::try_from(len).expect("a record holds no more"),
        );
        out
    }

    fn body_end(&self, _framing: RequestFraming) -> Vec<u8> {
        self.body_head(0)
    }

    fn head(
        &self,
        x: &mut Exchange,
        bytes: &[u8],
        incoming: &mut IncomingHead,
    ) -> Result<HeadProgress, String> {
        let mut state = incoming.state.take().unwrap_or_else(|| Box::new(ComingHead::new()));
        let coming: &mut ComingHead = state.downcast_mut().expect("nothing else is kept there");
        let found = self.step(x, coming, bytes, incoming)?;
        if let HeadProgress::Complete(_) = found {
            let length = if has_body(x, incoming.status) { incoming.content_length } else { None };
            let body = FastcgiBody::new(
                coming.reader.clone(),
                length,
                has_body(x, incoming.status),
                self.connection,
            );
            incoming.decoder = BodyDecoder::Other(Box::new(body));
            incoming.keep_alive = true;
        } else {
            incoming.state = Some(state);
        }
        Ok(found)
    }
}

impl FastCgiProtocol {
    /// Takes the next event out of `bytes`.
    fn step(
        &self,
        x: &mut Exchange,
        coming: &mut ComingHead,
        bytes: &[u8],
        incoming: &mut IncomingHead,
    ) -> Result<HeadProgress, String> {
        let (taken, event) = coming.reader.read(bytes).map_err(|bad| bad.to_string())?;
        match event {
            RecordEvent::More => {}
            RecordEvent::Data(RecordKind::Stdout, range) => {
                let before = coming.head.len();
                let (start, end) = (range.start, range.end);
                coming.head.extend_from_slice(bytes.get(range).unwrap_or_default());
                let most = self.settings.buffer_size as usize;
                if let Some(len) = head::read(x, &coming.head, most, incoming)? {
                    // What follows is records, and nothing else can be agreed upon.
                    if incoming.status == 101 {
                        return Err(
                            "upstream sent 101 to a request that asked for no other protocol".to_owned()
                        );
                    }
                    let used = start + (len - before);
                    coming.reader.unread(end - used);
                    return Ok(HeadProgress::Complete(used));
                }
            }
            RecordEvent::Data(RecordKind::Stderr, range) => {
                coming.stderr.extend_from_slice(bytes.get(range).unwrap_or_default());
            }
            RecordEvent::End { kind: RecordKind::Stderr, .. } => self.complain(x, coming)?,
            RecordEvent::End { kind: RecordKind::Stdout, empty: true } => {
                return Err("upstream prematurely closed FastCGI stdout".to_owned());
            }
            RecordEvent::Data(kind, _) => {
                return Err(format!("upstream sent unexpected FastCGI record: {}", kind as u8));
            }
            RecordEvent::End { kind: RecordKind::End, .. } => {
                return Err(format!("upstream sent unexpected FastCGI record: {}", RecordKind::End as u8));
            }
            RecordEvent::End { .. } => {}
        }
        Ok(HeadProgress::Taken(taken))
    }

    /// A message of the application, for the error log.
    fn complain(&self, x: &Exchange, coming: &mut ComingHead) -> Result<(), String> {
        let message = std::mem::take(&mut coming.stderr);
        if message.is_empty() {
            return Ok(());
        }
        coming.messages = coming.messages.saturating_add(1);
        if coming.messages <= STDERR {
            let text = stderr_text(&message);
            x.log(LogLevel::Error, &format_args!("{text} while reading response header from upstream"));
        }
        let caught = |text: &[u8]| memchr::memmem::find(&message, text).is_some();
        // nginx says no more than that.
        if self.catch_stderr.iter().any(|text| caught(text)) { Err(String::new()) } else { Ok(()) }
    }
}

impl ComingHead {
    fn new() -> ComingHead {
        ComingHead {
            reader: RecordReader::new(RecordWriter::Application),
            head: Vec::new(),
            stderr: Vec::new(),
            messages: 0,
        }
    }
}

/// Whether the response to `x` with this status has a body.
fn has_body(x: &Exchange, status: u16) -> bool {
    x.request.head.method != Method::Head && !matches!(status, 204 | 304)
}
