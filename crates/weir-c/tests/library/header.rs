//! The header says what the library has: names, types, constants, sizes, versions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

use weir_test::require_program;

use crate::support::{Workshop, built, home};

fn header() -> String {
    std::fs::read_to_string(home().join("include/weir.h")).expect("it is there")
}

/// All of the crate's source.
fn source() -> String {
    let files = std::fs::read_dir(home().join("src")).expect("a directory");
    let mut paths: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).expect("a file")).collect()
}

/// The header's functions: what each takes and returns.
pub(crate) fn declared() -> BTreeMap<String, String> {
    let text = header();
    let declarations = text.split("\nWEIR_API ").skip(1).filter_map(|rest| rest.split_once(';'));
    let prototypes = declarations.filter(|(prototype, _)| prototype.contains('('));
    prototypes
        .map(|(prototype, _)| {
            let prototype = prototype.split_whitespace().collect::<Vec<_>>().join(" ");
            let (before, arguments) = prototype.split_once('(').expect("it has arguments");
            let at = before.rfind("weir_").expect("a name");
            let arguments = arguments.trim_end_matches(')').split(", ").map(|argument| {
                // Without its name.
                let end = argument.rfind(['*', ' ']).map_or(argument.len(), |end| end + 1);
                if argument == "void" { "" } else { argument[..end].trim() }
            });
            (before[at..].to_owned(), signature(&before[..at], arguments))
        })
        .collect()
}

/// The library's functions, in C's words.
fn defined() -> BTreeMap<String, String> {
    let text = source();
    let functions =
        text.split("#[unsafe(no_mangle)]").skip(1).map(|rest| rest.split_once('{').expect("a body").0);
    functions
        .map(|function| {
            let function = function.split_whitespace().collect::<Vec<_>>().join(" ");
            let (_, function) = function.split_once(" fn ").expect("a function");
            let (name, rest) = function.split_once('(').expect("it has arguments");
            let name = name.to_owned();
            let (arguments, returned) = rest.split_once(')').expect("they end");
            let returned =
                returned.split_once("-> ").map_or("void".to_owned(), |(_, kind)| in_c(kind.trim()));
            let arguments = arguments.split(',').map(str::trim).filter(|argument| !argument.is_empty());
            let kinds: Vec<String> =
                arguments.map(|argument| in_c(argument.split_once(": ").expect("a type").1)).collect();
            (name, signature(&returned, kinds.iter().map(String::as_str)))
        })
        .collect()
}

/// Without `const` and spaces around stars: which of the two says `const` is not the interface's.
fn signature<'a>(returned: &str, arguments: impl Iterator<Item = &'a str>) -> String {
    let plain = |kind: &str| kind.replace("const ", "").replace(' ', "");
    format!("{}({})", plain(returned), arguments.map(plain).collect::<Vec<_>>().join(","))
}

/// A type of Rust's in C.
fn in_c(kind: &str) -> String {
    let known = match kind {
        "c_int" => "int",
        "usize" => "size_t",
        "u64" => "uint64_t",
        "i64" => "int64_t",
        "c_char" => "char",
        "c_void" => "void",
        "WeirText" => "weir_text",
        "ForeignBuilder" => "weir_builder",
        "ForeignServer" => "weir_server",
        "ForeignTimer" => "weir_timer",
        "RequestHandle" => "weir_request",
        "Option<HandlerFunction>" => "weir_handler_fn",
        "Option<FreeFunction>" => "weir_free_fn",
        "Option<BodyFunction>" => "weir_body_fn",
        "Option<RoomFunction>" => "weir_room_fn",
        "Option<EndFunction>" => "weir_end_fn",
        "Option<TaskFunction>" => "weir_task_fn",
        _ => "",
    };
    if !known.is_empty() {
        return known.to_owned();
    }
    let target =
        kind.strip_prefix("*const ").or(kind.strip_prefix("*mut ")).unwrap_or_else(|| panic!("{kind}?"));
    format!("{}*", in_c(target))
}

#[test]
fn functions_are_those_of_the_library() {
    let declared = declared();
    assert!(declared.len() > 50, "{}", declared.len());
    assert_eq!(declared, defined());
}

/// Nothing else can be seen from outside: no function of LuaJIT's, none of Rust's.
#[test]
fn only_these_are_exported() {
    let Some(nm) = require_program("nm") else { return };
    let output = Command::new(nm).args(["-D", "--defined-only"]).arg(built().join("libweir_c.so")).output();
    let text = String::from_utf8(output.expect("it runs").stdout).expect("text");
    let exported: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(exported, declared().keys().map(String::as_str).collect());
}

/// The compiler compares constants and sizes.
#[test]
fn constants_are_those_of_the_library() {
    let Some(workshop) = Workshop::open() else { return };
    let mut program = "#include <weir.h>\n".to_owned();
    let text = source();
    let constants: Vec<(&str, &str)> = text
        .split("pub(crate) const WEIR_")
        .skip(1)
        .filter_map(|rest| {
            rest.split_once(": c_int = ")
                .map(|(name, value)| (name, value.split(';').next().expect("a value")))
        })
        .filter(|(name, _)| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'))
        .collect();
    assert!(constants.len() > 17, "{constants:?}");
    for (name, value) in &constants {
        writeln!(program, "_Static_assert(WEIR_{name} == {value}, \"{name}\");").expect("a string");
    }
    let known: BTreeSet<String> = constants.iter().map(|(name, _)| format!("WEIR_{name}")).collect();
    let enumerated = header();
    let enumerated = enumerated.lines().filter_map(|line| line.strip_prefix("    WEIR_")?.split_once(" = "));
    assert_eq!(enumerated.map(|(name, _)| format!("WEIR_{name}")).collect::<BTreeSet<_>>(), known);
    program += "_Static_assert(sizeof(weir_text) == 2 * sizeof(size_t), \"two words\");\n\
        _Static_assert(offsetof(weir_text, length) == sizeof(size_t), \"the second\");\n\
        _Static_assert(WEIR_NUL == SIZE_MAX, \"usize::MAX\");\n\
        int main(void) { return weir_abi_version() == WEIR_ABI_VERSION ? 0 : 1; }\n";
    let file = workshop.directory.write("constants.c", program);
    // _Static_assert is of C11.
    assert!(workshop.try_compile(&file, "constants", &["-std=c11"]));
    let status = Command::new(workshop.directory.path().join("constants")).status().expect("it runs");
    assert!(status.success());
}

/// The name for the dynamic linker has the header's version; the library needs nothing but the C library.
#[test]
fn the_name_has_the_version() {
    let Some(readelf) = require_program("readelf") else { return };
    let output = Command::new(readelf).arg("-d").arg(built().join("libweir_c.so")).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let version =
        header().lines().find_map(|line| line.strip_prefix("#define WEIR_ABI_VERSION ").map(str::to_owned));
    let name = format!("[libweir.so.{}]", version.expect("it is there"));
    assert!(text.lines().any(|line| line.contains("SONAME") && line.contains(&name)), "{text}");
    let needed = text.lines().filter(|line| line.contains("NEEDED"));
    let foreign = |line: &&str| {
        !["libc.", "libm.", "libgcc_s.", "ld-linux", "libdl.", "libpthread."]
            .iter()
            .any(|it| line.contains(it))
    };
    assert_eq!(needed.filter(foreign).collect::<Vec<_>>(), Vec::<&str>::new());
}
