//! Directives outside of `http`: the process, its workers, `events`.

mod cpus;
mod set;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use weir_conf::names::*;
use weir_conf::{Directive, Result};
use weir_rt::DriverChoice;
use weir_rt::process::{self, SystemUser};

use self::cpus::CpuTopology;
use super::registry::ConfRegistry;
use crate::cidr::Cidr;
use crate::log::{ErrorLog, LogSpec};
use crate::module::Module;
use crate::privileged;

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

/// The settings outside of `http` as written, `None` where nothing was; methods give them with nginx's defaults.
#[derive(Clone, Default)]
pub struct MainConf {
    /// `user`: the user, and the id of the group to run as. `None`: the defaults of nginx, by [`MainConf`]'s methods.
    pub user: Option<(SystemUser, u32)>,
    /// `worker_processes`: a number, or `auto`.
    pub worker_processes: Option<WorkerProcesses>,
    /// `pid`: the path of the file with the master's process id.
    pub pid: Option<PathBuf>,
    /// `lock_file`: a path; only checked.
    pub lock_file: Option<PathBuf>,
    /// `error_log`: all lines outside of `http`.
    pub error_log: Option<Vec<LogSpec>>,
    /// The logs of `error_log`, once they are open; `None` before.
    pub error_log_open: Option<ErrorLog>,
    /// `daemon`: whether the process goes into the background.
    pub daemon: Option<bool>,
    /// `master_process`: whether a master process supervises the server.
    pub master_process: Option<bool>,
    /// `worker_rlimit_nofile`: the limit of open descriptors, a number.
    pub worker_rlimit_nofile: Option<u64>,
    /// `worker_rlimit_core`, bytes.
    pub worker_rlimit_core: Option<u64>,
    /// `worker_priority`: the niceness of worker threads, -20 to 19.
    pub worker_priority: Option<i32>,
    /// `ssl_key_pool`: the maximum number of threads (`None`: one per CPU) and their niceness, 0 to 19.
    pub key_pool: Option<(Option<usize>, i32)>,
    /// `worker_cpu_affinity`: the CPUs of each worker.
    pub worker_cpu_affinity: Option<CpuAffinity>,
    /// The CPUs of `worker_cpu_affinity auto`, in the order of workers; looked up by the first that asks.
    cpu_order: OnceLock<Vec<usize>>,
    /// `worker_shutdown_timeout`, milliseconds.
    pub worker_shutdown_timeout: Option<u64>,
    /// `working_directory`: a path, the current directory of the server.
    pub working_directory: Option<PathBuf>,
    /// `env`: names, and values where one is given; without, the one that the server was started with stays.
    pub env: Vec<(String, Option<String>)>,
    /// `timer_resolution`, milliseconds.
    pub timer_resolution: Option<u64>,
    /// `pcre_jit`: whether regular expressions are compiled to machine code.
    pub pcre_jit: Option<bool>,
    /// `debug_points`: what an internal inconsistency does to the process.
    pub debug_points: Option<DebugPoints>,
    /// `thread_pool`: the pools in order; empty without a line.
    pub thread_pools: Vec<ThreadPool>,
    /// `use`: io_uring or epoll.
    pub driver: Option<DriverChoice>,
    /// `worker_connections`: the number of connections, of clients and of servers, that a worker may have.
    pub worker_connections: Option<u64>,
    /// `debug_connection`: whose connections are logged at all levels.
    pub debug_connections: Vec<Cidr>,
    /// `multi_accept`; only checked.
    pub multi_accept: Option<bool>,
    /// `accept_mutex`; only checked.
    pub accept_mutex: Option<bool>,
    /// `accept_mutex_delay`, milliseconds.
    pub accept_mutex_delay: Option<u64>,
    /// `worker_aio_requests`: a number; only checked.
    pub worker_aio_requests: Option<u64>,
    /// `epoll_events`: a number; only checked.
    pub epoll_events: Option<u64>,
    /// Whether there is an `events` block. nginx demands one; what only reads configurations does not.
    pub events: bool,
}

/// `worker_processes`: the number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerProcesses {
    /// As many as CPUs that the process may use.
    Auto,
    /// This many, at least one.
    Number(u8),
}

/// `worker_cpu_affinity`: the CPUs to which workers are bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuAffinity {
    /// Each worker gets a CPU of its own, of those that the process may use and are in the mask.
    Auto(Option<Vec<usize>>),
    /// The CPUs of each worker; the last set is for all further ones.
    Masks(Vec<Vec<usize>>),
}

/// `debug_points`: what an internal inconsistency does to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugPoints {
    /// The process stops itself.
    Stop,
    /// The process ends with a core file.
    Abort,
}

/// `thread_pool name threads=N [max_queue=N]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadPool {
    /// The name, as written.
    pub name: Vec<u8>,
    /// `threads=`: the number of threads.
    pub threads: u64,
    /// `max_queue=`: the number of tasks that may wait for a thread.
    pub max_queue: u64,
}

impl MainConf {
    /// How many worker threads to start; 1.
    pub fn workers(&self) -> usize {
        match self.worker_processes {
            Some(WorkerProcesses::Auto) => process::cpu_count().clamp(1, MOST_WORKERS.into()),
            Some(WorkerProcesses::Number(number)) => number.into(),
            None => 1,
        }
    }

    /// The event driver; by probing.
    pub fn driver(&self) -> DriverChoice {
        self.driver.unwrap_or_default()
    }

    /// Connections of one worker; 512.
    pub fn worker_connections(&self) -> u64 {
        self.worker_connections.unwrap_or(512)
    }

