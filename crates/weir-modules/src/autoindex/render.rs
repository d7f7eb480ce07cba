//! Listings as bytes.

use std::io::Write as _;

use weir_http::date::{self, Civil};
use weir_http::escape::{self, Set};
use weir_rt::clock;
use weir_rt::file::FileKind;

use super::list::Entry;

/// How the page is laid out.
pub(super) struct Style {
    /// Sizes in bytes, not rounded.
    pub(super) exact_size: bool,
    /// Times in the local zone.
    pub(super) localtime: bool,
    /// Names are UTF-8, so columns count characters.
    pub(super) utf8: bool,
}

/// The page for the directory at `uri`.
pub(super) fn html(out: &mut Vec<u8>, uri: &[u8], entries: &[Entry], style: &Style) {
    out.extend_from_slice(b"<html>\r\n<head><title>Index of ");
    escape::html(out, uri);
    out.extend_from_slice(b"</title></head>\r\n<body>\r\n<h1>Index of ");
    escape::html(out, uri);
    out.extend_from_slice(b"</h1><hr><pre><a href=\"../\">../</a>\r\n");
    for entry in entries {
        link(out, entry, style.utf8);
        time(out, entry.mtime, style.localtime);
        if entry.kind == FileKind::Dir {
            let width = if style.exact_size { EXACT } else { ROUNDED };
            print(out, format_args!(" {:>width$}\r\n", '-'));
        } else if style.exact_size {
            print(out, format_args!(" {:>EXACT$}\r\n", entry.size));
        } else {
            rounded(out, entry.size);
        }
    }
    out.extend_from_slice(b"</pre><hr></body>\r\n</html>\r\n");
}

/// The name as a link, and blanks up to the next column.
fn link(out: &mut Vec<u8>, entry: &Entry, utf8: bool) {
    let is_dir = entry.kind == FileKind::Dir;
    out.extend_from_slice(b"<a href=\"");
    escape::escape(out, &entry.name, Set::UriComponent);
    out.extend_from_slice(if is_dir { b"/\">" } else { b"\">" });
    let text = std::str::from_utf8(&entry.name).ok().filter(|_| utf8);
    let mut width = text.map_or(entry.name.len(), |text| text.chars().count());
    if width > NAME {
        // Cut inside a character when names are only bytes.
        let cut = text.and_then(|text| text.char_indices().nth(NAME_CUT)).map_or(NAME_CUT, |(at, _)| at);
        escape::html(out, &entry.name[..cut]);
        out.extend_from_slice(b"..&gt;");
        width = NAME;
    } else {
        escape::html(out, &entry.name);
        if is_dir && width < NAME {
            out.push(b'/');
            width += 1;
        }
    }
    print(out, format_args!("</a>{:1$} ", "", NAME - width));
}

/// `21-Nov-2026 05:26`
fn time(out: &mut Vec<u8>, mtime: i64, local: bool) {
    let offset = if local { clock::local_offset(mtime.max(0) as u64) } else { 0 };
    let at = Civil::from_unix(mtime + i64::from(offset));
    let month = MONTHS.get(usize::from(at.month).wrapping_sub(1)).copied().unwrap_or("Jan");
    print(out, format_args!("{:02}-{month}-{} {:02}:{:02}", at.day, at.year, at.hour, at.minute));
}

/// The size with the largest unit of which it has at least one, as nginx rounds it.
fn rounded(out: &mut Vec<u8>, size: u64) {
    const K: u64 = 1 << 10;
    const M: u64 = 1 << 20;
    const G: u64 = 1 << 30;
    let (unit, scale) = match size {
        G.. => (G, "G"),
        M.. => (M, "M"),
        10_000.. => (K, "K"),
        _ => return print(out, format_args!(" {size:>ROUNDED$}\r\n")),
    };
    let size = size / unit + u64::from(size % unit >= unit / 2);
    print(out, format_args!(" {size:>0$}{scale}\r\n", ROUNDED - 1));
}

/// An array of objects; in `callback(...)` for JSONP.
pub(super) fn json(out: &mut Vec<u8>, entries: &[Entry], callback: Option<&[u8]>) {
    if let Some(callback) = callback {
        out.extend_from_slice(b"/* callback */\r\n");
        out.extend_from_slice(callback);
        out.push(b'(');
    }
    out.push(b'[');
    for (at, entry) in entries.iter().enumerate() {
        out.extend_from_slice(if at == 0 { b"\r\n{ \"name\":\"" } else { b",\r\n{ \"name\":\"" });
        escape::json(out, &entry.name);
        let kind = kind(entry);
        print(out, format_args!("\", \"type\":\"{kind}\", \"mtime\":\""));
        out.extend_from_slice(&date::http(entry.mtime));
        out.push(b'"');
        if entry.kind == FileKind::File {
            print(out, format_args!(", \"size\":{}", entry.size));
        }
        out.extend_from_slice(b" }");
    }
    out.extend_from_slice(b"\r\n]");
    if callback.is_some() {
        out.extend_from_slice(b");");
    }
}

/// A `list` of `directory`, `file` and `other`.
pub(super) fn xml(out: &mut Vec<u8>, entries: &[Entry]) {
    out.extend_from_slice(b"<?xml version=\"1.0\"?>\r\n<list>\r\n");
    for entry in entries {
        let kind = kind(entry);
        let Civil { year, month, day, hour, minute, second, .. } = Civil::from_unix(entry.mtime);
        print(
            out,
            format_args!("<{kind} mtime=\"{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z\""),
        );
        if entry.kind == FileKind::File {
            print(out, format_args!(" size=\"{}\"", entry.size));
        }
        out.push(b'>');
        escape::html(out, &entry.name);
        print(out, format_args!("</{kind}>\r\n"));
    }
    out.extend_from_slice(b"</list>\r\n");
}

fn kind(entry: &Entry) -> &'static str {
    match entry.kind {
        FileKind::Dir => "directory",
        FileKind::File => "file",
        FileKind::Other => "other",
    }
}

fn print(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a Vec takes every write");
}

/// Width of the column of names; longer ones are cut to [`NAME_CUT`] and two dots and a `>`.
const NAME: usize = 50;
const NAME_CUT: usize = 47;
/// Width of the column of sizes.
const EXACT: usize = 19;
const ROUNDED: usize = 7;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
