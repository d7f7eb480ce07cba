//! Regular expressions as nginx has them: PCRE2 with its JIT.
//!
//! A [`Regex`] is compiled code, immutable and shared by all threads. A [`Matcher`] is what a match needs to write:
//! one per worker, reused for every match, so that matching allocates nothing. Patterns come from the configuration
//! or from scripts; subjects come from the network and may make a bad pattern explode, hence the limits of
//! [`Matcher`].

use std::ffi::c_int;
use std::fmt;
use std::ops::Range;
use std::ptr::{self, NonNull};

use pcre2_sys as pcre2;

/// How a pattern is compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegexFlags {
    /// True when letters match both cases (`~*`).
    pub caseless: bool,
    /// `^` and `$` also match at line ends inside the subject.
    pub multiline: bool,
    /// True when a dot also matches a newline.
    pub dotall: bool,
    /// True when white space and `#` comments in the pattern are ignored.
    pub extended: bool,
    /// True when pattern and subject are UTF-8; a subject that is not gives [`MatchError::Utf`].
    pub utf: bool,
    /// True when the match must begin at the first byte.
    pub anchored: bool,
    /// True when two groups may have the same name.
    pub dupnames: bool,
    /// With `utf`: what of a subject is not UTF-8 matches nothing, and is no error.
    pub lenient: bool,
    /// True when escapes and unset groups are as in JavaScript.
    pub javascript: bool,
}

mod bounded;

