//! `dav`: PUT, DELETE, MKCOL, COPY and MOVE of files and directories (nginx's `ngx_http_dav_module`).
//!
//! What a request's head says is checked in the loop; everything that touches the disk runs on a thread of the pool
//! (`disk.rs`). The end of a small upload may run in the loop, too (`small_file_writes`). A file appears whole or not at all: it is written under another name and renamed.

mod disk;
mod put;
mod transfer;

use weir_conf::Directive;
use weir_conf::names::{ANY, FLAG, MORE, ONE, ONE_TO_THREE};
use weir_engine::log::LogLevel;
use weir_engine::phase::LocalFuture;
use weir_engine::plan::PlanBuilder;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::{Exchange, Handler, Module, Phase, Text, Verdict, file, inherit};
use weir_http::escape::{self, EscapeSet};
use weir_http::{KnownField, Method};
use weir_rt::file::{FileKind, errno_text};

use disk::{DiskFailure, NotFound};

/// The module `dav`.
pub struct Dav;

impl Module for Dav {
    const NAME: &'static str = "dav";
    type Conf = DavConf;
    const DIRECTIVES: &'static [Directive<DavConf>] = &[
        DavRow::new("dav_methods", ANY, MORE, |conf, line| line.bits(&mut conf.methods, METHODS))
            .syntax("dav_methods off | PUT | DELETE | MKCOL | COPY | MOVE ...")
            .default("off")
            .doc("WebDAV methods that are allowed here.")
            .example(
                "location /upload/ {\n\
                 \x20   root /srv/files;\n\
                 \x20   dav_methods PUT DELETE;\n\
                 \x20   create_full_put_path on;\n\
                 \x20   limit_except GET {\n\
                 \x20       allow 192.168.1.0/24;\n\
                 \x20       deny all;\n\
                 \x20   }\n\
                 }",
            ),
        DavRow::new("create_full_put_path", ANY, FLAG, |conf, line| line.flag(&mut conf.create_path))
            .syntax("create_full_put_path on | off")
            .default("off")
            .doc("Creates all missing intermediate directories for PUT."),
        DavRow::new("min_delete_depth", ANY, ONE, |conf, line| line.number(&mut conf.min_depth, ..))
            .syntax("min_delete_depth number")
            .default("0")
            .doc("Allows DELETE only for paths with at least this many elements."),
        DavRow::new("dav_access", ANY, ONE_TO_THREE, |conf, line| line.access(&mut conf.access))
            .syntax("dav_access users:permissions [users:permissions] [users:permissions]")
            .default("user:rw")
            .doc(
                "Permissions of created files and directories for `user`, `group` and `all`: \
                 `r`, `w` or `rw`.",
            ),
    ];

    fn inherit(conf: &mut DavConf, parent: &DavConf) {
        inherit!(conf, parent, methods, create_path, min_depth, access);
    }

    fn install(conf: &DavConf, plan: &mut PlanBuilder<'_>) {
        let methods = conf.methods.unwrap_or(OFF);
        if methods & !OFF != 0 {
            let settings = DavSettings {
                methods,
                create_path: conf.create_path.unwrap_or(false),
                min_depth: conf.min_depth.unwrap_or(0),
                access: conf.access.unwrap_or(0o600),
            };
            plan.handler(Phase::Content, Self::NAME, settings);
        }
    }
}

/// Gives the closures of the table the type of their argument.
type DavRow = Directive<DavConf>;

const OFF: u32 = 1;
const PUT: u32 = 2;
const DELETE: u32 = 4;
const MKCOL: u32 = 8;
const COPY: u32 = 16;
const MOVE: u32 = 32;
const METHODS: &[(&str, u32)] =
    &[("off", OFF), ("put", PUT), ("delete", DELETE), ("mkcol", MKCOL), ("copy", COPY), ("move", MOVE)];

/// The settings of one block.
#[derive(Default)]
pub struct DavConf {
    methods: Option<u32>,
    create_path: Option<bool>,
    min_depth: Option<usize>,
    access: Option<u32>,
}

