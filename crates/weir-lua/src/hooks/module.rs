//! The module: its directives, and what stands in the plans of blocks that have scripts.

use std::rc::Rc;

use weir_conf::names::{
    ANY_OR_IF, FLAG, HTTP, LOCATION, LOCATION_IF, LUA_BLOCK, MORE, NAMED_LUA_BLOCK, ONE, SERVER, SERVER_IF,
    TWO, TWO_OR_MORE, UPSTREAM,
};
use weir_conf::{Contexts, Directive, Error, Result};
use weir_core::conf::registry::Registry;
use weir_core::filter::Slot;
use weir_core::plan::{Level, PlanBuilder};
use weir_core::variable::Variable;
use weir_core::{Module, Phase as EnginePhase, Unnamed, inherit};
use weir_trace::Kind;

use crate::api::socket;
use crate::api::ssl::{Scripts, UpstreamScripts};
use crate::hooks::balancer::{self, Balancers};
use crate::hooks::conf::{LuaConf, Main};
use crate::hooks::filters::{BodyScript, HeaderScript};
use crate::hooks::malloc_trim;
use crate::hooks::phases::{Home, LogScript, Script};
use crate::hooks::set_by::VmSlot;
use crate::run::variables::VARIABLES;
use crate::vm::chunk::Chunk;
use crate::vm::phase::Phase;
use crate::vm::vm::Vm;

/// The module.
pub struct Lua;

type Row = Directive<LuaConf>;

const CONTENT: Contexts = Contexts::LOCATION.or(LOCATION_IF);
const SETS: Contexts = SERVER.or(SERVER_IF).or(LOCATION).or(LOCATION_IF);
const HERE: Contexts = Contexts::HTTP.or(Contexts::SERVER);

