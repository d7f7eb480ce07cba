//! `charset`: adds a charset to the `Content-Type` of responses and converts them from one charset to another
//! (nginx's `ngx_http_charset_module`).

pub(crate) mod recode;
pub(crate) mod table;

use std::rc::Rc;
use std::sync::Arc;

use weir_conf::names::{ANY, ANY_OR_IF, FLAG, HTTP, MORE, ONE, TWO};
use weir_conf::{ArgCount, Directive, LineCx, Result};
use weir_engine::body::BodyChain;
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::error::EngineError;
use weir_engine::filter::{BodyFilter, FilterSlot, FilterStep, HeaderFilter};
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Module, Text, Verdict, inherit};
use weir_http::KnownField;
use weir_trace::{Site, SiteKind};

use crate::filters::media::{self, MediaTypes};
use recode::CharsetRecoder;
use table::{CharsetMap, CharsetTable};

/// The module `charset`.
pub struct Charset;

/// The alias gives the closures of the table the type of `c`.
type CharsetRow = Directive<CharsetConf>;

impl Module for Charset {
    const NAME: &'static str = "charset";
    type Conf = CharsetConf;
    const DIRECTIVES: &'static [CharsetRow] = &[
        CharsetRow::new("charset", ANY_OR_IF, ONE, |c, line| {
            CharsetSetting::set_or_off(&mut c.charset, line)
        })
        .syntax("charset charset | $variable | off")
        .default("off")
        .doc(
            "Adds the charset to the `Content-Type` of responses; if `source_charset` is \
                 another one, converts the response. `off` cancels an inherited setting.",
        )
        .example("charset utf-8;"),
        CharsetRow::new("source_charset", ANY_OR_IF, ONE, |c, line| CharsetSetting::set(&mut c.source, line))
            .syntax("source_charset charset | $variable")
            .doc(
                "Charset of responses that do not state theirs; they are converted if \
                 `charset` is another one.",
            ),
        CharsetRow::new("override_charset", ANY_OR_IF, FLAG, |c, line| line.flag(&mut c.override_charset))
            .syntax("override_charset on | off")
            .default("off")
            .doc("Converts upstream responses that state their charset in `Content-Type`, too."),
        CharsetRow::new("charset_types", ANY, MORE, |c, line| MediaTypes::set(&mut c.types, line))
            .syntax("charset_types mime-type ...")
            .default(
                "text/html text/xml text/plain text/vnd.wap.wml application/javascript application/rss+xml",
            )
            .doc("MIME types to which the charset is added, besides `text/html`; `*` matches any."),
        CharsetRow::new("charset_map", HTTP, MAP, CharsetConf::map)
            .syntax("charset_map charset1 charset2")
            .doc(
                "Conversion table between two charsets: each line has a byte of the first and \
                 its equivalent in the second, in hexadecimal digits.",
            ),
    ];

    fn inherit(conf: &mut CharsetConf, parent: &CharsetConf) {
        inherit!(conf, parent, charset, source, override_charset, types);
        if conf.maps.is_empty() {
            conf.maps.clone_from(&parent.maps);
        }
    }

    fn resolve(conf: &mut CharsetConf, _: &mut ConfRegistry) -> Result {
        let (Some(CharsetSetting::Name(to)), Some(CharsetSetting::Name(from))) =
            (&conf.charset, &conf.source)
        else {
            return Ok(());
        };
        if from.eq_ignore_ascii_case(to) || conf.maps.iter().any(|map| map.between(from, to).is_some()) {
            return Ok(());
        }
        Err(weir_conf::Error::new(no_map(from, to)))
    }

    fn install(conf: &CharsetConf, plan: &mut PlanBuilder<'_>) {
        let setting = |setting: &Option<CharsetSetting>| setting.clone().unwrap_or(CharsetSetting::Off);
        let (charset, source) = (setting(&conf.charset), setting(&conf.source));
        if let (CharsetSetting::Off, CharsetSetting::Off, []) = (&charset, &source, &*conf.maps) {
            return;
        }
        let filter = CharsetFilter {
            site: plan.site(SiteKind::BodyFilter, Self::NAME),
            charset: ChosenCharset::new(&charset),
            source: ChosenCharset::new(&source),
            override_charset: conf.override_charset.unwrap_or(false),
            types: conf.types.clone().unwrap_or_else(|| MediaTypes::of(TYPES)),
            maps: conf.maps.clone(),
        };
        plan.header_filter(FilterSlot::Charset, Self::NAME, filter);
    }
}

/// The settings of one block.
#[derive(Default)]
pub struct CharsetConf {
    charset: Option<CharsetSetting>,
    source: Option<CharsetSetting>,
    override_charset: Option<bool>,
    types: Option<MediaTypes>,
    maps: Vec<CharsetMap>,
}

/// `charset`, `source_charset`.
#[derive(Clone)]
enum CharsetSetting {
    Off,
    Name(Box<[u8]>),
    Variable(ValueScript),
}