/// PCRE2's version and its date, as `10.45 2025-02-05`.
pub fn version() -> String {
    let mut text = [0u8; 64];
    // SAFETY: without anywhere to write it gives the length, with its zero at the end.
    let length = unsafe { pcre2::pcre2_config_8(pcre2::PCRE2_CONFIG_VERSION, ptr::null_mut()) };
    if usize::try_from(length).is_ok_and(|length| length <= text.len()) {
        // SAFETY: there is room for as many bytes.
        unsafe { pcre2::pcre2_config_8(pcre2::PCRE2_CONFIG_VERSION, text.as_mut_ptr().cast()) };
    }
    String::from_utf8_lossy(text.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// A regular expression compiled by PCRE2.
pub struct Regex {
    code: NonNull<pcre2::pcre2_code_8>,
    captures: u32,
    jit: bool,
    /// Its machine code may be called at once: PCRE2 has no subject to check before.
    direct: bool,
    /// A match may begin at any byte, so that places may be tried a few at a time.
    windowed: bool,
    /// The longest subject whose backtracking without count (`.*` and its like) stays below 50 million steps.
    uncounted: usize,
}

// SAFETY: after `Regex::new` returns, compiled code (JIT code included) is only read; PCRE2 documents it as usable by
// any number of threads at once ("Multithreading" in pcre2api). What matching writes is in the `Matcher`.
unsafe impl Send for Regex {}
// SAFETY: compiled code is only read, by any number of threads at once; what matching writes is in the `Matcher`.
unsafe impl Sync for Regex {}

impl Regex {
    /// Compiles `pattern`, by the JIT where the processor has one.
    ///
    /// # Errors
    /// [`RegexError`] when the pattern is wrong; its message is worded as nginx's.
    pub fn new(pattern: &[u8], flags: RegexFlags) -> Result<Self, RegexError> {
        let mut code: c_int = 0;
        let mut offset = 0;
        let anywhere = bounded::begins_anywhere(pattern, flags);
        // SAFETY: pattern and its length describe one live slice; `code` and `offset` outlive the call; a null
        // context asks for the defaults. PCRE2 copies what it keeps.
        let compiled = unsafe {
            pcre2::pcre2_compile_8(
                pattern.as_ptr(),
                pattern.len(),
                flags.bits() | if anywhere { pcre2::PCRE2_USE_OFFSET_LIMIT } else { 0 },
                &raw mut code,
                &raw mut offset,
                ptr::null_mut(),
            )
        };
        let Some(compiled) = NonNull::new(compiled) else {
            return Err(RegexError::new(pattern, code, offset));
        };
        // SAFETY: `compiled` was just created, and no other thread can know it yet. The result only says whether
        // there is JIT code; without it the interpreter gives the same results.
        let jit = unsafe { pcre2::pcre2_jit_compile_8(compiled.as_ptr(), pcre2::PCRE2_JIT_COMPLETE) } == 0;
        let uncounted = bounded::longest_uncounted(pattern);
        let mut regex = Self { code: compiled, captures: 0, jit, direct: false, windowed: false, uncounted };
        regex.captures = regex.info::<u32>(pcre2::PCRE2_INFO_CAPTURECOUNT);
        // With those that the pattern sets itself, as `(*UTF)` does.
        let options = regex.info::<u32>(pcre2::PCRE2_INFO_ALLOPTIONS);
        regex.direct = jit && options & pcre2::PCRE2_UTF == 0;
        regex.windowed = anywhere && options & pcre2::PCRE2_ANCHORED == 0;
        Ok(regex)
    }

    /// Number of capture groups; group 0, the whole match, is not counted (as nginx's `captures`).
    #[must_use]
    pub fn captures_len(&self) -> usize {
        self.captures as usize
    }

    /// True when the pattern runs as machine code.
    #[must_use]
    pub fn is_jit(&self) -> bool {
        self.jit
    }

    /// Named groups with their numbers, in alphabetical order.
    #[must_use]
    pub fn names(&self) -> Vec<(String, usize)> {
        let count = self.info::<u32>(pcre2::PCRE2_INFO_NAMECOUNT) as usize;
        let entry = self.info::<u32>(pcre2::PCRE2_INFO_NAMEENTRYSIZE) as usize;
        let table = self.info::<NameTable>(pcre2::PCRE2_INFO_NAMETABLE);
        let Some(table) = table.0 else { return Vec::new() };
        if entry < NAME_NUMBER_LEN {
            return Vec::new();
        }
        // SAFETY: PCRE2 documents the name table as `count` entries of `entry` bytes each, part of the compiled code,
        // which `self` keeps alive while the slice is in use.
        let table = unsafe { std::slice::from_raw_parts(table.as_ptr(), count * entry) };
        table.chunks_exact(entry).map(name_entry).collect()
    }

    /// True when `subject` matches somewhere. The spans of the match can be read from `matcher` afterwards too.
    ///
    /// # Errors
    /// [`MatchError`] when the match was given up; whether the subject matches is then unknown.
    #[inline]
    pub fn is_match(&self, matcher: &mut Matcher, subject: &[u8]) -> Result<bool, MatchError> {
        self.match_from(matcher, subject, 0)
    }

    /// The groups of the first match in `subject`.
    ///
    /// # Errors
    /// As [`Self::is_match`].
    #[inline]
    pub fn captures<'m>(
        &self,
        matcher: &'m mut Matcher,
        subject: &[u8],
    ) -> Result<Option<Captures<'m>>, MatchError> {
        Ok(if self.match_from(matcher, subject, 0)? { Some(matcher.last()) } else { None })
    }

    /// The groups of the first match that begins at byte `start` of `subject` or later; look-behind still sees the
    /// bytes before `start`. `None` when nothing matches, also for a `start` after the end of the subject.
    ///
    /// # Errors
    /// As [`Self::is_match`].
    pub fn captures_from<'m>(
        &self,
        matcher: &'m mut Matcher,
        subject: &[u8],
        start: usize,
    ) -> Result<Option<Captures<'m>>, MatchError> {
        Ok(if self.match_from(matcher, subject, start)? { Some(matcher.last()) } else { None })
    }

    fn match_from(&self, matcher: &mut Matcher, subject: &[u8], start: usize) -> Result<bool, MatchError> {
        matcher.matched = 0;
        if start > subject.len() {
            return Ok(false);
        }
        matcher.reserve(self.captures_len() + 1)?;
        // 0 would mean more groups than the match data holds, which `reserve` excludes.
        let Some(highest) = self.run(matcher, subject, start)? else { return Ok(false) };
        matcher.matched = highest;
        matcher.groups = self.captures_len() + 1;
        Ok(true)
    }

    /// The longest match that begins at byte `start` of `subject` or later, found by PCRE2's other algorithm
    /// (pcre2_dfa_match(3)), which has no groups. `None` when nothing matches.
    ///
    /// # Errors
    /// As [`Self::is_match`]; also what that algorithm can't do, such as back references.
    pub fn longest_from<'m>(
        &self,
        matcher: &'m mut Matcher,
        subject: &[u8],
        start: usize,
    ) -> Result<Option<Captures<'m>>, MatchError> {
        matcher.matched = 0;
        if start > subject.len() {
            return Ok(None);
        }
        let mut workspace = [0; DFA_WORKSPACE];
        // SAFETY: the code and the match data are live, the latter lent exclusively; the subject's pointer and length
        // are those of a live
        // slice, `start` is within it, and the workspace and its length describe one live array.
        let result = unsafe {
            pcre2::pcre2_dfa_match_8(
                self.code.as_ptr(),
                subject.as_ptr(),
                subject.len(),
                start,
                0,
                matcher.data.as_ptr(),
                matcher.context.as_ptr(),
                workspace.as_mut_ptr(),
                workspace.len(),
            )
        };
        if outcome(result)?.is_none() {
            return Ok(None);
        }
        // Further pairs are shorter matches at the same place; only the longest is asked for.
        (matcher.matched, matcher.groups) = (1, 1);
        Ok(Some(matcher.last()))
    }

    /// `what` must name an item whose type PCRE2 documents as `T`.
    fn info<T: Default>(&self, what: u32) -> T {
        let mut value = T::default();
        // SAFETY: the code is alive; callers pair each `what` with the type PCRE2 documents for it (u32 for counts,
        // a pointer for the name table), so the write stays inside `value`.
        let failed =
            unsafe { pcre2::pcre2_pattern_info_8(self.code.as_ptr(), what, (&raw mut value).cast()) };
        if failed == 0 { value } else { T::default() }
    }
}

