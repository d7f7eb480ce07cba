//! Mendings of what a finding is about: edits of the texts.

use crate::Span;

/// How a finding is mended, where there is exactly one right way: all edits together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiagnosticFix {
    /// What it does, as an end of the sentence "it ...": `removes "http2_push", which has no effect`.
    pub about: String,
    /// The edits, which do not overlap; they may be in several files.
    pub edits: Vec<TextEdit>,
}

/// Text in the place of other text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextEdit {
    /// What is replaced; an empty one is where `text` goes.
    pub span: Span,
    /// What comes there.
    pub text: String,
}

/// `text` with the edits, all of which are of this one file. `None` when they overlap or are outside of the text.
pub fn apply_edits<'a>(text: &[u8], edits: impl Iterator<Item = &'a TextEdit>) -> Option<Vec<u8>> {
    let mut edits: Vec<&TextEdit> = edits.collect();
    edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    for edit in edits {
        let (start, end) = (edit.span.start as usize, edit.span.end as usize);
        out.extend_from_slice(text.get(at..start)?);
        out.extend_from_slice(edit.text.as_bytes());
        at = Some(end).filter(|&end| end >= start)?;
    }
    out.extend_from_slice(text.get(at..)?);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_applied_together_or_not_at_all() {
        let applied = |edits: &[(u32, u32, &str)]| {
            let edit = |&(start, end, text): &(u32, u32, &str)| TextEdit {
                span: Span { start, end, ..Span::default() },
                text: text.to_owned(),
            };
            let edits: Vec<_> = edits.iter().map(edit).collect();
            apply_edits(b"0123456789", edits.iter()).map(|out| String::from_utf8_lossy(&out).into_owned())
        };
        assert_eq!(applied(&[]).as_deref(), Some("0123456789"));
        assert_eq!(applied(&[(8, 10, ""), (0, 0, "a"), (3, 4, "bc")]).as_deref(), Some("a012bc4567"));
        for wrong in [&[(2, 5, ""), (4, 6, "")][..], &[(9, 11, "")], &[(5, 4, "")], &[(11, 11, "a")]] {
            assert_eq!(applied(wrong), None, "{wrong:?}");
        }
    }
}
