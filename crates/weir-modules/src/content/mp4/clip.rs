//! A part of a file, from its atoms: a new index, `moov`, before the part of the data that it needs.

use std::io;

use crate::content::mp4::atom::{AtomHead, AtomWriter};
use crate::content::mp4::error::Mp4Error;
use crate::content::mp4::movie::{ClipSpan, Movie};
use crate::content::mp4::track::{ClipFile, CutTrack, WrittenOffsets};

/// A file that is read at places.
pub(crate) trait Mp4Source {
    /// Reads into `buf` from byte `offset` on; fewer bytes only where the file ends.
    ///
    /// # Errors
    /// Those of the system.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Mp4Source for &[u8] {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

/// Memory that reading a file may take.
#[derive(Clone, Copy)]
pub(crate) struct Mp4Buffers {
    /// `mp4_buffer_size`: what is read at a time.
    pub(crate) size: u64,
    /// `mp4_max_buffer_size`, which `moov` may have.
    pub(crate) max: u64,
}

/// What is sent: new bytes, then a part of the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mp4Clip {
    pub(crate) head: Vec<u8>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// More atoms than that at the file's own level are no movie.
const MOST_ATOMS: usize = 10_000;
/// The longest `ftyp`.
const MOST_TYPE: u64 = 1024;

/// Makes a clip of a file of `size` bytes; `None` where the whole file is wanted and can be played as it is.
///
/// # Errors
/// What is wrong with the file.
pub(crate) fn clip(
    source: &impl Mp4Source,
    size: u64,
    span: ClipSpan,
    buffers: Mp4Buffers,
) -> Result<Option<Mp4Clip>, Mp4Error> {
    let window = Mp4Window { source, size, buffers, bytes: Vec::new(), offset: 0 };
    let Some(atoms) = FileAtoms::read(window, span)? else { return Ok(None) };
    let movie = Movie::read(&atoms.index, span)?;
    let data = if movie.ended && !atoms.data_first { None } else { atoms.data };
    if movie.tracks.is_empty() {
        return Err(Mp4Error::absent("trak atoms were"));
    }
    let (_, data_end) = data.ok_or_else(|| Mp4Error::absent("mdat atom was"))?;
    let file = ClipFile { span, size, data_end };
    let mut tracks = Vec::with_capacity(movie.tracks.len());
    for track in movie.tracks {
        tracks.push(CutTrack::cut(track, file)?);
    }
    let start = tracks.iter().map(|track| track.start_offset).min().unwrap_or(size);
    let end = tracks.iter().map(|track| track.end_offset).max().unwrap_or(0);
    if end <= start {
        return Err(Mp4Error::within("no data between start time and end time"));
    }
    if start >= data_end {
        return Err(Mp4Error::within("start time is out mp4 mdat atom"));
    }
    let head = head(atoms.kind.as_deref(), movie.head.as_deref(), &tracks, start..end);
    Ok(Some(Mp4Clip { head, offset: start, len: end - start }))
}

/// The clip's bytes before those of `data`, a part of the file.
fn head(
    kind: Option<&[u8]>,
    movie: Option<&[u8]>,
    tracks: &[CutTrack<'_>],
    data: std::ops::Range<u64>,
) -> Vec<u8> {
    let mut out = AtomWriter::default();
    out.optional(b"ftyp", kind);
    let offsets: Vec<WrittenOffsets> = out.nest(b"moov", |out| {
        out.optional(b"mvhd", movie);
        tracks.iter().map(|track| track.write(out)).collect()
    });
    let len = data.end - data.start;
    match u32::try_from(len.saturating_add(8)) {
        Ok(size) => {
            out.bytes.extend_from_slice(&size.to_be_bytes());
            out.bytes.extend_from_slice(b"mdat");
        }
        Err(_) => {
            out.bytes.extend_from_slice(b"\0\0\0\x01mdat");
            out.bytes.extend_from_slice(&len.saturating_add(16).to_be_bytes());
        }
    }
    let by = (out.bytes.len() as u64).wrapping_sub(data.start);
    for table in offsets {
        table.move_by(&mut out.bytes, by);
    }
    out.bytes
}

/// The atoms of a file that are of use.
struct FileAtoms {
    /// The content of `ftyp`.
    kind: Option<Vec<u8>>,
    /// The content of `moov`; empty without one.
    index: Vec<u8>,
    /// Where the content of `mdat` begins and ends.
    data: Option<(u64, u64)>,
    /// `mdat` comes before `moov`.
    data_first: bool,
}

impl FileAtoms {
    /// Looks for the atoms until all are there. `None`: see [`clip`].
    fn read<S: Mp4Source>(mut file: Mp4Window<'_, S>, span: ClipSpan) -> Result<Option<FileAtoms>, Mp4Error> {
        let mut atoms = FileAtoms { kind: None, index: Vec::new(), data: None, data_first: false };
        let mut at = 0;
        for _ in 0..MOST_ATOMS {
            if at >= file.size {
                return Ok(Some(atoms));
            }
            let room = file.size - at;
            let Some(atom) = AtomHead::read(file.get(at, room.min(AtomHead::MOST))?, room)? else {
                return Ok(Some(atoms));
            };
            let (start, len) = (at + atom.head, atom.size - atom.head);
            at += atom.size;
            match &atom.name {
                b"ftyp" => atoms.read_kind(&mut file, start, len)?,
                b"mdat" if atoms.data.is_some() => return Err(Mp4Error::duplicate("mdat")),
                b"mdat" => {
                    atoms.data = Some((start, at));
                    if !atoms.index.is_empty() {
                        return Ok(Some(atoms));
                    }
                }
                b"moov" if atoms.data.is_none() && span.start == 0 && span.length == 0 => return Ok(None),
                b"moov" if !atoms.index.is_empty() => return Err(Mp4Error::duplicate("moov")),
                b"moov" => {
                    atoms.index = file.index(start, len)?;
                    atoms.data_first = atoms.data.is_some();
                    if atoms.data_first {
                        return Ok(Some(atoms));
                    }
                }
                _ => {}
            }
        }
        Err(Mp4Error::within("too many mp4 atoms"))
    }

    fn read_kind<S: Mp4Source>(
        &mut self,
        file: &mut Mp4Window<'_, S>,
        start: u64,
        len: u64,
    ) -> Result<(), Mp4Error> {
        if len > MOST_TYPE {
            return Err(Mp4Error::File(format!("mp4 ftyp atom is too large:{len}")));
        }
        if self.kind.is_some() {
            return Err(Mp4Error::duplicate("ftyp"));
        }
        self.kind = Some(file.get(start, len)?.to_vec());
        Ok(())
    }
}

/// The part of a file that is in memory.
struct Mp4Window<'s, S> {
    source: &'s S,
    size: u64,
    buffers: Mp4Buffers,
    bytes: Vec<u8>,
    offset: u64,
}

impl<S: Mp4Source> Mp4Window<'_, S> {
    /// Bytes that are inside of the file; with those that follow, as far as the buffer reaches, if they must be read.
    fn get(&mut self, offset: u64, len: u64) -> Result<&[u8], Mp4Error> {
        let end = self.offset + self.bytes.len() as u64;
        if offset < self.offset || offset + len > end {
            let wanted = self.buffers.size.max(len).min(self.size - offset);
            self.bytes = read(self.source, offset, wanted)?;
            self.offset = offset;
        }
        let at = (offset - self.offset) as usize;
        Ok(&self.bytes[at..at + len as usize])
    }

    /// The content of `moov`.
    fn index(&mut self, offset: u64, len: u64) -> Result<Vec<u8>, Mp4Error> {
        if len > self.buffers.size && len > self.buffers.max {
            let words = "you may want to increase mp4_max_buffer_size";
            return Err(Mp4Error::File(format!("mp4 moov atom is too large:{len}, {words}")));
        }
        let end = self.offset + self.bytes.len() as u64;
        if offset >= self.offset && offset + len <= end {
            return Ok(self.get(offset, len)?.to_vec());
        }
        read(self.source, offset, len)
    }
}

/// Reads bytes that were inside of the file when it was opened.
fn read(source: &impl Mp4Source, offset: u64, len: u64) -> Result<Vec<u8>, Mp4Error> {
    let wanted = usize::try_from(len).map_err(|_| Mp4Error::Read(io::ErrorKind::OutOfMemory.into()))?;
    let mut bytes = vec![0; wanted];
    let read = source.read_at(&mut bytes, offset).map_err(Mp4Error::Read)?;
    if read < wanted {
        return Err(Mp4Error::Short { read, wanted });
    }
    Ok(bytes)
}
