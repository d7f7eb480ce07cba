//! Random numbers of the crypto library, which asks the processor and measures its jitter: the simulation's in their place.
//!
//! The library is linked into the program, so the loader can't put another function before its own. Its functions that
//! give random bytes are looked up in the program's symbol table, and begin with a jump to ours.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernel;
use crate::threads::{self, is_simulated};

/// The state of the numbers that the world's own TLS clients get.
static WORLD: AtomicU64 = AtomicU64::new(0);

/// The functions' names after the library's prefix.
const NAMES: [&str; 4] =
    ["_RAND_bytes", "_RAND_bytes_with_user_prediction_resistance", "_RAND_priv_bytes", "_RAND_public_bytes"];

/// Takes the place of the library's generator in the program and in this library. Whether it was found in the program.
///
/// # Safety
/// The process has one thread.
pub(crate) unsafe fn take_over(seed: u64) -> bool {
    WORLD.store(seed, Ordering::Relaxed);
    let own = [
        aws_lc_sys::RAND_bytes as *const () as usize,
        aws_lc_sys::RAND_bytes_with_user_prediction_resistance as *const () as usize,
        aws_lc_sys::RAND_priv_bytes as *const () as usize,
        aws_lc_sys::RAND_public_bytes as *const () as usize,
    ];
    for place in own {
        // SAFETY: by the caller's word; functions of this library.
        unsafe { replace(place, world_bytes as *const () as usize) };
    }
    let Some(program) = program() else { return false };
    // SAFETY: no pointers.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    let Some(places) = functions(program) else { return false };
    let base = headers.wrapping_sub(number(program, 32, 8).unwrap_or(0));
    for place in &places {
        // SAFETY: by the caller's word; a function of the program, where the kernel has put it.
        unsafe { replace(base.wrapping_add(*place), program_bytes as *const () as usize) };
    }
    !places.is_empty()
}

/// The program's file, of which no more is read than is looked at.
fn program() -> Option<&'static [u8]> {
    let file = std::fs::File::open("/proc/self/exe").ok()?;
    let length = usize::try_from(file.metadata().ok()?.len()).ok()?;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file) as usize;
    let a = [0, length, libc::PROT_READ as usize, libc::MAP_PRIVATE as usize, fd, 0];
    // SAFETY: a new mapping of a file.
    let place = unsafe { kernel::call(libc::SYS_mmap, a) };
    // SAFETY: mapped for its whole length, and never unmapped. The program's file does not change while it runs.
    (place > 0).then(|| unsafe { std::slice::from_raw_parts(place as *const u8, length) })
}

/// Fills `bytes` with the next numbers of the world.
pub(crate) fn fill(bytes: &mut [u8]) {
    bytes.fill_with(|| {
        let z = WORLD.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) as u8
    });
}

/// RAND_bytes(3) of the world's clients.
unsafe extern "C" fn world_bytes(bytes: *mut u8, length: usize) -> i32 {
    // SAFETY: by the caller's word: room for as many bytes.
    fill(unsafe { std::slice::from_raw_parts_mut(bytes, length) });
    1
}

/// RAND_bytes(3) of the program.
unsafe extern "C" fn program_bytes(bytes: *mut u8, length: usize) -> i32 {
    // SAFETY: by the caller's word: room for as many bytes.
    let bytes = unsafe { std::slice::from_raw_parts_mut(bytes, length) };
    match is_simulated() {
        true => threads::with(|simulation| bytes.fill_with(|| simulation.random.number() as u8)),
        false => fill(bytes),
    }
    1
}

/// Makes the function at `place` begin with a jump to the one at `to`.
///
/// # Safety
/// There is a function of at least 16 bytes, which no thread runs.
unsafe fn replace(place: usize, to: usize) {
    const PAGE: usize = 4096;
    #[cfg(target_arch = "x86_64")]
    let jump = {
        // mov rax, to; jmp rax
        let mut jump = [0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0, 0x90, 0x90, 0x90, 0x90];
        jump[2..10].copy_from_slice(&to.to_le_bytes());
        jump
    };
    #[cfg(target_arch = "aarch64")]
    let jump = {
        // ldr x16, .+8; br x16
        let mut jump = [0x50, 0, 0, 0x58, 0, 0x02, 0x1f, 0xd6, 0, 0, 0, 0, 0, 0, 0, 0];
        jump[8..].copy_from_slice(&to.to_le_bytes());
        jump
    };
    let (first, last) = (place & !(PAGE - 1), (place + jump.len() - 1) & !(PAGE - 1));
    let protect = |kind: i32| {
        let a = [first, last + PAGE - first, kind as usize, 0, 0, 0];
        // SAFETY: pages of the program's text.
        unsafe { kernel::call(libc::SYS_mprotect, a) }
    };
    if protect(libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) < 0 {
        return;
    }
    // SAFETY: by the caller's word, and writable now.
    unsafe { std::ptr::copy_nonoverlapping(jump.as_ptr(), place as *mut u8, jump.len()) };
    protect(libc::PROT_READ | libc::PROT_EXEC);
}

/// Where the functions are in the file's address space (ELF of 64 bits, the machine's byte order).
fn functions(file: &[u8]) -> Option<Vec<usize>> {
    const SYMBOLS: usize = 2;
    const FUNCTION: usize = 2;
    let sections = number(file, 40, 8)?;
    let (size, count) = (number(file, 58, 2)?, number(file, 60, 2)?);
    let section = |which: usize| file.get(sections + which * size..sections + (which + 1) * size);
    let table =
        (0..count).find(|which| section(*which).and_then(|one| number(one, 4, 4)) == Some(SYMBOLS))?;
    let part = |one: &[u8]| file.get(number(one, 24, 8)?..number(one, 24, 8)? + number(one, 32, 8)?);
    let symbols = part(section(table)?)?;
    let names = part(section(number(section(table)?, 40, 4)?)?)?;
    let mut found = Vec::new();
    for symbol in symbols.chunks_exact(24) {
        if symbol.get(4).is_none_or(|kind| usize::from(kind & 15) != FUNCTION) {
            continue;
        }
        let name = names.get(number(symbol, 0, 4)?..)?;
        let name = name.get(..name.iter().position(|byte| *byte == 0)?)?;
        let is_one = |end: &&str| name.starts_with(b"aws_lc_") && name.ends_with(end.as_bytes());
        if NAMES.iter().any(is_one) {
            found.push(number(symbol, 8, 8)?);
        }
    }
    Some(found)
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<usize> {
    let mut all = [0; 8];
    all.get_mut(..length)?.copy_from_slice(bytes.get(at..at + length)?);
    Some(usize::from_le_bytes(all))
}