    /// How long requests may go on after the server was asked to end; without limit.
    pub fn shutdown_timeout(&self) -> Option<Duration> {
        self.worker_shutdown_timeout.map(Duration::from_millis)
    }

    /// The file that holds the process' number; `logs/nginx.pid` below the prefix.
    pub fn pid(&self, prefix: &Path) -> PathBuf {
        self.pid.clone().unwrap_or_else(|| prefix.join("logs/nginx.pid"))
    }

    /// Whether the server goes to the background; on.
    pub fn daemon(&self) -> bool {
        self.daemon.unwrap_or(true)
    }

    /// Whether a master process is wanted; on.
    pub fn master_process(&self) -> bool {
        self.master_process.unwrap_or(true)
    }

    /// The user and the group that a server started by root becomes; `None`: it keeps its user. Without `user` that is
    /// nobody, as in nginx, since a master keeps root for what needs it; one process alone goes on as root.
    pub fn run_as(&self) -> Option<(SystemUser, u32)> {
        if !privileged::is_root() {
            return None;
        }
        if self.user.is_some() || !self.master_process() {
            return self.user.clone();
        }
        let user = process::user("nobody").ok().flatten();
        // A container may know no users at all; the number is what Linux calls nobody.
        let user = user.unwrap_or(SystemUser { name: c"nobody".into(), uid: 65_534, gid: 65_534 });
        let group = ["nobody", "nogroup"].iter().find_map(|name| process::group(name).ok().flatten());
        let group = group.unwrap_or(user.gid);
        Some((user, group))
    }

    /// The priority of the workers, as nice(1) counts; 0.
    pub fn priority(&self) -> i32 {
        self.worker_priority.unwrap_or(0)
    }

    /// The threads that use slow keys: how many at most (`None`: as many as there are cores), and their niceness.
    pub fn key_pool(&self) -> (Option<usize>, i32) {
        self.key_pool.unwrap_or((None, weir_rt::blocking::KEYS_NICE))
    }

    /// Whether regular expressions are compiled to machine code. nginx's default is off, for the sake of libraries
    /// without it; Weir's library has it, so it is on.
    pub fn pcre_jit(&self) -> bool {
        self.pcre_jit.unwrap_or(true)
    }

    /// What is right and yet probably not meant, in nginx's words.
    pub(crate) fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if let Some(CpuAffinity::Masks(masks)) = &self.worker_cpu_affinity
            && masks.len() > 1
            && masks.len() != self.workers()
        {
            let text = "the number of \"worker_processes\" is not equal to the number of \"worker_cpu_affinity\" \
                        masks, using last mask for remaining worker processes";
            doubts.push(text.to_owned());
        }
        let open_files = process::limit(process::ResourceLimit::OpenFiles).map_or(u64::MAX, |(soft, _)| soft);
        let connections = self.worker_connections();
        // A limit that is set holds for a worker of nginx once it runs; the one there is now is no matter then.
        if open_files < connections && self.worker_rlimit_nofile.is_none_or(|limit| connections > limit) {
            doubts.push(format!(
                "{connections} worker_connections exceed open file resource limit: {open_files}"
            ));
        }
        doubts
    }

    /// The CPUs that worker `id` may run on; `None`: all.
    pub fn affinity(&self, id: usize) -> Option<Vec<usize>> {
        match self.worker_cpu_affinity.as_ref()? {
            CpuAffinity::Masks(masks) => masks.get(id).or(masks.last()).cloned(),
            CpuAffinity::Auto(mask) => {
                let order = self.cpu_order.get_or_init(|| auto_order(mask.as_deref()));
                Some(vec![*order.get(id % order.len().max(1))?])
            }
        }
    }
}

/// The CPUs that `worker_cpu_affinity auto` gives out. Of a mask that names none that the process may use, those of the mask:
/// binding fails then, and the log says so, as in nginx.
fn auto_order(mask: Option<&[usize]>) -> Vec<usize> {
    // A worker that asks may be bound to one already.
    let allowed = process::process_affinity().unwrap_or_else(|_| (0..process::cpu_count()).collect());
    let both: Vec<usize> =
        allowed.iter().copied().filter(|cpu| mask.is_none_or(|mask| mask.contains(cpu))).collect();
    let chosen = match (mask, both.is_empty()) {
        (Some(mask), true) => mask,
        _ => &both,
    };
    CpuTopology::read(Path::new("/sys/devices/system"), chosen).order(chosen)
}

// The alias gives the closures of the table what `c` is.
type MainRow = Directive<MainConf>;

const TABLE: &[MainRow] = &[
    // The process.
    MainRow::new("user", MAIN, ONE_OR_TWO, set::user).syntax("user user [group]").doc(
        "User and group of worker processes, if the master process runs as root. By \
             default the user is `nobody`, and the group is the user's.",
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
            "Binds workers to CPUs: a bit mask for each worker, or `auto` for one CPU each of \
             those the process may use (or the mask has), cores before their second threads, \
             one NUMA node after the other.",
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
             waiting connections, a bounded number at a time. `off` is warned about.",
        ),
    MainRow::new("accept_mutex", EVENTS, FLAG, set::accept_mutex)
        .syntax("accept_mutex on | off")
        .default("off")
        .doc("Accepted for compatibility with nginx; it is always off. `on` is warned about."),
    MainRow::new("accept_mutex_delay", EVENTS, ONE, set::accept_mutex_delay)
        .syntax("accept_mutex_delay time")
        .default("500ms")
        .doc("Accepted for compatibility with nginx, with a warning: there is no accept mutex."),
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
/// Workers are numbered by a byte, whose last value means no worker.
const MOST_WORKERS: u8 = u8::MAX - 1;
