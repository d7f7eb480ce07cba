//! `conformance/requirements.md` says which tests show what the RFCs demand: each of them must exist, and each demand must have
//! tests, a reason why it is not ours, or what is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names of all functions in the sources and tests of a crate.
fn functions(directory: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            functions(&path, names);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source file is text");
            names.extend(text.lines().filter_map(function).map(str::to_owned));
        }
    }
}

/// The name of the function that begins in a line.
fn function(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("fn ")?;
    rest.split(['(', '<']).next()
}

/// The cells of a row of a table that says what is demanded.
fn row(line: &str) -> Option<[&str; 3]> {
    let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
    <[&str; 3]>::try_from(cells).ok().filter(|[section, ..]| *section != "section")
}

#[test]
fn what_the_rfcs_demand_is_shown_by_tests_that_exist() {
    let text = std::fs::read_to_string(root().join("conformance/requirements.md")).expect("the list");
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let (mut rows, mut wrong) = (0, Vec::new());
    for [section, demand, shown] in text.lines().filter_map(row) {
        rows += 1;
        if let Some(reason) = shown.strip_prefix("not ours: ").or_else(|| shown.strip_prefix("open: ")) {
            assert!(reason.len() > 10, "{section}, {demand}: a reason");
            continue;
        }
        for cited in shown.split(", ") {
            let name = cited.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
            let Some((of, test)) = name.and_then(|name| name.split_once('/')) else {
                wrong.push(format!("{section}, {demand}: {cited} is no test"));
                continue;
            };
            let names = crates.entry(of.to_owned()).or_insert_with(|| {
                let mut names = BTreeSet::new();
                functions(&root().join("crates").join(of), &mut names);
                names
            });
            if !names.contains(test) {
                wrong.push(format!("{section}, {demand}: there is no test {cited}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let lines = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| section")).count();
    assert_eq!(rows, lines, "a row that can't be read");
    assert!(rows > 100, "{rows} rows");
}

#[test]
fn a_row_has_three_cells() {
    assert_eq!(row("| 5.1 | a demand | `weir/test` |"), Some(["5.1", "a demand", "`weir/test`"]));
    assert_eq!(row("| section | demand | shown by |"), None);
    assert_eq!(row("|---|---|---|"), None);
    assert_eq!(function("    fn name(driver) {"), Some("name"));
}
