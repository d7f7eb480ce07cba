//! `sites`: the histograms of every site.

use weir_trace::{SiteTable, render};

use crate::control::protocol::Question;
use crate::source::{Source, scale};

/// The counts of all sites since the server began.
pub(crate) fn all(source: &Source, question: &Question) -> String {
    let totals = source.totals();
    match question.has("json") {
        true => render::totals_json(&totals, SiteTable::global(), &scale) + "\n",
        false => render::sites(&totals, SiteTable::global(), &scale),
    }
}
