//! `listen ... http2` and `ssl on`: what nginx 1.25.1 moved from one directive to the other.

use weir_conf::{ConfTree, DiagnosticFix, DirectiveLine, Span};

use super::edit::{add_line, add_word, find_line, remove_line, remove_word};
use super::server::{MendedServer, owner};

/// `listen 443 ssl http2;` is `listen 443 ssl;` and `http2 on;`: the parameter was for all servers of the address, so each
/// of them gets the line.
pub(super) fn http2(tree: &ConfTree, at: Span) -> Option<DiagnosticFix> {
    let line = find_line(tree, at)?;
    let servers = MendedServer::all(tree);
    let mut edits = Vec::new();
    for server in &servers {
        let listens = server.listens_as(line);
        for listen in &listens {
            // One that several servers have from one file is not found.
            owner(&servers, listen.name.span)?;
            for word in listen.args.iter().skip(1).filter(|word| word.is("http2")) {
                edits.push(remove_word(tree, listen, word)?);
            }
        }
        match (listens.last(), server.flag("http2")) {
            (None, _) | (Some(_), Some(true)) => {}
            (Some(last), None) => edits.push(add_line(tree, last, "http2 on;")?),
            (Some(_), Some(false)) => return None,
        }
    }
    let about = "moves \"http2\" from \"listen\" to \"http2 on\" in each server of the address".to_owned();
    Some(DiagnosticFix { about, edits })
}

/// `ssl on;` is `ssl` in all `listen` lines of the server, `ssl off;` is nothing.
pub(super) fn ssl(tree: &ConfTree, at: Span) -> Option<DiagnosticFix> {
    let line = find_line(tree, at)?;
    let servers = MendedServer::all(tree);
    let server = owner(&servers, at)?;
    let mut edits = vec![remove_line(tree, line)?];
    match line.args.first()?.str() {
        "off" => {
            let about = "removes \"ssl off\", which is the default".to_owned();
            return Some(DiagnosticFix { about, edits });
        }
        "on" => {}
        _ => return None,
    }
    for listen in server.named("listen") {
        owner(&servers, listen.name.span)?;
        let is_agreed = |other: &MendedServer<'_>| {
            other.flag("ssl") == Some(true) || other.listens_as(listen).into_iter().all(has_ssl)
        };
        if !servers.iter().all(is_agreed) {
            return None;
        }
        if !has_ssl(listen) {
            edits.push(add_word(listen, "ssl"));
        }
    }
    let about = "moves \"ssl\" to the \"listen\" lines of the server".to_owned();
    (server.named("listen").next().is_some()).then_some(DiagnosticFix { about, edits })
}

fn has_ssl(listen: &DirectiveLine) -> bool {
    listen.args.iter().any(|word| word.is("ssl"))
}