impl Drop for Regex {
    fn drop(&mut self) {
        // SAFETY: created by `pcre2_compile_8`, freed only here; `&mut self` says that no match is under way.
        unsafe { pcre2::pcre2_code_free_8(self.code.as_ptr()) };
    }
}

impl fmt::Debug for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Regex").field("captures", &self.captures).field("jit", &self.jit).finish()
    }
}

/// What a match writes to: one per worker.
///
/// Holds room for the groups, the limits and the JIT's stack. It grows to the pattern with the most groups and is
/// then reused without allocating.
pub struct Matcher {
    data: NonNull<pcre2::pcre2_match_data_8>,
    context: NonNull<pcre2::pcre2_match_context_8>,
    stack: Option<NonNull<pcre2::pcre2_jit_stack_8>>,
    /// Pairs of offsets `data` has room for.
    pairs: usize,
    /// Pairs set by the last match; 0 when it did not match.
    matched: usize,
    /// Groups of the pattern of the last match, group 0 included.
    groups: usize,
    /// Steps that each place of a subject may take.
    limit: u32,
    /// The last match ran without the JIT, which keeps its heap in `data`.
    heavy: bool,
}

// SAFETY: the three objects that the pointers refer to belong to this value alone and are not bound to a thread;
// methods that write take `&mut self`. (Not `Sync`: nothing needs it.)
unsafe impl Send for Matcher {}

impl Matcher {
    /// A matcher with PCRE2's own limit, 10,000,000 steps; 256 MiB of heap per match and 512 KiB of JIT stack.
    ///
    /// # Errors
    /// [`MatchError::Memory`] when no memory is left.
    pub fn new() -> Result<Self, MatchError> {
        Self::with_match_limit(MATCH_LIMIT)
    }

