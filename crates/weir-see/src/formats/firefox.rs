//! The Firefox Profiler's processed format, version 47: one thread whose samples are the stacks, with their weights.
//!
//! <https://github.com/firefox-devtools/profiler/blob/main/docs-developer/processed-profile-format.md>; newer viewers
//! upgrade older versions, so a fixed one stays readable.

use std::collections::HashMap;

use crate::stacks::{FrameOrigin, StackFrame, StackSet, WeightUnit};
use weir_http::json::JsonWriter;

/// The profile. Stacks are added up, not in order of time: each is a sample at its own millisecond with its weight.
pub(super) fn write(stacks: &StackSet) -> String {
    let table = StackTable::of(stacks);
    let mut strings = FirefoxStrings::default();
    let functions: Vec<FunctionRow> = stacks.frames().iter().map(|frame| strings.function(frame)).collect();
    JsonWriter::object(|json| {
        json.key("meta").nested(|json| meta(json, stacks));
        json.key("libs").list(|_| {});
        json.key("threads").list(|json| {
            json.nested(|json| {
                thread(json, stacks);
                samples(json, stacks, &table);
                json.key("stackTable").nested(|json| table.write(json, stacks));
                json.key("frameTable").nested(|json| frame_table(json, stacks));
                json.key("funcTable").nested(|json| func_table(json, stacks, &functions));
                json.key("stringArray").list(|json| strings.list.iter().for_each(|s| json.text(s)));
            });
        });
    })
}

fn meta(json: &mut JsonWriter, stacks: &StackSet) {
    json.key("version").raw(28);
    json.key("preprocessedProfileVersion").raw(47);
    json.key("product").text("weir");
    json.key("processType").raw(0);
    json.key("stackwalk").raw(1);
    json.key("symbolicated").raw(true);
    json.key("sourceCodeIsNotOnSearchfox").raw(true);
    json.key("startTime").raw(stacks.unix_ms);
    json.key("interval").raw(milliseconds(stacks.period_ns.max(1_000)));
    json.key("markerSchema").list(|_| {});
    json.key("categories").list(|json| {
        for origin in FrameOrigin::ALL {
            json.nested(|json| {
                json.key("name").text(origin.as_str());
                json.key("color").text(colour(origin));
                json.key("subcategories").list(|json| json.text("Other"));
            });
        }
    });
}

fn thread(json: &mut JsonWriter, stacks: &StackSet) {
    json.key("name").text(&format!("weir {}", stacks.kind));
    json.key("processName").text("weir");
    json.key("processType").text("default");
    json.key("isMainThread").raw(true);
    json.key("pid").text("0");
    json.key("tid").raw(0);
    json.key("processStartupTime").raw(0);
    json.key("processShutdownTime").raw("null");
    json.key("registerTime").raw(0);
    json.key("unregisterTime").raw("null");
    json.key("pausedRanges").list(|_| {});
    for (name, columns) in [
        ("markers", &["data", "name", "startTime", "endTime", "phase", "category"][..]),
        ("nativeSymbols", &["libIndex", "address", "name", "functionSize"]),
        ("resourceTable", &["lib", "name", "host", "type"]),
    ] {
        json.key(name).nested(|json| {
            json.key("length").raw(0);
            columns.iter().for_each(|column| json.key(column).list(|_| {}));
        });
    }
}

fn samples(json: &mut JsonWriter, stacks: &StackSet, table: &StackTable) {
    json.key("samples").nested(|json| {
        json.key("length").raw(stacks.iter().len());
        json.key("stack")
            .raws(table.ends.iter().map(|end| end.map_or("null".to_owned(), |end| end.to_string())));
        json.key("time").raws(0..stacks.iter().len());
        match stacks.unit {
            WeightUnit::Nanoseconds => {
                json.key("weight").raws(stacks.iter().map(|(_, weight)| milliseconds(weight.value)));
                json.key("weightType").text("tracing-ms");
            }
            WeightUnit::Bytes => {
                json.key("weight").raws(stacks.iter().map(|(_, weight)| weight.value));
                json.key("weightType").text("bytes");
            }
        }
    });
}

fn frame_table(json: &mut JsonWriter, stacks: &StackSet) {
    let frames = stacks.frames();
    json.key("length").raw(frames.len());
    json.key("address").raws(frames.iter().map(|_| -1));
    json.key("inlineDepth").raws(frames.iter().map(|_| 0));
    json.key("category").raws(frames.iter().map(|frame| frame.origin as u8));
    json.key("subcategory").raws(frames.iter().map(|_| 0));
    json.key("func").raws(0..frames.len());
    for column in ["nativeSymbol", "innerWindowID", "implementation", "column"] {
        json.key(column).raws(frames.iter().map(|_| "null"));
    }
    json.key("line").raws(frames.iter().map(line));
}

