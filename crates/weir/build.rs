//! Links the server so that modules in C (`lua_package_cpath`) find Lua's functions in it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Lua stands in the program as a static library, whose functions nothing outside would see, or keep; `ngx_*` are
    // those that scripts call by `ffi.C`.
    for names in ["lua_*", "luaL_*", "luaopen_*", "luaJIT_*", "ngx_*"] {
        println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol={names}");
    }
}
