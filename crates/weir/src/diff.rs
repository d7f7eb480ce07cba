//! The difference of two texts, as `diff -u` shows it.

use similar::{Algorithm, ChangeTag, DiffOp, capture_diff_slices, group_diff_ops};
use weir_see::commands::TextStyle;

/// `old` and `new` of the file `name`; empty where they are equal.
pub(crate) fn unified(name: &str, [old, new]: [&[u8]; 2], style: TextStyle) -> Vec<u8> {
    let lines = [old, new].map(|text| text.split_inclusive(|&byte| byte == b'\n').collect::<Vec<_>>());
    let changes = capture_diff_slices(Algorithm::Myers, &lines[0], &lines[1]);
    let mut out = Vec::new();
    for hunk in group_diff_ops(changes, CONTEXT) {
        if out.is_empty() {
            let heading = style.heading(&format!("--- {name}\n+++ {name}\n"));
            out.extend_from_slice(heading.as_bytes());
        }
        out.extend_from_slice(hunk_head(&hunk).as_bytes());
        for change in hunk.iter().flat_map(|change| change.iter_changes(&lines[0], &lines[1])) {
            line(&mut out, change.tag(), change.value(), style);
        }
    }
    out
}

/// `@@ -1,3 +1,4 @@`
fn hunk_head(hunk: &[DiffOp]) -> String {
    let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { return String::new() };
    let range = |start: usize, end: usize| match end - start {
        // As in diff: of no lines the one before is named.
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        length => format!("{},{length}", start + 1),
    };
    let old = range(first.old_range().start, last.old_range().end);
    let new = range(first.new_range().start, last.new_range().end);
    format!("@@ -{old} +{new} @@\n")
}

fn line(out: &mut Vec<u8>, tag: ChangeTag, text: &[u8], style: TextStyle) {
    let bare = text.strip_suffix(b"\n").unwrap_or(text);
    let (sign, colour) = match tag {
        ChangeTag::Equal => (b' ', "0"),
        ChangeTag::Delete => (b'-', RED),
        ChangeTag::Insert => (b'+', GREEN),
    };
    match style {
        TextStyle::Plain => {
            out.push(sign);
            out.extend_from_slice(bare);
        }
        TextStyle::Terminal => {
            let shown = format!("\x1b[{colour}m{}{}\x1b[0m", char::from(sign), printable(bare));
            out.extend_from_slice(shown.as_bytes());
        }
    }
    out.push(b'\n');
    if bare.len() == text.len() {
        out.extend_from_slice(b"\\ No newline at end of file\n");
    }
}

/// A line of a file drives no terminal.
fn printable(text: &[u8]) -> String {
    let shown = |c: char| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    String::from_utf8_lossy(text).chars().map(shown).collect()
}

/// A terminal's numbers of colours.
const RED: &str = "31";
const GREEN: &str = "32";

/// Lines around a change.
const CONTEXT: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_shown_as_diff_shows_them() {
        let shown = |old: &str, new: &str| {
            String::from_utf8(unified("f", [old.as_bytes(), new.as_bytes()], TextStyle::Plain))
                .expect("UTF-8")
        };
        assert_eq!(shown("a\nb\n", "a\nb\n"), "");
        assert_eq!(
            shown("1\n2\n3\n4\n5\n6", "1\n2\n3\n4\nx\n6\n"),
            "--- f\n+++ f\n@@ -2,5 +2,5 @@\n 2\n 3\n 4\n-5\n-6\n\\ No newline at end of file\n+x\n+6\n"
        );
        assert_eq!(shown("", "a\n"), "--- f\n+++ f\n@@ -0,0 +1 @@\n+a\n");
        assert_eq!(shown("a\n", ""), "--- f\n+++ f\n@@ -1 +0,0 @@\n-a\n");
    }

    #[test]
    fn a_terminal_gets_colours_and_no_control_characters() {
        let shown = unified("f", [b"\x1b[2J\n", b"b\n"], TextStyle::Terminal);
        let shown = String::from_utf8(shown).expect("UTF-8");
        assert!(shown.contains("\x1b[31m-\u{fffd}[2J\x1b[0m\n\x1b[32m+b\x1b[0m\n"), "{shown:?}");
    }
}
