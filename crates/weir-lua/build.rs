//! Builds LuaJIT from source with the C compiler and make, as a static library; and the walk over its stacks.

#[path = "build/walk.rs"]
mod walk;

use std::env;
use std::path::PathBuf;

fn main() {
    walk::keep_frame_pointers();
    // Without the API checks of a debug build: what they would catch are errors of this crate, which its tests run
    // into; and programs that embed Weir would pay for them in their own debug builds.
    luajit_src::Build::new().debug(false).build().print_cargo_metadata();
    println!("cargo:rustc-link-lib=m");
    println!("cargo:rustc-link-lib=dl");
    walk::compile(&PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("luajit-build/src"));
}
