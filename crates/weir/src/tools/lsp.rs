//! `weir lsp`: the language server on standard input and output.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use weir::lsp::{EditorFiles, LanguageServer};
use weir_http::json::MessageBuffer;
use weir_see::commands::CommandLine as ToolLine;

use super::TROUBLE;

/// `weir lsp [-c FILE]`
pub(super) fn run(asked: &ToolLine) -> Result<ExitCode, String> {
    asked.at_most(0)?;
    let main = asked.place.conf.as_ref().map(PathBuf::from).map(std::path::absolute).transpose();
    let main = main.map_err(|error| format!("-c: {error}"))?;
    let server = LanguageServer::new(EditorFiles, main);
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    serve(server, &received_pieces(File::from(input)))
}

fn failed(error: io::Error) -> String {
    format!("standard input or output: {error}")
}

/// What is received, read by a thread: while a text is looked at the next one arrives.
fn received_pieces(mut input: File) -> Receiver<io::Result<Vec<u8>>> {
    let (sender, pieces) = sync_channel(WAITING);
    thread::spawn(move || {
        let mut piece = vec![0; 64 * 1024];
        loop {
            let read = input.read(&mut piece).map(|length| piece[..length].to_vec());
            let is_last = read.as_ref().map_or(true, Vec::is_empty);
            if sender.send(read).is_err() || is_last {
                return;
            }
        }
    });
    pieces
}

/// Serves until the editor ends the session or is gone. Texts that arrive while another one is looked at are looked at
/// once, the last of each file.
fn serve(
    mut server: LanguageServer<EditorFiles>,
    pieces: &Receiver<io::Result<Vec<u8>>>,
) -> Result<ExitCode, String> {
    let mut buffer = MessageBuffer::default();
    loop {
        let Ok(mut piece) = pieces.recv() else { return Ok(ExitCode::from(TROUBLE)) };
        let until = Instant::now() + LONGEST_BATCH;
        loop {
            let piece_read = piece.map_err(failed)?;
            if piece_read.is_empty() {
                // The editor is gone without its "exit".
                return Ok(ExitCode::from(TROUBLE));
            }
            buffer.push(&piece_read);
            while let Some(message) = buffer.next_message().map_err(|error| error.to_string())? {
                server.receive(&message);
                if let Some(status) = server.exit_status() {
                    send(&mut server).map_err(failed)?;
                    return Ok(ExitCode::from(status));
                }
            }
            send(&mut server).map_err(failed)?;
            // The rest of a message is on its way.
            let wait = if buffer.is_empty() { Duration::ZERO } else { REST };
            match pieces.recv_timeout(wait.min(until.saturating_duration_since(Instant::now()))) {
                Ok(next) => piece = next,
                Err(_) => break,
            }
        }
        server.settle();
        send(&mut server).map_err(failed)?;
    }
}

fn send(server: &mut LanguageServer<EditorFiles>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for message in server.take_outgoing() {
        out.write_all(&MessageBuffer::framed(&message))?;
    }
    out.flush()
}

/// Pieces of 64 KiB that wait.
const WAITING: usize = 64;
/// How long the rest of a message is waited for before what there is is looked at.
const REST: Duration = Duration::from_millis(200);
/// How long texts are collected before they are looked at, however fast more come.
const LONGEST_BATCH: Duration = Duration::from_secs(1);
