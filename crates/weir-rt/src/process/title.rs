//! The title `ps` shows: written over the arguments and the environment, which is where the kernel looks for it.

use std::ffi::c_char;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// The memory the kernel shows as the command line. There is one per process.
#[derive(Debug)]
pub struct ProcessTitle {
    area: &'static mut [u8],
}

impl ProcessTitle {
    /// Takes the memory over, moving the environment out of it first. From the first [`ProcessTitle::set`] on
    /// `std::env::args` gives pieces of the title: read the arguments before.
    ///
    /// # Errors
    /// `EBUSY` if there are other threads (they might be reading the environment) or the title is taken already;
    /// those of reading /proc/self/stat.
    pub fn claim() -> io::Result<ProcessTitle> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let area = TitleArea::of_process()?;
        if super::thread_count() > 1 || TAKEN.swap(true, Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        // SAFETY: one thread, as checked.
        unsafe { move_environment() };
        // SAFETY: the kernel's own record of where it put the strings, on the stack, which stays mapped and
        // writable. Nothing else writes there (`TAKEN`), and nothing of Rust's borrows from it: `std::env` copies.
        let area = unsafe {
            std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(area.start), area.len)
        };
        Ok(ProcessTitle { area })
    }

    /// Shows `text`, cut to the room there is.
    pub fn set(&mut self, text: &str) {
        let room = self.area.len().saturating_sub(1); // the last byte stays NUL
        let (shown, rest) = self.area.split_at_mut(text.len().min(room));
        shown.copy_from_slice(&text.as_bytes()[..shown.len()]);
        rest.fill(0);
    }

    /// Maximum length of a title, in bytes.
    pub fn room(&self) -> usize {
        self.area.len().saturating_sub(1)
    }
}

struct TitleArea {
    start: usize,
    len: usize,
}

impl TitleArea {
    fn of_process() -> io::Result<TitleArea> {
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        TitleArea::parse(&stat).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Fields 48 to 51 of proc_pid_stat(5): start and end of the arguments, then of the environment, which the
    /// kernel puts right after them and shows as the rest of a title that fills the arguments.
    fn parse(stat: &str) -> Option<TitleArea> {
        // The second field, the name, may contain anything, blanks and parentheses too.
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split_ascii_whitespace().skip(48 - 3).map(str::parse::<usize>);
        let mut next = || fields.next()?.ok();
        let (start, arg_end, env_start, env_end) = (next()?, next()?, next()?, next()?);
        let end = if env_start == arg_end { env_end } else { arg_end };
        (start != 0 && start < end).then(|| TitleArea { start, len: end - start })
    }
}

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

/// Replaces each string of the environment by a copy, which lives as long as the process.
///
/// # Safety
/// No other thread may use the environment meanwhile.
unsafe fn move_environment() {
    // SAFETY: the C library's null-terminated array of pointers to C strings; only we use it, by the contract.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            let copy = libc::strdup(*at);
            if !copy.is_null() {
                *at = copy;
            }
            at = at.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let fields: Vec<String> =
            (3..=52).map(|n| if n < 48 { "0".into() } else { (n * 10).to_string() }).collect();
        let stat = format!("7 (a) b) c) {}", fields.join(" "));
        let area = TitleArea::parse(&stat).expect("well-formed");
        assert_eq!((area.start, area.len), (480, 10), "environment elsewhere: arguments only");
        assert!(TitleArea::parse("7 (x) S 1").is_none());
    }
}
