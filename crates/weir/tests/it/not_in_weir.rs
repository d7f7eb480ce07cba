//! docs/reference/differences.md, what nginx and well-known modules have and Weir does not: each of nginx's names is in a table or
//! on the page, in the contexts that nginx's manual says, and each name of the page is refused with a hint at it.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

use weir::modules::MODULES;
use weir_conf::Contexts;
use weir_engine::conf::absent::{ABSENT_FEATURES, AbsentFeature};
use weir_engine::conf::test::load;
use weir_engine::variable::{Variable, VariableSource};

use crate::module_docs::tables;

/// The directives of nginx 1.31.5's core, event and http modules, and their variables: `module: names`.
const DIRECTIVES: &str = include_str!("../data/nginx-directives.txt");
const VARIABLES: &str = include_str!("../data/nginx-variables.txt");
/// The directives of nginx's manual without the modules of stream and mail: `module: name@context,context...`.
const DOCUMENTED: &str = include_str!("../data/nginx-documented.txt");
/// The variables of nginx's manual.
const DOCUMENTED_VARIABLES: &str = include_str!("../data/nginx-documented-variables.txt");

/// Blocks that are refused whole: what only they may have is not looked at.
const REFUSED_BLOCKS: [&str; 3] = ["acme_issuer", "mgmt", "oidc_provider"];

/// Rows that are allowed in other contexts than nginx's manual says, as nginx's own table has them.
const AS_THE_TABLE_OF_NGINX: [&str; 3] = ["fastcgi_split_path_info", "health_check", "secure_link_secret"];

/// A variable of nginx's that is there once the configuration sets it, as in nginx.
const MADE_BY_SET: &str = "memcached_key";

#[test]
fn every_directive_of_nginx_is_there_or_on_the_page() {
    let known = known_directives();
    let documented = documented().into_iter().filter(|row| !row.contexts.is_empty()).map(|row| row.name);
    let names: BTreeSet<_> = names(DIRECTIVES).chain(documented).collect();
    assert!(names.len() > 700, "the lists are there: {}", names.len());
    let on_page = |name: &str| of_page(|feature| feature.directives, name);
    let lost: Vec<_> = names.iter().filter(|name| !known.contains_key(**name) && !on_page(name)).collect();
    assert!(lost.is_empty(), "neither in a table nor in conf/absent/features.rs: {lost:?}");
}

#[test]
fn every_variable_of_nginx_is_there_or_on_the_page() {
    let names: BTreeSet<_> = names(VARIABLES).chain(DOCUMENTED_VARIABLES.split_whitespace()).collect();
    assert!(names.len() > 170, "the lists are there: {}", names.len());
    let on_page = |name: &str| of_page(|feature| feature.variables, name);
    let lost = names.iter().filter(|name| !has_variable(name) && !on_page(name));
    let lost: Vec<_> = lost.filter(|name| **name != MADE_BY_SET).collect();
    assert!(lost.is_empty(), "neither in a table nor in conf/absent/features.rs: {lost:?}");
}