/// The three forms of a phase's script, or two for phases without one in quotes.
macro_rules! scripts {
    ($($name:literal, $contexts:expr, $phase:expr, $doc:literal;)+
     unquoted: $($bare:literal, $places:expr, $when:expr, $about:literal;)+) => {
        &[
            $(
                Row::new(concat!($name, "_by_lua_block"), $contexts, LUA_BLOCK, |conf, line| {
                    conf.block(line, $phase)
                })
                .doc($doc),
                Row::new(concat!($name, "_by_lua"), $contexts, ONE, |conf, line| conf.inline(line, $phase))
                    .doc(concat!("As ", $name, "_by_lua_block, the code in quotes.")),
                Row::new(concat!($name, "_by_lua_file"), $contexts, ONE, |conf, line| conf.file(line, $phase))
                    .doc(concat!("As ", $name, "_by_lua_block, the code in a file, source or bytecode.")),
            )+
            Row::new("balancer_by_lua_block", UPSTREAM, LUA_BLOCK, |_, line| LuaConf::balancer_block(line))
                .doc("Names the server of each try of the group's requests."),
            Row::new("balancer_by_lua", UPSTREAM, ONE, |_, line| LuaConf::balancer_inline(line))
                .doc("As balancer_by_lua_block, the code in quotes."),
            Row::new("balancer_by_lua_file", UPSTREAM, ONE, |_, line| LuaConf::balancer_file(line))
                .doc("As balancer_by_lua_block, the code in a file, source or bytecode."),
            Row::new("balancer_keepalive", UPSTREAM, ONE, |_, line| balancer::keepalive(line))
                .doc("How many idle connections all workers together keep, where keepalive does not say; 32."),
            $(
                Row::new(concat!($bare, "_by_lua_block"), $places, LUA_BLOCK, |conf, line| {
                    conf.block(line, $when)
                })
                .doc($about),
                Row::new(concat!($bare, "_by_lua_file"), $places, ONE, |conf, line| conf.file(line, $when))
                    .doc(concat!("As ", $bare, "_by_lua_block, the code in a file, source or bytecode.")),
            )+
            Row::new("set_by_lua_block", SETS, NAMED_LUA_BLOCK, LuaConf::set_block)
                .doc("Gives a variable what the script returns; at its place among set, if and rewrite."),
            Row::new("set_by_lua", SETS, TWO_OR_MORE, LuaConf::set_inline)
                .doc("As set_by_lua_block, the code in quotes, with arguments that the script has as ngx.arg."),
            Row::new("set_by_lua_file", SETS, TWO_OR_MORE, LuaConf::set_file)
                .doc("As set_by_lua, the code in a file, source or bytecode."),
            Row::new("lua_package_path", HTTP, ONE, |conf, line| line.text(&mut conf.main.package_path))
                .doc("Where modules in Lua are looked for; \";;\" stands for the usual places, \"$prefix\" for the prefix."),
            Row::new("lua_package_cpath", HTTP, ONE, |conf, line| line.text(&mut conf.main.package_cpath))
                .doc("Where modules in C are looked for."),
            Row::new("lua_shared_dict", HTTP, TWO, LuaConf::dict)
                .doc("A dictionary of so many bytes that all workers share, kept over reloads."),
            Row::new("lua_thread_cache_max_entries", HTTP, ONE, |conf, line| {
                line.number(&mut conf.main.thread_cache, ..)
            })
            .doc("How many coroutines a worker keeps for further requests; 1024."),
            Row::new("lua_regex_cache_max_entries", HTTP, ONE, |conf, line| {
                line.number(&mut conf.main.regex_cache, ..)
            })
            .doc("How many patterns with the option o a worker keeps; 1024."),
            Row::new("lua_regex_match_limit", HTTP, ONE, |conf, line| line.number(&mut conf.main.regex_limit, ..))
                .doc("Steps after which a match is given up; 0, the default, is PCRE2's 10,000,000."),
            Row::new("lua_capture_error_log", HTTP, ONE, LuaConf::capture_error_log)
                .doc("Keeps so many bytes of each worker's last lines of the error log for ngx.errlog; off."),
            Row::new("lua_malloc_trim", HTTP, ONE, |conf, line| line.number(&mut conf.main.malloc_trim, ..))
                .doc("Gives memory back to the system after so many requests of a worker; 0, the default, for never."),
            Row::new("lua_sa_restart", HTTP, FLAG, LuaConf::sa_restart)
                .doc("System calls of scripts go on behind a signal; on, and can't be turned off."),
            Row::new("lua_load_resty_core", HTTP, FLAG, LuaConf::load_resty_core)
                .doc("Without effect: what lua-resty-core has is part of the server."),
            Row::new("lua_cpu_limit", HTTP, ONE, |conf, line| line.time_ms(&mut conf.main.cpu_limit))
                .doc("CPU time after which scripts that have not waited meanwhile are ended by an error; 0, the default, is no limit."),
            Row::new("lua_memory_limit", HTTP, ONE, |conf, line| line.size(&mut conf.main.memory_limit))
                .doc("Bytes that a worker's VM may allocate, above which scripts fail; 0, the default, is no limit."),
            Row::new("lua_max_coroutines", HTTP, ONE, |conf, line| line.number(&mut conf.main.coroutines, 1..))
                .doc("Coroutines and light threads that a request may have at a time; 16384."),
            Row::new("lua_max_pending_timers", HTTP, ONE, |conf, line| {
                line.number(&mut conf.main.pending_timers, ..)
            })
            .doc("Timers of a worker that may wait for their time; 1024."),
            Row::new("lua_max_running_timers", HTTP, ONE, |conf, line| {
                line.number(&mut conf.main.running_timers, ..)
            })
            .doc("Timers of a worker that may run at a time; those that are due beyond are dropped; 256."),
            Row::new("lua_yield_everywhere", HTTP, FLAG, |conf, line| line.flag(&mut conf.main.yields))
                .doc("init_worker_by_lua may wait, and the worker serves when it is done; off."),
            Row::new("lua_worker_thread_vm_pool_size", HTTP, ONE, |conf, line| {
                line.number(&mut conf.main.thread_vms, 1..)
            })
            .doc("VMs, one for each thread, that a thread_pool has for ngx.run_worker_thread in a worker at most; 100."),
            Row::new("rewrite_by_lua_no_postpone", HTTP, FLAG, |conf, line| {
                line.flag(&mut conf.main.rewrite_first)
            })
            .doc("Runs rewrite_by_lua before the other handlers of its phase; off."),
            Row::new("access_by_lua_no_postpone", HTTP, FLAG, |conf, line| line.flag(&mut conf.main.access_first))
                .doc("Runs access_by_lua before the other handlers of its phase; off."),
            Row::new("precontent_by_lua_no_postpone", HTTP, FLAG, |conf, line| {
                line.flag(&mut conf.main.precontent_first)
            })
            .doc("Runs precontent_by_lua before the other handlers of its phase; off."),
            Row::new("lua_upstream_skip_openssl_default_verify", CONTENT, FLAG, |conf, line| {
                line.flag(&mut conf.secure.judges_alone)
            })
            .doc("proxy_ssl_verify_by_lua alone judges servers' certificates; off."),
            Row::new("lua_code_cache", ANY_OR_IF, FLAG, LuaConf::code_cache)
                .doc("Off: each request has a VM of its own and reads its scripts anew, for development; on."),
            Row::new("lua_check_client_abort", ANY_OR_IF, FLAG, |conf, line| {
                line.flag(&mut conf.check_client_abort)
            })
            .doc("Ends waiting scripts whose client has left, or calls what ngx.on_abort was given; off."),
            Row::new("lua_http10_buffering", ANY_OR_IF, FLAG, |conf, line| {
                line.flag(&mut conf.http10_buffering)
            })
            .doc("Answers HTTP/1.0 in one piece, with its length; on."),
            Row::new("lua_transform_underscores_in_response_headers", ANY_OR_IF, FLAG, |conf, line| {
                line.flag(&mut conf.underscores)
            })
            .doc("Names given to ngx.header have hyphens for underscores; on."),
            Row::new("lua_ctx_keep", ANY_OR_IF, FLAG, |conf, line| line.flag(&mut conf.ctx_keep))
                .doc("ngx.ctx survives internal redirects into the location; on. OpenResty's way is off."),
            Row::new("lua_need_request_body", ANY_OR_IF, FLAG, |conf, line| line.flag(&mut conf.need_body))
                .doc("Reads the request's body before rewrite, access and content scripts."),
            Row::new("lua_ssl_protocols", ANY_OR_IF, MORE, |conf, line| {
                conf.sockets.has_ssl = true;
                conf.sockets.ssl.set_protocols(line)
            })
            .doc("TLSv1.2, TLSv1.3 for sslhandshake; both."),
            Row::new("lua_ssl_ciphers", ANY_OR_IF, ONE, |conf, line| {
                conf.sockets.has_ssl = true;
                conf.sockets.ssl.set_ciphers(line)
            })
            .doc("The ciphers of TLS 1.2 that sslhandshake offers, in OpenSSL's language."),
            Row::new("lua_ssl_verify_depth", ANY_OR_IF, ONE, |conf, line| {
                conf.sockets.has_ssl = true;
                line.number(&mut conf.sockets.ssl.verify_depth, ..)
            })
            .doc("The most certificates between a server's and a trusted one, for sslhandshake; 1."),
            Row::new("lua_ssl_trusted_certificate", ANY_OR_IF, ONE, |conf, line| {
                conf.sockets.has_ssl = true;
                line.conf_path(&mut conf.sockets.ssl.trusted_certificate)
            })
            .doc("Whom the certificates must come from that sslhandshake verifies; nobody."),
            Row::new("lua_ssl_crl", ANY_OR_IF, ONE, |conf, line| {
                conf.sockets.has_ssl = true;
                line.conf_path(&mut conf.sockets.ssl.crl)
            })
            .doc("Lists of revoked certificates, for sslhandshake."),
            Row::new("lua_ssl_certificate", ANY_OR_IF, ONE, |conf, line| {
                conf.sockets.has_ssl = true;
                conf.sockets.ssl.set_certificate(line)
            })
            .doc("The certificate that sslhandshake shows, in PEM."),
            Row::new("lua_ssl_certificate_key", ANY_OR_IF, ONE, |conf, line| {
                conf.sockets.has_ssl = true;
                conf.sockets.ssl.set_certificate_key(line)
            })
            .doc("Its key, in PEM."),
            Row::new("lua_ssl_key_log", ANY_OR_IF, ONE, |conf, line| {
                conf.sockets.has_ssl = true;
                line.conf_path(&mut conf.sockets.ssl.key_log)
            })
            .doc("A file that secrets of sslhandshake's connections are appended to, for who records them; none."),
            Row::new("lua_ssl_conf_command", ANY_OR_IF, TWO, |conf, line| {
                conf.sockets.has_ssl = true;
                conf.sockets.ssl.set_conf_command(line)
            })
            .doc("OpenSSL's commands Ciphersuites, Groups, Curves, CipherString, for sslhandshake."),
            Row::new("lua_socket_connect_timeout", ANY_OR_IF, ONE, |conf, line| line.time_ms(&mut conf.sockets.connect_timeout))
                .doc("How long a socket's connect may take; 60s."),
            Row::new("lua_socket_send_timeout", ANY_OR_IF, ONE, |conf, line| line.time_ms(&mut conf.sockets.send_timeout))
                .doc("How long a socket's peer may take nothing of what is sent; 60s."),
            Row::new("lua_socket_read_timeout", ANY_OR_IF, ONE, |conf, line| line.time_ms(&mut conf.sockets.read_timeout))
                .doc("How long a socket waits for further bytes; 60s."),
            Row::new("lua_socket_keepalive_timeout", ANY_OR_IF, ONE, |conf, line| line.time_ms(&mut conf.sockets.keepalive_timeout))
                .doc("How long setkeepalive keeps a connection that nobody uses; 60s, 0 for ever."),
            Row::new("lua_socket_pool_size", ANY_OR_IF, ONE, |conf, line| line.number(&mut conf.sockets.pool_size, 1..))
                .doc("How many connections setkeepalive keeps for each pool of a worker; 30."),
            Row::new("lua_socket_buffer_size", ANY_OR_IF, ONE, |conf, line| line.size(&mut conf.sockets.buffer_size))
                .doc("How many bytes receiveany gives at most; 4k."),
            Row::new("lua_socket_send_lowat", ANY_OR_IF, ONE, |conf, line| conf.sockets.lowat(line))
                .doc("Without effect on this system, as is told."),
            Row::new("lua_socket_log_errors", ANY_OR_IF, FLAG, |conf, line| line.flag(&mut conf.sockets.log_errors))
                .doc("Logs what goes wrong with sockets; on."),
            Row::new("lua_use_default_type", ANY_OR_IF, FLAG, |conf, line| {
                line.flag(&mut conf.use_default_type)
            })
            .doc("Gives answers of content scripts the type of \"default_type\"; on."),
        ]
    };
}

