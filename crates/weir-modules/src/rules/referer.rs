//! `referer`: checks the page that a request was made from against a list (nginx's `ngx_http_referer_module`).

use std::sync::Arc;

use weir_conf::names::{LOCATION, MORE, ONE, SERVER};
use weir_conf::{Directive, Error, LineCx, Result, Span};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::plan::PlanBuilder;
use weir_engine::regex::{LetterCase, RegexPattern};
use weir_engine::variable::Variable;
use weir_engine::{Exchange, Module, Text, inherit};
use weir_http::KnownField;

use crate::support::hostnames::{HostKey, HostTable};

/// The module `referer`.
pub struct Referer;

impl Module for Referer {
    const NAME: &'static str = "referer";
    type Conf = RefererConf;
    const DIRECTIVES: &'static [Directive<RefererConf>] = &[
        RefererRow::new("valid_referers", SERVER.or(LOCATION), MORE, RefererConf::add)
            .syntax("valid_referers none | blocked | server_names | string ...")
            .doc(
                "Values of the `Referer` field for which `$invalid_referer` is empty. `none` means \
                 that the field is absent, `blocked` that it has neither `http://` nor `https://`, \
                 and `server_names` one of the server's names. Others are a host name with \
                 optional wildcard and path, or a regular expression (`~`) for the text after the \
                 scheme.",
            )
            .example(
                "valid_referers none blocked server_names *.example.com;\n\
                 if ($invalid_referer) {\n\
                 \x20   return 403;\n\
                 }",
            ),
        RefererRow::new("referer_hash_max_size", SERVER.or(LOCATION), ONE, |conf, line| {
            line.number(&mut conf.max_size, ..)
        })
        .syntax("referer_hash_max_size size")
        .default("2048")
        .doc(
            "Accepted for compatibility with nginx, without effect: tables have the size that \
             they need.",
        ),
        RefererRow::new("referer_hash_bucket_size", SERVER.or(LOCATION), ONE, |conf, line| {
            line.number(&mut conf.bucket_size, ..)
        })
        .syntax("referer_hash_bucket_size size")
        .default("64")
        .doc(
            "Accepted for compatibility with nginx, without effect: tables have the size that \
             they need.",
        ),
    ];
    const VARIABLES: &'static [Variable] = &[Variable::new("invalid_referer", invalid_referer).changeable()];

    fn inherit(conf: &mut RefererConf, parent: &RefererConf) {
        inherit!(conf, parent, max_size, bucket_size);
        match (&mut conf.own, &parent.valid) {
            (None, valid) => conf.valid = valid.clone(),
            // Names replace those around, patterns are inherited by themselves.
            (Some(own), Some(around)) if own.valid.patterns.is_empty() => {
                own.valid.patterns = around.patterns.clone();
            }
            _ => {}
        }
    }

    fn resolve(conf: &mut RefererConf, _: &mut ConfRegistry) -> Result {
        let Some(own) = conf.own.take() else { return Ok(()) };
        if (own.valid.none || own.valid.blocked) && own.valid.names.is_empty() && !own.valid.server_names {
            return Err(Error::new(
                "the \"none\" or \"blocked\" referers are specified in the \"valid_referers\" directive \
                 without any valid referer",
            )
            .at(own.span));
        }
        conf.valid = Some(Arc::new(own.valid));
        Ok(())
    }

    fn install(conf: &RefererConf, plan: &mut PlanBuilder<'_>) {
        if let Some(valid) = &conf.valid {
            plan.keep(valid.clone());
        }
    }
}

/// Gives the closures of the table the type of their argument.
type RefererRow = Directive<RefererConf>;

/// The settings of one block.
#[derive(Default)]
pub struct RefererConf {
    /// The block's own lines, until they are resolved.
    own: Option<OwnReferers>,
    /// Those that count in it.
    valid: Option<Arc<ValidReferers>>,
    max_size: Option<u64>,
    bucket_size: Option<u64>,
}

struct OwnReferers {
    valid: ValidReferers,
    span: Span,
}

/// Whom a location lets in.
#[derive(Default)]
struct ValidReferers {
    /// Requests without the field.
    none: bool,
    /// Fields that begin neither with http:// nor https://.
    blocked: bool,
    /// The server's own names.
    server_names: bool,
    /// By name; the path must begin so, where there is one.
    names: HostTable<Option<Arc<[u8]>>>,
    /// Of what follows the scheme.
    patterns: Vec<Arc<RegexPattern>>,
}

