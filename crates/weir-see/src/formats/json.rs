//! Stacks as one object of JSON, as the other commands have it: times in nanoseconds, frames outermost first; those by
//! which the server comes to a request's code have `runtime`.

use weir_http::json::{JsonValue, JsonWriter};

use crate::runtime_frames;
use crate::stacks::{FrameOrigin, StackFrame, StackSet, StackWeight, WeightUnit};

pub(super) fn write(stacks: &StackSet) -> String {
    let value = match stacks.unit {
        WeightUnit::Nanoseconds => "value_ns",
        WeightUnit::Bytes => "value_bytes",
    };
    let text = JsonWriter::object(|json| {
        json.key("kind").text(&stacks.kind);
        json.key("unix_ms").raw(stacks.unix_ms);
        json.key("duration_ns").raw(stacks.duration_ns);
        json.key("period_ns").raw(stacks.period_ns);
        json.key("stacks").list(|json| {
            for (stack, weight) in stacks.iter() {
                json.nested(|json| {
                    json.key("count").raw(weight.count);
                    json.key(value).raw(weight.value);
                    let stack: Vec<&StackFrame> =
                        stack.iter().map(|&number| &stacks.frames()[number as usize]).collect();
                    let runtime = runtime_frames::range(&stack);
                    json.key("frames").list(|json| {
                        for (at, one) in stack.into_iter().enumerate() {
                            frame(json, one, runtime.contains(&at));
                        }
                    });
                });
            }
        });
    });
    text + "\n"
}

/// Reads what [`write`] wrote. What it does not know is passed over; which frames are the runtime's is found again.
pub(super) fn read(bytes: &[u8]) -> Result<StackSet, String> {
    let json = JsonValue::parse(bytes).map_err(|error| format!("these are no stacks: {error}"))?;
    let kind = json.field("kind").and_then(JsonValue::text).ok_or("these are no stacks: no \"kind\"")?;
    let unit = if kind == "alloc" { WeightUnit::Bytes } else { WeightUnit::Nanoseconds };
    let mut stacks = StackSet::new(kind, unit);
    let number = |of: &JsonValue, key: &str| of.field(key).and_then(JsonValue::number);
    stacks.unix_ms = number(&json, "unix_ms").unwrap_or(0);
    stacks.duration_ns = number(&json, "duration_ns").unwrap_or(0);
    stacks.period_ns = number(&json, "period_ns").unwrap_or(0);
    let list = json.field("stacks").and_then(JsonValue::list).ok_or("these are no stacks: no \"stacks\"")?;
    for (at, one) in list.iter().enumerate() {
        let wrong = || format!("stack {} lacks a value or frames", at + 1);
        let value = number(one, "value_ns").or_else(|| number(one, "value_bytes")).ok_or_else(wrong)?;
        let frames = one.field("frames").and_then(JsonValue::list).ok_or_else(wrong)?;
        let frames: Option<Vec<StackFrame>> = frames.iter().map(read_frame).collect();
        let weight = StackWeight { count: number(one, "count").unwrap_or(1), value };
        stacks.add(frames.ok_or_else(wrong)?, weight);
    }
    Ok(stacks)
}

fn read_frame(json: &JsonValue) -> Option<StackFrame> {
    let text = |key| json.field(key).and_then(JsonValue::text);
    let origin = text("origin").unwrap_or("native");
    Some(StackFrame {
        name: text("name")?.to_owned(),
        origin: FrameOrigin::ALL.into_iter().find(|known| known.as_str() == origin)?,
        file: text("file").unwrap_or_default().to_owned(),
        line: json
            .field("line")
            .and_then(JsonValue::number)
            .and_then(|line| line.try_into().ok())
            .unwrap_or(0),
    })
}

fn frame(json: &mut JsonWriter, frame: &StackFrame, is_runtime: bool) {
    json.nested(|json| {
        json.key("origin").text(frame.origin.as_str());
        super::place(json, frame);
        if is_runtime {
            json.key("runtime").raw(true);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::tests::example;

    #[test]
    fn what_was_written_is_read_again() {
        let text = write(&example());
        let again = read(text.as_bytes()).expect("stacks");
        assert_eq!(write(&again), text);
        for wrong in [
            "",
            "{}",
            "[]",
            r#"{"kind":"cpu"}"#,
            r#"{"kind":"cpu","stacks":[{"count":1,"frames":[]}]}"#,
            r#"{"kind":"cpu","stacks":[{"value_ns":-1,"frames":[]}]}"#,
            r#"{"kind":"cpu","stacks":[{"value_ns":1,"frames":[{"origin":"native"}]}]}"#,
        ] {
            assert!(read(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let few = read(br#"{"kind":"alloc","stacks":[{"value_bytes":3,"frames":[{"name":"<b>"}]}]}"#)
            .expect("stacks");
        assert_eq!((few.unit, few.total().value), (WeightUnit::Bytes, 3));
    }

    #[test]
    fn every_stack_has_its_weight_and_frames() {
        let text = write(&example());
        let begins = r#"{"kind":"cpu","unix_ms":1700000000000,"duration_ns":1000,"period_ns":10,"stacks":[{"count":1,"value_ns":10,"frames":[{"origin":"route","name":"/"},{"origin":"phase","name":"content"}]},"#;
        assert!(text.starts_with(begins), "{text}");
        let ends = r#"{"origin":"native","name":"find","file":"file.rs","line":7}]}]}"#;
        assert!(text.trim_end().ends_with(ends), "{text}");
    }
}
