//! `index`: continues a request for a directory, by an internal redirect, with the first index file that exists
//! (nginx's `ngx_http_index_module`).

use std::sync::Arc;

use weir_conf::{ArgCount, Contexts, Directive, Error, LineCx};
use weir_engine::file::{self, PathText};
use weir_engine::log::LogLevel;
use weir_engine::plan::PlanBuilder;
use weir_engine::redirect::InternalRedirect;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Handler, Module, Phase, Span, Verdict, inherit};
use weir_http::Method;
use weir_rt::file::errno::{EACCES, ELOOP, EMLINK, ENAMETOOLONG, ENOENT, ENOTDIR};
use weir_rt::file::{FileKind, errno_text};

/// The module `index`.
pub struct Index;

/// The settings of one block as written.
#[derive(Default)]
pub struct IndexConf {
    /// `index`: names to try, in order; an absolute one is the last and is not tested.
    index: Option<Vec<ValueScript>>,
}

impl Module for Index {
    const NAME: &'static str = "index";
    type Conf = IndexConf;
    const DIRECTIVES: &'static [Directive<IndexConf>] =
        &[Directive::new("index", Contexts::ANY, ArgCount::MORE, index)
            .syntax("index file ...\nindex =none")
            .default("index.html")
            .doc(
                "Files that are tried, in order, for request URIs that end with a slash; \
                 names may contain variables, and the last may be an absolute path. With `=none` no \
                 file is tried.",
            )
            .example("index index.$cookie_lang.html index.html /index.php;")];

    fn inherit(conf: &mut IndexConf, parent: &IndexConf) {
        inherit!(conf, parent, index);
    }

    fn install(conf: &IndexConf, plan: &mut PlanBuilder<'_>) {
        let names = conf.index.clone().unwrap_or_else(|| vec![ValueScript::literal(b"index.html")]);
        plan.handler(Phase::Content, Self::NAME, IndexHandler { names: names.into() });
    }
}

fn index(conf: &mut IndexConf, line: &mut LineCx<'_>) -> Result<(), Error> {
    let names = conf.index.get_or_insert_default();
    if line.bytes(0) == b"=none" && line.args().len() == 1 {
        return Ok(());
    }
    for at in 0..line.args().len() {
        match line.bytes(at) {
            b"" => return Err(line.fail_arg(at, "index \"\" in \"index\" directive is invalid")),
            [b'/', ..] if at + 1 < line.args().len() => {
                line.warn_arg(at, "only the last index in \"index\" directive should be absolute");
            }
            _ => {}
        }
        names.push(ValueScript::compile(line, at)?);
    }
    Ok(())
}

struct IndexHandler {
    names: Arc<[ValueScript]>,
}

impl Handler for IndexHandler {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        self.find(x)
    }

    fn is_fixed(&self, x: &Exchange) -> bool {
        !x.uri().ends_with(b"/")
    }
}

impl IndexHandler {
    fn find(&self, x: &mut Exchange) -> Verdict {
        if !x.uri().ends_with(b"/")
            || !(x.plan.core.file_lookup_first
                || matches!(x.request.head.method, Method::Get | Method::Head | Method::Post))
        {
            return Verdict::Passed;
        }
        let mut directory = None;
        let mut directory_tested = false;
        for name in &*self.names {
            let name = text(x, name);
            if x.arena.get(name).starts_with(b"/") {
                return InternalRedirect::Uri { uri: name, args: x.request.args }.into();
            }
            let directory = match *directory.get_or_insert_with(|| file::map_uri(x)) {
                Ok(directory) => directory,
                Err(status) => return Verdict::Status(status),
            };
            let path = join(x, directory.span, name);
            match file::test(x, path) {
                Ok(_) => {
                    let uri = join(x, x.request.uri, name);
                    return InternalRedirect::Uri { uri, args: x.request.args }.into();
                }
                Err(ELOOP | EMLINK) => return Verdict::Status(403),
                Err(errno @ (ENOTDIR | ENAMETOOLONG | EACCES)) => {
                    return Verdict::Status(missing(x, path, errno));
                }
                Err(errno) => {
                    if !directory_tested && let Err(status) = test_directory(x, directory, path) {
                        return Verdict::Status(status);
                    }
                    directory_tested = true;
                    if errno != ENOENT {
                        return Verdict::Status(file::failed(x, path, errno));
                    }
                }
            }
        }
        Verdict::Declined
    }
}

/// The value of `name`, in the arena.
fn text(x: &mut Exchange, name: &ValueScript) -> Span {
    match name.constant() {
        Some(name) => x.arena.push(name),
        None => {
            let value = name.value(x);
            match value {
                weir_engine::Text::Span(span) => span,
                other => {
                    let bytes = x.text(&other).to_vec();
                    x.arena.push(&bytes)
                }
            }
        }
    }
}

fn join(x: &mut Exchange, first: Span, second: Span) -> Span {
    let start = x.arena.mark();
    x.arena.copy(first);
    x.arena.copy(second);
    x.arena.since(start)
}

/// Before the second name is tried: is the directory there? If not, the first name's path is what is missing.
fn test_directory(x: &mut Exchange, directory: PathText, first: Span) -> Result<(), u16> {
    let Span { start, end } = directory.span;
    let bare = Span {
        start,
        end: if end > start + 1 && directory.bytes(&x.arena).ends_with(b"/") { end - 1 } else { end },
    };
    match file::test(x, bare) {
        Ok(FileKind::Dir) => Ok(()),
        Ok(_) => {
            let path = String::from_utf8_lossy(x.arena.get(bare));
            x.log(LogLevel::Alert, &format_args!("\"{path}\" is not a directory"));
            Err(500)
        }
        Err(ELOOP | EMLINK) => Err(403),
        Err(ENOENT) => Err(missing(x, first, ENOENT)),
        Err(errno) => Err(file::failed(x, bare, errno)),
    }
}

/// nginx's words for an index file that is not there or may not be seen.
fn missing(x: &Exchange, path: Span, errno: i32) -> u16 {
    let name = String::from_utf8_lossy(x.arena.get(path));
    let reason = errno_text(errno);
    if errno == EACCES {
        x.log_error(&format_args!("\"{name}\" is forbidden ({errno}: {reason})"));
        return 403;
    }
    if x.plan.core.log_not_found {
        x.log_error(&format_args!("\"{name}\" is not found ({errno}: {reason})"));
    }
    404
}
