//! Sets of names of fields, such as those of responses that clients do not see: asked by a look at a bit or two.

use weir_http::{KnownField, classify};

/// Names of fields, of which those that Weir knows are bits.
#[derive(Clone, Debug, Default)]
pub struct FieldNames {
    known: u128,
    /// The other names, in lower case, and which lengths they have: a bit each, of all from 63 on one.
    others: Vec<Box<[u8]>>,
    lengths: u64,
}

impl FieldNames {
    /// Adds the field name `name`, in any case of letters.
    pub fn add(&mut self, name: &str) {
        match classify(name.as_bytes()) {
            KnownField::Other => {
                self.lengths |= bit(name.len());
                self.others.push(name.to_ascii_lowercase().into_bytes().into());
            }
            known => self.known |= 1 << known as u8,
        }
    }

    /// Whether a field with this name, which is known as `known`, is one of them.
    #[inline]
    pub fn has(&self, known: KnownField, name: &[u8]) -> bool {
        match known {
            KnownField::Other => self.lengths & bit(name.len()) != 0 && self.has_other(name),
            known => self.known & 1 << known as u8 != 0,
        }
    }

    /// As [`FieldNames::has`], of a name that was not looked up yet.
    pub(crate) fn has_name(&self, name: &[u8]) -> bool {
        self.has(classify(name), name)
    }

    fn has_other(&self, name: &[u8]) -> bool {
        self.others.iter().any(|other| other.eq_ignore_ascii_case(name))
    }
}

fn bit(length: usize) -> u64 {
    1 << length.min(63)
}

const _: () = assert!(KnownField::COUNT <= 128, "a bit for each name");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_whether_known_or_not() {
        let long = "x-".to_owned() + &"y".repeat(70);
        let mut names = FieldNames::default();
        ["Server", "X-PAD", &long].into_iter().for_each(|name| names.add(name));
        for name in ["server", "SERVER", "x-pad", "X-Pad", &long.to_uppercase()] {
            assert!(names.has_name(name.as_bytes()), "{name}");
        }
        for name in ["date", "x-pod", "", "serves", &long[1..]] {
            assert!(!names.has_name(name.as_bytes()), "{name}");
        }
    }
}
