//! The stack that the handlers run on.
//!
//! The one that the standard library gives each thread has 8 KB, of which the kernel's frame alone takes up to 3.5, and
//! a fault inside of the handler takes that again.

use std::io;

/// A stack for the calling thread's signals; dropped on that thread, which has its old one again.
#[derive(Debug)]
pub(super) struct SignalStack {
    before: libc::stack_t,
    _memory: Box<[u64]>,
}

impl SignalStack {
    /// # Errors
    /// The errno of sigaltstack(2).
    pub(super) fn new() -> io::Result<SignalStack> {
        let mut memory = vec![0u64; SIZE / 8].into_boxed_slice();
        let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: SIZE };
        let before = exchange(&stack)?;
        Ok(SignalStack { before, _memory: memory })
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        // It was in use before, so it can be again; there is no one to report to otherwise.
        let _ = exchange(&self.before);
    }
}

fn exchange(new: &libc::stack_t) -> io::Result<libc::stack_t> {
    // SAFETY: integers and a pointer, for which zero is a value.
    let mut old: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: both are valid for the call; the memory of `new` lives until the old one is set again.
    match unsafe { libc::sigaltstack(new, &mut old) } {
        0 => Ok(old),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A walk in a debug build takes about 10 KB.
const SIZE: usize = 64 << 10;