struct DavSettings {
    methods: u32,
    create_path: bool,
    min_depth: usize,
    /// Permission bits of files.
    access: u32,
}

impl DavSettings {
    fn does(&self, method: Method) -> bool {
        let bit = match method {
            Method::Put => PUT,
            Method::Delete => DELETE,
            Method::Mkcol => MKCOL,
            Method::Copy => COPY,
            Method::Move => MOVE,
            _ => return false,
        };
        self.methods & bit != 0
    }

    /// Permission bits of directories: a user that may read a file may enter its directory.
    fn directory_access(&self) -> u32 {
        disk::directory_access(self.access)
    }
}

impl Handler for DavSettings {
    fn rehearsal(&self, x: &mut Exchange) -> HandlerRehearsal {
        if self.does(x.request.head.method) { HandlerRehearsal::Unknown } else { HandlerRehearsal::Ask }
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        if self.does(x.request.head.method) { Verdict::Wait } else { Verdict::Declined }
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        match x.request.head.method {
            Method::Put => Box::pin(put::put(self, x)),
            Method::Delete => Box::pin(delete(self, x)),
            Method::Mkcol => Box::pin(mkcol(self, x)),
            _ => Box::pin(transfer::transfer(self, x)),
        }
    }
}

async fn delete(settings: &DavSettings, x: &mut Exchange) -> Verdict {
    if has_body(x) {
        return refuse(x, 415, "DELETE with body is unsupported");
    }
    if let Err(depth) = deep_enough(x.uri(), settings.min_depth) {
        return refuse(x, 409, format_args!("insufficient URI depth:{depth} to DELETE"));
    }
    let path = match disk::DavPath::of(x) {
        Ok(path) => path,
        Err(verdict) => return verdict,
    };
    let found = match disk::away(x, {
        let path = path.clone();
        move || disk::look(&path.full)
    })
    .await
    {
        Ok(found) => found,
        Err(failure) if failure.is_not_a_directory() => return failed(x, &failure, NotFound(409)),
        Err(failure) => return failed(x, &failure, NotFound(404)),
    };
    let directory = found.kind == FileKind::Dir;
    if directory {
        if !path.slash {
            let failure = DiskFailure::is_directory("DELETE", &path.full);
            x.log_error(&failure);
            return Verdict::Status(409);
        }
        if depth(x, DepthField::Infinity) != DepthField::Infinity {
            return refuse(x, 400, "\"Depth\" header must be infinity");
        }
    } else if !matches!(depth(x, DepthField::Zero), DepthField::Zero | DepthField::Infinity) {
        return refuse(x, 400, "\"Depth\" header must be 0 or infinity");
    }
    let gone = disk::away(x, move || match directory {
        true => disk::delete_directory(&path.bare),
        false => disk::delete_file(&path.bare),
    })
    .await;
    match report(x, gone) {
        Ok(()) => Verdict::Status(204),
        Err(verdict) => verdict,
    }
}

async fn mkcol(settings: &DavSettings, x: &mut Exchange) -> Verdict {
    if has_body(x) {
        return refuse(x, 415, "MKCOL with body is unsupported");
    }
    if !x.uri().ends_with(b"/") {
        return refuse(x, 409, "MKCOL can create a collection only");
    }
    let path = match disk::DavPath::of(x) {
        Ok(path) => path,
        Err(verdict) => return verdict,
    };
    let access = settings.directory_access();
    match disk::away(x, move || disk::make_directory(&path.bare, access)).await {
        Ok(()) => {
            set_location(x);
            Verdict::Status(201)
        }
        Err(failure) => failed(x, &failure, NotFound(409)),
    }
}

/// Whether the request comes with a body, which only PUT may.
fn has_body(x: &Exchange) -> bool {
    x.request.head.chunked || x.request.head.content_length.is_some_and(|length| length > 0)
}

/// Whether the path has as many elements as `least`; else how many slashes it has.
fn deep_enough(uri: &[u8], least: usize) -> Result<(), usize> {
    if least == 0 {
        return Ok(());
    }
    let mut slashes = 0;
    for (at, _) in uri.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
        slashes += 1;
        if slashes >= least && at + 1 < uri.len() {
            return Ok(());
        }
    }
    Err(slashes)
}

