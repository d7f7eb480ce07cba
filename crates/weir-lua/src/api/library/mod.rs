//! Modules in Lua that are built into the program, and are loaded when a script requires them: those of
//! lua-resty-string and the like, and LuaJIT's own (`jit.v`, `jit.dump` ...).

use crate::run::function::{ApiFunction, CallDone, expect_string, function};

pub(crate) const TABLE: &[ApiFunction] = &[
    function("_library.source", 0, |l| {
        let name = expect_string(&l, 1, "source")?;
        match MODULES.iter().chain(JIT).find(|(known, _)| known.as_bytes() == name) {
            Some((_, source)) => l.push_bytes(source.as_bytes()),
            None => l.push_nil(),
        }
        Ok(CallDone::Results(1))
    }),
    function("_library.names", 0, |l| {
        l.new_table(MODULES.len() + JIT.len(), 0);
        for (at, (name, _)) in MODULES.iter().chain(JIT).enumerate() {
            l.push_bytes(name.as_bytes());
            l.raw_set_index(-2, at + 1);
        }
        Ok(CallDone::Results(1))
    }),
];

/// `ngx.*`, `resty.core.*` and `weir.*` are loaded from here whatever `lua_package_path` says, since others can't work without
/// nginx's symbols; the prelude looks for the other ones (`resty.*`, `tablepool`) there first.
const MODULES: &[(&str, &str)] = &[
    ("ngx.balancer", include_str!("../balancer/library.lua")),
    ("ngx.upstream", include_str!("../upstream/library.lua")),
    ("weir.cli", include_str!("../cli/library.lua")),
    ("ngx.errlog", include_str!("../errlog/library.lua")),
    ("ngx.ocsp", include_str!("../ssl/ocsp.lua")),
    ("ngx.pipe", include_str!("../pipe/library.lua")),
    ("ngx.process", include_str!("../process/library.lua")),
    ("ngx.proxyssl", include_str!("../ssl/proxy.lua")),
    ("ngx.ssl", include_str!("../ssl/ssl.lua")),
    ("ngx.ssl.clienthello", include_str!("../ssl/clienthello.lua")),
    ("ngx.ssl.proxysslcert", include_str!("../ssl/proxycert.lua")),
    ("ngx.ssl.proxysslverify", include_str!("../ssl/proxyverify.lua")),
    ("ngx.ssl.session", include_str!("../ssl/session.lua")),
    ("resty.aes", include_str!("../resty/aes.lua")),
    ("resty.core.base", include_str!("../resty/core.lua")),
    ("resty.core.regex", include_str!("../resty/regex.lua")),
    ("resty.events", include_str!("../events/resty.lua")),
    ("resty.events.compat", include_str!("../events/compat.lua")),
    ("resty.hmac", include_str!("../resty/hmac.lua")),
    ("resty.lock", include_str!("../resty/lock.lua")),
    ("resty.lrucache", include_str!("../resty/lrucache.lua")),
    ("resty.lrucache.pureffi", include_str!("../resty/lrucache.lua")),
    ("resty.md5", DIGEST),
    ("resty.random", include_str!("../resty/random.lua")),
    ("resty.sha1", DIGEST),
    ("resty.sha224", DIGEST),
    ("resty.sha256", DIGEST),
    ("resty.sha384", DIGEST),
    ("resty.sha512", DIGEST),
    ("resty.shell", include_str!("../resty/shell.lua")),
    ("resty.signal", include_str!("../resty/signal.lua")),
    ("resty.string", include_str!("../resty/string.lua")),
    ("resty.worker.events", include_str!("../events/worker.lua")),
    ("tablepool", include_str!("../resty/tablepool.lua")),
    ("weir.c_names", include_str!("../nginx_symbols/ngx_lua.lua")),
    ("weir.events", include_str!("../events/library.lua")),
    ("weir.events_names", include_str!("../events/names.lua")),
    ("weir.kong_names", include_str!("../kong/names.lua")),
    ("weir.lmdb_names", include_str!("../lmdb/names.lua")),
    ("weir.log", include_str!("../socket_log/library.lua")),
    ("weir.regex", include_str!("../re/compiled.lua")),
    ("weir.resolver", include_str!("../resolver/library.lua")),
    ("weir.ssl", include_str!("../ssl/key.lua")),
    ("weir.ssl_objects", include_str!("../ssl/objects.lua")),
    ("weir.upstream", include_str!("../upstream/weir.lua")),
];

const DIGEST: &str = include_str!("../resty/digest.lua");

macro_rules! jit {
    ($($name:literal)+) => {
        &[$((
            concat!("jit.", $name),
            include_str!(concat!(env!("OUT_DIR"), "/luajit-build/src/jit/", $name, ".lua")),
        )),+]
    };
}

const JIT: &[(&str, &str)] =
    jit!["v" "vmdef" "dump" "bc" "bcsave" "p" "zone" "dis_x86" "dis_x64" "dis_arm64"];
