//! pprof's `profile.proto`, gzipped: what `go tool pprof`, Pyroscope and Parca read.
//!
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>, written by hand: seven messages of plain fields.

use std::collections::HashMap;

use super::protobuf::ProtobufMessage;
use crate::gzip;
use crate::stacks::{StackSet, WeightUnit};

/// The profile. Each frame is a location of its own, addresses are left out: names come with the file.
pub(super) fn write(stacks: &StackSet) -> Vec<u8> {
    let profile = profile(stacks);
    // The format allows an uncompressed file, too.
    gzip::file(&profile).unwrap_or(profile)
}

fn profile(stacks: &StackSet) -> Vec<u8> {
    let mut strings = PprofStrings::default();
    strings.number("");
    let mut out = ProtobufMessage::default();
    let types = types(stacks);
    for (kind, unit) in types {
        out.message(1, value_type(&mut strings, kind, unit));
    }
    for (stack, weight) in stacks.iter() {
        let mut sample = ProtobufMessage::default();
        // Innermost first; locations are numbered from 1.
        sample.packed(1, stack.iter().rev().map(|&frame| u64::from(frame) + 1));
        sample.packed(2, [weight.count, weight.value]);
        out.message(2, sample);
    }
    for (number, frame) in stacks.frames().iter().enumerate() {
        let id = number as u64 + 1;
        let mut line = ProtobufMessage::default();
        line.number(1, id);
        line.number(2, frame.line.into());
        let mut location = ProtobufMessage::default();
        location.number(1, id);
        location.message(4, line);
        out.message(4, location);
        let mut function = ProtobufMessage::default();
        function.number(1, id);
        let name = strings.number(&frame.name);
        function.number(2, name);
        function.number(3, name);
        function.number(4, strings.number(&frame.file));
        out.message(5, function);
    }
    let period = value_type(&mut strings, types[1].0, types[1].1);
    for string in &strings.list {
        out.bytes(6, string.as_bytes());
    }
    out.number(9, stacks.unix_ms * 1_000_000);
    out.number(10, stacks.duration_ns);
    out.message(11, period);
    out.number(12, stacks.period_ns);
    out.0
}

/// Go's names for the two values of a sample, by which its tools choose what to show.
fn types(stacks: &StackSet) -> [(&str, &str); 2] {
    match (stacks.kind.as_str(), stacks.unit) {
        ("cpu", WeightUnit::Nanoseconds) => [("samples", "count"), ("cpu", "nanoseconds")],
        (_, WeightUnit::Bytes) => [("alloc_objects", "count"), ("alloc_space", "bytes")],
        ("block", _) => [("contentions", "count"), ("delay", "nanoseconds")],
        (kind, _) => [("events", "count"), (kind, "nanoseconds")],
    }
}

fn value_type(strings: &mut PprofStrings, kind: &str, unit: &str) -> ProtobufMessage {
    let mut message = ProtobufMessage::default();
    message.number(1, strings.number(kind));
    message.number(2, strings.number(unit));
    message
}

/// The table of strings: each once, the empty one first.
#[derive(Default)]
struct PprofStrings {
    list: Vec<String>,
    numbers: HashMap<String, u64>,
}

impl PprofStrings {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.list.len() as u64;
        self.list.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::tests::example;

    #[test]
    fn samples_are_innermost_first_and_strings_begin_with_the_empty_one() {
        let profile = profile(&example());
        let has = |bytes: &[u8]| profile.windows(bytes.len()).any(|window| window == bytes);
        // Sample: locations 3, 2, 1 (find, content, /), values 3 and 30.
        assert!(has(&[0x12, 9, 0x0a, 3, 3, 2, 1, 0x12, 2, 3, 30]), "{profile:?}");
        assert!(has(&[0x32, 0, 0x32, 7, b's', b'a', b'm', b'p', b'l', b'e', b's']), "{profile:?}");
        // Period type cpu/nanoseconds and period 10 end it.
        assert!(profile.ends_with(&[0x5a, 4, 0x08, 3, 0x10, 4, 0x60, 10]), "{profile:?}");
    }

    #[test]
    fn the_file_is_gzipped() {
        assert_eq!(write(&example())[..3], [0x1f, 0x8b, 8]);
    }
}
