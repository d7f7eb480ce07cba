//! `rewrite`: so far its `return` alone, in server blocks and locations.
//!
//! The names and order of the answers are those of nginx's `ngx_http_send_response`: redirects are statuses, so
//! that `error_page` may take them up; a text goes out as it is, whatever the status.

use weir_conf::names::{LOCATION, LOCATION_IF, ONE_OR_TWO, SERVER, SERVER_IF};
use weir_conf::{Directive, LineCx, Result, parse_number};
use weir_core::body::{Body, Buf};
use weir_core::plan::{Level, PlanBuilder};
use weir_core::variable::Script;
use weir_core::{Exchange, Handler, Module, Outcome, Phase, Text, Verdict};

use crate::value::Value;

/// The module.
pub struct Rewrite;

impl Module for Rewrite {
    const NAME: &'static str = "rewrite";
    type Conf = RewriteConf;
    const DIRECTIVES: &'static [Directive<RewriteConf>] = &[Directive::new(
        "return",
        SERVER.or(LOCATION).or(SERVER_IF).or(LOCATION_IF),
        ONE_OR_TWO,
        RewriteConf::set_return,
    )
    .doc("Ends processing with a status, a text or a redirect; 444 closes the connection.")];

    /// Nothing is inherited: each block has its own instructions.
    fn install(conf: &RewriteConf, plan: &mut PlanBuilder<'_>) -> Result {
        let Some(answer) = &conf.answer else { return Ok(()) };
        let phase = if plan.level == Level::Server { Phase::ServerRewrite } else { Phase::Rewrite };
        plan.handler(phase, Self::NAME, Return::new(answer));
        Ok(())
    }
}

/// The instructions of one block.
#[derive(Default)]
pub struct RewriteConf {
    /// The first `return`; none behind it is ever reached.
    answer: Option<Answer>,
}

/// A `return` as written.
#[derive(Clone, Debug)]
struct Answer {
    status: u16,
    text: Script,
}

impl RewriteConf {
    fn set_return(&mut self, line: &mut LineCx<'_>) -> Result {
        let answer = Answer::parse(line)?;
        self.answer.get_or_insert(answer);
        Ok(())
    }
}

impl Answer {
    fn parse(line: &mut LineCx<'_>) -> Result<Answer> {
        let word = line.bytes(0);
        let alone = line.args().len() == 1;
        let status = parse_number(word).and_then(|number| u16::try_from(number).ok());
        match status.filter(|status| *status <= 999) {
            Some(status) if alone => Ok(Answer { status, text: Script::default() }),
            Some(status) => Ok(Answer { status, text: Script::compile(line, 1)? }),
            None if alone && is_address(word) => Ok(Answer { status: 302, text: Script::compile(line, 0)? }),
            None => Err(line.fail_arg(0, format!("invalid return code \"{}\"", line.arg(0)))),
        }
    }
}

/// What may stand alone in place of a status.
fn is_address(word: &[u8]) -> bool {
    [&b"http://"[..], b"https://", b"$scheme"].iter().any(|start| word.starts_with(start))
}

/// A `return` on one worker.
enum Return {
    /// Answered with the status' page, or an `error_page`.
    Status(u16),
    /// The same, with `Location`.
    Redirect(u16, Value),
    /// Answered with this text.
    Text(u16, Value),
}

impl Return {
    fn new(answer: &Answer) -> Return {
        let empty = answer.text.constant() == Some(b"");
        match answer.status {
            status @ (301 | 302 | 303 | 307 | 308) => Return::Redirect(status, Value::new(&answer.text)),
            status if status >= 400 && empty => Return::Status(status),
            status => Return::Text(status, Value::new(&answer.text)),
        }
    }
}

impl Handler for Return {
    fn handle<'x>(&'x self, x: &'x mut Exchange) -> Outcome<'x> {
        match self {
            Return::Status(status) => Verdict::Status(*status),
            Return::Redirect(status, target) => {
                x.response.location = Some(target.get(x));
                Verdict::Status(*status)
            }
            Return::Text(status, text) => {
                x.response.status = *status;
                let text = text.get(x);
                let buf = buf(x, text);
                x.response.content_length = Some(buf.len());
                x.set_content_type();
                Verdict::Respond(Body::Whole(buf))
            }
        }
        .into()
    }
}

/// A body of `text`; only what was computed for this request is copied.
fn buf(x: &Exchange, text: Text) -> Buf {
    match text {
        Text::Static(bytes) => Buf::Static(bytes),
        Text::Shared(bytes) => Buf::shared(bytes),
        Text::Span(span) => Buf::Bytes(x.arena.get(span).to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use weir_core::ModuleDef;
    use weir_core::conf;
    use weir_core::conf::http_core::HttpCore;
    use weir_core::conf::main_core::MainCore;
    use weir_core::conf::server_core::ServerCore;

    use super::*;

    static MODULES: [ModuleDef; 4] = [
        ModuleDef::of::<MainCore>(),
        ModuleDef::of::<HttpCore>(),
        ModuleDef::of::<ServerCore>(),
        ModuleDef::of::<Rewrite>(),
    ];

    fn text(line: &str) -> String {
        format!("events {{ }} http {{ server {{\n{line} }} }}")
    }

    /// What the server of `line` answers: the kind of answer, its status, its text.
    fn answer(line: &str) -> String {
        let configuration =
            conf::test::load(&text(line), &MODULES).unwrap_or_else(|errors| panic!("{errors}"));
        let conf: &RewriteConf = configuration.servers[0].confs.get();
        let constant = |value| match value {
            Value::Constant(Text::Shared(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Value::Constant(_) => String::new(),
            Value::Script(_) => "$".to_owned(),
        };
        match Return::new(conf.answer.as_ref().expect("there is a return")) {
            Return::Status(status) => format!("status {status}"),
            Return::Redirect(status, value) => format!("redirect {status} {}", constant(value)),
            Return::Text(status, value) => format!("text {status} {}", constant(value)),
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
        for (line, code) in [
            ("return x;", "x"),
            ("return 1000;", "1000"),
            ("return 70000 x;", "70000"),
            ("return /x y;", "/x"),
        ] {
            let lines = conf::test::headlines(&text(line), &MODULES);
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(
                lines[0].ends_with(&format!("invalid return code \"{code}\" in weir.conf:2:8")),
                "{}",
                lines[0]
            );
        }
    }
}
