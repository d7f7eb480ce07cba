//! Atoms (ISO/IEC 14496-12 calls them boxes): size, name, content, which may be atoms.

use crate::content::mp4::error::Mp4Error;

/// The head of an atom: its own bytes, and those of the whole atom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AtomHead {
    pub(super) name: [u8; 4],
    pub(super) head: u64,
    pub(super) size: u64,
}

impl AtomHead {
    /// The longest head.
    pub(super) const MOST: u64 = 16;

    /// Reads a head from `bytes`, of which there are as many as the head may have unless the file ends before; the
    /// atom may have `room` bytes. `None` is a size of zero, which ends the file.
    ///
    /// # Errors
    /// Sizes that cannot be.
    pub(super) fn read(bytes: &[u8], room: u64) -> Result<Option<AtomHead>, Mp4Error> {
        let truncated = || Mp4Error::File("mp4 file truncated".to_owned());
        let short = u64::from(get32(bytes, 0).ok_or_else(truncated)?);
        if short == 0 {
            return Ok(None);
        }
        let (head, size) = match short {
            1 => (Self::MOST, get64(bytes, 8).ok_or_else(truncated)?),
            short => (8, short),
        };
        if size < head {
            return Err(Mp4Error::File(format!("mp4 atom is too small:{size}")));
        }
        let name = bytes.get(4..8).and_then(|name| name.try_into().ok()).ok_or_else(truncated)?;
        if size > room {
            return Err(Mp4Error::File(format!("mp4 atom too large:{size}")));
        }
        Ok(Some(AtomHead { name, head, size }))
    }
}

/// What a walk through the atoms of a block goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtomWalk {
    /// The next atom.
    Next,
    /// A size of zero has ended the file.
    Ended,
    /// The track does not reach into the clip: it is left out.
    SkipTrack,
}

/// Shows each atom of `data` to `visit`: its name and its content.
///
/// # Errors
/// Those of `visit`, and [`AtomHead::read`]'s.
pub(super) fn walk<'a>(
    data: &'a [u8],
    mut visit: impl FnMut([u8; 4], &'a [u8]) -> Result<AtomWalk, Mp4Error>,
) -> Result<AtomWalk, Mp4Error> {
    let mut rest = data;
    while !rest.is_empty() {
        let Some(atom) = AtomHead::read(rest, rest.len() as u64)? else { return Ok(AtomWalk::Ended) };
        // No more than `rest` has: it is no longer than memory.
        let (whole, after) = rest.split_at(atom.size as usize);
        match visit(atom.name, &whole[atom.head as usize..])? {
            AtomWalk::Next => rest = after,
            end => return Ok(end),
        }
    }
    Ok(AtomWalk::Next)
}

/// Four bytes as a number.
pub(super) fn get32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_be_bytes)
}

/// Eight bytes as a number.
pub(super) fn get64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_be_bytes)
}

/// Puts a number at a place that is there.
pub(super) fn put(bytes: &mut [u8], at: usize, number: &[u8]) {
    bytes[at..at + number.len()].copy_from_slice(number);
}

/// Entry `index` of a table whose entries are `FIELDS` numbers of four bytes; `None` after the last.
pub(super) fn entry<const FIELDS: usize>(table: &[u8], index: usize) -> Option<[u32; FIELDS]> {
    let start = index.checked_mul(FIELDS * 4)?;
    let mut fields = [0; FIELDS];
    for (i, field) in fields.iter_mut().enumerate() {
        *field = get32(table, start.checked_add(i * 4)?)?;
    }
    Some(fields)
}

/// The atoms of a new file.
#[derive(Default)]
pub(super) struct AtomWriter {
    pub(super) bytes: Vec<u8>,
}

impl AtomWriter {
    /// Writes an atom whose content `content` writes.
    pub(super) fn nest<T>(&mut self, name: &[u8; 4], content: impl FnOnce(&mut AtomWriter) -> T) -> T {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(name);
        let result = content(self);
        // The tables are parts of a `moov` whose size the configuration limits to less than 4 GB.
        let size = (self.bytes.len() - start) as u32;
        put(&mut self.bytes, start, &size.to_be_bytes());
        result
    }

    /// Writes an atom with this content.
    pub(super) fn atom(&mut self, name: &[u8; 4], content: &[u8]) {
        self.nest(name, |out| out.bytes.extend_from_slice(content));
    }

    /// Writes an atom if there is one.
    pub(super) fn optional(&mut self, name: &[u8; 4], content: Option<&[u8]>) {
        if let Some(content) = content {
            self.atom(name, content);
        }
    }

    /// Writes a table: version and flags as they were, the number of entries, the entries. Gives where these begin.
    pub(super) fn table(&mut self, name: &[u8; 4], head: &[u8], count: usize, entries: &[u8]) -> usize {
        self.nest(name, |out| {
            out.bytes.extend_from_slice(head);
            out.bytes.extend_from_slice(&(count as u32).to_be_bytes());
            let start = out.bytes.len();
            out.bytes.extend_from_slice(entries);
            start
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_short_or_long_and_fit_their_room() {
        let head = |bytes: &[u8], room| AtomHead::read(bytes, room).map_err(|e| e.about("f").to_string());
        let short = Ok(Some(AtomHead { name: *b"free", head: 8, size: 9 }));
        assert_eq!(head(b"\0\0\0\x09freex", 9), short);
        assert_eq!(head(b"\0\0\0\x09free", 8), Err("\"f\" mp4 atom too large:9".to_owned()));
        assert_eq!(head(b"\0\0\0\0", 4), Ok(None));
        assert_eq!(head(b"\0\0\0\x07free", 8), Err("\"f\" mp4 atom is too small:7".to_owned()));
        assert_eq!(head(b"\0\0\0\x09", 9), Err("\"f\" mp4 file truncated".to_owned()));
        let long = b"\0\0\0\x01mdat\0\0\0\0\0\0\0\x10";
        assert_eq!(head(long, 16), Ok(Some(AtomHead { name: *b"mdat", head: 16, size: 16 })));
        assert_eq!(head(long, 15), Err("\"f\" mp4 atom too large:16".to_owned()));
        assert_eq!(head(&long[..15], 99), Err("\"f\" mp4 file truncated".to_owned()));
        let tiny = b"\0\0\0\x01mdat\0\0\0\0\0\0\0\x0f";
        assert_eq!(head(tiny, 99), Err("\"f\" mp4 atom is too small:15".to_owned()));
    }
}
