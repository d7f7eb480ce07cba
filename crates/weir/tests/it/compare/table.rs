//! Tables of requests: one line of text each.
//!
//! ```text
//! host example.test                           the host of the lines that follow
//! GET /a.txt                                  GET /a.txt HTTP/1.1, Host: example.test
//! GET /a.txt | Range: bytes=0-4               the same with a field more
//! GET /a.txt HTTP/1.0 | Connection: close     nothing is added to a line that has a version
//! POST / | Content-Length: 3 >> abc           a body after the head
//! GET /a || GET /b                            two requests in one write
//! raw GET /\r\n                               bytes as they are
//! [port 1, since 1.23, until 1.30] GET /      to the second port; asked of these versions of nginx only
//! [eof] POST / | Content-Length: 9 >> abc     nothing comes after it: the client ends its direction at once
//! [differs: why] GET /                        Weir responds differently on purpose
//! [logged: why] GET /                         Weir responds the same, but logs it differently on purpose
//! ```
//! `\r`, `\n`, `\t`, `\\`, `\xHH` are bytes, `{abc*20}` is `abc` twenty times, `%%PORT_0%%` a port of the server.

use crate::compare::version::{Version, Versions};

/// One line of a table: what is sent on one connection.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The line as written.
    pub(crate) line: String,
    /// Its number.
    pub(crate) number: usize,
    /// Which of the ports.
    pub(crate) port: usize,
    /// Versions of nginx it is asked of.
    pub(crate) versions: Versions,
    /// The client's direction ends after it, before anything is read.
    pub(crate) eof: bool,
    /// What Weir means to do differently.
    pub(crate) differs: Differs,
    /// The bytes, with `%%PORT_n%%` still in them.
    pub(crate) bytes: Vec<u8>,
    /// For each message in them whether it is a HEAD request, whose response has no body.
    pub(crate) heads: Vec<bool>,
}

/// What Weir means to do differently, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Differs {
    No,
    Answer(String),
    Log(String),
}

impl Differs {
    /// The notes before a reason, which may have commas in it, and the reason.
    fn split(notes: &str) -> (&str, Differs) {
        if let Some((before, reason)) = notes.split_once("differs: ") {
            return (before, Differs::Answer(reason.to_owned()));
        }
        match notes.split_once("logged: ") {
            Some((before, reason)) => (before, Differs::Log(reason.to_owned())),
            None => (notes, Differs::No),
        }
    }
}

/// Reads a table.
///
/// # Panics
/// On a line that can't be read.
pub(crate) fn parse(text: &str) -> Vec<Request> {
    let mut host = "localhost";
    let mut requests = Vec::new();
    for (index, line) in text.lines().enumerate() {
        match line.strip_prefix("host ") {
            Some(name) => host = name,
            None if line.is_empty() || line.starts_with('#') => {}
            None => requests.push(request(line, index + 1, host)),
        }
    }
    requests
}

fn request(line: &str, number: usize, host: &str) -> Request {
    let (notes, text) = match line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((notes, text)) => (notes, text),
        None => ("", line),
    };
    let (bytes, heads) = match text.strip_prefix("raw ") {
        Some(raw) => (bytes(raw), vec![raw.starts_with("HEAD ")]),
        None => messages(&repeat(text), host),
    };
    let line = line.to_owned();
    let (versions, port, eof, differs) = (Versions::default(), 0, false, Differs::No);
    let mut request = Request { line, number, port, versions, eof, differs, bytes, heads };
    request.read_notes(notes);
    request
}

impl Request {
    fn read_notes(&mut self, notes: &str) {
        let (notes, differs) = Differs::split(notes);
        self.differs = differs;
        for note in notes.split(", ").filter(|note| !note.is_empty()) {
            match note.split_once(' ').unwrap_or((note, "")) {
                ("eof", "") => self.eof = true,
                ("port", number) => self.port = number.parse().expect("a port's number"),
                ("since", version) => self.versions.since = Some(Version::parse(version)),
                ("until", version) => self.versions.until = Some(Version::parse(version)),
                _ => panic!("line {}: {note:?}", self.number),
            }
        }
    }

    /// The bytes for a server on these ports.
    pub(crate) fn bytes_for(&self, ports: &[u16]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for (number, port) in ports.iter().enumerate() {
            bytes = crate::compare::mask::replace(
                &bytes,
                format!("%%PORT_{number}%%").as_bytes(),
                port.to_string().as_bytes(),
            );
        }
        bytes
    }
}

fn messages(text: &str, host: &str) -> (Vec<u8>, Vec<bool>) {
    let mut all = Vec::new();
    let mut heads = Vec::new();
    for message in text.split(" || ") {
        let (head, body) = message.split_once(" >> ").unwrap_or((message, ""));
        let (line, fields) =
            head.split_once(" | ").map_or((head, None), |(line, fields)| (line, Some(fields)));
        all.extend(bytes(line));
        if !line.to_ascii_lowercase().contains(" http/") {
            all.extend(format!(" HTTP/1.1\r\nHost: {host}").bytes());
        }
        for field in fields.into_iter().flat_map(|fields| fields.split(" | ")) {
            all.extend(b"\r\n");
            all.extend(bytes(field));
        }
        all.extend(b"\r\n\r\n");
        all.extend(bytes(body));
        heads.push(line.starts_with("HEAD "));
    }
    (all, heads)
}

/// Resolves `{text*count}`.
fn repeat(text: &str) -> String {
    let mut whole = String::new();
    let mut rest = text;
    while let Some((before, inside)) = rest.split_once('{') {
        let found = inside.split_once('}').and_then(|(inside, after)| {
            let (what, count) = inside.rsplit_once('*')?;
            Some((what.repeat(count.parse().ok()?), after))
        });
        let Some((repeated, after)) = found else { break };
        whole.push_str(before);
        whole.push_str(&repeated);
        rest = after;
    }
    whole + rest
}

/// Resolves escapes.
fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let (&letter, after) = rest.split_first().expect("a letter behind a backslash");
        rest = after;
        out.push(match letter {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'\\' => b'\\',
            b'x' => {
                let digits = std::str::from_utf8(&rest[..2]).expect("two digits");
                rest = &rest[2..];
                u8::from_str_radix(digits, 16).expect("hexadecimal digits")
            }
            other => panic!("\\{} in {text:?}", char::from(other)),
        });
    }
    out
}

#[test]
fn lines_become_bytes() {
    let table = "# a comment\nhost h\nGET /a\nGET /a HTTP/1.0\n[port 1, eof, since 1.23] HEAD / | A: {b*3} || GET /\\x41\n\
                 POST / | C: 1 >> a\\r\\n\nraw \\x00\\\\\n[differs: it, is so] GET /";
    let requests = parse(table);
    let texts: Vec<_> = requests.iter().map(|request| String::from_utf8_lossy(&request.bytes)).collect();
    assert_eq!(
        texts,
        [
            "GET /a HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET /a HTTP/1.0\r\n\r\n",
            "HEAD / HTTP/1.1\r\nHost: h\r\nA: bbb\r\n\r\nGET /A HTTP/1.1\r\nHost: h\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: h\r\nC: 1\r\n\r\na\r\n",
            "\0\\",
            "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        ]
    );
    assert_eq!((requests[2].number, requests[2].port, requests[2].eof), (5, 1, true));
    assert_eq!(requests[2].heads, [true, false]);
    assert!(!requests[2].versions.contains(&Version::parse("1.22.1")));
    assert_eq!(requests[5].differs, Differs::Answer("it, is so".to_owned()));
}
