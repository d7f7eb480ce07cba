//! `map`: a variable whose value depends on another value, by a table of texts, host names and regular expressions
//! (nginx's `ngx_http_map_module`).
//!
//! Texts are found by hash, whatever their number, without regard to case; then names with wildcards, the longest
//! first; then regular expressions, in order, whose captures the value may use.

use std::sync::Arc;

use weir_conf::names::{HTTP_OR_STREAM, ONE, TWO};
use weir_conf::{Directive, LineCx, Result, Span};
use weir_engine::regex::{GivenUp, LetterCase, RegexPattern};
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Module, Text};

use crate::support::computed::{self, ValueLifetime};
use crate::support::hostnames::{HostKey, HostTable};

/// The module `map`.
pub struct Map;

impl Module for Map {
    const NAME: &'static str = "map";
    type Conf = MapConf;
    const DIRECTIVES: &'static [Directive<MapConf>] = &[
        MapRow::new("map", HTTP_OR_STREAM, TWO.block(), set_map)
            .syntax("map string $variable")
            .doc(
                "Defines a variable whose value depends on another string. Entries of the \
                 block are a source value, a regular expression (`~`, or `~*` regardless of \
                 case) or, after `hostnames`, a host name with a wildcard, and the resulting \
                 value. Special lines: `default`, `hostnames`, `include` and `volatile`.",
            )
            .example(
                "map $http_user_agent $is_mobile {\n\
                 \x20   default         0;\n\
                 \x20   ~*(iphone|android)  1;\n\
                 }",
            ),
        MapRow::new("map_hash_max_size", HTTP_OR_STREAM, ONE, |conf, line| {
            line.number(&mut conf.max_size, ..)
        })
        .syntax("map_hash_max_size size")
        .default("2048")
        .doc(
            "Accepted for compatibility with nginx, without effect: tables have the size \
                 that they need.",
        ),
        MapRow::new("map_hash_bucket_size", HTTP_OR_STREAM, ONE, |conf, line| {
            line.number(&mut conf.bucket_size, ..)
        })
        .syntax("map_hash_bucket_size size")
        .default("64")
        .doc(
            "Accepted for compatibility with nginx, without effect: tables have the size \
                 that they need.",
        ),
    ];
}

/// Gives the closures of the table the type of their argument.
type MapRow = Directive<MapConf>;

/// The settings of the `http` block.
#[derive(Default)]
pub struct MapConf {
    max_size: Option<u64>,
    bucket_size: Option<u64>,
}

/// `map string $variable { ... }`
fn set_map(_conf: &mut MapConf, line: &mut LineCx<'_>) -> Result {
    let source = ValueScript::compile(line, 0)?;
    let name = computed::name(line)?;
    let mut map = MapTable { source, ..MapTable::default() };
    let mut volatile = false;
    for entry in line.entries()? {
        map.entry(&mut line.entry(entry), &mut volatile)?;
    }
    computed::define(line, name, ValueLifetime::of(volatile), move |x| Some(map.find(x)))
}

/// A `map`.
#[derive(Default)]
struct MapTable {
    source: ValueScript,
    default: Option<ValueScript>,
    /// Keys from here on are host names, and may have wildcards.
    hostnames: bool,
    texts: HostTable<ValueScript>,
    patterns: Vec<(Arc<RegexPattern>, ValueScript)>,
}

impl MapTable {
    fn entry(&mut self, entry: &mut LineCx<'_>, volatile: &mut bool) -> Result {
        let key = &entry.line().name;
        match (key.bytes(), entry.args().len()) {
            (b"hostnames", 0) => self.hostnames = true,
            (b"volatile", 0) => *volatile = true,
            (key_bytes, 1) => {
                let value = ValueScript::compile(entry, 0)?;
                return self.add(entry, key_bytes, key.span, value);
            }
            _ => return Err(entry.fail("invalid number of the map parameters")),
        }
        Ok(())
    }

    fn add(&mut self, entry: &mut LineCx<'_>, key: &[u8], span: Span, value: ValueScript) -> Result {
        match key {
            b"default" if self.default.is_some() => Err(entry.fail("duplicate default map parameter")),
            b"default" => {
                self.default = Some(value);
                Ok(())
            }
            [b'~', b'*', pattern @ ..] => self.add_pattern(entry, pattern, span, LetterCase::Ignored, value),
            [b'~', pattern @ ..] => self.add_pattern(entry, pattern, span, LetterCase::Distinct, value),
            [b'\\', text @ ..] => self.add_text(entry, text, value),
            text => self.add_text(entry, text, value),
        }
    }

    fn add_pattern(
        &mut self,
        entry: &mut LineCx<'_>,
        pattern: &[u8],
        span: Span,
        case: LetterCase,
        value: ValueScript,
    ) -> Result {
        self.patterns.push((RegexPattern::compile_text(entry, span, pattern, case)?, value));
        Ok(())
    }

