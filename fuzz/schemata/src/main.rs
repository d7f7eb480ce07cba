//! Writes Rust files with all their mutants at once: `weir-schemata FROM TO TABLE WITHOUT FILE...`.
//!
//! Each FILE below the directory FROM is written below TO with every mutant in it that the file WITHOUT does not number. A mutant is one change of
//! the source behind `crate::weir_mutant::on(17)` (`choice.rs`, which the caller appends to the crate's root). TABLE gets a row for each mutant:
//! its number, file, line, column, function, the change, and three ranges of bytes in the written file: the change, its site (what the
//! change is beside), and its function. The caller finds by them which mutants the compiler refuses. Numbers do not depend on WITHOUT.

mod render;
mod sites;
mod values;

use std::collections::HashSet;
use std::error::Error;
use std::path::Path;
use std::{env, fs};

use sites::Finder;
use syn::visit::Visit;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [from, to, table, without, files @ ..] = &arguments[..] else {
        return Err("usage: weir-schemata FROM TO TABLE WITHOUT FILE...".into());
    };
    let without = fs::read_to_string(without)?
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<HashSet<u32>, _>>()?;
    let (mut rows, mut first) = (String::new(), 1);
    for file in files {
        let source = fs::read_to_string(Path::new(from).join(file))?;
        let mut finder = Finder::new(&source, first);
        finder.visit_file(&syn::parse_file(&source).map_err(|error| format!("{file}: {error}"))?);
        first = finder.next;
        let written = render::write(&source, &finder.sites, &without);
        rows.push_str(&render::rows(file, &finder.mutants, &written));
        write_if_changed(&Path::new(to).join(file), &written.text)?;
    }
    Ok(fs::write(table, rows)?)
}

/// Cargo compiles again what has a new time.
fn write_if_changed(path: &Path, text: &str) -> std::io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|before| before == text) {
        return Ok(());
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, text)
}
