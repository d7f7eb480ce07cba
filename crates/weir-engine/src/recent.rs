//! What was determined about short texts that come again and again: hosts, targets, extensions.

/// Facts about texts, each in the one place that the text's bytes lead to; a newer one takes it over. Looking one up
/// costs some 35 instructions, and one that is not there costs as little.
///
/// For facts that follow from the text alone, or from what is stored with the fact and compared by the caller.
pub struct RecentFacts<T>(Vec<Option<(Box<[u8]>, T)>>);

impl<T> Default for RecentFacts<T> {
    /// An empty one, without memory.
    fn default() -> RecentFacts<T> {
        RecentFacts(Vec::new())
    }
}

impl<T> RecentFacts<T> {
    /// The fact about `text`; `None` if it is absent, or a newer one has taken its place.
    #[inline]
    pub fn find(&self, text: &[u8]) -> Option<&T> {
        match self.0.get(place(text)) {
            Some(Some((known, fact))) if **known == *text => Some(fact),
            _ => None,
        }
    }

    /// Keeps `fact` of `text`, unless that is long: long ones are seldom the same.
    #[cold]
    pub fn keep(&mut self, text: &[u8], fact: T) {
        if text.len() > LONGEST {
            return;
        }
        self.0.resize_with(PLACES, || None);
        self.0[place(text)] = Some((text.into(), fact));
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Where `text` is. Clients may choose texts that meet: they then cost what they cost without this.
#[inline]
fn place(text: &[u8]) -> usize {
    let mixed = match (text.first_chunk(), text.last_chunk()) {
        (Some(first), Some(last)) => u64::from_le_bytes(*first).rotate_left(8) ^ u64::from_le_bytes(*last),
        // An extension: its bytes, or its ends and its middle.
        _ => match *text {
            [] => 0,
            [first, .., last] => {
                u64::from(first) << 16 | u64::from(text[text.len() / 2]) << 8 | u64::from(last)
            }
            [only] => u64::from(only),
        },
    };
    (((mixed ^ text.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 32) as usize % PLACES
}

/// Texts that one table keeps.
const PLACES: usize = 64;
/// Bytes of a text that is cached.
const LONGEST: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_is_that_of_its_own_text() {
        let mut recent = RecentFacts::default();
        let texts: Vec<String> = (0..300).map(|n| "/a".repeat(n % 40) + &n.to_string()).collect();
        assert_eq!(recent.find(b""), None);
        for (n, text) in texts.iter().enumerate() {
            recent.keep(text.as_bytes(), n);
            assert_eq!(recent.find(text.as_bytes()), Some(&n));
        }
        let kept = texts.iter().enumerate().filter(|(n, text)| match recent.find(text.as_bytes()) {
            Some(found) => found == n,
            None => false,
        });
        let kept = kept.count();
        assert!(recent.0.iter().flatten().count() == kept && kept > PLACES / 2, "{kept}");
        recent.keep(&[b'x'; LONGEST + 1], 0);
        assert_eq!(recent.find(&[b'x'; LONGEST + 1]), None);
        recent.clear();
        assert!(texts.iter().all(|text| recent.find(text.as_bytes()).is_none()));
    }
}
