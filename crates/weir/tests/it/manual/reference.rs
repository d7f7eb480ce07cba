//! Pages of the reference that are written by hand name all there is.

use std::fs;
use std::path::PathBuf;

use weir::modules::{MODULES, all_modules};
use weir_engine::variable::{Variable, VariableSource};

use super::root;

/// Each variable of a module has a row, by itself or, as `$http_host`, under its prefix.
#[test]
fn every_variable_is_on_its_page() {
    let page =
        fs::read_to_string(root().join("docs/reference/variables.md")).expect("the page of the variables");
    let variables: Vec<&Variable> = all_modules().flat_map(|module| module.variables).collect();
    assert!(variables.len() > 100, "only {} variables", variables.len());
    let missing: Vec<_> =
        variables.iter().filter(|variable| !has_row(&page, variable)).map(|variable| variable.name).collect();
    assert!(missing.is_empty(), "not in docs/reference/variables.md: {missing:?}");
}

fn has_row(page: &str, variable: &Variable) -> bool {
    let of_prefix = ["sent_http_", "http_"].iter().any(|prefix| variable.name.starts_with(prefix));
    let row = match variable.get {
        VariableSource::Plain(_) => format!("| `${}` |", variable.name),
        VariableSource::Prefix(_) => format!("| `${}NAME` |", variable.name),
    };
    of_prefix || page.contains(&row)
}

/// Each metric's name in the sources is on the page of the metrics.
#[test]
fn every_metric_is_on_its_page() {
    let page = fs::read_to_string(root().join("docs/reference/metrics.md")).expect("the page of the metrics");
    let mut names: Vec<String> = sources().iter().flat_map(|text| metrics(text)).collect();
    names.sort();
    names.dedup();
    let directives: Vec<_> =
        MODULES.iter().flat_map(|module| module.directives()).map(|row| row.name).collect();
    names.retain(|name| !directives.contains(&name.as_str()));
    assert!(names.len() > 50, "only {} metrics", names.len());
    let listed = |name: &String| {
        [format!("`{name}`"), format!("`{name}_total`")].iter().any(|cell| page.contains(cell))
    };
    let missing: Vec<_> = names.iter().filter(|name| !listed(name)).collect();
    assert!(missing.is_empty(), "not in docs/reference/metrics.md: {missing:?}");
}

/// The texts of what is above the tests of each source file.
fn sources() -> Vec<String> {
    let mut texts = Vec::new();
    let mut directories: Vec<PathBuf> = vec![root().join("crates")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("the sources") {
            let path = entry.expect("a source").path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") && path.iter().any(|part| part == "src")
            {
                let text = fs::read_to_string(&path).expect("a source");
                texts.push(text.split("#[cfg(test)]").next().unwrap_or_default().to_owned());
            }
        }
    }
    texts
}

/// Literals that are names of metrics.
fn metrics(text: &str) -> Vec<String> {
    let literals = text.split('"').skip(1).step_by(2);
    let of_metrics =
        literals.filter(|literal| literal.starts_with("weir_") || literal.starts_with("process_"));
    let plain = of_metrics.filter(|literal| literal.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
    plain.filter(|literal| !literal.ends_with('_')).map(str::to_owned).collect()
}
