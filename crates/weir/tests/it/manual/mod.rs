//! The manual (docs/, README.md) is true as far as a program can see: every link leads somewhere (`links`), every block of code is checked
//! (`blocks`), and the prose keeps to the words of CONTRIBUTING.md (`prose`).
//!
//! A block is checked by its language: `nginx` by `weir -t`, in the context where its directives are allowed; `lua` by the compiler; in `sh` and
//! `console` the commands of `weir` and their options exist. `text` is output. Any other language needs a line before the block that says why
//! nothing checks it: `<!-- unchecked: REASON -->`.

mod blocks;
mod changelog;
mod grafana;
mod links;
mod prose;
mod reference;

use std::fs;
use std::path::{Path, PathBuf};

/// A page of Markdown, with its path from the repository's root.
struct ManualPage {
    path: String,
    text: String,
}

/// A fenced block: where its fence is, its language, and whether a line before it gives a reason not to check it.
struct CodeBlock<'page> {
    page: &'page ManualPage,
    line: usize,
    language: &'page str,
    reason: Option<&'page str>,
    text: String,
}

impl CodeBlock<'_> {
    fn place(&self) -> String {
        format!("{}:{}", self.page.path, self.line)
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// README.md and what is in docs/, by path.
fn manual_pages() -> Vec<ManualPage> {
    let root = root();
    let mut paths = vec![root.join("README.md")];
    let mut directories = vec![root.join("docs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("a directory of the manual") {
            let path = entry.expect("a file of the manual").path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                paths.push(path);
            }
        }
    }
    let mut pages: Vec<_> = paths.iter().map(|path| page(&root, path)).collect();
    pages.sort_by(|one, other| one.path.cmp(&other.path));
    pages
}

fn page(root: &Path, path: &Path) -> ManualPage {
    let relative = path.strip_prefix(root).expect("a path of the repository");
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    ManualPage { path: relative.to_string_lossy().into_owned(), text }
}

impl ManualPage {
    /// Its lines outside of fenced blocks, with their numbers from 1.
    fn prose(&self) -> Vec<(usize, &str)> {
        let mut fenced = false;
        let lines = self.text.lines().enumerate().map(|(at, line)| (at + 1, line));
        lines
            .filter(|(_, line)| {
                let fence = line.trim_start().starts_with("```");
                fenced ^= fence;
                !fence && !fenced
            })
            .collect()
    }

    fn blocks(&self) -> Vec<CodeBlock<'_>> {
        let mut blocks: Vec<CodeBlock<'_>> = Vec::new();
        let (mut open, mut before) = (false, "");
        for (at, line) in self.text.lines().enumerate() {
            match (line.trim_start().strip_prefix("```"), open) {
                (Some(language), false) => {
                    let reason = before.trim().strip_prefix("<!-- unchecked: ");
                    let reason = reason.and_then(|reason| reason.strip_suffix(" -->"));
                    let language = language.trim();
                    blocks.push(CodeBlock {
                        page: self,
                        line: at + 1,
                        language,
                        reason,
                        text: String::new(),
                    });
                    open = true;
                }
                (Some(_), true) => open = false,
                (None, true) => {
                    let block = blocks.last_mut().expect("one is open");
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, false) => {}
            }
            before = line;
        }
        assert!(!open, "{}: the last fence is open", self.path);
        blocks
    }
}

#[test]
fn pages_and_their_blocks_are_read() {
    let text =
        "a\n<!-- unchecked: of a tool -->\n```yaml\nb: 1\n```\n  ```nginx\n  c;\n  ```\nd\n".to_owned();
    let page = ManualPage { path: "p.md".to_owned(), text };
    let blocks = page.blocks();
    let found: Vec<_> =
        blocks.iter().map(|block| (block.line, block.language, block.reason, &*block.text)).collect();
    assert_eq!(found, [(3, "yaml", Some("of a tool"), "b: 1\n"), (6, "nginx", None, "  c;\n")]);
    let prose: Vec<_> = page.prose().iter().map(|(line, _)| *line).collect();
    assert_eq!(prose, [1, 2, 9]);
    assert!(manual_pages().len() > 80);
}