    /// A matcher that gives up a match after this number of steps of backtracking (PCRE2's match limit).
    ///
    /// # Errors
    /// [`MatchError::Memory`] when no memory is left.
    pub fn with_match_limit(steps: u32) -> Result<Self, MatchError> {
        // SAFETY: a null general context asks for malloc.
        let context = unsafe { pcre2::pcre2_match_context_create_8(ptr::null_mut()) };
        let context = NonNull::new(context).ok_or(MatchError::Memory)?;
        let Some(data) = new_match_data(FIRST_PAIRS) else {
            // SAFETY: created above, not shared, not used again.
            unsafe { pcre2::pcre2_match_context_free_8(context.as_ptr()) };
            return Err(MatchError::Memory);
        };
        // SAFETY: sizes in bytes, start below maximum; a null general context asks for malloc.
        let stack = NonNull::new(unsafe {
            pcre2::pcre2_jit_stack_create_8(JIT_STACK_FIRST, JIT_STACK_MAX, ptr::null_mut())
        });
        // SAFETY: the context is ours; the stack is freed in `drop` after the context's last use. Without a stack (no
        // JIT on this processor) PCRE2 keeps its 32 KiB on the machine stack.
        unsafe {
            pcre2::pcre2_set_heap_limit_8(context.as_ptr(), HEAP_LIMIT_KIB);
            if let Some(stack) = stack {
                pcre2::pcre2_jit_stack_assign_8(context.as_ptr(), None, stack.as_ptr().cast());
            }
        }
        let mut matcher = Self {
            data,
            context,
            stack,
            pairs: FIRST_PAIRS,
            matched: 0,
            groups: 0,
            limit: steps,
            heavy: false,
        };
        matcher.set_limit(steps);
        Ok(matcher)
    }

    /// The groups of the last match; after a miss or an error all of them are unset.
    #[must_use]
    pub fn last(&self) -> Captures<'_> {
        let len = if self.matched == 0 { 0 } else { self.groups };
        // SAFETY: the vector belongs to `data` and holds `pairs` pairs of offsets, of which the first `matched` were
        // written by the last match (`matched <= groups <= pairs`); it stays in place while `self` is borrowed.
        let offsets = unsafe {
            let first = pcre2::pcre2_get_ovector_pointer_8(self.data.as_ptr());
            std::slice::from_raw_parts(first, 2 * self.matched.min(self.pairs))
        };
        Captures { offsets, len }
    }

    fn reserve(&mut self, pairs: usize) -> Result<(), MatchError> {
        if pairs <= self.pairs && !self.heavy {
            return Ok(());
        }
        let pairs = pairs.max(self.pairs);
        let data = new_match_data(pairs).ok_or(MatchError::Memory)?;
        // SAFETY: the old match data is ours, and after this line nothing refers to it.
        unsafe { pcre2::pcre2_match_data_free_8(self.data.as_ptr()) };
        self.data = data;
        self.pairs = pairs;
        self.heavy = false;
        Ok(())
    }
}

impl Drop for Matcher {
    fn drop(&mut self) {
        // SAFETY: each was created by its own create function, is freed once, and the stack goes after the context
        // that refers to it.
        unsafe {
            pcre2::pcre2_match_data_free_8(self.data.as_ptr());
            pcre2::pcre2_match_context_free_8(self.context.as_ptr());
            if let Some(stack) = self.stack {
                pcre2::pcre2_jit_stack_free_8(stack.as_ptr());
            }
        }
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matcher").field("pairs", &self.pairs).field("matched", &self.matched).finish()
    }
}

/// The groups of a match, as byte ranges of its subject.
#[derive(Clone, Copy, Debug)]
pub struct Captures<'m> {
    offsets: &'m [usize],
    len: usize,
}