fn func_table(json: &mut JsonWriter, stacks: &StackSet, functions: &[FunctionRow]) {
    json.key("length").raw(functions.len());
    json.key("name").raws(functions.iter().map(|function| function.name));
    json.key("isJS").raws(functions.iter().map(|_| false));
    json.key("relevantForJS").raws(functions.iter().map(|_| false));
    json.key("resource").raws(functions.iter().map(|_| -1));
    let file = |function: &FunctionRow| function.file.map_or("null".to_owned(), |file| file.to_string());
    json.key("fileName").raws(functions.iter().map(file));
    json.key("lineNumber").raws(stacks.frames().iter().map(line));
    json.key("columnNumber").raws(functions.iter().map(|_| "null"));
}

fn line(frame: &StackFrame) -> String {
    if frame.line > 0 { frame.line.to_string() } else { "null".to_owned() }
}

/// Names and files by their place in the table of strings.
struct FunctionRow {
    name: usize,
    file: Option<usize>,
}

#[derive(Default)]
struct FirefoxStrings<'a> {
    list: Vec<&'a str>,
    numbers: HashMap<&'a str, usize>,
}

impl<'a> FirefoxStrings<'a> {
    fn function(&mut self, frame: &'a StackFrame) -> FunctionRow {
        let name = self.number(&frame.name);
        FunctionRow { name, file: (!frame.file.is_empty()).then(|| self.number(&frame.file)) }
    }

    fn number(&mut self, text: &'a str) -> usize {
        *self.numbers.entry(text).or_insert_with(|| {
            self.list.push(text);
            self.list.len() - 1
        })
    }
}

/// Stacks as the format has them: a frame upon a stack before it in the table.
#[derive(Default)]
struct StackTable {
    rows: Vec<(Option<usize>, u32)>,
    /// The last row of each stack; `None` for one without frames.
    ends: Vec<Option<usize>>,
}

impl StackTable {
    fn of(stacks: &StackSet) -> StackTable {
        let mut table = StackTable::default();
        let mut numbers: HashMap<(Option<usize>, u32), usize> = HashMap::new();
        for (stack, _) in stacks.iter() {
            let end = stack.iter().fold(None, |prefix, &frame| {
                let row = (prefix, frame);
                Some(*numbers.entry(row).or_insert_with(|| {
                    table.rows.push(row);
                    table.rows.len() - 1
                }))
            });
            table.ends.push(end);
        }
        table
    }

    fn write(&self, json: &mut JsonWriter, stacks: &StackSet) {
        json.key("length").raw(self.rows.len());
        let prefix =
            |&(prefix, _): &(Option<usize>, u32)| prefix.map_or("null".to_owned(), |p| p.to_string());
        json.key("prefix").raws(self.rows.iter().map(prefix));
        json.key("frame").raws(self.rows.iter().map(|(_, frame)| frame));
        let category = |&(_, frame): &(Option<usize>, u32)| stacks.frames()[frame as usize].origin as u8;
        json.key("category").raws(self.rows.iter().map(category));
        json.key("subcategory").raws(self.rows.iter().map(|_| 0));
    }
}

fn milliseconds(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000, ns % 1_000_000)
}

/// The viewer knows colours by name: `CategoryColor` of its `src/types/profile.ts`.
fn colour(origin: FrameOrigin) -> &'static str {
    match origin {
        FrameOrigin::Route => "blue",
        FrameOrigin::Phase => "green",
        FrameOrigin::Module => "yellow",
        FrameOrigin::Native => "orange",
        FrameOrigin::Kernel => "red",
        FrameOrigin::Lua => "purple",
        FrameOrigin::Wait => "lightblue",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::tests::example;

    #[test]
    fn stacks_share_their_prefixes() {
        let text = write(&example());
        let table = r#""stackTable":{"length":6,"prefix":[null,0,1,null,3,4],"frame":[0,1,2,3,1,2],"category":[0,1,3,0,1,3],"#;
        assert!(text.contains(table), "{text}");
        let samples = r#""samples":{"length":3,"stack":[1,2,5],"time":[0,1,2],"weight":[0.000010,0.000030,0.000010],"weightType":"tracing-ms"}"#;
        assert!(text.contains(samples), "{text}");
        assert!(
            text.contains(r#""stringArray":["/","content","find","file.rs","/\u003cb\u003e"]"#),
            "{text}"
        );
        assert!(
            text.contains(r#""name":[0,1,2,4],"#) && text.contains(r#""fileName":[null,null,3,null],"#),
            "{text}"
        );
    }

    #[test]
    fn colours_are_those_of_the_viewer() {
        let known = [
            "purple",
            "green",
            "orange",
            "yellow",
            "lightblue",
            "blue",
            "brown",
            "magenta",
            "red",
            "lightred",
        ];
        assert!(FrameOrigin::ALL.into_iter().all(|origin| known.contains(&colour(origin))));
    }
}
