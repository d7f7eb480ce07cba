//! Lines of logs that are lost: the disk is full, or slower than the lines come.

use super::figures::WhyFigures;
use super::{Finding, LOGS};

/// One finding for all logs: the last line about it says which.
pub(super) fn lost(figures: &WhyFigures) -> Vec<Finding> {
    let (lines, seconds) = (figures.lost_lines, figures.seconds.max(1e-9));
    if lines == 0 {
        return Vec::new();
    }
    let why = match figures.lost_why.as_str() {
        "" => "their disk is full, or slower than they come: see the error log".to_owned(),
        why => why.to_owned(),
    };
    vec![Finding {
        kind: LOGS,
        weight: 0.8,
        says: format!("{lines} lines of logs were lost, {:.1} a second: {why}", lines as f64 / seconds),
        subject: "logs".to_owned(),
        line: String::new(),
        command: "weir use".to_owned(),
    }]
}
