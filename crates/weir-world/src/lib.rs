//! The world of a simulated Weir: loaded before the C library (`LD_PRELOAD`), it stands in its place for all that a seed
//! decides: what time it is, which thread runs, what random numbers are, who connects, what comes and when.
//!
//! The program is the one that is built for users. Its sockets are UNIX-domain sockets under the names that it asked for
//! ([`addresses`]), its epoll is the kernel's; one thread runs at a time ([`threads`]), and where all wait, the clock goes
//! on to what happens next ([`simulation`]). Clients and upstream servers are in the same process ([`world`]).
//!
//! Without `WEIR_SIM_SEED` in the environment nothing is simulated. This crate is a C interface: `unsafe` is its nature.

#![allow(unreachable_pub, reason = "the C library's functions are found by the loader, not by a path")]

mod addresses;
mod calls;
mod kernel;
mod randomness;
mod simulation;
mod start;
mod thread_state;
mod threads;
mod world;

use simulation::Simulation;
use world::World;

/// Run by the loader, before the program's `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: unsafe extern "C" fn(i32, *const *const u8, *const *const u8) = begin;

unsafe extern "C" fn begin(_count: i32, arguments: *const *const u8, environment: *const *const u8) {
    let Some(seed) = std::env::var("WEIR_SIM_SEED").ok().and_then(|seed| seed.parse().ok()) else { return };
    let Ok(directory) = std::env::var("WEIR_SIM_DIRECTORY") else { return };
    // SAFETY: what the loader has passed.
    unsafe { begin_at_fixed_addresses(arguments, environment) };
    // What the program starts is not simulated.
    // SAFETY: no thread has been started yet.
    unsafe { std::env::remove_var("WEIR_SIM_SEED") };
    // SAFETY: the same.
    unsafe { randomness::take_over(seed) };
    let is_second = std::env::var_os("WEIR_SIM_SECOND").is_some();
    // The server after a crash has another order and other random numbers.
    let own = seed ^ (u64::from(is_second) << 40);
    threads::begin(Simulation::new(own, World::new(seed, own, is_second, &directory)));
}

/// Has the kernel place everything where it was in the last run: begins the program again, if it has not.
///
/// # Safety
/// The process's arguments and environment, as main(3) gets them.
unsafe fn begin_at_fixed_addresses(arguments: *const *const u8, environment: *const *const u8) {
    const QUERY: usize = 0xffff_ffff;
    // SAFETY: no pointers.
    let personality = unsafe { kernel::call(libc::SYS_personality, [QUERY, 0, 0, 0, 0, 0]) } as usize;
    let wanted = personality | libc::ADDR_NO_RANDOMIZE as usize;
    if personality == wanted {
        return;
    }
    // SAFETY: the same.
    let set = unsafe { kernel::call(libc::SYS_personality, [wanted, 0, 0, 0, 0, 0]) };
    // SAFETY: the same.
    let now = unsafe { kernel::call(libc::SYS_personality, [QUERY, 0, 0, 0, 0, 0]) };
    if set < 0 || now as usize != wanted {
        // Forbidden here: what depends on addresses may differ from run to run.
        return;
    }
    let program = c"/proc/self/exe".as_ptr() as usize;
    // SAFETY: lists that end with null, by the caller's word. It does not come back, unless it fails.
    unsafe { kernel::call(libc::SYS_execve, [program, arguments as usize, environment as usize, 0, 0, 0]) };
    kernel::exit(75);
}
