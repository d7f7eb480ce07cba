//! Gives the shared library its name for the dynamic linker, and keeps it loaded.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // As `WEIR_ABI_VERSION` of include/weir.h: it changes when programs must be compiled again.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libweir.so.0");
    // Threads that belong to the process (the one that writes logs) run its code after the last server has gone: dlclose
    // must not take it away.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Functions that Lua's part is given by their names, system() among them, are not the program's.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs=ALL");
}
