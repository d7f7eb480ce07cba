//! `subs_filter`: replaces texts and matches of regular expressions, as nginx's third-party substitutions module
//! does.
//!
//! Pairs work one after the other, each on the output of the one before. If all are plain texts, they stream through
//! the search that `sub_filter` uses, wherever lines end. With a regular expression among them all work by line, of at
//! most 64 KB.

mod lines;
mod stage;
mod value;

use std::rc::Rc;
use std::sync::Arc;

use weir_conf::names::{ANY, MORE, ONE_OR_TWO, TWO, TWO_OR_MORE};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::body::BodyChain;
use weir_engine::error::{EngineError, EngineErrorKind, FaultSide};
use weir_engine::filter::{BodyFilter, FilterSlot, FilterStep, HeaderFilter};
use weir_engine::log::LogLevel;
use weir_engine::plan::PlanBuilder;
use weir_engine::regex::{LetterCase, RegexPattern};
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Module, Verdict, inherit};
use weir_http::KnownField;
use weir_trace::{Site, SiteKind};

use crate::filters::media::{self, MediaTypes};
use crate::filters::sub::replace::TextReplacer;
use crate::filters::sub::search::TextPatterns;
use lines::{GivenUp, LineReplacer, SubsSearch};
use stage::SubsStage;
use value::{ReplacementValue, ValueTemplate};

/// The module `subs`.
pub struct Subs;

/// The alias gives the closures of the table the type of `c`.
type SubsRow = Directive<SubsConf>;

impl Module for Subs {
    const NAME: &'static str = "subs";
    type Conf = SubsConf;
    const DIRECTIVES: &'static [SubsRow] = &[
        SubsRow::new("subs_filter", ANY, TWO_OR_MORE, SubsConf::add)
            .syntax("subs_filter string replacement [flags]")
            .doc(
                "Replaces a string in responses. Flags: `r` for a regular expression, `i` \
                 regardless of case, `o` only the first occurrence, `g` all of them \
                 (default).",
            )
            .example("subs_filter \"<title>(.*)</title>\" \"<title>$1 (test)</title>\" ir;"),
        SubsRow::new("subs_filter_types", ANY, MORE, |c, line| MediaTypes::set(&mut c.types, line))
            .syntax("subs_filter_types mime-type ...")
            .default("text/html")
            .doc("MIME types in which strings are replaced, besides `text/html`; `*` matches any."),
        SubsRow::new("subs_filter_bypass", ANY, MORE, SubsConf::bypass)
            .syntax("subs_filter_bypass string ...")
            .doc("Replaces nothing if one of these values is neither empty nor `0`."),
        SubsRow::new("subs_buffers", ANY, TWO, |c, line| line.bufs(&mut c.buffers))
            .syntax("subs_buffers number size")
            .doc(
                "Number and size of output buffers: replacement pauses while number times \
                 size bytes, 64k at most, wait for the client.",
            ),
        SubsRow::new("subs_line_buffer_size", ANY, ONE_OR_TWO, |c, line| line.size(&mut c.line_buffer))
            .syntax("subs_line_buffer_size size [size]")
            .doc(
                "Initial size of the buffers of a line for regular expressions, 64k at most; \
                 they grow with the line.",
            ),
    ];

    fn inherit(conf: &mut SubsConf, parent: &SubsConf) {
        inherit!(conf, parent, types, bypass, buffers, line_buffer);
        if conf.pairs.is_empty() {
            conf.pairs.clone_from(&parent.pairs);
        }
    }

    fn install(conf: &SubsConf, plan: &mut PlanBuilder<'_>) {
        if conf.pairs.is_empty() {
            return;
        }
        let pair = |pair: &SubsPair| SubsJob {
            what: match &pair.what {
                SubsTarget::Text { text, caseless } => {
                    let case = LetterCase::ignored_if(*caseless);
                    SubsSearch::Text(Rc::new(TextPatterns::new(std::slice::from_ref(text), case)))
                }
                SubsTarget::Pattern(pattern) => SubsSearch::Pattern(pattern.clone()),
            },
            template: Rc::new(pair.template.clone()),
            once: pair.once,
        };
        let filter = SubsFilter {
            site: plan.site(SiteKind::BodyFilter, Self::NAME),
            jobs: conf.pairs.iter().map(pair).collect(),
            types: MediaTypes::or_html(&conf.types),
            bypass: conf.bypass.clone().unwrap_or_default(),
            ahead: conf.buffers.map(|buffers| buffers.number.saturating_mul(buffers.size)),
            line: conf.line_buffer.unwrap_or(0),
        };
        plan.header_filter(FilterSlot::Aux, Self::NAME, filter);
    }
}

