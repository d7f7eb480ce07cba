//! `browser`: variables that say whether a browser is modern or ancient, by its `User-Agent` field (nginx's
//! `ngx_http_browser_module`).

use weir_conf::names::{ANY, MORE, ONE, ONE_OR_TWO};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::agent;
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::plan::PlanBuilder;
use weir_engine::variable::Variable;
use weir_engine::{Exchange, Module, Text, inherit};
use weir_http::KnownField;

/// The module `browser`.
pub struct Browser;

impl Module for Browser {
    const NAME: &'static str = "browser";
    type Conf = BrowserConf;
    const DIRECTIVES: &'static [Directive<BrowserConf>] = &[
        BrowserRow::new("modern_browser", ANY, ONE_OR_TWO, BrowserConf::add_modern)
            .syntax("modern_browser browser version\nmodern_browser unlisted")
            .doc(
                "Browser (`msie`, `gecko`, `opera`, `safari`, `konqueror`) and the version \
                 from which it counts as modern. `unlisted` makes browsers modern that no \
                 `modern_browser` or `ancient_browser` names.",
            ),
        BrowserRow::new("ancient_browser", ANY, MORE, BrowserConf::add_ancient)
            .syntax("ancient_browser string ...")
            .doc(
                "Substrings of the `User-Agent` field that identify a browser as ancient; \
                 `netscape4` means Mozilla 1 to 4.",
            ),
        BrowserRow::new("modern_browser_value", ANY, ONE, BrowserConf::set_modern_value)
            .syntax("modern_browser_value string")
            .default("1")
            .doc("Value of `$modern_browser` for modern browsers."),
        BrowserRow::new("ancient_browser_value", ANY, ONE, BrowserConf::set_ancient_value)
            .syntax("ancient_browser_value string")
            .default("1")
            .doc("Value of `$ancient_browser` for ancient browsers."),
    ];
    const VARIABLES: &'static [Variable] = &[
        Variable::new("modern_browser", modern).changeable(),
        Variable::new("ancient_browser", ancient).changeable(),
        Variable::new("msie", msie).changeable(),
    ];

    fn inherit(conf: &mut BrowserConf, parent: &BrowserConf) {
        if conf.modern.is_empty() && !conf.unlisted {
            conf.modern = parent.modern.clone();
            conf.unlisted = parent.unlisted;
        }
        if conf.ancient.is_empty() && !conf.netscape4 {
            conf.ancient = parent.ancient.clone();
            conf.netscape4 = parent.netscape4;
        }
        inherit!(conf, parent, modern_value, ancient_value);
    }

    fn resolve(conf: &mut BrowserConf, _: &mut ConfRegistry) -> Result {
        if !conf.modern.is_empty() {
            // Opera may call itself MSIE: it is looked for first, and ancient at any version where it is not named.
            if !conf.modern.iter().any(|modern| modern.kind == 0) {
                conf.modern.push(ModernBrowser { kind: 0, version: NEVER });
            }
            conf.modern.sort_by_key(|modern| modern.kind);
        }
        Ok(())
    }

    fn install(conf: &BrowserConf, plan: &mut PlanBuilder<'_>) {
        if *conf != BrowserConf::default() {
            plan.keep(conf.clone());
        }
    }
}

/// Gives the closures of the table the type of their argument.
type BrowserRow = Directive<BrowserConf>;

/// The settings of one block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrowserConf {
    modern: Vec<ModernBrowser>,
    /// `modern_browser unlisted`
    unlisted: bool,
    ancient: Vec<Vec<u8>>,
    netscape4: bool,
    modern_value: Option<Vec<u8>>,
    ancient_value: Option<Vec<u8>>,
}

/// A browser that is modern from a version on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ModernBrowser {
    /// Its place in [`KINDS`].
    kind: usize,
    /// See [`version`].
    version: u32,
}

/// How a browser is recognised.
struct BrowserKind {
    name: &'static str,
    /// What precedes its version.
    mark: &'static [u8],
    /// The mark is looked for after this many bytes.
    skip: usize,
    /// The version is this many bytes after the beginning of the mark.
    ahead: usize,
}

