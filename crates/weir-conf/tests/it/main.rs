//! The language end to end: from the text of files to trees, values and errors.
#![forbid(unsafe_code)]

mod files;
mod format;
mod language;
mod properties;
mod setters;
mod wrong;

use weir_conf::{
    ArgCount, BufferSizes, ConfFiles, ConfTree, Contexts, Directive, DirectiveLine, DirectiveSignature,
    Error, LineCx, LoadFailure, MemoryFiles, RealFiles, check, load, names::*,
};

/// Reads `text` as `/etc/n.conf`.
fn read(text: impl Into<Vec<u8>>) -> Result<ConfTree, Box<LoadFailure>> {
    read_with(MemoryFiles::new(), text)
}

/// Reads `text` as `/etc/n.conf`, with other files around it.
fn read_with(files: MemoryFiles, text: impl Into<Vec<u8>>) -> Result<ConfTree, Box<LoadFailure>> {
    read_all(&files.with("/etc/n.conf", text), None)
}

fn read_all(files: &dyn ConfFiles, globals: Option<&str>) -> Result<ConfTree, Box<LoadFailure>> {
    load("n.conf".as_ref(), "/etc".as_ref(), files, |name| name.ends_with(b"_by_lua_block"), globals)
}

/// A tree in one line of text: words in brackets, blocks in braces, raw text between bars.
fn show(lines: &[DirectiveLine]) -> String {
    let one = |line: &DirectiveLine| {
        let words: String = line.words().map(|word| format!("[{word}]")).collect();
        let block = line.block.as_ref().map_or(String::new(), |block| format!("{{{}}}", show(&block.lines)));
        let raw = line
            .raw
            .as_ref()
            .map_or(String::new(), |raw| format!("|{}|", String::from_utf8_lossy(&raw.text)));
        words + &block + &raw
    };
    lines.iter().map(one).collect()
}

/// What the directives of the tests record.
#[derive(Debug, Default, PartialEq)]
struct Conf {
    gzip: Option<bool>,
    level: Option<u8>,
    workers: Option<u32>,
    port: Option<u16>,
    size: Option<u64>,
    offset: Option<u64>,
    timeout: Option<u64>,
    valid: Option<u64>,
    bufs: Option<BufferSizes>,
    mode: Option<char>,
    bits: Option<u32>,
    root: Option<std::path::PathBuf>,
    key: Option<std::path::PathBuf>,
    name: Option<String>,
    bytes: Option<Vec<u8>>,
    list: Option<Vec<String>>,
    pushed: Option<Vec<Box<str>>>,
    pairs: Option<Vec<(String, Box<[u8]>)>>,
    types: Vec<(String, String)>,
}

type Row = Directive<Conf>;

const TABLE: &[Row] = &[
    Row::new("http", MAIN, NONE.block(), |_, _| Ok(())),
    Row::new("server", HTTP, NONE.block(), |_, _| Ok(())),
    Row::new("location", SERVER.or(LOCATION), ONE_OR_TWO.block(), |_, _| Ok(())),
    Row::new("content_by_lua_block", LOCATION, LUA_BLOCK, |_, _| Ok(())),
    Row::new("types", ANY, NONE.block(), types),
    Row::new("worker_processes", MAIN, ONE, |c, l| l.number(&mut c.workers, 1..)),
    Row::new("gzip", ANY_OR_IF, FLAG, |c, l| l.flag(&mut c.gzip)),
    Row::new("gzip_comp_level", ANY, ONE, |c, l| l.number(&mut c.level, 1..=9)),
    Row::new("port", ANY, ONE, |c, l| l.number(&mut c.port, ..)),
    Row::new("client_body_buffer_size", ANY, ONE, |c, l| l.size(&mut c.size)),
    Row::new("client_max_body_size", ANY, ONE, |c, l| l.offset(&mut c.offset)),
    Row::new("send_timeout", ANY, ONE, |c, l| l.time_ms(&mut c.timeout)),
    Row::new("open_file_cache_valid", ANY, ONE, |c, l| l.time_s(&mut c.valid)),
    Row::new("gzip_buffers", ANY, TWO, |c, l| l.bufs(&mut c.bufs)),
    Row::new("satisfy", ANY, ONE, |c, l| l.one_of(&mut c.mode, &[("all", 'a'), ("any", 'y')])),
    Row::new("gzip_proxied", ANY, MORE, |c, l| l.bits(&mut c.bits, &[("expired", 1), ("no-cache", 2)])),
    Row::new("root", ANY, ONE, |c, l| l.path(&mut c.root)),
    Row::new("ssl_certificate_key", ANY, ONE, |c, l| l.conf_path(&mut c.key)),
    Row::new("server_name", ANY, ONE, |c, l| l.text(&mut c.name)),
    Row::new("bytes", ANY, ONE, |c, l| l.text(&mut c.bytes)),
    Row::new("index", ANY, MORE, |c, l| l.list(&mut c.list)),
    Row::new("add", ANY, ONE, |c, l| l.push(&mut c.pushed)),
    Row::new("set_header", ANY, TWO, |c, l| l.keyval(&mut c.pairs)),
    Row::new("old", ANY, NONE, |_, l| {
        l.warn("the \"old\" directive is deprecated");
        Ok(())
    }),
    Row::new("odd", ANY, ArgCount::ONE.or(ArgCount::THREE), |_, l| Err(l.invalid_parameter(0))),
];