/// The settings of one block.
#[derive(Default)]
pub struct SubsConf {
    pairs: Vec<SubsPair>,
    types: Option<MediaTypes>,
    bypass: Option<Vec<ValueScript>>,
    buffers: Option<weir_conf::BufferSizes>,
    line_buffer: Option<u64>,
}

/// One `subs_filter`.
#[derive(Clone)]
struct SubsPair {
    what: SubsTarget,
    template: ValueTemplate,
    once: bool,
}

#[derive(Clone)]
enum SubsTarget {
    Text { text: Vec<u8>, caseless: bool },
    Pattern(Arc<RegexPattern>),
}

impl SubsConf {
    fn add(&mut self, line: &mut LineCx<'_>) -> Result {
        let flags = line.bytes(2);
        let (caseless, regex, once) = (flags.contains(&b'i'), flags.contains(&b'r'), flags.contains(&b'o'));
        let text = line.bytes(0);
        if text.is_empty() {
            return Err(line.fail_arg(0, "empty search pattern"));
        }
        // Without "r", but with "i", the text is a pattern as well.
        let plain = !(regex || caseless) || !text.iter().any(|byte| META.contains(byte));
        let (what, groups) = if plain {
            (SubsTarget::Text { text: text.to_vec(), caseless }, (regex || caseless).then_some(0))
        } else {
            let pattern = RegexPattern::compile(line, 0, 0, LetterCase::ignored_if(caseless))?;
            let groups = pattern.groups();
            (SubsTarget::Pattern(pattern), Some(groups))
        };
        self.pairs.push(SubsPair { what, template: ValueTemplate::compile(line, 1, groups)?, once });
        Ok(())
    }

    fn bypass(&mut self, line: &mut LineCx<'_>) -> Result {
        let bypass = self.bypass.get_or_insert_default();
        for at in 0..line.args().len() {
            bypass.push(ValueScript::compile(line, at)?);
        }
        Ok(())
    }
}

/// `subs_filter` in one location of one worker.
struct SubsFilter {
    /// Where the time of replacing goes.
    site: Site,
    jobs: Box<[SubsJob]>,
    types: MediaTypes,
    bypass: Vec<ValueScript>,
    /// Bytes that may wait for the client.
    ahead: Option<u64>,
    /// Bytes of a line's buffers at first.
    line: u64,
}

/// A [`SubsPair`] on one worker.
struct SubsJob {
    what: SubsSearch,
    template: Rc<ValueTemplate>,
    once: bool,
}

impl HeaderFilter for SubsFilter {
    fn is_rehearsable(&self) -> bool {
        true
    }

    fn filter(&self, x: &mut Exchange) -> Verdict {
        if x.response.content_type.is_none() || x.response.content_length == Some(0) || !self.types.has(x) {
            return Verdict::Passed;
        }
        if x.response.header(KnownField::ContentEncoding).is_some_and(|coding| !x.text(coding).is_empty()) {
            x.log(LogLevel::Warn, &"http subs filter header ignored, this may be a compressed response.");
            return Verdict::Ok;
        }
        if self.is_bypassed(x) {
            return Verdict::Ok;
        }
        if !x.is_subrequest() {
            media::clear_length(x);
            x.response.last_modified = None;
            x.response.remove(KnownField::LastModified);
        }
        if let Some(ahead) = self.ahead {
            x.response.bound(ahead);
        }
        let templates = self.jobs.iter().map(|job| job.template.clone()).collect();
        let body = SubsBody { work: self.work(), templates };
        x.body_filter(FilterSlot::Aux, self.site, body);
        Verdict::Ok
    }

