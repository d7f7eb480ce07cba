//! `autoindex`: lists a directory that has no index file, as a page, JSON, JSONP or XML (nginx's
//! `ngx_http_autoindex_module`).
//!
//! The directory is read on a thread of the pool; [`render`] formats the entries, byte for byte as nginx does.

pub(crate) mod list;
mod render;

use std::task::{Context, Poll};

use weir_conf::{ArgCount, Contexts, Directive, Error, LineCx};
use weir_engine::body::{BodyBuf, BodyPiece, BodySource, ResponseBody};
use weir_engine::file;
use weir_engine::log::LogLevel;
use weir_engine::plan::PlanBuilder;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::{Exchange, Handler, LocalFuture, Module, Phase, Text, Verdict, inherit};
use weir_http::Method;
use weir_trace::WaitKind;

/// The module `autoindex`.
pub struct Autoindex;

/// The settings of one block as written; `None` where the directive is absent.
#[derive(Default)]
pub struct AutoindexConf {
    /// `autoindex`; off unless set.
    on: Option<bool>,
    /// `autoindex_exact_size`; on unless set.
    exact_size: Option<bool>,
    /// `autoindex_localtime`; off unless set.
    localtime: Option<bool>,
    /// `autoindex_format`; `html` unless set.
    format: Option<ListingFormat>,
}

/// How a listing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListingFormat {
    /// A page.
    Html,
    /// An array of objects.
    Json,
    /// The array as the argument of a function that the request names; plain JSON if it names none.
    Jsonp,
    /// A `list` of elements.
    Xml,
    /// A page with a list of links, as H2O has it.
    Links,
}

impl Module for Autoindex {
    const NAME: &'static str = "autoindex";
    type Conf = AutoindexConf;
    const DIRECTIVES: &'static [Directive<AutoindexConf>] = &[
        Directive::new("autoindex", Contexts::ANY, ArgCount::FLAG, on)
            .syntax("autoindex on | off")
            .default("off")
            .doc("Lists the contents of directories that have no index file.")
            .example("location /files/ {\n    autoindex on;\n    autoindex_exact_size off;\n}"),
        Directive::new("autoindex_exact_size", Contexts::ANY, ArgCount::FLAG, exact_size)
            .syntax("autoindex_exact_size on | off")
            .default("on")
            .doc(
                "Shows file sizes of HTML listings in bytes; `off` rounds them to kilobytes, \
                 megabytes and gigabytes.",
            ),
        Directive::new("autoindex_localtime", Contexts::ANY, ArgCount::FLAG, localtime)
            .syntax("autoindex_localtime on | off")
            .default("off")
            .doc("Shows times of HTML listings in the local time zone instead of UTC."),
        Directive::new("autoindex_format", Contexts::ANY, ArgCount::ONE, format)
            .syntax("autoindex_format html | xml | json | jsonp | links")
            .default("html")
            .doc(
                "Format of directory listings; `jsonp` calls the function that the request \
                 argument `callback` names; `links` is the page of H2O.",
            ),
    ];

    fn inherit(conf: &mut AutoindexConf, parent: &AutoindexConf) {
        inherit!(conf, parent, on, exact_size, localtime, format);
    }

    fn install(conf: &AutoindexConf, plan: &mut PlanBuilder<'_>) {
        if conf.on == Some(true) {
            let list = DirectoryLister {
                exact_size: conf.exact_size.unwrap_or(true),
                localtime: conf.localtime.unwrap_or(false),
                format: conf.format.unwrap_or(ListingFormat::Html),
            };
            plan.handler(Phase::Content, Self::NAME, list);
        }
    }
}

fn on(conf: &mut AutoindexConf, line: &mut LineCx<'_>) -> Result<(), Error> {
    line.flag(&mut conf.on)
}

fn exact_size(conf: &mut AutoindexConf, line: &mut LineCx<'_>) -> Result<(), Error> {
    line.flag(&mut conf.exact_size)
}

fn localtime(conf: &mut AutoindexConf, line: &mut LineCx<'_>) -> Result<(), Error> {
    line.flag(&mut conf.localtime)
}

