//! The settings outside of `http`: the process, its workers, `events`.

mod cpus;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use weir_rt::DriverChoice;
use weir_rt::process::{self, SystemUser};

use self::cpus::CpuTopology;
use crate::cidr::Cidr;
use crate::log::{ErrorLog, LogSpec};
use crate::privileged;

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
    /// `master_gone`: what the server does when its master process is gone.
    pub master_gone: Option<MasterGone>,
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

/// `master_gone`: what a server does whose master process is gone without having ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MasterGone {
    /// It serves on, until a signal or the next master ends it.
    Serve,
    /// It ends gracefully.
    Quit,
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

    /// What the server does when its master process was killed; it serves on.
    pub fn master_gone(&self) -> MasterGone {
        self.master_gone.unwrap_or(MasterGone::Serve)
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

/// Workers are numbered by a byte, whose last value means no worker.
pub(crate) const MOST_WORKERS: u8 = u8::MAX - 1;
