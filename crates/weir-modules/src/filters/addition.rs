//! `add_before_body`, `add_after_body`: responses of subrequests, before and after a response's body.

use weir_conf::Directive;
use weir_conf::names::{ANY, MORE, ONE};
use weir_engine::body::BodyChain;
use weir_engine::error::EngineError;
use weir_engine::filter::{BodyFilter, FilterSlot, FilterStep, HeaderFilter};
use weir_engine::plan::PlanBuilder;
use weir_engine::subrequest::IncludedRequest;
use weir_engine::{Exchange, Module, Verdict, inherit};
use weir_http::KnownField;
use weir_trace::{Site, SiteKind};

use crate::filters::media::{self, MediaTypes};

/// The module `addition`.
pub struct Addition;

/// The alias gives the closures of the table the type of `c`.
type AdditionRow = Directive<AdditionConf>;

impl Module for Addition {
    const NAME: &'static str = "addition";
    type Conf = AdditionConf;
    const DIRECTIVES: &'static [AdditionRow] = &[
        AdditionRow::new("add_before_body", ANY, ONE, |c, line| line.text(&mut c.before))
            .syntax("add_before_body uri")
            .doc(
                "Adds the response of a subrequest to this URI before the body of a response \
                 with status 200; an empty string cancels an inherited setting.",
            )
            .example(
                "location / {\n\
                 \x20   add_before_body /header.html;\n\
                 \x20   add_after_body /footer.html;\n\
                 }",
            ),
        AdditionRow::new("add_after_body", ANY, ONE, |c, line| line.text(&mut c.after))
            .syntax("add_after_body uri")
            .doc(
                "Adds the response of a subrequest to this URI after the body of a response \
                 with status 200; an empty string cancels an inherited setting.",
            ),
        AdditionRow::new("addition_types", ANY, MORE, |c, line| MediaTypes::set(&mut c.types, line))
            .syntax("addition_types mime-type ...")
            .default("text/html")
            .doc("MIME types to whose responses text is added, besides `text/html`; `*` matches any."),
    ];

    fn inherit(conf: &mut AdditionConf, parent: &AdditionConf) {
        inherit!(conf, parent, before, after, types);
    }

    fn install(conf: &AdditionConf, plan: &mut PlanBuilder<'_>) {
        let path = |path: &Option<Vec<u8>>| path.clone().filter(|path| !path.is_empty());
        let filter = AdditionFilter {
            site: plan.site(SiteKind::BodyFilter, Self::NAME),
            before: path(&conf.before),
            after: path(&conf.after),
            types: MediaTypes::or_html(&conf.types),
        };
        if filter.before.is_some() || filter.after.is_some() {
            plan.header_filter(FilterSlot::Addition, Self::NAME, filter);
        }
    }
}

/// The settings of one block.
#[derive(Default)]
pub struct AdditionConf {
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
    types: Option<MediaTypes>,
}

/// The additions of one location of one worker.
struct AdditionFilter {
    /// Where the time of adding goes.
    site: Site,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
    types: MediaTypes,
}

impl HeaderFilter for AdditionFilter {
    fn is_rehearsable(&self) -> bool {
        true
    }

    fn filter(&self, x: &mut Exchange) -> Verdict {
        if x.response.status != 200 || x.is_subrequest() || !self.types.has(x) {
            return Verdict::Passed;
        }
        media::clear_length(x);
        x.response.allow_ranges = false;
        x.response.remove(KnownField::AcceptRanges);
        media::weaken_etag(x);
        x.includes();
        x.body_filter(
            FilterSlot::Addition,
            self.site,
            AdditionBody { before: self.before.clone(), after: self.after.clone() },
        );
        Verdict::Ok
    }

    fn is_plain(&self) -> bool {
        true
    }
}

/// What is still to be added.
struct AdditionBody {
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
}

impl BodyFilter for AdditionBody {
    fn step(
        &mut self,
        _: &mut Exchange,
        input: &mut BodyChain,
        output: &mut BodyChain,
    ) -> Result<FilterStep, EngineError> {
        let include =
            |uri| Ok(FilterStep::Include(Box::new(IncludedRequest { uri, ..IncludedRequest::default() })));
        if let Some(uri) = self.before.take() {
            return include(uri);
        }
        if input.last
            && let Some(uri) = self.after.take()
        {
            // The end follows the addition.
            input.last = false;
            output.append(input);
            input.last = true;
            return include(uri);
        }
        output.append(input);
        Ok(FilterStep::More)
    }

    fn in_memory(&self) -> bool {
        false
    }
}
