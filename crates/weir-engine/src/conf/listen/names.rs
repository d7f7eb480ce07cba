//! Server names: their forms, and names that two servers of an address claim.

use std::collections::HashSet;

use weir_conf::Error;

use crate::conf::server_core::ServerCoreConf;
use crate::settings::listen::ListenAddress;
use crate::settings::server_name::ServerName;

/// What a name takes from others that share its address.
fn claims(name: &ServerName) -> Vec<NameClaim<'_>> {
    match name {
        ServerName::Exact(name) => vec![NameClaim::Exact(name)],
        ServerName::Head(rest) => vec![NameClaim::Head(rest)],
        ServerName::Dot(rest) => vec![NameClaim::Exact(&rest[1..]), NameClaim::Head(rest)],
        ServerName::Tail(rest) => vec![NameClaim::Tail(rest)],
        ServerName::Regex(_) => Vec::new(),
    }
}

#[derive(PartialEq, Eq, Hash)]
enum NameClaim<'a> {
    Exact(&'a [u8]),
    Head(&'a [u8]),
    Tail(&'a [u8]),
}

/// nginx's complaints about the names of the servers at `address`. It looks at names only where they decide something:
/// where several servers share an address, or one has a pattern whose groups may be used.
pub(super) fn check(address: &ListenAddress, servers: &[&ServerCoreConf], errors: &mut Vec<Error>) {
    if address.servers.len() == 1 && !servers[address.default].has_captures() {
        return;
    }
    let mut taken = HashSet::new();
    for &index in &address.servers {
        let conf = servers[index];
        for (at, name) in conf.names().iter().enumerate() {
            let (written, span) = match conf.written.get(at) {
                Some((written, span)) => (&**written, Some(*span)),
                None => (&b""[..], conf.span),
            };
            let shown = String::from_utf8_lossy(written);
            if !matches!(name, ServerName::Regex(_)) && !is_valid(written) {
                let message = format!("invalid server name or wildcard \"{shown}\" on {}", address.addr);
                errors.push(Error { span, ..Error::new(message) });
                continue;
            }
            // All claims count, also after one that is taken already.
            let mut free = true;
            for claim in claims(name) {
                free &= taken.insert(claim);
            }
            if !free {
                let message = format!("conflicting server name \"{shown}\" on {}, ignored", address.addr);
                errors.push(Error { span, ..Error::warning(message) });
            }
        }
    }
}

/// One star at most, at an end beside a dot; no empty label inside, no NUL.
fn is_valid(name: &[u8]) -> bool {
    let inner = match name {
        [b'*', b'.', inner @ ..] if !inner.is_empty() => inner,
        [inner @ .., b'.', b'*'] if !inner.is_empty() => inner,
        name => name,
    };
    !inner.iter().any(|b| matches!(b, b'*' | 0)) && !name.windows(2).any(|pair| pair == b"..")
}
