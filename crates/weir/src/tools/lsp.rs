//! `weir lsp`: the language server on standard input and output.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

use weir::lsp::LanguageServer;
use weir_conf::RealFiles;
use weir_http::json::MessageBuffer;
use weir_see::commands::CommandLine as ToolLine;

use super::TROUBLE;

/// `weir lsp [-c FILE]`
pub(super) fn run(asked: &ToolLine) -> Result<ExitCode, String> {
    asked.at_most(0)?;
    let main = asked.place.conf.as_ref().map(PathBuf::from).map(std::path::absolute).transpose();
    let main = main.map_err(|error| format!("-c: {error}"))?;
    let mut server = LanguageServer::new(RealFiles, main);
    let failed = |error: io::Error| format!("standard input or output: {error}");
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let (mut buffer, mut received) = (MessageBuffer::default(), vec![0; 64 * 1024]);
    loop {
        let length = input.read(&mut received).map_err(failed)?;
        if length == 0 {
            // The editor is gone without its "exit".
            return Ok(ExitCode::from(TROUBLE));
        }
        buffer.push(&received[..length]);
        while let Some(message) = buffer.next_message().map_err(|error| error.to_string())? {
            server.receive(&message);
            if let Some(status) = server.exit_status() {
                send(&mut server).map_err(failed)?;
                return Ok(ExitCode::from(status));
            }
        }
        // What was typed in the meantime came in one piece: it is looked at once.
        server.settle();
        send(&mut server).map_err(failed)?;
    }
}

fn send(server: &mut LanguageServer<RealFiles>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for message in server.take_outgoing() {
        out.write_all(&MessageBuffer::framed(&message))?;
    }
    out.flush()
}
