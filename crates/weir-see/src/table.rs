//! Tables for a terminal: columns as wide as what stands in them.

/// Rows under a head; the first columns are text, the rest numbers.
pub(crate) struct Table {
    texts: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with that head; the first `texts` columns are aligned left, the others right.
    pub(crate) fn new(texts: usize, head: &[&str]) -> Table {
        Table { texts, rows: vec![head.iter().map(|&text| text.to_owned()).collect()] }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The text, a line a row.
    pub(crate) fn text(&self) -> String {
        let columns = self.rows[0].len();
        let width = |column: usize| self.rows.iter().map(|row| chars(row, column)).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                line.push_str(if column == 0 { "" } else { "  " });
                if column < self.texts {
                    line.push_str(&format!("{cell:<width$}"));
                } else {
                    line.push_str(&format!("{cell:>width$}"));
                }
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

fn chars(row: &[String], column: usize) -> usize {
    row.get(column).map_or(0, |cell| cell.chars().count())
}

/// Nanoseconds as milliseconds or microseconds, with their unit.
pub(crate) fn time(ns: u64) -> String {
    match ns {
        0 => "0".to_owned(),
        1..1_000_000 => format!("{}.{} µs", ns / 1_000, ns % 1_000 / 100),
        1_000_000..1_000_000_000 => format!("{}.{} ms", ns / 1_000_000, ns % 1_000_000 / 100_000),
        _ => format!("{}.{:02} s", ns / 1_000_000_000, ns % 1_000_000_000 / 10_000_000),
    }
}

/// `part` of `whole` in percent; `-` of nothing.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1}%", part as f64 * 100.0 / whole as f64) }
}

/// Bytes in units of 1,024.
pub(crate) fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_need() {
        let mut table = Table::new(1, &["route", "rps"]);
        table.row(["/".to_owned(), "1".to_owned()]);
        table.row(["/a/long/one".to_owned(), "12345".to_owned()]);
        assert_eq!(table.text(), "route          rps\n/                1\n/a/long/one  12345\n");
    }

    #[test]
    fn figures_carry_their_unit() {
        assert_eq!([time(0), time(1_500), time(2_500_000), time(3_020_000_000)], ["0", "1.5 µs", "2.5 ms", "3.02 s"]);
        assert_eq!([percent(1, 3), percent(1, 0)], ["33.3%", "-"]);
        assert_eq!([bytes(1023), bytes(1536), bytes(3 << 30)], ["1023 B", "1.5 KiB", "3.0 GiB"]);
    }
}
