//! Places in the tree, and the edits that take something away or add it there.

use weir_conf::{ConfTree, DirectiveLine, Span, TextEdit, Word};

/// The line that has a word at `at`, which is in one place of the tree only: a file that is included twice is in two.
pub(super) fn find_line(tree: &ConfTree, at: Span) -> Option<&DirectiveLine> {
    let mut found = Vec::new();
    visit(&tree.lines, &mut |line| {
        if line.words().any(|word| word.span == at) {
            found.push(line);
        }
    });
    match found[..] {
        [line] => Some(line),
        _ => None,
    }
}

/// The word at `at`.
pub(super) fn find_word(tree: &ConfTree, at: Span) -> Option<&Word> {
    find_line(tree, at)?.words().find(|word| word.span == at)
}

fn visit<'t>(lines: &'t [DirectiveLine], see: &mut impl FnMut(&'t DirectiveLine)) {
    for line in lines {
        see(line);
        if let Some(block) = &line.block {
            visit(&block.lines, see);
        }
    }
}

/// Takes a line away, with the line of the file that it has to itself.
pub(super) fn remove_line(tree: &ConfTree, line: &DirectiveLine) -> Option<TextEdit> {
    let text = &tree.source.file(line.span.file)?.text;
    let (mut start, mut end) = (line.span.start as usize, line.span.end as usize);
    let blanks =
        |from: usize| text[from..].iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
    let before = text[..start].iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let begins = before == start || text[start - before - 1] == b'\n';
    end += blanks(end);
    match text.get(end) {
        Some(b'\n') if begins => {
            end += 1;
            start -= before;
        }
        None if begins => start -= before,
        // What follows in the line comes to this place, unless it ends there.
        Some(b'\n') | None => {
            end = line.span.end as usize;
            start -= before;
        }
        Some(_) => {}
    }
    Some(TextEdit { span: Span { start: start as u32, end: end as u32, ..line.span }, text: String::new() })
}

/// Takes a word away, and the blanks before it if there is nothing else.
pub(super) fn remove_word(tree: &ConfTree, line: &DirectiveLine, word: &Word) -> Option<TextEdit> {
    let text = &tree.source.file(word.span.file)?.text;
    let previous = line.words().take_while(|other| other.span != word.span).last()?;
    let gap = &text[previous.span.end as usize..word.span.start as usize];
    let start = match gap.iter().all(u8::is_ascii_whitespace) {
        true => previous.span.end,
        false => word.span.start,
    };
    Some(TextEdit { span: Span { start, ..word.span }, text: String::new() })
}

/// Adds a line after `line`: below it, or beside it if more follows there than a comment.
pub(super) fn add_line(tree: &ConfTree, line: &DirectiveLine, added: &str) -> Option<TextEdit> {
    let text = &tree.source.file(line.span.file)?.text;
    let (start, end) = (line.span.start as usize, line.span.end as usize);
    let rest = text[end..].split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line_start = text[..start].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let indent = std::str::from_utf8(&text[line_start..start]).ok().filter(|text| text.trim().is_empty());
    let first = rest.iter().find(|byte| !byte.is_ascii_whitespace());
    let (at, text) = match indent {
        Some(indent) if matches!(first, None | Some(b'#')) => {
            let returns = if rest.ends_with(b"\r") { ("\r", 1) } else { ("", 0) };
            (end + rest.len() - returns.1, format!("{}\n{indent}{added}", returns.0))
        }
        _ => (end, format!(" {added}")),
    };
    Some(TextEdit { span: Span { start: at as u32, end: at as u32, ..line.span }, text })
}

/// Adds a last argument.
pub(super) fn add_word(line: &DirectiveLine, added: &str) -> TextEdit {
    let last = line.words().last().expect("a line has a name");
    TextEdit { span: Span { start: last.span.end, ..last.span }, text: format!(" {added}") }
}
