//! Tests of opening and of what is read from small files; the caches have theirs.

use weir_test::TempDir;

use weir_rt::file::errno::EIO;

use super::*;
use crate::error::EngineError;
use crate::open_file::open;
use crate::testing;

/// A directory of one test, removed with it.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(TempDir::new())
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).into_os_string().into_string().expect("ASCII")
    }

    /// As `mv` does: another inode under the same name.
    pub(crate) fn replace(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(".new"), text).expect("writable");
        std::fs::rename(self.0.path().join(".new"), self.0.path().join(name)).expect("same folder");
    }

    pub(crate) fn remove(&self, name: &str) {
        std::fs::remove_file(self.0.path().join(name)).expect("there");
    }
}

fn file(directory: &Folder, name: &str) -> Rc<OpenFile> {
    match open(directory.path(name).as_bytes(), SymlinkPolicy::Follow) {
        Ok(FoundPath::File(file)) => file,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_small_body_is_read_once() {
    let directory = Folder::new();
    directory.replace("f", "hello");
    let open = file(&directory, "f");
    std::fs::write(directory.path("f"), "HELLO").expect("in place");
    let body = open.body().expect("small");
    assert_eq!(&*body, b"HELLO", "what is there when it is first wanted");
    std::fs::write(directory.path("f"), "again").expect("in place");
    assert!(Rc::ptr_eq(&body, &open.body().expect("kept")));
    assert_eq!((open.size(), open.meta().size), (5, 5));
    let etag = format!("\"{:x}-5\"", open.mtime());
    assert_eq!(&*open.etag(), etag.as_bytes());
}

#[test]
fn empty_large_and_truncated_bodies() {
    let directory = Folder::new();
    directory.replace("empty", "");
    assert_eq!(file(&directory, "empty").body().as_deref(), Some(&b""[..]));
    directory.replace("large", &"x".repeat(SMALL as usize + 1));
    assert_eq!(file(&directory, "large").body(), None);
    directory.replace("limit", &"x".repeat(SMALL as usize));
    assert_eq!(file(&directory, "limit").body().map(|body| body.len()), Some(SMALL as usize));
    directory.replace("cut", "0123456789");
    let cut = file(&directory, "cut");
    std::fs::write(directory.path("cut"), "01").expect("in place");
    assert_eq!(cut.body(), None, "whoever sends the file finds that it is short");
}

#[test]
fn kinds_and_errors() {
    let directory = Folder::new();
    directory.replace("f", "x");
    let at = |name: &str| open(directory.path(name).as_bytes(), SymlinkPolicy::Follow);
    assert!(matches!(at(""), Ok(FoundPath::Dir { .. })));
    assert!(matches!(open(b"/dev/null", SymlinkPolicy::Follow), Ok(FoundPath::Other)));
    assert_eq!(at("gone").err(), Some(ENOENT));
    assert_eq!(at("f/x").err(), Some(ENOTDIR));
    assert_eq!(at(&"n".repeat(300)).err(), Some(ENAMETOOLONG));
    assert_eq!(at("f\0.html").err(), Some(ENOENT));
    std::os::unix::fs::symlink("loop", directory.path("loop")).expect("fresh");
    assert_eq!(at("loop").err(), Some(ELOOP));
}

#[test]
fn from_ends_with_a_component() {
    for (path, from, trusted) in [
        ("/a/b/c", "/a", Some(2)),
        ("/a/b/c", "/a/", Some(2)),
        ("/a/b/c", "/a/b/c", None),
        ("/a/b/c", "/a/b/c/d", Some(0)),
        ("/ab/c", "/a", Some(0)),
        ("/a/b/c", "", Some(0)),
        ("/a/b/c", "/x", Some(0)),
        ("/a/b", "/", Some(0)),
    ] {
        assert_eq!(unchecked(path.as_bytes(), from.as_bytes()), trusted, "{path} from={from}");
    }
}

fn mapped(server: &str, uri: &str) -> (String, u32) {
    let http = format!("server {{ listen 80; {server} }}");
    let head = format!("GET {uri} HTTP/1.1\r\nHost: h.example\r\n\r\n");
    testing::run(&http, &head, async |x| {
        let path = map_uri(x).expect("no alias of a changed URI");
        (String::from_utf8_lossy(path.bytes(&x.arena)).into_owned(), path.root)
    })
}

#[test]
fn paths_of_uris() {
    for (server, uri, path, root) in [
        ("root /srv/www;", "/a/b.html?c", "/srv/www/a/b.html", 8),
        ("root /srv/www/;", "/", "/srv/www/", 8),
        ("root html;", "/a", "/srv/weir/html/a", 14),
        ("root /;", "/a", "/a", 0),
        ("root /d/$host;", "/a", "/d/h.example/a", 12),
        ("root $host;", "/a", "/srv/weir/h.example/a", 19),
        ("location /i/ { alias /data/w/; }", "/i/top.gif", "/data/w/top.gif", 8),
        ("location /i { alias /data/w; }", "/i/top.gif", "/data/w/top.gif", 7),
        ("location /i/ { alias /data/$host/; }", "/i/top.gif", "/data/h.example/top.gif", 16),
        (r"location ~ ^/u/(.+\.gif)$ { alias /data/$1; }", "/u/top.gif", "/data/top.gif", 13),
        ("root /srv/www;", "/%20%C3%BC%3F/x", "/srv/www/ ü?/x", 8),
    ] {
        assert_eq!(mapped(server, uri), (path.to_owned(), root), "{server} {uri}");
    }
}

/// Looks `/f` up in `folder` as location settings have it: the body, or the errno.
fn looked_up(x: &mut Exchange) -> Result<String, i32> {
    let path = map_uri(x).expect("no alias of a changed URI");
    match lookup(x, path)? {
        FoundPath::File(file) => Ok(String::from_utf8_lossy(&file.body().expect("small")).into_owned()),
        other => panic!("{other:?}"),
    }
}

fn with_root(directory: &Folder, settings: &str, test: impl AsyncFnOnce(&mut Exchange)) {
    let root = directory.path("");
    let http = format!("server {{ listen 80; location / {{ root {root}; {settings} }} }}");
    testing::run(&http, "GET /f HTTP/1.1\r\nHost: h\r\n\r\n", test);
}

#[test]
fn a_result_is_shared_within_a_turn_and_not_beyond() {
    let directory = Folder::new();
    directory.replace("f", "old");
    with_root(&directory, "", async |x| {
        assert_eq!(looked_up(x).as_deref(), Ok("old"));
        directory.replace("f", "new");
        assert_eq!(looked_up(x).as_deref(), Ok("old"), "the same turn");
        weir_rt::sleep(std::time::Duration::from_millis(1)).await;
        assert_eq!(looked_up(x).as_deref(), Ok("new"));
        directory.remove("f");
        weir_rt::sleep(std::time::Duration::from_millis(1)).await;
        assert_eq!(looked_up(x), Err(ENOENT));
        directory.replace("f", "back");
        weir_rt::sleep(std::time::Duration::from_millis(1)).await;
        assert_eq!(looked_up(x).as_deref(), Ok("back"));
    });
}

#[test]
fn an_idle_worker_holds_no_file() {
    let directory = Folder::new();
    directory.replace("f", "x");
    with_root(&directory, "", async |x| {
        let path = map_uri(x).expect("no alias of a changed URI");
        let Ok(FoundPath::File(file)) = lookup(x, path) else { panic!("not a file") };
        let handle = file.handle();
        drop(file);
        assert_eq!(Rc::strong_count(&handle), 2, "ours, and that of the turn");
        weir_rt::yield_now().await;
        weir_rt::yield_now().await;
        assert_eq!(Rc::strong_count(&handle), 1);
    });
}

#[test]
fn open_file_cache_keeps_files_over_turns() {
    let directory = Folder::new();
    directory.replace("f", "old");
    with_root(&directory, "open_file_cache max=10;", async |x| {
        assert_eq!(looked_up(x).as_deref(), Ok("old"));
        directory.replace("f", "new");
        weir_rt::sleep(std::time::Duration::from_millis(1)).await;
        assert_eq!(looked_up(x).as_deref(), Ok("old"));
        x.worker.files.clear();
        assert_eq!(looked_up(x).as_deref(), Ok("new"));
    });
}

#[test]
fn symbolic_links_by_location() {
    let directory = Folder::new();
    directory.replace("real", "x");
    std::os::unix::fs::symlink("real", directory.path("f")).expect("fresh");
    let status = |settings: &str| {
        let mut result = Ok(String::new());
        with_root(&directory, settings, async |x| {
            result = looked_up(x).map_err(|errno| {
                let path = map_uri(x).expect("no alias of a changed URI");
                i32::from(failed(x, path, errno))
            });
        });
        result
    };
    assert_eq!(status("").as_deref(), Ok("x"));
    assert_eq!(status("disable_symlinks on;"), Err(403));
    assert_eq!(status("disable_symlinks on; open_file_cache max=10;"), Err(403));
    assert_eq!(status("disable_symlinks if_not_owner;").as_deref(), Ok("x"), "our own link");
    let from = format!("disable_symlinks on from={};", directory.path("f"));
    assert_eq!(status(&from).as_deref(), Ok("x"), "all of the path is trusted");
    assert_eq!(status("disable_symlinks on from=$document_root;"), Err(403));
}

#[test]
fn statuses_of_errors() {
    let directory = Folder::new();
    with_root(&directory, "", async |x| {
        let path = map_uri(x).expect("no alias of a changed URI");
        for (errno, status) in
            [(ENOENT, 404), (ENOTDIR, 404), (ENAMETOOLONG, 404), (EACCES, 403), (ELOOP, 403), (EIO, 500)]
        {
            assert_eq!(failed(x, path, errno), status);
        }
    });
}

#[test]
fn parts_of_files_are_read() {
    let directory = Folder::new();
    directory.replace("f", &"0123456789".repeat(20_000));
    with_root(&directory, "", async |x| {
        let path = map_uri(x).expect("no alias of a changed URI");
        let Ok(FoundPath::File(file)) = lookup(x, path) else { panic!("not a file") };
        let part = x.read_file(&file, 100_003, 70_000).await.expect("resident or not");
        assert_eq!((part.len(), &part[..4]), (70_000, &b"3456"[..]));
        std::fs::write(directory.path("f"), "short").expect("in place");
        assert_eq!(x.read_file(&file, 100_003, 10).await, Err(EngineError::file(None)));
        assert_eq!(x.read_file(&file, 2, 10).await, Err(EngineError::file(None)));
    });
}
