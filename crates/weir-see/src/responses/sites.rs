//! `sites`: the histograms of every site.

use weir_trace::{SiteTable, render};

use crate::control::protocol::ControlQuestion;
use crate::source::{ServerSource, scale};

/// The counts of all sites since the server began.
pub(crate) fn all(source: &ServerSource, question: &ControlQuestion) -> String {
    let totals = source.totals();
    match question.has("json") {
        true => render::totals_json(&totals, SiteTable::global(), &scale) + "\n",
        false => render::sites(&totals, SiteTable::global(), &scale),
    }
}