impl Module for Lua {
    const NAME: &'static str = "lua";
    type Conf = LuaConf;
    const DIRECTIVES: &'static [Row] = scripts! {
        "init", HTTP, Phase::Init, "Runs once in each worker's VM before it serves.";
        "init_worker", HTTP, Phase::InitWorker, "Runs in each worker's VM behind init.";
        "exit_worker", HTTP, Phase::ExitWorker, "Runs in each worker's VM when its last request is over, before it goes.";
        "server_rewrite", HERE, Phase::ServerRewrite, "Runs in the server rewrite phase, behind rewrite's directives.";
        "rewrite", ANY_OR_IF, Phase::Rewrite, "Runs in the rewrite phase, behind rewrite's directives.";
        "access", ANY_OR_IF, Phase::Access, "Runs in the access phase, behind allow, deny and auth_request.";
        "precontent", ANY_OR_IF, Phase::Precontent, "Runs before content, behind try_files.";
        "content", CONTENT, Phase::Content, "Answers the request.";
        "header_filter", ANY_OR_IF, Phase::HeaderFilter, "Sees and changes the head of answers.";
        "body_filter", ANY_OR_IF, Phase::BodyFilter, "Sees and changes the body of answers, piece by piece.";
        "log", ANY_OR_IF, Phase::Log, "Runs when the request is over.";
        unquoted:
        "ssl_client_hello", HERE, Phase::SslClientHello, "Runs when a client has begun a handshake, before anything is chosen; it may wait.";
        "ssl_certificate", HERE, Phase::SslCertificate, "Chooses a handshake's certificates; it may wait.";
        "ssl_session_fetch", HTTP, Phase::SslSessionFetch, "Finds the session that a client of TLS 1.2 names; it may wait.";
        "proxy_ssl_certificate", CONTENT, Phase::ProxySslCertificate, "Chooses the certificate that a server is shown; it may wait.";
        "proxy_ssl_verify", CONTENT, Phase::ProxySslVerify, "Judges a server's certificate, before a byte is sent to it; it may wait.";
        "ssl_session_store", HTTP, Phase::SslSessionStore, "Keeps a session that a handshake of TLS 1.2 has made.";
    };

    const VARIABLES: &'static [Variable] = VARIABLES;

    const ALONE: bool = true;

    fn nest(conf: &mut LuaConf, parent: &LuaConf, block: Unnamed) {
        // The methods of a `limit_except` have no content handler but files, as in OpenResty.
        if block == Unnamed::If {
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
        inherit!(main, parent, rewrite_first, access_first, precontent_first);
        if main.dicts.is_empty() {
            main.dicts = parent.dicts.clone();
        }
    }

    fn resolve(conf: &mut LuaConf, registry: &mut Registry) -> Result {
        conf.sockets.resolve(registry)
    }

    fn install(conf: &LuaConf, plan: &mut PlanBuilder<'_>) -> Result {
        if plan.level == Level::Alone {
            plan.keep(conf.settings());
            plan.keep(socket::Settings::new(&conf.sockets, plan.core));
            if conf.main.has_scripts() {
                vm_of(conf, plan)?;
            }
            return Ok(());
        }
        if let Some(every) = conf.main.malloc_trim.filter(|every| *every > 0) {
            let count = plan.link.local(|| Ok::<_, Error>(Rc::new(malloc_trim::Count::default())))?;
            plan.handler(EnginePhase::Log, "lua_malloc_trim", malloc_trim::Trim::new(every, count));
        }
        let balances = plan.link.configuration.tables.shared::<Balancers>().is_some_and(|any| any.0);
        if !conf.has_scripts() && !conf.main.has_scripts() && !balances {
            return Ok(());
        }
        let link = plan.link.clone();
        let vm = vm_of(conf, plan)?;
        let slot = link.local(|| Ok::<_, Error>(Rc::new(VmSlot::default())))?;
        let settings = conf.settings();
        let home = Home::new(&vm, &settings);
        slot.0.get_or_init(|| home.clone());
        plan.keep(settings);
        plan.keep(home.clone());
        plan.keep(socket::Settings::new(&conf.sockets, plan.core));
        let of_server = plan.level == Level::Server;
        let handlers = [
            (&conf.server_rewrite, EnginePhase::ServerRewrite, Phase::ServerRewrite, of_server),
            (&conf.rewrite, EnginePhase::Rewrite, Phase::Rewrite, true),
            (&conf.access, EnginePhase::Access, Phase::Access, true),
            (&conf.precontent, EnginePhase::Precontent, Phase::Precontent, true),
        ];
        let main = &conf.main;
        let first = |phase| match phase {
            Phase::Rewrite => main.rewrite_first == Some(true),
            Phase::Access => main.access_first == Some(true),
            Phase::Precontent => main.precontent_first == Some(true),
            _ => false,
        };
        for (source, at, phase, here) in handlers {
            let (Some(source), true) = (source, here) else { continue };
            let script = Script::new(&vm, phase, Chunk::new(source.clone()), settings);
            match first(phase) {
                true => plan.first_handler(at, phase.label(), script),
                false => plan.handler(at, phase.label(), script),
            }
        }
        if of_server && conf.secure.are_for_clients() {
            plan.client_hello(Scripts::new(&home, settings, &conf.secure));
        }
        if conf.secure.are_for_servers() {
            plan.upstream_handshakes(UpstreamScripts::new(&home, settings, &conf.secure));
        }
        if let Some(source) = &conf.content {
            let script = Script::new(&vm, Phase::Content, Chunk::new(source.clone()), settings);
            plan.content(Phase::Content.label(), script);
        }
        if let Some(source) = &conf.log {
            plan.handler(EnginePhase::Log, Phase::Log.label(), LogScript::new(&home, source));
        }
        if let Some(source) = &conf.header_filter {
            plan.header_filter(Slot::Aux, Phase::HeaderFilter.label(), HeaderScript::new(&home, source));
        }
        if let Some(source) = &conf.body_filter {
            let site = plan.site(Kind::BodyFilter, Phase::BodyFilter.label());
            plan.header_filter(Slot::Aux, Phase::BodyFilter.label(), BodyScript::new(&home, source, site));
        }
        Ok(())
    }
}

/// The VM of the configuration on its worker.
fn vm_of(conf: &LuaConf, plan: &PlanBuilder<'_>) -> Result<Rc<Vm>> {
    let (link, worker) = (plan.link, plan.worker.id);
    link.local(|| {
        let configuration = &link.configuration;
        let main = Main {
            prefix: configuration.prefix.clone(),
            workers: configuration.main.workers(),
            one_process: !configuration.main.master_process(),
            worker: Some(worker),
            ..conf.main.clone()
        };
        Vm::start(main, Rc::downgrade(link)).map_err(Error::new)
    })
}
