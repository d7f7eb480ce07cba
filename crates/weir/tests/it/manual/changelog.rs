//! CHANGELOG.md is what dist/RELEASING.md works on: the version of Cargo.toml first, each version once, with the four parts
//! in their order.

use super::{page, root};

/// What a version may have, in this order.
const PARTS: [&str; 4] = ["Added", "Changed", "Fixed", "Security"];

#[test]
fn versions_and_their_parts_are_in_order() {
    let text = page(&root(), &root().join("CHANGELOG.md")).text;
    assert_eq!(faults(&text, env!("CARGO_PKG_VERSION")), [""; 0]);
}

/// The headings that are wrong, for a program of this version.
fn faults(text: &str, version: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut versions: Vec<&str> = Vec::new();
    let mut before = None;
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let (number, date) = heading.split_once(' ').unwrap_or((heading, ""));
            if versions.contains(&number) || !is_version(number) || !(date == "(unreleased)" || is_date(date))
            {
                faults.push(format!("{line}: not VERSION (unreleased) or VERSION (DATE), or there twice"));
            }
            versions.push(number);
            before = None;
        } else if let Some(part) = line.strip_prefix("### ") {
            let place = PARTS.iter().position(|known| *known == part);
            if place.is_none() || place <= before {
                faults.push(format!("{line}: no part of a version, or not in the order {PARTS:?}"));
            }
            before = place;
        } else if line.starts_with("- ") && before.is_none() {
            faults.push(format!("{line}: in no part of a version"));
        }
    }
    if versions.first() != Some(&version) {
        faults.push(format!("the first version is not Cargo.toml's {version}: {versions:?}"));
    }
    faults
}

fn is_version(text: &str) -> bool {
    let parts: Vec<_> = text.split('.').collect();
    parts.len() == 3 && parts.iter().all(|part| part.parse::<u32>().is_ok())
}

/// `(2026-11-23)`.
fn is_date(text: &str) -> bool {
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    inner.is_some_and(|date| {
        date.len() == 10 && date.split('-').filter(|part| part.parse::<u32>().is_ok()).count() == 3
    })
}

#[test]
fn headings_that_are_wrong_are_found() {
    let right =
        "## 0.2.0 (unreleased)\n### Added\n- a\n### Security\n- b\n## 0.1.0 (2026-11-23)\n### Fixed\n- c\n";
    assert_eq!(faults(right, "0.2.0"), [""; 0]);
    for wrong in [
        "## 0.2.0 (unreleased)\n## Unreleased\n",
        "## 0.2.0 (unreleased)\n### Fixed\n### Added\n",
        "## 0.2.0 (unreleased)\n### News\n",
        "## 0.2.0 (unreleased)\n- a line before any part\n",
        "## 0.2.0 (soon)\n",
        "## 0.1.0 (2026-11-23)\n",
    ] {
        assert_eq!(faults(wrong, "0.2.0").len(), 1, "{wrong}");
    }
}