    fn is_plain(&self) -> bool {
        true
    }
}

impl SubsFilter {
    fn work(&self) -> SubsWork {
        let stage = |job: &SubsJob| match &job.what {
            SubsSearch::Text(patterns) => {
                let replacer = TextReplacer::new(patterns.clone(), job.once);
                Some(SubsStage::new(replacer, ReplacementValue::new(&job.template)))
            }
            SubsSearch::Pattern(_) => None,
        };
        if let Some(stages) = self.jobs.iter().map(stage).collect() {
            return SubsWork::Texts(stages);
        }
        let pair = |job: &SubsJob| lines::LinePair {
            search: job.what.clone(),
            value: ReplacementValue::new(&job.template),
            once: job.once,
            done: false,
        };
        SubsWork::Lines(Box::new(LineReplacer::new(self.jobs.iter().map(pair).collect(), self.line)))
    }

    fn is_bypassed(&self, x: &mut Exchange) -> bool {
        self.bypass.iter().any(|script| {
            let value = script.value(x);
            !matches!(x.text(&value), b"" | b"0")
        })
    }
}

struct SubsBody {
    work: SubsWork,
    templates: Box<[Rc<ValueTemplate>]>,
}

enum SubsWork {
    Texts(Vec<SubsStage>),
    Lines(Box<LineReplacer>),
}

impl BodyFilter for SubsBody {
    fn step(
        &mut self,
        x: &mut Exchange,
        input: &mut BodyChain,
        output: &mut BodyChain,
    ) -> std::result::Result<FilterStep, EngineError> {
        let templates = &self.templates;
        let mut compute = |pair: usize, part: usize| {
            let Some(script) = templates[pair].script(part) else { return Rc::from([]) };
            let text = script.value(x);
            Rc::from(x.text(&text))
        };
        let done = match &mut self.work {
            SubsWork::Texts(stages) => Ok(stage::step(stages, input, output, &mut compute)),
            SubsWork::Lines(lines) => lines.step(input, output, &mut compute),
        };
        match done {
            Ok(true) => Ok(FilterStep::More),
            Ok(false) => Ok(FilterStep::Full),
            Err(GivenUp(reason)) => {
                x.log(LogLevel::Alert, &reason);
                Err(EngineError { kind: EngineErrorKind::Filter, side: FaultSide::Server, errno: None })
            }
        }
    }
}