/// The `Depth` field (RFC 4918 section 10.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DepthField {
    Zero,
    One,
    Infinity,
    /// Something else, which is logged.
    Invalid,
}

fn depth(x: &Exchange, missing: DepthField) -> DepthField {
    match x.request.value(&x.arena, KnownField::Depth) {
        None => missing,
        Some(b"0") => DepthField::Zero,
        Some(b"1") => DepthField::One,
        Some(b"infinity") => DepthField::Infinity,
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            x.log_error(&format_args!("client sent invalid \"Depth\" header: \"{other}\""));
            DepthField::Invalid
        }
    }
}

/// Logs why, and responds with `status`.
fn refuse(x: &Exchange, status: u16, why: impl std::fmt::Display) -> Verdict {
    x.log_error(&why);
    Verdict::Status(status)
}

/// Logs a failure as nginx does, and gives the status it maps to.
fn failed(x: &Exchange, failure: &DiskFailure, not_found: NotFound) -> Verdict {
    let (level, status) = failure.judge(not_found);
    x.log(level, failure);
    Verdict::Status(status)
}

/// Logs what went wrong on the way to a result that may have been reached in spite of that.
fn report(x: &Exchange, done: disk::DiskOutcome) -> Result<(), Verdict> {
    for failure in &done.passed {
        x.log(failure.judge(NotFound(500)).0, failure);
    }
    match done.failed {
        None => Ok(()),
        Some(failure) => Err(failed(x, &failure, NotFound(500))),
    }
}

/// `Location` of what was made: the request's own path.
fn set_location(x: &mut Exchange) {
    let mut location = Vec::with_capacity(x.uri().len());
    escape::escape(&mut location, x.uri(), EscapeSet::Uri);
    x.response.location = Some(Text::Span(x.arena.push(&location)));
}

/// The path of the request's URI under `root` or `alias`.
fn mapped(x: &mut Exchange) -> Result<Vec<u8>, Verdict> {
    let path = file::map_uri(x).map_err(Verdict::Status)?;
    Ok(path.bytes(&x.arena).to_vec())
}

/// `text failed (errno: its words)`, for lines that are no system call's.
fn could_not_be_created(x: &Exchange, path: &std::path::Path, errno: i32) {
    let (path, text) = (path.display(), errno_text(errno));
    x.log(LogLevel::Error, &format_args!("\"{path}\" could not be created ({errno}: {text})"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_as_deep_as_it_has_elements() {
        for (uri, least, result) in [
            ("/", 0, Ok(())),
            ("/", 1, Err(1)),
            ("/a", 1, Ok(())),
            ("/min3/shallow", 3, Err(2)),
            ("/min3/a/", 3, Err(3)),
            ("/min3/a/b", 3, Ok(())),
            ("/min3/a/b/deep", 3, Ok(())),
        ] {
            assert_eq!(deep_enough(uri.as_bytes(), least), result, "{uri}");
        }
    }

    #[test]
    fn wrong_lines_are_refused_in_nginx_words() {
        use crate::testing::core_and;
        use weir_engine::ModuleDef;
        static MODULES: [ModuleDef; 4] = core_and::<Dav>();
        for (line, message) in [
            ("dav_methods GET;", "invalid value \"GET\" in weir.conf:2:13"),
            ("dav_access user:x;", "invalid value \"user:x\" in weir.conf:2:12"),
            ("dav_access group:rw world:r;", "invalid value \"world:r\" in weir.conf:2:21"),
            (
                "dav_access all:r; dav_access all:r;",
                "\"dav_access\" directive is duplicate in weir.conf:2:19",
            ),
        ] {
            let text = format!("events {{ }} http {{ server {{ }}\n{line} }}");
            let lines = weir_engine::conf::test::headlines(&text, &MODULES);
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].ends_with(message), "{}", lines[0]);
        }
    }
}
