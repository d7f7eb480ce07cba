//! Static probes (USDT): places where tracers from outside, bpftrace and perf, can look into a running server.
//!
//! A probe is a no-op of five bytes, which newer kernels turn into a call instead of a trap, and a note in the program
//! (`.note.stapsdt`) that says where it is and in which registers its arguments are. While nothing traces, the counter
//! that the kernel keeps for each of them (its semaphore) is 0, and a probe costs a load and a jump. The format is
//! SystemTap's (<https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation>).
//!
//! Texts are an address and a length: `str(arg1, arg2)` in bpftrace.

use std::sync::atomic::AtomicU16;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use std::sync::atomic::Ordering::Relaxed;

macro_rules! probes {
    ($($(#[$doc:meta])* $name:ident = $note:literal ($first:ident $(, $more:ident)*) on $switch:ident;)*) => { $(
        /// How many tracers listen; the kernel counts.
        #[used]
        #[unsafe(link_section = ".probes")]
        static $switch: AtomicU16 = AtomicU16::new(0);

        $(#[$doc])*
        #[cold]
        #[inline(never)]
        pub fn $name($first: u64 $(, $more: u64)*) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: what is executed is a no-op; the rest are sections of the program that nothing of it reads. A
            // process that traces reads the registers.
            unsafe {
                std::arch::asm!(
                    "990: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
                    note!($note, concat!("8@{", stringify!($first), "}" $(, " 8@{", stringify!($more), "}")*)),
                    switch = sym $switch,
                    $first = in(reg) $first,
                    $($more = in(reg) $more,)*
                    options(att_syntax, nostack, preserves_flags),
                );
            }
            #[cfg(target_arch = "aarch64")]
            // SAFETY: what is executed is a no-op; the rest are sections of the program that nothing of it reads.
            unsafe {
                std::arch::asm!(
                    "990: nop",
                    note!($note, concat!("8@{", stringify!($first), "}" $(, " 8@{", stringify!($more), "}")*)),
                    switch = sym $switch,
                    $first = in(reg) $first,
                    $($more = in(reg) $more,)*
                    options(nostack, preserves_flags),
                );
            }
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            let _ = ($first $(, $more)*);
        }
    )* };
}

/// The note of a probe at the label 990.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! note {
    ($name:literal, $arguments:expr) => {
        concat!(
            ".pushsection .note.stapsdt, \"\", \"note\"\n",
            ".balign 4\n",
            ".4byte 992f-991f, 994f-993f, 3\n",
            "991: .asciz \"stapsdt\"\n",
            "992: .balign 4\n",
            "993: .8byte 990b\n",
            // Where the program was linked to, for programs that are moved later on disk.
            ".8byte 0\n",
            ".8byte {switch}\n",
            ".asciz \"weir\"\n",
            ".asciz \"",
            $name,
            "\"\n",
            ".asciz \"",
            $arguments,
            "\"\n",
            "994: .balign 4\n",
            ".popsection"
        )
    };
}

probes! {
    /// A request's head was read: the lower half of its number, and its path.
    request_begin = "request__begin" (id, path, length) on REQUEST_BEGIN;
    /// A request is over: the lower half of its number, the status sent, nanoseconds that it ran and that it waited, and
    /// its location.
    request_done = "request__done" (id, status, run, wait, location, length) on REQUEST_DONE;
    /// What a phase, handler, filter or step of a request that is over took, what it called included: the lower half of
    /// the request's number, the name, nanoseconds of running and of waiting.
    site_done = "site__done" (id, name, length, run, wait) on SITE_DONE;
    /// A turn of a worker's loop was too long: the worker, and nanoseconds.
    loop_blocked = "loop__blocked" (worker, duration) on LOOP_BLOCKED;
}

/// Whether a tracer listens to the beginnings of requests.
#[inline(always)]
pub fn traces_begin() -> bool {
    is_on(&REQUEST_BEGIN)
}

/// Whether a tracer listens to the ends of requests.
#[inline(always)]
pub fn traces_done() -> bool {
    is_on(&REQUEST_DONE)
}

/// Whether a tracer listens to what sites took.
#[inline(always)]
pub fn traces_sites() -> bool {
    is_on(&SITE_DONE)
}

/// Whether a tracer listens to blocked loops.
#[inline(always)]
pub fn traces_blocked() -> bool {
    is_on(&LOOP_BLOCKED)
}

#[inline(always)]
fn is_on(switch: &AtomicU16) -> bool {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    return switch.load(Relaxed) != 0;
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = switch;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_listens_and_probes_do_nothing() {
        assert!(!traces_begin() && !traces_done() && !traces_sites() && !traces_blocked());
        request_begin(1, 2, 3);
        request_done(1, 2, 3, 4, 5, 6);
        site_done(1, 2, 3, 4, 5);
        loop_blocked(1, 2);
    }
}
