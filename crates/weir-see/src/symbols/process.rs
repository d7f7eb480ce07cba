//! Names for addresses of a running process, from the files it runs.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::{Object, ObjectSegment, ReadCache};

use super::maps::{self, CodeMapping};
use super::{StackFrame, SymbolSource};
use crate::runtime_frames::of_closure;
use crate::stacks::FrameOrigin;

/// The symbols of one process on this machine. Files are read when an address in them is first asked for: 17 ms and 17 MB
/// for a program of 16 MB, a microsecond or two for each address afterwards, nothing for one that was asked before.
///
/// A file that is not the one that was loaded (a library was upgraded) gives no names rather than wrong ones. The
/// program itself is read through /proc, so it may have been replaced.
pub struct ProcessSymbols {
    root: PathBuf,
    maps: Vec<CodeMapping>,
    /// By device and inode.
    files: HashMap<(u32, u32, u64), Option<CodeFile>>,
    known: HashMap<u64, Vec<StackFrame>>,
}

/// One file with code.
struct CodeFile {
    loader: Loader,
    segments: Vec<FileSegment>,
}

/// Where a part of a file is in the addresses that its symbols are counted in.
struct FileSegment {
    offset: u64,
    size: u64,
    address: u64,
}

impl ProcessSymbols {
    /// The symbols of process `pid`.
    ///
    /// # Errors
    /// There is no such process, or it is not ours to look at.
    pub fn new(pid: u32) -> io::Result<ProcessSymbols> {
        let text = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        Ok(ProcessSymbols::with_maps(pid, &text))
    }

    /// Of process `pid`, which says itself what its `/proc/self/maps` holds: one that gave up root can't be looked at by
    /// its own user.
    #[must_use]
    pub(crate) fn with_maps(pid: u32, maps: &str) -> ProcessSymbols {
        let root = PathBuf::from(format!("/proc/{pid}"));
        ProcessSymbols { root, maps: maps::parse(maps), files: HashMap::new(), known: HashMap::new() }
    }

    fn name(&mut self, address: u64) -> Vec<StackFrame> {
        if address >= KERNEL {
            return vec![StackFrame::new(FrameOrigin::Kernel, "[kernel]")];
        }
        let Some(mapping) = maps::find(&self.maps, address) else {
            // Unmapped since, as compiled code is.
            return vec![StackFrame::new(FrameOrigin::Native, "[unknown]")];
        };
        // What a process says of its own mappings need not fit any file.
        let in_file = mapping.offset.wrapping_add(address - mapping.addresses.start);
        let short = short(&mapping.path);
        if !mapping.path.starts_with('/') {
            return vec![StackFrame::new(FrameOrigin::Native, short)];
        }
        let root = &self.root;
        let code = self.files.entry(mapping.file).or_insert_with(|| CodeFile::open(root, mapping));
        let frames = code.as_ref().map(|code| code.frames(in_file)).unwrap_or_default();
        if frames.is_empty() {
            return vec![StackFrame::new(FrameOrigin::Native, format!("{short}+{in_file:#x}"))];
        }
        frames
    }
}

impl SymbolSource for ProcessSymbols {
    fn frames(&mut self, address: u64, out: &mut Vec<StackFrame>) {
        if !self.known.contains_key(&address) {
            let frames = self.name(address);
            self.known.insert(address, frames);
        }
        out.extend_from_slice(&self.known[&address]);
    }
}

impl CodeFile {
    /// Opens the file of a mapping, if it is still the one that was mapped.
    fn open(root: &Path, mapping: &CodeMapping) -> Option<CodeFile> {
        let program = root.join("exe");
        let inside = root.join("root").join(mapping.path.trim_start_matches('/'));
        // Where /proc/PID can't be read, this program and the path itself may still be the same files.
        let candidates = [program, inside, PathBuf::from("/proc/self/exe"), PathBuf::from(&mapping.path)];
        let path = candidates.into_iter().find(|path| is_file(path, mapping))?;
        let file = ReadCache::new(File::open(&path).ok()?);
        let object = object::File::parse(&file).ok()?;
        let segment = |segment: object::Segment<'_, '_, _>| {
            let (offset, size) = segment.file_range();
            FileSegment { offset, size, address: segment.address() }
        };
        let segments = object.segments().map(segment).collect();
        // What a distribution strips, it keeps beside.
        let debug = object.build_id().ok().flatten().and_then(debug_file);
        let loader = debug.and_then(|debug| Loader::new(debug).ok()).or_else(|| Loader::new(&path).ok())?;
        Some(CodeFile { loader, segments })
    }