impl Captures<'_> {
    /// Number of groups of the pattern, group 0 included; 0 when there was no match.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a match always has group 0")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The bytes of group `number` (0 is the whole match); `None` when the group took no part in the match.
    #[must_use]
    #[inline]
    pub fn span(&self, number: usize) -> Option<Range<usize>> {
        let start = *self.offsets.get(number.checked_mul(2)?)?;
        let end = *self.offsets.get(number * 2 + 1)?;
        if start == pcre2::PCRE2_UNSET || end == pcre2::PCRE2_UNSET {
            return None;
        }
        // `\K` inside a look-ahead can put the start after the end.
        Some(start.min(end)..end)
    }

    /// Adds where each group is to `spans`, in bytes, from and to; -1 twice for one that took no part in the match.
    pub fn add_spans(&self, spans: &mut Vec<i32>) {
        let before = spans.len();
        spans.resize(before + 2 * self.len, -1);
        let pairs = self.offsets.as_chunks::<2>().0;
        for (slots, [start, end]) in spans[before..].as_chunks_mut::<2>().0.iter_mut().zip(pairs) {
            // What is unset is the largest number, and so -1 here.
            *slots = [*start.min(end) as i32, *end as i32];
        }
    }

    /// The text of group `number` (0 is the whole match) in `subject`, which must be the subject of this match. `None`
    /// when the group took no part in the match.
    #[must_use]
    #[inline]
    pub fn bytes<'s>(&self, number: usize, subject: &'s [u8]) -> Option<&'s [u8]> {
        subject.get(self.span(number)?)
    }
}

/// A pattern that does not compile: the configuration's (or script's) fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegexError {
    /// nginx's words: `pcre2_compile() failed: REASON in "PATTERN" at "REST"`, without the last part when the
    /// mistake is at the end of the pattern.
    pub message: String,
    /// Where in the pattern, in bytes.
    pub offset: usize,
}

impl RegexError {
    fn new(pattern: &[u8], code: c_int, offset: usize) -> Self {
        let text = String::from_utf8_lossy(pattern);
        let mut message = format!("pcre2_compile() failed: {} in \"{text}\"", error_text(code));
        if let Some(rest) = pattern.get(offset..).filter(|rest| !rest.is_empty()) {
            message.push_str(&format!(" at \"{}\"", String::from_utf8_lossy(rest)));
        }
        Self { message, offset: offset.min(pattern.len()) }
    }
}

impl fmt::Display for RegexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RegexError {}

/// A match that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchError {
    /// Too many steps, too much heap or too deep: the pattern backtracks without end on this subject.
    Limit,
    /// The JIT's stack was too small for this pattern and subject.
    JitStack,
    /// The pattern wants UTF-8 and the subject is not, for the reason that PCRE2 has this number for.
    Utf(i32),
    /// No memory left.
    Memory,
    /// Another error of PCRE2, by its number.
    Other(i32),
}

impl MatchError {
    fn from_code(code: c_int) -> Self {
        match code {
            pcre2::PCRE2_ERROR_MATCHLIMIT | pcre2::PCRE2_ERROR_DEPTHLIMIT | pcre2::PCRE2_ERROR_HEAPLIMIT => {
                Self::Limit
            }
            pcre2::PCRE2_ERROR_JIT_STACKLIMIT => Self::JitStack,
            pcre2::PCRE2_ERROR_NOMEMORY => Self::Memory,
            pcre2::PCRE2_ERROR_UTF8_ERR21..=pcre2::PCRE2_ERROR_UTF8_ERR1 => Self::Utf(code),
            other => Self::Other(other),
        }
    }

    /// PCRE2's number for this error, as nginx prints it: `pcre2_match() failed: -47 on "…" using "…"`.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::Limit => pcre2::PCRE2_ERROR_MATCHLIMIT,
            Self::JitStack => pcre2::PCRE2_ERROR_JIT_STACKLIMIT,
            Self::Memory => pcre2::PCRE2_ERROR_NOMEMORY,
            Self::Utf(code) | Self::Other(code) => code,
        }
    }
}

impl fmt::Display for MatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pcre2_match() failed: {}", self.code())
    }
}

impl std::error::Error for MatchError {}