/// In the order in which they are looked for.
const KINDS: [BrowserKind; 5] = [
    BrowserKind { name: "opera", mark: b"Opera", skip: 0, ahead: 6 },
    BrowserKind { name: "msie", mark: b"MSIE ", skip: 25, ahead: 5 },
    BrowserKind { name: "gecko", mark: b"rv:", skip: 13, ahead: 3 },
    BrowserKind { name: "safari", mark: b"Safari/", skip: 13, ahead: 7 },
    BrowserKind { name: "konqueror", mark: b"Konqueror/", skip: 25, ahead: 10 },
];

impl BrowserConf {
    fn add_modern(&mut self, line: &mut LineCx<'_>) -> Result {
        if line.args().len() == 1 {
            return match line.bytes(0) {
                b"unlisted" => {
                    self.unlisted = true;
                    Ok(())
                }
                _ => Err(line.invalid_parameter(0)),
            };
        }
        let kind = KINDS.iter().position(|kind| kind.name.as_bytes().eq_ignore_ascii_case(line.bytes(0)));
        let kind =
            kind.ok_or_else(|| line.fail_arg(0, format!("unknown browser name \"{}\"", line.arg(0))))?;
        let (version, rest) = version(line.bytes(1), |_| false);
        if !rest.is_empty() {
            return Err(line.fail_arg(1, format!("invalid browser version \"{}\"", line.arg(1))));
        }
        self.modern.push(ModernBrowser { kind, version });
        Ok(())
    }

    fn add_ancient(&mut self, line: &mut LineCx<'_>) -> Result {
        for word in line.args() {
            match word.bytes() {
                b"netscape4" => self.netscape4 = true,
                text => self.ancient.push(text.to_vec()),
            }
        }
        Ok(())
    }

    fn set_modern_value(&mut self, line: &mut LineCx<'_>) -> Result {
        self.modern_value = Some(line.bytes(0).to_vec());
        Ok(())
    }

    fn set_ancient_value(&mut self, line: &mut LineCx<'_>) -> Result {
        self.ancient_value = Some(line.bytes(0).to_vec());
        Ok(())
    }

    fn is_modern(&self, agent: Option<&[u8]>) -> bool {
        let Some(agent) = agent else { return self.unlisted };
        for modern in &self.modern {
            let kind = &KINDS[modern.kind];
            if let Some(rest) = find(agent.get(kind.skip..).unwrap_or_default(), kind.mark)
                && let Some(reported) = rest.get(kind.ahead..).filter(|reported| !reported.is_empty())
            {
                let (version, _) = version(reported, |so_far| so_far > modern.version);
                return version >= modern.version;
            }
        }
        if !self.modern.is_empty() && !self.unlisted {
            return false;
        }
        let ancient = (self.netscape4 && is_netscape4(agent))
            || self.ancient.iter().any(|text| find(agent, text).is_some());
        !ancient && self.unlisted
    }
}

/// Millions for what precedes the first dot, ten thousands, hundreds and ones for the parts after it; and what
/// follows the version. Ends at a dot where `enough` says so.
fn version(text: &[u8], enough: impl Fn(u32) -> bool) -> (u32, &[u8]) {
    let (mut version, mut part, mut scale) = (0_u32, 0_u32, 1_000_000_u32);
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        match byte {
            b'0'..=b'9' => part = part.wrapping_mul(10).wrapping_add(u32::from(byte - b'0')),
            b'.' => {
                version = version.wrapping_add(part.wrapping_mul(scale));
                if enough(version) {
                    return (version, after);
                }
                part = 0;
                scale /= 100;
            }
            _ => break,
        }
        rest = after;
    }
    (version.wrapping_add(part.wrapping_mul(scale)), rest)
}

/// `text` from where `mark` is in it.
fn find<'a>(text: &'a [u8], mark: &[u8]) -> Option<&'a [u8]> {
    let at = (0..=text.len().checked_sub(mark.len())?).find(|at| text[*at..].starts_with(mark))?;
    Some(&text[at..])
}

fn is_netscape4(agent: &[u8]) -> bool {
    agent.len() > b"Mozilla/4.72 ".len() && matches!(agent.strip_prefix(b"Mozilla/"), Some([b'1'..=b'4', ..]))
}

/// What the two variables distinguish.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BrowserAge {
    Modern,
    Ancient,
}

