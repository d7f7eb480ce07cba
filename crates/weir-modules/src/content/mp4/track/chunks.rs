//! Which chunks a clip's samples are in: `stsc`.

use crate::content::mp4::atom::{AtomWriter, entry, put};
use crate::content::mp4::error::Mp4Error;
use crate::content::mp4::movie::ClipSpan;
use crate::content::mp4::track::Track;
use crate::content::mp4::track::times::SampleCut;

/// The chunks of a clip, and the table about them.
#[derive(Default)]
pub(super) struct ChunkCut<'a> {
    /// The first chunk, from 0, and how many of its samples are before the clip.
    pub(super) start: u64,
    pub(super) start_samples: u64,
    /// One past the last chunk, and how many samples of the last are in the clip; of use where the clip has an end.
    pub(super) end: u64,
    pub(super) end_samples: u64,
    head: &'a [u8],
    /// The entries, and those of a first and of a last chunk that have fewer samples than the others of their run.
    entries: Vec<u8>,
    first: Option<[u32; 3]>,
    last: Option<[u32; 3]>,
}

/// A run of chunks with as many samples, and a sample in it.
struct ChunkPlace {
    index: usize,
    /// The run's first chunk, from 1, the samples of each, and what describes them.
    chunk: u32,
    samples: u32,
    description: u32,
    /// Samples of the run before the sample.
    before: u64,
    /// The first chunk, from 1, of the next run.
    next: u64,
    /// Samples of a chunk of the run before, if there is one.
    previous: u32,
}

impl ChunkPlace {
    /// The chunk, from 0, that has the sample, and how many samples it has before.
    fn chunk(&self) -> (u64, u32) {
        let samples = u64::from(self.samples);
        (u64::from(self.chunk) - 1 + self.before / samples, (self.before % samples) as u32)
    }
}

impl<'a> ChunkCut<'a> {
    /// Looks up the clip's samples.
    ///
    /// # Errors
    /// No `stsc`, or one that is empty, not in order, or has fewer samples.
    pub(super) fn cut(
        track: &Track<'a>,
        samples: &SampleCut<'_>,
        span: ClipSpan,
    ) -> Result<ChunkCut<'a>, Mp4Error> {
        let (head, table) = track.chunks.ok_or_else(|| Mp4Error::absent("stsc atoms were"))?;
        if table.is_empty() {
            return Err(Mp4Error::within("zero number of entries in stsc atom"));
        }
        let mut cut = ChunkCut { head, ..ChunkCut::default() };
        let count = track.offsets.count();
        cut.begin(table, samples.start, count)?;
        if span.length != 0 {
            cut.finish(samples.end - samples.start, count)?;
        }
        for entry in cut.entries.chunks_exact_mut(12) {
            let chunk = u32::from_be_bytes(entry[..4].try_into().expect("four bytes"));
            put(entry, 0, &chunk.wrapping_sub(cut.start as u32).to_be_bytes());
        }
        Ok(cut)
    }

    /// Cuts what is before the clip's first sample, `sample`.
    fn begin(&mut self, table: &[u8], sample: u64, count: u32) -> Result<(), Mp4Error> {
        let place = find(table, sample, count, "start", 0)?;
        let (chunk, before) = place.chunk();
        self.entries = table[place.index * 12..].to_vec();
        self.start = chunk;
        self.start_samples = u64::from(before);
        // The chunk is one of `count`, or the one after.
        put(&mut self.entries, 0, &(chunk as u32 + 1).to_be_bytes());
        if before == 0 {
            return Ok(());
        }
        let samples = place.samples - before;
        if place.next - chunk == 2 {
            put(&mut self.entries, 4, &samples.to_be_bytes());
        } else {
            self.first = Some([1, samples, place.description]);
            put(&mut self.entries, 0, &(chunk as u32 + 2).to_be_bytes());
        }
        Ok(())
    }

    /// Cuts what comes after the clip's `samples`.
    fn finish(&mut self, mut samples: u64, count: u32) -> Result<(), Mp4Error> {
        let mut previous = 0;
        if let Some([_, of_first, _]) = &mut self.first {
            *of_first = u64::from(*of_first).min(samples) as u32;
            samples -= u64::from(*of_first);
            // nginx forgets them here: a clip that ends with its first chunk lacks its bytes there.
            previous = *of_first;
        }
        let place = find(&self.entries, samples, count, "end", previous)?;
        let (chunk, rest) = place.chunk();
        if place.before == 0 {
            self.entries.truncate(place.index * 12);
            self.end_samples = u64::from(place.previous);
        } else {
            self.entries.truncate(place.index * 12 + 12);
            self.end_samples = u64::from(place.samples);
        }
        self.end = chunk;
        if rest == 0 {
            return Ok(());
        }
        self.end = chunk + 1;
        self.end_samples = u64::from(rest);
        if u64::from(place.chunk) == chunk + 1 {
            put(&mut self.entries, place.index * 12 + 4, &rest.to_be_bytes());
        } else {
            let number = self.end.saturating_sub(self.start) as u32;
            self.last = Some([number, rest, place.description]);
        }
        Ok(())
    }

    /// Writes `stsc`.
    pub(super) fn write(&self, out: &mut AtomWriter) {
        let around = |entry: Option<[u32; 3]>| entry.map(|fields| fields.map(u32::to_be_bytes).concat());
        let parts = [around(self.first).unwrap_or_default(), around(self.last).unwrap_or_default()];
        let entries = [&parts[0][..], &self.entries, &parts[1]].concat();
        out.table(b"stsc", self.head, entries.len() / 12, &entries);
    }
}

/// Finds sample `sample`, from 0, in the table `stsc` of a track with `count` chunks. `previous` are the samples of the
/// chunk before the table's.
fn find(
    table: &[u8],
    mut sample: u64,
    count: u32,
    what: &str,
    mut previous: u32,
) -> Result<ChunkPlace, Mp4Error> {
    let out = || Mp4Error::within(&format!("{what} time is out mp4 stsc chunks"));
    let [mut chunk, mut samples, mut description] = entry(table, 0).ok_or_else(out)?;
    let mut index = 0;
    let next = loop {
        let following: Option<[u32; 3]> = entry(table, index + 1);
        let next = following.map_or(u64::from(count) + 1, |[chunk, ..]| u64::from(chunk));
        let Some(chunks) = next.checked_sub(u64::from(chunk)) else {
            return Err(Mp4Error::within("unordered mp4 stsc chunks"));
        };
        let of_run = chunks.saturating_mul(u64::from(samples));
        match following {
            Some(fields) if sample >= of_run => {
                sample -= of_run;
                if chunks > 0 {
                    previous = samples;
                }
                [chunk, samples, description] = fields;
                index += 1;
            }
            None if sample > of_run => return Err(out()),
            _ => break next,
        }
    };
    if samples == 0 {
        return Err(Mp4Error::within("zero number of samples"));
    }
    if chunk == 0 {
        return Err(Mp4Error::within("zero chunk"));
    }
    Ok(ChunkPlace { index, chunk, samples, description, before: sample, next, previous })
}
