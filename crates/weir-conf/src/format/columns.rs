//! From lines of the layout to text: indentation, and the columns that lines have in common.

use std::ops::Range;

use super::lines::{FormatCell, FormatLine};

/// Spaces for each block, and for the further lines of a directive.
pub(super) const INDENT: usize = 4;

/// Writes the lines, each with `line_end`.
pub(super) fn write(lines: &[FormatLine<'_>], line_end: &[u8]) -> Vec<u8> {
    let mut writer = LineWriter { lines, line_end, out: Vec::new(), first: Vec::new(), comment: None };
    let mut at = 0;
    while at < lines.len() {
        let run = run(lines, at);
        writer.run(run.clone());
        at = run.end;
    }
    writer.out
}

/// The column after `text`, which begins in `column`; a tab goes to the next eighth one.
pub(super) fn advance(column: usize, text: &[u8]) -> usize {
    text.iter().fold(column, |column, byte| match byte {
        b'\n' => 0,
        b'\t' => (column / TAB + 1) * TAB,
        // A further byte of a character.
        0x80..=0xbf => column,
        _ => column + 1,
    })
}

/// The lines from `start` on whose columns are found together.
fn run(lines: &[FormatLine<'_>], start: usize) -> Range<usize> {
    let same = |line: &&FormatLine<'_>| {
        line.alignable && !line.after_empty && lines[start].alignable && line.depth == lines[start].depth
    };
    start..start + 1 + lines[start + 1..].iter().take_while(same).count()
}

struct LineWriter<'a> {
    lines: &'a [FormatLine<'a>],
    line_end: &'a [u8],
    out: Vec<u8>,
    /// The cells of the last line that began a directive: where they were written, and where they are now.
    first: Vec<ColumnPair>,
    /// The comment at the end of the last line, or below such a one.
    comment: Option<ColumnPair>,
}

#[derive(Clone, Copy)]
struct ColumnPair {
    written: usize,
    now: usize,
}

/// A line whose columns are being found.
struct PlacedLine {
    cells: Vec<usize>,
    comment: Option<usize>,
    /// The column after what has a place so far.
    end: usize,
}

impl LineWriter<'_> {
    fn run(&mut self, range: Range<usize>) {
        let lines = &self.lines[range];
        let starts = lines.iter().map(|line| self.start(line)).collect();
        for (line, placed) in lines.iter().zip(place(lines, starts)) {
            self.line(line, &placed);
        }
    }

    /// The column in which a line begins.
    fn start(&self, line: &FormatLine<'_>) -> usize {
        let indent = line.depth * INDENT;
        let Some(head) = line.cells.first().or(line.comment.as_ref()) else { return indent };
        let below = |pair: &&ColumnPair| pair.written == head.column;
        if line.cells.is_empty()
            && !line.after_empty
            && let Some(above) = self.comment.as_ref().filter(below)
        {
            return above.now;
        }
        match line.continues {
            None => indent,
            Some(_) => self.first.iter().skip(1).find(below).map_or(indent + INDENT, |pair| pair.now),
        }
    }

    fn line(&mut self, line: &FormatLine<'_>, placed: &PlacedLine) {
        if line.after_empty {
            self.out.extend_from_slice(self.line_end);
        }
        let mut end = 0;
        for (cell, &column) in
            line.cells.iter().zip(&placed.cells).chain(line.comment.iter().zip(&placed.comment))
        {
            self.out.resize(self.out.len() + column.saturating_sub(end), b' ');
            self.out.extend_from_slice(&cell.text);
            end = advance(column, &cell.text);
        }
        self.out.extend_from_slice(self.line_end);
        let pair = |(cell, &now): (&FormatCell<'_>, &usize)| ColumnPair { written: cell.column, now };
        if line.continues.is_none() && !line.cells.is_empty() {
            self.first = line.cells.iter().zip(&placed.cells).map(pair).collect();
        }
        let indented = line.cells.is_empty() && placed.comment == Some(line.depth * INDENT);
        self.comment = line.comment.iter().zip(&placed.comment).map(pair).next().filter(|_| !indented);
    }
}

/// The columns of lines that begin in `starts`: a cell is one space after what precedes it, or further right where the
/// same cells of adjacent lines were written in one column.
fn place(lines: &[FormatLine<'_>], starts: Vec<usize>) -> Vec<PlacedLine> {
    let mut placed: Vec<PlacedLine> =
        starts.into_iter().map(|end| PlacedLine { cells: Vec::new(), comment: None, end }).collect();
    let longest = lines.iter().map(|line| line.cells.len()).max().unwrap_or(0);
    for at in 0..longest {
        let cells: Vec<_> = lines.iter().map(|line| line.cells.get(at)).collect();
        for (line, column) in place_cells(&cells, &mut placed, at) {
            placed[line].cells.push(column);
        }
    }
    let comments: Vec<_> = lines.iter().map(|line| line.comment.as_ref()).collect();
    for (line, column) in place_cells(&comments, &mut placed, longest) {
        placed[line].comment = Some(column);
    }
    placed
}

/// The lines that have one of `cells`, the cells number `at` of adjacent lines, each with the cell's column.
fn place_cells(
    cells: &[Option<&FormatCell<'_>>],
    placed: &mut [PlacedLine],
    at: usize,
) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut start = 0;
    while start < cells.len() {
        let Some(cell) = cells[start] else {
            start += 1;
            continue;
        };
        let same = |other: &&Option<&FormatCell<'_>>| {
            other.is_some_and(|other| !cell.glued && !other.glued && other.column == cell.column)
        };
        let end = start + 1 + cells[start + 1..].iter().take_while(same).count();
        let first = |line: &PlacedLine| at == 0 || line.cells.is_empty();
        let after = |line: &PlacedLine| line.end + usize::from(!cell.glued && !first(line));
        let column = placed[start..end].iter().map(after).max().unwrap_or(0);
        for line in start..end {
            let text = cells[line].map_or(&b""[..], |cell| &cell.text);
            placed[line].end = advance(column, text);
            found.push((line, column));
        }
        start = end;
    }
    found
}

/// Columns of a tab.
const TAB: usize = 8;
