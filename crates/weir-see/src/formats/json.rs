//! Stacks as one object of JSON, as the other commands have it: times in nanoseconds, frames outermost first; those by
//! which the server comes to a request's code have `runtime`.

use weir_http::json::JsonWriter;

use crate::runtime_frames;
use crate::stacks::{StackFrame, StackSet, WeightUnit};

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
    fn every_stack_has_its_weight_and_frames() {
        let text = write(&example());
        let begins = r#"{"kind":"cpu","unix_ms":1700000000000,"duration_ns":1000,"period_ns":10,"stacks":[{"count":1,"value_ns":10,"frames":[{"origin":"route","name":"/"},{"origin":"phase","name":"content"}]},"#;
        assert!(text.starts_with(begins), "{text}");
        let ends = r#"{"origin":"native","name":"find","file":"file.rs","line":7}]}]}"#;
        assert!(text.trim_end().ends_with(ends), "{text}");
    }
}
