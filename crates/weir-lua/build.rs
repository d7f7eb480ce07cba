//! Builds LuaJIT from source with the C compiler and make, as a static library; and the walk over its stacks.
//!
//! It is built as OpenResty builds it, with what Lua 5.2 has ([`walk::LUA52`]): `;` as a statement, `__pairs`, `__len` of tables,
//! `table.pack`, `package.searchers`, three results of `os.execute`. Compiled code looks for hooks (`LUAJIT_ENABLE_CHECKHOOK`; a
//! tight loop costs the same), and some of the files are compiled once more with [`CHECKS`] in them: at the places where
//! LuaJIT can spend any time, or any stack, in C (`src/vm/limit` says what for), and where its heap, its tables and its
//! compiler are made faster.

#[path = "build/checks.rs"]
mod checks;
#[path = "build/walk.rs"]
mod walk;

use std::env;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use checks::CHECKS;

fn main() -> Result<(), Box<dyn Error>> {
    walk::keep_frame_pointers();
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("no OUT_DIR")?);
    let compiler = cc::Build::new().warnings(false).get_compiler();
    if env::var_os("STATIC_CC").is_none() {
        let mut command = OsString::from(compiler.path());
        command.push(" ");
        command.push(compiler.cflags_env());
        command.push(" -DLUAJIT_ENABLE_CHECKHOOK");
        if env::var_os(ASAN).is_some() {
            command.push(" -g -fsanitize=address -DLUAJIT_USE_SYSMALLOC");
            // SAFETY: a build script has one thread.
            unsafe { env::set_var("TARGET_LD", &command) };
        }
        // SAFETY: a build script has one thread.
        unsafe { env::set_var("STATIC_CC", command) };
    }
    // Without the API checks of a debug build: what they would catch are errors of this crate, which its tests run
    // into; and programs that embed Weir would pay for them in their own debug builds.
    let library = luajit_src::Build::new().debug(false).lua52compat(true).build();
    let source = out.join("luajit-build/src");
    let objects = insert_checks(&source)?;
    compile(&source, &objects)?;
    let archive = library.lib_dir().join("libluajit.a");
    run(cc::Build::new().get_archiver().arg("r").arg(archive).args(&objects).current_dir(&source))?;
    library.print_cargo_metadata();
    for file in ["build.rs", "build/checks.rs"] {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-env-changed={ASAN}");
    if env::var_os(ASAN).is_some() {
        println!("cargo:rustc-link-lib=asan");
    }
    println!("cargo:rustc-link-lib=m");
    println!("cargo:rustc-link-lib=dl");
    println!("cargo:rerun-if-changed=src/luajit/symbols.c");
    cc::Build::new().file("src/luajit/symbols.c").compile("weir_lua_symbols");
    walk::compile(&source);
    Ok(())
}

/// Set: LuaJIT is built with the address sanitizer, and each of its objects is a block of malloc's. See `fuzz/asan`.
const ASAN: &str = "WEIR_LUA_ASAN";

/// Changes the copies of the sources; the objects that have to be made again.
fn insert_checks(source: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut objects = Vec::new();
    for (name, included) in INCLUDED {
        println!("cargo:rerun-if-changed={name}");
        fs::copy(name, source.join(included))?;
    }
    for (file, checks) in CHECKS {
        let mut text = fs::read_to_string(source.join(file))?;
        for (before, after) in *checks {
            if text.matches(before).count() != 1 {
                return Err(
                    format!("LuaJIT's {file} has changed: {before:?} is not there, or not once").into()
                );
            }
            text = text.replace(before, after);
        }
        fs::write(source.join(file), text)?;
        objects.extend(file.strip_suffix(".c").map(|name| format!("{name}.o")));
    }
    for header in CHANGED {
        objects.extend(dependents(source, header)?);
    }
    objects.sort();
    objects.dedup();
    for object in &objects {
        fs::remove_file(source.join(object))?;
    }
    Ok(objects)
}

/// Headers that all who include them have to see changed: they number the C functions that compiled code calls and the library's
/// functions (where they are used, and where they are registered), and say where in a table a key is.
const CHANGED: [&str; 4] = ["lj_ircall.h", "lj_ff.h", "lj_libdef.h", "lj_tab.h"];

/// The objects of files that include `header`.
fn dependents(source: &Path, header: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let included = format!("#include \"{header}\"");
    let mut objects = Vec::new();
    for file in fs::read_dir(source)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "c")
            && fs::read_to_string(&path)?.contains(&included)
            && let Some(name) = path.file_stem().and_then(OsStr::to_str)
        {
            objects.push(format!("{name}.o"));
        }
    }
    // `ljamalg.c` is all of LuaJIT in one file, which is not what is built.
    objects.retain(|object| source.join(object).exists());
    Ok(objects)
}

/// Files of ours that LuaJIT's include, and their names there.
const INCLUDED: [(&str, &str); 7] = [
    ("src/luajit/api.h", "weir_api.h"),
    ("src/luajit/slabs.h", "weir_slabs.h"),
    ("src/luajit/closures.h", "weir_closures.h"),
    ("src/luajit/lines.h", "weir_lines.h"),
    ("src/luajit/strings.h", "weir_strings.h"),
    ("src/luajit/tables.h", "weir_tables.h"),
    ("src/luajit/table_calls.h", "weir_table_calls.h"),
];

/// As luajit-src has compiled them; and the names that `jit.v` and `jit.dump` have for numbers.
fn compile(source: &Path, objects: &[String]) -> Result<(), Box<dyn Error>> {
    let mut make = Command::new("make");
    make.arg("-e").args(objects).arg("jit/vmdef.lua").current_dir(source).env("BUILDMODE", "static");
    // What is not declared would be taken for a function of whole numbers.
    make.env("XCFLAGS", format!("-fPIC -Werror=implicit-function-declaration -D{}", walk::LUA52));
    if env::var("TARGET").is_ok_and(|target| target.contains("linux")) {
        make.env("TARGET_SYS", "Linux");
    }
    run(&mut make)
}

fn run(command: &mut Command) -> Result<(), Box<dyn Error>> {
    match command.status()? {
        status if status.success() => Ok(()),
        status => Err(format!("{command:?} ended with {status}").into()),
    }
}