/// Each directive that is there is allowed where nginx's manual says, and nowhere else.
#[test]
fn directives_are_allowed_where_the_manual_of_nginx_says() {
    let known = known_directives();
    let mut expected: HashMap<&str, Contexts> = HashMap::new();
    for row in documented() {
        let contexts = row.contexts.into_iter().map(context).fold(Contexts::NONE, Contexts::or);
        let all = expected.entry(row.name).or_insert(Contexts::NONE);
        *all = all.or(contexts);
    }
    let differs = |(name, expected): &(&str, Contexts)| {
        let there = of_http(*known.get(name).filter(|_| *expected != Contexts::NONE)?);
        (there != *expected).then(|| format!("{name}: {there}, in nginx {expected}"))
    };
    let rows = expected.into_iter().filter(|(name, _)| !AS_THE_TABLE_OF_NGINX.contains(name));
    let wrong: Vec<_> = rows.filter_map(|row| differs(&row)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Without the blocks of `stream`.
fn of_http(contexts: Contexts) -> Contexts {
    let all = [
        Contexts::MAIN,
        Contexts::EVENTS,
        Contexts::HTTP,
        Contexts::SERVER,
        Contexts::LOCATION,
        Contexts::UPSTREAM,
        Contexts::SERVER_IF,
        Contexts::LOCATION_IF,
        Contexts::LIMIT_EXCEPT,
    ];
    all.into_iter().filter(|one| contexts.allows(*one)).fold(Contexts::NONE, Contexts::or)
}

/// No name of the page is a directive or a variable.
#[test]
fn the_page_has_nothing_that_is_there() {
    let known = known_directives();
    for feature in ABSENT_FEATURES {
        for pattern in feature.directives {
            let there = known.keys().find(|name| fits(pattern, name));
            assert_eq!(there, None, "{pattern} of {}", feature.what);
        }
        for pattern in feature.variables {
            assert!(!has_variable(&example(pattern)), "${pattern} of {}", feature.what);
        }
    }
}

#[test]
fn every_directive_of_the_page_is_refused_with_a_hint() {
    for (begin, end) in [
        ("", ""),
        ("http { ", " }"),
        ("http { server { ", " } }"),
        ("http { server { location / { ", " } } }"),
    ] {
        for name in ABSENT_FEATURES.iter().flat_map(|feature| examples(feature.directives)) {
            let error = load(&format!("{begin}{name} 1;{end}"), MODULES).err();
            let error = error.unwrap_or_else(|| panic!("{name} is taken in {begin:?}"));
            assert!(error.starts_with(&format!("unknown directive \"{name}\" in ")), "{error}");
            assert!(error.contains("Weir does not have ") && error.contains("differences.md"), "{error}");
            assert!(!error.contains("did you mean"), "{error}");
        }
    }
}

#[test]
fn every_variable_of_the_page_is_refused_with_a_hint() {
    for name in ABSENT_FEATURES.iter().flat_map(|feature| examples(feature.variables)) {
        let text = format!("http {{ server {{ return 200 ${name}; }} }}");
        let error = load(&text, MODULES).err().unwrap_or_else(|| panic!("${name} is known"));
        assert!(error.contains(&format!("unknown \"{name}\" variable")), "{error}");
        assert!(error.contains("differences.md"), "{error}");
    }
}

/// The parameters of the page are refused, too.
#[test]
fn every_parameter_of_the_page_is_refused() {
    for (text, error, _) in PARAMETERS {
        let errors = load(&in_its_block(text), MODULES).err().unwrap_or_else(|| panic!("{text} is taken"));
        assert!(errors.contains(error), "{text}: {errors}");
    }
}

/// A line of the page in a configuration: in `upstream`, in a location, in a server, or in `http`.
fn in_its_block(text: &str) -> String {
    let name = text.split_whitespace().next().expect("a directive");
    let begin = match name {
        "sticky" => "http { upstream u { server 127.0.0.1; ",
        "proxy_next_upstream" => "http { server { location / { ",
        "listen" | "ssl_ech_file" | "ssl_protocols" => "http { server { ",
        _ => "http { ",
    };
    format!("{begin}{text};{}", "}".repeat(begin.matches('{').count()))
}

/// A directive with a parameter that nginx has and Weir does not, its error, and why.
const PARAMETERS: &[(&str, &str, &str)] = &[
    (
        "error_log logs/error.log info json",
        "invalid log level \"json\"",
        "Of nginx's commercial edition; `log_format … json` writes the access log so.",
    ),
    (
        "limit_req_zone $uri zone=z:1m rate=1r/s sync",
        "invalid number of arguments",
        "Of nginx's commercial edition: there is no cluster that shares zones.",
    ),
    (
        "listen 127.0.0.1:80 accept_filter=httpready",
        "not supported on this platform",
        "For FreeBSD; `deferred` is there.",
    ),
    ("listen 127.0.0.1:80 multipath", "invalid parameter \"multipath\"", "Not built yet."),
    ("listen 127.0.0.1:80 setfib=1", "invalid parameter \"setfib=1\"", "For FreeBSD."),
    (
        "proxy_cache_path cache keys_zone=c:1m purger=on",
        "\"purger\"",
        "Of nginx's commercial edition; `proxy_cache_purge` takes out one response at a time.",
    ),
    (
        "proxy_next_upstream denied",
        "invalid value \"denied\"",
        "Of nginx's commercial edition, with `proxy_allow_upstream`.",
    ),
    (
        "server_tokens \"name\"",
        "invalid value \"name\"",
        "Of nginx's commercial edition; `server_product` names the product.",
    ),
    ("ssl_ech_file ech.pem", "ssl_ech_file", "There is no Encrypted ClientHello."),
    (
        "ssl_protocols SSLv3",
        "none of these protocols",
        "There are TLS 1.2 and 1.3; older ones are left out with a warning where one of these is named as well.",
    ),
    (
        "sticky learn create=$uri lookup=$uri zone=s:1m sync",
        "invalid parameter \"sync\"",
        "Of nginx's commercial edition: there is no cluster that shares zones.",
    ),
];

/// docs/reference/differences.md.
pub(crate) fn page() -> String {
    let mut page = format!("{DIFFERENCES}{INTRODUCTION}");
    for feature in ABSENT_FEATURES {
        let marked = |names: &[&str], sign: &str| -> Vec<String> {
            names.iter().map(|name| format!("`{sign}{name}`")).collect()
        };
        let names = [marked(feature.directives, ""), marked(feature.variables, "$")].concat().join(" ");
        let instead = feature.instead.replace('"', "`");
        let _ = writeln!(page, "| {names} | {} | {} |", feature.why, sentence(&instead));
    }
    page += BETWEEN;
    for (text, _, why) in PARAMETERS {
        let _ = writeln!(page, "| `{text}` | {why} |");
    }
    page
}

fn sentence(clause: &str) -> String {
    let (first, rest) = clause.split_at(1);
    format!("{}{rest}.", first.to_uppercase())
}

/// A row of [`DOCUMENTED`]; what only refused blocks may have is in no context.
struct DocumentedDirective {
    name: &'static str,
    contexts: Vec<&'static str>,
}

fn documented() -> Vec<DocumentedDirective> {
    let row = |text: &'static str| {
        let (name, contexts) = text.split_once('@').expect("name@contexts");
        let contexts = contexts.split(',').filter(|context| !REFUSED_BLOCKS.contains(context));
        DocumentedDirective { name, contexts: contexts.filter(|context| !context.is_empty()).collect() }
    };
    names(DOCUMENTED).map(row).collect()
}

fn context(name: &str) -> Contexts {
    match name {
        "main" => Contexts::MAIN,
        "events" => Contexts::EVENTS,
        "http" => Contexts::HTTP,
        "server" => Contexts::SERVER,
        "server_if" => Contexts::SERVER_IF,
        "location" => Contexts::LOCATION,
        "location_if" => Contexts::LOCATION_IF,
        "limit_except" => Contexts::LIMIT_EXCEPT,
        "upstream" => Contexts::UPSTREAM,
        _ => panic!("no context: {name}"),
    }
}

/// What is after the colon of each line.
fn names(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.lines().filter_map(|line| line.split_once(':')).flat_map(|(_, names)| names.split_whitespace())
}

/// Directive → where it is allowed, by all of its rows.
fn known_directives() -> HashMap<&'static str, Contexts> {
    // The lexer's own.
    let mut known = HashMap::from([("include", Contexts::ANY)]);
    for row in tables().into_values().flatten() {
        let contexts = known.entry(row.name).or_insert(Contexts::NONE);
        *contexts = contexts.or(row.contexts);
    }
    known
}

