//! A program or library as it lies in another process: where its functions begin, stripped or not.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use object::elf::PF_X;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags};

/// One mapped file with code. Addresses are the process'.
pub(super) struct Image {
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
    symbols: HashMap<String, u64>,
}

impl Image {
    /// The file at `path`, whose code is mapped at `start`, from `offset` in the file on.
    pub(super) fn open(path: PathBuf, start: u64, offset: u64) -> Result<Image, String> {
        let said = |what: &dyn std::fmt::Display| format!("\"{}\": {what}", path.display());
        let data = fs::read(&path).map_err(|error| said(&error))?;
        let file = object::File::parse(&*data).map_err(|error| said(&error))?;
        if file.architecture() != object::Architecture::X86_64 {
            return Err(said(&"no program for x86-64, the only one whose code can be read here"));
        }
        let segment = file.segments().find(|segment| {
            let (from, size) = segment.file_range();
            let runs =
                matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if (p_flags & PF_X).0 != 0);
            // A mapping begins with the page that the segment begins in, where another one may end.
            runs && size > 0 && (from & !PAGE..from + size).contains(&offset)
        });
        let segment = segment.ok_or_else(|| said(&"its code is not where it is mapped"))?;
        let bias = start.wrapping_sub(offset).wrapping_sub(segment.address() - segment.file_range().0);
        let text = file.section_by_name(".text").ok_or_else(|| said(&"no code"))?;
        let at = text.address().wrapping_add(bias);
        let (from, _) = text.file_range().ok_or_else(|| said(&"no code"))?;
        let bytes = text.data().map_err(|error| said(&error))?.to_vec();
        let starts = match file.section_by_name(".eh_frame_hdr") {
            Some(table) => functions(table.data().unwrap_or_default(), table.address()),
            None => Vec::new(),
        };
        let mut symbols = HashMap::new();
        for symbol in file.dynamic_symbols().chain(file.symbols()).filter(|symbol| symbol.address() != 0) {
            if let Ok(name) = symbol.name() {
                symbols.entry(name.to_owned()).or_insert(symbol.address().wrapping_add(bias));
            }
        }
        let starts = starts.into_iter().map(|start| start.wrapping_add(bias)).collect();
        let code = at..at + bytes.len() as u64;
        Ok(Image { path, bias, code, offset: from, bytes, starts, symbols })
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
        self.symbols.iter().find(|(_, symbol)| **symbol == address).map(|(name, _)| name.as_str())
    }

    /// The code of the function that begins at `address`, at most [`LONGEST`] bytes.
    pub(super) fn function(&self, address: u64) -> &[u8] {
        let Ok(at) = self.starts.binary_search(&address) else { return &[] };
        let end = self.starts.get(at + 1).copied().unwrap_or(self.code.end);
        let from = address.saturating_sub(self.code.start) as usize;
        let to = from + (end.min(self.code.end).saturating_sub(address) as usize).min(LONGEST);
        self.bytes.get(from..to).unwrap_or_default()
    }

    /// Where in the file the function is, as probes are set.
    pub(super) fn file_offset(&self, address: u64) -> u64 {
        address - self.code.start + self.offset
    }

    /// Whether the kernel has to step over the function's first instruction when a probe stands there. A few it carries
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
pub(super) fn of(pid: u32, wanted: impl Fn(&str) -> bool) -> Result<Vec<Image>, String> {
    let root = PathBuf::from(format!("/proc/{pid}"));
    let text = fs::read_to_string(root.join("maps")).map_err(|error| format!("process {pid}: {error}"))?;
    let program = fs::read_link(root.join("exe")).map_err(|error| format!("process {pid}: {error}"))?;
    let mut images = Vec::new();
    let mut seen = Vec::new();
    for mapping in crate::symbols::maps::parse(&text) {
        if seen.contains(&mapping.file) || !mapping.path.starts_with('/') {
            continue;
        }
        let is_program = Path::new(&mapping.path) == program;
        if is_program || wanted(&mapping.path) {
            seen.push(mapping.file);
            let path = if is_program {
                root.join("exe")
            } else {
                root.join("root").join(mapping.path.trim_start_matches('/'))
            };
            images.push(Image::open(path, mapping.addresses.start, mapping.offset)?);
        }
    }
    Ok(images)
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
}
