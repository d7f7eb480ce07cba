//! What programs may rely on, in Rust and in C, as lists in the repository: a change of either is seen in a review, and one that
//! takes something away is a new version (docs/versions.md). `WEIR_WRITE_LISTS=1` writes them again.

use std::collections::BTreeSet;
use std::path::Path;

use crate::header::declared;
use crate::support::{home, repository};

/// The crate `weir`: what it says is public in the files that embedding is in.
#[test]
fn of_rust() {
    let source = repository().join("crates/weir/src");
    let mut items = BTreeSet::new();
    for (module, file) in [
        ("", "lib.rs"),
        ("", "embed/mod.rs"),
        ("", "embed/builder.rs"),
        ("", "embed/handler.rs"),
        ("", "embed/message.rs"),
    ] {
        let text = std::fs::read_to_string(source.join(file)).expect("it is there");
        items.extend(public_items(&text).into_iter().map(|item| format!("{module}{item}\n")));
    }
    compare(&repository().join("crates/weir/api.txt"), &items.into_iter().collect::<String>());
}

/// The functions of the header.
#[test]
fn of_c() {
    let listed: String = declared().iter().map(|(name, kinds)| format!("{name} {kinds}\n")).collect();
    compare(&home().join("api.txt"), &listed);
}

/// Items that are public, with the types that they are of, up to their bodies.
fn public_items(text: &str) -> Vec<String> {
    let (mut items, mut owner) = (Vec::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("mod tests") {
            break;
        }
        if line.starts_with("impl") || line.starts_with("pub trait") {
            owner = line.trim_end_matches('{').trim().to_owned();
        }
        let of_trait = owner.starts_with("pub trait") && line.starts_with("    fn ");
        if line.starts_with('}') {
            owner.clear();
        }
        let is_public = line.trim_start().starts_with("pub ");
        if !(is_public || of_trait) {
            continue;
        }
        let mut item = line.trim().to_owned();
        while !item.contains([';', '{']) && !item.ends_with("},") {
            let Some(next) = lines.next() else { break };
            item = format!("{item} {}", next.trim());
        }
        let end = if item.starts_with("pub use") {
            item.len()
        } else {
            item.find([';', '{']).unwrap_or(item.len())
        };
        let item = item[..end].trim();
        let item = if line.starts_with(' ') { format!("{owner}: {item}") } else { item.to_owned() };
        items.push(item);
    }
    items
}

fn compare(list: &Path, now: &str) {
    if std::env::var_os("WEIR_WRITE_LISTS").is_some() {
        std::fs::write(list, now).expect("it can be written");
    }
    let before = std::fs::read_to_string(list).unwrap_or_default();
    let (before, now): (BTreeSet<_>, BTreeSet<_>) = (before.lines().collect(), now.lines().collect());
    let (gone, new): (Vec<_>, Vec<_>) =
        (before.difference(&now).collect(), now.difference(&before).collect());
    assert!(
        gone.is_empty() && new.is_empty(),
        "{}: gone {gone:#?}, new {new:#?}; WEIR_WRITE_LISTS=1 writes the list again",
        list.display()
    );
}
