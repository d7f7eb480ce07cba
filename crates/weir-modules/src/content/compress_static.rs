//! `gzip_static`, `brotli_static`, `zstd_static`: serve files that were compressed in advance and are beside the
//! plain ones (nginx's `ngx_http_gzip_static_module`). Of several the one that the client prefers is served, else the
//! smallest.

use std::cmp::Reverse;
use std::rc::Rc;

use weir_conf::Directive;
use weir_conf::names::{ANY, ONE};
use weir_engine::file::{self, FoundPath, OpenFile, PathText};
use weir_engine::log::LogLevel;
use weir_engine::plan::PlanBuilder;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::{Exchange, Handler, Module, Phase, Verdict, inherit};
use weir_http::{KnownField, Method};

use crate::content::static_files;
use crate::filters::compress::{self, CompressionRules, ContentCoding};

/// The module `gzip_static`.
pub struct CompressStatic;

impl Module for CompressStatic {
    const NAME: &'static str = "gzip_static";
    type Conf = StaticConf;
    const DIRECTIVES: &'static [Directive<StaticConf>] = &[
        StaticRow::new("gzip_static", ANY, ONE, |conf, line| line.one_of(&mut conf.gzip, STATES))
            .syntax("gzip_static on | off | always")
            .default("off")
            .doc(
                "Serves the precompressed file with `.gz` appended to the name to clients \
                 that accept gzip; `always` serves it to all clients.",
            ),
        StaticRow::new("brotli_static", ANY, ONE, |conf, line| line.one_of(&mut conf.brotli, STATES))
            .syntax("brotli_static on | off | always")
            .default("off")
            .doc(
                "Serves the precompressed file with `.br` appended to the name to clients \
                 that accept br; `always` serves it to all clients.",
            ),
        StaticRow::new("zstd_static", ANY, ONE, |conf, line| line.one_of(&mut conf.zstd, STATES))
            .syntax("zstd_static on | off | always")
            .default("off")
            .doc(
                "Serves the precompressed file with `.zst` appended to the name to clients \
                 that accept zstd; `always` serves it to all clients.",
            ),
    ];

    fn inherit(conf: &mut StaticConf, parent: &StaticConf) {
        inherit!(conf, parent, gzip, brotli, zstd);
    }

    fn install(conf: &StaticConf, plan: &mut PlanBuilder<'_>) {
        let all = [
            (ContentCoding::Brotli, conf.brotli),
            (ContentCoding::Zstd, conf.zstd),
            (ContentCoding::Gzip, conf.gzip),
        ];
        let kinds = all.into_iter().filter_map(|(coding, state)| match state? {
            StaticState::Off => None,
            state => Some(StaticCoding { coding, always: state == StaticState::Always }),
        });
        let kinds: Box<[StaticCoding]> = kinds.collect();
        if !kinds.is_empty() {
            plan.handler(Phase::Content, Self::NAME, ServeCompressed(kinds));
        }
    }
}

/// Gives the closures of the table the type of their argument.
type StaticRow = Directive<StaticConf>;

/// The settings of one block.
#[derive(Default)]
pub struct StaticConf {
    gzip: Option<StaticState>,
    brotli: Option<StaticState>,
    zstd: Option<StaticState>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StaticState {
    Off,
    On,
    Always,
}

const STATES: &[(&str, StaticState)] =
    &[("off", StaticState::Off), ("on", StaticState::On), ("always", StaticState::Always)];

/// A coding that is looked for.
#[derive(Clone, Copy)]
struct StaticCoding {
    coding: ContentCoding,
    always: bool,
}

impl StaticCoding {
    fn suffix(self) -> &'static [u8] {
        match self.coding {
            ContentCoding::Brotli => b".br",
            ContentCoding::Zstd => b".zst",
            ContentCoding::Gzip => b".gz",
        }
    }
}

struct ServeCompressed(Box<[StaticCoding]>);

impl Handler for ServeCompressed {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        if !matches!(x.request.head.method, Method::Get | Method::Head) || x.uri().ends_with(b"/") {
            return Verdict::Passed;
        }
        // One that is not taken is looked for all the same when `Vary` shall say that it is there.
        let vary = x.plan.kept::<CompressionRules>().is_some_and(|rules| rules.vary);
        let mut found = [None; 3];
        for (place, kind) in found.iter_mut().zip(&self.0) {
            let quality = if kind.always { Some(0) } else { compress::accepts(x, kind.coding) };
            *place = Some((quality, *kind));
        }
        found.sort_by_key(|kind| Reverse(kind.map(|(quality, _)| quality)));
        for (quality, kind) in found.into_iter().flatten() {
            if (quality.is_some() || vary)
                && let Some(verdict) = serve(x, kind, quality.is_some())
            {
                return verdict;
            }
        }
        // Whether there is one or not, the response was chosen by what the client takes.
        x.response.vary_encoding |= vary && x.plan.core.file_lookup_first;
        Verdict::Declined
    }
}

/// Responds with the file of this coding, if there is one and the client takes it.
fn serve(x: &mut Exchange, kind: StaticCoding, taken: bool) -> Option<Verdict> {
    let path = match path(x, kind.suffix()) {
        Ok(path) => path,
        Err(status) => return Some(Verdict::Status(status)),
    };
    let found = match file::lookup(x, path) {
        Ok(found) => found,
        Err(ENOENT | ENOTDIR | ENAMETOOLONG) => return None,
        Err(errno) => {
            file::failed(x, path, errno);
            return None;
        }
    };
    if !kind.always {
        compress::vary(x);
        if !taken {
            return None;
        }
    }
    match found {
        FoundPath::File(file) => Some(respond(x, file, kind.coding)),
        FoundPath::Dir { .. } => None,
        FoundPath::Other => {
            let path = String::from_utf8_lossy(path.bytes(&x.arena));
            x.log(LogLevel::Crit, &format_args!("\"{path}\" is not a regular file"));
            Some(Verdict::Status(404))
        }
    }
}

/// The path of the request's file, with `suffix` after it.
fn path(x: &mut Exchange, suffix: &[u8]) -> Result<PathText, u16> {
    let plain = file::map_uri(x)?;
    let mark = x.arena.mark();
    x.arena.copy(plain.span);
    x.arena.push(suffix);
    Ok(PathText { span: x.arena.since(mark), root: plain.root })
}

fn respond(x: &mut Exchange, file: Rc<OpenFile>, coding: ContentCoding) -> Verdict {
    static_files::describe(x, &file);
    // Of the packed bytes, as in nginx since 1.23.4.
    x.response.allow_ranges = true;
    x.response.add(KnownField::ContentEncoding, coding.token());
    let read = x.request.head.method != Method::Head;
    static_files::send(x, file, read)
}

const ENOENT: i32 = 2;
const ENOTDIR: i32 = 20;
const ENAMETOOLONG: i32 = 36;
