//! Public items, and where they are named.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use syn::visit::Visit;

use crate::source::is_test;

/// The public items of the files below `src`, `Type::method` where they are of an inherent impl: functions, methods, types, traits, constants; not what macros make.
pub(crate) fn items(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for path in sources(&directory.join("src")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut finder = ItemFinder { owner: None, found: &mut found };
        finder.visit_file(&syn::parse_file(&text).unwrap());
    }
    found
}

/// All words of the Rust files below a directory.
pub(crate) fn words(directory: &Path) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for path in sources(directory) {
        let text = std::fs::read_to_string(path).unwrap();
        let all = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.extend(all.filter(|word| !word.is_empty()).map(str::to_owned));
    }
    words
}

/// The Rust files below a directory, which need not exist; not those of `target`.
pub(crate) fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut open = vec![directory.to_path_buf()];
    let mut found = Vec::new();
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

struct ItemFinder<'f> {
    /// The type whose methods are visited.
    owner: Option<String>,
    found: &'f mut Vec<String>,
}

impl ItemFinder<'_> {
    fn item(&mut self, visibility: &syn::Visibility, name: &syn::Ident) {
        if matches!(visibility, syn::Visibility::Public(_)) {
            let owner = self.owner.as_ref().map_or(String::new(), |owner| format!("{owner}::"));
            self.found.push(format!("{owner}{name}"));
        }
    }
}

impl<'ast> Visit<'ast> for ItemFinder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Const(it) => self.item(&it.vis, &it.ident),
            syn::Item::Enum(it) => self.item(&it.vis, &it.ident),
            syn::Item::Fn(it) if !is_test(&it.attrs) => self.item(&it.vis, &it.sig.ident),
            syn::Item::Static(it) => self.item(&it.vis, &it.ident),
            syn::Item::Struct(it) => self.item(&it.vis, &it.ident),
            syn::Item::Trait(it) => self.item(&it.vis, &it.ident),
            syn::Item::Type(it) => self.item(&it.vis, &it.ident),
            syn::Item::Mod(it) if !is_test(&it.attrs) => syn::visit::visit_item_mod(self, it),
            syn::Item::Impl(it) if it.trait_.is_none() && !is_test(&it.attrs) => self.methods(it),
            _ => {}
        }
    }
}

impl ItemFinder<'_> {
    fn methods(&mut self, methods: &syn::ItemImpl) {
        let syn::Type::Path(owner) = &*methods.self_ty else { return };
        self.owner = owner.path.segments.last().map(|last| last.ident.to_string());
        for item in &methods.items {
            match item {
                syn::ImplItem::Fn(it) if !is_test(&it.attrs) => self.item(&it.vis, &it.sig.ident),
                syn::ImplItem::Const(it) => self.item(&it.vis, &it.ident),
                _ => {}
            }
        }
        self.owner = None;
    }
}
