//! The shared libraries of this process, and what they say of unwinding.

use std::ffi::CStr;
use std::ops::Range;

use libc::{c_int, c_void, dl_phdr_info};

/// One library's code, with a copy of its `.eh_frame`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedCode {
    /// The file's name as the loader knows it; the kernel's own has one without a directory.
    pub name: String,
    /// Addresses of its code.
    pub code: Range<u64>,
    /// Where `.eh_frame` begins.
    pub frames_at: u64,
    /// Its bytes, to the terminator.
    pub frames: Vec<u8>,
}

/// How often libraries were loaded and unloaded since the process began: nothing has changed where both are as before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadCounts {
    loaded: u64,
    unloaded: u64,
}

/// The counts of this moment.
#[must_use]
pub fn load_counts() -> LoadCounts {
    extern "C" fn first(info: *mut dl_phdr_info, _: usize, counts: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid record; `counts` is the caller's, below.
        let (info, counts) = unsafe { (&*info, &mut *counts.cast::<LoadCounts>()) };
        *counts = LoadCounts { loaded: info.dlpi_adds, unloaded: info.dlpi_subs };
        1
    }
    let mut counts = LoadCounts::default();
    // SAFETY: a function of that form, and what it expects.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut counts).cast()) };
    counts
}

/// All libraries that have `.eh_frame` with an index, without the program itself. Copied while the loader holds them: one may be
/// unloaded afterwards.
#[must_use]
pub fn loaded_code() -> Vec<LoadedCode> {
    extern "C" fn each(info: *mut dl_phdr_info, _: usize, all: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid record; `all` is the caller's, below.
        let (info, all) = unsafe { (&*info, &mut *all.cast::<Vec<LoadedCode>>()) };
        all.extend(read(info));
        0
    }
    let mut all: Vec<LoadedCode> = Vec::new();
    // SAFETY: a function of that form, and what it expects.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut all).cast()) };
    all
}

/// `None` for the program, and for what has no `.eh_frame` of the usual form.
fn read(info: &dl_phdr_info) -> Option<LoadedCode> {
    if info.dlpi_name.is_null() || info.dlpi_phdr.is_null() {
        return None;
    }
    // SAFETY: the loader's own string.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned();
    // SAFETY: so many headers are there, as long as the library is.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let place = |header: &libc::Elf64_Phdr| {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        start..start.saturating_add(header.p_memsz)
    };
    let loads = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let code = place(loads().find(|header| header.p_flags & libc::PF_X != 0)?);
    let index = place(headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME)?);
    let readable = |at: u64| loads().map(place).find(|load| load.contains(&at));
    if name.is_empty()
        || index.end.saturating_sub(index.start) < 8
        || !readable(index.start)?.contains(&(index.end - 1))
    {
        return None;
    }
    // SAFETY: inside of a segment that is loaded.
    let head: [u8; 8] = unsafe { std::ptr::read_unaligned(index.start as *const [u8; 8]) };
    let frames_at = frames_at(index.start, head)?;
    let end = readable(frames_at)?.end;
    // SAFETY: inside of a segment that is loaded, and nobody writes there.
    let rest =
        unsafe { std::slice::from_raw_parts(frames_at as *const u8, usize::try_from(end - frames_at).ok()?) };
    Some(LoadedCode { name, code, frames_at, frames: rest[..length(rest)?].to_vec() })
}

/// `.eh_frame_hdr` at `at` begins with a version, three forms of pointers, and the address of `.eh_frame`, relative to itself.
fn frames_at(at: u64, head: [u8; 8]) -> Option<u64> {
    const RELATIVE_OF_FOUR_BYTES: u8 = 0x1b;
    let [1, RELATIVE_OF_FOUR_BYTES, _, _, offset @ ..] = head else { return None };
    (at + 4).checked_add_signed(i32::from_le_bytes(offset).into())
}

/// Bytes of `.eh_frame`, its terminator included: records that begin with their length.
fn length(frames: &[u8]) -> Option<usize> {
    let mut at = 0usize;
    loop {
        let word = frames.get(at..at.checked_add(4)?)?.try_into().ok()?;
        at += 4;
        match u32::from_le_bytes(word) {
            0 => return Some(at),
            // The long form, which is for more than libraries have.
            u32::MAX => return None,
            more => at = at.checked_add(more as usize)?,
        }
        if at > LONGEST {
            return None;
        }
    }
}

/// Bytes of `.eh_frame` that are copied; libcrypto has 600 KB.
const LONGEST: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_among_those_loaded() {
        let all = loaded_code();
        let Some(c) = all.iter().find(|one| one.name.contains("libc.so")) else {
            return println!("skipped: linked statically");
        };
        let function = libc::getppid as *const () as u64;
        assert!(c.code.contains(&function), "{:x?} {function:x}", c.code);
        assert!(c.frames.len() > 10_000 && c.frames.ends_with(&[0; 4]));
        assert!(
            all.iter().all(|one| !one.code.contains(&(length as *const () as u64))),
            "the program is not"
        );
        assert_eq!(load_counts(), load_counts());
        assert_ne!(load_counts(), LoadCounts::default());
    }

    #[test]
    fn lengths_end_at_the_terminator() {
        let record = |length: u32| [&length.to_le_bytes()[..], &vec![7; length as usize]].concat();
        let two = [record(8), record(20), vec![0; 4], vec![9; 50]].concat();
        assert_eq!(length(&two), Some(12 + 24 + 4));
        for cut in 0..39 {
            assert_eq!(length(&two[..cut]), None, "{cut}");
        }
        assert_eq!(length(&[0xff; 64]), None);
        assert_eq!(frames_at(100, [1, 0x1b, 3, 0x3b, 0xfc, 0xff, 0xff, 0xff]), Some(100));
        assert_eq!(frames_at(100, [1, 0x1b, 3, 0x3b, 0, 0, 0, 0x80]), None);
        assert_eq!(frames_at(100, [1, 0x10, 3, 0x3b, 0, 0, 0, 0]), None);
    }
}
