//! Which samples are in a clip: `stts`, and `stss` and `ctts`, which go by samples.

use crate::content::mp4::atom::{AtomWriter, entry, put};
use crate::content::mp4::error::Mp4Error;
use crate::content::mp4::movie::ClipSpan;
use crate::content::mp4::track::Track;

/// The samples of a clip, and the tables about them.
#[derive(Default)]
pub(super) struct SampleCut<'a> {
    /// The first sample, from 0.
    pub(super) start: u64,
    /// One past the last; of use where the clip has an end.
    pub(super) end: u64,
    /// What comes before the clip's start from the last key frame on, in units of the track.
    pub(super) hidden: u64,
    times: CutTable<'a>,
    key_frames: Option<CutTable<'a>>,
    compositions: Option<CutTable<'a>>,
}

/// A table of a clip: the head it had, the entries it has.
#[derive(Default)]
struct CutTable<'a> {
    head: &'a [u8],
    entries: Vec<u8>,
}

/// A time in `stts`.
struct TimePlace {
    /// The entry.
    index: usize,
    /// Samples before the time: of all entries, and of this one.
    samples: u64,
    rest: u64,
}

impl<'a> SampleCut<'a> {
    /// Looks up the clip's times.
    ///
    /// # Errors
    /// No `stts`, a start after its end, a key frame of the number 0.
    pub(super) fn cut(track: &Track<'a>, span: ClipSpan) -> Result<SampleCut<'a>, Mp4Error> {
        let (head, table) = track.times.ok_or_else(|| Mp4Error::absent("stts atoms were"))?;
        let mut cut = SampleCut { times: CutTable { head, entries: Vec::new() }, ..SampleCut::default() };
        cut.begin(track, table, span)?;
        if span.length != 0 {
            cut.finish(ClipSpan::units(span.length, track.timescale));
        }
        cut.key_frames =
            track.key_frames.map(|(head, table)| CutTable { head, entries: cut.cut_key_frames(table, span) });
        cut.compositions = track.compositions.and_then(|(head, table)| {
            let entries = cut.cut_compositions(table, span);
            (!entries.is_empty()).then_some(CutTable { head, entries })
        });
        Ok(cut)
    }

    /// Finds the first sample, and cuts what is before.
    fn begin(&mut self, track: &Track<'_>, table: &[u8], span: ClipSpan) -> Result<(), Mp4Error> {
        let out = || Mp4Error::within("start time is out mp4 stts samples");
        let place = find(table, ClipSpan::units(span.start, track.timescale)).map_err(|_| out())?;
        let TimePlace { mut index, samples, mut rest } = place;
        let [mut count, mut duration] = entry(table, index).ok_or_else(out)?;
        let mut back = match track.key_frames {
            Some((_, frames)) if span.key_frame => samples_since_key_frame(frames, samples)?,
            _ => 0,
        };
        self.start = samples.checked_sub(back).ok_or_else(out)?;
        while rest < back {
            self.hide(rest, duration);
            back -= rest;
            index = index.checked_sub(1).ok_or_else(out)?;
            [count, duration] = entry(table, index).ok_or_else(out)?;
            rest = u64::from(count);
        }
        self.hide(back, duration);
        rest -= back;
        self.times.entries = table[index * 8..].to_vec();
        // The place is inside of the entry: less is before it than the entry has.
        put(&mut self.times.entries, 0, &(count - rest as u32).to_be_bytes());
        Ok(())
    }

    fn hide(&mut self, samples: u64, duration: u32) {
        self.hidden = self.hidden.saturating_add(samples.saturating_mul(u64::from(duration)));
    }

    /// Finds the end, which is `length` after the clip's start, and cuts what is after.
    fn finish(&mut self, length: u64) {
        match find(&self.times.entries, length.saturating_add(self.hidden)) {
            Ok(place) => {
                put(&mut self.times.entries, place.index * 8, &(place.rest as u32).to_be_bytes());
                self.times.entries.truncate(place.index * 8 + 8);
                self.end = self.start + place.samples;
            }
            Err(all) => self.end = self.start + all,
        }
    }

    fn cut_key_frames(&self, table: &[u8], span: ClipSpan) -> Vec<u8> {
        let before = |at: usize, end: u64| entry::<1>(table, at).is_some_and(|[n]| u64::from(n) < end);
        let mut first = 0;
        while before(first, self.start + 1) {
            first += 1;
        }
        let mut last = first;
        if span.length == 0 {
            last = table.len() / 4;
        }
        while span.length != 0 && before(last, self.end + 1) {
            last += 1;
        }
        let mut entries = table[first * 4..last * 4].to_vec();
        for frame in entries.chunks_exact_mut(4) {
            let number = u32::from_be_bytes(frame.try_into().expect("four bytes"));
            frame.copy_from_slice(&number.wrapping_sub(self.start as u32).to_be_bytes());
        }
        entries
    }

    fn cut_compositions(&self, table: &[u8], span: ClipSpan) -> Vec<u8> {
        let Some((index, rest, count)) = find_sample(table, self.start) else { return Vec::new() };
        let mut entries = table[index * 8..].to_vec();
        put(&mut entries, 0, &(count - rest).to_be_bytes());
        if span.length != 0
            && let Some((index, rest, _)) = find_sample(&entries, self.end - self.start)
        {
            put(&mut entries, index * 8, &rest.to_be_bytes());
            entries.truncate(index * 8 + 8);
        }
        entries
    }

    /// Writes `stts`, `stss` and `ctts`.
    pub(super) fn write(&self, out: &mut AtomWriter) {
        out.table(b"stts", self.times.head, self.times.entries.len() / 8, &self.times.entries);
        if let Some(CutTable { head, entries }) = &self.key_frames {
            out.table(b"stss", head, entries.len() / 4, entries);
        }
        if let Some(CutTable { head, entries }) = &self.compositions {
            out.table(b"ctts", head, entries.len() / 8, entries);
        }
    }
}

/// Where `time` is in the table `stts`; how many samples all of it has, if that is less.
fn find(table: &[u8], mut time: u64) -> Result<TimePlace, u64> {
    let mut samples = 0;
    let mut index = 0;
    while let Some([count, duration]) = entry(table, index) {
        let length = u64::from(count) * u64::from(duration);
        if time < length {
            let rest = time / u64::from(duration);
            return Ok(TimePlace { index, samples: samples + rest, rest });
        }
        samples += u64::from(count);
        time -= length;
        index += 1;
    }
    Err(samples)
}

/// Where sample `sample`, from 0, is in the table `ctts`: the entry, how many samples it has before, and its count.
fn find_sample(table: &[u8], mut sample: u64) -> Option<(usize, u32, u32)> {
    let mut index = 0;
    while let Some([count, _]) = entry(table, index) {
        if sample < u64::from(count) {
            return Some((index, sample as u32, count));
        }
        sample -= u64::from(count);
        index += 1;
    }
    None
}

/// How many samples sample `start`, from 0, is after the last key frame; 0 without one before it.
fn samples_since_key_frame(frames: &[u8], start: u64) -> Result<u64, Mp4Error> {
    let mut since = 0;
    let mut index = 0;
    while let Some([frame]) = entry(frames, index) {
        if frame == 0 {
            return Err(Mp4Error::within("zero sync sample"));
        }
        let Some(samples) = (start + 1).checked_sub(u64::from(frame)) else { break };
        since = samples;
        index += 1;
    }
    Ok(since)
}
