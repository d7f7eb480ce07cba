//! Directives outside of `http`: the process, its workers, `events`.

mod set;
#[cfg(test)]
mod tests;

use weir_conf::names::*;
use weir_conf::{Directive, Result};

use super::registry::ConfRegistry;
use crate::log::ErrorLog;
use crate::module::Module;
use crate::settings::main::{DebugPoints, MainConf};

/// The module of the main context and of `events`.
pub struct MainCore;

impl Module for MainCore {
    const NAME: &'static str = "core";
    type Conf = MainConf;
    const DIRECTIVES: &'static [Directive<MainConf>] = TABLE;

    /// Opens the error log; only the main context's settings have one.
    fn resolve(conf: &mut MainConf, _registry: &mut ConfRegistry) -> Result {
        if let Some(specs) = &conf.error_log
            && conf.error_log_open.is_none()
        {
            conf.error_log_open = Some(ErrorLog::open(specs)?);
        }
        Ok(())
    }
}

// The alias gives the closures of the table what `c` is.
type MainRow = Directive<MainConf>;

const TABLE: &[MainRow] = &[
    // The process.
    MainRow::new("user", MAIN, ONE_OR_TWO, set::user).syntax("user user [group | =primary]").doc(
        "User and group of worker processes, if the master process runs as root. By \
             default the user is `nobody`, and the group is the one with the user's name; `=primary` is the user's own.",
    ),
    MainRow::new("daemon", MAIN, FLAG, |c, line| line.flag(&mut c.daemon))
        .syntax("daemon on | off")
        .default("on")
        .doc("Runs in the background."),
    MainRow::new("master_process", MAIN, FLAG, |c, line| line.flag(&mut c.master_process))
        .syntax("master_process on | off")
        .default("on")
        .doc(
            "Starts worker processes below a master that keeps its privileges; `off` runs all \
             in one process.",
        ),
    MainRow::new("master_gone", MAIN, ONE, set::master_gone)
        .syntax("master_gone serve | quit")
        .default("serve")
        .doc(
            "What the server does when its master process is gone without having ended it, as after `kill -9`. `serve`: it \
             serves on, and the next master takes its listening sockets over. `quit`: it ends gracefully. Weir's own.",
        ),
    MainRow::new("pid", MAIN, ONE, |c, line| line.path(&mut c.pid))
        .syntax("pid file")
        .default("logs/nginx.pid")
        .doc("File that holds the process ID of the master process."),
    MainRow::new("lock_file", MAIN, ONE, |c, line| line.path(&mut c.lock_file))
        .syntax("lock_file file")
        .default("logs/nginx.lock")
        .doc(
            "Accepted for compatibility with nginx, without effect: workers are threads and \
             share no lock.",
        ),
    MainRow::new("error_log", MAIN, MORE, set::error_log)
        .syntax("error_log file [level]")
        .default("logs/error.log error")
        .doc(
            "Error log: a file, `stderr`, or `syslog:...`. Level: `debug`, `info`, `notice`, \
             `warn`, `error`, `crit`, `alert` or `emerg`. Several lines write to several \
             logs.",
        )
        .example("error_log logs/error.log warn;"),
    MainRow::new("working_directory", MAIN, ONE, |c, line| line.path(&mut c.working_directory))
        .syntax("working_directory directory")
        .doc("Working directory of worker processes, where core files are written."),
    MainRow::new("env", MAIN, ONE, set::env).syntax("env variable[=value]").doc(
        "Keeps an environment variable for worker processes, or sets it; others but `TZ` \
             are removed.",
    ),
    MainRow::new("load_module", MAIN, ONE, set::load_module)
        .syntax("load_module file")
        .doc("Ignored for modules that are known, as they are built in; others are refused."),
    MainRow::new("ssl_engine", MAIN, ONE, set::ssl_engine)
        .syntax("ssl_engine device")
        .doc("Refused: there are no OpenSSL engines."),
    MainRow::new("pcre_jit", MAIN, FLAG, |c, line| line.flag(&mut c.pcre_jit))
        .syntax("pcre_jit on | off")
        .default("on")
        .doc(
            "Accepted for compatibility with nginx: regular expressions are compiled to \
             machine code wherever possible.",
        ),
    MainRow::new("debug_points", MAIN, ONE, |c, line| line.one_of(&mut c.debug_points, DEBUG_POINTS))
        .syntax("debug_points abort | stop")
        .doc("Accepted for compatibility with nginx, without effect: there are no debug points."),
    MainRow::new("thread_pool", MAIN, TWO_OR_THREE, set::thread_pool)
        .syntax("thread_pool name threads=number [max_queue=number]")
        .default("default threads=32 max_queue=65536")
        .doc(
            "Accepted for compatibility with nginx: one pool, which grows as needed, reads \
             files. `ngx.run_worker_thread` names pools, too.",
        ),
    MainRow::new("timer_resolution", MAIN, ONE, |c, line| line.time_ms(&mut c.timer_resolution))
        .syntax("timer_resolution interval")
        .doc(
            "Accepted for compatibility with nginx, without effect: the clock is read once \
             per turn of the event loop.",
        ),
    // The workers.
    MainRow::new("worker_processes", MAIN, ONE, set::worker_processes)
        .syntax("worker_processes number | auto")
        .default("1")
        .doc(
            "Number of workers, which are threads; `auto` starts one per CPU that the process \
             may use.",
        )
        .example("worker_processes auto;\nworker_cpu_affinity auto;"),
    MainRow::new("worker_priority", MAIN, ONE, set::worker_priority)
        .syntax("worker_priority number")
        .default("0")
        .doc("Scheduling priority of workers, as for `nice`: from -20 (most favourable) to 19."),
    MainRow::new("ssl_key_pool", MAIN, ONE_OR_TWO, set::key_pool)
        .syntax("ssl_key_pool threads=number [nice=number]\nssl_key_pool nice=number")
        .doc(
            "Threads for slow private key operations: `threads` at most (by default one per \
             CPU), with the priority `nice`, from 0 to 19 (15). Weir's own.",
        ),
    MainRow::new("worker_cpu_affinity", MAIN, MORE, set::worker_cpu_affinity)
        .syntax("worker_cpu_affinity mask ...\nworker_cpu_affinity auto [mask]")
        .doc(
            "Binds workers to CPUs. There is a bit mask for each worker, or `auto` for one CPU \
             each of those that the process may use (or that the mask has). `auto` takes cores \
             before their second threads, and one NUMA node after the other.",
        ),
    MainRow::new("worker_rlimit_nofile", MAIN, ONE, |c, line| line.number(&mut c.worker_rlimit_nofile, 0..))
        .syntax("worker_rlimit_nofile number")
        .doc("Limit on open files of worker processes (`RLIMIT_NOFILE`)."),
    MainRow::new("worker_rlimit_core", MAIN, ONE, |c, line| line.offset(&mut c.worker_rlimit_core))
        .syntax("worker_rlimit_core size")
        .doc("Limit on the size of core files of worker processes (`RLIMIT_CORE`)."),
    MainRow::new("worker_shutdown_timeout", MAIN, ONE, |c, line| {
        line.time_ms(&mut c.worker_shutdown_timeout)
    })
    .syntax("worker_shutdown_timeout time")
    .doc(
        "Timeout of a graceful shutdown; after it open connections are closed. By default \
             there is no limit.",
    ),
    // Events.
    MainRow::new("use", EVENTS, ONE, set::driver)
        .syntax("use method")
        .doc("I/O driver: `io_uring` or `epoll`. By default the best that works is found by probing."),
    MainRow::new("worker_connections", EVENTS, ONE, set::worker_connections)
        .syntax("worker_connections number")
        .default("512")
        .doc("Maximum number of simultaneous connections of a worker, upstream connections included.")
        .example("events {\n    worker_connections 4096;\n}"),
    MainRow::new("multi_accept", EVENTS, FLAG, set::multi_accept)
        .syntax("multi_accept on | off")
        .default("on")
        .doc(
            "Accepted for compatibility with nginx; it is always on: a worker accepts all \
             waiting connections, a bounded number at a time. `off` is noted in the log.",
        ),
    MainRow::new("accept_mutex", EVENTS, FLAG, set::accept_mutex)
        .syntax("accept_mutex on | off")
        .default("off")
        .doc("Accepted for compatibility with nginx; it is always off. `on` is noted in the log."),
    MainRow::new("accept_mutex_delay", EVENTS, ONE, set::accept_mutex_delay)
        .syntax("accept_mutex_delay time")
        .default("500ms")
        .doc("Accepted for compatibility with nginx, with a note in the log: there is no accept mutex."),
    MainRow::new("debug_connection", EVENTS, ONE, set::debug_connection)
        .syntax("debug_connection address | CIDR | unix:")
        .doc("Logs connections from this address or network at all levels, to all error logs."),
    MainRow::new("worker_aio_requests", EVENTS, ONE, |c, line| line.number(&mut c.worker_aio_requests, 0..))
        .syntax("worker_aio_requests number")
        .default("32")
        .doc(
            "Accepted for compatibility with nginx, without effect: a worker's ring has the \
             size that its connections need.",
        ),
    MainRow::new("epoll_events", EVENTS, ONE, |c, line| line.number(&mut c.epoll_events, 0..))
        .syntax("epoll_events number")
        .default("512")
        .doc(
            "Accepted for compatibility with nginx, without effect: the number of events of \
             one wait is not configurable.",
        ),
];

const DEBUG_POINTS: &[(&str, DebugPoints)] = &[("stop", DebugPoints::Stop), ("abort", DebugPoints::Abort)];
