//! `try_files`: the first file that exists becomes the request's URI; if none does, the last argument says where the
//! request continues: a URI, a named location, or a status.
//!
//! The directive applies to its own block only and is not inherited: that of a server applies to requests without a
//! location.

use std::ops::Range;
use std::sync::Arc;

use weir_conf::names::{LOCATION, SERVER, TWO_OR_MORE};
use weir_conf::{Directive, LineCx, Result, parse_number};
use weir_engine::file::{self, PathText};
use weir_engine::log::LogLevel;
use weir_engine::plan::PlanBuilder;
use weir_engine::redirect::InternalRedirect;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::settings::location::AliasedPart;
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Handler, Module, Phase, Span, Text, Verdict};
use weir_rt::file::errno::{ENAMETOOLONG, ENOENT, ENOTDIR};
use weir_rt::file::{FileKind, errno_text};

/// The module `try_files`.
pub struct TryFiles;

impl Module for TryFiles {
    const NAME: &'static str = "try_files";
    type Conf = TryFilesConf;
    const DIRECTIVES: &'static [Directive<TryFilesConf>] =
        &[Directive::new("try_files", SERVER.or(LOCATION), TWO_OR_MORE, TryFilesConf::set)
            .syntax("try_files file ... uri\ntry_files file ... =code")
            .doc(
                "Serves the first of these files that exists; a name with a trailing slash is \
                 a directory. If none exists, redirects internally to the URI or named \
                 location, or returns the status code.",
            )
            .example(
                "location / {\n\
                 \x20   try_files $uri $uri/ @backend;\n\
                 }\n\
                 location @backend {\n\
                 \x20   proxy_pass http://127.0.0.1:8080;\n\
                 }",
            )];

    fn install(conf: &TryFilesConf, plan: &mut PlanBuilder<'_>) {
        if let Some(files) = &conf.files {
            plan.handler(Phase::Precontent, Self::NAME, files.clone());
        }
    }
}

/// The module's settings of one block.
#[derive(Default)]
pub struct TryFilesConf {
    files: Option<TryFilesHandler>,
}

/// The line.
#[derive(Clone)]
struct TryFilesHandler {
    tries: Arc<[TriedFile]>,
    last: LastResort,
}

/// A file or directory to look for.
#[derive(Clone)]
struct TriedFile {
    /// Its path after `root`; a directory's without the slash at its end.
    name: ValueScript,
    directory: bool,
}

/// What is done when nothing was found.
#[derive(Clone)]
enum LastResort {
    Status(u16),
    Goal(ValueScript),
}

impl TryFilesConf {
    fn set(&mut self, line: &mut LineCx<'_>) -> Result {
        if self.files.is_some() {
            return Err(line.refuse("is duplicate"));
        }
        let last = line.args().len() - 1;
        let mut tries = Vec::with_capacity(last);
        for at in 0..last {
            let whole = line.bytes(at);
            let name = whole.strip_suffix(b"/");
            let script = ValueScript::compile_text(line, at, name.unwrap_or(whole))?;
            tries.push(TriedFile { name: script, directory: name.is_some() });
        }
        let last = match line.bytes(last) {
            [b'=', code @ ..] => match parse_number(code).and_then(|code| u16::try_from(code).ok()) {
                Some(code) if code <= 999 => LastResort::Status(code),
                _ => return Err(line.fail_arg(last, format!("invalid code \"{}\"", line.arg(last)))),
            },
            _ => LastResort::Goal(ValueScript::compile(line, last)?),
        };
        self.files = Some(TryFilesHandler { tries: tries.into(), last });
        Ok(())
    }
}

impl Handler for TryFilesHandler {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        if let Err(status) = file::check_alias(x) {
            return Verdict::Status(status);
        }
        for try_ in &*self.tries {
            let name = text(x, &try_.name);
            let path = path(x, name, try_.name.constant().is_none());
            if is_there(x, path, try_.directory) {
                take_over(x, path, try_.directory);
                return Verdict::Declined;
            }
        }
        match &self.last {
            LastResort::Status(code) => Verdict::Status(*code),
            LastResort::Goal(goal) => go(x, goal),
        }
    }
}

/// The value of `script`, in the arena.
fn text(x: &mut Exchange, script: &ValueScript) -> Span {
    if let Some(constant) = script.constant() {
        return x.arena.push(constant);
    }
    match script.value(x) {
        Text::Span(span) => span,
        other => x.arena.append(&other),
    }
}

/// `name` below `root` or `alias`; of a name that variables made, the part that `alias` replaces is left out.
fn path(x: &mut Exchange, name: Span, computed: bool) -> PathText {
    let name = Span { start: name.start + replaced(x, name, computed), end: name.end };
    let root = file::root(x);
    if computed {
        file::mark_climbing(x, name);
    }
    x.arena.copy(name);
    PathText { span: x.arena.since(root.start), root: root.end - root.start }
}

/// How many first bytes of `name` are the location's, which `alias` replaces.
fn replaced(x: &Exchange, name: Span, computed: bool) -> u32 {
    match x.plan.core.alias {
        Some(AliasedPart::Prefix(len)) if computed => {
            match (x.arena.get(name).get(..len), x.uri().get(..len)) {
                (Some(start), Some(location)) if start == location => len as u32,
                _ => 0,
            }
        }
        _ => 0,
    }
}

/// Whether `path` leads to a directory, or to anything else. What can't be determined is logged, and counts as absent.
fn is_there(x: &mut Exchange, path: PathText, directory: bool) -> bool {
    match file::test(x, path) {
        Ok(kind) => (kind == FileKind::Dir) == directory,
        Err(ENOENT | ENOTDIR | ENAMETOOLONG) => false,
        Err(errno) => {
            let name = String::from_utf8_lossy(path.bytes(&x.arena)).into_owned();
            let reason = errno_text(errno);
            x.log(LogLevel::Crit, &format_args!("stat() \"{name}\" failed ({errno}: {reason})"));
            false
        }
    }
}

/// The URI becomes what was found, so that mapping it leads there again.
fn take_over(x: &mut Exchange, path: PathText, directory: bool) {
    let found = Span { start: path.span.start + path.root, end: path.span.end };
    let uri = match x.plan.core.alias {
        None => found,
        // A directory below such an alias keeps its URI.
        Some(AliasedPart::Whole) if directory => return,
        Some(AliasedPart::Whole) => {
            x.add_uri_to_alias = true;
            found
        }
        Some(AliasedPart::Prefix(len)) => {
            let old = x.request.uri;
            let start = x.arena.mark();
            x.arena.copy(Span { start: old.start, end: old.end.min(old.start + len as u32) });
            x.arena.copy(found);
            x.arena.since(start)
        }
    };
    let Exchange { request, arena, .. } = x;
    // As in nginx a `proxy_pass` without URI beside it still sends the target as it came.
    let plain = request.uri_is_plain;
    request.set_uri(arena, uri);
    request.uri_is_plain = plain;
}

/// On to the last argument.
fn go(x: &mut Exchange, goal: &ValueScript) -> Verdict {
    let name = text(x, goal);
    let skip = replaced(x, name, goal.constant().is_none());
    let Range { start, end } = name.start + skip..name.end;
    let goal = x.arena.get(Span { start, end }).to_vec();
    InternalRedirect::to(x, &goal).into()
}
