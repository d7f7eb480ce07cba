//! The module: its directives, and what the plans of blocks with scripts hold.

use weir_conf::names::{
    ANY_OR_IF, ANY_UPSTREAM, FLAG, HTTP, LOCATION, LOCATION_IF, LUA_BLOCK, MORE, NAMED_LUA_BLOCK, ONE,
    SERVER, SERVER_IF, STREAM, STREAM_ANY, STREAM_SERVER, TWO, TWO_OR_MORE, UPSTREAM,
};
use weir_conf::{Contexts, Directive, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::module::BuildHooks;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::Variable;
use weir_engine::{Module, UnnamedBlock, inherit};

use crate::hooks::balancer;
use crate::hooks::conf::LuaConf;
use crate::hooks::install;
use crate::run::variables::VARIABLES;
use crate::vm::phase::ScriptPhase;

/// The module `lua`.
pub struct Lua;

type LuaRow = Directive<LuaConf>;

const CONTENT: Contexts = Contexts::LOCATION.or(LOCATION_IF);
const SETS: Contexts = SERVER.or(SERVER_IF).or(LOCATION).or(LOCATION_IF);
const HERE: Contexts = Contexts::HTTP.or(Contexts::SERVER).or(STREAM_ANY);
/// Whole blocks of protocols.
const MAINS: Contexts = Contexts::HTTP_OR_STREAM;
/// What sockets and TLS of scripts have where.
const SETTINGS: Contexts = ANY_OR_IF.or(STREAM_ANY);
/// Content of requests and of sessions.
const CONTENTS: Contexts = CONTENT.or(STREAM_SERVER);
/// Handshakes with servers.
const UPSTREAM_TLS: Contexts = CONTENT.or(STREAM_ANY);
/// Before `set` and `rewrite` of a server.
const SERVER_REWRITES: Contexts = Contexts::HTTP.or(Contexts::SERVER);

/// The three forms of a phase's script, or two for phases without one in quotes.
macro_rules! scripts {
    ($($block:literal $inline:literal $file:literal, $contexts:expr, $phase:expr, $doc:literal;)+
     unquoted: $($bare_block:literal $bare_file:literal, $places:expr, $when:expr, $about:literal;)+) => {
        &[
            $(
                LuaRow::new($block, $contexts, LUA_BLOCK, |conf, line| {
                    conf.block(line, $phase)
                })
                .syntax($block)
                .doc($doc),
                LuaRow::new($inline, $contexts, ONE, |conf, line| conf.inline(line, $phase))
                    .syntax(concat!($inline, " lua-script"))
                    .doc(concat!("Like `", $block, "`, with the code in quotes.")),
                LuaRow::new($file, $contexts, ONE, |conf, line| conf.file(line, $phase))
                    .syntax(concat!($file, " path"))
                    .doc(concat!("Like `", $block, "`, with the code in a file, as source or bytecode.")),
            )+
            LuaRow::new("balancer_by_lua_block", ANY_UPSTREAM, LUA_BLOCK, |_, line| LuaConf::balancer_block(line))
                .syntax("balancer_by_lua_block")
                .doc("Runs Lua code that chooses the peer of each try, by `ngx.balancer`.")
                .example(
                    "upstream backend {\n\
                     \x20   server 0.0.0.1;\n\
                     \x20   balancer_by_lua_block {\n\
                     \x20       local balancer = require \"ngx.balancer\"\n\
                     \x20       assert(balancer.set_current_peer(\"127.0.0.1\", 8080))\n\
                     \x20   }\n\
                     }",
                ),
            LuaRow::new("balancer_by_lua", ANY_UPSTREAM, ONE, |_, line| LuaConf::balancer_inline(line))
                .syntax("balancer_by_lua lua-script")
                .doc("Like `balancer_by_lua_block`, with the code in quotes."),
            LuaRow::new("balancer_by_lua_file", ANY_UPSTREAM, ONE, |_, line| LuaConf::balancer_file(line))
                .syntax("balancer_by_lua_file path")
                .doc("Like `balancer_by_lua_block`, with the code in a file, as source or bytecode."),
            LuaRow::new("balancer_keepalive", UPSTREAM, ONE, |_, line| balancer::keepalive(line))
                .syntax("balancer_keepalive number")
                .default("32")
                .doc(
                    "Maximum number of idle upstream connections that all workers together \
                     keep, where `keepalive` is absent.",
                ),
            $(
                LuaRow::new($bare_block, $places, LUA_BLOCK, |conf, line| {
                    conf.block(line, $when)
                })
                .syntax($bare_block)
                .doc($about),
                LuaRow::new($bare_file, $places, ONE, |conf, line| conf.file(line, $when))
                    .syntax(concat!($bare_file, " path"))
                    .doc(concat!("Like `", $bare_block, "`, with the code in a file, as source or bytecode.")),
            )+
            LuaRow::new("set_by_lua_block", SETS, NAMED_LUA_BLOCK, LuaConf::set_block)
                .syntax("set_by_lua_block $variable")
                .doc(
                    "Sets a variable to the return value of Lua code, in the order of `set`, \
                     `if` and `rewrite`.",
                )
                .example("set_by_lua_block $half {\n    return tonumber(ngx.var.arg_n) / 2\n}"),
            LuaRow::new("set_by_lua", SETS, TWO_OR_MORE, LuaConf::set_inline)
                .syntax("set_by_lua $variable lua-script [argument ...]")
                .doc("Like `set_by_lua_block`, with the code in quotes, and arguments in `ngx.arg`."),
            LuaRow::new("set_by_lua_file", SETS, TWO_OR_MORE, LuaConf::set_file)
                .syntax("set_by_lua_file $variable path [argument ...]")
                .doc("Like `set_by_lua`, with the code in a file, as source or bytecode."),
            LuaRow::new("lua_package_path", MAINS, ONE, |conf, line| line.text(&mut conf.main.package_path))
                .syntax("lua_package_path path")
                .doc(
                    "Search path of Lua modules (`package.path`); `;;` means the default \
                     path, `$prefix` for the server's prefix.",
                )
                .example("lua_package_path \"$prefix/lua/?.lua;;\";"),
            LuaRow::new("lua_package_cpath", MAINS, ONE, |conf, line| line.text(&mut conf.main.package_cpath))
                .syntax("lua_package_cpath path")
                .doc(
                    "Search path of modules in C (`package.cpath`); `;;` means the \
                     default path, `$prefix` for the server's prefix.",
                ),
            LuaRow::new("weir_openssl", MAINS, ONE, LuaConf::openssl)
                .syntax("weir_openssl system | off | path")
                .default("system")
                .doc(
                    "The OpenSSL of scripts that look for its functions by `ffi.C`. `system`: the system's libcrypto and \
                     libssl, loaded when the first of their names is looked for; `off`: none. A path is that of a libcrypto \
                     with the libssl beside it. Weir's own TLS does not use it. Weir's own.",
                )
                .example("weir_openssl /opt/openssl/lib/libcrypto.so.3;"),
            LuaRow::new("lua_shared_dict", MAINS, TWO, LuaConf::dict)
                .syntax("lua_shared_dict name size")
                .doc(
                    "Declares a dictionary of this size, at least 8k, that all workers share; \
                     it survives reloads.",
                )
                .example(
                    "lua_shared_dict counters 10m;\n\
                     server {\n\
                     \x20   location /count {\n\
                     \x20       content_by_lua_block {\n\
                     \x20           ngx.say(ngx.shared.counters:incr(\"hits\", 1, 0))\n\
                     \x20       }\n\
                     \x20   }\n\
                     }",
                ),
            LuaRow::new("lua_thread_cache_max_entries", MAINS, ONE, |conf, line| {
                line.number(&mut conf.main.thread_cache, ..)
            })
            .syntax("lua_thread_cache_max_entries number")
            .default("1024")
            .doc("Maximum number of coroutines that a worker's VM keeps for further requests."),
            LuaRow::new("lua_regex_cache_max_entries", MAINS, ONE, |conf, line| {
                line.number(&mut conf.main.regex_cache, ..)
            })
            .syntax("lua_regex_cache_max_entries number")
            .default("1024")
            .doc("Maximum number of compiled regular expressions (option `o`) that a worker keeps."),
            LuaRow::new("lua_regex_match_limit", MAINS, ONE, |conf, line| line.number(&mut conf.main.regex_limit, ..))
                .syntax("lua_regex_match_limit number")
                .default("0")
                .doc("Match limit of regular expressions in steps; 0 is PCRE2's 10,000,000."),
            LuaRow::new("lua_capture_error_log", MAINS, ONE, LuaConf::capture_error_log)
                .syntax("lua_capture_error_log size")
                .doc(
                    "Size of each worker's buffer of error log lines for `ngx.errlog`, at \
                     least 4k; by default there is no buffer.",
                ),
            LuaRow::new("lua_malloc_trim", MAINS, ONE, |conf, line| line.number(&mut conf.main.malloc_trim, ..))
                .syntax("lua_malloc_trim request-count")
                .default("0")
                .doc(
                    "Returns free memory to the system after this many requests of a worker; \
                     0 disables it.",
                ),
            LuaRow::new("lua_sa_restart", MAINS, FLAG, LuaConf::sa_restart)
                .syntax("lua_sa_restart on | off")
                .default("on")
                .doc("Restarts system calls after signals; it can not be disabled."),
            LuaRow::new("lua_load_resty_core", MAINS, FLAG, LuaConf::load_resty_core)
                .syntax("lua_load_resty_core on | off")
                .default("on")
                .doc(
                    "Accepted for compatibility with OpenResty, without effect: \
                     lua-resty-core's API is part of the server.",
                ),
            LuaRow::new("lua_cpu_limit", MAINS, ONE, |conf, line| line.time_ms(&mut conf.main.cpu_limit))
                .syntax("lua_cpu_limit time")
                .default("0")
                .doc(
                    "CPU time after which Lua code that has not yielded is stopped with an \
                     error; 0 disables the limit. Weir's own.",
                ),
            LuaRow::new("lua_memory_limit", MAINS, ONE, |conf, line| line.size(&mut conf.main.memory_limit))
                .syntax("lua_memory_limit size")
                .default("0")
                .doc(
                    "Memory that a worker's VM may allocate; beyond it Lua code fails. 0 \
                     disables the limit. Weir's own.",
                ),
            LuaRow::new("lua_max_coroutines", MAINS, ONE, |conf, line| line.number(&mut conf.main.coroutines, 1..))
                .syntax("lua_max_coroutines number")
                .default("16384")
                .doc("Maximum number of coroutines and light threads of a request. Weir's own."),
            LuaRow::new("lua_max_pending_timers", MAINS, ONE, |conf, line| {
                line.number(&mut conf.main.pending_timers, ..)
            })
            .syntax("lua_max_pending_timers number")
            .default("1024")
            .doc("Maximum number of pending timers of a worker."),
            LuaRow::new("lua_max_running_timers", MAINS, ONE, |conf, line| {
                line.number(&mut conf.main.running_timers, ..)
            })
            .syntax("lua_max_running_timers number")
            .default("256")
            .doc(
                "Maximum number of running timers of a worker; those that expire beyond it \
                 are dropped.",
            ),
            LuaRow::new("lua_yield_everywhere", MAINS, FLAG, |conf, line| line.flag(&mut conf.main.yields))
                .syntax("lua_yield_everywhere on | off")
                .default("off")
                .doc(
                    "Allows `init_worker_by_lua` to yield; the worker serves requests when it \
                     has returned. Weir's own.",
                ),
            LuaRow::new("lua_worker_thread_vm_pool_size", MAINS, ONE, |conf, line| {
                line.number(&mut conf.main.thread_vms, 1..)
            })
            .syntax("lua_worker_thread_vm_pool_size number")
            .default("100")
            .doc(
                "Maximum number of VMs, one per thread, of a `thread_pool` for \
                 `ngx.run_worker_thread` in a worker.",
            ),
            LuaRow::new("rewrite_by_lua_no_postpone", HTTP, FLAG, |conf, line| {
                line.flag(&mut conf.main.rewrite_first)
            })
            .syntax("rewrite_by_lua_no_postpone on | off")
            .default("off")
            .doc("Runs `rewrite_by_lua` before other handlers of the rewrite phase."),
            LuaRow::new("access_by_lua_no_postpone", HTTP, FLAG, |conf, line| line.flag(&mut conf.main.access_first))
                .syntax("access_by_lua_no_postpone on | off")
                .default("off")
                .doc("Runs `access_by_lua` before other handlers of the access phase."),
            LuaRow::new("precontent_by_lua_no_postpone", HTTP, FLAG, |conf, line| {
                line.flag(&mut conf.main.precontent_first)
            })
            .syntax("precontent_by_lua_no_postpone on | off")
            .default("off")
            .doc("Runs `precontent_by_lua` before other handlers of the precontent phase."),
            LuaRow::new("preread_by_lua_no_postpone", STREAM, FLAG, |conf, line| line.flag(&mut conf.main.preread_first))
                .syntax("preread_by_lua_no_postpone on | off")
                .default("off")
                .doc("Runs `preread_by_lua` before other handlers of the preread phase."),
            LuaRow::new("lua_add_variable", STREAM, ONE, |_, line| LuaConf::add_variable(line))
                .syntax("lua_add_variable $variable")
                .doc("Declares a variable that scripts may set, without a value; one that is there already stays as it is.")
                .example("stream {\n    lua_add_variable $tenant;\n}"),
            LuaRow::new("lua_upstream_skip_openssl_default_verify", UPSTREAM_TLS, FLAG, |conf, line| {
                line.flag(&mut conf.secure.judges_alone)
            })
            .syntax("lua_upstream_skip_openssl_default_verify on | off")
            .default("off")
            .doc(
                "Leaves the verification of upstream certificates to \
                 `proxy_ssl_verify_by_lua` alone.",
            ),
            LuaRow::new("lua_code_cache", SETTINGS, FLAG, LuaConf::code_cache)
                .syntax("lua_code_cache on | off")
                .default("on")
                .doc(
                    "Caches Lua code; `off`, for development, gives each request a new VM and \
                     reads its scripts again.",
                ),
            LuaRow::new("lua_check_client_abort", SETTINGS, FLAG, |conf, line| {
                line.flag(&mut conf.check_client_abort)
            })
            .syntax("lua_check_client_abort on | off")
            .default("off")
            .doc(
                "Detects that a client closes its connection while Lua code waits: calls the \
                 function given to `ngx.on_abort`, or stops the code.",
            ),
            LuaRow::new("lua_http10_buffering", ANY_OR_IF, FLAG, |conf, line| {
                line.flag(&mut conf.http10_buffering)
            })
            .syntax("lua_http10_buffering on | off")
            .default("on")
            .doc("Buffers responses to HTTP/1.0 clients, to send a `Content-Length`."),
            LuaRow::new("lua_transform_underscores_in_response_headers", ANY_OR_IF, FLAG, |conf, line| {
                line.flag(&mut conf.underscores)
            })
            .syntax("lua_transform_underscores_in_response_headers on | off")
            .default("on")
            .doc(
                "Replaces underscores by hyphens in names of response header fields that are \
                 set by `ngx.header`.",
            ),
            LuaRow::new("lua_ctx_keep", ANY_OR_IF, FLAG, |conf, line| line.flag(&mut conf.ctx_keep))
                .syntax("lua_ctx_keep on | off")
                .default("on")
                .doc(
                    "Keeps `ngx.ctx` over internal redirects into the location; `off` clears \
                     it, as OpenResty does. Weir's own.",
                ),
            LuaRow::new("lua_need_request_body", ANY_OR_IF, FLAG, |conf, line| line.flag(&mut conf.need_body))
                .syntax("lua_need_request_body on | off")
                .default("off")
                .doc("Reads the request body before rewrite, access and content code runs."),
            LuaRow::new("lua_ssl_protocols", SETTINGS, MORE, |conf, line| {
                conf.sockets.has_ssl = true;
                conf.sockets.ssl.set_protocols(line)
            })
            .syntax("lua_ssl_protocols TLSv1.2 | TLSv1.3 ...")
            .default("TLSv1.2 TLSv1.3")
            .doc("Enabled TLS protocols of `sslhandshake`."),
            LuaRow::new("lua_ssl_ciphers", SETTINGS, ONE, |conf, line| {
                conf.sockets.has_ssl = true;
                conf.sockets.ssl.set_ciphers(line)
            })
            .syntax("lua_ssl_ciphers ciphers")
            .doc("Enabled TLS 1.2 ciphers of `sslhandshake`, as an OpenSSL cipher string."),
            LuaRow::new("lua_ssl_verify_depth", SETTINGS, ONE, |conf, line| {
                conf.sockets.has_ssl = true;
                line.number(&mut conf.sockets.ssl.verify_depth, ..)
            })
            .syntax("lua_ssl_verify_depth number")
            .default("1")
            .doc(
                "Maximum length of the certificate chain between a server's certificate and a \
                 trusted one, for `sslhandshake`.",
            ),
            LuaRow::new("lua_ssl_trusted_certificate", SETTINGS, ONE, |conf, line| {
                conf.sockets.has_ssl = true;
                line.conf_path(&mut conf.sockets.ssl.trusted_certificate)
            })
            .syntax("lua_ssl_trusted_certificate file")
            .doc(
                "Trusted CA certificates in PEM for `sslhandshake`; without them no server \
                 certificate verifies.",
            ),
            LuaRow::new("lua_ssl_crl", SETTINGS, ONE, |conf, line| {
                conf.sockets.has_ssl = true;
                line.conf_path(&mut conf.sockets.ssl.crl)
            })
            .syntax("lua_ssl_crl file")
            .doc("Certificate revocation lists in PEM for `sslhandshake`."),
            LuaRow::new("lua_ssl_certificate", SETTINGS, ONE, |conf, line| {
                conf.sockets.has_ssl = true;
                conf.sockets.ssl.set_certificate(line)
            })
            .syntax("lua_ssl_certificate file")
            .doc("Client certificate of `sslhandshake` in PEM."),
            LuaRow::new("lua_ssl_certificate_key", SETTINGS, ONE, |conf, line| {
                conf.sockets.has_ssl = true;
                conf.sockets.ssl.set_certificate_key(line)
            })
            .syntax("lua_ssl_certificate_key file")
            .doc("Private key of the client certificate in PEM."),
            LuaRow::new("lua_ssl_key_log", SETTINGS, ONE, |conf, line| {
                conf.sockets.has_ssl = true;
                line.conf_path(&mut conf.sockets.ssl.key_log)
            })
            .syntax("lua_ssl_key_log file")
            .doc(
                "File to which TLS secrets of `sslhandshake` are appended, for tools that \
                 decrypt recorded connections.",
            ),
            LuaRow::new("lua_ssl_conf_command", SETTINGS, TWO, |conf, line| {
                conf.sockets.has_ssl = true;
                conf.sockets.ssl.set_conf_command(line)
            })
            .syntax("lua_ssl_conf_command name value")
            .doc(
                "Sets an OpenSSL command for `sslhandshake`, as `proxy_ssl_conf_command` does for \
                 servers of `proxy_pass`.",
            ),
            LuaRow::new("lua_socket_connect_timeout", SETTINGS, ONE, |conf, line| line.time_ms(&mut conf.sockets.connect_timeout))
                .syntax("lua_socket_connect_timeout time")
                .default("60s")
                .doc("Timeout for a socket's `connect`."),
            LuaRow::new("lua_socket_send_timeout", SETTINGS, ONE, |conf, line| line.time_ms(&mut conf.sockets.send_timeout))
                .syntax("lua_socket_send_timeout time")
                .default("60s")
                .doc("Timeout between two successive writes of a socket's `send`."),
            LuaRow::new("lua_socket_read_timeout", SETTINGS, ONE, |conf, line| line.time_ms(&mut conf.sockets.read_timeout))
                .syntax("lua_socket_read_timeout time")
                .default("60s")
                .doc("Timeout between two successive reads of a socket's `receive`."),
            LuaRow::new("lua_socket_keepalive_timeout", SETTINGS, ONE, |conf, line| line.time_ms(&mut conf.sockets.keepalive_timeout))
                .syntax("lua_socket_keepalive_timeout time")
                .default("60s")
                .doc("Maximum idle time of connections that `setkeepalive` keeps; 0 is no limit."),
            LuaRow::new("lua_socket_pool_size", SETTINGS, ONE, |conf, line| line.number(&mut conf.sockets.pool_size, 1..))
                .syntax("lua_socket_pool_size number")
                .default("30")
                .doc("Maximum number of idle connections in each of a worker's connection pools."),
            LuaRow::new("lua_socket_buffer_size", SETTINGS, ONE, |conf, line| line.size(&mut conf.sockets.buffer_size))
                .syntax("lua_socket_buffer_size size")
                .default("4k")
                .doc("Maximum number of bytes that `receiveany` returns at once."),
            LuaRow::new("lua_socket_send_lowat", SETTINGS, ONE, |conf, line| conf.sockets.lowat(line))
                .syntax("lua_socket_send_lowat size")
                .default("0")
                .doc("Accepted with a warning, without effect: Linux has no `SO_SNDLOWAT`."),
            LuaRow::new("lua_socket_log_errors", SETTINGS, FLAG, |conf, line| line.flag(&mut conf.sockets.log_errors))
                .syntax("lua_socket_log_errors on | off")
                .default("on")
                .doc("Logs socket errors to the error log."),
            LuaRow::new("lua_use_default_type", ANY_OR_IF, FLAG, |conf, line| {
                line.flag(&mut conf.use_default_type)
            })
            .syntax("lua_use_default_type on | off")
            .default("on")
            .doc("Sets the MIME type of `default_type` for responses of content code."),
        ]
    };
}

impl Module for Lua {
    const NAME: &'static str = "lua";
    type Conf = LuaConf;
    const DIRECTIVES: &'static [LuaRow] = scripts! {
        "init_by_lua_block" "init_by_lua" "init_by_lua_file", MAINS, ScriptPhase::Init, "Runs Lua code once in each worker's VM, before the worker serves requests.";
        "init_worker_by_lua_block" "init_worker_by_lua" "init_worker_by_lua_file", MAINS, ScriptPhase::InitWorker, "Runs Lua code in each worker's VM, after `init_by_lua`.";
        "exit_worker_by_lua_block" "exit_worker_by_lua" "exit_worker_by_lua_file", MAINS, ScriptPhase::ExitWorker, "Runs Lua code in each worker's VM when the worker exits, after its last request.";
        "server_rewrite_by_lua_block" "server_rewrite_by_lua" "server_rewrite_by_lua_file", SERVER_REWRITES, ScriptPhase::ServerRewrite, "Runs Lua code in the server's rewrite phase, before the directives of the rewrite module, as in OpenResty.";
        "rewrite_by_lua_block" "rewrite_by_lua" "rewrite_by_lua_file", ANY_OR_IF, ScriptPhase::Rewrite, "Runs Lua code in the rewrite phase, after the directives of the rewrite module.";
        "access_by_lua_block" "access_by_lua" "access_by_lua_file", ANY_OR_IF, ScriptPhase::Access, "Runs Lua code in the access phase, after `allow`, `deny` and `auth_request`.";
        "precontent_by_lua_block" "precontent_by_lua" "precontent_by_lua_file", ANY_OR_IF, ScriptPhase::Precontent, "Runs Lua code before the content handler, after `try_files`.";
        "content_by_lua_block" "content_by_lua" "content_by_lua_file", CONTENTS, ScriptPhase::Content, "Runs Lua code as the content handler, which makes the response.";
        "preread_by_lua_block" "preread_by_lua" "preread_by_lua_file", STREAM_ANY, ScriptPhase::Preread, "Runs Lua code at the end of a session's preread phase, before its content; it may look at the client's first bytes (`ngx.req.socket`).";
        "header_filter_by_lua_block" "header_filter_by_lua" "header_filter_by_lua_file", ANY_OR_IF, ScriptPhase::HeaderFilter, "Runs Lua code on the response header, which it may change.";
        "body_filter_by_lua_block" "body_filter_by_lua" "body_filter_by_lua_file", ANY_OR_IF, ScriptPhase::BodyFilter, "Runs Lua code on each piece of the response body, which it may change (`ngx.arg`).";
        "log_by_lua_block" "log_by_lua" "log_by_lua_file", SETTINGS, ScriptPhase::Log, "Runs Lua code in the log phase, after the response is sent.";
        unquoted:
        "ssl_client_hello_by_lua_block" "ssl_client_hello_by_lua_file", HERE, ScriptPhase::SslClientHello, "Runs Lua code on the ClientHello of a TLS handshake, before parameters are chosen; it may yield.";
        "ssl_certificate_by_lua_block" "ssl_certificate_by_lua_file", HERE, ScriptPhase::SslCertificate, "Runs Lua code that chooses the certificate of a TLS handshake, by `ngx.ssl`; it may yield.";
        "ssl_session_fetch_by_lua_block" "ssl_session_fetch_by_lua_file", HTTP, ScriptPhase::SslSessionFetch, "Runs Lua code that looks up a TLS 1.2 session by its ID; it may yield.";
        "proxy_ssl_certificate_by_lua_block" "proxy_ssl_certificate_by_lua_file", UPSTREAM_TLS, ScriptPhase::ProxySslCertificate, "Runs Lua code that chooses the client certificate for an upstream TLS connection; it may yield.";
        "proxy_ssl_verify_by_lua_block" "proxy_ssl_verify_by_lua_file", UPSTREAM_TLS, ScriptPhase::ProxySslVerify, "Runs Lua code that verifies the certificate of an upstream server before a request is sent; it may yield.";
        "ssl_session_store_by_lua_block" "ssl_session_store_by_lua_file", HTTP, ScriptPhase::SslSessionStore, "Runs Lua code that stores a new TLS 1.2 session.";
    };

    const VARIABLES: &'static [Variable] = VARIABLES;

    const ALONE: bool = true;

    const HOOKS: BuildHooks<LuaConf> = BuildHooks { prepare: Some(install::prepare), ..BuildHooks::NONE };

    fn nest(conf: &mut LuaConf, parent: &LuaConf, block: UnnamedBlock) {
        // The methods of a `limit_except` have no content handler but files, as in OpenResty.
        if block == UnnamedBlock::If {
            inherit!(conf, parent, content);
        }
    }

    fn inherit(conf: &mut LuaConf, parent: &LuaConf) {
        inherit!(
            conf,
            parent,
            server_rewrite,
            rewrite,
            access,
            precontent,
            preread,
            header_filter,
            body_filter,
            log,
            need_body,
            use_default_type,
            code_cache,
            check_client_abort,
            http10_buffering,
            underscores,
            ctx_keep
        );
        let (own, around) = (&mut conf.secure, &parent.secure);
        inherit!(own, around, client_hello, certificate, session_fetch, session_store);
        inherit!(own, around, shown, verify, judges_alone);
        conf.sockets.inherit(&parent.sockets);
        let (main, parent) = (&mut conf.main, &parent.main);
        inherit!(
            main,
            parent,
            package_path,
            package_cpath,
            openssl,
            init,
            init_worker,
            exit_worker,
            thread_cache,
            regex_cache,
            regex_limit,
            captured,
            malloc_trim,
            cpu_limit,
            memory_limit,
            coroutines,
            pending_timers,
            running_timers,
            thread_vms,
            yields
        );
        inherit!(main, parent, rewrite_first, access_first, precontent_first, preread_first);
        if main.dicts.is_empty() {
            main.dicts = parent.dicts.clone();
        }
    }

    fn resolve(conf: &mut LuaConf, registry: &mut ConfRegistry) -> Result {
        registry.shared::<install::FirstInit>();
        conf.main.stream = registry.is_stream;
        conf.sockets.resolve(registry)
    }

    fn install(conf: &LuaConf, plan: &mut PlanBuilder<'_>) {
        install::install(conf, plan);
    }
}
