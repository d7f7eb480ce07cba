//! Where a clip's chunks are in the file: `stco`, or `co64`, whose offsets have 64 bits.

use crate::content::mp4::atom::{AtomWalk, AtomWriter, get32, get64, put};
use crate::content::mp4::error::Mp4Error;
use crate::content::mp4::movie::table_parts;
use crate::content::mp4::track::chunks::ChunkCut;
use crate::content::mp4::track::sizes::SampleBytes;
use crate::content::mp4::track::{ClipFile, WrittenOffsets};

/// The offsets of a track's chunks; without any where the file has no such table.
#[derive(Default)]
pub(in crate::content::mp4) struct OffsetTable<'a> {
    /// Bytes of an offset; 0 without a table.
    width: usize,
    head: &'a [u8],
    table: &'a [u8],
    /// Those of the clip.
    entries: Vec<u8>,
}

impl<'a> OffsetTable<'a> {
    /// Takes the content of `stco` or `co64`, of which one may come.
    pub(in crate::content::mp4) fn read(
        &mut self,
        data: &'a [u8],
        width: usize,
    ) -> Result<AtomWalk, Mp4Error> {
        let (head, table) = table_parts(data, name(width), width)?;
        if self.width != 0 {
            return Err(Mp4Error::duplicate("stco/co64"));
        }
        *self = OffsetTable { width, head, table, entries: Vec::new() };
        Ok(AtomWalk::Next)
    }

    /// How many chunks there are.
    pub(super) fn count(&self) -> u32 {
        // A table of a `moov`, which has less than 4 GB.
        self.table.len().checked_div(self.width).unwrap_or(0) as u32
    }

    /// Cuts the table to the clip's chunks; gives where in the file the clip begins and ends.
    ///
    /// # Errors
    /// No table; fewer chunks than the other tables say; offsets after the file's end.
    pub(super) fn cut(
        &mut self,
        chunks: &ChunkCut<'_>,
        samples: SampleBytes,
        file: ClipFile,
    ) -> Result<(u64, u64), Mp4Error> {
        let width = self.width;
        if width == 0 {
            return Err(Mp4Error::absent("stco atoms were"));
        }
        let out = |what| Mp4Error::Within(format!("{what} time is out mp4 {} chunks", name(width)));
        let count = u64::from(self.count());
        if chunks.start >= count {
            return Err(out("start"));
        }
        let end = if file.span.length == 0 { count } else { chunks.end };
        if end > count || end < chunks.start {
            return Err(out("end"));
        }
        // Both are within the table.
        self.entries = self.table[chunks.start as usize * width..end as usize * width].to_vec();
        if self.entries.is_empty() {
            return Ok((file.size, 0));
        }
        let start_offset = self.offset(0, samples.start, file)?;
        let last = self.entries.len() - width;
        self.set(0, start_offset);
        let end_offset = match file.span.length {
            0 => file.data_end,
            _ => self.offset(last, samples.end, file)?,
        };
        Ok((start_offset, end_offset))
    }

    /// The offset at byte `at` of the entries, and `more`.
    fn offset(&self, at: usize, more: u64, file: ClipFile) -> Result<u64, Mp4Error> {
        let offset = match self.width {
            8 => get64(&self.entries, at),
            _ => get32(&self.entries, at).map(u64::from),
        };
        let sum = offset
            .and_then(|offset| offset.checked_add(more))
            .filter(|sum| *sum <= file.size && (self.width == 8 || u32::try_from(*sum).is_ok()));
        sum.ok_or_else(|| Mp4Error::within("too large chunk offset"))
    }

    fn set(&mut self, at: usize, offset: u64) {
        let bytes = offset.to_be_bytes();
        put(&mut self.entries, at, &bytes[8 - self.width..]);
    }

    /// Writes the table, with the offsets of the file.
    pub(super) fn write(&self, out: &mut AtomWriter) -> WrittenOffsets {
        let name = if self.width == 8 { b"co64" } else { b"stco" };
        let start = out.table(name, self.head, self.entries.len() / self.width.max(1), &self.entries);
        WrittenOffsets { start, end: start + self.entries.len(), width: self.width }
    }
}

impl WrittenOffsets {
    /// Adds `by`, which may stand for less, to each offset.
    pub(in crate::content::mp4) fn move_by(&self, bytes: &mut [u8], by: u64) {
        for entry in bytes[self.start..self.end].chunks_exact_mut(self.width) {
            let mut offset = [0; 8];
            offset[8 - self.width..].copy_from_slice(entry);
            let moved = u64::from_be_bytes(offset).wrapping_add(by).to_be_bytes();
            entry.copy_from_slice(&moved[8 - self.width..]);
        }
    }
}

fn name(width: usize) -> &'static str {
    if width == 8 { "co64" } else { "stco" }
}
