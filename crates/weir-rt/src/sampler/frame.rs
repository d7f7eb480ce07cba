//! One frame of a sampled stack in one word.

use super::names;

/// A frame, innermost first in a stack. Native ones come from the walk of frame pointers; the others are the Lua
/// walker's, which resolves in the handler what may be gone when the stack is read (a prototype can be collected).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StackFrame {
    /// An address in machine code: of callers, one byte before the address they return to, which lies inside the
    /// call. Below 2^48.
    Native(u64),
    /// The same, where the chain of callers was broken and the address was looked for on the stack: it may be one that an
    /// earlier call left there.
    Guessed(u64),
    /// A line of a Lua function.
    Lua {
        /// The chunk's number among the [`names`](super::names); below 2^24.
        chunk: u32,
        /// The line; below 2^20.
        line: u32,
        /// It ran as compiled code.
        jit: bool,
        /// It may be another line of what was compiled with it: the compiled code has more lines than are noted.
        guessed: bool,
    },
    /// A function built into the Lua VM, by its number among the [`names`](super::names); below 2^24.
    Builtin(u32),
}

impl StackFrame {
    /// The word: the sort of frame in the upper four bits. What does not fit its field is cut.
    #[inline]
    pub const fn pack(self) -> u64 {
        match self {
            StackFrame::Native(address) => address & NATIVE,
            StackFrame::Guessed(address) => GUESSED | address & NATIVE,
            StackFrame::Lua { chunk, line, jit, guessed } => {
                let tag = match (jit, guessed) {
                    (_, true) => LUA_GUESS,
                    (true, _) => LUA_JIT,
                    _ => LUA,
                };
                tag << TAG | (chunk as u64 & NAME) << 20 | line as u64 & LINE
            }
            StackFrame::Builtin(number) => BUILTIN << TAG | number as u64 & NAME,
        }
    }

    /// The frame of a word; unknown sorts are read as native addresses, which find no name.
    #[inline]
    pub const fn unpack(word: u64) -> StackFrame {
        match word >> TAG {
            LUA | LUA_JIT | LUA_GUESS => StackFrame::Lua {
                chunk: (word >> 20 & NAME) as u32,
                line: (word & LINE) as u32,
                jit: word >> TAG != LUA,
                guessed: word >> TAG == LUA_GUESS,
            },
            BUILTIN => StackFrame::Builtin((word & NAME) as u32),
            GUESS => StackFrame::Guessed(word & NATIVE),
            _ => StackFrame::Native(word & NATIVE),
        }
    }

    /// A Lua frame as Lua's own messages name it: `content_by_lua(nginx.conf:40):3`, `/lua/waf.lua:88`, `string.find`; with ` ?` if it was guessed.
    /// `None` for native ones.
    pub fn lua_name(self) -> Option<String> {
        let unnamed = || "?".to_owned();
        match self {
            StackFrame::Native(_) | StackFrame::Guessed(_) => None,
            StackFrame::Builtin(number) => {
                Some(names::name(number).unwrap_or_else(unnamed).replacen('_', ".", 1))
            }
            StackFrame::Lua { chunk, line, guessed, .. } => {
                let name = names::name(chunk).unwrap_or_else(unnamed);
                let mark = if guessed { " ?" } else { "" };
                Some(match name.strip_prefix(['@', '=']) {
                    Some(name) => format!("{name}:{line}{mark}"),
                    None => format!("[string \"{}\"]:{line}{mark}", name.lines().next().unwrap_or_default()),
                })
            }
        }
    }
}

const TAG: u32 = 60;
const LUA: u64 = 1;
const LUA_JIT: u64 = 2;
const BUILTIN: u64 = 3;
const GUESS: u64 = 5;
const LUA_GUESS: u64 = 6;
/// What a guessed address has besides.
pub(super) const GUESSED: u64 = GUESS << TAG;
const NATIVE: u64 = (1 << 48) - 1;
const NAME: u64 = (1 << 24) - 1;
const LINE: u64 = (1 << 20) - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_survive_their_word(n in 0u64..1 << 48, chunk in 0u32..1 << 24, line in 0u32..1 << 20, jit: bool, guess: bool) {
            for frame in [StackFrame::Native(n), StackFrame::Guessed(n), StackFrame::Lua { chunk, line, jit, guessed: jit && guess }, StackFrame::Builtin(chunk)] {
                prop_assert_eq!(StackFrame::unpack(frame.pack()), frame);
            }
        }

        #[test]
        fn lua_frames_have_names_and_native_ones_have_not(word: u64) {
            let frame = StackFrame::unpack(word);
            prop_assert_eq!(frame.lua_name().is_none(), matches!(frame, StackFrame::Native(_) | StackFrame::Guessed(_)));
        }

        #[test]
        fn any_word_is_some_frame(word: u64) {
            let frame = StackFrame::unpack(word);
            prop_assert_eq!(StackFrame::unpack(frame.pack()), frame);
        }
    }
    #[test]
    fn chunks_are_named_as_in_messages() {
        let at = |name: &[u8]| {
            StackFrame::Lua { chunk: names::number(name), line: 7, jit: false, guessed: false }.lua_name()
        };
        assert_eq!(at(b"=content_by_lua(nginx.conf:40)").as_deref(), Some("content_by_lua(nginx.conf:40):7"));
        assert_eq!(at(b"@/lua/waf.lua").as_deref(), Some("/lua/waf.lua:7"));
        assert_eq!(at(b"return 1\n, 2").as_deref(), Some("[string \"return 1\"]:7"));
        assert_eq!(
            StackFrame::Builtin(names::number(b"string_find")).lua_name().as_deref(),
            Some("string.find")
        );
    }
}
