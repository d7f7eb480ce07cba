//! A string as JSON has it. It is here because it is the one thing that `weir-trace`, which renders trees, and
//! `weir-http`, which has the rest of JSON, both need, and neither uses the other.

use std::fmt::Write;

/// Appends `text` to `out` as a string in quotes (RFC 8259 section 7). Also escapes `<` and `>`, so that a page may embed it in a script element.
pub fn escape(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\0'..='\x1f' | '\x7f' | '<' | '>' | '\u{2028}' | '\u{2029}' => {
                write!(out, "\\u{:04x}", c as u32).expect("writing to a String does not fail");
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_sends_stays_inside_its_string() {
        let mut out = String::new();
        escape(&mut out, "a\"b\\c\n\u{1}</script>\u{2028}é");
        assert_eq!(out, "\"a\\\"b\\\\c\\u000a\\u0001\\u003c/script\\u003e\\u2028é\"");
    }
}
