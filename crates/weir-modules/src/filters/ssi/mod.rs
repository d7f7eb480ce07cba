//! `ssi`: executes commands in pages: includes, variables, conditions (nginx's `ngx_http_ssi_filter_module`).
//!
//! The page streams through: [`weir_http::ssi`] finds the commands, [`filter`] executes them, and an included page is
//! a subrequest that runs beside the page and whose response takes the command's place. All pages of a request,
//! however deep, share their variables, blocks and captures ([`state`]).

mod command;
mod evaluate;
mod filter;
mod include;
mod state;
mod timefmt;

use weir_conf::Directive;
use weir_conf::names::{ANY, ANY_OR_IF, FLAG, MORE, ONE};
use weir_engine::filter::{FilterSlot, HeaderFilter};
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::Variable;
use weir_engine::{Exchange, Module, Verdict, inherit};
use weir_http::KnownField;
use weir_trace::{Site, SiteKind};

use crate::filters::media::{self, MediaTypes};
use filter::SsiPage;

/// The module `ssi`.
pub struct Ssi;

impl Module for Ssi {
    const NAME: &'static str = "ssi";
    type Conf = SsiConf;
    const DIRECTIVES: &'static [Directive<SsiConf>] = &[
        SsiRow::new("ssi", ANY_OR_IF, FLAG, |conf, line| line.flag(&mut conf.on))
            .syntax("ssi on | off")
            .default("off")
            .doc("Enables server-side includes: processes SSI commands in responses."),
        SsiRow::new("ssi_types", ANY, MORE, |conf, line| MediaTypes::set(&mut conf.types, line))
            .syntax("ssi_types mime-type ...")
            .default("text/html")
            .doc(
                "MIME types in which SSI commands are processed, besides `text/html`; `*` \
                 matches any.",
            ),
        SsiRow::new("ssi_value_length", ANY, ONE, |conf, line| line.size(&mut conf.value_length))
            .syntax("ssi_value_length length")
            .default("255")
            .doc("Maximum length of parameter values in SSI commands, in bytes."),
        SsiRow::new("ssi_min_file_chunk", ANY, ONE, |conf, line| {
            line.size(&mut conf.min_file_chunk)?;
            line.note(
                "\"ssi_min_file_chunk\" is ignored, text between commands never leaves as a part of a file",
            );
            Ok(())
        })
        .syntax("ssi_min_file_chunk size")
        .default("1k")
        .doc("Ignored, with a note in the log: the text between commands is in memory already."),
        SsiRow::new("ssi_silent_errors", ANY, FLAG, |conf, line| line.flag(&mut conf.silent))
            .syntax("ssi_silent_errors on | off")
            .default("off")
            .doc(
                "Omits the text `[an error occurred while processing the directive]` when a \
                 command fails.",
            ),
        SsiRow::new("ssi_ignore_recycled_buffers", ANY, FLAG, |conf, line| {
            line.flag(&mut conf.recycled)?;
            line.note("\"ssi_ignore_recycled_buffers\" is ignored, buffers are never recycled");
            Ok(())
        })
        .syntax("ssi_ignore_recycled_buffers on | off")
        .default("off")
        .doc("Ignored, with a note in the log: buffers are not recycled here."),
        SsiRow::new("ssi_last_modified", ANY, FLAG, |conf, line| line.flag(&mut conf.last_modified))
            .syntax("ssi_last_modified on | off")
            .default("off")
            .doc("Keeps the `Last-Modified` field of processed responses."),
    ];
    const VARIABLES: &'static [Variable] = &[
        Variable::new("date_local", timefmt::local_date).volatile(),
        Variable::new("date_gmt", timefmt::gmt_date).volatile(),
    ];

    fn inherit(conf: &mut SsiConf, parent: &SsiConf) {
        inherit!(conf, parent, on, types, value_length, min_file_chunk, silent, recycled, last_modified);
    }

    fn install(conf: &SsiConf, plan: &mut PlanBuilder<'_>) {
        if conf.on == Some(true) {
            let head = SsiFilter {
                types: MediaTypes::or_html(&conf.types),
                longest: conf
                    .value_length
                    .map_or(LONGEST, |length| usize::try_from(length).unwrap_or(usize::MAX)),
                silent: conf.silent == Some(true),
                last_modified: conf.last_modified == Some(true),
                body: plan.site(SiteKind::BodyFilter, Self::NAME),
            };
            plan.header_filter(FilterSlot::Ssi, Self::NAME, head);
        }
    }
}

/// Gives the closures of the table the type of their argument.
type SsiRow = Directive<SsiConf>;

/// The settings of one block.
#[derive(Default)]
pub struct SsiConf {
    on: Option<bool>,
    types: Option<MediaTypes>,
    value_length: Option<u64>,
    min_file_chunk: Option<u64>,
    silent: Option<bool>,
    recycled: Option<bool>,
    last_modified: Option<bool>,
}

struct SsiFilter {
    types: MediaTypes,
    longest: usize,
    silent: bool,
    last_modified: bool,
    /// Where the body filter's time goes.
    body: Site,
}

impl HeaderFilter for SsiFilter {
    fn is_rehearsable(&self) -> bool {
        true
    }

    fn filter(&self, x: &mut Exchange) -> Verdict {
        if x.response.content_length == Some(0) || !self.types.has(x) {
            return Verdict::Passed;
        }
        if !x.is_subrequest() {
            media::clear_length(x);
            x.response.allow_ranges = false;
            x.response.remove(KnownField::AcceptRanges);
            if self.last_modified {
                media::weaken_etag(x);
            } else {
                media::clear_validators(x);
            }
        }
        x.includes();
        let page = SsiPage::new(x, self.longest, self.silent);
        x.body_filter(FilterSlot::Ssi, self.body, page);
        Verdict::Ok
    }

    fn is_plain(&self) -> bool {
        true
    }
}

/// The longest value of a parameter where nothing is said: nginx's 255 (its documentation says 256).
const LONGEST: usize = 255;
