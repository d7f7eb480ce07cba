//! What has too little room: logs whose disk is full or slow, zones of limits.

use super::figures::WhyFigures;
use super::{Finding, LOGS, ZONE};

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

/// Zones of limits that forget clients early: their limits begin again. That caches and dictionaries make room is what they do.
pub(super) fn zones(figures: &WhyFigures) -> Vec<Finding> {
    let finding = |zone: &super::figures::ZoneLoad| {
        let rate = zone.dropped as f64 / figures.seconds.max(1e-9);
        Finding {
            kind: ZONE,
            weight: 0.6,
            says: format!(
                "{} ({}) is full: {rate:.1} keys a second are forgotten early, and with them what they had used of the limit",
                zone.name,
                crate::table::bytes(zone.size)
            ),
            subject: zone.name.clone(),
            line: String::new(),
            command: "weir use".to_owned(),
        }
    };
    figures.zones.iter().filter(|zone| zone.dropped >= FEW).map(finding).collect()
}

/// Keys that are forgotten now and then.
const FEW: u64 = 5;
