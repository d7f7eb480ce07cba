//! What others have written, as a terminal may show it.
//!
//! Paths of requests, names of functions and files, and whatever the process behind a socket sends can hold escape
//! sequences: they move the cursor, set titles, and make some terminals type.

use std::borrow::Cow;

/// `text` with every control character but tabs and line ends as `\xHH`, as logs have it, and those that turn the
/// direction of text as `\u{HHHH}`.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            _ if !is_hidden(character) => out.push(character),
            '\0'..='\u{ff}' => out.push_str(&format!("\\x{:02X}", u32::from(character))),
            _ => out.push_str(&format!("\\u{{{:X}}}", u32::from(character))),
        }
    }
    Cow::Owned(out)
}

/// As [`visible`], for one line: line ends are escaped, too.
pub(super) fn visible_line(text: &str) -> String {
    visible(text).replace('\n', "\\x0A")
}

/// C0, DEL and C1, and the embeddings, overrides and isolates of UAX #9.
fn is_hidden(character: char) -> bool {
    (character.is_control() && !matches!(character, '\n' | '\t'))
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_shown_as_text() {
        assert_eq!(visible("/a\tb\n"), "/a\tb\n");
        assert_eq!(visible("\x1b]0;t\x07\r\x7f\u{9b}2J"), "\\x1B]0;t\\x07\\x0D\\x7F\\x9B2J");
        assert_eq!(visible("a\u{202e}b"), "a\\u{202E}b");
        assert_eq!(visible_line("é\n\x1b"), "é\\x0A\\x1B");
    }

    proptest::proptest! {
        #[test]
        fn nothing_hidden_is_left(bytes in proptest::collection::vec(0u8.., 0..200)) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            proptest::prop_assert!(!visible(&text).contains(is_hidden));
            proptest::prop_assert!(!visible_line(&text).contains('\n'));
        }
    }
}
