//! PUT: the body is written to a file under `client_body_temp_path`, which then gets its name.

use weir_engine::body::ResponseBody;
use weir_engine::{Exchange, Verdict};
use weir_http::{KnownField, date};
use weir_rt::file::FileKind;
use weir_rt::file::errno::EISDIR;

use super::disk::{self, ArrivingFile, DavPath};
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
    if let Err(error) = x.read_body_into_file().await {
        return Verdict::Status(error.status());
    }
    let path = match DavPath::of(x) {
        Ok(place) => place.full,
        Err(verdict) => return verdict,
    };
    let there = disk::away(x, {
        let path = path.clone();
        move || disk::look_through(&path)
    })
    .await;
    let status = match there {
        Err(_) => 201,
        Ok(found) if found.kind == FileKind::Dir => {
            could_not_be_created(x, &path, EISDIR);
            return Verdict::Status(409);
        }
        Ok(_) => 204,
    };
    let Some(mut body) = x.body.take_file() else { return Verdict::Status(500) };
    let arrival = ArrivingFile {
        from: body.path.clone().unwrap_or_default(),
        to: path,
        access: Some(settings.access),
        modified: x.request.value(&x.arena, KnownField::Date).and_then(date::parse),
        directories: settings.create_path.then(|| settings.directory_access()),
    };
    match disk::away(x, move || arrival.settle()).await {
        Ok(()) => body.keep(),
        Err(failure) => return failed(x, &failure, disk::NotFound(500)),
    }
    if status == 201 {
        set_location(x);
    }
    x.response.status = status;
    x.response.content_length = Some(0);
    x.respond(ResponseBody::Empty)
}
