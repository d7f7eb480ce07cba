//! Lists of fields and arguments for compiled code.

use std::cell::RefCell;
use std::ptr;

use weir_engine::log::LogLevel;

use crate::api::ffi::{FfiAnswer, REFUSED, guarded, slice};
use crate::api::{encode, response_fields};
use crate::run::lend;
use crate::vm::phase::REQUEST;

/// A name with its value; `struct weir_pair` of the prelude. Without pointers: what was at this place the last time.
#[repr(C)]
pub(crate) struct NameValue {
    name: *const u8,
    value: *const u8,
    name_len: u32,
    /// -1: an argument without a value.
    value_len: i32,
}

/// The pairs of the last list, until the next one. Their bytes are in `bytes`, one after the other, but for those of
/// the request's fields, which stay where they are: the prelude has taken them before a script can change them.
#[derive(Default)]
struct PairList {
    pairs: Vec<NameValue>,
    bytes: Vec<u8>,
    /// Lengths of each pair's name and value.
    lens: Vec<(usize, Option<usize>)>,
    reported: LastFields,
}

/// The request's fields as the prelude got them last: a client's next request has most of them again, of which the
/// prelude has the strings.
#[derive(Default)]
struct LastFields {
    /// Names and values, one after the other.
    bytes: Vec<u8>,
    /// Lengths of each pair's name and value.
    lens: Vec<(usize, usize)>,
    case: NameCase,
    /// A number that no other list of this thread has had.
    number: u64,
}

/// How names of fields are given.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum NameCase {
    #[default]
    Lower,
    AsSent,
}

thread_local! {
    static LIST: RefCell<PairList> = RefCell::default();
}

impl LastFields {
    /// How many of the first `fields` are those that were reported, of which alone is stored; if the prelude has those,
    /// which has the strings of list number `has`.
    fn keep_same<'f>(
        &mut self,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        case: NameCase,
        has: f64,
    ) -> usize {
        let (mut same, mut rest) = (0, &self.bytes[..]);
        if has != 0.0 && has == self.number as f64 && case == self.case {
            for ((name, value), &(name_len, value_len)) in fields.zip(&self.lens) {
                let (its_name, after) = rest.split_at(name_len);
                let (its_value, after) = after.split_at(value_len);
                if its_name != name || its_value != value {
                    break;
                }
                (same, rest) = (same + 1, after);
            }
        }
        let kept = self.bytes.len() - rest.len();
        self.bytes.truncate(kept);
        self.lens.truncate(same);
        self.case = case;
        self.number += 1;
        same
    }

    fn push(&mut self, name: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.lens.push((name.len(), value.len()));
    }
}

impl PairList {
    fn clear(&mut self) {
        self.pairs.clear();
        self.bytes.clear();
        self.lens.clear();
    }

    fn push(&mut self, name: &[u8], value: Option<&[u8]>, case: NameCase) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        if case == NameCase::Lower {
            self.bytes[start..].make_ascii_lowercase();
        }
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.lens.push((name.len(), value.map(<[u8]>::len)));
    }

    /// Makes pairs of the request's fields without a copy, but for names in lower case. The first ones are without
    /// pointers if the prelude, which has the strings of list number `has`, has theirs.
    fn point<'f>(
        &mut self,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
        case: NameCase,
        has: f64,
    ) {
        let lower = case == NameCase::Lower;
        let same = self.reported.keep_same(fields.clone(), case, has);
        let known = || NameValue { name: ptr::null(), value: ptr::null(), name_len: 0, value_len: 0 };
        self.pairs.extend((0..same).map(|_| known()));
        let fields = fields.skip(same);
        // Room for all of them at once: the places of the first ones hold.
        self.bytes.reserve(if lower { fields.clone().map(|(name, _)| name.len()).sum() } else { 0 });
        for (mut name, value) in fields {
            let whole = self.reported.lens.len() == self.pairs.len();
            if whole && self.reported.bytes.len() + name.len() + value.len() <= MOST_TOLD {
                self.reported.push(name, value);
            }
            let start = self.bytes.len();
            if lower {
                self.bytes.extend_from_slice(name);
                self.bytes[start..].make_ascii_lowercase();
                name = &self.bytes[start..];
            }
            self.pairs.push(NameValue {
                name: name.as_ptr(),
                value: value.as_ptr(),
                name_len: name.len() as u32,
                value_len: value.len() as i32,
            });
        }
    }

    /// Makes pairs of what was pushed.
    fn settle(&mut self) {
        let mut rest = &self.bytes[..];
        for &(name, value) in &self.lens {
            let (one, after) = rest.split_at(name);
            let (other, after) = after.split_at(value.unwrap_or(0));
            rest = after;
            self.pairs.push(NameValue {
                name: one.as_ptr(),
                value: other.as_ptr(),
                name_len: name as u32,
                value_len: value.map_or(-1, |len| len as i32),
            });
        }
    }
}

