//! Runs Weir's lock-free structures in every order in which their threads may see each other's writes, by loom: `fuzz/loom [NAME]...`.
//!
//! The files are the product's own, unchanged: their `std` is one whose atomic numbers and mutexes are loom's (`std/`), and their
//! `crossbeam_epoch` one that fails where freed memory would be read (`epoch/`). Below are the models: a few threads,
//! each doing one or two things, and what must hold then.

extern crate loom_std as std;

mod dict;
#[allow(dead_code, unreachable_pub, missing_docs)]
#[path = "../../../crates/weir-rt/src/inbox.rs"]
mod inbox;
mod inbox_models;
mod sampler;
mod zone_memory;

/// In place of `weir_lua::luajit`.
mod luajit {
    pub(crate) mod shared_page {
        /// Each use is worth a stamp.
        pub(crate) fn renewed(now: u64, _last: u64) -> Option<u64> {
            Some(now)
        }
    }
}

/// A model: its name, how many times a thread may lose its core where it could go on (`None`: any number), and what runs.
type Model = (&'static str, Option<usize>, fn());

fn main() {
    let filters: Vec<String> = std::env::args().skip(1).collect();
    let models = [inbox_models::MODELS, sampler::MODELS, zone_memory::MODELS, dict::MODELS].concat();
    for (name, preemptions, model) in models {
        if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter.as_str())) {
            continue;
        }
        let began = std::time::Instant::now();
        let orders = std::sync::Arc::new(std::sync::atomic::AtomicI64::new(0));
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = preemptions;
        builder.max_branches = 10_000;
        let counted = orders.clone();
        builder.check(move || {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            model();
        });
        let orders = orders.load(std::sync::atomic::Ordering::Relaxed);
        println!("{name}: {orders} orders, {:.1} s", began.elapsed().as_secs_f64());
    }
}
