//! Settings of the block `http` or `stream`: those of a VM.

use std::path::PathBuf;
use std::sync::Arc;

use weir_engine::worker::WorkerCounters;
use weir_engine::zone::SharedZone;
use weir_sys::lmdb::LmdbEnvironment;

use crate::vm::chunk::ScriptSource;

/// `weir_openssl`: the library of scripts that look for OpenSSL's names by `ffi.C`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpensslPlace {
    /// The system's.
    System,
    /// None: such names are unknown.
    Off,
    /// The libcrypto of this path; libssl is beside it.
    File(String),
}

/// Settings of the block `http` or `stream`: those of a VM.
#[derive(Clone, Default)]
pub(crate) struct VmSettings {
    pub(crate) package_path: Option<String>,
    pub(crate) package_cpath: Option<String>,
    /// `weir_openssl`
    pub(crate) openssl: Option<OpensslPlace>,
    pub(crate) init: Option<ScriptSource>,
    pub(crate) init_worker: Option<ScriptSource>,
    pub(crate) exit_worker: Option<ScriptSource>,
    pub(crate) thread_cache: Option<usize>,
    pub(crate) regex_cache: Option<usize>,
    pub(crate) regex_limit: Option<u32>,
    /// `lua_cpu_limit`, in milliseconds; 0 for none.
    pub(crate) cpu_limit: Option<u64>,
    /// `lua_memory_limit`, in bytes; 0 for none.
    pub(crate) memory_limit: Option<u64>,
    /// `lua_max_coroutines`
    pub(crate) coroutines: Option<usize>,
    /// `lua_max_pending_timers`
    pub(crate) pending_timers: Option<usize>,
    /// `lua_max_running_timers`
    pub(crate) running_timers: Option<usize>,
    /// `lua_worker_thread_vm_pool_size`
    pub(crate) thread_vms: Option<usize>,
    /// `lua_yield_everywhere`
    pub(crate) yields: Option<bool>,
    pub(crate) rewrite_first: Option<bool>,
    pub(crate) access_first: Option<bool>,
    pub(crate) precontent_first: Option<bool>,
    /// `preread_by_lua_no_postpone`
    pub(crate) preread_first: Option<bool>,
    pub(crate) dicts: Vec<Arc<SharedZone>>,
    /// Where relative names of files begin.
    pub(crate) prefix: PathBuf,
    /// The counters of the worker that the VM is for.
    pub(crate) counters: Option<Arc<WorkerCounters>>,
    /// `lmdb_environment_path`
    pub(crate) lmdb: Option<Arc<LmdbEnvironment>>,
    /// `lua_capture_error_log`, bytes.
    pub(crate) captured: Option<usize>,
    /// `lua_malloc_trim`: after how many requests, 0 never.
    pub(crate) malloc_trim: Option<u64>,
    /// How many workers there are.
    pub(crate) workers: usize,
    /// `master_process off`
    pub(crate) one_process: bool,
    /// The number of the one that the VM is for.
    pub(crate) worker: Option<u8>,
    /// Another worker's VM of the configuration has run `init_by_lua` before: what this one's writes to dictionaries is there.
    pub(crate) repeats_init: bool,
    /// The VM is for one request only.
    pub(crate) single: bool,
    /// Its scripts are those of `stream`: their API is that of sessions.
    pub(crate) stream: bool,
}

impl VmSettings {
    /// `lua_thread_cache_max_entries`
    pub(crate) fn spare_coroutines(&self) -> usize {
        self.thread_cache.unwrap_or(1024)
    }

    /// `lua_max_coroutines`
    pub(crate) fn most_coroutines(&self) -> usize {
        self.coroutines.unwrap_or(16_384)
    }

    /// `lua_max_pending_timers`
    pub(crate) fn pending_timers(&self) -> usize {
        self.pending_timers.unwrap_or(1024)
    }

    /// `lua_worker_thread_vm_pool_size`
    pub(crate) fn thread_vms(&self) -> usize {
        self.thread_vms.unwrap_or(100)
    }

    /// `lua_max_running_timers`
    pub(crate) fn running_timers(&self) -> usize {
        self.running_timers.unwrap_or(256)
    }

    /// `init_by_lua` and the other scripts that need no request.
    pub(crate) fn has_scripts(&self) -> bool {
        self.init.is_some() || self.init_worker.is_some() || self.exit_worker.is_some()
    }
}
