//! `sub_filter`: replaces texts in responses, without regard to case (nginx's `ngx_http_sub_module`).
//!
//! The header filter decides whether a response is changed and removes the fields that described its body; the body
//! filter it pushes hands pieces to a [`replace::TextReplacer`]. Texts with variables are composed per request; a
//! worker caches the last ones, since they are mostly the same.

pub(crate) mod replace;
pub(crate) mod search;

use std::cell::RefCell;
use std::rc::Rc;

use weir_conf::names::{ANY, FLAG, MORE, TWO};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::body::BodyChain;
use weir_engine::error::EngineError;
use weir_engine::filter::{BodyFilter, FilterSlot, FilterStep, HeaderFilter};
use weir_engine::plan::PlanBuilder;
use weir_engine::regex::LetterCase;
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Module, Verdict, inherit};
use weir_trace::{Site, SiteKind};

use crate::filters::media::{self, MediaTypes};
use replace::TextReplacer;
use search::TextPatterns;

/// The module `sub`.
pub struct Sub;

impl Module for Sub {
    const NAME: &'static str = "sub";
    type Conf = SubConf;
    const DIRECTIVES: &'static [SubRow] = &[
        SubRow::new("sub_filter", ANY, TWO, SubConf::add)
            .syntax("sub_filter string replacement")
            .doc(
                "Replaces a string in responses, regardless of case. Both may contain \
                 variables; several lines are applied in one pass.",
            )
            .example("sub_filter \"http://internal.example\" \"https://$host\";\nsub_filter_once off;"),
        SubRow::new("sub_filter_types", ANY, MORE, SubConf::types)
            .syntax("sub_filter_types mime-type ...")
            .default("text/html")
            .doc("MIME types in which strings are replaced, besides `text/html`; `*` matches any."),
        SubRow::new("sub_filter_once", ANY, FLAG, |c, line| line.flag(&mut c.once))
            .syntax("sub_filter_once on | off")
            .default("on")
            .doc("Replaces each string only at its first occurrence."),
        SubRow::new("sub_filter_last_modified", ANY, FLAG, |c, line| line.flag(&mut c.last_modified))
            .syntax("sub_filter_last_modified on | off")
            .default("off")
            .doc("Keeps `Last-Modified` of responses that may be changed, and `ETag` as a weak one."),
    ];

    fn inherit(conf: &mut SubConf, parent: &SubConf) {
        inherit!(conf, parent, types, once, last_modified);
        if conf.pairs.is_empty() {
            conf.pairs.clone_from(&parent.pairs);
        }
    }

    fn install(conf: &SubConf, plan: &mut PlanBuilder<'_>) {
        if conf.pairs.is_empty() {
            return;
        }
        let texts: Option<Vec<Vec<u8>>> =
            conf.pairs.iter().map(|pair| pair.text.constant().map(<[u8]>::to_vec)).collect();
        let filter = SubFilter {
            site: plan.site(SiteKind::BodyFilter, Self::NAME),
            texts: match texts {
                Some(texts) => SubTexts::Constant(Rc::new(TextPatterns::new(&texts, LetterCase::Ignored))),
                None => SubTexts::Computed(RefCell::default()),
            },
            pairs: conf.pairs.clone().into(),
            types: MediaTypes::or_html(&conf.types),
            once: conf.once.unwrap_or(true),
            last_modified: conf.last_modified.unwrap_or(false),
        };
        plan.header_filter(FilterSlot::Sub, Self::NAME, filter);
    }
}

/// The alias gives the closures of the table the type of `c`.
type SubRow = Directive<SubConf>;

/// The settings of one block.
#[derive(Default)]
pub struct SubConf {
    pairs: Vec<SubPair>,
    types: Option<MediaTypes>,
    once: Option<bool>,
    last_modified: Option<bool>,
}

/// A text and what comes in its place.
#[derive(Clone)]
struct SubPair {
    text: ValueScript,
    value: ValueScript,
}

impl SubConf {
    fn types(&mut self, line: &mut LineCx<'_>) -> Result {
        MediaTypes::set(&mut self.types, line)
    }

    fn add(&mut self, line: &mut LineCx<'_>) -> Result {
        if line.bytes(0).is_empty() {
            return Err(line.fail_arg(0, "empty search pattern"));
        }
        if self.pairs.len() == PAIRS {
            return Err(line.fail("number of search patterns exceeds 255"));
        }
        let text = line.bytes(0).to_ascii_lowercase();
        let pair = SubPair {
            text: ValueScript::compile_text(line, 0, &text)?,
            value: ValueScript::compile(line, 1)?,
        };
        self.pairs.push(pair);
        Ok(())
    }
}

