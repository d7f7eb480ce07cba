//! A program or library as it lies in another process: where its functions begin, stripped or not.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use object::elf::PF_X;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags};

use crate::symbols::maps::CodeMapping;
use crate::symbols::process::is_mapped;

/// One mapped file with code. Addresses are the process'.
pub(super) struct CodeImage {
    /// Where it can be opened for probes, whatever its name is now.
    pub(super) path: PathBuf,
    /// What is added to the file's addresses.
    bias: u64,
    /// Code: its addresses, and where it begins in the file.
    code: Range<u64>,
    offset: u64,
    bytes: Vec<u8>,
    /// Where functions begin, in order: also of stripped programs, which keep what exceptions are unwound by.
    starts: Vec<u64>,
    /// Functions and variables that other files may use; all, if the file is not stripped.
    symbols: HashMap<Rc<str>, u64>,
    /// The same by address.
    names: HashMap<u64, Rc<str>>,
}

impl CodeImage {
    /// The file of a mapping, which is at `path`.
    fn open(path: PathBuf, mapping: &CodeMapping) -> Result<CodeImage, String> {
        let said = |what: &dyn std::fmt::Display| format!("\"{}\": {what}", path.display());
        let data = contents(&path, mapping).map_err(|error| said(&error))?;
        let parts = CodeImage::parse(&data, mapping.addresses.start, mapping.offset);
        let image = parts.map_err(|why| said(&why))?;
        Ok(CodeImage { path, ..image })
    }

    /// A file with the contents `data`, whose code is mapped at `start`, from `offset` in the file on. The process that
    /// made the file decides what is in it: numbers wrap around rather than fail, and what would take long is
    /// refused.
    fn parse(data: &[u8], start: u64, offset: u64) -> Result<CodeImage, String> {
        let file = object::File::parse(data).map_err(|error| error.to_string())?;
        if file.architecture() != object::Architecture::X86_64 {
            return Err("no program for x86-64, the only one whose code can be read here".to_owned());
        }
        if file.sections().take(MOST_SECTIONS + 1).count() > MOST_SECTIONS {
            return Err(format!("more than {MOST_SECTIONS} sections"));
        }
        let segment = file.segments().find(|segment| {
            let (from, size) = segment.file_range();
            let runs =
                matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if (p_flags & PF_X).0 != 0);
            // A mapping begins with the page that the segment begins in, where another one may end.
            runs && size > 0 && (from & !PAGE..from.saturating_add(size)).contains(&offset)
        });
        let segment = segment.ok_or("its code is not where it is mapped")?;
        let (from, _) = segment.file_range();
        let bias = start.wrapping_sub(offset).wrapping_sub(segment.address().wrapping_sub(from));
        let text = file.section_by_name(".text").ok_or("no code")?;
        let at = text.address().wrapping_add(bias);
        let (offset, _) = text.file_range().ok_or("no code")?;
        let bytes = text.data().map_err(|error| error.to_string())?.to_vec();
        let end = at.checked_add(bytes.len() as u64).ok_or("its code lies beyond all addresses")?;
        let starts = match file.section_by_name(".eh_frame_hdr") {
            Some(table) => functions(table.data().unwrap_or_default(), table.address()),
            None => Vec::new(),
        };
        let mut starts: Vec<u64> = starts.into_iter().map(|start| start.wrapping_add(bias)).collect();
        starts.sort_unstable();
        let symbols = symbols(&file, data.len(), bias)?;
        let mut names = HashMap::new();
        for (name, address) in &symbols {
            names.entry(*address).or_insert_with(|| name.clone());
        }
        Ok(CodeImage { path: PathBuf::new(), bias, code: at..end, offset, bytes, starts, symbols, names })
    }

    /// Where a function or variable is that others may use.
    pub(super) fn symbol(&self, name: &str) -> Option<u64> {
        self.symbols.get(name).copied()
    }

    /// Whether a function begins there.
    pub(super) fn is_function(&self, address: u64) -> bool {
        self.code.contains(&address) && self.starts.binary_search(&address).is_ok()
    }

    /// The name of the function that begins there, if others may use it.
    pub(super) fn name_of(&self, address: u64) -> Option<&str> {
        self.names.get(&address).map(|name| &**name)
    }

    /// The code of the function that begins at `address`, at most [`LONGEST`] bytes.
    pub(super) fn function(&self, address: u64) -> &[u8] {
        let Ok(at) = self.starts.binary_search(&address) else { return &[] };
        let end = self.starts.get(at + 1).copied().unwrap_or(self.code.end);
        let from = usize::try_from(address.saturating_sub(self.code.start)).unwrap_or(usize::MAX);
        let length = usize::try_from(end.min(self.code.end).saturating_sub(address)).unwrap_or(LONGEST);
        let to = from.saturating_add(length.min(LONGEST));
        self.bytes.get(from..to).unwrap_or_default()
    }

    /// Where in the file the function is, as probes are set.
    pub(super) fn file_offset(&self, address: u64) -> u64 {
        address.wrapping_sub(self.code.start).wrapping_add(self.offset)
    }

    /// Whether the kernel has to step over the function's first instruction when a probe is there. A few it carries
    /// out itself: push, nop, jumps and calls.
    pub(super) fn is_stepped(&self, address: u64) -> bool {
        let code = self.function(address);
        !matches!(
            code,
            [0x50..=0x57 | 0x90 | 0x70..=0x7f | 0xe8 | 0xe9 | 0xeb, ..]
                | [0x41, 0x50..=0x57, ..]
                | [0x0f, 0x1f, 0x44, 0x00, 0x00, ..]
        )
    }

    /// What the file is called in messages.
    pub(super) fn short_name(&self) -> String {
        let path = fs::read_link(&self.path).unwrap_or_else(|_| self.path.clone());
        path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The address as the file counts it.
    pub(super) fn in_file(&self, address: u64) -> u64 {
        address.wrapping_sub(self.bias)
    }
}

