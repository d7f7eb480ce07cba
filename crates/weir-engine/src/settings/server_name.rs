//! Server names: their forms.

use std::sync::Arc;

use crate::regex::RegexPattern;

/// A name of a server. Lower case, as hosts are when they are looked up.
#[derive(Clone)]
pub enum ServerName {
    /// `www.example.com`; empty for requests without a host.
    Exact(Vec<u8>),
    /// `*.example.com`, stored as `.example.com`.
    Head(Vec<u8>),
    /// `.example.com`: the name itself and what ends in it.
    Dot(Vec<u8>),
    /// `www.example.*`, stored as `www.example.`
    Tail(Vec<u8>),
    /// `~pattern`
    Regex(Arc<RegexPattern>),
}

impl ServerName {
    /// Reads a word of `server_name` that is not a pattern: an exact name, `*.example.com`, `.example.com` or
    /// `www.example.*`, in any letter case.
    pub fn parse(text: &[u8]) -> ServerName {
        let text = text.to_ascii_lowercase();
        match &*text {
            [b'*', rest @ ..] if rest.len() > 1 && rest[0] == b'.' => ServerName::Head(rest.to_vec()),
            [b'.', _, ..] => ServerName::Dot(text),
            [_, .., b'.', b'*'] => ServerName::Tail(text[..text.len() - 1].to_vec()),
            _ => ServerName::Exact(text),
        }
    }
}