/// What makes a text a pattern.
const META: &[u8] = b"\\^$.[]|()?*+{}#\n";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_engine::ModuleDef;
    use weir_engine::body::BodyBuf;
    use weir_engine::conf::test;

    use super::*;
    use crate::testing::{core_and, pieces};

    static MODULES: [ModuleDef; 4] = core_and::<Subs>();

    fn texts(pairs: &[(&str, &str)], once: bool) -> Vec<SubsStage> {
        let stage = |(text, value): &(&str, &str)| {
            let patterns = TextPatterns::new(&[text.as_bytes().to_vec()], LetterCase::Distinct);
            let template = ValueTemplate::literal(value.as_bytes());
            SubsStage::new(
                TextReplacer::new(Rc::new(patterns), once),
                ReplacementValue::new(&Rc::new(template)),
            )
        };
        pairs.iter().map(stage).collect()
    }

    /// The pairs as lines of [`LineReplacer`].
    fn lines(pairs: &[(&str, &str)], once: bool) -> LineReplacer {
        let pair = |(text, value): &(&str, &str)| lines::LinePair {
            search: SubsSearch::Text(Rc::new(TextPatterns::new(
                &[text.as_bytes().to_vec()],
                LetterCase::Distinct,
            ))),
            value: ReplacementValue::new(&Rc::new(ValueTemplate::literal(value.as_bytes()))),
            once,
            done: false,
        };
        LineReplacer::new(pairs.iter().map(pair).collect(), 0)
    }

    /// What comes of `pieces`, and the most bytes of one step.
    fn run(pieces: &[&[u8]], mut step: impl FnMut(&mut BodyChain, &mut BodyChain) -> bool) -> (String, u64) {
        let (mut whole, mut most) = (Vec::new(), 0);
        for (at, piece) in pieces.iter().enumerate() {
            let mut input = BodyChain::default();
            input.push(BodyBuf::Bytes(piece.to_vec()));
            input.last = at + 1 == pieces.len();
            let mut done = false;
            while !done {
                let mut output = BodyChain::default();
                done = step(&mut input, &mut output);
                most = most.max(output.len());
                while let Some(buf) = output.pop() {
                    whole.extend_from_slice(buf.memory().expect("in memory"));
                }
            }
        }
        (String::from_utf8_lossy(&whole).into_owned(), most)
    }

    fn as_texts(pairs: &[(&str, &str)], once: bool, pieces: &[&[u8]]) -> (String, u64) {
        let mut stages = texts(pairs, once);
        let value = |pair: usize, _: usize| Rc::from(pairs[pair].1.as_bytes());
        run(pieces, |input, output| stage::step(&mut stages, input, output, &mut { value }))
    }

    fn as_lines(pairs: &[(&str, &str)], once: bool, pieces: &[&[u8]]) -> String {
        let mut lines = lines(pairs, once);
        let value = |pair: usize, _: usize| Rc::from(pairs[pair].1.as_bytes());
        run(pieces, |input, output| lines.step(input, output, &mut { value }).expect("no pattern")).0
    }

    #[test]
    fn what_grows_is_bounded() {
        let long = "b".repeat(100);
        let pairs = [("a", &*long), ("b", &*long), ("bb", "c")];
        let (whole, most) = as_texts(&pairs, false, &["a".repeat(300).as_bytes()]);
        assert_eq!(whole.len(), 300 * 100 * 50);
        assert!(most < 2 * 64 * 1024, "{most}");
    }

    proptest! {
        #[test]
        fn chunks_and_ways_make_no_difference(
            pairs in proptest::collection::vec(("[ab]{1,3}", "[abx]{0,3}"), 1..4),
            once: bool,
            text in "[abc\n]{0,120}",
            cuts in proptest::collection::vec(1..7_usize, 0..40),
        ) {
            let pairs: Vec<(&str, &str)> = pairs.iter().map(|(a, b)| (&**a, &**b)).collect();
            let pieces = pieces(text.as_bytes(), &cuts);
            let count = if once { 1 } else { usize::MAX };
            let expected = pairs.iter().fold(text.clone(), |text, (a, b)| text.replacen(a, b, count));
            prop_assert_eq!(&as_texts(&pairs, once, &pieces).0, &expected);
            prop_assert_eq!(&as_lines(&pairs, once, &pieces), &expected);
        }
    }

    #[test]
    fn wrong_lines_are_refused() {
        for (line, message) in [
            ("subs_filter a;", "invalid number of arguments in \"subs_filter\" directive in weir.conf:2:1"),
            ("subs_filter '' a;", "empty search pattern in weir.conf:2:13"),
            (
                "subs_filter '(' b r;",
                "pcre2_compile() failed: missing closing parenthesis in \"(\" in weir.conf:2:13",
            ),
            (
                "subs_filter 'a(b)' '$2' r;",
                "You want to capture too many regex substrings, more than 1 in \"$2\" in weir.conf:2:20",
            ),
            (
                "subs_filter ab '$1' r;",
                "You want to capture too many regex substrings, more than 0 in \"$1\" in weir.conf:2:16",
            ),
        ] {
            let text = format!("events {{ }} http {{ server {{ }}\n{line} }}");
            let lines = test::headlines(&text, &MODULES);
            assert!(lines.first().is_some_and(|line| line.ends_with(message)), "{line}: {lines:?}");
        }
    }
}