impl RegexFlags {
    fn bits(self) -> u32 {
        [
            (self.caseless, pcre2::PCRE2_CASELESS),
            (self.multiline, pcre2::PCRE2_MULTILINE),
            (self.dotall, pcre2::PCRE2_DOTALL),
            (self.extended, pcre2::PCRE2_EXTENDED),
            // `\C` takes one byte out of a character: PCRE2 calls it dangerous with UTF, and the JIT refuses it.
            (self.utf, pcre2::PCRE2_UTF | pcre2::PCRE2_NEVER_BACKSLASH_C),
            (self.anchored, pcre2::PCRE2_ANCHORED),
            (self.dupnames, pcre2::PCRE2_DUPNAMES),
            (self.lenient, pcre2::PCRE2_MATCH_INVALID_UTF),
            (self.javascript, pcre2::PCRE2_ALT_BSUX | pcre2::PCRE2_MATCH_UNSET_BACKREF),
        ]
        .into_iter()
        .filter(|(on, _)| *on)
        .fold(0, |bits, (_, bit)| bits | bit)
    }
}

/// The name table's address, in the form `pcre2_pattern_info` writes it.
#[repr(transparent)]
#[derive(Default)]
struct NameTable(Option<NonNull<u8>>);

/// How many groups PCRE2's result says were set; `None`: nothing matched.
fn outcome(result: c_int) -> Result<Option<usize>, MatchError> {
    if result == pcre2::PCRE2_ERROR_NOMATCH {
        return Ok(None);
    }
    usize::try_from(result).map(Some).map_err(|_| MatchError::from_code(result))
}

/// An entry is the group's number, high byte first, then the name ended by a NUL.
fn name_entry(entry: &[u8]) -> (String, usize) {
    let (number, name) = entry.split_at(NAME_NUMBER_LEN);
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let number = usize::from(u16::from_be_bytes([number[0], number[1]]));
    (String::from_utf8_lossy(name).into_owned(), number)
}

fn new_match_data(pairs: usize) -> Option<NonNull<pcre2::pcre2_match_data_8>> {
    let pairs = u32::try_from(pairs).ok()?;
    // SAFETY: a null general context asks for malloc.
    NonNull::new(unsafe { pcre2::pcre2_match_data_create_8(pairs, ptr::null_mut()) })
}

fn error_text(code: c_int) -> String {
    let mut text = [0_u8; 256];
    // SAFETY: PCRE2 writes at most `text.len()` bytes and returns how many, without the NUL, or a negative number.
    let len = unsafe { pcre2::pcre2_get_error_message_8(code, text.as_mut_ptr(), text.len()) };
    match usize::try_from(len) {
        Ok(len) => String::from_utf8_lossy(&text[..len.min(text.len())]).into_owned(),
        Err(_) => format!("unknown error: {code}"),
    }
}

/// Bytes of the group's number in an entry of the name table.
const NAME_NUMBER_LEN: usize = 2;
/// Room for `$0` to `$9`, which covers nearly every pattern of a configuration.
const FIRST_PAIRS: usize = 10;
/// Words that the algorithm for the longest match works in: OpenResty's number.
const DFA_WORKSPACE: usize = 100;
/// Steps at one place of the subject before a match is given up: PCRE2's default, and so nginx's. They take 0.1 s of
/// machine code, 0.6 to 0.8 s without JIT (measured with `(a+)+$`).
const MATCH_LIMIT: u32 = 10_000_000;
/// Heap a match without JIT may take, in KiB; PCRE2's default is 20 GB. `(a|b)*` over 64 KB takes 20 MB.
const HEAP_LIMIT_KIB: u32 = 256 * 1024;
/// Bytes of JIT stack at first, and at most; PCRE2's own 32 KiB are too few for long subjects of `(a|b)*`.
const JIT_STACK_FIRST: usize = 32 * 1024;
const JIT_STACK_MAX: usize = 512 * 1024;

#[cfg(test)]
mod tests;
