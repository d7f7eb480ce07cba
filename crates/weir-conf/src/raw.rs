//! The end of a raw block: `*_by_lua_block { ... }`.
//!
//! Lua's own braces, strings, long brackets and comments decide which `}` is the last; the text is not changed.

/// The offset in `text` of the `}` that closes the block opened just before `start`.
pub(crate) fn lua_block_end(text: &[u8], start: usize) -> Result<usize, UnclosedBlock> {
    let (mut i, mut depth) = (start, 0_usize);
    while let Some(&byte) = text.get(i) {
        i = match byte {
            b'}' if depth == 0 => return Ok(i),
            b'}' => {
                depth -= 1;
                i + 1
            }
            b'{' => {
                depth += 1;
                i + 1
            }
            b'"' | b'\'' => string_end(text, i),
            b'[' => bracket_end(text, i)?.unwrap_or(i + 1),
            b'-' if text.get(i + 1) == Some(&b'-') => comment_end(text, i)?,
            _ => i + 1,
        };
    }
    Err(UnclosedBlock::Block)
}

/// Whether a line of `text` begins inside of a string, where blanks are part of its value. `text` is what is between the
/// braces of a block that ends.
pub(crate) fn has_line_in_string(text: &[u8]) -> bool {
    let mut i = 0;
    while let Some(&byte) = text.get(i) {
        let (end, is_string) = match byte {
            b'"' | b'\'' => (string_end(text, i), true),
            b'[' => match bracket_end(text, i) {
                Ok(Some(end)) => (end, true),
                _ => (i + 1, false),
            },
            b'-' if text.get(i + 1) == Some(&b'-') => (comment_end(text, i).unwrap_or(text.len()), false),
            _ => (i + 1, false),
        };
        if is_string && text[i..end].contains(&b'\n') {
            return true;
        }
        i = end;
    }
    false
}

/// What is missing at the end of the text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UnclosedBlock {
    /// The block's `}`.
    Block,
    /// The `]==]` of the long bracket that begins at `at`.
    Bracket { at: usize, level: usize },
}

/// After the string that begins at `start`. A string ends at its line's end, as Lua has it: what is wrong inside of
/// a block is for Lua to say.
fn string_end(text: &[u8], start: usize) -> usize {
    let quote = text[start];
    let mut i = start + 1;
    while let Some(&byte) = text.get(i) {
        match byte {
            b'\n' => return i,
            b'\\' => i = escape_end(text, i),
            _ if byte == quote => return i + 1,
            _ => i += 1,
        }
    }
    i
}

/// After the escape that begins at `start`; `\z` takes all blanks that follow, newlines too.
fn escape_end(text: &[u8], start: usize) -> usize {
    let after = (start + 2).min(text.len());
    match text.get(start + 1) {
        Some(b'z') => after + text[after..].iter().take_while(|b| b.is_ascii_whitespace()).count(),
        Some(b'\r') if text.get(after) == Some(&b'\n') => after + 1,
        _ => after,
    }
}

/// After the long bracket that begins at `start`, or `None` if this `[` begins none.
fn bracket_end(text: &[u8], start: usize) -> Result<Option<usize>, UnclosedBlock> {
    let level = text[start + 1..].iter().take_while(|&&b| b == b'=').count();
    let inside = start + level + 2;
    if text.get(inside - 1) != Some(&b'[') {
        return Ok(None);
    }
    let closing = [b"]".as_slice(), &vec![b'='; level], b"]"].concat();
    match text[inside..].windows(closing.len()).position(|window| window == closing) {
        Some(i) => Ok(Some(inside + i + closing.len())),
        None => Err(UnclosedBlock::Bracket { at: start, level }),
    }
}

/// After the comment that begins at `start`, a line or a long bracket.
fn comment_end(text: &[u8], start: usize) -> Result<usize, UnclosedBlock> {
    let after = start + 2;
    if text.get(after) == Some(&b'[')
        && let Some(end) = bracket_end(text, after)?
    {
        return Ok(end);
    }
    Ok(text[after..].iter().position(|&b| b == b'\n').map_or(text.len(), |i| after + i))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_brace_is_the_one_that_lua_sees() {
        for lua in [
            "",
            " local t = { a = { 1 } } ",
            " ngx.say(\"}\") ",
            " ngx.say('}', \"\\\"}\") ",
            " -- }\n ",
            " --[[ } \n } ]] ",
            " --[==[ } ]] } ]==] ",
            " local s = [[ } ]] ",
            " local s = [=[ ]] } ]=] ",
            " t[u[1]] = { 1 } ",
            " local s = \"a\\z \n  }\" ",
            " local s = \"a\\\n}\" ",
            " local s = 'a\\\r\n}' ",
            " a = b - -c ",
            " if a[ 1 ] then return {} end ",
            " --[ } not long\n ",
            " --[= } not long\n ",
        ] {
            let text = format!("{lua}}} tail }}");
            assert_eq!(lua_block_end(text.as_bytes(), 0), Ok(lua.len()), "{lua}");
        }
    }

    #[test]
    fn a_string_broken_by_a_newline_hides_no_brace() {
        assert_eq!(lua_block_end(b" s = \"a\n}", 0), Ok(8));
    }

    #[test]
    fn only_strings_are_sensitive_to_blanks_at_the_start_of_a_line() {
        for (lua, sensitive) in [
            ("\n a()\n", false),
            (" a = [[ x ]]\n", false),
            (" a = [=[ x\n ]=]", true),
            (" --[[ x\n ]] a = '[[\\' ", false),
            (" -- a = [[\n b()", false),
            (" a = \"x\\\n y\"", true),
            (" a = 'x\\z\n y'", true),
            (" a = \"x\n b = [[\n]]", true),
            (" a[1]\n", false),
        ] {
            assert_eq!(has_line_in_string(lua.as_bytes()), sensitive, "{lua}");
        }
    }

    #[test]
    fn what_is_not_closed_is_told() {
        for (text, unclosed) in [
            (" a {} ", UnclosedBlock::Block),
            (" a { } { ", UnclosedBlock::Block),
            (" \"}", UnclosedBlock::Block),
            (" -- }", UnclosedBlock::Block),
            (" \"\\", UnclosedBlock::Block),
            (" a [", UnclosedBlock::Block),
            (" a --", UnclosedBlock::Block),
            (" a [[ } ]=]", UnclosedBlock::Bracket { at: 3, level: 0 }),
            (" --[==[ } ]]", UnclosedBlock::Bracket { at: 3, level: 2 }),
        ] {
            assert_eq!(lua_block_end(text.as_bytes(), 0), Err(unclosed), "{text}");
        }
    }
}
