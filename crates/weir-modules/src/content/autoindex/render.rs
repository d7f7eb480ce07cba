//! Listings as bytes.

use std::io::Write as _;

use weir_http::date::{self, CivilTime};
use weir_http::escape::{self, EscapeSet};
use weir_rt::clock;
use weir_rt::file::FileKind;

use super::list::DirectoryEntry;

/// How the page is laid out.
pub(super) struct PageStyle {
    /// Sizes in bytes, not rounded.
    pub(super) exact_size: bool,
    /// Times in the local zone.
    pub(super) localtime: bool,
    /// Names are UTF-8, so columns count characters.
    pub(super) utf8: bool,
}

/// The page for the directory at `uri`.
pub(super) fn html(out: &mut Vec<u8>, uri: &[u8], entries: &[DirectoryEntry], style: &PageStyle) {
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

/// H2O's page for the directory at `uri`: names alone, sorted by their bytes, those of directories among them.
pub(super) fn links(out: &mut Vec<u8>, uri: &[u8], entries: &[DirectoryEntry]) {
    for (before, after) in
        [("<!DOCTYPE html>\n<TITLE>Index of ", "</TITLE>\n"), ("<H2>Index of ", "</H2>\n<UL>\n")]
    {
        out.extend_from_slice(before.as_bytes());
        escape::html(out, uri);
        out.extend_from_slice(after.as_bytes());
    }
    out.extend_from_slice(b"<LI><A HREF=\"..\">Parent Directory</A>");
    let mut names: Vec<&[u8]> = entries.iter().map(|entry| &entry.name[..]).collect();
    names.sort_unstable();
    for name in names {
        out.extend_from_slice(b"<LI><A HREF=\"");
        escape::escape(out, name, EscapeSet::UriComponent);
        out.extend_from_slice(b"\">");
        escape::html(out, name);
        out.extend_from_slice(b"</A>");
    }
    out.extend_from_slice(b"</UL>");
}

/// The name as a link, and blanks up to the next column.
fn link(out: &mut Vec<u8>, entry: &DirectoryEntry, utf8: bool) {
    let is_dir = entry.kind == FileKind::Dir;
    out.extend_from_slice(b"<a href=\"");
    escape::escape(out, &entry.name, EscapeSet::UriComponent);
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
    let at = CivilTime::from_unix(mtime + i64::from(offset));
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
pub(super) fn json(out: &mut Vec<u8>, entries: &[DirectoryEntry], callback: Option<&[u8]>) {
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
pub(super) fn xml(out: &mut Vec<u8>, entries: &[DirectoryEntry]) {
    out.extend_from_slice(b"<?xml version=\"1.0\"?>\r\n<list>\r\n");
    for entry in entries {
        let kind = kind(entry);
        let CivilTime { year, month, day, hour, minute, second, .. } = CivilTime::from_unix(entry.mtime);
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

fn kind(entry: &DirectoryEntry) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[u8], kind: FileKind, size: u64) -> DirectoryEntry {
        // 2020-02-03 04:05:06 UTC
        DirectoryEntry { name: name.to_vec(), kind, mtime: 1_580_702_706, size }
    }

    fn row(name: &[u8], kind: FileKind, size: u64, exact_size: bool, utf8: bool) -> String {
        let mut out = Vec::new();
        let style = PageStyle { exact_size, localtime: false, utf8 };
        html(&mut out, b"/", &[entry(name, kind, size)], &style);
        let page = String::from_utf8_lossy(&out).into_owned();
        page.lines().nth(4).expect("head and body come before").to_owned()
    }

    #[test]
    fn a_page_with_nothing_in_it() {
        let mut out = Vec::new();
        html(&mut out, b"/<&\">/", &[], &PageStyle { exact_size: true, localtime: false, utf8: false });
        let expected = "<html>\r\n<head><title>Index of /&lt;&amp;&quot;&gt;/</title></head>\r\n<body>\r\n\
            <h1>Index of /&lt;&amp;&quot;&gt;/</h1><hr><pre><a href=\"../\">../</a>\r\n\
            </pre><hr></body>\r\n</html>\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn columns() {
        let date = "03-Feb-2020 04:05";
        let blank = |n| " ".repeat(n);
        for (exact, size, text) in [
            (true, 6, "                   6"),
            (true, 3_221_225_472, "          3221225472"),
            (false, 6, "       6"),
            (false, 9_999, "    9999"),
            (false, 10_000, "     10K"),
            (false, 12_345, "     12K"),
            (false, 1_048_575, "   1024K"),
            (false, 1_048_576, "      1M"),
            (false, 1_073_741_823, "   1024M"),
            (false, 3_221_225_472, "      3G"),
        ] {
            let expected = format!("<a href=\"f\">f</a>{}{date}{text}", blank(50));
            assert_eq!(row(b"f", FileKind::File, size, exact, false), expected, "{size}");
        }
        let dir = format!("<a href=\"sp%20ace%3F/\">sp ace?/</a>{}{date}{}-", blank(43), blank(19));
        assert_eq!(row(b"sp ace?", FileKind::Dir, 4096, true, false), dir);
        let dir = format!("<a href=\"d/\">d/</a>{}{date}{}-", blank(49), blank(7));
        assert_eq!(row(b"d", FileKind::Dir, 4096, false, false), dir);
    }

    #[test]
    fn long_names_are_cut() {
        let text = |name: &[u8], kind, utf8| {
            let row = row(name, kind, 0, true, utf8);
            let (_, after) = row.split_once("\">").expect("a link");
            after.split_once("03-Feb").expect("a date").0.to_owned()
        };
        let n = |count| "n".repeat(count);
        assert_eq!(text(n(49).as_bytes(), FileKind::Dir, false), n(49) + "/</a> ");
        assert_eq!(text(n(50).as_bytes(), FileKind::Dir, false), n(50) + "</a> ");
        assert_eq!(text(n(49).as_bytes(), FileKind::File, false), n(49) + "</a>  ");
        assert_eq!(text(n(51).as_bytes(), FileKind::File, false), n(47) + "..&gt;</a> ");
        let umlauts = "ü".repeat(51);
        assert_eq!(text(umlauts.as_bytes(), FileKind::File, true), "ü".repeat(47) + "..&gt;</a> ");
        assert_eq!(text(umlauts.as_bytes(), FileKind::File, false), "ü".repeat(23) + "\u{fffd}..&gt;</a> ");
        assert_eq!(text("ü".as_bytes(), FileKind::File, true), format!("ü</a>{}", " ".repeat(50)));
        assert_eq!(text(b"\xff", FileKind::File, true), format!("\u{fffd}</a>{}", " ".repeat(50)));
    }

    #[test]
    fn names_are_escaped() {
        let expected = "<a href=\"q%3C%26%3E%22%27%20%2520%2B.html\">q&lt;&amp;&gt;&quot;' %20+.html</a>";
        assert!(row(b"q<&>\"' %20+.html", FileKind::File, 0, true, false).starts_with(expected));
    }

    #[test]
    fn data() {
        let entries = [
            entry(b"d", FileKind::Dir, 4096),
            entry(b"a\"\n", FileKind::File, 6),
            entry(b"lost", FileKind::Other, 7),
        ];
        let print = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write(&mut out);
            String::from_utf8(out).expect("ASCII")
        };
        let array = "[\r\n\
            { \"name\":\"d\", \"type\":\"directory\", \"mtime\":\"Mon, 03 Feb 2020 04:05:06 GMT\" },\r\n\
            { \"name\":\"a\\\"\\n\", \"type\":\"file\", \"mtime\":\"Mon, 03 Feb 2020 04:05:06 GMT\", \"size\":6 },\r\n\
            { \"name\":\"lost\", \"type\":\"other\", \"mtime\":\"Mon, 03 Feb 2020 04:05:06 GMT\" }\r\n]";
        assert_eq!(print(&|out| json(out, &entries, None)), array);
        assert_eq!(
            print(&|out| json(out, &entries, Some(b"a.b"))),
            format!("/* callback */\r\na.b({array});")
        );
        assert_eq!(print(&|out| json(out, &[], None)), "[\r\n]");
        let list = "<?xml version=\"1.0\"?>\r\n<list>\r\n\
            <directory mtime=\"2020-02-03T04:05:06Z\">d</directory>\r\n\
            <file mtime=\"2020-02-03T04:05:06Z\" size=\"6\">a&quot;\n</file>\r\n\
            <other mtime=\"2020-02-03T04:05:06Z\">lost</other>\r\n</list>\r\n";
        assert_eq!(print(&|out| xml(out, &entries)), list);
    }
}
