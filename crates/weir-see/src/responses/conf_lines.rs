//! Which line of the configuration brought in a handler or filter of a location: looked up for many of them at once.

use std::collections::HashMap;

use weir_conf::{ConfTree, DirectiveLine};
use weir_engine::module::ModuleDef;

use super::lines::{directives, location_names, server_names, shown, without_secret};

/// The lines of one configuration, by what traces call locations and scripts.
pub(crate) struct ConfLineIndex<'t> {
    tree: &'t ConfTree,
    modules: &'t [&'static ModuleDef],
    /// The blocks down to a location or server, outermost first; of each that is called so.
    places: HashMap<String, Vec<Vec<&'t DirectiveLine>>>,
    /// Lines that hold scripts, by `file:line` without directories.
    scripts: HashMap<String, &'t DirectiveLine>,
    /// Lines that name files of scripts.
    files: Vec<&'t DirectiveLine>,
}

/// A line, for people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConfLinePlace {
    /// `file:line`, without directories.
    pub(crate) place: String,
    /// What it says, without secrets.
    pub(crate) text: String,
}

impl<'t> ConfLineIndex<'t> {
    /// The index of `tree`, which `modules` gave their directives.
    pub(crate) fn new(tree: &'t ConfTree, modules: &'t [&'static ModuleDef]) -> ConfLineIndex<'t> {
        let (places, scripts) = (HashMap::new(), HashMap::new());
        let mut index = ConfLineIndex { tree, modules, places, scripts, files: Vec::new() };
        index.add(&tree.lines, &mut Vec::new());
        index
    }

    fn add(&mut self, lines: &'t [DirectiveLine], above: &mut Vec<&'t DirectiveLine>) {
        for line in lines {
            if line.name.str().contains("_by_lua") {
                self.scripts.entry(self.place(line)).or_insert(line);
            }
            if line.name.str().ends_with(FILE) {
                self.files.push(line);
            }
            let Some(block) = &line.block else { continue };
            above.push(line);
            match line.name.str() {
                "location" => location_names(line, above).for_each(|name| self.called(name, above)),
                "server" => server_names(line).for_each(|name| self.called(name.to_owned(), above)),
                _ => {}
            }
            self.add(&block.lines, above);
            above.pop();
        }
    }

    fn called(&mut self, name: String, above: &[&'t DirectiveLine]) {
        self.places.entry(name).or_default().push(above.to_vec());
    }

    /// The first of that name counts, as for `lines`.
    fn first(&self, location: &str) -> Option<&[&'t DirectiveLine]> {
        Some(self.places.get(location)?.first()?)
    }

    /// The words after `directive` where it is in force at `location`, and its `file:line`: `Some(None)` where it is not
    /// written, `None` where there is no such location, or several of that name differ.
    pub(crate) fn in_force(&self, location: &str, directive: &str) -> Option<Option<(String, String)>> {
        let written = |block: &&'t DirectiveLine| {
            let mut lines = block.block.iter().flat_map(|block| &block.lines);
            lines.find(|line| line.name.is(directive))
        };
        let of = |blocks: &Vec<&'t DirectiveLine>| {
            let line = blocks.iter().rev().find_map(written)?;
            let words: Vec<&str> = line.args.iter().map(|word| word.str()).collect();
            Some((words.join(" "), self.place(line)))
        };
        let mut all = self.places.get(location)?.iter().map(of);
        let first = all.next()?;
        all.all(|other| other == first).then_some(first)
    }

    /// The line that brought the module, handler or filter `name` into `location`; `None`: it is there by default.
    pub(crate) fn line(&self, location: &str, name: &str) -> Option<ConfLinePlace> {
        if let Some((_, place)) = name.strip_suffix(')').and_then(|name| name.split_once('(')) {
            let text = self.scripts.get(place).map_or_else(|| name.to_owned(), |line| text(line));
            return Some(ConfLinePlace { place: place.to_owned(), text });
        }
        let blocks = self.first(location)?;
        let name = self.module(location, name);
        let directives = directives(self.modules, name);
        let inside = |block: &&'t DirectiveLine| {
            let lines = block.block.iter().flat_map(|block| &block.lines);
            let written = lines.filter(|line| directives.iter().any(|directive| line.name.is(directive)));
            // `gzip on` and not `gzip_types`.
            written.min_by_key(|line| (rank(line.name.str(), name), line.span.start))
        };
        blocks.iter().rev().find_map(inside).map(|line| self.shown(line))
    }

    /// The module that traces call `name` in `location`: by `trace_name`, or its own name.
    pub(crate) fn module<'n>(&self, location: &str, name: &'n str) -> &'n str
    where
        't: 'n,
    {
        let lines = |block: &&'t DirectiveLine| block.block.iter().flat_map(|block| &block.lines);
        let module = |line: &'t DirectiveLine| match &line.args[..] {
            [module, called] if line.name.is("trace_name") && called.str() == name => Some(module.str()),
            _ => None,
        };
        let mut blocks = self.first(location).unwrap_or_default().iter().rev();
        blocks.find_map(|block| lines(block).find_map(module)).unwrap_or(name)
    }

    /// The phase and the line of the directive that runs the file `script` (`log_by_lua`, `weir.conf:20`); `None` where none
    /// does, or several.
    pub(crate) fn of_file(&self, script: &str) -> Option<(String, String)> {
        let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let runs = |line: &&&'t DirectiveLine| {
            line.args.first().is_some_and(|file| base(file.str()) == base(script))
        };
        let mut lines = self.files.iter().filter(runs);
        let line = lines.next().filter(|_| lines.next().is_none())?;
        let phase = line.name.str().strip_suffix(FILE)?.to_owned();
        Some((phase + "_by_lua", self.place(line)))
    }

    /// The line that begins `location`.
    pub(crate) fn block(&self, location: &str) -> Option<ConfLinePlace> {
        self.first(location)?.last().map(|line| self.shown(line))
    }

    fn shown(&self, line: &DirectiveLine) -> ConfLinePlace {
        ConfLinePlace { place: self.place(line), text: text(line) }
    }

    fn place(&self, line: &DirectiveLine) -> String {
        self.tree.source.place(line.span).map_or_else(String::new, |place| {
            let file = place.path.file_name().map(|name| name.to_string_lossy().into_owned());
            format!("{}:{}", file.unwrap_or_default(), place.line)
        })
    }
}