/// The value of a variable for browsers of this age; empty for others.
fn value(x: &mut Exchange, age: BrowserAge) -> Option<Text> {
    let modern = age == BrowserAge::Modern;
    let plan = x.plan.clone();
    let nothing = BrowserConf::default();
    let conf = plan.kept::<BrowserConf>().unwrap_or(&nothing);
    if conf.is_modern(x.request.value(&x.arena, KnownField::UserAgent)) != modern {
        return Some(Text::EMPTY);
    }
    let value = if modern { &conf.modern_value } else { &conf.ancient_value };
    Some(match value {
        Some(value) => Text::Span(x.arena.push(value)),
        None => Text::Static(b"1"),
    })
}

fn modern(x: &mut Exchange) -> Option<Text> {
    value(x, BrowserAge::Modern)
}

fn ancient(x: &mut Exchange) -> Option<Text> {
    value(x, BrowserAge::Ancient)
}

/// `$msie`
fn msie(x: &mut Exchange) -> Option<Text> {
    let is = agent::msie(x.request.value(&x.arena, KnownField::UserAgent).unwrap_or_default());
    Some(if is { Text::Static(b"1") } else { Text::EMPTY })
}

/// No version is so high.
const NEVER: u32 = 4_001_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_engine::ModuleDef;
    use weir_engine::conf;

    use super::*;
    use crate::testing::core_and;

    static MODULES: [ModuleDef; 4] = core_and::<Browser>();

    fn text(lines: &str) -> String {
        format!("events {{ }} http {{ server {{ {lines} }} }}")
    }

    fn conf(lines: &str) -> BrowserConf {
        let loaded = conf::test::load(&text(lines), &MODULES).unwrap_or_else(|errors| panic!("{errors}"));
        loaded.servers()[0].confs.get::<BrowserConf>().clone()
    }

    #[test]
    fn versions_decide() {
        let conf =
            conf("modern_browser msie 5.5; modern_browser gecko 1.0.0; ancient_browser Links netscape4;");
        for (agent, modern) in [
            ("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)", true),
            ("Mozilla/4.0 (compatible; MSIE 5.5; Windows NT 5.1)", true),
            ("Mozilla/4.0 (compatible; MSIE 5.0; Windows NT 5.1)", false),
            ("Mozilla/4.0 (compatible; MSIE 6.0; X11; FreeBSD i386) Opera 7.50  [en]", false),
            ("Mozilla/5.0 (X11; U; Linux i686; en-US; rv:1.0.0) Gecko/20020610", true),
            ("Mozilla/5.0 (X11; U; Linux i686; en-US; rv:0.9.9) Gecko/20020610", false),
            ("Links (0.96)", false),
            ("other", false),
        ] {
            assert_eq!(conf.is_modern(Some(agent.as_bytes())), modern, "{agent}");
        }
        assert!(!conf.is_modern(None));
    }

    #[test]
    fn unlisted_browsers_are_modern_unless_they_are_ancient() {
        let conf = conf("modern_browser unlisted; ancient_browser Links netscape4;");
        for (agent, modern) in [
            ("Links (0.96)", false),
            ("Mozilla/4.72 [en] (X11)", false),
            ("Mozilla/5.0 (X11)", true),
            ("", true),
        ] {
            assert_eq!(conf.is_modern(Some(agent.as_bytes())), modern, "{agent}");
        }
        assert!(conf.is_modern(None));
    }

    #[test]
    fn mistakes_in_nginx_words() {
        for (line, words) in [
            ("modern_browser lynx 1.0;", "unknown browser name \"lynx\""),
            ("modern_browser msie 1.x;", "invalid browser version \"1.x\""),
            ("modern_browser msie;", "invalid parameter \"msie\""),
        ] {
            let found = conf::test::headlines(&text(line), &MODULES);
            assert!(found[0].starts_with(words), "{line}: {found:?}");
        }
    }

    proptest! {
        #[test]
        fn no_agent_makes_it_panic(agent in "(Mozilla/[0-9]|MSIE |Opera|rv:|[0-9.]{0,12}|[ -~]{0,9}){0,9}") {
            conf("modern_browser msie 5.5; modern_browser gecko 1.0.0;").is_modern(Some(agent.as_bytes()));
        }
    }
}
