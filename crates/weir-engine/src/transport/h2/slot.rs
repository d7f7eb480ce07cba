//! What a connection keeps of each stream.

use std::collections::VecDeque;
use std::task::Waker;

use weir_http::h2::ErrorCode;

use super::upload::ReadAheadWindow;
use crate::body::BodyChain;

/// What is stored of a stream beside the protocol's state, at its key's index.
#[derive(Default)]
pub struct StreamSlot {
    /// Content that was announced and has not been sent.
    pub(super) chain: BodyChain,
    /// A part of a file may be among that.
    pub(super) has_file: bool,
    /// The file's part in front is not in the page cache: the stream's writer reads it.
    pub(super) unread: bool,
    /// Bytes of all its frames (`$bytes_sent`).
    pub(super) written: u64,
    /// Bytes of content in them (`$body_bytes_sent`).
    pub(super) content: u64,
    /// What the connection had composed before the stream: frames up to there are those of another with the same key.
    pub(super) since: u64,
    /// Content that came and was not taken.
    pub(super) input: VecDeque<Vec<u8>>,
    pub(super) ahead: ReadAheadWindow,
    /// No more content comes.
    pub(super) ended: bool,
    /// Content is thrown away as it comes.
    pub(super) discarded: bool,
    /// It was reset, or the connection is gone.
    pub(super) closed: bool,
    /// Its exchange is over; the rest is sent.
    pub(super) detached: bool,
    /// With which code the stream is reset after the response, since its request was malformed; `None`: the response
    /// ends the stream.
    pub fault: Option<ErrorCode>,
    /// Its content is not what its head announced.
    pub(super) broken: bool,
    /// Its exchange is over, and until then (milliseconds of the worker's clock) the client has time to take the rest of
    /// the response, or to send the rest of the request, which is dropped.
    pub(super) until: Option<u64>,
    /// It is among the [`H2Mux::starved`].
    pub(super) starved: bool,
    /// How long that is from each piece that it takes; of a stream that waits for its client, its `send_timeout`.
    pub(super) patience: u64,
    /// Its client took nothing for longer than `send_timeout`.
    pub(super) given_up: bool,
    /// It is the request that is not over.
    pub(super) lingers: bool,
    /// Bytes that were dropped meanwhile.
    pub(super) dropped: u64,
    /// Waits for content.
    pub(super) reader: Option<Waker>,
    /// Waits until content was sent.
    pub(super) writer: Option<Waker>,
    /// Waits for the client to give up.
    pub(super) watcher: Option<Waker>,
}

impl StreamSlot {
    /// Empties the slot for another stream, keeping its memory.
    pub(super) fn renew(&mut self) {
        let StreamSlot { chain, written, content, input, ended, discarded, closed, detached, fault, .. } =
            self;
        (self.broken, self.until, self.lingers, self.dropped) = (false, None, false, 0);
        (self.starved, self.given_up, self.patience) = (false, false, 0);
        (self.has_file, self.unread) = (false, false);
        // Mostly both are empty, and emptying takes more than looking.
        if !chain.is_empty() {
            chain.clear();
        }
        if !input.is_empty() {
            input.clear();
        }
        (*written, *content, *fault) = (0, 0, None);
        (*ended, *discarded, *closed, *detached) = (false, false, false, false);
        (self.reader, self.writer, self.watcher) = (None, None, None);
    }

    pub(super) fn wake(&mut self) {
        self.wake_reader();
        self.wake_writer();
        if let Some(watcher) = self.watcher.take() {
            watcher.wake();
        }
    }

    /// Something has happened to the request's content.
    pub(super) fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// More of the response may be composed.
    pub(super) fn wake_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    /// Drops the request's content that was not read; how many bytes.
    pub(super) fn drop_input(&mut self) -> u64 {
        self.input.drain(..).map(|piece| piece.len() as u64).sum()
    }
}
