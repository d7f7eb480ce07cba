//! The lines of the module as they are read; what they do is tested end to end.

use weir_engine::ModuleDef;
use weir_engine::conf;
use weir_engine::conf::{CORE_MODULES, with_core};

use super::*;
use crate::support::value::WorkerValue;

static MODULES: [ModuleDef; CORE_MODULES.len() + 1] = with_core(&[ModuleDef::of::<Rewrite>()]);

fn text(line: &str) -> String {
    format!("events {{ }} http {{ server {{\n{line} }} }}")
}

/// How the server of `line` responds: the kind of response, its status, its text.
fn answer(line: &str) -> String {
    let configuration = conf::test::load(&text(line), &MODULES).unwrap_or_else(|errors| panic!("{errors}"));
    let conf: &RewriteConf = configuration.servers()[0].confs.get();
    let constant = |value| match value {
        WorkerValue::Constant(Text::Shared(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        WorkerValue::Constant(_) => String::new(),
        WorkerValue::Script(_) => "$".to_owned(),
    };
    let Some((_, RewriteInstruction::Return(answer))) = conf.code.first() else { panic!("no return first") };
    match ReturnHandler::new(answer) {
        ReturnHandler::Status(status) => format!("status {status}"),
        ReturnHandler::Redirect(status, value) => format!("redirect {status} {}", constant(value)),
        ReturnHandler::Text(status, value) => format!("text {status} {}", constant(value)),
    }
}

#[test]
fn a_status_may_stand_alone_with_a_text_or_a_target() {
    for (line, expected) in [
        ("return 404;", "status 404"),
        ("return 404 \"\";", "status 404"),
        ("return 404 gone;", "text 404 gone"),
        ("return 444;", "status 444"),
        ("return 200;", "text 200 "),
        ("return 200 ok;", "text 200 ok"),
        ("return 200 $host;", "text 200 $"),
        ("return 204;", "text 204 "),
        ("return 301 /x;", "redirect 301 /x"),
        ("return 308 https://a/;", "redirect 308 https://a/"),
        ("return 305 x;", "text 305 x"),
        ("return http://a/;", "redirect 302 http://a/"),
        ("return $scheme://a/;", "redirect 302 $"),
        ("return 200 first; return 200 second;", "text 200 first"),
    ] {
        assert_eq!(answer(line), expected, "{line}");
    }
}

#[test]
fn wrong_codes_are_refused_in_nginx_words() {
    for (line, code) in
        [("return x;", "x"), ("return 1000;", "1000"), ("return 70000 x;", "70000"), ("return /x y;", "/x")]
    {
        let lines = conf::test::headlines(&text(line), &MODULES);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].ends_with(&format!("invalid return code \"{code}\" in weir.conf:2:8")),
            "{}",
            lines[0]
        );
    }
}

#[test]
fn wrong_lines_are_refused_in_nginx_words() {
    for (line, words) in [
        ("rewrite ^ \"\";", "empty replacement in weir.conf:2:11"),
        ("rewrite ^ /x never;", "invalid parameter \"never\" in weir.conf:2:14"),
        ("rewrite (a /x;", "pcre2_compile() failed: missing closing parenthesis in \"(a\" in weir.conf:2:9"),
        ("rewrite ^ /$;", "invalid variable name in weir.conf:2:11"),
        ("rewrite ^;", "invalid number of arguments in \"rewrite\" directive in weir.conf:2:1"),
        ("set x y;", "invalid variable name \"x\" in weir.conf:2:5"),
        ("set $ y;", "invalid variable name \"$\" in weir.conf:2:5"),
        ("set $host y;", "the duplicate \"host\" variable in weir.conf:2:5"),
        ("set $x $nobody;", "unknown \"nobody\" variable in weir.conf:2:8"),
        ("break now;", "invalid number of arguments in \"break\" directive in weir.conf:2:1"),
        ("if { }", "invalid number of arguments in \"if\" directive in weir.conf:2:1"),
        ("if $host { }", "invalid condition \"$host\" in weir.conf:2:4"),
        ("if () { }", "invalid condition \")\" in weir.conf:2:4"),
        ("if ( ) { }", "invalid condition \")\" in weir.conf:2:6"),
        ("if ( { }", "invalid condition \"(\" in weir.conf:2:4"),
        ("if ) { }", "invalid condition \")\" in weir.conf:2:4"),
        ("if (x()) { }", "invalid condition \"x()\" in weir.conf:2:4"),
        ("if ($host { }", "invalid condition \"$host\" in weir.conf:2:4"),
        ("if ($host =) { }", "invalid condition \"$host\" in weir.conf:2:4"),
        ("if ($host = a b) { }", "invalid condition \"$host\" in weir.conf:2:4"),
        ("if ($host == a) { }", "unexpected \"==\" in condition in weir.conf:2:11"),
        ("if ($host ~ (a) { }", "missing closing parenthesis"),
        ("if (a = b) { }", "invalid condition \"a\" in weir.conf:2:4"),
        ("if (-f) { }", "invalid condition \"-f\" in weir.conf:2:4"),
        ("if (-q /x) { }", "invalid condition \"-q\" in weir.conf:2:4"),
        ("if (!-f /x /y) { }", "invalid condition \"!-f\" in weir.conf:2:4"),
        ("if ($nobody) { }", "unknown \"nobody\" variable in weir.conf:2:4"),
        ("if ($host) { if ($host) { } }", "\"if\" directive is not allowed here in weir.conf:2:14"),
        ("if ($host) { root /x; }", "\"root\" directive is not allowed here in weir.conf:2:14"),
    ] {
        let lines = conf::test::headlines(&text(line), &MODULES);
        let fitting = lines.iter().filter(|found| found.contains(words)).count();
        assert_eq!((lines.len(), fitting), (1, 1), "{line}: {lines:?}");
    }
}

