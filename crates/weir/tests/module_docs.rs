//! docs/modules.md and docs/modules/NAME.md are made from the directive tables and the modules' own documentation;
//! this fails when they are stale. `WEIR_WRITE_DOCS=1 cargo test -p weir --test module_docs` writes them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use weir::modules::MODULES;
use weir_conf::{Contexts, Signature};
use weir_core::conf::build::STRUCTURE;
use weir_core::module::Row;

/// Directives that nginx 1.31.5 does not have; `queue`, `source` and `state` are not of its free edition.
const EXTRA: [&str; 13] = [
    "admin",
    "profile",
    "profile_blocked",
    "profile_cpu",
    "profile_redact",
    "queue",
    "server_product",
    "server_timing",
    "source",
    "state",
    "trace",
    "trace_header",
    "welcome",
];
/// What directives of modules that are not nginx's own begin with: headers-more, subs_filter, ngx_brotli, zstd, echo.
const THIRD_PARTY: [&str; 5] = ["more_", "subs_", "brotli", "zstd", "echo"];

#[test]
fn pages_are_those_of_the_tables() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut stale = Vec::new();
    for (name, text) in pages() {
        let path = folder.join(&name);
        if fs::read_to_string(&path).is_ok_and(|there| there == text) {
            continue;
        }
        if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
            fs::create_dir_all(path.parent().expect("below docs")).expect("a folder of the repository");
            fs::write(&path, text).expect("a file of the repository");
        } else {
            stale.push(name);
        }
    }
    assert!(
        stale.is_empty(),
        "stale: {stale:?}; WEIR_WRITE_DOCS=1 cargo test -p weir --test module_docs writes them"
    );
}

/// Every directive says in a line what it is for.
#[test]
fn every_directive_is_documented() {
    let missing: Vec<_> =
        tables().into_values().flatten().filter(|row| row.doc.is_empty()).map(|row| row.name).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Module → its directives, in the order of its table.
fn tables() -> BTreeMap<&'static str, Vec<Row>> {
    let block = |block: &Signature| Row { name: block.name, contexts: block.contexts, doc: block.doc };
    let structure = STRUCTURE.iter().map(block).collect();
    let mut tables: BTreeMap<_, Vec<_>> = BTreeMap::from([("structure", structure)]);
    for module in MODULES {
        tables.entry(module.name).or_default().extend(module.directives());
    }
    tables.retain(|_, rows| !rows.is_empty());
    tables
}

fn pages() -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    let mut index = INTRODUCTION.to_owned();
    for (module, rows) in tables() {
        let _ = writeln!(
            index,
            "\n## [{module}](modules/{module}.md)\n\n| directive | compared with nginx | what it does |\n|---|---|---|"
        );
        let mut page = format!("# {module}\n\n{}", about(module));
        for row in rows {
            let compared = match row.name {
                name if EXTRA.contains(&name) => "extra",
                name if THIRD_PARTY.iter().any(|begin| name.starts_with(begin)) => "third-party",
                _ => "same",
            };
            let _ = writeln!(index, "| `{}` | {compared} | {} |", row.name, cell(row.doc));
            let _ = write!(page, "\n## {}\n\n{}\n\nIn: {}.\n", row.name, row.doc, contexts(row.contexts));
        }
        pages.insert(format!("modules/{module}.md"), page);
    }
    pages.insert("modules.md".to_owned(), index);
    pages
}

fn contexts(contexts: Contexts) -> String {
    contexts.to_string().replace('"', "`")
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The documentation at the head of the module's file, as far as it has one of its name.
fn about(module: &str) -> String {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders =
        ["weir-modules/src", "weir-core/src/conf", "weir-core/src", "weir-core/src/tls", "weir-see/src"];
    let files = |folder: &&str| -> [PathBuf; 2] {
        let folder = crates.join(folder);
        [folder.join(format!("{module}.rs")), folder.join(module).join("mod.rs")]
    };
    let text =
        folders.iter().flat_map(files).find_map(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    let doc = text.lines().map_while(|line| line.strip_prefix("//!"));
    doc.map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned() + "\n").collect()
}

const INTRODUCTION: &str = "# Modules and their directives

Made from the directive tables: `WEIR_WRITE_DOCS=1 cargo test -p weir --test module_docs`. *same*: a directive
of nginx 1.31, with its names, defaults, inheritance and messages; *third-party*: one of a well-known module for nginx, as there; *extra*: nginx has none. What is not listed is not
supported: it is an error of the configuration (`unknown directive`), never ignored.
";