/// The images of a process whose files `wanted` takes, by path.
pub(super) fn of(pid: u32, wanted: impl Fn(&str) -> bool) -> Result<Vec<CodeImage>, String> {
    let root = PathBuf::from(format!("/proc/{pid}"));
    let text = fs::read_to_string(root.join("maps")).map_err(|error| format!("process {pid}: {error}"))?;
    let program = fs::read_link(root.join("exe")).map_err(|error| format!("process {pid}: {error}"))?;
    let mut images = Vec::new();
    let mut seen = HashSet::new();
    for mapping in crate::symbols::maps::parse(&text) {
        if seen.contains(&mapping.file) || !mapping.path.starts_with('/') {
            continue;
        }
        let is_program = Path::new(&mapping.path) == program;
        if is_program || wanted(&mapping.path) {
            if seen.len() == MOST_IMAGES {
                return Err(format!("process {pid} has more than {MOST_IMAGES} modules"));
            }
            seen.insert(mapping.file);
            let path = if is_program {
                root.join("exe")
            } else {
                root.join("root").join(mapping.path.trim_start_matches('/'))
            };
            images.push(CodeImage::open(path, &mapping)?);
        }
    }
    Ok(images)
}

/// What is in the file of a mapping, which the process may have replaced since: by a pipe, on which opening would
/// wait, or by a link to another user's file.
fn contents(path: &Path, mapping: &CodeMapping) -> io::Result<Vec<u8>> {
    let file =
        fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let metadata = file.metadata()?;
    if !is_mapped(&metadata, mapping) {
        return Err(io::Error::other("it is not the file that was mapped"));
    }
    if metadata.len() > LARGEST {
        return Err(io::Error::other(format!("a file of more than {} MB", LARGEST >> 20)));
    }
    let mut data = Vec::new();
    file.take(LARGEST).read_to_end(&mut data)?;
    Ok(data)
}

