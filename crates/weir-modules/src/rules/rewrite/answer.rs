//! `return`.
//!
//! The names and order of the responses are those of nginx's `ngx_http_send_response`: redirects are statuses, so
//! that `error_page` may take them up; a text goes out as it is, whatever the status.

use weir_conf::{LineCx, Result, parse_number};
use weir_engine::body::{BodyBuf, ResponseBody};
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Handler, Text, Verdict};

use crate::support::value::WorkerValue;

/// A `return` as written.
#[derive(Clone, Debug)]
pub(super) struct WrittenReturn {
    status: u16,
    text: ValueScript,
}

impl WrittenReturn {
    pub(super) fn parse(line: &mut LineCx<'_>) -> Result<WrittenReturn> {
        let word = line.bytes(0);
        let alone = line.args().len() == 1;
        let status = parse_number(word).and_then(|number| u16::try_from(number).ok());
        match status.filter(|status| *status <= 999) {
            Some(status) if alone => Ok(WrittenReturn { status, text: ValueScript::default() }),
            Some(status) => Ok(WrittenReturn { status, text: ValueScript::compile(line, 1)? }),
            None if alone && is_address(word) => {
                Ok(WrittenReturn { status: 302, text: ValueScript::compile(line, 0)? })
            }
            None => Err(line.fail_arg(0, format!("invalid return code \"{}\"", line.arg(0)))),
        }
    }
}

/// What may be given alone in place of a status.
fn is_address(word: &[u8]) -> bool {
    [&b"http://"[..], b"https://", b"$scheme"].iter().any(|start| word.starts_with(start))
}

/// A `return` on one worker.
pub(super) enum ReturnHandler {
    /// The response is the status' page, or an `error_page`.
    Status(u16),
    /// The response is the status' page, with this `Location`.
    Redirect(u16, WorkerValue),
    /// The response is this text.
    Text(u16, WorkerValue),
}

impl ReturnHandler {
    pub(super) fn new(answer: &WrittenReturn) -> ReturnHandler {
        let empty = answer.text.constant() == Some(b"");
        match answer.status {
            status @ (301 | 302 | 303 | 307 | 308) => {
                ReturnHandler::Redirect(status, WorkerValue::new(&answer.text))
            }
            status if status >= 400 && empty => ReturnHandler::Status(status),
            status => ReturnHandler::Text(status, WorkerValue::new(&answer.text)),
        }
    }
}

impl ReturnHandler {
    /// Whether all requests get the same.
    pub(super) fn is_fixed(&self) -> bool {
        matches!(self, ReturnHandler::Status(_) | ReturnHandler::Text(_, WorkerValue::Constant(_)))
    }

    /// The response to `x`.
    pub(super) fn answer(&self, x: &mut Exchange) -> Verdict {
        match self {
            ReturnHandler::Status(status) => Verdict::Status(*status),
            ReturnHandler::Redirect(status, target) => {
                let value = target.field(x);
                if x.text(&value).is_empty() {
                    let written = target.get(x);
                    // Left out for what it holds: a redirect to nowhere would lead a client to itself.
                    if !x.text(&written).is_empty() {
                        return Verdict::Status(400);
                    }
                }
                x.response.location = Some(value);
                Verdict::Status(*status)
            }
            ReturnHandler::Text(status, text) => {
                x.response.status = *status;
                let text = text.get(x);
                let buf = buf(x, text);
                x.response.content_length = Some(buf.len());
                x.set_content_type();
                x.respond(ResponseBody::Whole(buf))
            }
        }
    }
}

impl Handler for ReturnHandler {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        ReturnHandler::answer(self, x)
    }

    fn is_fixed(&self, _x: &Exchange) -> bool {
        ReturnHandler::is_fixed(self)
    }
}

/// A body of `text`; only what was computed for this request is copied.
fn buf(x: &Exchange, text: Text) -> BodyBuf {
    match text {
        Text::Static(bytes) => BodyBuf::Static(bytes),
        Text::Shared(bytes) => BodyBuf::shared(bytes),
        Text::Span(span) => BodyBuf::Bytes(x.arena.get(span).to_vec()),
    }
}
