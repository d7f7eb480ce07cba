//! `/recordings`: stacks that are recorded on request and kept, by names that are hard to guess.

use std::io;

use weir_http::Method;
use weir_http::json::{JsonValue, JsonWriter};

use super::connection::{AdminRequest, AdminResponse, CollectedReply, ResponseWriter};
use super::route::{command, json, media_type, question, wrong};
use crate::control::protocol::{ControlQuestion, unescape};
use crate::formats::{self, StackFormat};
use crate::raw_stacks::RawStacks;
use crate::recordings::KeptRecording;
use crate::responses::flame;
use crate::responses::reply::{ReplyFailure, ReplySink};
use crate::source::ServerSource;
use crate::symbols::BareAddresses;
use crate::table::{TableCell, TableColumn, TableReport};

/// Lists and records, shows and forgets.
pub(super) fn answer(
    source: &ServerSource,
    to: &mut ResponseWriter<'_>,
    request: &AdminRequest,
    rest: &[&str],
) -> io::Result<()> {
    let reads = matches!(request.method, Method::Get | Method::Head);
    let asked = question(request, "recordings");
    match (request.method, rest) {
        (Method::Post, []) => record(source, to, request),
        (_, []) if reads => {
            to.send(&AdminResponse::new(200, media_type(&asked), list(source, asked.has("json"))))
        }
        (_, [id]) if reads => to.send(&shown(source, &unescape(id), &asked)),
        (Method::Delete, [id]) => {
            let gone = source.recordings().remove(&unescape(id));
            to.send(&if gone { json(200, list(source, true)) } else { none() })
        }
        (_, [] | [_]) => to.send(&wrong(405, "GET and POST recordings, GET and DELETE one of them")),
        _ => to.send(&wrong(404, "there is nothing here")),
    }
}

fn none() -> AdminResponse {
    wrong(404, "there is no such recording: the last ones are kept, until the server ends")
}

/// What is kept, the latest first.
fn list(source: &ServerSource, json: bool) -> String {
    let mut report = TableReport::new(&COLUMNS);
    for kept in source.recordings().all() {
        report.row([
            TableCell::text(&kept.id),
            TableCell::text(&kept.kind),
            TableCell::text(&kept.location),
            TableCell::Count(kept.unix_ms),
            TableCell::Time(kept.duration_ns),
            TableCell::Count(kept.count),
            TableCell::Bytes(kept.bytes() as u64),
        ]);
    }
    report.write(json)
}

/// One of them, in the format that is asked for: JSON unless another is.
fn shown(source: &ServerSource, id: &str, asked: &ControlQuestion) -> AdminResponse {
    let Some(kept) = source.recordings().find(id).cloned() else { return none() };
    let format = match asked.value("fmt") {
        None => StackFormat::Json,
        Some(name) => match StackFormat::of(name) {
            Some(format) => format,
            None => return wrong(400, &format!("\"{name}\" is no format")),
        },
    };
    let file = kept.json().ok_or_else(|| "it can't be unpacked".to_owned());
    let body = file.and_then(|file| match format {
        StackFormat::Json => Ok(file),
        format => formats::read_json(&file).map(|stacks| format.write(&stacks)),
    });
    match body {
        Ok(body) => AdminResponse::new(200, format.media_type(), body),
        Err(why) => wrong(500, &why),
    }
}

/// Records as the body says, `{"kind": "cpu", "seconds": 10, "route": "/"}`, and keeps it. The response comes when that is done.
fn record(source: &ServerSource, to: &mut ResponseWriter<'_>, request: &AdminRequest) -> io::Result<()> {
    let (question, location) = match wanted(&request.body) {
        Ok(wanted) => wanted,
        Err(why) => return to.send(&wrong(400, &why)),
    };
    let mut reply = CollectedReply(to, Vec::new());
    let raw = match flame::stacks(source, &question, &mut reply) {
        // A client that has gone wants nothing kept.
        Ok(_) if reply.is_stopped() => return Ok(()),
        Ok(raw) => raw,
        Err(ReplyFailure::Gone(error)) => return Err(error),
        Err(ReplyFailure::Wrong(text)) => return to.send(&wrong(400, &text)),
    };
    match kept(&raw, &location) {
        Ok(kept) => {
            let text = JsonWriter::object(|json| {
                json.key("id").text(&kept.id);
                json.key("kind").text(&kept.kind);
                json.key("location").text(&kept.location);
                json.key("count").raw(kept.count);
            });
            source.recordings().keep(kept);
            to.send(&json(201, text + "\n"))
        }
        Err(why) => to.send(&wrong(413, &why)),
    }
}

/// What is to be recorded, and of which location.
fn wanted(body: &[u8]) -> Result<(ControlQuestion, String), String> {
    let body = JsonValue::parse(body).map_err(|error| error.to_string())?;
    let text = |key: &str| match body.field(key) {
        Some(JsonValue::Text(text)) => Some(text.clone()),
        Some(JsonValue::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    let seconds = text("seconds").unwrap_or_else(|| "10".to_owned());
    let mut question = ControlQuestion::new("flame").with("for", format!("{seconds}s"));
    for key in ["kind", "route", "phase", "match", "hz"] {
        if let Some(value) = text(key) {
            question = question.with(key, value);
        }
    }
    let location = text("route").unwrap_or_default();
    Ok((question, location))
}

/// With names, which a `weir` command gives them: that takes memory that the server should not grow by.
fn kept(raw: &RawStacks, location: &str) -> Result<KeptRecording, String> {
    let file = match command(raw, StackFormat::Json) {
        Ok(file) if !file.is_empty() => file,
        _ => StackFormat::Json.write(&raw.resolve(&mut BareAddresses)),
    };
    let stacks = formats::read_json(&file)?;
    KeptRecording::new(location, &stacks, &file)
}

const COLUMNS: [TableColumn; 7] = [
    TableColumn("id", "id"),
    TableColumn("kind", "kind"),
    TableColumn("location", "location"),
    TableColumn("unix ms", "unix_ms"),
    TableColumn("recorded", "duration_ns"),
    TableColumn("stacks", "count"),
    TableColumn("size", "bytes"),
];
