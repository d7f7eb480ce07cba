//! The walk over Lua's stacks, compiled against the headers of the LuaJIT that was built.

use std::path::Path;
use std::{env, fs};

/// LuaJIT has what Lua 5.2 has, as in OpenResty's builds. Its headers depend on it: the places in the state of metamethods'
/// names and of what follows them.
pub(crate) const LUA52: &str = "LUAJIT_ENABLE_LUA52COMPAT";

/// Before LuaJIT is built: make takes its optimisation from here. Its own is without frame pointers, which the sampler
/// needs to find from LuaJIT's C functions to their callers.
pub(crate) fn keep_frame_pointers() {
    // SAFETY: a build script has one thread.
    unsafe { env::set_var("CCOPT", "-O2 -fno-omit-frame-pointer") };
}

/// Compiles the walk. It has to know how long the interpreter is, which has a symbol at its beginning only.
pub(crate) fn compile(luajit: &Path) {
    for file in ["build.rs", "build/walk.rs", "src/inspect/walk.c", "src/inspect/census.c"] {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rustc-check-cfg=cfg(lua_walk)");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        return;
    }
    println!("cargo:rustc-cfg=lua_walk");
    let object = fs::read(luajit.join("lj_vm.o")).expect("it was built");
    let length = text_length(&object).expect("an ELF object with a section \".text\"");
    println!("cargo:rustc-env=WEIR_LUA_VM_LENGTH={length}");
    cc::Build::new()
        .file("src/inspect/walk.c")
        .file("src/inspect/census.c")
        .include(luajit)
        .define("LUAJIT_UNWIND_EXTERNAL", None)
        .define(LUA52, None)
        .opt_level(2)
        .flag("-fno-omit-frame-pointer")
        .flag("-fno-strict-aliasing")
        .compile("weir_lua_walk");
}

/// The length of the section `.text` of an ELF object of 64 bits, little-endian.
fn text_length(object: &[u8]) -> Option<u64> {
    let word = |at: usize| Some(u64::from_le_bytes(object.get(at..at + 8)?.try_into().ok()?));
    let half = |at: usize| Some(u16::from_le_bytes(object.get(at..at + 2)?.try_into().ok()?) as usize);
    let sections = word(0x28)? as usize;
    let (size, count, names) = (half(0x3a)?, half(0x3c)?, half(0x3e)?);
    let header = |n: usize| sections + n * size;
    let names = word(header(names) + 0x18)? as usize;
    (0..count).find_map(|n| {
        let name = names + (word(header(n))? & 0xffff_ffff) as usize;
        object.get(name..)?.starts_with(b".text\0").then(|| word(header(n) + 0x20))?
    })
}