#[test]
fn conditions_in_every_spelling() {
    for (line, shape) in [
        ("if ($host) { }", "set"),
        ("if ( $host ) { }", "set"),
        ("if ($host = a) { }", "equal false"),
        ("if ( $host != a ) { }", "equal true"),
        ("if ($host = ()) { }", "equal false"),
        ("if ($host = () { }", "equal false"),
        ("if ($host = \"\") { }", "equal false"),
        ("if ($host ~ ^a) { }", "~ ^a false"),
        ("if ($host ~* \"^(a b)$\") { }", "~* ^(a b)$ false"),
        ("if ($host !~ a ) { }", "~ a true"),
        ("if ($host !~* a) { }", "~* a true"),
        ("if (-f $document_root/x) { }", "Plain false"),
        ("if (!-f /x) { }", "Plain true"),
        ("if ( -d /x) { }", "Dir false"),
        ("if (!-d /x ) { }", "Dir true"),
        ("if (-e /x) { }", "Exists false"),
        ("if (!-e /x) { }", "Exists true"),
        ("if (-x /x) { }", "Exec false"),
        ("if (!-x /x) { }", "Exec true"),
    ] {
        let configuration =
            conf::test::load(&text(line), &MODULES).unwrap_or_else(|errors| panic!("{errors}"));
        let conf: &RewriteConf = configuration.servers()[0].confs.get();
        let Some((_, RewriteInstruction::If(condition, 0))) = conf.code.first() else {
            panic!("no if in {line}")
        };
        let found = match condition {
            IfCondition::Set(_) => "set".to_owned(),
            IfCondition::Equal(_, _, negative) => format!("equal {negative}"),
            IfCondition::Match(_, pattern, negative) => format!("{} {negative}", pattern.name()),
            IfCondition::File(test, _, negative) => format!("{test:?} {negative}"),
        };
        assert_eq!(found, shape, "{line}");
    }
}

#[test]
fn blocks_inside_have_settings_and_inherit_the_rest() {
    let inside = "set $a 1; location / { rewrite_log on; if ($a) { root /b; } set $b 1;
        if ($b) { break; uninitialized_variable_warn off; } location /c { if ($a) { } } }";
    let configuration = conf::test::load(&text(inside), &MODULES).unwrap_or_else(|errors| panic!("{errors}"));
    let location = &configuration.servers()[0].locations[0];
    assert_eq!((location.nested.len(), location.locations[0].nested.len()), (2, 1));
    let last = location.nested[1].get::<RewriteConf>();
    assert_eq!((last.log, last.warn, last.code.len()), (Some(true), Some(false), 1));
    let indexes = location.confs.get::<RewriteConf>().code.iter().filter_map(|instruction| {
        let (_, RewriteInstruction::If(_, index)) = instruction else { return None };
        Some(*index)
    });
    assert_eq!(indexes.collect::<Vec<_>>(), [0, 1]);
}