/// `types { text/html html htm; }`: a block whose lines are no directives.
fn types(conf: &mut Conf, cx: &mut LineCx<'_>) -> weir_conf::Result {
    for line in cx.entries()? {
        let entry = cx.entry(line);
        if entry.args().is_empty() {
            return Err(entry.refuse("has no extension"));
        }
        conf.types.extend(entry.args().iter().map(|a| (entry.name().to_owned(), a.to_string())));
    }
    Ok(())
}

/// Sets everything in `tree`, as the engine does; returns values, errors and warnings.
fn apply(tree: &ConfTree) -> (Conf, Vec<Error>) {
    let (mut conf, mut errors) = (Conf::default(), Vec::new());
    apply_lines(&tree.lines, MAIN, tree, &mut conf, &mut errors);
    (conf, errors)
}

fn apply_lines(
    lines: &[DirectiveLine],
    here: Contexts,
    tree: &ConfTree,
    conf: &mut Conf,
    errors: &mut Vec<Error>,
) {
    for line in lines {
        let Some(row) = TABLE.iter().find(|row| line.name.is(row.name)) else {
            errors.push(DirectiveSignature::unknown(line, TABLE.iter().map(|row| row.name)));
            continue;
        };
        let mut nothing = ();
        let mut cx = LineCx::new(line, here, &tree.source, &tree.paths, &mut nothing, errors);
        if let Err(error) = check(row, line, here).and_then(|()| (row.set)(conf, &mut cx)) {
            errors.push(error);
            continue;
        }
        let inside = match row.name {
            "http" => HTTP,
            "server" => SERVER,
            "location" => LOCATION,
            _ => continue,
        };
        if let Some(block) = &line.block {
            apply_lines(&block.lines, inside, tree, conf, errors);
        }
    }
}

/// All errors and warnings of a text, those of syntax first, each as its first line shows.
fn errors(text: impl Into<Vec<u8>>) -> Vec<String> {
    let (tree, mut errors) = match read(text) {
        Ok(tree) => (tree, Vec::new()),
        Err(failure) => (failure.tree, failure.errors.0),
    };
    errors.extend(apply(&tree).1);
    let short = |error: &Error| error.headline(&tree.source).replace(" in /etc/n.conf:", " @");
    errors.iter().map(short).collect()
}

/// The values of a text without errors.
fn values(text: impl Into<Vec<u8>>) -> Conf {
    let tree = read(text).unwrap_or_else(|f| panic!("{}", f.errors.render(&f.tree.source)));
    let (conf, errors) = apply(&tree);
    assert_eq!(errors, []);
    conf
}

#[test]
fn the_file_system_reads_as_memory_does() {
    let directory = std::env::temp_dir().join(format!("weir-conf-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("sites")).unwrap();
    for (name, text) in [
        ("n.conf", "include sites/*.conf; include m;"),
        ("sites/b.conf", "b;"),
        ("sites/a.conf", "a;"),
        ("m", "m;"),
    ] {
        std::fs::write(directory.join(name), text).unwrap();
    }
    let tree = load("n.conf".as_ref(), &directory, &RealFiles, |_| false, None).unwrap();
    assert_eq!(show(&tree.lines), "[a][b][m]");
    assert_eq!(tree.paths.conf_prefix, directory);

    let shown = |main: &str| {
        let failure = load(main.as_ref(), &directory, &RealFiles, |_| false, None).unwrap_err();
        failure.errors.render(&failure.tree.source)
    };
    let (missing, sites) = (directory.join("missing"), directory.join("sites"));
    assert_eq!(
        shown("missing"),
        format!("open() \"{}\" failed (2: No such file or directory)\n", missing.display())
    );
    assert_eq!(shown("sites"), format!("pread() \"{}\" failed (21: Is a directory)\n", sites.display()));
    std::fs::remove_dir_all(&directory).unwrap();
}
