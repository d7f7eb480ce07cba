//! Rules by which stacks are walked through shared libraries: read from what these say of themselves, when they are new.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EndianSlice, LittleEndian, RegisterRule, UnwindContext,
    UnwindSection, UnwindTableRow, X86_64,
};
use weir_engine::log::{self, LogLevel};
use weir_rt::sampler::{self, FrameBase, LoadCounts, LoadedCode, UnwindRule, UnwindTable};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Reads what was loaded since the last time: some milliseconds for a C library, a microsecond if there is nothing new. To be
/// called before a stack is asked for; never by a worker.
pub(super) fn refresh() {
    static TABLES: Mutex<Option<UnwindTables>> = Mutex::new(None);
    super::lock(&TABLES).get_or_insert_default().refresh();
}

/// Which libraries are known.
#[derive(Default)]
struct UnwindTables {
    counts: LoadCounts,
    /// Hashes of what was read.
    known: HashSet<u64>,
    /// There is no room for more.
    full: bool,
}

impl UnwindTables {
    fn refresh(&mut self) {
        let counts = sampler::load_counts();
        if counts == self.counts || self.full || cfg!(not(target_arch = "x86_64")) {
            return;
        }
        self.counts = counts;
        for library in sampler::loaded_code() {
            if self.known.insert(hash(&library)) && !self.full {
                self.full = !sampler::add_unwind_table(table(&library));
            }
        }
        if self.full {
            log::cycle(
                LogLevel::Warn,
                &"so many libraries were loaded that stacks in the newest ones are guessed",
            );
        }
    }
}

fn hash(library: &LoadedCode) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&library.name, library.code.start, library.code.end, &library.frames).hash(&mut hasher);
    hasher.finish()
}

/// What could be read; what can't leaves its addresses without rules.
fn table(library: &LoadedCode) -> UnwindTable {
    let mut found = FoundRules::default();
    // A damaged record ends the list: what was found before it is good.
    let _ = found.read(library);
    let FoundRules { mut ends, rules } = found;
    // Where one function begins as the other ends, the last rule counts.
    ends.extend(rules);
    UnwindTable::new(library.code.clone(), ends)
}

#[derive(Default)]
struct FoundRules {
    /// Where functions end.
    ends: Vec<(u64, UnwindRule)>,
    rules: Vec<(u64, UnwindRule)>,
}

impl FoundRules {
    fn read(&mut self, library: &LoadedCode) -> gimli::Result<()> {
        let mut section = EhFrame::new(&library.frames, LittleEndian);
        section.set_address_size(8);
        let bases = BaseAddresses::default().set_eh_frame(library.frames_at).set_text(library.code.start);
        let mut context = UnwindContext::new();
        let mut entries = section.entries(&bases);
        while let Some(entry) = entries.next()? {
            let CieOrFde::Fde(partial) = entry else { continue };
            let description = partial.parse(EhFrame::cie_from_offset)?;
            self.ends.push((description.end_address(), UnwindRule::Unknown));
            let mut rows = description.rows(&section, &bases, &mut context)?;
            while let Some(row) = rows.next_row()? {
                self.rules.push((row.start_address(), rule(row, &section)));
            }
        }
        Ok(())
    }
}

fn rule(row: &UnwindTableRow<usize>, section: &EhFrame<Bytes<'_>>) -> UnwindRule {
    match row.register(X86_64::RA) {
        Some(RegisterRule::Offset(-8)) => {}
        Some(RegisterRule::Undefined) => return UnwindRule::Outermost,
        _ => return UnwindRule::Unknown,
    }
    match row.cfa() {
        CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => frame(FrameBase::Stack, *offset, row),
        CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => frame(FrameBase::Frame, *offset, row),
        CfaRule::RegisterAndOffset { .. } => UnwindRule::Unknown,
        CfaRule::Expression(expression) => {
            expression.get(section).map_or(UnwindRule::Unknown, |found| linkage(found.0.slice()))
        }
    }
}

fn frame(base: FrameBase, offset: i64, row: &UnwindTableRow<usize>) -> UnwindRule {
    let below = |offset: i64| offset.checked_neg().and_then(|below| u32::try_from(below).ok());
    let saved = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => None,
        Some(RegisterRule::Offset(at)) if at < 0 => below(at),
        Some(_) => return UnwindRule::Unknown,
    };
    u32::try_from(offset).map_or(UnwindRule::Unknown, |offset| UnwindRule::Frame { base, offset, saved })
}

/// The one expression that linkers write, for entries that jump through a table: 8 bytes above the stack pointer, and 8 more
/// from the second instruction of an entry on.
fn linkage(expression: &[u8]) -> UnwindRule {
    /// `DW_OP_breg7 8, breg16 0, lit15, and, litN, ge, lit3, shl, plus`.
    const BEFORE: [u8; 6] = [0x77, 8, 0x80, 0, 0x3f, 0x1a];
    const AFTER: [u8; 4] = [0x2a, 0x33, 0x24, 0x22];
    const LITERALS: std::ops::Range<u8> = 0x30..0x40;
    match expression.strip_prefix(&BEFORE).and_then(|rest| rest.strip_suffix(&AFTER)) {
        Some([literal]) if LITERALS.contains(literal) => UnwindRule::Linkage(literal - LITERALS.start),
        _ => UnwindRule::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn c_library() -> Option<LoadedCode> {
        let found = sampler::loaded_code().into_iter().find(|library| library.name.contains("libc.so"));
        if found.is_none() {
            println!("skipped: linked statically");
        }
        found
    }

    #[test]
    fn the_c_library_has_rules_for_nearly_all_of_its_code() {
        let Some(library) = c_library() else { return };
        let table = table(&library);
        let known = |address: &u64| !matches!(table.rule(*address), None | Some(UnwindRule::Unknown));
        let asked = || library.code.clone().step_by(61);
        let (known, all) = (asked().filter(known).count(), asked().count());
        assert!(known * 100 >= all * 90, "{known} of {all}");
        let begin = UnwindRule::Frame { base: FrameBase::Stack, offset: 8, saved: None };
        let function = weir_rt::process::pid as *const () as u64;
        assert_eq!(table.rule(function), None, "code of the program is not the library's");
        assert!(
            asked().any(|address| table.rule(address) == Some(begin)),
            "functions begin with nothing but their return address"
        );
    }

    #[test]
    fn damaged_records_lose_rules_and_nothing_else() {
        let Some(library) = c_library() else { return };
        for at in (0..library.frames.len().min(4000)).step_by(7) {
            let mut damaged = library.clone();
            damaged.frames[at] ^= 0xff;
            damaged.frames.truncate(4096);
            let table = table(&damaged);
            assert_eq!(table.code(), &library.code);
        }
    }

    #[test]
    fn entries_of_a_linkage_table_are_known() {
        let expression = |literal| [0x77, 8, 0x80, 0, 0x3f, 0x1a, literal, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(linkage(&expression(0x3b)), UnwindRule::Linkage(11));
        assert_eq!(linkage(&expression(0x3a)), UnwindRule::Linkage(10));
        for other in [0x22, 0x40] {
            assert_eq!(linkage(&expression(other)), UnwindRule::Unknown);
        }
        assert_eq!(linkage(&[]), UnwindRule::Unknown);
    }

    #[test]
    fn nothing_is_read_twice() {
        let mut tables = UnwindTables::default();
        tables.refresh();
        let known = tables.known.len();
        tables.refresh();
        assert_eq!((tables.known.len(), tables.full), (known, false));
        tables.counts = LoadCounts::default();
        tables.refresh();
        assert_eq!(tables.known.len(), known);
    }
}
