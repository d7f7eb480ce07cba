//! FastCGI 1.0: records and name-value pairs, on byte slices only.
//!
//! One request a connection at a time, with the number 1, as nginx speaks it: nothing here multiplexes. [`RecordReader`]
//! takes the bytes of one direction as they come; the functions write what the other direction is made of.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod read;
#[cfg(test)]
mod tests;
mod write;

pub use read::{BadRecord, RecordEvent, RecordReader, RecordWriter, pairs};
pub use write::{begin, finish, pair, record, record_head};

/// What becomes of the connection after the response (`FCGI_KEEP_CONN`, section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastcgiConnection {
    /// The application closes it.
    Closed,
    /// It serves another request.
    Kept,
}

/// What a record holds (section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// `FCGI_BEGIN_REQUEST`: role and flags.
    Begin = 1,
    /// `FCGI_ABORT_REQUEST`
    Abort = 2,
    /// `FCGI_END_REQUEST`: the application is done.
    End = 3,
    /// `FCGI_PARAMS`: name-value pairs.
    Params = 4,
    /// `FCGI_STDIN`: the request's body.
    Stdin = 5,
    /// `FCGI_STDOUT`: the response.
    Stdout = 6,
    /// `FCGI_STDERR`: messages for the error log.
    Stderr = 7,
}

impl RecordKind {
    fn of(byte: u8) -> Option<RecordKind> {
        const ALL: [RecordKind; 7] = [
            RecordKind::Begin,
            RecordKind::Abort,
            RecordKind::End,
            RecordKind::Params,
            RecordKind::Stdin,
            RecordKind::Stdout,
            RecordKind::Stderr,
        ];
        ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Bytes of a record's head.
const HEAD: usize = 8;