impl RefererConf {
    fn add(&mut self, line: &mut LineCx<'_>) -> Result {
        let span = line.line().name.span;
        let valid =
            &mut self.own.get_or_insert_with(|| OwnReferers { valid: ValidReferers::default(), span }).valid;
        for at in 0..line.args().len() {
            match line.bytes(at) {
                b"" => return Err(line.fail_arg(at, "invalid referer \"\"")),
                b"none" => valid.none = true,
                b"blocked" => valid.blocked = true,
                b"server_names" => valid.server_names = true,
                b"~" => return Err(line.fail_arg(at, "empty regex in \"~\"")),
                [b'~', ..] => valid.patterns.push(RegexPattern::compile(line, at, 1, LetterCase::Ignored)?),
                name => valid.add_name(line, at, name)?,
            }
        }
        Ok(())
    }
}

impl ValidReferers {
    fn add_name(&mut self, line: &LineCx<'_>, at: usize, text: &[u8]) -> Result {
        let cut = text.iter().position(|byte| *byte == b'/').unwrap_or(text.len());
        let (name, path) = text.split_at(cut);
        let shown = || String::from_utf8_lossy(name).into_owned();
        let lower = name.to_ascii_lowercase();
        let key = HostKey::parse(&lower)
            .ok_or_else(|| line.fail_arg(at, format!("invalid hostname or wildcard \"{}\"", shown())))?;
        let path = (!path.is_empty()).then(|| Arc::from(path));
        match self.names.insert(key, path) {
            true => Ok(()),
            false => Err(line.fail_arg(at, format!("conflicting parameter \"{}\"", shown()))),
        }
    }

    /// Whether the request comes from where it may. A pattern that is given up does not let it in, and ends it with 500.
    fn lets_in(&self, x: &Exchange) -> bool {
        if self.names.is_empty() && self.patterns.is_empty() && !self.server_names {
            return true;
        }
        let Some(value) = x.request.value(&x.arena, KnownField::Referer) else { return self.none };
        let Some(rest) = behind_scheme(value) else { return self.blocked };
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b':')).unwrap_or(rest.len());
        let name = &rest[..end];
        if name.len() > LONGEST {
            return false;
        }
        match self.names.find(name) {
            Some(None) => true,
            Some(Some(path)) => {
                let path_of = rest[end..]
                    .iter()
                    .position(|byte| *byte == b'/')
                    .map_or(&b""[..], |at| &rest[end + at..]);
                path_of.starts_with(path)
            }
            None => {
                (self.server_names && x.is_server_name(&name.to_ascii_lowercase()))
                    || self.patterns.iter().any(|pattern| pattern.is_match_for(x, rest).unwrap_or(false))
            }
        }
    }
}

