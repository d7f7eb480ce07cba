//! The index of a file, `moov`: its head and its tracks, as far as a clip needs them.

use crate::content::mp4::atom::{self, AtomWalk, get32, get64, put};
use crate::content::mp4::error::Mp4Error;
use crate::content::mp4::track::Track;

/// What is wanted of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClipSpan {
    /// Milliseconds from the beginning.
    pub(crate) start: u64,
    /// Milliseconds from there; 0 is all that follows.
    pub(crate) length: u64,
    /// `mp4_start_key_frame`: the clip begins with a frame that needs no other, and hides what is before `start`.
    pub(crate) key_frame: bool,
}

impl ClipSpan {
    /// Milliseconds in units of `timescale` a second.
    pub(super) fn units(ms: u64, timescale: u32) -> u64 {
        u64::try_from(u128::from(ms) * u128::from(timescale) / 1000).unwrap_or(u64::MAX)
    }

    /// What is left of `duration`, which reaches to the start at least.
    fn rest(self, duration: u64, timescale: u32) -> u64 {
        let rest = duration - Self::units(self.start, timescale);
        if self.length == 0 { rest } else { rest.min(Self::units(self.length, timescale)) }
    }
}

/// The parts of `moov` that are of use.
pub(super) struct Movie<'a> {
    /// `mvhd`, with the clip's duration.
    pub(super) head: Option<Vec<u8>>,
    timescale: u32,
    pub(super) tracks: Vec<Track<'a>>,
    /// A size of zero has ended the file inside of `moov`.
    pub(super) ended: bool,
}

/// More than any player plays; each costs some memory before it is known to be of use.
const MOST_TRACKS: usize = 1_000;

impl<'a> Movie<'a> {
    /// Reads the content of `moov`. Tracks that end before the clip are left out.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(moov: &'a [u8], span: ClipSpan) -> Result<Movie<'a>, Mp4Error> {
        let mut movie = Movie { head: None, timescale: 0, tracks: Vec::new(), ended: false };
        let walked = atom::walk(moov, |name, data| match &name {
            b"mvhd" => movie.read_head(data, span),
            b"trak" => movie.read_track(data, span),
            b"cmov" => Err(Mp4Error::File("mp4 compressed moov atom (cmov) is not supported".to_owned())),
            _ => Ok(AtomWalk::Next),
        })?;
        movie.ended = walked == AtomWalk::Ended;
        Ok(movie)
    }

    fn read_head(&mut self, data: &[u8], span: ClipSpan) -> Result<AtomWalk, Mp4Error> {
        if self.head.is_some() {
            return Err(Mp4Error::duplicate("mvhd"));
        }
        let times = MediaTimes::read(data, "mvhd", [100, 112], 4)?;
        if times.duration < ClipSpan::units(span.start, times.timescale) {
            return Err(Mp4Error::File("mp4 start time exceeds file duration".to_owned()));
        }
        self.timescale = times.timescale;
        self.head = Some(times.replaced(data, span.rest(times.duration, times.timescale)));
        Ok(AtomWalk::Next)
    }

    fn read_track(&mut self, data: &'a [u8], span: ClipSpan) -> Result<AtomWalk, Mp4Error> {
        let mut track = Track::default();
        let walked = atom::walk(data, |name, data| match &name {
            b"tkhd" => self.read_track_head(&mut track, data, span),
            b"mdia" => read_media(&mut track, data, span),
            _ => Ok(AtomWalk::Next),
        })?;
        if walked == AtomWalk::SkipTrack {
            return Ok(AtomWalk::Next);
        }
        if self.tracks.len() == MOST_TRACKS {
            return Err(Mp4Error::within("too many mp4 trak atoms"));
        }
        self.tracks.push(track);
        Ok(walked)
    }

    fn read_track_head(
        &self,
        track: &mut Track<'a>,
        data: &[u8],
        span: ClipSpan,
    ) -> Result<AtomWalk, Mp4Error> {
        let times = MediaTimes::read(data, "tkhd", [84, 96], 8)?;
        if times.duration <= ClipSpan::units(span.start, self.timescale) {
            return Ok(AtomWalk::SkipTrack);
        }
        if track.head.is_some() {
            return Err(Mp4Error::duplicate("tkhd"));
        }
        track.movie_duration = span.rest(times.duration, self.timescale);
        track.head = Some(times.replaced(data, track.movie_duration));
        Ok(AtomWalk::Next)
    }
}

/// The content of `mdia`.
fn read_media<'a>(track: &mut Track<'a>, data: &'a [u8], span: ClipSpan) -> Result<AtomWalk, Mp4Error> {
    if std::mem::replace(&mut track.has_media, true) {
        return Err(Mp4Error::duplicate("mdia"));
    }
    atom::walk(data, |name, data| match &name {
        b"mdhd" => read_media_head(track, data, span),
        b"hdlr" => once(&mut track.handler, data, "hdlr"),
        b"minf" => read_information(track, data),
        _ => Ok(AtomWalk::Next),
    })
}

