//! Weighted stacks: what every flame graph and profile is made from.

use std::collections::{BTreeMap, HashMap};

/// A set of stacks with their weights; equal stacks are one, with the sum of their weights.
///
/// Frames are interned, outermost first in a stack: `route;phase;module;function`.
#[derive(Clone, Debug)]
pub struct StackSet {
    /// What it shows, for titles: `cpu`, `wait`, `wall`, `block`.
    pub kind: String,
    /// What the weights are.
    pub unit: WeightUnit,
    /// When recording began, milliseconds since 1970; 0 when it is not known.
    pub unix_ms: u64,
    /// How long was recorded, in nanoseconds.
    pub duration_ns: u64,
    /// Nanoseconds between two samples; 0 where nothing was sampled but everything measured.
    pub period_ns: u64,
    /// Whether drawings show each frame by which the server comes to a request's code; without it they are one.
    pub runtime: bool,
    frames: Vec<StackFrame>,
    numbers: HashMap<StackFrame, u32>,
    stacks: BTreeMap<Vec<u32>, StackWeight>,
}

/// The unit of the weights of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WeightUnit {
    /// Weights are nanoseconds.
    #[default]
    Nanoseconds,
    /// Weights are bytes.
    Bytes,
}

impl WeightUnit {
    /// The unit's name in pprof and speedscope.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            WeightUnit::Nanoseconds => "nanoseconds",
            WeightUnit::Bytes => "bytes",
        }
    }
}

/// A frame of a stack: a name, its origin and its source.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct StackFrame {
    /// What it is called.
    pub name: String,
    /// Where it comes from: colours, and the categories of the Firefox Profiler.
    pub origin: FrameOrigin,
    /// Its source file; empty when it is not known or absent.
    pub file: String,
    /// The line in there; 0 when it is not known.
    pub line: u32,
}

impl StackFrame {
    /// A frame without a place in the source.
    #[must_use]
    pub fn new(origin: FrameOrigin, name: impl Into<String>) -> StackFrame {
        StackFrame { name: name.into(), origin, file: String::new(), line: 0 }
    }
}

/// Where a frame comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum FrameOrigin {
    /// The location that serves the request.
    Route,
    /// A phase, or a step of the connection.
    Phase,
    /// A module's handler or filter.
    Module,
    /// A native function.
    #[default]
    Native,
    /// Code of the kernel.
    Kernel,
    /// A Lua function or line.
    Lua,
    /// What was waited for.
    Wait,
}

impl FrameOrigin {
    /// All of them, by their number.
    pub const ALL: [FrameOrigin; 7] = [
        FrameOrigin::Route,
        FrameOrigin::Phase,
        FrameOrigin::Module,
        FrameOrigin::Native,
        FrameOrigin::Kernel,
        FrameOrigin::Lua,
        FrameOrigin::Wait,
    ];

    /// The name of the origin, as JSON has it: `route`, `phase`, `module`, `native`, `kernel`, `lua` or `wait`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            FrameOrigin::Route => "route",
            FrameOrigin::Phase => "phase",
            FrameOrigin::Module => "module",
            FrameOrigin::Native => "native",
            FrameOrigin::Kernel => "kernel",
            FrameOrigin::Lua => "lua",
            FrameOrigin::Wait => "wait",
        }
    }
}

/// How much a stack counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StackWeight {
    /// How often it was seen.
    pub count: u64,
    /// In the [`WeightUnit`] of the whole.
    pub value: u64,
}

impl StackSet {
    /// A set without stacks, of the kind (`cpu`, `wait`) and with the weights' unit that are given.
    #[must_use]
    pub fn new(kind: impl Into<String>, unit: WeightUnit) -> StackSet {
        StackSet {
            kind: kind.into(),
            unit,
            unix_ms: 0,
            duration_ns: 0,
            period_ns: 0,
            runtime: false,
            frames: Vec::new(),
            numbers: HashMap::new(),
            stacks: BTreeMap::new(),
        }
    }

    /// Another set of the same kind, time and unit, without stacks.
    pub(crate) fn without_stacks(&self) -> StackSet {
        StackSet {
            frames: Vec::new(),
            numbers: HashMap::new(),
            stacks: BTreeMap::new(),
            kind: self.kind.clone(),
            ..*self
        }
    }

    /// Adds a stack, outermost frame first.
    pub fn add(&mut self, frames: impl IntoIterator<Item = StackFrame>, weight: StackWeight) {
        let stack: Vec<u32> = frames.into_iter().map(|frame| self.number(frame)).collect();
        let sum = self.stacks.entry(stack).or_default();
        sum.count += weight.count;
        sum.value += weight.value;
    }

    /// Every frame that occurs; stacks name them by their place here.
    #[must_use]
    pub fn frames(&self) -> &[StackFrame] {
        &self.frames
    }

    /// The stacks, each outermost first, and their weights.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u32], StackWeight)> {
        self.stacks.iter().map(|(stack, weight)| (stack.as_slice(), *weight))
    }

    /// True when nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// The sum of all weights.
    #[must_use]
    pub fn total(&self) -> StackWeight {
        self.stacks.values().fold(StackWeight::default(), |sum, weight| StackWeight {
            count: sum.count + weight.count,
            value: sum.value + weight.value,
        })
    }

    /// The number of a frame, a new one of a new frame.
    pub(crate) fn number(&mut self, frame: StackFrame) -> u32 {
        if let Some(&number) = self.numbers.get(&frame) {
            return number;
        }
        let number = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.numbers.insert(frame, number);
        number
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two routes; one function under both.
    pub(crate) fn example() -> StackSet {
        let mut stacks = StackSet::new("cpu", WeightUnit::Nanoseconds);
        stacks.period_ns = 10;
        stacks.duration_ns = 1_000;
        stacks.unix_ms = 1_700_000_000_000;
        let find = StackFrame {
            file: "file.rs".to_owned(),
            line: 7,
            ..StackFrame::new(FrameOrigin::Native, "find")
        };
        let content = || StackFrame::new(FrameOrigin::Phase, "content");
        stacks.add(
            [StackFrame::new(FrameOrigin::Route, "/"), content(), find.clone()],
            StackWeight { count: 2, value: 20 },
        );
        stacks
            .add([StackFrame::new(FrameOrigin::Route, "/"), content()], StackWeight { count: 1, value: 10 });
        stacks.add(
            [StackFrame::new(FrameOrigin::Route, "/<b>"), content(), find.clone()],
            StackWeight { count: 1, value: 10 },
        );
        stacks.add(
            [StackFrame::new(FrameOrigin::Route, "/"), content(), find],
            StackWeight { count: 1, value: 10 },
        );
        stacks
    }

    #[test]
    fn equal_stacks_are_one() {
        let stacks = example();
        assert_eq!(stacks.frames().len(), 4);
        let all: Vec<_> = stacks.iter().map(|(stack, weight)| (stack.to_vec(), weight.value)).collect();
        assert_eq!(all, [(vec![0, 1], 10), (vec![0, 1, 2], 30), (vec![3, 1, 2], 10)]);
        assert_eq!(stacks.total(), StackWeight { count: 5, value: 50 });
    }
}