/// A list by number: 0 the request's fields, 1 the response's, 2 the request's arguments, 3 those in `text`. `most` of
/// them, 0 for all; names as they are if `raw`, else fields' in lower case. `flag` says whether there are more. The
/// request's fields have a `list` number, which the prelude gives back in `strings` when it has made strings of them all.
pub(crate) unsafe extern "C" fn list(
    what: i32,
    most: f64,
    raw: i32,
    text: *const u8,
    len: usize,
    answer: *mut FfiAnswer,
) -> i32 {
    // SAFETY: the prelude passes a Lua string (or nothing) and its own result struct, both kept during the call.
    let (text, answer) = unsafe { (slice(text, len), &mut *answer) };
    guarded(|| {
        if what != 3 && !lend::phase().is_in(REQUEST) {
            return REFUSED;
        }
        let case = if raw == 0 { NameCase::Lower } else { NameCase::AsSent };
        let most = if most > 0.0 { most as usize } else { usize::MAX };
        LIST.with_borrow_mut(|list| {
            list.clear();
            let all = match what {
                3 => Ok(arguments(list, text, most)),
                2 => lend::exchange(|x| arguments(list, x.args(), most)),
                1 => lend::exchange(|x| {
                    let fields = response_fields(x);
                    fields.iter().take(most).for_each(|(name, value)| list.push(name, Some(value), case));
                    fields.len()
                }),
                _ => lend::exchange(|x| {
                    let fields = x.request.head.fields.iter().take(most);
                    list.point(
                        fields.map(|field| (x.arena.get(field.name), x.arena.get(field.value))),
                        case,
                        answer.strings,
                    );
                    answer.list = list.reported.number as f64;
                    x.request.head.fields.len()
                }),
            };
            let Ok(all) = all else { return REFUSED };
            answer.flag = u32::from(all > most);
            if all > most {
                tell_cut(what, all, most);
            }
            list.settle();
            answer.pairs = if list.pairs.is_empty() { ptr::null() } else { list.pairs.as_ptr() };
            list.pairs.len() as i32
        })
    })
}

/// Gives values without names as the list; how many they are.
pub(crate) fn give(values: &[Vec<u8>], answer: &mut FfiAnswer) -> i32 {
    LIST.with_borrow_mut(|list| {
        list.clear();
        values.iter().for_each(|value| list.push(b"", Some(value), NameCase::AsSent));
        list.settle();
        answer.pairs = if list.pairs.is_empty() { ptr::null() } else { list.pairs.as_ptr() };
        list.pairs.len() as i32
    })
}

/// Adds the arguments in `text`; how many there are.
fn arguments(list: &mut PairList, text: &[u8], most: usize) -> usize {
    let mut all = 0;
    for part in text.split(|byte| *byte == b'&').filter(|part| !part.is_empty()) {
        all += 1;
        if all > most {
            continue;
        }
        let (name, value) = encode::argument(part);
        if !name.is_empty() {
            list.push(&name, value.as_deref(), NameCase::AsSent);
        }
    }
    all
}

fn tell_cut(what: i32, all: usize, most: usize) {
    match what {
        0 => lend::log(LogLevel::Debug, &format_args!("lua exceeding request header limit {all} > {most}")),
        1 => lend::log(LogLevel::Debug, &format_args!("lua exceeding response header limit {all} > {most}")),
        _ => lend::log(LogLevel::Debug, &format_args!("lua hit query args limit {most}")),
    }
}

/// Bytes of the fields that are remembered.
const MOST_TOLD: usize = 4096;