    /// What is at that place of the file, outermost first.
    fn frames(&self, in_file: u64) -> Vec<StackFrame> {
        let inside = |s: &&FileSegment| in_file >= s.offset && in_file - s.offset < s.size;
        let Some(segment) = self.segments.iter().find(inside) else { return Vec::new() };
        let address = (in_file - segment.offset).wrapping_add(segment.address);
        let mut frames = self.with_lines(address);
        if frames.is_empty() {
            frames.extend(self.symbol(address).map(|name| StackFrame::new(FrameOrigin::Native, name)));
        }
        frames.reverse();
        frames
    }

    /// From the debug information, innermost first: the function, and those it was inlined into. Of functions into which
    /// nothing was inlined, tables of lines alone do not have the name.
    fn with_lines(&self, address: u64) -> Vec<StackFrame> {
        let mut frames = Vec::new();
        let Ok(mut found) = self.loader.find_frames(address) else { return frames };
        while let Ok(Some(frame)) = found.next() {
            let function = frame.function.as_ref().and_then(|function| function.raw_name().ok());
            let name = function.map_or_else(String::new, |name| demangled(&name));
            let location = frame.location.as_ref();
            let file = location.and_then(|location| location.file).unwrap_or_default().to_owned();
            let line = location.and_then(|location| location.line).unwrap_or(0);
            frames.push(StackFrame { name, origin: FrameOrigin::Native, file, line });
        }
        // The debug information has names without the modules around them; of the function that all others were
        // inlined into, the table of symbols knows better.
        if let (Some(outermost), Some(symbol)) = (frames.last_mut(), self.symbol(address)) {
            outermost.name = symbol;
        }
        frames.retain(|frame| !frame.name.is_empty());
        frames
    }

    /// From the table of symbols.
    fn symbol(&self, address: u64) -> Option<String> {
        self.loader.find_symbol(address).map(demangled)
    }
}

/// Whether that is the mapped file: a regular one, as opening a pipe would wait and a device may act.
pub(crate) fn is_file(path: &Path, mapping: &CodeMapping) -> bool {
    fs::metadata(path).is_ok_and(|metadata| is_mapped(&metadata, mapping))
}

/// Whether `metadata` is that of the file that is mapped: device and inode agree.
pub(crate) fn is_mapped(metadata: &fs::Metadata, mapping: &CodeMapping) -> bool {
    let (major, minor, inode) = mapping.file;
    metadata.is_file() && {
        // On overlay and btrfs the device in maps is another than stat's; the inode is the same.
        let device = metadata.dev();
        let same = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
        metadata.ino() == inode && (same == (major.into(), minor.into()) || major == 0 || same.0 == 0)
    }
}

/// Where distributions put the debug information of a stripped file.
fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let hex: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (first, rest) = hex.split_at_checked(2)?;
    let path = PathBuf::from(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug"));
    path.is_file().then_some(path)
}

/// The name as it is written, without the compiler's hash and without the parameters of a generic function: a graph
/// shows them together, and they may be longer than everything else. Closures are called after their function.
fn demangled(name: &str) -> String {
    let name = format!("{:#}", rustc_demangle::demangle(name));
    let name = of_closure(&name);
    match parameters(name) {
        Some(at) => of_closure(name[..at].trim_end_matches("::")).to_owned(),
        None => name.to_owned(),
    }
}