fn read_media_head<'a>(track: &mut Track<'a>, data: &'a [u8], span: ClipSpan) -> Result<AtomWalk, Mp4Error> {
    let times = MediaTimes::read(data, "mdhd", [24, 36], 4)?;
    if times.duration <= ClipSpan::units(span.start, times.timescale) {
        return Ok(AtomWalk::SkipTrack);
    }
    if track.media_head.is_some() {
        return Err(Mp4Error::duplicate("mdhd"));
    }
    track.timescale = times.timescale;
    track.duration = span.rest(times.duration, times.timescale);
    track.media_head = Some((times, data));
    Ok(AtomWalk::Next)
}

/// The content of `minf`.
fn read_information<'a>(track: &mut Track<'a>, data: &'a [u8]) -> Result<AtomWalk, Mp4Error> {
    if std::mem::replace(&mut track.has_information, true) {
        return Err(Mp4Error::duplicate("minf"));
    }
    atom::walk(data, |name, data| match &name {
        b"vmhd" | b"smhd" if track.media_kind.is_some() => Err(Mp4Error::duplicate("vmhd/smhd")),
        b"vmhd" | b"smhd" => {
            track.media_kind = Some((name, data));
            Ok(AtomWalk::Next)
        }
        b"dinf" => once(&mut track.sources, data, "dinf"),
        b"stbl" => read_samples(track, data),
        _ => Ok(AtomWalk::Next),
    })
}

/// The content of `stbl`.
fn read_samples<'a>(track: &mut Track<'a>, data: &'a [u8]) -> Result<AtomWalk, Mp4Error> {
    if std::mem::replace(&mut track.has_samples, true) {
        return Err(Mp4Error::duplicate("stbl"));
    }
    atom::walk(data, |name, data| match &name {
        b"stsd" if data.len() < 16 => Err(Mp4Error::too_small("stsd")),
        b"stsd" => once(&mut track.descriptions, data, "stsd"),
        b"stts" => table(&mut track.times, data, "stts", 8),
        b"stss" => table(&mut track.key_frames, data, "stss", 4),
        b"ctts" => table(&mut track.compositions, data, "ctts", 8),
        b"stsc" => table(&mut track.chunks, data, "stsc", 12),
        b"stsz" => track.sizes.read(data),
        b"stco" => track.offsets.read(data, 4),
        b"co64" => track.offsets.read(data, 8),
        _ => Ok(AtomWalk::Next),
    })
}

/// Takes an atom that may come once.
pub(super) fn once<T>(place: &mut Option<T>, value: T, name: &str) -> Result<AtomWalk, Mp4Error> {
    if place.replace(value).is_some() {
        return Err(Mp4Error::duplicate(name));
    }
    Ok(AtomWalk::Next)
}

/// Version and flags of a table, and its entries.
pub(super) type TableParts<'a> = (&'a [u8], &'a [u8]);

/// Takes a table that may come once.
fn table<'a>(
    place: &mut Option<TableParts<'a>>,
    data: &'a [u8],
    name: &str,
    width: usize,
) -> Result<AtomWalk, Mp4Error> {
    once(place, table_parts(data, name, width)?, name)
}

/// A table, whose entries have `width` bytes each; what follows them is left out.
pub(super) fn table_parts<'a>(data: &'a [u8], name: &str, width: usize) -> Result<TableParts<'a>, Mp4Error> {
    let too_small = || Mp4Error::too_small(name);
    let count = get32(data, 4).ok_or_else(too_small)? as usize;
    let end = count.checked_mul(width).and_then(|bytes| bytes.checked_add(8)).ok_or_else(too_small)?;
    Ok((&data[..4], data.get(8..end).ok_or_else(too_small)?))
}

/// The times of `mvhd`, `tkhd` and `mdhd`: of 32 bits in version 0, of 64 in others.
#[derive(Clone, Copy, Debug)]
pub(super) struct MediaTimes {
    timescale: u32,
    duration: u64,
    /// Where the duration is.
    at: usize,
    wide: bool,
}

impl MediaTimes {
    /// Reads the times of an atom of at least `least` bytes (version 0, others). Between two times and the duration are
    /// `between` bytes, the first four of which are the timescale, unless it is a track's head.
    fn read(data: &[u8], name: &str, least: [usize; 2], between: usize) -> Result<MediaTimes, Mp4Error> {
        let too_small = || Mp4Error::too_small(name);
        let wide = *data.first().ok_or_else(too_small)? != 0;
        if data.len() < least[0] || data.len() < least[usize::from(wide)] {
            return Err(too_small());
        }
        let scale_at = if wide { 20 } else { 12 };
        let at = scale_at + between;
        let duration = if wide { get64(data, at) } else { get32(data, at).map(u64::from) };
        let timescale = get32(data, scale_at).ok_or_else(too_small)?;
        Ok(MediaTimes { timescale, duration: duration.ok_or_else(too_small)?, at, wide })
    }

    /// The atom's content with another duration.
    pub(super) fn replaced(&self, data: &[u8], duration: u64) -> Vec<u8> {
        let mut data = data.to_vec();
        match self.wide {
            true => put(&mut data, self.at, &duration.to_be_bytes()),
            // As nginx: what is wider than the field was not wider before.
            false => put(&mut data, self.at, &(duration as u32).to_be_bytes()),
        }
        data
    }
}