/// The symbols with an address. A linker writes each name once, or lets one be the end of another; in a file that was made
/// for it a million symbols can share one name of a hundred megabytes, and each is looked through for its end.
fn symbols(file: &object::File<'_>, length: usize, bias: u64) -> Result<HashMap<Rc<str>, u64>, String> {
    let mut symbols = HashMap::new();
    let mut left = length.saturating_mul(4);
    for symbol in file.dynamic_symbols().chain(file.symbols()).filter(|symbol| symbol.address() != 0) {
        let name = symbol.name().ok();
        // A name without an end was looked for in the whole file.
        let cost = name.map_or(length, |name| name.len() + 1);
        left = left.checked_sub(cost).ok_or("its symbols' names are longer than the file")?;
        if let Some(name) = name {
            symbols.entry(Rc::from(name)).or_insert(symbol.address().wrapping_add(bias));
        }
    }
    Ok(symbols)
}

/// The beginnings of functions out of `.eh_frame_hdr`, which lies at `address`: a table of pairs of 32 bits, the first
/// counted from the section's beginning (Linux Standard Base, "Exception Frames"). In order, as the table is.
fn functions(table: &[u8], address: u64) -> Vec<u64> {
    let word = |at: usize| {
        let bytes = table.get(at..at + 4)?;
        Some(i32::from_le_bytes(bytes.try_into().expect("four bytes")))
    };
    // Version 1; the count is a plain number of 32 bits; the table is relative to the section.
    let (Some([1, _, 0x03, 0x3b]), Some(count)) = (table.get(..4), word(8)) else { return Vec::new() };
    let pairs = (0..count.max(0) as usize).map_while(|at| word(12 + 8 * at));
    let mut starts: Vec<u64> = pairs.map(|start| address.wrapping_add_signed(start.into())).collect();
    starts.sort_unstable();
    starts
}

