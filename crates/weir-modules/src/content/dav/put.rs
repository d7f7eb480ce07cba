//! PUT: the body is written to a file under `client_body_temp_path`, which then gets its name.

use std::path::PathBuf;

use weir_engine::body::ResponseBody;
use weir_engine::read::BodyFile;
use weir_engine::{Exchange, Verdict};
use weir_http::{KnownField, date};
use weir_rt::file::FileKind;
use weir_rt::file::errno::EISDIR;

use super::disk::{self, ArrivingFile, DavPath, DiskFailure};
use super::{DavSettings, could_not_be_created, failed, refuse, set_location};

pub(super) async fn put(settings: &DavSettings, x: &mut Exchange) -> Verdict {
    if x.uri().ends_with(b"/") {
        return refuse(x, 409, "cannot PUT to a collection");
    }
    if x.request.value(&x.arena, KnownField::ContentRange).is_some() {
        return refuse(x, 501, "PUT with range is unsupported");
    }
    // nginx has no file of such a body, and refuses it: that what is there becomes empty must be said (`Content-Length: 0`).
    if x.request.head.content_length.is_none() && !x.request.head.chunked {
        x.log_error(&"PUT request body must be in a file");
        return Verdict::Status(500);
    }
    if let Err(error) = x.read_body_for_file().await {
        return Verdict::Status(error.status());
    }
    let path = match DavPath::of(x) {
        Ok(place) => place.full,
        Err(verdict) => return verdict,
    };
    let arrival = ArrivingFile {
        from: PathBuf::new(),
        to: path.clone(),
        access: Some(settings.access),
        modified: x.request.value(&x.arena, KnownField::Date).and_then(date::parse),
        directories: settings.create_path.then(|| settings.directory_access()),
    };
    let status = match x.end_body_file(&path, move |body| arrive(body, arrival)).await {
        Ok(Ok(status)) => status,
        Ok(Err(PutFailure::Directory)) => {
            could_not_be_created(x, &path, EISDIR);
            return Verdict::Status(409);
        }
        Ok(Err(PutFailure::Disk(failure))) => return failed(x, &failure, disk::NotFound(500)),
        Err(error) => return Verdict::Status(error.status()),
    };
    if status == 201 {
        set_location(x);
    }
    x.response.status = status;
    x.response.content_length = Some(0);
    x.respond(ResponseBody::Empty)
}

/// Why a body that is in its file did not get its place.
enum PutFailure {
    /// A directory has the place.
    Directory,
    Disk(DiskFailure),
}

/// Gives the body its name; the status of success. Waits for the disk.
fn arrive(mut body: BodyFile, mut arrival: ArrivingFile) -> Result<u16, PutFailure> {
    let status = match disk::look_through(&arrival.to) {
        Err(_) => 201,
        Ok(found) if found.kind == FileKind::Dir => return Err(PutFailure::Directory),
        Ok(_) => 204,
    };
    arrival.from = body.path().to_path_buf();
    arrival.settle().map_err(PutFailure::Disk)?;
    body.keep();
    Ok(status)
}
