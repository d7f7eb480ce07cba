//! The decoder against a model of an encoder that uses everything the format has: each instruction, each representation, any
//! Base, entries that have not come yet.

use proptest::prelude::*;

use super::*;
use crate::hpack::prefixed;
use crate::qpack::fixed::{FIXED, fixed};

/// An encoder's table as the RFC describes it, and what it has written.
struct Model {
    limit: u64,
    capacity: u64,
    /// All entries ever inserted; those from `oldest` on are there.
    entries: Fields,
    oldest: usize,
    stream: Vec<u8>,
}

impl Model {
    fn new(limit: u64) -> Model {
        Model { limit, capacity: 0, entries: Fields::new(), oldest: 0, stream: Vec::new() }
    }

    fn size(&self) -> u64 {
        self.entries[self.oldest..].iter().map(|(name, value)| (name.len() + value.len() + 32) as u64).sum()
    }

    /// Makes room; `false` where an entry is in the way that is needed.
    fn evict(&mut self, room: u64, needed: usize) -> bool {
        let before = self.oldest;
        while self.oldest < self.entries.len() && self.size() > room {
            self.oldest += 1;
        }
        if self.oldest > needed {
            self.oldest = before;
            return false;
        }
        true
    }

    fn resize(&mut self, capacity: u64, needed: usize) {
        if self.evict(capacity, needed) {
            self.capacity = capacity;
            prefixed::integer(&mut self.stream, 0x20, 5, capacity);
        }
    }

    /// An age, if there are entries.
    fn age(&self, pick: u16) -> Option<usize> {
        let there = self.entries.len() - self.oldest;
        (there > 0).then(|| usize::from(pick) % there)
    }

    fn insert(&mut self, how: u8, pick: u16, value: &[u8], needed: usize) {
        let age = self.age(pick);
        let entry = |age: usize| &self.entries[self.entries.len() - 1 - age];
        let (name, value) = match (how % 4, age) {
            (0, Some(age)) => entry(age).clone(),
            (1, Some(age)) => (entry(age).0.clone(), value.to_vec()),
            (2, _) => {
                let row = fixed(u64::from(pick) % FIXED as u64).expect("a row");
                (row.text[..row.label].to_vec(), value.to_vec())
            }
            _ => (format!("n{}", pick % 9).into_bytes(), value.to_vec()),
        };
        let size = (name.len() + value.len() + 32) as u64;
        if size > self.capacity || !self.evict(self.capacity - size, needed) {
            return;
        }
        match (how % 4, age) {
            (0, Some(age)) => prefixed::integer(&mut self.stream, 0, 5, age as u64),
            (1, Some(age)) => {
                prefixed::integer(&mut self.stream, 0x80, 6, age as u64);
                prefixed::text(&mut self.stream, 0, 7, &value);
            }
            (2, _) => {
                prefixed::integer(&mut self.stream, 0xc0, 6, u64::from(pick) % FIXED as u64);
                prefixed::text(&mut self.stream, 0, 7, &value);
            }
            _ => {
                prefixed::text(&mut self.stream, 0x40, 5, &name);
                prefixed::text(&mut self.stream, 0, 7, &value);
            }
        }
        self.entries.push((name, value));
    }

    /// A section of `picks`, its fields, and the oldest entry that it needs.
    fn section(&self, base: u16, picks: &[(u8, u16, Vec<u8>)]) -> ModelSection {
        let base = usize::from(base) % (self.entries.len() + 1);
        let (mut lines, mut fields, mut required, mut least) = (Vec::new(), Fields::new(), 0, usize::MAX);
        for (how, pick, value) in picks {
            let numbered = self.age(*pick).map(|age| self.entries.len() - 1 - age);
            let Some(number) = numbered.filter(|_| how % 4 < 2) else {
                fields.push(self.fixed_line(*how, *pick, value, &mut lines));
                continue;
            };
            required = required.max(number + 1);
            least = least.min(number);
            let (name, whole) = &self.entries[number];
            let never = if how & 0x80 == 0 { 0 } else { 1 };
            let below = base.checked_sub(number + 1);
            match (how % 4, below) {
                (0, Some(below)) => prefixed::integer(&mut lines, 0x80, 6, below as u64),
                (0, None) => prefixed::integer(&mut lines, 0x10, 4, (number - base) as u64),
                (_, Some(below)) => prefixed::integer(&mut lines, 0x40 | never << 5, 4, below as u64),
                (_, None) => prefixed::integer(&mut lines, never << 3, 3, (number - base) as u64),
            }
            let value = if how % 4 == 0 { whole } else { value };
            if how % 4 == 1 {
                prefixed::text(&mut lines, 0, 7, value);
            }
            fields.push((name.clone(), value.clone()));
        }
        ModelSection { block: self.prefixed(base, required, &lines), fields, least }
    }

