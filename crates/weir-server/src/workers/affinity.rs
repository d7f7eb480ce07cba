//! `worker_cpu_affinity`: the CPUs of a worker, as the configuration in force has it.

use std::cell::RefCell;

use weir_rt::process;

use weir_engine::log::{self, LogLevel};

/// The CPUs the thread is bound to.
#[derive(Default)]
pub(crate) struct CpuSet {
    /// What it had before it was bound.
    free: RefCell<Option<Vec<usize>>>,
    bound: RefCell<Option<Vec<usize>>>,
}

impl CpuSet {
    /// Binds the calling thread to `cpus`; `None`: to those it had at first. As in nginx a refusal is logged and no more.
    pub(crate) fn apply(&self, cpus: Option<Vec<usize>>) {
        if *self.bound.borrow() == cpus {
            return;
        }
        if self.free.borrow().is_none() {
            *self.free.borrow_mut() = process::affinity().ok();
        }
        let wanted = cpus.clone().or_else(|| self.free.borrow().clone()).unwrap_or_default();
        for cpu in cpus.iter().flatten() {
            log::cycle(LogLevel::Notice, &format_args!("sched_setaffinity(): using cpu #{cpu}"));
        }
        if let Err(error) = process::set_affinity(&wanted) {
            let errno = error.raw_os_error().unwrap_or(0);
            let text = weir_rt::file::errno_text(errno);
            log::cycle(LogLevel::Alert, &format_args!("sched_setaffinity() failed ({errno}: {text})"));
        }
        *self.bound.borrow_mut() = cpus;
    }
}