fn has_variable(name: &str) -> bool {
    let covers = |known: &Variable| match known.get {
        VariableSource::Plain(_) => known.name == name,
        VariableSource::Prefix(_) => name.starts_with(known.name),
    };
    MODULES.iter().flat_map(|module| module.variables).any(covers)
}

fn of_page(patterns: impl Fn(&AbsentFeature) -> &'static [&'static str], name: &str) -> bool {
    ABSENT_FEATURES.iter().flat_map(patterns).any(|pattern| fits(pattern, name))
}

fn fits(pattern: &str, name: &str) -> bool {
    match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
        (Some(begin), _) => name.starts_with(begin),
        (_, Some(end)) => name.ends_with(end),
        _ => pattern == name,
    }
}

/// A name for each pattern.
fn examples(patterns: &'static [&'static str]) -> impl Iterator<Item = String> {
    patterns.iter().map(|pattern| example(pattern))
}

fn example(pattern: &str) -> String {
    match pattern.strip_prefix('*') {
        Some(end) => format!("fastcgi{end}"),
        None => pattern.replace('*', "of_a_test"),
    }
}

/// The part of the page that is written by hand.
const DIFFERENCES: &str = include_str!("../data/differences.md");

const INTRODUCTION: &str = "
## What Weir does not have

Generated from the program's tables: `WEIR_WRITE_DOCS=1 cargo test -p weir --test it -- module_docs`. Directives and
variables of nginx 1.31 (its manual, with the commercial edition, and its source) and of well-known modules for it that
Weir does not have, with the reason and what to use instead. Each is a configuration error that says so: a file that uses
one is refused, never served without it. `load_module` of a known module is a warning only: what counts is whether its
directives are used.

A star means any text.

| directives and variables | why | instead |
|---|---|---|
";

const BETWEEN: &str = "
These parameters of directives that Weir has are refused:

| line | why |
|---|---|
";
