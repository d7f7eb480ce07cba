//! Tables, for a terminal and as JSON.

use weir_http::json::JsonWriter;

/// Rows of cells under named columns: text for people, an array of objects for programs.
#[derive(Clone, Debug)]
pub(crate) struct TableReport {
    columns: Vec<TableColumn>,
    rows: Vec<Vec<TableCell>>,
}

/// A column: its head in a table, its key in an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableColumn(pub(crate) &'static str, pub(crate) &'static str);

/// A value, and how it is to be read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TableCell {
    /// Not known here.
    None,
    Text(String),
    Count(u64),
    /// A count of which the first digits are enough.
    Many(u64),
    /// How many of one for one of another.
    Ratio(f64),
    /// This many in a second.
    Rate(f64),
    /// Nanoseconds.
    Time(u64),
    /// Of one.
    Share(f64),
    Bytes(u64),
}

impl TableCell {
    /// `part` of `whole`; of nothing it is not known.
    pub(crate) fn share(part: u64, whole: u64) -> TableCell {
        if whole == 0 { TableCell::None } else { TableCell::Share(part as f64 / whole as f64) }
    }

    /// A text.
    pub(crate) fn text(text: impl Into<String>) -> TableCell {
        TableCell::Text(text.into())
    }

    fn shown(&self) -> String {
        match self {
            TableCell::None => "-".to_owned(),
            TableCell::Text(text) => text.clone(),
            TableCell::Count(count) => count.to_string(),
            TableCell::Many(count) => many(*count),
            TableCell::Ratio(ratio) => format!("{ratio:.2}"),
            TableCell::Rate(rate) if *rate < 10.0 => format!("{rate:.1}"),
            TableCell::Rate(rate) => format!("{rate:.0}"),
            TableCell::Time(ns) => time(*ns),
            TableCell::Share(share) => format!("{:.1}%", share * 100.0),
            TableCell::Bytes(count) => bytes(*count),
        }
    }

    fn json(&self, json: &mut JsonWriter) {
        match self {
            TableCell::None => json.raw("null"),
            TableCell::Text(text) => json.text(text),
            TableCell::Count(number)
            | TableCell::Many(number)
            | TableCell::Time(number)
            | TableCell::Bytes(number) => json.raw(number),
            TableCell::Rate(number) | TableCell::Share(number) | TableCell::Ratio(number) => {
                json.raw(format_args!("{number:.6}"));
            }
        }
    }
}

impl TableReport {
    /// Without rows yet.
    pub(crate) fn new(columns: &[TableColumn]) -> TableReport {
        TableReport::of(columns.to_vec())
    }

    /// A table without rows, of `columns`.
    pub(crate) fn of(columns: Vec<TableColumn>) -> TableReport {
        TableReport { columns, rows: Vec::new() }
    }

    /// Whether it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// With the columns of these keys alone, in their own order.
    pub(crate) fn only(self, keys: &[&str]) -> TableReport {
        let kept: Vec<bool> = self.columns.iter().map(|column| keys.contains(&column.1)).collect();
        let of = |at: usize| kept[at];
        let columns = self.columns.into_iter().enumerate().filter(|(at, _)| of(*at)).map(|(_, it)| it);
        let mut report = TableReport::of(columns.collect());
        for row in self.rows {
            report.row(row.into_iter().enumerate().filter(|(at, _)| of(*at)).map(|(_, cell)| cell));
        }
        report
    }

    /// Adds a row: a cell a column.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = TableCell>) {
        let cells: Vec<TableCell> = cells.into_iter().collect();
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell a column");
        self.rows.push(cells);
    }

    /// The rows of the greatest value of `key`, which is no text, first.
    pub(crate) fn sort_by(&mut self, key: impl Fn(&[TableCell]) -> f64) {
        self.rows.sort_by(|a, b| key(b).total_cmp(&key(a)));
    }

    /// As people read it, or with `json` as programs do.
    pub(crate) fn write(&self, json: bool) -> String {
        if json { self.json() } else { self.text() }
    }

    /// Lines of aligned columns: text to the left, figures to the right.
    pub(crate) fn text(&self) -> String {
        let mut lines: Vec<Vec<String>> =
            vec![self.columns.iter().map(|column| column.0.to_owned()).collect()];
        lines.extend(self.rows.iter().map(|row| row.iter().map(TableCell::shown).collect()));
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let is_text = |column: usize| self.rows.iter().any(|row| matches!(row[column], TableCell::Text(_)));
        let left: Vec<bool> = (0..self.columns.len()).map(is_text).collect();
        let mut out = String::new();
        for cells in lines {
            let mut line = String::new();
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                line.push_str(if column == 0 { "" } else { "  " });
                line.push_str(&match left[column] {
                    true => format!("{cell:<width$}"),
                    false => format!("{cell:>width$}"),
                });
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    /// One line: an array with an object a row.
    pub(crate) fn json(&self) -> String {
        JsonWriter::array(|json| {
            for row in &self.rows {
                json.nested(|json| {
                    for (column, cell) in self.columns.iter().zip(row) {
                        cell.json(json.key(column.1));
                    }
                });
            }
        }) + "\n"
    }
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

/// A count in units of a thousand.
fn many(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{:.1} k", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} M", count as f64 / 1e6),
        _ => format!("{:.2} G", count as f64 / 1e9),
    }
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
        let mut report = TableReport::new(&[
            TableColumn("route", "location"),
            TableColumn("rps", "rps"),
            TableColumn("4xx", "share_4xx"),
        ]);
        report.row([TableCell::text("/"), TableCell::Rate(1.0), TableCell::share(1, 3)]);
        report.row([TableCell::text("/a/<long>"), TableCell::Rate(12345.4), TableCell::None]);
        assert_eq!(
            report.text(),
            "route        rps    4xx\n/            1.0  33.3%\n/a/<long>  12345      -\n"
        );
        let json = r#"[{"location":"/","rps":1.000000,"share_4xx":0.333333},{"location":"/a/\u003clong\u003e","rps":12345.400000,"share_4xx":null}]"#;
        assert_eq!(report.json(), format!("{json}\n"));
        report.sort_by(|row| if let TableCell::Rate(rate) = row[1] { rate } else { 0.0 });
        assert!(report.text().lines().nth(1).is_some_and(|line| line.starts_with("/a/")));
    }

    #[test]
    fn figures_carry_their_unit() {
        assert_eq!(
            [time(0), time(1_500), time(2_500_000), time(3_020_000_000)],
            ["0", "1.5 µs", "2.5 ms", "3.02 s"]
        );
        assert_eq!([bytes(1023), bytes(1536), bytes(3 << 30)], ["1023 B", "1.5 KiB", "3.0 GiB"]);
    }
}
