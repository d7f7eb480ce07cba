//! Tests of opening and of what is read from small files; the caches have theirs.

use std::path::PathBuf;

use super::*;

/// A folder of one test, removed with it.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("weir-file-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a fresh folder");
        Folder(folder)
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.0.join(name).into_os_string().into_string().expect("ASCII")
    }

    /// As `mv` does: another inode under the same name.
    pub(super) fn replace(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(".new"), text).expect("writable");
        std::fs::rename(self.0.join(".new"), self.0.join(name)).expect("same folder");
    }

    pub(super) fn remove(&self, name: &str) {
        std::fs::remove_file(self.0.join(name)).expect("there");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // left behind in the system's folder for such things
    }
}

fn file(folder: &Folder, name: &str) -> Rc<OpenFile> {
    match open(folder.path(name).as_bytes(), Links::Follow) {
        Ok(Found::File(file)) => file,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_small_body_is_read_once() {
    let folder = Folder::new("body");
    folder.replace("f", "hello");
    let open = file(&folder, "f");
    std::fs::write(folder.path("f"), "HELLO").expect("in place");
    let body = open.body().expect("small");
    assert_eq!(&*body, b"HELLO", "what is there when it is first wanted");
    std::fs::write(folder.path("f"), "again").expect("in place");
    assert!(Rc::ptr_eq(&body, &open.body().expect("kept")));
    assert_eq!((open.size(), open.meta().size), (5, 5));
    let etag = format!("\"{:x}-5\"", open.mtime());
    assert_eq!(&*open.etag(), etag.as_bytes());
}

#[test]
fn empty_large_and_truncated_bodies() {
    let folder = Folder::new("sizes");
    folder.replace("empty", "");
    assert_eq!(file(&folder, "empty").body().as_deref(), Some(&b""[..]));
    folder.replace("large", &"x".repeat(SMALL as usize + 1));
    assert_eq!(file(&folder, "large").body(), None);
    folder.replace("limit", &"x".repeat(SMALL as usize));
    assert_eq!(file(&folder, "limit").body().map(|body| body.len()), Some(SMALL as usize));
    folder.replace("cut", "0123456789");
    let cut = file(&folder, "cut");
    std::fs::write(folder.path("cut"), "01").expect("in place");
    assert_eq!(cut.body(), None, "whoever sends the file finds that it is short");
}

#[test]
fn kinds_and_errors() {
    let folder = Folder::new("kinds");
    folder.replace("f", "x");
    let at = |name: &str| open(folder.path(name).as_bytes(), Links::Follow);
    assert!(matches!(at(""), Ok(Found::Dir { .. })));
    assert!(matches!(open(b"/dev/null", Links::Follow), Ok(Found::Other)));
    assert_eq!(at("gone").err(), Some(ENOENT));
    assert_eq!(at("f/x").err(), Some(ENOTDIR));
    assert_eq!(at(&"n".repeat(300)).err(), Some(ENAMETOOLONG));
    assert_eq!(at("f\0.html").err(), Some(ENOENT));
    std::os::unix::fs::symlink("loop", folder.path("loop")).expect("fresh");
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
