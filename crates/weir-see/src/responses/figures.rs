//! `lua` and `dict`: tables that modules report of themselves.

use weir_engine::figures::{self, FigureValue};

use super::reply::ReplyFailure;
use crate::control::protocol::ControlQuestion;
use crate::table::{TableCell, TableColumn, TableReport};

/// The table of `of` that the question names, or `usual`.
pub(super) fn respond(question: &ControlQuestion, of: &str, usual: &str) -> Result<String, ReplyFailure> {
    let what = question.value("of").unwrap_or(usual);
    let Some(table) = figures::table(of, what) else {
        return Err(ReplyFailure::Wrong(format!("there is no \"{what}\" of {of} here")));
    };
    let columns = table.columns.iter().map(|(head, key)| TableColumn(head, key)).collect();
    let mut report = TableReport::of(columns);
    for row in table.rows {
        report.row(row.into_iter().map(|value| match value {
            FigureValue::None => TableCell::None,
            FigureValue::Text(text) => TableCell::Text(text),
            FigureValue::Count(count) => TableCell::Count(count),
            FigureValue::Bytes(bytes) => TableCell::Bytes(bytes),
            FigureValue::Time(ns) => TableCell::Time(ns),
            FigureValue::Share(part, whole) => TableCell::share(part, whole),
        }));
    }
    Ok(report.write(question.has("json")))
}
