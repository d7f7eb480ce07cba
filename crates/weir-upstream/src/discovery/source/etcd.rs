//! etcd, over the JSON gateway of its version 3: a range is read, then its changes are watched from the next revision on,
//! and each change has the range read again.

use weir_http::base64;
use weir_http::json::{JsonValue, JsonWriter};

use super::http::{JSON, SourceResponse, TIMED_OUT};
use super::reader::list;
use super::{SourceConfig, SourceKind};
use crate::discovery::server_list;
use crate::discovery::server_list::ServerEntry;

/// What is watched.
#[derive(Default)]
pub(crate) struct EtcdSource {
    watch: Option<EtcdWatch>,
}

struct EtcdWatch {
    answer: SourceResponse,
    /// Received, up to the end of a line.
    line: Vec<u8>,
}

impl EtcdSource {
    /// The next list.
    pub(super) async fn next(&mut self, config: &SourceConfig) -> Result<Vec<ServerEntry>, String> {
        let SourceKind::Etcd { url, key, prefix } = &config.kind else { return Err("no etcd".to_owned()) };
        if let Some(watch) = self.watch.take() {
            // It is not put back: a watch that failed, or was compacted away, begins with another reading.
            let watch = watch.changed().await?;
            self.watch = watch;
        }
        let end = prefix.then(|| successor(key.as_bytes()));
        let range = |json: &mut JsonWriter| {
            json.key("key").text(&encoded(key.as_bytes()));
            if let Some(end) = &end {
                json.key("range_end").text(&encoded(end));
            }
        };
        let token =
            config.token.as_ref().map_or(String::new(), |token| format!("Authorization: {token}\r\n"));
        let target = |call: &str| format!("{}/v3/{call}", url.path.trim_end_matches('/'));
        let answer = url
            .ask(
                &target("kv/range"),
                &token,
                Some((JSON, JsonWriter::object(range).as_bytes())),
                config.timeout,
            )
            .await?;
        let read = JsonValue::parse(&answer.body().await?).map_err(|error| error.to_string())?;
        let revision = read.path(&["header", "revision"]).and_then(JsonValue::number);
        let revision = revision.ok_or("the answer has no revision")?;
        if self.watch.is_none() {
            let create = JsonWriter::object(|json| {
                json.key("create_request").nested(|json| {
                    range(json);
                    json.key("start_revision").raw(revision + 1);
                    json.key("progress_notify").raw(true);
                });
            });
            let answer =
                url.ask(&target("watch"), &token, Some((JSON, create.as_bytes())), config.timeout).await?;
            if answer.status != 200 {
                return Err(format!("the status of the watch was {}", answer.status));
            }
            answer.probe();
            self.watch = Some(EtcdWatch { answer, line: Vec::new() });
        }
        servers(&read, *prefix)
    }
}

impl EtcdWatch {
    /// Waits until something has changed; the watch, if it goes on.
    async fn changed(mut self) -> Result<Option<EtcdWatch>, String> {
        loop {
            while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.line.drain(..=end).collect();
                match happened(&line)? {
                    EtcdEvent::Nothing => {}
                    EtcdEvent::Change => return Ok(Some(self)),
                    EtcdEvent::End => return Ok(None),
                }
            }
            match self.answer.piece(SILENCE).await {
                Ok(Some(piece)) => self.line.extend_from_slice(&piece),
                Ok(None) => return Ok(None),
                // It reports its progress every ten minutes.
                Err(why) if why == TIMED_OUT => return Ok(None),
                Err(why) => return Err(why),
            }
            if self.line.len() > LINE {
                return Err("a change is too long".to_owned());
            }
        }
    }
}

enum EtcdEvent {
    Nothing,
    Change,
    /// The watch is over: the revision it was to begin with is not stored any more.
    End,
}

