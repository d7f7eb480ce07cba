//! Lua in braces: moved as a whole with its directive.

use std::borrow::Cow;

use crate::raw::has_line_in_string;

/// `body` with the indentation `new` in the place of `old`, the blanks before its directive as written.
///
/// As it is when a line begins with less than `old`, or inside of a string.
pub(super) fn moved<'a>(body: &'a [u8], old: &[u8], new: &[u8]) -> Cow<'a, [u8]> {
    let Some(first) = body.iter().position(|&byte| byte == b'\n').filter(|_| old != new) else {
        return Cow::Borrowed(body);
    };
    let lines: Vec<&[u8]> = body[first + 1..].split(|&byte| byte == b'\n').collect();
    let has_room = |line: &&[u8]| line.starts_with(old) || is_blank(line);
    if !lines.iter().all(has_room) || has_line_in_string(body) {
        return Cow::Borrowed(body);
    }
    let mut out = body[..first].to_vec();
    for (at, line) in lines.iter().enumerate() {
        out.push(b'\n');
        match line.strip_prefix(old) {
            // The line of the `}`.
            _ if is_blank(line) && at + 1 == lines.len() => out.extend_from_slice(new),
            Some(rest) if !is_blank(line) => {
                out.extend_from_slice(new);
                out.extend_from_slice(rest);
            }
            _ => out.extend_from_slice(line),
        }
    }
    Cow::Owned(out)
}

/// Whether two bodies are the same but for the indentation.
pub(super) fn same(a: &[u8], b: &[u8]) -> bool {
    let lines = |body| -> Vec<Vec<u8>> {
        <[u8]>::split(body, |&byte| byte == b'\n').map(|line| line.trim_ascii_start().to_vec()).collect()
    };
    a == b || (!has_line_in_string(a) && !has_line_in_string(b) && lines(a) == lines(b))
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_moves_as_a_whole_or_not_at_all() {
        for (body, moved_body) in [
            (" a() ", " a() "),
            ("\n\ta()\n\t\tb()\n\n\t", "\n    a()\n    \tb()\n\n    "),
            ("\n\ta()\nb()\n\t", "\n\ta()\nb()\n\t"),
            ("\n\ta([[\n\t]])\n", "\n\ta([[\n\t]])\n"),
            ("\n\ta()\n", "\n    a()\n    "),
            (" a()\n\t-- [[\n\t", " a()\n    -- [[\n    "),
        ] {
            let out = moved(body.as_bytes(), b"\t", b"    ");
            assert_eq!(String::from_utf8_lossy(&out), moved_body, "{body:?}");
            assert!(same(body.as_bytes(), &out));
            assert_eq!(moved(&out, b"    ", b"    "), out);
        }
    }
}