    fn add_text(&mut self, entry: &LineCx<'_>, text: &[u8], value: ValueScript) -> Result {
        let shown = |text| String::from_utf8_lossy(text).into_owned();
        let lower = text.to_ascii_lowercase();
        let key = match self.hostnames {
            true => HostKey::parse(&lower)
                .ok_or_else(|| entry.fail(format!("invalid hostname or wildcard \"{}\"", shown(text))))?,
            false => HostKey::Exact(&lower),
        };
        if !self.texts.insert(key, value) {
            return Err(entry.fail(format!("conflicting parameter \"{}\"", shown(&lower))));
        }
        Ok(())
    }

    fn find(&self, x: &mut Exchange) -> Text {
        let mut source = self.source.value(x);
        let mut bytes = x.text(&source);
        if self.hostnames
            && let [host @ .., b'.'] = bytes
        {
            bytes = host;
        }
        let length = bytes.len();
        if let Some(script) = self.texts.find(bytes) {
            return computed::value(x, script);
        }
        if !self.patterns.is_empty() {
            let mut span = match source {
                Text::Span(span) => span,
                _ => x.arena.append(&source),
            };
            span.end = span.start + length as u32;
            source = Text::Span(span);
            for (pattern, script) in &self.patterns {
                match pattern.captures(x, span) {
                    Ok(true) => return computed::value(x, script),
                    Ok(false) => {}
                    // The default is as nginx has it, but the request ends with 500: what hangs on the value may be
                    // which clients get access.
                    Err(GivenUp) => break,
                }
            }
        }
        drop(source);
        self.default.as_ref().map_or(Text::EMPTY, |script| computed::value(x, script))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_engine::ModuleDef;
    use weir_engine::conf;

    use super::*;
    use crate::testing::core_and;

    static MODULES: [ModuleDef; 4] = core_and::<Map>();

    fn text(lines: &str) -> String {
        format!("events {{ }} http {{ {lines} server {{ }} }}")
    }

    #[test]
    fn mistakes_in_nginx_words() {
        for (lines, words) in [
            ("map $uri x { }", "invalid variable name \"x\""),
            ("map $uri $host { }", "the duplicate \"host\" variable"),
            ("map $uri $x { a; }", "invalid number of the map parameters"),
            ("map $uri $x { a b c; }", "invalid number of the map parameters"),
            ("map $uri $x { default a; default b; }", "duplicate default map parameter"),
            ("map $uri $x { a 1; A 2; }", "conflicting parameter \"a\""),
            ("map $uri $x { hostnames; *.a 1; .a 2; }", "conflicting parameter \".a\""),
            ("map $uri $x { hostnames; a.*.b 1; }", "invalid hostname or wildcard \"a.*.b\""),
            ("map $uri $x { hostnames; a..b 1; }", "invalid hostname or wildcard \"a..b\""),
            ("map $uri $x { hostnames; * 1; }", "invalid hostname or wildcard \"*\""),
            ("map $uri $x { ~( 1; }", "pcre2_compile() failed: missing closing parenthesis in \"(\""),
            ("map $uri $x { ~(?<host>a) 1; }", "the duplicate \"host\" variable"),
            ("map $uri $x { a { } }", "unexpected \"{\""),
            ("map $uri $x { a $b; }", "unknown \"b\" variable"),
            ("map $uri$ $x { }", "invalid variable name"),
            ("map_hash_bucket_size x;", "\"map_hash_bucket_size\" directive invalid number"),
        ] {
            let found = conf::test::headlines(&text(lines), &MODULES);
            assert!(found[0].starts_with(words), "{lines}: {found:?}");
        }
    }

    #[test]
    fn what_nginx_takes_is_taken() {
        for lines in [
            "map $uri $x { a..b 1; * 2; '' 3; \\default 4; }",
            "map $uri $x { volatile; default x; volatile; hostnames; hostnames x; }",
            "map $uri $x { } map $uri $x { }",
            "map_hash_max_size 100000; map_hash_bucket_size 64; map $uri$args $X { a $http_a; }",
        ] {
            assert!(conf::test::load(&text(lines), &MODULES).is_ok(), "{lines}");
        }
    }

    /// Entries that mostly are some.
    fn entry() -> impl Strategy<Value = String> {
        "(default|hostnames;|volatile;|~\\*?[a(+.?<>n)]{1,6}|\\\\?[a*.]{1,5}|'') ?[a$\\\\'{]{0,3};"
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_entries_are_taken_or_refused(entries in proptest::collection::vec(entry(), 0..8)) {
            let lines = format!("map $uri $x {{ {} }}", entries.join(" "));
            if let Err(errors) = conf::test::load(&text(&lines), &MODULES) {
                prop_assert!(errors.contains(conf::test::FILE), "{}: {}", lines, errors);
            }
        }
    }
}