/// What follows `http://` or `https://`; `None` without them, and for what is too short to be an address.
fn behind_scheme(value: &[u8]) -> Option<&[u8]> {
    let without = |scheme: &[u8]| {
        let (start, rest) = value.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    if value.len() < b"http://i.ru".len() {
        return None;
    }
    without(b"http://").or_else(|| without(b"https://"))
}

/// `$invalid_referer`: `1`, or empty for pages that requests may come from.
fn invalid_referer(x: &mut Exchange) -> Option<Text> {
    let plan = x.plan.clone();
    let valid = plan.kept::<Arc<ValidReferers>>().is_none_or(|valid| valid.lets_in(x));
    Some(if valid { Text::EMPTY } else { Text::Static(b"1") })
}

/// nginx's longest name.
const LONGEST: usize = 256;

#[cfg(test)]
mod tests {
    use weir_engine::testing::value;

    use crate::testing::{WITH_ONE, asked, whole_core_and};

    use weir_engine::ModuleDef;
    use weir_engine::conf;

    use super::*;
    use crate::testing::core_and;

    static MODULES: [ModuleDef; 4] = core_and::<Referer>();

    #[test]
    fn mistakes_in_nginx_words() {
        for (line, words) in [
            (
                "valid_referers none;",
                "the \"none\" or \"blocked\" referers are specified in the \"valid_referers\"",
            ),
            ("valid_referers ~;", "empty regex in \"~\""),
            ("valid_referers '';", "invalid referer \"\""),
            ("valid_referers a.*.b;", "invalid hostname or wildcard \"a.*.b\""),
            ("valid_referers a.b A.b/x;", "conflicting parameter \"A.b\""),
            ("valid_referers ~(;", "pcre2_compile() failed: missing closing parenthesis in \"(\""),
        ] {
            let found =
                conf::test::headlines(&format!("events {{ }} http {{ server {{ {line} }} }}"), &MODULES);
            assert!(found[0].starts_with(words), "{line}: {found:?}");
        }
    }

    #[test]
    fn what_stands_behind_the_scheme() {
        for (value, rest) in [
            ("http://i.ru", Some("i.ru")),
            ("HTTPS://Example.com/", Some("Example.com/")),
            ("http://i.r", None),
            ("ftp://example.com/", None),
            ("", None),
        ] {
            assert_eq!(behind_scheme(value.as_bytes()), rest.map(str::as_bytes), "{value}");
        }
    }

    static WHOLE: [ModuleDef; WITH_ONE] = whole_core_and::<Referer>();

    /// Whether a request with this `Referer` is from where it may be; empty: without the field.
    fn is_valid(server: &str, referer: &str) -> bool {
        let field = format!("Referer: {referer}\r\n");
        let fields = if referer.is_empty() { "" } else { &field };
        let invalid =
            asked(&WHOLE, &format!("server {{ {server} }}"), ("/", fields), |x| value(x, "invalid_referer"));
        match invalid.as_deref() {
            Some("") => true,
            Some("1") => false,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_what_is_listed_is_valid() {
        let long = |name: usize| format!("http://{}.example.net/", "a".repeat(name - ".example.net".len()));
        for (list, valid, invalid) in [
            ("", vec!["", "x", "http://other.example/"], vec![]),
            (
                "none example.com",
                vec!["", "http://example.com/", "HTTPS://Example.COM:80/x"],
                vec!["x", "http://other.com/"],
            ),
            ("blocked example.com", vec!["x", "ftp://example.com/"], vec!["", "http://other.com/"]),
            (
                "example.com",
                vec!["http://example.com"],
                vec!["", "x", "http://a.example.com/", "http://example.com.a/"],
            ),
            (
                "example.com/ok",
                vec!["http://example.com/ok", "http://example.com:80/okay"],
                vec![
                    "http://example.com/no",
                    "http://example.com",
                    "http://example.com/a/ok",
                    "http://example.com:80",
                ],
            ),
            ("*.example.com", vec!["http://a.example.com/"], vec!["http://example.com/"]),
            ("~\\.google\\.", vec!["http://www.Google.com/"], vec!["http://google.com/", ""]),
            ("*.example.net", vec![&*long(256)], vec![&*long(257)]),
        ] {
            let line = if list.is_empty() { String::new() } else { format!("valid_referers {list};") };
            for referer in valid {
                assert!(is_valid(&line, referer), "{list}: {referer}");
            }
            for referer in invalid {
                assert!(!is_valid(&line, referer), "{list}: {referer}");
            }
        }
    }

    #[test]
    fn the_server_s_names_are_valid_where_they_are_listed() {
        let names = "server_name x.example *.y.example .z.example w.* ~^r[0-9]+$;";
        let listed = format!("{names} valid_referers server_names;");
        for (host, valid) in [
            ("x.example", true),
            ("X.Example", true),
            ("a.x.example", false),
            ("a.y.example", true),
            ("y.example", false),
            (".y.example", false),
            ("z.example", true),
            ("a.z.example", true),
            ("az.example", false),
            ("w.example", true),
            ("w.", false),
            ("aw.example", false),
            ("r12", true),
            ("r12x", false),
        ] {
            assert_eq!(is_valid(&listed, &format!("http://{host}/page")), valid, "{host}");
            assert!(!is_valid(
                &format!("{names} valid_referers other.example;"),
                &format!("http://{host}/page")
            ));
        }
        assert!(!is_valid(&listed, ""));
    }

    #[test]
    fn a_block_s_own_names_replace_those_around_and_patterns_stay() {
        let around = "valid_referers none example.com ~google;";
        let inside = |lines: &str| format!("{around} location / {{ {lines} }}");
        for (lines, referer, valid) in [
            ("", "http://example.com/", true),
            ("", "http://google.com/", true),
            ("", "http://other.com/", false),
            ("", "", true),
            ("valid_referers other.com;", "http://other.com/", true),
            ("valid_referers other.com;", "http://example.com/", false),
            ("valid_referers other.com;", "http://google.com/", true),
            ("valid_referers other.com;", "", false),
            ("valid_referers ~other;", "http://google.com/", false),
            ("valid_referers ~other;", "http://other.com/", true),
        ] {
            assert_eq!(is_valid(&inside(lines), referer), valid, "{lines} {referer}");
        }
    }

    #[test]
    fn none_and_blocked_alone_are_refused_and_server_names_are_enough() {
        let text = |line: &str| format!("events {{ }} http {{ server {{ valid_referers {line}; }} }}");
        for line in ["none", "blocked", "none ~x"] {
            assert!(conf::test::load(&text(line), &MODULES).is_err(), "{line}");
        }
        for line in ["none server_names", "blocked a.b", "~x", "server_names"] {
            assert!(conf::test::load(&text(line), &MODULES).is_ok(), "{line}");
        }
    }
}
