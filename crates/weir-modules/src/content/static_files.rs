//! `static`: serves files under `root` or `alias`; the content handler of last resort.
//!
//! Conditional requests, ranges and `Accept-Ranges` are handled by filters; this module finds and describes the file.

use weir_conf::Directive;
use weir_engine::body::{BodyBuf, ResponseBody};
use weir_engine::file::{self, FoundPath, OpenFile};
use weir_engine::log::LogLevel;
use weir_engine::plan::PlanBuilder;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::{Exchange, Handler, Module, Phase, Text, Verdict};
use weir_http::escape::{self, EscapeSet};
use weir_http::{KnownField, Method};

use std::rc::Rc;

/// The module; it has no directives of its own.
pub struct Static;

impl Module for Static {
    const NAME: &'static str = "static";
    type Conf = ();
    const DIRECTIVES: &'static [Directive<()>] = &[];

    fn install(_: &(), plan: &mut PlanBuilder<'_>) {
        plan.handler(Phase::Content, Self::NAME, ServeFile);
    }
}

struct ServeFile;

impl Handler for ServeFile {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        serve(x)
    }

    fn is_fixed(&self, _x: &Exchange) -> bool {
        true
    }
}

fn serve(x: &mut Exchange) -> Verdict {
    let looks_first = x.plan.core.file_lookup_first;
    if !looks_first && !matches!(x.request.head.method, Method::Get | Method::Head | Method::Post) {
        return Verdict::Status(405);
    }
    if x.uri().ends_with(b"/") {
        return if looks_first { Verdict::Status(404) } else { Verdict::Declined };
    }
    match file::lookup_uri(x) {
        Ok(FoundPath::File(_)) if !matches!(x.request.head.method, Method::Get | Method::Head) => {
            if looks_first {
                x.add_response_field(b"Allow", "GET, HEAD".into());
            }
            Verdict::Status(405)
        }
        Ok(FoundPath::File(file)) => respond(x, file),
        Ok(FoundPath::Dir { .. }) => add_slash(x),
        Ok(FoundPath::Other) => {
            if let Ok(path) = file::map_uri(x) {
                let path = String::from_utf8_lossy(path.bytes(&x.arena));
                x.log(LogLevel::Crit, &format_args!("\"{path}\" is not a regular file"));
            }
            Verdict::Status(404)
        }
        Err(status) => Verdict::Status(status),
    }
}

/// The file of the URI, for handlers that serve parts of files: they respond to GET and HEAD.
///
/// # Errors
/// What the handler says in place of it: 405, the status of what failed, or that others serve this.
pub(crate) fn wanted(x: &mut Exchange) -> Result<Rc<OpenFile>, Verdict> {
    if !matches!(x.request.head.method, Method::Get | Method::Head) {
        return Err(Verdict::Status(405));
    }
    if x.uri().ends_with(b"/") {
        return Err(Verdict::Declined);
    }
    match file::lookup_uri(x) {
        Ok(FoundPath::File(file)) => Ok(file),
        Ok(FoundPath::Dir { .. } | FoundPath::Other) => Err(Verdict::Declined),
        Err(status) => Err(Verdict::Status(status)),
    }
}

/// Responds with all of `file`; filters may make it a range.
pub(crate) fn respond(x: &mut Exchange, file: Rc<OpenFile>) -> Verdict {
    if !x.recall_file(&file) {
        describe(x, &file);
        x.response.allow_ranges = true;
    }
    let read = sends_body(x);
    send(x, file, read)
}

/// The head of a response that is `file`, from its status to its type.
pub(crate) fn describe(x: &mut Exchange, file: &OpenFile) {
    x.response.status = 200;
    x.response.content_length = Some(file.size());
    x.response.last_modified = Some(file.mtime());
    if x.plan.core.etag {
        x.response.add(KnownField::Etag, Text::Shared(file.etag()));
    }
    x.set_content_type();
}

/// Responds with `file`, which is read now only if that is likely to help (`read`).
pub(crate) fn send(x: &mut Exchange, file: Rc<OpenFile>, read: bool) -> Verdict {
    let body = if read { file.body() } else { None };
    x.respond(ResponseBody::Whole(match body {
        Some(bytes) => BodyBuf::shared(bytes),
        None => BodyBuf::File { offset: 0, len: file.size(), file },
    }))
}

/// Whether reading the file now is likely of use: not for HEAD, and seldom for a client that has a copy.
fn sends_body(x: &Exchange) -> bool {
    let request = &x.request;
    request.head.method != Method::Head
        && request.head.field(KnownField::IfNoneMatch).is_none()
        && request.head.field(KnownField::IfModifiedSince).is_none()
}

/// The response for a directory is a redirect to its name with a slash, so that relative links in it work.
fn add_slash(x: &mut Exchange) -> Verdict {
    x.response.clear_entity();
    let mut target = Vec::with_capacity(x.uri().len() + x.args().len() + 2);
    escape::escape(&mut target, x.uri(), EscapeSet::Uri);
    target.push(b'/');
    if !x.args().is_empty() {
        target.push(b'?');
        target.extend_from_slice(x.args());
    }
    x.response.location = Some(Text::Span(x.arena.push(&target)));
    Verdict::Status(301)
}
