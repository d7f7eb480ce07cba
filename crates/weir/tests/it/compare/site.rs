//! The files both servers serve, all of one second, so that `ETag`, `Last-Modified` and listings are known.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, SystemTime};

use weir_test::TempDir;

/// A directory of files; it goes away with its value.
pub(crate) struct Site(TempDir);

impl Site {
    pub(crate) fn new() -> Site {
        let site = Site(TempDir::new());
        for (name, content) in FILES {
            site.0.write(name, content);
        }
        let big: Vec<u8> = (0..70_000_u32).map(|at| b'a' + (at % 23) as u8).collect();
        site.0.write("html/big.bin", big);
        for (target, name) in LINKS {
            symlink(target, site.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        for name in ["empty", "list/folder", "list/Another folder"] {
            fs::create_dir_all(site.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        // The listener goes away, its name stays.
        UnixListener::bind(site.path().join("html/socket"))
            .unwrap_or_else(|error| panic!("a socket: {error}"));
        set_times(site.path());
        site
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Files first, since making them changes their directories.
fn set_times(path: &Path) {
    let when = SystemTime::UNIX_EPOCH + Duration::from_secs(SECOND);
    for entry in fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())) {
        let entry = entry.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let kind = entry.file_type().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if kind.is_dir() {
            set_times(&entry.path());
        } else if kind.is_file() {
            set_time(&entry.path(), when);
        }
    }
    set_time(path, when);
}

fn set_time(path: &Path, when: SystemTime) {
    let set = File::open(path).and_then(|file| file.set_modified(when));
    set.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

const FILES: &[(&str, &str)] = &[
    ("html/a.txt", "0123456789abcdefghijklmnopqrstuvwxyz\n"),
    ("html/index.html", "<h1>index</h1>\n"),
    ("html/page.html", "<!doctype html><title>page</title>\n"),
    ("html/empty.txt", ""),
    ("html/style.css", "body { color: black }\n"),
    ("html/script.js", "alert(1)\n"),
    ("html/image.png", "\u{89}PNG"),
    ("html/noext", "no extension\n"),
    ("html/UPPER.TXT", "upper\n"),
    ("html/two.tar.gz", "archive\n"),
    ("html/with space.txt", "space\n"),
    ("html/per%cent.txt", "percent\n"),
    ("html/ünï.txt", "not ascii\n"),
    ("html/.dot", "dot first\n"),
    ("html/dot.", "dot last\n"),
    ("html/~user/x", "tilde\n"),
    ("html/doc.pdf", "%PDF\n"),
    ("html/archive.ZIP", "PK\n"),
    ("html/sub/index.html", "<h1>sub</h1>\n"),
    ("html/sub/deep/file.txt", "deep\n"),
    ("html/noindex/x.txt", "x\n"),
    ("html/dirindex/index.html/x", "x\n"),
    ("html/real/file.txt", "behind a link\n"),
    ("errors/404.html", "<h1>not found here</h1>\n"),
    ("errors/403.html", "<h1>forbidden here</h1>\n"),
    ("errors/50x.html", "<h1>broken here</h1>\n"),
    ("errors/errors.test.html", "<h1>named by the host</h1>\n"),
    ("hosts/x.txt", "hosts\n"),
    ("hosts/one/index.html", "<h1>one</h1>\n"),
    ("hosts/one/welcome.html", "<h1>welcome to one</h1>\n"),
    ("hosts/one/folder/x.txt", "x\n"),
    ("hosts/two/index.html", "<h1>two</h1>\n"),
    ("list/a.txt", "a\n"),
    ("list/B.txt", "bb\n"),
    ("list/c file.txt", "ccc\n"),
    ("list/.hidden", "not listed\n"),
    ("list/<tag>&amp;.txt", "markup\n"),
    ("list/quote\"'.txt", "quotes\n"),
    ("list/back\\slash", "backslash\n"),
    ("list/per%41cent?query#hash.txt", "percent\n"),
    ("list/co:lon;semi.txt", "colon\n"),
    ("list/tab\tand\x01control", "control\n"),
    ("list/ünïcödé – 日本.txt", "not ascii\n"),
    ("list/a-name-that-is-longer-than-what-a-listing-shows-of-it.txt", "long\n"),
    ("list/ein-sehr-länglicher-näme-mit-ümläuten-über-fünfzig-zeichen.txt", "long\n"),
    ("list/exactly-fifty-characters-long-name-of-a-file-.text", "fifty\n"),
    ("list/inner/file.txt", "inner\n"),
    ("list/1000", "0123456789012345678901234567890123456789012345678901234567890123456789\n"),
];

const LINKS: &[(&str, &str)] = &[
    ("a.txt", "html/link.txt"),
    ("real", "html/linkdir"),
    ("loop", "html/loop"),
    ("nowhere", "html/dangling"),
    ("a.txt", "list/link.txt"),
    ("folder", "list/link-to-folder"),
    ("nowhere", "list/dangling-link"),
];

/// Tue, 14 Nov 2023 22:13:20 GMT
const SECOND: u64 = 1_700_000_000;