/// Of a longer function only the beginning is read.
const LONGEST: usize = 16 * 1024;
const PAGE: u64 = 4095;
/// Bytes of a file at most: nginx with debug information and everything linked in has a fifth of it.
const LARGEST: u64 = 256 << 20;
/// A program has some forty; names of sections are looked through for each that is looked for.
const MOST_SECTIONS: usize = 1024;
/// Files of a process that are read: nginx loads 128 modules at most (`NGX_MAX_DYNAMIC_MODULES`).
const MOST_IMAGES: usize = 129;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_in_the_table_of_frames() {
        let mut table = vec![1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0];
        table.extend(2i32.to_le_bytes());
        for word in [-16i32, 0, 32, 0] {
            table.extend(word.to_le_bytes());
        }
        assert_eq!(functions(&table, 0x1000), [0xff0, 0x1020]);
        assert_eq!(functions(&table[..20], 0x1000), [0xff0], "cut short");
        table[3] = 0x1b;
        assert_eq!(functions(&table, 0x1000), [] as [u64; 0], "another form");
    }

    #[inline(never)]
    fn here() -> u64 {
        std::hint::black_box(here as fn() -> u64 as usize as u64)
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn our_own_functions_are_found() {
        let images = of(std::process::id(), |_| false).expect("our own process");
        let [image] = &images[..] else { panic!("the program alone") };
        assert!(image.is_function(here()) && !image.is_function(here() + 1));
        let code = image.function(here());
        let file = fs::read("/proc/self/exe").expect("our own program");
        let at = image.file_offset(here()) as usize;
        assert!(!code.is_empty() && file[at..].starts_with(code));
        assert_eq!(image.symbol("main").and_then(|main| image.name_of(main)), Some("main"));
        assert!(of(u32::MAX, |_| true).is_err());
    }

    /// The smallest program there is room for: a header, one segment that runs, a table of symbols, and the sections
    /// `.text`, `.symtab`, `.strtab` and `.shstrtab`. `names` is what is in `.strtab`, `offsets` where in it each
    /// symbol's name begins.
    fn program(names: &[u8], offsets: &[u32]) -> Vec<u8> {
        let section_names = b"\0.text\0.symtab\0.strtab\0.shstrtab\0";
        let text = 64 + 56;
        let table = text + 16;
        let strings = table + 24 * (offsets.len() + 1);
        let shstrings = strings + names.len();
        let sections = (shstrings + section_names.len()).next_multiple_of(8);
        let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        let put = |out: &mut Vec<u8>, width: usize, values: &[u64]| {
            values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()[..width]));
        };
        put(&mut out, 2, &[3, 62]);
        put(&mut out, 4, &[1]);
        put(&mut out, 8, &[0, 64, sections as u64]);
        put(&mut out, 4, &[0]);
        put(&mut out, 2, &[64, 56, 1, 64, 5, 4]);
        // PT_LOAD, readable and executable.
        put(&mut out, 4, &[1, 5]);
        put(&mut out, 8, &[0, 0, 0, table as u64, table as u64, 4096]);
        out.resize(table + 24, 0x90);
        out[table..].fill(0);
        for offset in offsets {
            put(&mut out, 4, &[(*offset).into()]);
            put(&mut out, 1, &[0x12, 0]);
            put(&mut out, 2, &[1]);
            put(&mut out, 8, &[text as u64, 1]);
        }
        out.extend_from_slice(names);
        out.extend_from_slice(section_names);
        out.resize(sections, 0);
        let mut section = |name: u64, kind: u64, at: usize, size: usize, link: u64, entry: u64| {
            put(&mut out, 4, &[name, kind]);
            put(&mut out, 8, &[6, at as u64, at as u64, size as u64]);
            put(&mut out, 4, &[link, 1]);
            put(&mut out, 8, &[1, entry]);
        };
        section(0, 0, 0, 0, 0, 0);
        section(1, 1, text, 16, 0, 0);
        section(7, 2, table, 24 * (offsets.len() + 1), 3, 24);
        section(15, 3, strings, names.len(), 0, 0);
        section(23, 3, shstrings, section_names.len(), 0, 0);
        out
    }

    #[test]
    fn names_that_share_their_bytes_are_refused_where_there_are_more_than_a_file_can_hold() {
        let image = CodeImage::parse(&program(b"\0a\x1b[2Jb\0", &[1, 3]), 0x1000, 0).expect("a program");
        assert_eq!(image.symbol("a\x1b[2Jb"), Some(0x1000 + 120));
        assert_eq!(image.name_of(0x1000 + 120).map(|name| name.ends_with("[2Jb")), Some(true));
        let mut names = vec![b'a'; 100_000];
        (names[0], names[99_999]) = (0, 0);
        let error = CodeImage::parse(&program(&names, &[1; 1000]), 0x1000, 0).err();
        assert_eq!(error.as_deref(), Some("its symbols' names are longer than the file"));
        names[99_999] = b'a';
        let error = CodeImage::parse(&program(&names, &[1; 1000]), 0x1000, 0).err();
        assert_eq!(error.as_deref(), Some("its symbols' names are longer than the file"), "without an end");
    }

    #[test]
    fn only_the_file_that_was_mapped_is_read() {
        let program = PathBuf::from("/proc/self/exe");
        let text = fs::read_to_string("/proc/self/maps").expect("our own");
        let maps = crate::symbols::maps::parse(&text);
        let own = fs::read_link(&program).expect("our own program");
        let mapping = maps.iter().find(|mapping| Path::new(&mapping.path) == own).expect("its code");
        assert!(contents(&program, mapping).is_ok());
        for other in ["/dev/zero", "/proc/self/maps", "/etc/passwd"] {
            assert!(contents(Path::new(other), mapping).is_err(), "{other}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_file_with_any_bytes_is_a_program_or_an_error(
            changes in proptest::collection::vec((0usize..800, proptest::sample::select(
                &[0u8, 1, 3, 0x7f, 0x80, 0xff][..])), 0..12),
            length in 0usize..1200,
            start: u64,
            offset: u64,
        ) {
            let mut file = program(b"\0main\0", &[1, 2, 77, u32::MAX]);
            for (at, byte) in changes {
                let at = at % file.len();
                file[at] = byte;
            }
            file.truncate(length.max(64));
            for (start, offset) in [(start, offset), (0x1000, 0), (u64::MAX, 1)] {
                if let Ok(image) = CodeImage::parse(&file, start, offset) {
                    let address = image.code.start;
                    image.function(address);
                    image.is_stepped(address);
                    image.in_file(address);
                    image.file_offset(address);
                }
            }
        }
    }
}