fn happened(line: &[u8]) -> Result<EtcdEvent, String> {
    let value = JsonValue::parse(line).map_err(|error| error.to_string())?;
    if let Some(error) = value.path(&["error", "message"]).and_then(JsonValue::text) {
        return Err(error.to_owned());
    }
    let result = value.field("result").ok_or("a change without result")?;
    if result.field("canceled").and_then(JsonValue::bool) == Some(true) {
        return Ok(EtcdEvent::End);
    }
    let events = result.field("events").and_then(JsonValue::list).is_some_and(|events| !events.is_empty());
    Ok(if events { EtcdEvent::Change } else { EtcdEvent::Nothing })
}

/// The servers in the values of a range: one list, or one server each.
fn servers(read: &JsonValue, prefix: bool) -> Result<Vec<ServerEntry>, String> {
    let found = read.field("kvs").and_then(JsonValue::list).unwrap_or_default();
    let mut values = Vec::new();
    for found in found {
        let value = found.field("value").and_then(JsonValue::text).unwrap_or_default();
        values.push(base64::decode(value.as_bytes()).ok_or("a value is not in base64")?);
    }
    if !prefix {
        return list(values.first().ok_or("there is no such key")?);
    }
    let server = |value: &Vec<u8>| match JsonValue::parse(value) {
        Ok(value @ (JsonValue::Object(_) | JsonValue::Text(_))) => value,
        // The address alone.
        _ => JsonValue::Text(String::from_utf8_lossy(value).trim().to_owned()),
    };
    server_list::read(&JsonValue::List(values.iter().map(server).collect()))
}

fn encoded(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    base64::encode(bytes, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// The first key after all that begin with `prefix`.
fn successor(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    // All keys from there on, as etcd writes it.
    vec![0]
}

/// Milliseconds a watch may be silent before it is made again: longer than etcd's notes of progress are apart.
const SILENCE: u64 = 15 * 60_000;
/// The longest line of a watch: changes come with their values.
const LINE: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_lists_or_servers() {
        let read = |values: &[&str]| {
            let kvs = JsonWriter::object(|json| {
                json.key("kvs").list(|json| {
                    values.iter().for_each(|value| {
                        json.nested(|json| json.key("value").text(&encoded(value.as_bytes())));
                    });
                });
            });
            JsonValue::parse(kvs.as_bytes()).expect("JSON")
        };
        let written = |value, prefix| servers(&value, prefix).map(|list| server_list::write(&list));
        let one = r#"[{"server":"10.0.0.1:80","weight":2}]"#;
        assert_eq!(written(read(&[one]), false), Ok(one.to_owned()));
        assert_eq!(written(read(&[]), false), Err("there is no such key".to_owned()));
        let each = read(&["10.0.0.1:80\n", "\"10.0.0.2:80\"", r#"{"server":"10.0.0.3:80"}"#]);
        let three = r#"[{"server":"10.0.0.1:80"},{"server":"10.0.0.2:80"},{"server":"10.0.0.3:80"}]"#;
        assert_eq!(written(each, true), Ok(three.to_owned()));
        assert_eq!(written(read(&[]), true), Ok("[]".to_owned()));
        assert_eq!(successor(b"/a/"), b"/a0");
        assert_eq!((successor(b"a\xff"), successor(b"\xff")), (b"b".to_vec(), vec![0]));
    }

    #[test]
    fn lines_of_a_watch() {
        let is = |line: &str| happened(line.as_bytes());
        assert!(matches!(is(r#"{"result":{"header":{},"created":true}}"#), Ok(EtcdEvent::Nothing)));
        assert!(matches!(is(r#"{"result":{"events":[{"kv":{}}]}}"#), Ok(EtcdEvent::Change)));
        assert!(matches!(is(r#"{"result":{"canceled":true,"compact_revision":"7"}}"#), Ok(EtcdEvent::End)));
        assert!(matches!(is(r#"{"error":{"message":"no leader"}}"#), Err(why) if why == "no leader"));
        assert!(is("garbage").is_err());
    }
}
