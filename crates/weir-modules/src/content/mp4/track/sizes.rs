//! How long a clip's samples are: `stsz`.

use crate::content::mp4::atom::{AtomWalk, AtomWriter, get32};
use crate::content::mp4::error::Mp4Error;
use crate::content::mp4::track::ClipFile;
use crate::content::mp4::track::chunks::ChunkCut;
use crate::content::mp4::track::times::SampleCut;

/// The table `stsz`, if there is one.
#[derive(Default)]
pub(in crate::content::mp4) struct SizeTable<'a>(Option<SampleSizes<'a>>);

struct SampleSizes<'a> {
    /// Version and flags, and the size of all samples; 0 where each has its own.
    head: &'a [u8],
    uniform: u32,
    /// How many samples there are, those of the clip once it is cut.
    count: u64,
    /// Four bytes each; empty where they are all alike.
    table: &'a [u8],
}

/// Bytes of samples.
#[derive(Clone, Copy, Default)]
pub(super) struct SampleBytes {
    /// Of the first chunk, before the clip's start.
    pub(super) start: u64,
    /// Of the last chunk, before the clip's end.
    pub(super) end: u64,
}

impl<'a> SizeTable<'a> {
    /// Takes the content of `stsz`, which may come once.
    pub(in crate::content::mp4) fn read(&mut self, data: &'a [u8]) -> Result<AtomWalk, Mp4Error> {
        let too_small = || Mp4Error::too_small("stsz");
        let (Some(uniform), Some(count)) = (get32(data, 4), get32(data, 8)) else { return Err(too_small()) };
        if self.0.is_some() {
            return Err(Mp4Error::duplicate("stsz"));
        }
        let bytes = if uniform == 0 { (count as usize).checked_mul(4) } else { Some(0) };
        let end = bytes.and_then(|bytes| bytes.checked_add(12)).ok_or_else(too_small)?;
        let table = data.get(12..end).ok_or_else(too_small)?;
        self.0 = Some(SampleSizes { head: &data[..8], uniform, count: u64::from(count), table });
        Ok(AtomWalk::Next)
    }

    /// Cuts the table to the clip's samples, and sums up what the chunks at its ends have of others.
    ///
    /// # Errors
    /// Fewer samples than the other tables say; sums that are more than the file.
    pub(super) fn cut(
        &mut self,
        samples: &SampleCut<'_>,
        chunks: &ChunkCut<'_>,
        file: ClipFile,
    ) -> Result<SampleBytes, Mp4Error> {
        let Some(sizes) = &mut self.0 else { return Ok(SampleBytes::default()) };
        let out = |what| Mp4Error::Within(format!("{what} time is out mp4 stsz samples"));
        if samples.start >= sizes.count {
            return Err(out("start"));
        }
        let mut bytes = SampleBytes::default();
        let sum = |from: u64, count: u64| sizes.sum(from, count).filter(|sum| *sum <= file.size);
        let too_large = |what| Mp4Error::Within(format!("too large mp4 {what} samples size"));
        bytes.start = sum(samples.start, chunks.start_samples).ok_or_else(|| too_large("start"))?;
        let mut end = sizes.count;
        if file.span.length != 0 {
            if samples.end > sizes.count {
                return Err(out("end"));
            }
            end = samples.end;
            bytes.end = sum(end, chunks.end_samples).ok_or_else(|| too_large("end"))?;
        }
        if sizes.uniform == 0 {
            // Both are within the table, which is no longer than memory.
            sizes.table = &sizes.table[samples.start as usize * 4..end as usize * 4];
        }
        sizes.count = end - samples.start;
        Ok(bytes)
    }

    /// Writes `stsz`.
    pub(super) fn write(&self, out: &mut AtomWriter) {
        if let Some(sizes) = &self.0 {
            out.table(b"stsz", sizes.head, sizes.count as usize, sizes.table);
        }
    }
}

impl SampleSizes<'_> {
    /// The bytes of the `count` samples before sample `end`.
    fn sum(&self, end: u64, count: u64) -> Option<u64> {
        let start = end.checked_sub(count)?;
        if self.uniform != 0 {
            return count.checked_mul(u64::from(self.uniform));
        }
        let place = |sample: u64| usize::try_from(sample).ok()?.checked_mul(4);
        let sizes = self.table.get(place(start)?..place(end)?)?;
        Some(sizes.chunks_exact(4).filter_map(|size| get32(size, 0)).map(u64::from).sum())
    }
}
