//! The storeys of the house: no file names one of a storey above its own, and no circles run between directories.
//!
//! What is not so yet is listed beside this file: `upward.txt` (arrows), `circles.txt` (sizes), `public.txt` (items that are
//! public though no other crate names them). These lists may only
//! become shorter: a new arrow fails, and so does a line that is no longer true. `WEIR_WRITE_LISTS=1` writes them again;
//! look at what was added before you commit it.
//!
//! `WEIR_SHOW_ARROWS=weir-engine cargo test -p weir-test --test storeys circles -- --nocapture` prints a crate's arrows.
//!
//! Paths are seen, wherever they are written; a method that another file adds to a type is not.

mod graph;
mod public;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use graph::circles;
use source::SourceCrate;

/// A storey: its name, and the files it has by their beginning. The longest beginning of all storeys wins.
type Storey = (&'static str, &'static [&'static str]);

/// Crates in which storeys lie on each other, the lowest first.
const STOREYS: &[(&str, &[Storey])] = &[
    (
        "weir-engine",
        &[
            ("values", VALUES),
            ("counters, help of a privileged process", &["counters", "privileged"]),
            ("log", &["log"]),
            (
                "descriptors, files, names, patterns",
                &["descriptors", "open_file", "regex", "resolver", "zone"],
            ),
            ("what directives set", &["settings"]),
            ("the worker", &["worker"]),
            ("the request", &["exchange", "plan", "transport"]),
            ("variables of the core", &["variable"]),
            ("modules, directives, installing a configuration", &["conf"]),
            (
                "what is done with one",
                &["file", "request_head", "request_log", "special", "temp", "trace", "trim"],
            ),
            ("its body", &["read"]),
            ("its response", &["output"]),
            ("engine", &["engine"]),
            ("rehearsals", &["rehearsal"]),
            ("subrequests", &["subrequest"]),
            ("testing", &["testing"]),
        ],
    ),
    (
        "weir-lua",
        &[
            ("luajit", &["luajit"]),
            ("dict", &["dict"]),
            ("agent", &["agent"]),
            ("vm", &["vm"]),
            ("run", &["run"]),
            ("api", &["api"]),
            ("inspect", &["inspect"]),
            ("hooks", &["hooks"]),
            ("fuzzed", &["fuzzed"]),
        ],
    ),
];

/// The lowest storey of the engine: files that name no other.
const VALUES: &[&str] = &[
    "agent",
    "cidr",
    "deep_traces",
    "error",
    "figures",
    "name_map",
    "pieces",
    "presence",
    "progress",
    "recent",
    "services",
    "text",
    "typed_values",
    "value_script",
    "variable_index",
    "wire",
];

/// The crates, the lowest first: each uses only those before it.
const CRATES: &[&str] = &[
    "weir-rt",
    "weir-conf",
    "weir-resolver",
    "weir-tls",
    "weir-sys",
    "weir-trace",
    "weir-http",
    "weir-engine",
    "weir-upstream",
    "weir-server",
    "weir-modules",
    "weir-lua",
    "weir-see",
    "weir-test",
    "weir",
    "weir-c",
    "weir-sim",
    "weir-world",
];

/// What knows nothing of HTTP's requests: proxying of streams and QUIC are built on it (docs/explanation/architecture.md, section 1).
const WITHOUT_REQUESTS: &[(&str, &[&str])] = &[
    (
        "weir-engine",
        &[
            "counters.rs",
            "descriptors.rs",
            "log",
            "open_file",
            "privileged.rs",
            "regex.rs",
            "resolver",
            "worker",
            "zone",
        ],
    ),
    ("weir-upstream", &["connection", "discovery", "health", "pool"]),
    ("weir-server", &["housekeeping", "workers"]),
];

/// Modules of the engine that are about requests.
const REQUESTS: &[&str] = &[
    "exchange",
    "filter",
    "output",
    "phase",
    "plan",
    "read",
    "request_head",
    "request_log",
    "subrequest",
    "transport",
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Every crate by its name, read once for all tests.
static READ: LazyLock<BTreeMap<String, SourceCrate>> = LazyLock::new(read_all);

fn read_all() -> BTreeMap<String, SourceCrate> {
    let entries = std::fs::read_dir(crates()).unwrap();
    let directories =
        entries.map(|entry| entry.unwrap().path()).filter(|directory| directory.join("Cargo.toml").exists());
    directories
        .map(|directory| {
            let root = ["src/lib.rs", "src/main.rs"].map(|root| directory.join(root));
            let root = root.iter().find(|root| root.exists()).unwrap();
            (directory.file_name().unwrap().to_str().unwrap().to_owned(), SourceCrate::read(root))
        })
        .collect()
}

/// The storey of a file: its number from below.
fn storey(storeys: &[Storey], file: &str) -> usize {
    let begins = |at: usize, beginning: &str| {
        let exact = file == beginning
            || file.starts_with(&format!("{beginning}/"))
            || file == format!("{beginning}.rs");
        (beginning.is_empty() || exact).then_some((beginning.len(), at))
    };
    let all = storeys
        .iter()
        .enumerate()
        .flat_map(|(at, (_, beginnings))| beginnings.iter().map(move |one| (at, *one)));
    all.filter_map(|(at, beginning)| begins(at, beginning)).max().unwrap_or_default().1
}

/// The directory or root file that a file belongs to, seen from the crate's root: `conf/build.rs` and `conf.rs` are of
/// `conf`.
fn top(file: &str) -> String {
    let first = file.split('/').next().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

/// The directory in which a file lies; `a.rs` beside `a/` lies in `a`.
fn directory(file: &str, all: &BTreeSet<&str>) -> String {
    let beside = file.trim_end_matches(".rs");
    if all.iter().any(|other| other.starts_with(&format!("{beside}/"))) {
        return beside.to_owned();
    }
    file.rsplit_once('/').map_or(String::new(), |(directory, _)| directory.to_owned())
}

/// Compares what was found with a list beside this file, which may only become shorter.
#[track_caller]
fn compare(list: &str, found: &BTreeSet<String>, why: &str) {
    let path = crates().join("weir-test/tests/storeys").join(list);
    if std::env::var_os("WEIR_WRITE_LISTS").is_some() {
        let lines: String = found.iter().map(|line| format!("{line}\n")).collect();
        return std::fs::write(path, lines).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let known: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    let new: Vec<_> = found.difference(&known).collect();
    let gone: Vec<_> = known.difference(found).collect();
    assert!(new.is_empty(), "{why}: {new:#?}");
    assert!(gone.is_empty(), "take these lines out of {list}, they are not true any more: {gone:#?}");
}

/// The crates of the workspace that `manifest` names as what the crate itself needs, not its tests.
fn dependencies(manifest: &str) -> Vec<&str> {
    let section = manifest.split("\n[").find(|section| section.starts_with("dependencies]"));
    let names = section.unwrap_or_default().lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| name.starts_with("weir-")).collect()
}

#[test]
fn crates_lie_on_each_other() {
    let names: BTreeSet<String> = READ.keys().cloned().collect();
    assert_eq!(names, CRATES.iter().map(|name| (*name).to_owned()).collect(), "each crate has its storey");
    for (at, name) in CRATES.iter().enumerate() {
        let manifest = std::fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
        for needed in dependencies(&manifest) {
            let below = CRATES[..at].contains(&needed);
            assert!(below, "{name} uses {needed}, which is not below it");
        }
    }
}

#[test]
fn no_arrow_runs_up() {
    let mut upward = BTreeSet::new();
    for (name, read) in &*READ {
        let Some((_, storeys)) = STOREYS.iter().find(|(of, _)| *of == name) else { continue };
        for (from, to) in read.arrows() {
            let (low, high) = (storey(storeys, &from), storey(storeys, &to));
            // The root declares all of them.
            if low < high && from != "lib.rs" {
                upward.insert(format!("{name} {}: {from} -> {}: {to}", storeys[low].0, storeys[high].0));
            }
        }
    }
    compare("upward.txt", &upward, "a file names one of a storey above its own");
}

#[test]
fn circles_shrink() {
    let mut found = BTreeSet::new();
    let shown = std::env::var("WEIR_SHOW_ARROWS").unwrap_or_default();
    for (name, read) in &*READ {
        let arrows = read.arrows();
        if *name == shown {
            arrows.iter().for_each(|(from, to)| println!("{from} -> {to}"));
        }
        let roots = ["lib.rs", "main.rs"];
        let arrows =
            arrows.into_iter().filter(|(from, to)| !roots.contains(&&**from) && !roots.contains(&&**to));
        let arrows: BTreeSet<(String, String)> = arrows.collect();
        let between =
            arrows.iter().map(|(from, to)| (top(from), top(to))).filter(|(from, to)| from != to).collect();
        for circle in circles(&between) {
            let members: Vec<_> = circle.iter().map(String::as_str).collect();
            found.insert(format!("{name}: a circle of {} folders: {}", circle.len(), members.join(" ")));
        }
        found.extend(inside(name, &arrows));
    }
    compare("circles.txt", &found, "circles between folders, or of more than eight files inside of one");
}

/// Circles of more than eight files inside of a directory.
fn inside(name: &str, arrows: &BTreeSet<(String, String)>) -> Vec<String> {
    let all: BTreeSet<&str> = arrows.iter().flat_map(|(from, to)| [from.as_str(), to.as_str()]).collect();
    let mut by_directory: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
    for (from, to) in arrows {
        let (own, other) = (directory(from, &all), directory(to, &all));
        if own == other {
            by_directory.entry(own).or_default().insert((from.clone(), to.clone()));
        }
    }
    let large = by_directory
        .iter()
        .flat_map(|(directory, arrows)| circles(arrows).into_iter().map(move |it| (directory, it)));
    let large = large.filter(|(_, circle)| circle.len() > 8);
    large
        .map(|(directory, circle)| format!("{name}: a circle of {} files in {directory}/", circle.len()))
        .collect()
}

#[test]
fn what_streams_need_knows_no_requests() {
    let all = read_all();
    let mut found = BTreeSet::new();
    for (name, directories) in WITHOUT_REQUESTS {
        let within = |file: &str| {
            directories.iter().any(|one| file == *one || file.starts_with(&format!("{one}/")))
                || directories.iter().any(|one| file == format!("{one}.rs"))
        };
        let modules = &all[*name].modules;
        for one in *directories {
            let is_there = |file: &str| file == *one || file.starts_with(&format!("{one}/"));
            assert!(modules.iter().any(|module| is_there(&module.file)), "{name} has no {one}");
        }
        for module in modules.iter().filter(|module| within(&module.file)) {
            let about = |path: &&Vec<String>| {
                path.iter().any(|word| word == "Exchange")
                    || (["crate", "weir_engine"].contains(&path[0].as_str())
                        && path.get(1).is_some_and(|word| REQUESTS.contains(&word.as_str())))
            };
            let paths = module.paths().filter(about);
            found.extend(paths.map(|path| format!("{name}: {} names {}", module.file, path.join("::"))));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// What is public is there for a user: another crate, a test program, an example names it.
#[test]
fn what_is_public_is_named_elsewhere() {
    let mut words: BTreeMap<&str, BTreeSet<String>> =
        CRATES.iter().map(|name| (*name, public::words(&crates().join(name)))).collect();
    words.insert("fuzz", public::words(&crates().join("../fuzz")));
    let mut unnamed = BTreeSet::new();
    for name in CRATES.iter().filter(|name| !["weir", "weir-test", "weir-sim", "weir-world"].contains(name)) {
        let own = ["tests", "benches", "examples"].map(|kind| public::words(&crates().join(name).join(kind)));
        let elsewhere = words.iter().filter(|(other, _)| *other != name).map(|(_, words)| words);
        let elsewhere: Vec<_> = elsewhere.chain(&own).collect();
        for item in public::items(&crates().join(name)) {
            let word = item.rsplit("::").next().unwrap();
            if !elsewhere.iter().any(|words| words.contains(word)) {
                unnamed.insert(format!("{name}: {item}"));
            }
        }
    }
    compare("public.txt", &unnamed, "public, though no other crate names it");
}

/// A file that no `mod` names is never compiled, and nothing says so.
#[test]
fn every_file_is_a_module() {
    let mut found = Vec::new();
    for name in READ.keys() {
        let src = crates().join(name).join("src");
        for file in public::sources(&src) {
            let (directory, stem) = (file.parent().unwrap(), file.file_stem().unwrap().to_str().unwrap());
            let (around, module) = match stem {
                "lib" | "main" => continue,
                "mod" => (directory.parent().unwrap(), directory.file_name().unwrap().to_str().unwrap()),
                _ if directory.ends_with("src/bin") => continue,
                _ => (directory, stem),
            };
            let parents = ["lib.rs", "main.rs", "mod.rs"].map(|name| around.join(name));
            let parents = parents.into_iter().chain([around.with_extension("rs")]);
            let text: String = parents.filter_map(|path| std::fs::read_to_string(path).ok()).collect();
            if !text.contains(&format!("mod {module};")) {
                found.push(file);
            }
        }
    }
    assert!(found.is_empty(), "files that are no modules: {found:#?}");
}
