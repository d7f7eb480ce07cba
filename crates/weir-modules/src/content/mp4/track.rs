//! A track of a movie: its tables, cut to a clip. The order is that of nginx, since each cut needs what those before
//! have found: times give samples, samples give chunks, chunks give bytes.

mod chunks;
mod offsets;
mod sizes;
mod times;

use crate::content::mp4::atom::AtomWriter;
use crate::content::mp4::error::Mp4Error;
use crate::content::mp4::movie::{ClipSpan, MediaTimes, TableParts};
use crate::content::mp4::track::chunks::ChunkCut;
use crate::content::mp4::track::offsets::OffsetTable;
use crate::content::mp4::track::sizes::SizeTable;
use crate::content::mp4::track::times::SampleCut;

/// What was read of a track; absent is what the file does not have.
#[derive(Default)]
pub(super) struct Track<'a> {
    /// `tkhd`, with the clip's duration.
    pub(super) head: Option<Vec<u8>>,
    /// In units of the movie.
    pub(super) movie_duration: u64,
    pub(super) has_media: bool,
    /// `mdhd`
    pub(super) media_head: Option<(MediaTimes, &'a [u8])>,
    pub(super) timescale: u32,
    /// In units of the track, from the clip's start on.
    pub(super) duration: u64,
    /// `hdlr`
    pub(super) handler: Option<&'a [u8]>,
    pub(super) has_information: bool,
    /// `vmhd` or `smhd`
    pub(super) media_kind: Option<([u8; 4], &'a [u8])>,
    /// `dinf`
    pub(super) sources: Option<&'a [u8]>,
    pub(super) has_samples: bool,
    /// `stsd`
    pub(super) descriptions: Option<&'a [u8]>,
    /// `stts`: how many samples last how long.
    pub(super) times: Option<TableParts<'a>>,
    /// `stss`: the samples that need no other, from 1.
    pub(super) key_frames: Option<TableParts<'a>>,
    /// `ctts`: how much later than decoded samples are shown.
    pub(super) compositions: Option<TableParts<'a>>,
    /// `stsc`: from which chunk on chunks have how many samples.
    pub(super) chunks: Option<TableParts<'a>>,
    pub(super) sizes: SizeTable<'a>,
    pub(super) offsets: OffsetTable<'a>,
}

/// The file around a clip.
#[derive(Clone, Copy)]
pub(super) struct ClipFile {
    pub(super) span: ClipSpan,
    /// Bytes of the file.
    pub(super) size: u64,
    /// Where `mdat` ends.
    pub(super) data_end: u64,
}

/// A track's tables, cut.
pub(super) struct CutTrack<'t> {
    track: Track<'t>,
    samples: SampleCut<'t>,
    chunks: ChunkCut<'t>,
    /// Which of the file's bytes the clip's samples are in; nothing where the end is not after the start.
    pub(super) start_offset: u64,
    pub(super) end_offset: u64,
}

/// Where chunk offsets are in what was written, and how many bytes each has.
pub(super) struct WrittenOffsets {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) width: usize,
}

impl<'t> CutTrack<'t> {
    /// Cuts the tables of `track`.
    ///
    /// # Errors
    /// Tables that are absent, do not fit each other, or do not reach into the clip.
    pub(super) fn cut(mut track: Track<'t>, file: ClipFile) -> Result<CutTrack<'t>, Mp4Error> {
        let samples = SampleCut::cut(&track, file.span)?;
        let chunks = ChunkCut::cut(&track, &samples, file.span)?;
        let sizes = track.sizes.cut(&samples, &chunks, file)?;
        let (start_offset, end_offset) = track.offsets.cut(&chunks, sizes, file)?;
        track.duration = track.duration.saturating_add(samples.hidden);
        Ok(CutTrack { track, samples, chunks, start_offset, end_offset })
    }

    /// Writes the atom `trak`.
    pub(super) fn write(&self, out: &mut AtomWriter) -> WrittenOffsets {
        out.nest(b"trak", |out| {
            out.optional(b"tkhd", self.track.head.as_deref());
            self.write_edit_list(out);
            out.nest(b"mdia", |out| {
                if let Some((times, data)) = &self.track.media_head {
                    out.atom(b"mdhd", &times.replaced(data, self.track.duration));
                }
                out.optional(b"hdlr", self.track.handler);
                out.nest(b"minf", |out| {
                    if let Some((name, data)) = &self.track.media_kind {
                        out.atom(name, data);
                    }
                    out.optional(b"dinf", self.track.sources);
                    out.nest(b"stbl", |out| self.write_tables(out))
                })
            })
        })
    }

    /// What is before the start is hidden by an edit list.
    fn write_edit_list(&self, out: &mut AtomWriter) {
        if self.samples.hidden == 0 {
            return;
        }
        out.nest(b"edts", |out| {
            let mut list = vec![1, 0, 0, 0, 0, 0, 0, 1];
            list.extend_from_slice(&self.track.movie_duration.to_be_bytes());
            list.extend_from_slice(&self.samples.hidden.to_be_bytes());
            list.extend_from_slice(&[0, 1, 0, 0]);
            out.atom(b"elst", &list);
        });
    }

    fn write_tables(&self, out: &mut AtomWriter) -> WrittenOffsets {
        out.optional(b"stsd", self.track.descriptions);
        self.samples.write(out);
        self.chunks.write(out);
        self.track.sizes.write(out);
        self.track.offsets.write(out)
    }
}
