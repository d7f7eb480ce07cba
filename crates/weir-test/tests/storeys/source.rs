//! The modules of a crate and the paths that their code names, read by syn: imports, types, expressions, patterns, macros.
//! Code for tests (`#[cfg(test)]`) is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;

/// A module: where its code is, what it has inside and by what names it knows others.
#[derive(Default)]
pub(crate) struct SourceModule {
    /// The file, relative to the crate's `src`; an inline module has that of the module around it.
    pub(crate) file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    defined: BTreeSet<String>,
    /// Names that `use` brings, each with its path.
    imported: BTreeMap<String, Vec<String>>,
    /// Modules whose names all are brought (`use a::*`).
    globs: Vec<Vec<String>>,
    /// Every path that its code names.
    named: Vec<Vec<String>>,
}

impl SourceModule {
    /// The paths that its imports and its code name, as written.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Vec<String>> {
        self.imported.values().chain(&self.globs).chain(&self.named)
    }
}

/// All modules of a crate; the first is the root.
pub(crate) struct SourceCrate {
    pub(crate) modules: Vec<SourceModule>,
}

/// A re-export leads to another one at most this many times.
const DEEPEST: usize = 16;

impl SourceCrate {
    /// Reads the crate whose root is `root`, `src/lib.rs` or `src/main.rs`.
    pub(crate) fn read(root: &Path) -> SourceCrate {
        let mut read = SourceCrate { modules: Vec::new() };
        let src = root.parent().unwrap().to_path_buf();
        read.file(&src, root, None, &src);
        read
    }

    /// Reads a file as a module; `inside` is the directory of its children.
    fn file(&mut self, src: &Path, file: &Path, parent: Option<usize>, inside: &Path) -> usize {
        let text =
            std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let code = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let name = file.strip_prefix(src).unwrap().to_str().unwrap().to_owned();
        let module = self.modules.len();
        self.modules.push(SourceModule { file: name, parent, ..SourceModule::default() });
        self.items(src, module, &code.items, inside);
        module
    }

    fn items(&mut self, src: &Path, module: usize, items: &[syn::Item], inside: &Path) {
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            match item {
                syn::Item::Mod(inner) => self.inner(src, module, inner, inside),
                syn::Item::Use(used) => self.modules[module].import(&used.tree),
                other => self.modules[module].item(other),
            }
        }
    }

    fn inner(&mut self, src: &Path, module: usize, inner: &syn::ItemMod, inside: &Path) {
        let name = inner.ident.to_string();
        let beneath = inside.join(&name);
        let child = match &inner.content {
            Some((_, items)) => {
                let file = self.modules[module].file.clone();
                let child = self.modules.len();
                self.modules.push(SourceModule { file, parent: Some(module), ..SourceModule::default() });
                self.items(src, child, items, &beneath);
                child
            }
            None => {
                let file = [beneath.with_extension("rs"), beneath.join("mod.rs")]
                    .into_iter()
                    .find(|file| file.exists());
                let file: PathBuf =
                    file.unwrap_or_else(|| panic!("no file of the module {}", beneath.display()));
                self.file(src, &file, Some(module), &beneath)
            }
        };
        self.modules[module].children.insert(name, child);
    }

    /// The pairs of files of which the first names something that the second defines.
    pub(crate) fn arrows(&self) -> BTreeSet<(String, String)> {
        let mut arrows = BTreeSet::new();
        for (at, module) in self.modules.iter().enumerate() {
            let paths = module.named.iter().chain(module.imported.values()).chain(&module.globs);
            for target in paths.filter_map(|path| self.resolve(at, path, DEEPEST)) {
                let to = &self.modules[target].file;
                if *to != module.file {
                    arrows.insert((module.file.clone(), to.clone()));
                }
            }
        }
        arrows
    }

    /// The module that defines what `path`, written in `module`, names; `None`: another crate, or a local name.
    fn resolve(&self, module: usize, path: &[String], depth: usize) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let depth = depth.checked_sub(1)?;
        match first.as_str() {
            "crate" => self.within(0, rest, depth),
            "self" => self.within(module, rest, depth),
            "super" => self.within(self.modules[module].parent?, rest, depth),
            _ => self.find(module, first, rest, depth),
        }
    }

    /// What `path` names, seen from inside `module`.
    fn within(&self, module: usize, path: &[String], depth: usize) -> Option<usize> {
        match path.split_first() {
            None => Some(module),
            Some((first, rest)) if first == "super" => self.within(self.modules[module].parent?, rest, depth),
            Some((first, rest)) => self.find(module, first, rest, depth),
        }
    }

    fn find(&self, module: usize, name: &str, rest: &[String], depth: usize) -> Option<usize> {
        let known = &self.modules[module];
        if let Some(child) = known.children.get(name) {
            return self.within(*child, rest, depth);
        }
        if known.defined.contains(name) {
            return Some(module);
        }
        let depth = depth.checked_sub(1)?;
        if let Some(path) = known.imported.get(name) {
            let whole: Vec<String> = path.iter().chain(rest).cloned().collect();
            // A name that is brought by itself (`use weir_rt;`) is another crate's.
            return (path[0] != name).then(|| self.resolve(module, &whole, depth))?;
        }
        known.globs.iter().find_map(|glob| {
            let whole: Vec<String> =
                glob.iter().cloned().chain([name.to_owned()]).chain(rest.iter().cloned()).collect();
            self.resolve(module, &whole, depth)
        })
    }
}

