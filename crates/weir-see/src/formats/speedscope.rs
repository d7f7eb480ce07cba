//! speedscope's file format: one sampled profile with a weight a stack.
//!
//! <https://www.speedscope.app/file-format-schema.json>

use crate::stacks::StackSet;
use weir_http::json::JsonWriter;

/// The stacks, heaviest path not sorted: speedscope does that.
pub(super) fn write(stacks: &StackSet) -> String {
    let total = stacks.total();
    JsonWriter::object(|json| {
        json.key("$schema").text("https://www.speedscope.app/file-format-schema.json");
        json.key("exporter").text(concat!("weir ", env!("CARGO_PKG_VERSION")));
        json.key("name").text(&format!("weir {}", stacks.kind));
        json.key("activeProfileIndex").raw(0);
        json.key("shared").nested(|json| json.key("frames").list(|json| frames(json, stacks)));
        json.key("profiles").list(|json| {
            json.nested(|json| {
                json.key("type").text("sampled");
                json.key("name").text(&stacks.kind);
                json.key("unit").text(stacks.unit.as_str());
                json.key("startValue").raw(0);
                json.key("endValue").raw(total.value);
                json.key("samples").list(|json| {
                    stacks.iter().for_each(|(stack, _)| json.raws(stack));
                });
                json.key("weights").raws(stacks.iter().map(|(_, weight)| weight.value));
            });
        });
    })
}

fn frames(json: &mut JsonWriter, stacks: &StackSet) {
    for frame in stacks.frames() {
        json.nested(|json| super::place(json, frame));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::tests::example;

    #[test]
    fn samples_name_frames_by_number() {
        let text = write(&example());
        assert!(text.contains(r#"{"name":"find","file":"file.rs","line":7}"#), "{text}");
        assert!(text.contains(r#""unit":"nanoseconds","startValue":0,"endValue":50,"#), "{text}");
        let ends = r#""samples":[[0,1],[0,1,2],[3,1,2]],"weights":[10,30,10]}]}"#;
        assert!(text.ends_with(ends), "{text}");
    }
}
