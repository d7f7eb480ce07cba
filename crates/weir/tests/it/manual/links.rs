//! Links: files and headings that exist; addresses of the network by their form only.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::{ManualPage, manual_pages, root};

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut anchors = BTreeMap::new();
    let mut wrong = Vec::new();
    for page in manual_pages().iter().chain(&root_pages()) {
        for (line, target) in links(page) {
            if let Some(why) = fault(page, &target, &mut anchors) {
                wrong.push(format!("{}:{line}: {target}: {why}", page.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The pages beside README.md: CONTRIBUTING.md, SECURITY.md and their like.
fn root_pages() -> Vec<ManualPage> {
    let entries = std::fs::read_dir(root()).expect("the repository");
    let paths = entries.map(|entry| entry.expect("a file of the repository").path());
    let pages =
        paths.filter(|path| path.extension().is_some_and(|end| end == "md") && !path.ends_with("README.md"));
    pages.map(|path| super::page(&root(), &path)).collect()
}

/// The table of contents has each page of docs/ once.
#[test]
fn every_page_is_in_the_table_of_contents() {
    let pages = manual_pages();
    let summary = pages.iter().find(|page| page.path == "docs/SUMMARY.md").expect("docs/SUMMARY.md");
    let mut listed: Vec<_> = links(summary).into_iter().map(|(_, target)| format!("docs/{target}")).collect();
    listed.sort();
    let there: Vec<_> = pages
        .iter()
        .map(|page| &page.path)
        .filter(|path| *path != "README.md" && **path != summary.path)
        .collect();
    let missing: Vec<_> = there.iter().filter(|path| !listed.contains(path)).collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
    let twice: Vec<_> = listed.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "twice in docs/SUMMARY.md: {twice:?}");
}

/// Why the link is wrong. The headings of files that were read are in `anchors`.
fn fault(page: &ManualPage, target: &str, anchors: &mut BTreeMap<PathBuf, Vec<String>>) -> Option<String> {
    if let Some((scheme, rest)) = target.split_once("://") {
        let known = ["http", "https"].contains(&scheme);
        let host = rest.split('/').next().unwrap_or_default();
        return (!known || host.is_empty()).then(|| "not an address".to_owned());
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let base = Path::new(&page.path);
    let path = if file.is_empty() { base.to_path_buf() } else { plain(&base.with_file_name(file)) };
    let there = root().join(&path);
    if !there.exists() {
        return Some("no such file".to_owned());
    }
    let anchor = anchor?;
    if path.extension().is_none_or(|end| end != "md") {
        return Some("a heading of what is no page".to_owned());
    }
    let known = anchors.entry(path).or_insert_with(|| headings(&super::page(&root(), &there)));
    (!known.iter().any(|known| known == anchor)).then(|| format!("no such heading; there are {known:?}"))
}

/// `docs/guides/../x` as `docs/x`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// The targets of `[text](target)` and `![text](target)` outside of code, with their lines.
fn links(page: &ManualPage) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in page.prose() {
        let plain = without_code(line);
        let mut rest = &*plain;
        while let Some((_, from)) = rest.split_once("](") {
            let (target, after) = from.split_once(')').unwrap_or((from, ""));
            links.push((number, target.to_owned()));
            rest = after;
        }
    }
    links
}

/// A line with its `code` emptied.
pub(super) fn without_code(line: &str) -> String {
    line.split('`').enumerate().map(|(at, part)| if at % 2 == 0 { part } else { "``" }).collect()
}

/// What headings are called in addresses, by GitHub and mdBook: lower case, without punctuation, spaces as `-`; a second one of
/// the same text ends with `-1`.
fn headings(page: &ManualPage) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line) in page.prose() {
        let Some(heading) = line.strip_prefix('#').map(|line| line.trim_start_matches('#').trim()) else {
            continue;
        };
        let slug = slug(heading);
        let before = anchors.iter().filter(|known| **known == slug).count();
        anchors.push(if before == 0 { slug } else { format!("{slug}-{before}") });
    }
    anchors
}

fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn headings_and_links_are_found() {
    let text =
        "# What's `a_b`?\n## x\n## x\n[a](b.md#c) and `[no](z)`, ![p](q.png)\n```\n# no\n```\n".to_owned();
    let page = ManualPage { path: "README.md".to_owned(), text };
    assert_eq!(headings(&page), ["whats-a_b", "x", "x-1"]);
    assert_eq!(links(&page), [(4, "b.md#c".to_owned()), (4, "q.png".to_owned())]);
    assert_eq!(plain(Path::new("docs/guides/../x/y")), Path::new("docs/x/y"));
    let mut known = BTreeMap::from([(PathBuf::from("README.md"), headings(&page))]);
    assert_eq!(fault(&page, "#x-1", &mut known), None);
    assert_eq!(fault(&page, "https://a.example/b", &mut known), None);
    for target in ["#y", "absent.md", "ftp://a", "https:///b", "Cargo.toml#x"] {
        assert!(fault(&page, target, &mut known).is_some(), "{target}");
    }
}