impl CharsetSetting {
    /// As [`CharsetSetting::set`], of a directive that may be `off`.
    fn set_or_off(slot: &mut Option<CharsetSetting>, line: &mut LineCx<'_>) -> Result {
        if slot.is_none() && line.bytes(0) == b"off" {
            *slot = Some(CharsetSetting::Off);
            return Ok(());
        }
        CharsetSetting::set(slot, line)
    }

    fn set(slot: &mut Option<CharsetSetting>, line: &mut LineCx<'_>) -> Result {
        if slot.is_some() {
            return Err(line.refuse("is duplicate"));
        }
        *slot = Some(match line.bytes(0) {
            [b'$', ..] => CharsetSetting::Variable(ValueScript::compile(line, 0)?),
            name => CharsetSetting::Name(name.into()),
        });
        Ok(())
    }
}

impl CharsetConf {
    fn map(&mut self, line: &mut LineCx<'_>) -> Result {
        self.maps.push(CharsetMap::parse(line, &self.maps)?);
        Ok(())
    }
}

/// A [`CharsetSetting`] on one worker.
enum ChosenCharset {
    Off,
    Name(Text),
    Variable(ValueScript),
}

impl ChosenCharset {
    fn new(setting: &CharsetSetting) -> ChosenCharset {
        match setting {
            CharsetSetting::Off => ChosenCharset::Off,
            CharsetSetting::Name(name) => ChosenCharset::Name(Text::shared(name)),
            CharsetSetting::Variable(script) => ChosenCharset::Variable(script.clone()),
        }
    }

    fn get(&self, x: &mut Exchange) -> Option<Text> {
        match self {
            ChosenCharset::Off => None,
            ChosenCharset::Name(name) => Some(name.clone()),
            ChosenCharset::Variable(script) => Some(script.value(x)),
        }
    }
}

/// `charset` in one location of one worker.
struct CharsetFilter {
    /// Where the time of recoding goes.
    site: Site,
    charset: ChosenCharset,
    source: ChosenCharset,
    override_charset: bool,
    types: MediaTypes,
    maps: Vec<CharsetMap>,
}

/// The charset of the response to the client, into which the responses of subrequests are recoded.
#[derive(Default)]
struct OfClient(Option<Rc<[u8]>>);

impl HeaderFilter for CharsetFilter {
    fn is_rehearsable(&self) -> bool {
        true
    }

    fn filter(&self, x: &mut Exchange) -> Verdict {
        if x.is_subrequest() {
            let to = x.lasting_if(|charset: &OfClient| charset.0.clone()).flatten();
            if let Some(to) = to {
                return verdict(self.recode(x, Text::Shared(to)));
            }
            return Verdict::Passed;
        }
        let recodes = self.destination(x).is_some_and(|to| self.recode(x, to));
        let charset = x.response.charset.as_ref().map(|charset| match charset {
            Text::Shared(charset) => charset.clone(),
            charset => Rc::from(x.text(charset)),
        });
        if charset.is_some() {
            x.lasting(|of: &mut OfClient| of.0 = charset);
        }
        verdict(recodes)
    }

    fn is_plain(&self) -> bool {
        true
    }
}

/// Without recoding no more is done than to set a field.
fn verdict(recodes: bool) -> Verdict {
    if recodes { Verdict::Ok } else { Verdict::Passed }
}

impl CharsetFilter {
    /// The charset that the response shall be in; `None` leaves it as it is.
    fn destination(&self, x: &mut Exchange) -> Option<Text> {
        x.response.content_type.as_ref()?;
        if let Some(name) = x.response.override_charset.clone().filter(|name| !x.text(name).is_empty()) {
            if self.knows(x.text(&name)) {
                return Some(name);
            }
            let name = String::from_utf8_lossy(x.text(&name)).into_owned();
            x.log_error(&format_args!("unknown charset \"{name}\" to override"));
            return None;
        }
        let wanted = match x.response.charset {
            Some(_) => self.override_charset,
            None => self.types.has(x),
        };
        if wanted { self.charset.get(x) } else { None }
    }

    fn knows(&self, name: &[u8]) -> bool {
        let is = |chosen: &ChosenCharset| match chosen {
            ChosenCharset::Name(Text::Shared(known)) => known.eq_ignore_ascii_case(name),
            _ => false,
        };
        is(&self.charset) || is(&self.source) || self.maps.iter().any(|map| map.knows(name))
    }

