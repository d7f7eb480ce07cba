//! Recorded stacks that the server keeps, so that a link to one is good for others, too, and longer than a tab of a browser.
//! They are in memory: the last [`MOST`], of [`BYTES`] bytes at most, until the process ends.

use std::collections::VecDeque;

use crate::gzip;
use crate::stacks::StackSet;

/// What is kept, oldest first.
#[derive(Default)]
pub(crate) struct StackRecordings(VecDeque<KeptRecording>);

/// A recording.
#[derive(Clone)]
pub(crate) struct KeptRecording {
    /// Its name: random, so that nobody guesses it.
    pub(crate) id: String,
    pub(crate) kind: String,
    /// The location that it is of; empty for all.
    pub(crate) location: String,
    /// When it ended, milliseconds since 1970.
    pub(crate) unix_ms: u64,
    pub(crate) duration_ns: u64,
    /// Samples, or times that were measured.
    pub(crate) count: u64,
    /// The stacks as JSON: gzip, since names are in there again and again.
    packed: Vec<u8>,
    /// Bytes of the JSON.
    length: usize,
}

impl KeptRecording {
    /// The recording of `stacks`, of which `json` is the file.
    ///
    /// # Errors
    /// Why it is not kept.
    pub(crate) fn new(location: &str, stacks: &StackSet, json: &[u8]) -> Result<KeptRecording, String> {
        let packed = gzip::file(json).ok_or("the recording could not be packed")?;
        if packed.len() > LARGEST || json.len() > LONGEST {
            return Err(format!(
                "the recording is larger than what is kept ({} MiB packed); weir flame -o FILE.json saves it",
                LARGEST >> 20
            ));
        }
        let random = weir_tls::random_bytes::<16>().map_err(|error| error.to_string())?;
        Ok(KeptRecording {
            id: random.iter().map(|byte| format!("{byte:02x}")).collect(),
            kind: stacks.kind.clone(),
            location: location.to_owned(),
            unix_ms: weir_rt::clock::unix_ns() / 1_000_000,
            duration_ns: stacks.duration_ns,
            count: stacks.total().count,
            packed,
            length: json.len(),
        })
    }

    /// The stacks as JSON.
    pub(crate) fn json(&self) -> Option<Vec<u8>> {
        gzip::content(&self.packed, self.length)
    }

    /// Bytes that it takes here.
    pub(crate) fn bytes(&self) -> usize {
        self.packed.len()
    }
}

impl StackRecordings {
    /// Keeps one; the oldest make room.
    pub(crate) fn keep(&mut self, recording: KeptRecording) {
        self.0.push_back(recording);
        while self.0.len() > MOST || self.bytes() > BYTES {
            self.0.pop_front();
        }
    }

    /// The recording of that name.
    pub(crate) fn find(&self, id: &str) -> Option<&KeptRecording> {
        self.0.iter().find(|recording| recording.id == id)
    }

    /// Forgets one; `false`: there is none of that name.
    pub(crate) fn remove(&mut self, id: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|recording| recording.id != id);
        self.0.len() < before
    }

    /// All, the latest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &KeptRecording> {
        self.0.iter().rev()
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(KeptRecording::bytes).sum()
    }
}

/// Recordings that are kept.
pub(crate) const MOST: usize = 20;
/// Bytes of all of them, packed.
pub(crate) const BYTES: usize = 16 << 20;
/// Bytes of one, packed.
const LARGEST: usize = 4 << 20;
/// Bytes of one as JSON.
const LONGEST: usize = 128 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::StackFormat;
    use crate::stacks::tests::example;

    fn recording(location: &str) -> KeptRecording {
        let stacks = example();
        KeptRecording::new(location, &stacks, &StackFormat::Json.write(&stacks)).expect("kept")
    }

    #[test]
    fn the_oldest_make_room() {
        let mut all = StackRecordings::default();
        for number in 0..MOST + 2 {
            all.keep(recording(&number.to_string()));
        }
        assert_eq!(all.all().count(), MOST);
        assert_eq!(all.all().last().map(|it| it.location.as_str()), Some("2"));
        let id = all.all().next().expect("one").id.clone();
        assert_eq!(all.find(&id).and_then(KeptRecording::json), Some(StackFormat::Json.write(&example())));
        assert!(all.remove(&id) && !all.remove(&id) && all.find(&id).is_none());
        let mut large = recording("large");
        large.packed = vec![0; BYTES - 10];
        all.keep(large);
        assert_eq!(all.all().count(), 1, "bytes are bounded, too");
    }

    #[test]
    fn names_are_random_and_what_is_too_large_is_not_kept() {
        let (one, two) = (recording(""), recording(""));
        assert!(one.id != two.id && one.id.len() == 32, "{} {}", one.id, two.id);
        // What can't be packed.
        let mut noise = 7u64;
        let json: Vec<u8> = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (noise >> 56) as u8
        })
        .take(LARGEST + 1000)
        .collect();
        assert!(KeptRecording::new("", &example(), &json).is_err());
    }
}
