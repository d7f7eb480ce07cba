//! One frame of a sampled stack in one word.

/// A frame, innermost first in a stack. Native ones come from the walk of frame pointers; the others are the Lua
/// walker's, which resolves in the handler what may be gone when the stack is read (a prototype can be collected).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Frame {
    /// An address in machine code: of callers, one byte before the address they return to, which lies inside the
    /// call. Below 2^48.
    Native(u64),
    /// A line of a Lua function.
    Lua {
        /// The prototype's number in the registry of chunks; below 2^24.
        proto: u32,
        /// The line; below 2^20.
        line: u32,
        /// It ran as compiled code.
        jit: bool,
    },
    /// A function built into the Lua VM, by its number; below 2^24.
    Builtin(u32),
}

impl Frame {
    /// The word: the sort of frame in the upper four bits. What does not fit its field is cut.
    #[inline]
    pub const fn pack(self) -> u64 {
        match self {
            Frame::Native(address) => address & NATIVE,
            Frame::Lua { proto, line, jit } => {
                let tag = if jit { LUA_JIT } else { LUA };
                tag << TAG | (proto as u64 & PROTO) << 20 | line as u64 & LINE
            }
            Frame::Builtin(number) => BUILTIN << TAG | number as u64 & PROTO,
        }
    }

    /// The frame of a word; unknown sorts are read as native addresses, which find no name.
    #[inline]
    pub const fn unpack(word: u64) -> Frame {
        match word >> TAG {
            LUA | LUA_JIT => Frame::Lua {
                proto: (word >> 20 & PROTO) as u32,
                line: (word & LINE) as u32,
                jit: word >> TAG == LUA_JIT,
            },
            BUILTIN => Frame::Builtin((word & PROTO) as u32),
            _ => Frame::Native(word & NATIVE),
        }
    }
}

const TAG: u32 = 60;
const LUA: u64 = 1;
const LUA_JIT: u64 = 2;
const BUILTIN: u64 = 3;
const NATIVE: u64 = (1 << 48) - 1;
const PROTO: u64 = (1 << 24) - 1;
const LINE: u64 = (1 << 20) - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_survive_their_word(n in 0u64..1 << 48, proto in 0u32..1 << 24, line in 0u32..1 << 20, jit: bool) {
            for frame in [Frame::Native(n), Frame::Lua { proto, line, jit }, Frame::Builtin(proto)] {
                prop_assert_eq!(Frame::unpack(frame.pack()), frame);
            }
        }

        #[test]
        fn any_word_is_some_frame(word: u64) {
            let frame = Frame::unpack(word);
            prop_assert_eq!(Frame::unpack(frame.pack()), frame);
        }
    }
}
