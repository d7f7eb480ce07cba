-- `weir.lmdb_names`: the C functions of lua-resty-lmdb's module for nginx, loaded when the first of them is looked for. They are
-- called as C functions are: what they get is checked by their types alone.
local _, native = ...
local cast, lmdb = require "ffi".cast, native.lmdb

return {
    ngx_lua_resty_lmdb_ffi_execute = cast("int (*)(void *, size_t, int, unsigned char *, size_t, void *)", lmdb.execute()),
    ngx_lua_resty_lmdb_ffi_prefix = cast("int (*)(void *, size_t, unsigned char *, size_t, void *)", lmdb.prefix()),
    ngx_lua_resty_lmdb_ffi_env_info = cast("int (*)(void *, void *)", lmdb.env_info()),
}
