//! docs/reference/directives.md and docs/reference/modules/NAME.md are generated from the directive tables and the
//! modules' own documentation;
//! this test fails when they are stale. `WEIR_WRITE_DOCS=1 cargo test -p weir --test it -- module_docs` writes them.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use weir::comparison::NginxComparison;
use weir::modules::all_modules;
use weir_conf::{Contexts, DirectiveEnd, DirectiveSignature};
use weir_engine::conf::build::STRUCTURE;

use crate::not_in_weir;

#[test]
fn pages_are_those_of_the_tables() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut stale = Vec::new();
    for (name, text) in pages() {
        let path = directory.join(&name);
        if fs::read_to_string(&path).is_ok_and(|there| there == text) {
            continue;
        }
        if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
            fs::create_dir_all(path.parent().expect("below docs")).expect("a directory of the repository");
            fs::write(&path, text).expect("a file of the repository");
        } else {
            stale.push(name);
        }
    }
    assert!(
        stale.is_empty(),
        "stale: {stale:?}; WEIR_WRITE_DOCS=1 cargo test -p weir --test it module_docs writes them"
    );
}

/// Every directive says in a line what it is for.
#[test]
fn every_directive_is_documented() {
    let missing: Vec<_> =
        tables().into_values().flatten().filter(|row| row.doc.is_empty()).map(|row| row.name).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// `grep -rw NAME crates/*/src` finds the row of every directive: its name is in a table as it is.
#[test]
fn every_directive_is_found_by_its_name() {
    let mut sources = String::new();
    let mut directories = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("the repository") {
            let path = entry.expect("the repository").path();
            match path.extension() {
                None if path.is_dir() => directories.push(path),
                Some(end) if end == "rs" && path.components().any(|part| part.as_os_str() == "src") => {
                    sources.push_str(&fs::read_to_string(path).expect("a source of the repository"));
                }
                _ => {}
            }
        }
    }
    let quoted: HashSet<&str> = sources.split('"').collect();
    let rows = tables().into_values().flatten();
    let hidden: Vec<_> = rows.map(|row| row.name).filter(|name| !quoted.contains(name)).collect();
    assert!(hidden.is_empty(), "composed names: {hidden:?}");
}

/// Module → its directives, in the order of its table.
pub(crate) fn tables() -> BTreeMap<&'static str, Vec<DirectiveSignature>> {
    let mut tables: BTreeMap<_, Vec<_>> = BTreeMap::from([("structure", STRUCTURE.to_vec())]);
    for module in all_modules() {
        tables.entry(module.name).or_default().extend(module.directives());
    }
    tables.retain(|_, rows| !rows.is_empty());
    tables
}

fn pages() -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    let mut index = INTRODUCTION.to_owned();
    for (module, rows) in tables() {
        let _ = writeln!(
            index,
            "\n## [{module}](modules/{module}.md)\n\n| directive | compared with nginx | what it does |\n|---|---|---|"
        );
        let mut page = format!("# {module}\n\n{}", about(module));
        for row in rows {
            let _ = writeln!(
                index,
                "| `{}` | {} | {} |",
                row.name,
                NginxComparison::of(&row).word(),
                cell(row.doc)
            );
            page += &entry(&row);
        }
        pages.insert(format!("reference/modules/{module}.md"), page);
    }
    pages.insert("reference/directives.md".to_owned(), index);
    pages.insert("reference/differences.md".to_owned(), not_in_weir::page());
    pages
}

/// The version that all directives are there since; one of a later version names its own.
const SINCE: &str = "0.1.0";

/// A directive's part of its module's page.
fn entry(row: &DirectiveSignature) -> String {
    let mut entry = format!("\n## {}\n\n", row.name);
    if !row.syntax.is_empty() {
        let end = match row.args.kind {
            DirectiveEnd::Plain | DirectiveEnd::Flag => ";",
            DirectiveEnd::Block | DirectiveEnd::Raw => " { ... }",
        };
        let forms: Vec<_> = row.syntax.lines().map(|form| format!("`{form}{end}`")).collect();
        let defaults: Vec<_> = row.default.lines().map(|args| format!("`{} {args};`", row.name)).collect();
        let default = if defaults.is_empty() { "—".to_owned() } else { defaults.join(" ") };
        let _ = write!(entry, "- Syntax: {}\n- Default: {default}\n", forms.join(" or "));
    }
    let compared = NginxComparison::of(row).about();
    let _ = write!(
        entry,
        "- Context: {}\n- Compared with nginx: {compared}\n- Since: {SINCE}\n\n{}\n",
        contexts(row.contexts),
        row.doc
    );
    if !row.example.is_empty() {
        let _ = write!(entry, "\n```nginx\n{}\n```\n", row.example);
    }
    entry
}

