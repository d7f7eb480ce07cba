//! Another text in the place of a file: whole or not at all.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Error, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

/// Writes `text` in the place of the file `path`, which contains `old`: beside it first, with its mode and owner. Of a
/// symbolic link the file at its end is replaced, and the link stays.
///
/// # Errors
/// Those of the file system; the file is no regular one, or has changed since `old` was read. It is as it was then.
pub(crate) fn rewrite(path: &Path, old: &[u8], text: &[u8]) -> io::Result<()> {
    let path = path.canonicalize()?;
    let metadata = path.metadata()?;
    if !metadata.is_file() {
        return Err(Error::other("is no regular file"));
    }
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".weir.{}", std::process::id()));
    let draft = path.with_file_name(name);
    // The name must be free: no link is followed.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let replaced = fill(file, &metadata, text).and_then(|()| match fs::read(&path)? == old {
        true => fs::rename(&draft, &path),
        false => Err(Error::other("has been changed in the meantime")),
    });
    if replaced.is_err() {
        // The first error is reported.
        let _ = fs::remove_file(&draft);
    }
    replaced
}

fn fill(mut file: File, like: &Metadata, text: &[u8]) -> io::Result<()> {
    file.write_all(text)?;
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
        fchown(&file, Some(like.uid()), Some(like.gid()))?;
    }
    // After the owner, whose change takes away the set-user-ID bit.
    file.set_permissions(Permissions::from_mode(like.mode() & 0o7777))?;
    file.sync_all()
}
