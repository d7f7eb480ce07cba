//! What the tables say of directives and variables, as editors and `weir help` show it.

use weir_conf::{Contexts, DirectiveEnd, DirectiveSignature};
use weir_engine::conf::absent::ABSENT_FEATURES;
use weir_engine::conf::build::STRUCTURE;
use weir_engine::plan::variable::VariableSource;

use crate::comparison::NginxComparison;
use crate::modules::all_modules;

/// A row, with its module's name.
#[derive(Clone, Copy, Debug)]
pub struct ReferenceRow {
    /// The module's name.
    pub module: &'static str,
    /// Syntax, default, contexts and description.
    pub row: DirectiveSignature,
}

/// A variable, with its module's name.
#[derive(Clone, Copy)]
pub(crate) struct ReferenceVariable {
    pub module: &'static str,
    pub name: &'static str,
    /// The name is a beginning of names: `http_`.
    pub is_prefix: bool,
}

/// All directives, `include` with them.
pub fn directives() -> impl Iterator<Item = ReferenceRow> {
    let of_builder = STRUCTURE.into_iter().map(|row| ReferenceRow { module: "structure", row });
    let of_modules = all_modules().flat_map(|module| {
        module.directives().into_iter().map(|row| ReferenceRow { module: module.name, row })
    });
    of_builder.chain(of_modules).chain([ReferenceRow { module: "structure", row: weir_conf::INCLUDE }])
}

/// The row of `name` for lines in `here`, or another of this name.
pub(crate) fn directive(name: &str, here: Contexts) -> Option<ReferenceRow> {
    let rows: Vec<_> = directives().filter(|row| row.row.name == name).collect();
    rows.iter().find(|row| row.row.contexts.allows(here)).or(rows.first()).copied()
}

/// All variables of the tables.
pub(crate) fn variables() -> impl Iterator<Item = ReferenceVariable> {
    all_modules().flat_map(|module| {
        module.variables.iter().map(|variable| ReferenceVariable {
            module: module.name,
            name: variable.name,
            is_prefix: matches!(variable.get, VariableSource::Prefix(_)),
        })
    })
}

/// The variable `name`, without `$`.
pub(crate) fn variable(name: &str) -> Option<ReferenceVariable> {
    let exact = variables().find(|variable| !variable.is_prefix && variable.name == name);
    exact.or_else(|| variables().find(|variable| variable.is_prefix && name.starts_with(variable.name)))
}

impl ReferenceRow {
    /// Each form of the syntax with its end, in a line of its own.
    #[must_use]
    pub fn forms(&self) -> String {
        let ending = match self.row.args.kind {
            DirectiveEnd::Plain | DirectiveEnd::Flag => ";",
            DirectiveEnd::Block | DirectiveEnd::Raw => " { ... }",
        };
        self.row.syntax.lines().map(|form| format!("{form}{ending}\n")).collect()
    }

    /// Syntax, default, contexts and description, in Markdown.
    pub(crate) fn text(&self) -> String {
        let DirectiveSignature { default, contexts, doc, example, .. } = self.row;
        let mut out = format!("```nginx\n{}```\n{doc}\n", self.forms());
        if !default.is_empty() {
            out.push_str(&format!("\n- Default: `{} {}`", self.row.name, default.replace('\n', "`, `")));
        }
        out.push_str(&format!(
            "\n- Context: {}\n- Compared with nginx: {}\n- Module: {}\n",
            contexts.to_string().replace('"', "`"),
            NginxComparison::of(&self.row).about(),
            self.module
        ));
        if !example.is_empty() {
            out.push_str(&format!("\n```nginx\n{example}\n```\n"));
        }
        out
    }

    /// Whether syntax or description name this value, or the parameter that it begins with, in capitals or not. nginx's
    /// parser takes some words that say nothing: the manual does not have them.
    pub(crate) fn mentions(&self, value: &str) -> bool {
        self.spelled(value).is_some()
    }

    /// As syntax or description write the value.
    pub(crate) fn spelled(&self, value: &str) -> Option<String> {
        let (name, rest) = value.split_at(value.find('=').unwrap_or(value.len()));
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        [self.row.syntax, self.row.doc].iter().find_map(|text| {
            let words = text.split(|c| !is_part(c)).map(|word| word.trim_end_matches('.'));
            let word = words
                .skip(usize::from(*text == self.row.syntax))
                .find(|word| word.eq_ignore_ascii_case(name));
            word.map(|word| format!("{word}{rest}"))
        })
    }

    /// What an argument may be: the words of the syntax that are written as they are.
    pub(crate) fn values(&self) -> Vec<&'static str> {
        if self.row.args.kind == DirectiveEnd::Flag {
            return vec!["on", "off"];
        }
        let is_choice = |form: &&str| form.contains('|') || form.contains('[');
        let mut found = Vec::new();
        for form in self.row.syntax.lines().filter(is_choice) {
            let words = form.split(|c: char| c.is_whitespace() || "|[]()".contains(c)).skip(1);
            for word in words {
                let value = word.split_inclusive('=').next().unwrap_or_default();
                let is_word = value.starts_with(|c: char| c.is_ascii_lowercase())
                    && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-=".contains(&byte));
                if is_word && !PLACEHOLDERS.contains(&value) && !found.contains(&value) {
                    found.push(value);
                }
            }
        }
        found
    }
}

/// What an unknown directive is, where that is known.
#[must_use]
pub fn absent(name: &str) -> Option<String> {
    let feature = ABSENT_FEATURES.iter().find(|feature| feature.has_directive(name))?;
    Some(feature.hint())
}

/// Words of the syntax in whose place something else is written.
const PLACEHOLDERS: [&str; 44] = [
    "address",
    "argument",
    "arguments",
    "browser",
    "charset",
    "code",
    "cookie",
    "factor",
    "field",
    "file",
    "flag",
    "format",
    "frequency",
    "group",
    "header",
    "key",
    "kind",
    "leaf",
    "letter",
    "level",
    "mask",
    "method",
    "name",
    "number",
    "parameter",
    "parameters",
    "path",
    "place",
    "port",
    "regex",
    "replacement",
    "response",
    "route",
    "size",
    "statuses",
    "string",
    "text",
    "time",
    "types",
    "uri",
    "url",
    "user",
    "value",
    "variable",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_words_and_not_what_comes_in_their_place() {
        let values = |name: &str| directive(name, Contexts::ANY).expect("known").values();
        assert_eq!(values("gzip"), ["on", "off"]);
        assert_eq!(values("satisfy"), ["all", "any"]);
        assert!(values("proxy_next_upstream").contains(&"http_502"));
        assert!(values("root").is_empty());
    }

    #[test]
    fn names_in_two_tables_are_told_apart_by_context() {
        let server = directive("server", Contexts::UPSTREAM).expect("known");
        assert_eq!(server.module, "upstream");
        assert_eq!(directive("server", Contexts::HTTP).expect("known").module, "structure");
        assert!(directive("nothing", Contexts::HTTP).is_none());
        assert_eq!(variable("http_x").map(|variable| variable.name), Some("http_"));
    }

    #[test]
    fn texts_have_all_parts() {
        let text = directive("gzip", Contexts::HTTP).expect("known").text();
        for part in [
            "```nginx\ngzip on | off;\n```",
            "- Default: `gzip off`",
            "- Context: `http`, `server`",
            "- Compared with nginx: the same",
            "- Module: gzip",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
