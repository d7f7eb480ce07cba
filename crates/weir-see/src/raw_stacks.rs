//! Stacks on the control socket: addresses go as they are, and get their names where they are read.
//!
//! Lines of fields separated by tabs. First `kind period duration time pid`, then `=` and a line of the process' memory map
//! for each that holds code (a server that gave up root can't be looked at by its own user any more), then a line a stack: count, value, and
//! frames outermost first, each a letter for its origin and the name, `%XX` for what would break a line; `@` and
//! hexadecimal digits for an address, `?` after them for one that was guessed.

use crate::control::protocol::{escape, unescape};
use crate::stacks::{FrameOrigin, StackFrame, StackSet, StackWeight, WeightUnit};
use crate::symbols::SymbolSource;

/// Stacks with frames that have no names yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawStacks {
    /// What was collected: `cpu`, `wait`.
    pub kind: String,
    /// Nanoseconds between two samples; 0 without samples.
    pub period_ns: u64,
    /// Nanoseconds of collecting.
    pub duration_ns: u64,
    /// When it ended, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The process whose addresses they are.
    pub pid: u32,
    /// Lines of its `/proc/self/maps`.
    pub maps: String,
    /// The stacks, frames outermost first.
    pub stacks: Vec<(StackWeight, Vec<RawFrame>)>,
}

/// The lines of this process' memory map that hold code; empty where they can't be read.
pub(crate) fn code_maps() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter(|line| line.contains(" r-xp ")).flat_map(|line| [line, "\n"]).collect()
}

/// A frame, named or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawFrame {
    /// One that has a name.
    Named(FrameOrigin, String),
    /// An address of the process.
    Address(u64),
    /// An address that was looked for on the stack, where the chain of callers was broken.
    Guessed(u64),
}

impl RawStacks {
    /// The stacks as lines of tab-separated fields: a header, the memory map, and one line for each stack.
    #[must_use]
    pub fn write(&self) -> String {
        let (kind, period, duration) = (escape(&self.kind), self.period_ns, self.duration_ns);
        let mut out = format!("{kind}\t{period}\t{duration}\t{}\t{}\n", self.unix_ms, self.pid);
        for line in self.maps.split_terminator('\n') {
            out.push_str(&format!("={line}\n"));
        }
        for (weight, frames) in &self.stacks {
            out.push_str(&format!("{}\t{}", weight.count, weight.value));
            for frame in frames {
                match frame {
                    RawFrame::Named(origin, name) => {
                        out.push_str(&format!("\t{}{}", letter(*origin), escape(name)));
                    }
                    RawFrame::Address(address) => out.push_str(&format!("\t@{address:x}")),
                    RawFrame::Guessed(address) => out.push_str(&format!("\t@{address:x}?")),
                }
            }
            out.push('\n');
        }
        out
    }

    /// Reads the output of the `raw` format: a head, then a line per stack.
    ///
    /// # Errors
    /// The first line that is not of that format.
    pub fn parse(text: &str) -> Result<RawStacks, String> {
        let wrong = |line: &str| format!("these are no stacks: \"{line}\"");
        let mut lines = text.split_terminator('\n');
        let head = lines.next().unwrap_or("");
        let mut fields = head.split('\t');
        let kind = unescape(fields.next().unwrap_or(""));
        let mut number = || fields.next().and_then(|field| field.parse().ok()).ok_or_else(|| wrong(head));
        let mut raw = RawStacks {
            kind,
            period_ns: number()?,
            duration_ns: number()?,
            unix_ms: number()?,
            pid: u32::try_from(number()?).map_err(|_| wrong(head))?,
            maps: String::new(),
            stacks: Vec::new(),
        };
        for line in lines {
            if let Some(map) = line.strip_prefix('=') {
                raw.maps.push_str(map);
                raw.maps.push('\n');
                continue;
            }
            let mut fields = line.split('\t');
            let mut number = || fields.next().and_then(|field| field.parse().ok()).ok_or_else(|| wrong(line));
            let weight = StackWeight { count: number()?, value: number()? };
            let frames: Option<Vec<RawFrame>> = fields.map(frame).collect();
            raw.stacks.push((weight, frames.ok_or_else(|| wrong(line))?));
        }
        Ok(raw)
    }

    /// With the names that `symbols` knows.
    pub(crate) fn resolve(&self, symbols: &mut dyn SymbolSource) -> StackSet {
        let unit = if self.kind == "alloc" { WeightUnit::Bytes } else { WeightUnit::Nanoseconds };
        let mut stacks = StackSet::new(self.kind.clone(), unit);
        (stacks.period_ns, stacks.duration_ns, stacks.unix_ms) =
            (self.period_ns, self.duration_ns, self.unix_ms);
        for (weight, raw) in &self.stacks {
            let mut frames = Vec::with_capacity(raw.len());
            for frame in raw {
                match frame {
                    RawFrame::Named(origin, name) => frames.push(StackFrame::new(*origin, name.clone())),
                    RawFrame::Address(address) => symbols.frames(*address, &mut frames),
                    RawFrame::Guessed(address) => {
                        let sure = frames.len();
                        symbols.frames(*address, &mut frames);
                        frames[sure..].iter_mut().for_each(|frame| frame.name.push_str(" ?"));
                    }
                }
            }
            stacks.add(frames, *weight);
        }
        stacks
    }
}

fn frame(field: &str) -> Option<RawFrame> {
    if let Some(digits) = field.strip_prefix('@') {
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        return match digits.strip_suffix('?') {
            Some(digits) => number(digits).map(RawFrame::Guessed),
            None => number(digits).map(RawFrame::Address),
        };
    }
    let origin = FrameOrigin::ALL.into_iter().find(|&origin| field.starts_with(letter(origin)))?;
    Some(RawFrame::Named(origin, unescape(&field[1..])))
}

const fn letter(origin: FrameOrigin) -> char {
    match origin {
        FrameOrigin::Route => 'r',
        FrameOrigin::Phase => 'p',
        FrameOrigin::Module => 'm',
        FrameOrigin::Native => 'n',
        FrameOrigin::Kernel => 'k',
        FrameOrigin::Lua => 'l',
        FrameOrigin::Wait => 'w',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::BareAddresses;

    #[test]
    fn stacks_are_read_as_written() {
        let named = |origin, name: &str| RawFrame::Named(origin, name.to_owned());
        let raw = RawStacks {
            kind: "cpu".to_owned(),
            period_ns: 10,
            duration_ns: 20,
            unix_ms: 30,
            pid: 7,
            maps: "55-56 r-xp 0 0:1 2 /weir\n".to_owned(),
            stacks: vec![
                (
                    StackWeight { count: 1, value: 2 },
                    vec![
                        named(FrameOrigin::Route, "~ ^/a\tb\n%"),
                        RawFrame::Guessed(0x55),
                        RawFrame::Address(0x7f00),
                    ],
                ),
                (StackWeight { count: 3, value: 4 }, vec![]),
            ],
        };
        assert_eq!(RawStacks::parse(&raw.write()), Ok(raw.clone()));
        let stacks = raw.resolve(&mut BareAddresses);
        assert_eq!(
            stacks.frames().iter().map(|frame| frame.name.as_str()).collect::<Vec<_>>(),
            ["~ ^/a\tb\n%", "0x55 ?", "0x7f00"]
        );
        for wrong in [
            "",
            "cpu\t1\t2\t3",
            "cpu\t1\t2\t3\t4\nx",
            "cpu\t1\t2\t3\t4\n1\t2\t?a",
            "cpu\t1\t2\t3\t4\n1\t2\t@xyz",
        ] {
            assert!(RawStacks::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
