//! A stream of a client: what has been sent of its request and what has come of its response.

use super::hpack::FieldPair;
use super::plan::StreamPlan;
use crate::request::content;

/// How the server's side of a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RemoteEnd {
    /// Not yet.
    Open,
    /// With END_STREAM.
    Whole,
    /// With RST_STREAM.
    Reset,
}

/// A stream that the client has opened.
#[derive(Clone, Debug)]
pub(super) struct ClientStream {
    /// Which one of the plan's requests.
    pub(super) place: usize,
    /// When it was opened.
    pub(super) since: u64,
    /// The request's body, and how much of it has been sent.
    pub(super) body: Vec<u8>,
    pub(super) sent: usize,
    /// The request has ended: END_STREAM was sent.
    pub(super) has_ended: bool,
    /// It ended with its head.
    pub(super) is_bodiless: bool,
    /// What may be sent and what may come.
    pub(super) send_window: i64,
    pub(super) receive_window: i64,
    /// Bytes that have come and were not given back.
    pub(super) owed: u64,
    pub(super) status: u16,
    pub(super) length: Option<u64>,
    pub(super) got: Vec<u8>,
    /// The fields of its response.
    pub(super) fields: Vec<FieldPair>,
    /// Those after its content.
    pub(super) trailers: Vec<FieldPair>,
    pub(super) remote: RemoteEnd,
    /// The client has sent RST_STREAM.
    pub(super) is_cancelled: bool,
    /// Its outcome is noted.
    pub(super) is_noted: bool,
}

impl ClientStream {
    pub(super) fn new(place: usize, plan: &StreamPlan, now: u64, windows: (i64, i64)) -> ClientStream {
        let body = plan.request.body.map(|body| content(plan.request.number, body.length));
        let is_bodiless = body.is_none();
        ClientStream {
            place,
            since: now,
            body: body.unwrap_or_default(),
            sent: 0,
            has_ended: is_bodiless,
            is_bodiless,
            send_window: windows.0,
            receive_window: windows.1,
            owed: 0,
            status: 0,
            length: None,
            got: Vec::new(),
            fields: Vec::new(),
            trailers: Vec::new(),
            remote: RemoteEnd::Open,
            is_cancelled: false,
            is_noted: false,
        }
    }

    /// Whether it counts for SETTINGS_MAX_CONCURRENT_STREAMS.
    pub(super) fn is_open(&self) -> bool {
        let is_half_closed = self.remote == RemoteEnd::Whole && self.has_ended;
        !(self.is_cancelled || self.remote == RemoteEnd::Reset || is_half_closed)
    }

    /// Whether DATA of the request remains to be sent.
    pub(super) fn has_content(&self) -> bool {
        !self.has_ended && self.is_open()
    }

    /// Takes the head of the response; what is wrong with it.
    pub(super) fn head(&mut self, fields: Vec<FieldPair>) -> Option<String> {
        let pseudo = fields.iter().filter(|(name, _)| name.starts_with(':')).count();
        let status = fields.first().filter(|(name, _)| name == ":status").map(|(_, value)| value.as_str());
        let Some(status) = status.and_then(|value| value.parse::<u16>().ok()).filter(|_| pseudo == 1) else {
            return Some("a head without :status, or with other pseudo fields".to_owned());
        };
        if let Some((name, _)) = fields.iter().find(|(name, _)| is_forbidden(name)) {
            return Some(format!("a field that HTTP/2 does not have: {name}"));
        }
        if status / 100 == 1 {
            return None;
        }
        if self.status != 0 {
            return Some("a second head".to_owned());
        }
        self.status = status;
        let length = fields.iter().find(|(name, _)| name == "content-length");
        self.length = length.and_then(|(_, value)| value.parse().ok());
        self.fields = fields;
        None
    }

    /// What is wrong with a response that has come whole.
    pub(super) fn fault_at_end(&self, plan: &StreamPlan) -> Option<String> {
        let got = self.got.len() as u64;
        match self.length {
            _ if self.status == 0 => Some("an end before a head".to_owned()),
            _ if plan.is_head && got > 0 => Some("content of a HEAD response".to_owned()),
            Some(length) if !plan.is_head && length != got => {
                Some(format!("content-length {length}, and {got} bytes"))
            }
            _ => None,
        }
    }
}

fn is_forbidden(name: &str) -> bool {
    let of_http1 = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];
    of_http1.contains(&name) || name.bytes().any(|byte| byte.is_ascii_uppercase())
}