fn text(line: &DirectiveLine) -> String {
    without_secret(&shown(line))
}

/// The end of directives that run a script from a file.
const FILE: &str = "_by_lua_file";

/// How far a directive is from being what switches `module` on.
fn rank(directive: &str, module: &str) -> u8 {
    match directive.strip_prefix(module) {
        Some("") => 0,
        Some("_pass") => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use weir_conf::MemoryFiles;

    use super::*;

    const CONF: &str = "http {\n gzip_types a/b;\n gzip on;\n server {\n  server_name a b;\n  location /x {\n   gzip_min_length 1;\n  }\n }\n\
        server {\n  server_name c;\n  location /x {\n   content_by_lua_block { ngx.say(1) }\n  }\n  location ~ \\.php$ { } } }";

    fn tree() -> ConfTree {
        let files = MemoryFiles::new().with("/n.conf", CONF);
        let raw = |name: &[u8]| name.ends_with(b"_by_lua_block");
        weir_conf::load("/n.conf".as_ref(), "/".as_ref(), &files, raw, None).expect("lines")
    }

    fn place(found: Option<ConfLinePlace>) -> String {
        found.map_or_else(String::new, |line| line.place)
    }

    #[test]
    fn locations_are_found_by_what_traces_call_them() {
        let tree = tree();
        let index = ConfLineIndex::new(&tree, &[]);
        for (location, expected) in [
            ("/x", "n.conf:6"),
            ("b/x", "n.conf:6"),
            ("c /x", "n.conf:12"),
            ("~ \\.php$", "n.conf:15"),
            ("c", "n.conf:10"),
            ("/none", ""),
        ] {
            assert_eq!(place(index.block(location)), expected, "{location}");
        }
    }

    #[test]
    fn a_script_s_file_leads_to_its_directive() {
        let conf = "http {\n log_by_lua_file lua/audit.lua;\n server {\n  location /a { content_by_lua_file a.lua; }\n  location /b { content_by_lua_file b/a.lua; }\n } }";
        let files = MemoryFiles::new().with("/n.conf", conf);
        let tree = weir_conf::load("/n.conf".as_ref(), "/".as_ref(), &files, |_| false, None).expect("lines");
        let index = ConfLineIndex::new(&tree, &[]);
        let log = ("log_by_lua".to_owned(), "n.conf:2".to_owned());
        assert_eq!(index.of_file("/srv/lua/audit.lua"), Some(log));
        assert_eq!(index.of_file("/srv/a.lua"), None, "two are called so");
        assert_eq!(index.of_file("/srv/none.lua"), None);
    }

    #[test]
    fn a_setting_is_that_of_the_innermost_block_and_of_all_of_a_name() {
        let conf = "http {\n gzip_comp_level 9;\n server {\n  server_name a;\n  location /x {\n   gzip_comp_level 2;\n   location /x/y { }\n  }\n }\n\
            server {\n  server_name b;\n  location /x { }\n  location /z { }\n }\n server {\n  location /z { gzip_min_length 1; }\n } }";
        let files = MemoryFiles::new().with("/n.conf", conf);
        let tree = weir_conf::load("/n.conf".as_ref(), "/".as_ref(), &files, |_| false, None).expect("lines");
        let index = ConfLineIndex::new(&tree, &[]);
        let level = |location: &str| index.in_force(location, "gzip_comp_level");
        let at = |value: &str, place: &str| Some(Some((value.to_owned(), place.to_owned())));
        assert_eq!(level("a/x"), at("2", "n.conf:6"));
        assert_eq!(level("/x/y"), at("2", "n.conf:6"));
        assert_eq!(level("b/x"), at("9", "n.conf:2"));
        assert_eq!(level("/x"), None, "two of that name differ");
        assert_eq!(level("/z"), at("9", "n.conf:2"), "both are alike");
        assert_eq!(index.in_force("/z", "gzip_types"), Some(None));
        assert_eq!(level("/none"), None);
    }

    #[test]
    fn scripts_say_their_line_themselves() {
        let tree = tree();
        let index = ConfLineIndex::new(&tree, &[]);
        let line = index.line("c/x", "content_by_lua(n.conf:13)").expect("a line");
        assert_eq!((line.place.as_str(), line.text.as_str()), ("n.conf:13", "content_by_lua_block {"));
        assert_eq!(place(index.line("c/x", "content_by_lua(other.conf:1)")), "other.conf:1");
        assert_eq!(index.line("/none", "gzip"), None);
    }

    #[test]
    fn what_switches_a_module_on_is_before_its_settings() {
        assert!(rank("gzip", "gzip") < rank("gzip_types", "gzip"));
        assert!(rank("proxy_pass", "proxy") < rank("proxy_set_header", "proxy"));
    }
}