/// `sub_filter` in one location of one worker.
struct SubFilter {
    /// Where the time of replacing goes.
    site: Site,
    texts: SubTexts,
    pairs: Rc<[SubPair]>,
    types: MediaTypes,
    once: bool,
    last_modified: bool,
}

/// Texts, and what finds them.
type MadePatterns = (Vec<Vec<u8>>, Rc<TextPatterns>);

enum SubTexts {
    Constant(Rc<TextPatterns>),
    /// What was made of the texts of the last request.
    Computed(RefCell<Option<MadePatterns>>),
}

impl HeaderFilter for SubFilter {
    fn is_rehearsable(&self) -> bool {
        true
    }

    fn filter(&self, x: &mut Exchange) -> Verdict {
        if x.response.content_length == Some(0) || !self.types.has(x) {
            return Verdict::Passed;
        }
        let Some((patterns, pairs)) = self.patterns(x) else { return Verdict::Ok };
        if !x.is_subrequest() {
            media::clear_length(x);
            if self.last_modified {
                media::weaken_etag(x);
            } else {
                media::clear_validators(x);
            }
        }
        let replacer = TextReplacer::new(patterns, self.once);
        x.body_filter(FilterSlot::Sub, self.site, SubBody { replacer, pairs });
        Verdict::Ok
    }

    fn is_plain(&self) -> bool {
        true
    }
}

impl SubFilter {
    /// What to look for, and the pairs it belongs to; a text that is empty for this request is skipped.
    fn patterns(&self, x: &mut Exchange) -> Option<(Rc<TextPatterns>, Rc<[SubPair]>)> {
        let last = match &self.texts {
            SubTexts::Constant(patterns) => return Some((patterns.clone(), self.pairs.clone())),
            SubTexts::Computed(last) => last,
        };
        let mut texts = Vec::with_capacity(self.pairs.len());
        let mut pairs = Vec::with_capacity(self.pairs.len());
        for pair in &*self.pairs {
            let text = pair.text.value(x);
            let text = x.text(&text);
            if !text.is_empty() {
                texts.push(text.to_ascii_lowercase());
                pairs.push(pair.clone());
            }
        }
        if texts.is_empty() {
            return None;
        }
        let mut last = last.borrow_mut();
        let patterns = match &*last {
            Some((known, patterns)) if *known == texts => patterns.clone(),
            _ => {
                let patterns = Rc::new(TextPatterns::new(&texts, LetterCase::Ignored));
                *last = Some((texts, patterns.clone()));
                patterns
            }
        };
        Some((patterns, pairs.into()))
    }
}

struct SubBody {
    replacer: TextReplacer,
    pairs: Rc<[SubPair]>,
}

impl BodyFilter for SubBody {
    fn step(
        &mut self,
        x: &mut Exchange,
        input: &mut BodyChain,
        output: &mut BodyChain,
    ) -> std::result::Result<FilterStep, EngineError> {
        let pairs = &self.pairs;
        let mut value = |which: usize| {
            let text = pairs[which].value.value(x);
            Rc::from(x.text(&text))
        };
        Ok(if self.replacer.step(input, output, &mut value) { FilterStep::More } else { FilterStep::Full })
    }
}

/// As many as nginx takes.
const PAIRS: usize = 255;

#[cfg(test)]
mod tests {
    use weir_engine::ModuleDef;
    use weir_engine::conf::test;

    use super::*;
    use crate::testing::core_and;

    static MODULES: [ModuleDef; 4] = core_and::<Sub>();

    #[test]
    fn wrong_lines_are_refused_in_nginx_words() {
        for (line, message) in [
            ("sub_filter '' x;", "empty search pattern in weir.conf:2:12"),
            ("sub_filter x;", "invalid number of arguments in \"sub_filter\" directive in weir.conf:2:1"),
            (
                "sub_filter_once maybe;",
                "invalid value \"maybe\" in \"sub_filter_once\" directive, it must be \"on\" or \"off\" in weir.conf:2:17",
            ),
            (&"sub_filter a b;".repeat(256), "number of search patterns exceeds 255 in weir.conf:2:3826"),
        ] {
            let text = format!("events {{ }} http {{ server {{ }}\n{line} }}");
            let lines = test::headlines(&text, &MODULES);
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].ends_with(message), "{}", lines[0]);
        }
    }
}
