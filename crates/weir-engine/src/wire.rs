//! Messages between processes of one server, as bytes: numbers of eight bytes, strings and lists after their length.
//!
//! The reader believes nothing: a message that was cut, or that says of itself what it has no bytes for, is `None`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Writes a message into its bytes.
#[derive(Default)]
pub struct IpcWriter(pub Vec<u8>);

impl IpcWriter {
    /// Writes an integer: eight bytes, little-endian.
    pub fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Writes a floating-point number: the eight bytes of its IEEE 754 bits.
    pub fn float(&mut self, number: f64) {
        self.number(number.to_bits());
    }

    /// Writes a string of bytes after its length.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Writes a file's name, any bytes, after its length.
    pub fn path(&mut self, path: &Path) {
        self.bytes(path.as_os_str().as_bytes());
    }

    /// A list, each of whose items `item` writes.
    pub fn list<T>(
        &mut self,
        items: impl ExactSizeIterator<Item = T>,
        mut item: impl FnMut(&mut IpcWriter, T),
    ) {
        self.number(items.len() as u64);
        items.for_each(|one| item(self, one));
    }
}

/// The unread rest of a message.
pub struct IpcReader<'b>(pub &'b [u8]);

impl<'b> IpcReader<'b> {
    /// Reads eight bytes, little-endian; `None` if fewer are left.
    pub fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    /// Reads a floating-point number, the eight bytes of its IEEE 754 bits; `None` if fewer are left.
    pub fn float(&mut self) -> Option<f64> {
        self.number().map(f64::from_bits)
    }

    /// Reads a string of bytes, which follows its length; `None` if the message ends before it does.
    pub fn bytes(&mut self) -> Option<&'b [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Reads a file's name, any bytes; `None` if the message ends before it does.
    pub fn path(&mut self) -> Option<PathBuf> {
        self.bytes().map(|bytes| OsString::from_vec(bytes.to_vec()).into())
    }

    /// Reads a text for people; bytes that are not UTF-8 become U+FFFD. `None` if the message ends before it does.
    pub fn string(&mut self) -> Option<String> {
        self.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Reads a list, its items with `item`; `None` if `item` returns it or the message ends before the list does.
    pub fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        let mut items = Vec::new(); // as long as there are bytes for, whatever the number says
        for _ in 0..count {
            items.push(item(self)?);
        }
        Some(items)
    }

    /// What was read, if nothing is left.
    pub fn whole<T>(&self, read: T) -> Option<T> {
        self.0.is_empty().then_some(read)
    }
}
