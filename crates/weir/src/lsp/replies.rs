//! The envelopes of JSON-RPC 2.0.

use weir_http::json::{JsonValue, JsonWriter};

/// With what a client recognizes the response to its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestId {
    /// The message is a notification, or can't be read.
    Absent,
    /// As it is written in JSON.
    Given(String),
}

impl RequestId {
    pub(super) fn of(message: &JsonValue) -> RequestId {
        match message.field("id") {
            Some(JsonValue::Number(number)) => RequestId::Given(number.to_string()),
            Some(JsonValue::Text(text)) => {
                let mut json = JsonWriter::default();
                json.text(text);
                RequestId::Given(json.into())
            }
            _ => RequestId::Absent,
        }
    }

    fn json(&self) -> &str {
        match self {
            RequestId::Absent => "null",
            RequestId::Given(json) => json,
        }
    }
}

/// Why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestError {
    code: i32,
    message: &'static str,
}

impl RequestError {
    pub(super) const PARSE: Self = Self { code: -32700, message: "the message is no JSON" };
    pub(super) const INVALID: Self = Self { code: -32600, message: "the request is not valid here" };
    pub(super) const UNKNOWN_METHOD: Self = Self { code: -32601, message: "there is no such method" };
    pub(super) const PARAMETERS: Self =
        Self { code: -32602, message: "the parameters name no place of an open document" };
    pub(super) const NOT_INITIALIZED: Self = Self { code: -32002, message: "\"initialize\" comes first" };
}

/// A response with a result, which is JSON.
pub(super) fn result(id: &RequestId, json: &str) -> String {
    envelope(|message| {
        message.key("id").raw(id.json());
        message.key("result").raw(json);
    })
}

/// A response without.
pub(super) fn failure(id: &RequestId, error: RequestError) -> String {
    envelope(|message| {
        message.key("id").raw(id.json());
        message.key("error").nested(|json| {
            json.key("code").raw(error.code);
            json.key("message").text(error.message);
        });
    })
}

/// A message that wants no response; `parameters` writes the fields of its object.
pub(super) fn notification(method: &str, parameters: impl FnOnce(&mut JsonWriter)) -> String {
    envelope(|message| {
        message.key("method").text(method);
        message.key("params").nested(parameters);
    })
}

fn envelope(fields: impl FnOnce(&mut JsonWriter)) -> String {
    JsonWriter::object(|message| {
        message.key("jsonrpc").text("2.0");
        fields(message);
    })
}