fn contexts(contexts: Contexts) -> String {
    contexts.to_string().replace('"', "`")
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// What a module is for: a text from [`ABOUT`], or the documentation at the head of the module's file.
fn about(module: &str) -> String {
    if let Some((_, text)) = ABOUT.iter().find(|(name, _)| *name == module) {
        return format!("{text}\n");
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let directories = ["", "rules", "content", "filters", "gateway"];
    let files = |directory: &&str| -> [PathBuf; 2] {
        let directory = crates.join("weir-modules/src").join(directory);
        [directory.join(format!("{module}.rs")), directory.join(module).join("mod.rs")]
    };
    let text = directories.iter().flat_map(files).find_map(|path| fs::read_to_string(path).ok());
    let text = text.unwrap_or_else(|| panic!("{module} is neither in ABOUT nor a file of weir-modules"));
    let doc = text.lines().map_while(|line| line.strip_prefix("//!"));
    doc.map(|line| without_links(line.strip_prefix(' ').unwrap_or(line)) + "\n").collect()
}

/// What modules are for that are not in weir-modules, or in a file of another name.
const ABOUT: &[(&str, &str)] = &[
    ("core", "The process, its workers, and `events`."),
    (
        "gzip_static",
        "Files that were compressed in advance and are beside the plain ones (nginx's `ngx_http_gzip_static_module`, with\n\
         siblings for Brotli and Zstandard). Of several the one that the client prefers is served, else the smallest.",
    ),
    ("http_core", "What requests, responses and files have in common (nginx's `ngx_http_core_module`)."),
    (
        "lmdb",
        "LMDB databases for scripts that use lua-resty-lmdb (that library's module for nginx): its C functions find them by\n\
         `ffi.C`. All workers share one environment, whose files are those of LMDB 0.9.",
    ),
    (
        "lua",
        "Lua code in the phases of a request and around them (OpenResty's `ngx_http_lua_module`); see [lua.md](../lua.md)\n\
         for the API.",
    ),
    (
        "lua_kong",
        "What Kong's nginx is built with (lua-kong-nginx-module): the libraries `resty.kong.*` find the module's C functions\n\
         by `ffi.C`.",
    ),
    ("profile", "What is recorded of requests, which traces are retained, and where the server is observed."),
    (
        "profile_key",
        "Requests, errors, bytes and times by tenant, host or any variable, in bounded memory; see\n\
         [profiling](../../guides/profiling.md#which-tenant-is-it).",
    ),
    ("server_core", "Virtual servers: their addresses and names, and how request headers are read."),
    (
        "ssl",
        "TLS for clients (nginx's `ngx_http_ssl_module`): certificates, protocols, sessions, client certificates. There are\n\
         TLS 1.2, with six ciphers (ECDHE and AEAD), and TLS 1.3; see [tls.md](../tls.md).",
    ),
    (
        "stream_core",
        "How sessions of `stream` begin, and what variables say of them (nginx's `ngx_stream_core_module`); see\n\
         [Proxy TCP and UDP](../../guides/tcp.md).",
    ),
    ("stream_proxy", "Passes sessions to servers (nginx's `ngx_stream_proxy_module`)."),
    (
        "stream_pass",
        "Passes connections to other addresses of the configuration (nginx's `ngx_stream_pass_module`).",
    ),
    (
        "stream_return",
        "Sends the client a value and closes the connection (nginx's `ngx_stream_return_module`).",
    ),
    (
        "stream_ssl_preread",
        "What a client says to begin TLS, without ending its TLS here (nginx's `ngx_stream_ssl_preread_module`).",
    ),
    ("structure", "The blocks of a configuration."),
    (
        "upstream",
        "Upstreams: their peers, and how one of them is chosen for a request; see [upstreams.md](../upstreams.md).",
    ),
    ("v2", "HTTP/2 (nginx's `ngx_http_v2_module`)."),
    ("v3", "HTTP/3 over QUIC (nginx's `ngx_http_v3_module`), on addresses of `listen ... quic`."),
    ("welcome", "The welcome page of the built-in configuration."),
];

/// A line of rustdoc without its links, which lead nowhere in the manual: [`a::b`] is `b`.
fn without_links(line: &str) -> String {
    let mut plain = String::new();
    let mut rest = line;
    while let Some((before, (path, after))) =
        rest.split_once("[`").and_then(|(before, from)| Some((before, from.split_once("`]")?)))
    {
        let name = path.rsplit("::").next().unwrap_or(path);
        let _ = write!(plain, "{before}`{name}`");
        let target = after.strip_prefix('(').and_then(|target| target.split_once(')'));
        rest = target.map_or(after, |(_, after)| after);
    }
    plain + rest
}

#[test]
fn links_of_rustdoc_are_words() {
    assert_eq!(without_links("a [`b`], [`c::d`](super::c) and `e`"), "a `b`, `d` and `e`");
    assert_eq!(without_links("[`open"), "[`open");
}

const INTRODUCTION: &str = "# Modules and their directives

Generated from the directive tables: `WEIR_WRITE_DOCS=1 cargo test -p weir --test it -- module_docs`. *same*: a
directive of nginx 1.31, with its names, defaults, inheritance and messages; *third-party*: one of a well-known module
for nginx, compatible with it; *extra*: Weir's own; *ignored*: checked as in nginx, but without effect, with a warning.
A directive that is not listed is not supported: it is a configuration error (`unknown directive`), never ignored. The
directives of nginx that Weir does not have are in [differences.md](differences.md), with the reason and what to use instead.
";