/// Where the `<...>` begins that the name ends with, after something.
fn parameters(name: &str) -> Option<usize> {
    let bytes = name.as_bytes();
    let mut depth = 0usize;
    for at in (0..bytes.len()).rev() {
        match bytes[at] {
            b'>' if at > 0 && bytes[at - 1] == b'-' => {} // of a function's result
            b'>' => depth += 1,
            b'<' if depth == 1 => return (at > 0).then_some(at),
            b'<' => depth = depth.checked_sub(1)?,
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// What represents a mapping whose symbols are not known.
fn short(path: &str) -> String {
    match path {
        "" => "[jit]".to_owned(),
        path if path.starts_with('[') => path.to_owned(),
        path => {
            let name = path.trim_end_matches(" (deleted)");
            format!("[{}]", name.rsplit('/').next().unwrap_or(name))
        }
    }
}

/// The kernel's half of the addresses.
const KERNEL: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> ProcessSymbols {
        ProcessSymbols::new(std::process::id()).expect("our own process")
    }

    fn names(symbols: &mut ProcessSymbols, address: u64) -> Vec<String> {
        let mut out = Vec::new();
        symbols.frames(address, &mut out);
        out.into_iter().map(|frame| frame.name).collect()
    }

    const HERE: u32 = line!();

    #[inline(never)]
    fn a_function_of_this_test() -> usize {
        std::hint::black_box(a_function_of_this_test as fn() -> usize as usize)
    }

    #[test]
    fn functions_have_names_files_and_lines() {
        let mut symbols = own();
        let mut out = Vec::new();
        symbols.frames(a_function_of_this_test() as u64 + 1, &mut out);
        let last = out.last().expect("a frame");
        assert!(last.name.ends_with("tests::a_function_of_this_test"), "{out:?}");
        assert!(last.file.ends_with("symbols/process.rs") && last.line.abs_diff(HERE) < 20, "{out:?}");
        let mut again = Vec::new();
        symbols.frames(a_function_of_this_test() as u64 + 1, &mut again);
        assert_eq!(again, out);
    }

    #[test]
    fn parameters_of_generic_functions_are_left_out() {
        for (name, short) in [
            ("poll<alloc::boxed::Box<dyn Fn(u8) -> Vec<u8>>, u8>", "poll"),
            ("core::panicking::assert_failed::<u64, u64>", "core::panicking::assert_failed"),
            ("{closure#1}<a::b>", "{closure#1}"),
            ("<a::B<C> as d::E<F>>::g", "<a::B<C> as d::E<F>>::g"),
            ("a::<impl b::C for d::E>::f", "a::<impl b::C for d::E>::f"),
            ("<a as b>", "<a as b>"),
            ("operator->", "operator->"),
            ("a>>", "a>>"),
            ("_ZN4weir4main17h0123456789abcdefE", "weir::main"),
            ("memcpy", "memcpy"),
            ("", ""),
        ] {
            assert_eq!(demangled(name), short);
        }
    }

    #[test]
    fn what_has_no_symbols_is_named_for_what_it_is() {
        let mut symbols = own();
        let vdso = symbols.maps.iter().find(|mapping| mapping.path == "[vdso]").map(|m| m.addresses.start);
        if let Some(vdso) = vdso {
            assert_eq!(names(&mut symbols, vdso), ["[vdso]"]);
        }
        assert_eq!(names(&mut symbols, 8), ["[unknown]"]);
        assert_eq!(names(&mut symbols, u64::MAX), ["[kernel]"]);
        symbols.maps.insert(
            0,
            CodeMapping { addresses: 4096..8192, offset: 0, file: (0, 0, 0), path: String::new() },
        );
        assert_eq!(names(&mut symbols, 5000), ["[jit]"]);
    }

    #[test]
    fn a_replaced_library_gives_no_wrong_names() {
        let mut symbols = own();
        let library = symbols.maps.iter_mut().find(|mapping| mapping.path.contains("libc.so"));
        let Some(library) = library else { return println!("skipped: linked statically") };
        let address = library.addresses.start + 16;
        let name = library.path.rsplit('/').next().unwrap_or_default().to_owned();
        library.file.2 += 1;
        let [shown] = &names(&mut symbols, address)[..] else { panic!("one frame") };
        assert!(shown.starts_with(&format!("[{name}]+0x")), "{shown}");
    }

    #[test]
    fn there_must_be_such_a_process() {
        assert!(ProcessSymbols::new(u32::MAX).is_err());
    }
}
