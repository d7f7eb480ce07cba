//! One configuration on Weir and on nginx, and what both say to one request.

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use weir_test::{Driver, Response, Server, TestServerBuilder};
use zlib_rs::{InflateConfig, ReturnCode, decompress_slice};

use crate::compare::version::Version;

/// Both servers on one configuration.
pub(crate) struct Sides {
    pub(crate) ours: Server,
    theirs: Option<Server>,
    /// nginx cuts packed files, too: since 1.23.4.
    cuts_packed: bool,
    different: RefCell<Vec<String>>,
}

impl Sides {
    /// Starts both, nginx where it is installed; `prepare` adds what else they need.
    pub(crate) fn start(
        driver: Driver,
        conf: &str,
        prepare: impl Fn(TestServerBuilder) -> TestServerBuilder,
    ) -> Sides {
        let ours = Server::builder(conf).driver(driver).http("server_product nginx;");
        let nginx = weir_test::require_program("nginx");
        Sides {
            cuts_packed: nginx.as_ref().is_none_or(|path| Version::of(path) >= Version::parse("1.23.4")),
            different: RefCell::default(),
            ours: prepare(ours).start(),
            theirs: nginx.and_then(|_| weir_test::nginx(conf)).map(|nginx| prepare(nginx).start()),
        }
    }

    /// Asks both and notes where heads or decoded bodies differ. Returns what Weir has said, decoded.
    #[track_caller]
    pub(crate) fn ask(&self, request: &str) -> Response {
        let (mut head, ours) = ask(&self.ours, request);
        let is_cut = request.contains("Range: ") && ours.field("content-encoding").is_some();
        if let Some(theirs) = self.theirs.as_ref().filter(|_| self.cuts_packed || !is_cut) {
            let (expected, theirs) = ask(theirs, request);
            if !self.cuts_packed && theirs.field("content-encoding").is_some() {
                head.retain(|line| line != "Accept-Ranges: bytes");
            }
            if head != expected || ours.body != theirs.body {
                let lengths = [&ours, &theirs].map(|response| response.body.len());
                let reported =
                    format!("{request}\n  ours   {head:?}\n  nginx  {expected:?}\n  bytes {lengths:?}");
                self.different.borrow_mut().push(reported);
            }
        }
        ours
    }

    /// Fails where responses differed.
    #[track_caller]
    pub(crate) fn assert_same(&self) {
        let different = self.different.borrow();
        assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    }
}

/// The head's lines without those that name the server or the time, and the response with its body decoded.
#[track_caller]
fn ask(server: &Server, request: &str) -> (Vec<String>, Response) {
    let mut words = request.split(" | ");
    let line = words.next().expect("split gives one at least");
    let line = if line.contains(" HTTP/") { line.to_owned() } else { format!("{line} HTTP/1.1") };
    let mut text = format!("{line}\r\nHost: localhost\r\nConnection: close\r\n");
    words.for_each(|field| text.push_str(&format!("{field}\r\n")));
    let mut client = server.client();
    client.send(format!("{text}\r\n"));
    let mut response = if line.starts_with("HEAD") { client.response_to_head() } else { client.response() };
    let head = response.head_text();
    let foreign = |line: &&str| !line.starts_with("Date: ") && !line.starts_with("Expires: ");
    let head = head.lines().filter(foreign).map(str::to_owned).collect();
    // Not of a part, nor of a page that is not packed: new nginx leaves its 416 the field of what was asked for. What is
    // packed by two compressors has different bytes.
    if response.status != 206
        && response.field("content-encoding") == Some("gzip")
        && response.body.starts_with(&[0x1f, 0x8b])
    {
        response.body = unpack(&response.body, 4 << 20);
    }
    (head, response)
}

/// The content of a gzip file, `most` bytes at most.
#[track_caller]
pub(crate) fn unpack(packed: &[u8], most: usize) -> Vec<u8> {
    let mut out = vec![0; most + 1];
    let (unpacked, code) = decompress_slice(&mut out, packed, InflateConfig { window_bits: 15 + 16 });
    assert_eq!(code, ReturnCode::Ok);
    unpacked.to_vec()
}

/// The files that both serve, all of one second.
pub(crate) fn files(builder: TestServerBuilder) -> TestServerBuilder {
    let page: String = (0..64_000 / 40).map(|n| format!("<p>{:-<33}</p>", n * 7919)).collect();
    let page = &page.as_bytes()[..64_000];
    let files: [(&str, &[u8]); 7] = [
        ("html/page.html", page),
        ("html/style.css", b"body { color: black; background: white }\n"),
        ("html/note.txt", &page[..2000]),
        ("html/data.json", b"{\"numbers\": [1, 2, 3, 4, 5, 6, 7, 8]}\n"),
        ("html/noext", &page[..500]),
        ("html/short.html", b"<h1>short</h1>\n"),
        ("html/empty.html", b""),
    ];
    let builder = files.into_iter().fold(builder, |builder, (name, content)| builder.file(name, content));
    set_times(&builder.dir().join("html"));
    builder
}

/// Gives all files of a directory the same age, so that their tags are known.
pub(crate) fn set_times(directory: &Path) {
    for entry in fs::read_dir(directory).expect("our folder") {
        let file = File::open(entry.expect("our folder").path()).expect("our file");
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(SECOND)).expect("our file");
    }
}

/// Tue, 14 Nov 2023 22:13:20 GMT
const SECOND: u64 = 1_700_000_000;