    /// Says that the response is in `to`, and recodes it if it is in another charset; whether that is so.
    fn recode(&self, x: &mut Exchange, to: Text) -> bool {
        let from = x.response.charset.clone().or_else(|| self.source.get(x));
        let Some(from) = from else {
            name(x, to);
            return false;
        };
        if x.text(&from).eq_ignore_ascii_case(x.text(&to)) {
            name(x, to);
            return false;
        }
        if x.response.header(KnownField::ContentEncoding).is_some_and(|coding| !x.text(coding).is_empty()) {
            return false;
        }
        let Some(table) = self.table(x.text(&from), x.text(&to)) else {
            let message = no_map(x.text(&from), x.text(&to));
            x.log_error(&message);
            return false;
        };
        name(x, to);
        if table.is_utf8() && !x.is_subrequest() {
            media::clear_length(x);
        }
        x.body_filter(FilterSlot::Charset, self.site, CharsetBody(CharsetRecoder::new(table)));
        true
    }

    fn table(&self, from: &[u8], to: &[u8]) -> Option<Arc<CharsetTable>> {
        self.maps.iter().find_map(|map| map.between(from, to)).cloned()
    }
}

/// Says which charset the response is in. Redirects say none: nginx keeps it from clients that would take it for the
/// next page's.
fn name(x: &mut Exchange, charset: Text) {
    if x.is_subrequest() {
        return;
    }
    let redirect = matches!(x.response.status, 301 | 302);
    x.response.charset = if redirect || x.text(&charset).is_empty() { None } else { Some(charset) };
}

fn no_map(from: &[u8], to: &[u8]) -> String {
    let (from, to) = (String::from_utf8_lossy(from), String::from_utf8_lossy(to));
    format!("no \"charset_map\" between the charsets \"{from}\" and \"{to}\"")
}

struct CharsetBody(CharsetRecoder);

impl BodyFilter for CharsetBody {
    fn step(
        &mut self,
        _: &mut Exchange,
        input: &mut BodyChain,
        output: &mut BodyChain,
    ) -> std::result::Result<FilterStep, EngineError> {
        Ok(if self.0.step(input, output) { FilterStep::More } else { FilterStep::Full })
    }
}

/// A block with two names before it.
const MAP: ArgCount = TWO.block();
/// nginx's defaults of `charset_types`.
const TYPES: &[&str] = &[
    media::HTML,
    "text/xml",
    "text/plain",
    "text/vnd.wap.wml",
    "application/javascript",
    "application/rss+xml",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_engine::ModuleDef;
    use weir_engine::conf::test;

    use super::*;
    use crate::testing::core_and;

    static MODULES: [ModuleDef; 4] = core_and::<Charset>();

    #[test]
    fn wrong_lines_are_refused_in_nginx_words() {
        for (line, message) in [
            ("charset a; charset b;", "\"charset\" directive is duplicate in weir.conf:2:12"),
            (
                "charset_map a A { }",
                "\"charset_map\" between the same charsets \"a\" and \"A\" in weir.conf:2:1",
            ),
            (
                "charset_map UTF-8 a { }",
                "\"charset_map\" with \"utf-8\" charset should be given in the second column in weir.conf:2:1",
            ),
            (
                "charset_map a b { } charset_map b a { }",
                "duplicate \"charset_map\" between \"b\" and \"a\" in weir.conf:2:21",
            ),
            ("charset_map a b { 80 81 82; }", "invalid parameters number in weir.conf:2:19"),
            ("charset_map a b { 100 81; }", "invalid value \"100\" in weir.conf:2:19"),
            ("charset_map a b { 80 1x; }", "invalid value \"1x\" in weir.conf:2:22"),
            ("charset_map a utf-8 { 80 F09F9880; }", "invalid value \"F09F9880\" in weir.conf:2:26"),
            ("charset_map a utf-8 { 80 FF; }", "invalid value \"FF\" in weir.conf:2:26"),
        ] {
            let text = format!("events {{ }} http {{ server {{ }}\n{line} }}");
            let lines = test::headlines(&text, &MODULES);
            assert!(lines.first().is_some_and(|line| line.ends_with(message)), "{line}: {lines:?}");
        }
    }

    #[test]
    fn what_has_to_be_recoded_has_a_map() {
        let load = |inside: &str| {
            let text = format!("events {{ }} http {{ charset_map a b {{ }} server {{ {inside} }} }}");
            test::load(&text, &MODULES).map(|_| ()).map_err(|errors| errors.to_string())
        };
        assert_eq!(load("charset A; location / { source_charset B; }"), Ok(()));
        let error = load("charset a; location / { source_charset c; }").expect_err("no map");
        assert!(error.contains("no \"charset_map\" between the charsets \"c\" and \"a\""), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_table_is_taken_or_refused(
            to in "(b|utf-8)",
            entries in proptest::collection::vec("[0-9A-Fa-fx]{0,3} [0-9A-Fa-fx ]{0,9};", 0..8),
        ) {
            let entries = entries.join(" ");
            let text = format!("events {{ }} http {{ charset_map a {to} {{ {entries} }} server {{ }} }}");
            if let Err(errors) = test::load(&text, &MODULES) {
                prop_assert!(errors.contains(test::FILE), "{}: {}", entries, errors);
            }
        }
    }
}