    fn fixed_line(&self, how: u8, pick: u16, value: &[u8], lines: &mut Vec<u8>) -> (Vec<u8>, Vec<u8>) {
        let index = u64::from(pick) % FIXED as u64;
        let row = fixed(index).expect("a row");
        let (name, whole) = row.text.split_at(row.label);
        match how % 3 {
            0 => {
                prefixed::integer(lines, 0xc0, 6, index);
                (name.to_vec(), whole.to_vec())
            }
            1 => {
                prefixed::integer(lines, 0x50, 4, index);
                prefixed::text(lines, 0, 7, value);
                (name.to_vec(), value.to_vec())
            }
            _ => {
                prefixed::text(lines, 0x20, 3, name);
                prefixed::text(lines, 0, 7, value);
                (name.to_vec(), value.to_vec())
            }
        }
    }

    fn prefixed(&self, base: usize, required: usize, lines: &[u8]) -> Vec<u8> {
        let mut block = Vec::new();
        match required as u64 {
            0 => block.push(0),
            required => prefixed::integer(&mut block, 0, 8, required % (2 * (self.limit / 32)) + 1),
        }
        match base.checked_sub(required) {
            Some(above) => prefixed::integer(&mut block, 0, 7, above as u64),
            None => prefixed::integer(&mut block, 0x80, 7, (required - base - 1) as u64),
        }
        block.extend_from_slice(lines);
        block
    }
}

struct ModelSection {
    block: Vec<u8>,
    fields: Fields,
    /// The oldest entry that it refers to.
    least: usize,
}

/// What happens, one after the other.
#[derive(Clone, Debug)]
enum Step {
    Resize(u64),
    Insert(u8, u16, Vec<u8>),
    Section(u16, Vec<(u8, u16, Vec<u8>)>),
    /// So many bytes of the encoder stream arrive.
    Instructions(usize),
    /// One of the sections on their way arrives, and is acknowledged.
    Arrive(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value = || {
        prop_oneof!["[a-c]{0,3}".prop_map(String::into_bytes), proptest::collection::vec(any::<u8>(), 0..40)]
    };
    let line = (any::<u8>(), any::<u16>(), value());
    let step = prop_oneof![
        1 => any::<u64>().prop_map(Step::Resize),
        8 => (any::<u8>(), any::<u16>(), value()).prop_map(|(how, pick, value)| Step::Insert(how, pick, value)),
        6 => (any::<u16>(), proptest::collection::vec(line, 0..6)).prop_map(|(base, lines)| Step::Section(base, lines)),
        6 => (0..60_usize).prop_map(Step::Instructions),
        6 => any::<u16>().prop_map(Step::Arrive),
    ];
    proptest::collection::vec(step, 1..150)
}

proptest! {
    #[test]
    fn sections_say_the_same_whenever_they_come(limit in 32..600_u64, steps in steps()) {
        let (mut model, mut decoder) = (Model::new(limit), QpackDecoder::new(limit as usize));
        model.resize(limit, 0);
        let mut waiting: Vec<ModelSection> = Vec::new();
        let rest = [Step::Instructions(usize::MAX), Step::Arrive(0)].into_iter().cycle();
        let rest = rest.take(400);
        for step in steps.into_iter().chain(rest) {
            // What is not acknowledged can't go, either.
            let needed = waiting.iter().map(|section| section.least).min().unwrap_or(usize::MAX);
            let needed = needed.min(decoder.inserted() as usize);
            match step {
                Step::Resize(capacity) => model.resize(capacity % (limit + 1), needed),
                Step::Insert(how, pick, value) => model.insert(how, pick, &value, needed),
                Step::Section(base, lines) => waiting.push(model.section(base, &lines)),
                Step::Instructions(count) => {
                    let count = count.min(model.stream.len());
                    let bytes: Vec<u8> = model.stream.drain(..count).collect();
                    prop_assert_eq!(decoder.receive(&bytes), Ok(()));
                }
                Step::Arrive(pick) if waiting.is_empty() => { let _ = pick; }
                Step::Arrive(pick) => {
                    let at = usize::from(pick) % waiting.len();
                    match read(&mut decoder, 4, &waiting[at].block) {
                        Ok(Some(fields)) => prop_assert_eq!(fields, waiting.remove(at).fields),
                        Ok(None) => {}
                        Err(error) => prop_assert!(false, "{error}"),
                    }
                }
            }
        }
        prop_assert!(waiting.is_empty() && model.stream.is_empty());
        prop_assert_eq!(decoder.inserted() as usize, model.entries.len());
        prop_assert_eq!(decoder.table.size() as u64, model.size());
    }

    #[test]
    fn no_bytes_make_the_decoder_fall(
        instructions in proptest::collection::vec(any::<u8>(), 0..200),
        block in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut decoder = QpackDecoder::new(300);
        let mut section = DecodedSection::default();
        let limits = SectionLimits::new(500, 10);
        let _capacity = decoder.receive(&[0x3f, 0x80, 0x02]);
        let _outcome = decoder.receive(&instructions);
        let _outcome = decoder.decode(0, &block, limits, &mut section);
        prop_assert!(section.items.len() <= 10 && section.text.len() <= 500 + 200 * 8 / 5 + 300);
        for item in &section.items {
            prop_assert!(item.value.end as usize <= section.text.len());
        }
    }
}