impl SourceModule {
    fn import(&mut self, tree: &syn::UseTree) {
        let mut found = Vec::new();
        leaves(tree, &mut Vec::new(), &mut found);
        for (name, path) in found {
            match name {
                Some(name) => drop(self.imported.insert(name, path)),
                None => self.globs.push(path),
            }
        }
    }

    fn item(&mut self, item: &syn::Item) {
        let name = match item {
            syn::Item::Const(it) => Some(&it.ident),
            syn::Item::Enum(it) => Some(&it.ident),
            syn::Item::Fn(it) => Some(&it.sig.ident),
            syn::Item::Static(it) => Some(&it.ident),
            syn::Item::Struct(it) => Some(&it.ident),
            syn::Item::Trait(it) => Some(&it.ident),
            syn::Item::Type(it) => Some(&it.ident),
            syn::Item::Union(it) => Some(&it.ident),
            syn::Item::Macro(it) => it.ident.as_ref(),
            _ => None,
        };
        self.defined.extend(name.map(ToString::to_string));
        self.visit_item(item);
    }

    /// Paths among the tokens of a macro, whose grammar is its own: names with `::` between them.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) if colons == 2 => path.push(name.to_string()),
                TokenTree::Ident(name) => self.ended(&mut path, [name.to_string()]),
                TokenTree::Punct(mark) if mark.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => {
                    self.ended(&mut path, []);
                    self.tokens(group.stream());
                }
                _ => self.ended(&mut path, []),
            }
            colons = 0;
        }
        self.ended(&mut path, []);
    }

    /// A path is over; `next` begins another.
    fn ended<const N: usize>(&mut self, path: &mut Vec<String>, next: [String; N]) {
        let whole = std::mem::replace(path, next.into());
        if !whole.is_empty() {
            self.named.push(whole);
        }
    }
}

impl<'ast> Visit<'ast> for SourceModule {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.named.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {
        // `pub(super)` names the modules that may look inside, and nothing that is used.
    }

    fn visit_macro(&mut self, used: &'ast syn::Macro) {
        self.visit_path(&used.path);
        self.tokens(used.tokens.clone());
    }

    fn visit_item_use(&mut self, used: &'ast syn::ItemUse) {
        // Inside a function: its names are taken for the module's.
        self.import(&used.tree);
    }

    fn visit_item_fn(&mut self, it: &'ast syn::ItemFn) {
        if !is_test(&it.attrs) {
            syn::visit::visit_item_fn(self, it);
        }
    }

    fn visit_impl_item_fn(&mut self, it: &'ast syn::ImplItemFn) {
        if !is_test(&it.attrs) {
            syn::visit::visit_impl_item_fn(self, it);
        }
    }
}

/// The leaves of a `use`: names (or `None` for `*`) with their paths.
fn leaves(tree: &syn::UseTree, before: &mut Vec<String>, found: &mut Vec<(Option<String>, Vec<String>)>) {
    let with = |name: &syn::Ident, before: &[String]| -> Vec<String> {
        match name == "self" {
            true => before.to_vec(),
            false => before.iter().cloned().chain([name.to_string()]).collect(),
        }
    };
    match tree {
        syn::UseTree::Path(path) => {
            before.push(path.ident.to_string());
            leaves(&path.tree, before, found);
            before.pop();
        }
        syn::UseTree::Name(name) => {
            let path = with(&name.ident, before);
            found.push((path.last().cloned(), path));
        }
        syn::UseTree::Rename(renamed) => {
            // `use Trait as _` brings no name, but it is an arrow: its path's own name represents it.
            let path = with(&renamed.ident, before);
            let name = if renamed.rename == "_" {
                format!("_{}", path.join("."))
            } else {
                renamed.rename.to_string()
            };
            found.push((Some(name), path));
        }
        syn::UseTree::Glob(_) => found.push((None, before.clone())),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, before, found)),
    }
}

pub(crate) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test")))
    })
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(it) => &it.attrs,
        syn::Item::Enum(it) => &it.attrs,
        syn::Item::Fn(it) => &it.attrs,
        syn::Item::Impl(it) => &it.attrs,
        syn::Item::Macro(it) => &it.attrs,
        syn::Item::Mod(it) => &it.attrs,
        syn::Item::Static(it) => &it.attrs,
        syn::Item::Struct(it) => &it.attrs,
        syn::Item::Trait(it) => &it.attrs,
        syn::Item::Type(it) => &it.attrs,
        syn::Item::Use(it) => &it.attrs,
        _ => &[],
    }
}
