//! `log`: the last lines of the error logs, without arguments of requests.

use weir_engine::log::{self, LastLine, LoggedRequest};
use weir_http::json::JsonWriter;
use weir_trace::{RequestId, Site, SiteTable};

use super::reply::ReplyFailure;
use crate::control::protocol::ControlQuestion;
use crate::why::errors::message;

/// The last `n` lines from `warn` on, latest first: a line each, or as JSON an object each.
pub(super) fn respond(question: &ControlQuestion) -> Result<String, ReplyFailure> {
    let count = question.number("n", 200)? as usize;
    let (lines, gone) = log::last_lines();
    let shown = lines.iter().rev().take(count);
    if question.has("json") {
        return Ok(JsonWriter::object(|json| {
            json.key("gone").raw(gone);
            json.key("lines").list(|json| shown.for_each(|line| write(json, line)));
        }) + "\n");
    }
    Ok(shown.map(|line| without_arguments(&String::from_utf8_lossy(&line.text)) + "\n").collect())
}

fn write(json: &mut JsonWriter, line: &LastLine) {
    json.nested(|json| {
        json.key("level").text(line.level.name());
        json.key("text").text(&without_arguments(&String::from_utf8_lossy(&line.text)));
        if let Some(LoggedRequest { id, route }) = line.about {
            json.key("request").text(&id.to_string());
            json.key("location").text(&location(route));
        }
    });
}

/// The name of a request's location; `-` before it is known.
fn location(route: Site) -> String {
    if route.is_none() { "-".to_owned() } else { SiteTable::global().info(route).location.to_string() }
}

/// What the last lines say of a request, each without the request itself.
pub(super) fn of_request(id: RequestId) -> String {
    let lines = log::last_lines().0;
    let lines = lines.iter().filter(|line| line.about.is_some_and(|about| about.id == id));
    lines
        .map(|line| {
            let text = String::from_utf8_lossy(&line.text);
            format!("logged [{}]: {}\n", line.level.name(), without_arguments(message(&text)))
        })
        .collect()
}

/// Arguments may hold secrets: what follows a `?` up to the next blank or quote is left out.
pub(super) fn without_arguments(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find('?') {
        out.push_str(&rest[..=at]);
        let after = &rest[at + 1..];
        let end = after.find([' ', '"', '\'']).unwrap_or(after.len());
        if end > 0 {
            out.push_str("...");
        }
        rest = &after[end..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_not_shown() {
        let line =
            "x failed, request: \"GET /a?token=secret HTTP/1.1\", upstream: \"http://b/c?d=e\", why? no";
        let shown = "x failed, request: \"GET /a?... HTTP/1.1\", upstream: \"http://b/c?...\", why? no";
        assert_eq!(without_arguments(line), shown);
        assert_eq!(without_arguments("\"/?a b\" ?"), "\"/?... b\" ?");
    }
}