fn format(conf: &mut AutoindexConf, line: &mut LineCx<'_>) -> Result<(), Error> {
    let formats = [
        ("html", ListingFormat::Html),
        ("json", ListingFormat::Json),
        ("jsonp", ListingFormat::Jsonp),
        ("xml", ListingFormat::Xml),
        ("links", ListingFormat::Links),
    ];
    line.one_of(&mut conf.format, &formats)
}

/// The handler, with the settings of its location.
struct DirectoryLister {
    exact_size: bool,
    localtime: bool,
    format: ListingFormat,
}

impl Handler for DirectoryLister {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        if !x.uri().ends_with(b"/") || !matches!(x.request.head.method, Method::Get | Method::Head) {
            return Verdict::Passed;
        }
        Verdict::Wait
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(self.list(x))
    }
}

impl DirectoryLister {
    async fn list(&self, x: &mut Exchange) -> Verdict {
        let callback = match self.callback(x) {
            Ok(callback) => callback,
            Err(status) => return Verdict::Status(status),
        };
        let mut path = match file::map_uri(x) {
            Ok(path) => path,
            Err(status) => return Verdict::Status(status),
        };
        if path.span.end > path.span.start + 1 {
            // Without its slash, as nginx names it in messages.
            path.span.end -= 1;
        }
        let directory = path.bytes(&x.arena).to_vec();
        let asks_head = x.request.head.method == Method::Head;
        let entries = match x
            .waiting_for(
                WaitKind::ThreadPool,
                Box::pin(weir_rt::blocking(move || match asks_head {
                    true => list::open(&directory).map(|_| Vec::new()),
                    false => list::read(&directory),
                })),
            )
            .await
        {
            Ok(entries) => entries,
            Err(error) => return Verdict::Status(file::call_failed(x, error.call, path, error.errno)),
        };
        let (kind, charset) = match (self.format, &callback) {
            (ListingFormat::Html, _) => ("text/html", None),
            (ListingFormat::Links, _) => ("text/html", Some("utf-8")),
            (ListingFormat::Xml, _) => ("text/xml", Some("utf-8")),
            (ListingFormat::Jsonp, Some(_)) => ("application/javascript", None),
            (ListingFormat::Json | ListingFormat::Jsonp, _) => ("application/json", None),
        };
        x.response.status = 200;
        x.response.content_type = Some(Text::from(kind));
        if let Some(charset) = charset {
            x.response.charset = Some(Text::from(charset));
        }
        let page = self.render(x, &entries, callback.as_deref());
        x.respond(ResponseBody::Source(Box::new(ListingBody(Some(page)))))
    }

    /// The function that `?callback=` names, for JSONP; an empty name counts as absent.
    fn callback(&self, x: &Exchange) -> Result<Option<Vec<u8>>, u16> {
        if self.format != ListingFormat::Jsonp {
            return Ok(None);
        }
        let Some(name) = weir_http::cookie::arg(x.args(), b"callback").filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        if name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.')) {
            return Ok(Some(name.to_vec()));
        }
        let name = String::from_utf8_lossy(name);
        x.log(LogLevel::Info, &format_args!("client sent invalid callback name: \"{name}\""));
        Err(400)
    }

    fn render(&self, x: &Exchange, entries: &[list::DirectoryEntry], callback: Option<&[u8]>) -> Vec<u8> {
        let mut out = Vec::with_capacity(128 + entries.len() * 160);
        match self.format {
            ListingFormat::Html => {
                let charset = x.response.charset.as_ref().map(|charset| x.text(charset));
                let style = render::PageStyle {
                    exact_size: self.exact_size,
                    localtime: self.localtime,
                    utf8: charset.is_some_and(|charset| charset.eq_ignore_ascii_case(b"utf-8")),
                };
                render::html(&mut out, x.uri(), entries, &style);
            }
            ListingFormat::Json | ListingFormat::Jsonp => render::json(&mut out, entries, callback),
            ListingFormat::Xml => render::xml(&mut out, entries),
            ListingFormat::Links => render::links(&mut out, x.uri(), entries),
        }
        out
    }
}

/// A body of one piece without `Content-Length`, so that it is sent as nginx sends a listing: in chunks.
struct ListingBody(Option<Vec<u8>>);

impl BodySource for ListingBody {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Result<BodyPiece, weir_engine::EngineError>> {
        Poll::Ready(Ok(self.0.take().map_or(BodyPiece::End, |page| BodyPiece::Data(BodyBuf::Bytes(page)))))
    }
}
