//! `lua` and `dict`: tables that modules tell of themselves.

use weir_engine::figures::{self, Value};

use super::reply::Failure;
use crate::control::protocol::Question;
use crate::table::{Cell, Column, Report};

/// The table of `of` that the question names, or `usual`.
pub(super) fn answer(question: &Question, of: &str, usual: &str) -> Result<String, Failure> {
    let what = question.value("of").unwrap_or(usual);
    let Some(table) = figures::table(of, what) else {
        return Err(Failure::Wrong(format!("there is no \"{what}\" of {of} here")));
    };
    let columns = table.columns.iter().map(|(head, key)| Column(head, key)).collect();
    let mut report = Report::of(columns);
    for row in table.rows {
        report.row(row.into_iter().map(|value| match value {
            Value::None => Cell::None,
            Value::Text(text) => Cell::Text(text),
            Value::Count(count) => Cell::Count(count),
            Value::Bytes(bytes) => Cell::Bytes(bytes),
            Value::Time(ns) => Cell::Time(ns),
            Value::Share(part, whole) => Cell::share(part, whole),
        }));
    }
    Ok(report.write(question.has("json")))
}
