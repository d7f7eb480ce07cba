//! `echo`: responses composed of text, delays, subrequests and the request itself, for tests and debugging (as in
//! echo-nginx-module).

mod around;
mod variables;

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_conf::names::{ANY_NUMBER, LOCATION, LOCATION_IF, MORE, NONE, ONE, ONE_OR_TWO, TWO};
use weir_conf::{Contexts, Directive, LineCx, Result};
use weir_engine::body::{BodyBuf, BodyChain};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::error::EngineError;
use weir_engine::filter::FilterSlot;
use weir_engine::phase::LocalFuture;
use weir_engine::plan::PlanBuilder;
use weir_engine::redirect::InternalRedirect;
use weir_engine::subrequest::IncludedRequest;
use weir_engine::variable::{ValueScript, Variable};
use weir_engine::{Exchange, Handler, Module, UnnamedBlock, Verdict, inherit};
use weir_http::{Method, uri};
use weir_trace::SiteKind;

use around::EchoAround;
use variables::{EchoIt, EchoTimer};

/// The module `echo`.
pub struct Echo;

impl Module for Echo {
    const NAME: &'static str = "echo";
    type Conf = EchoConf;
    const DIRECTIVES: &'static [Directive<EchoConf>] = &[
        EchoRow::new("echo", HERE, ANY_NUMBER, EchoConf::echo)
            .syntax("echo [-n] [--] [string] ...")
            .doc(
                "Sends its arguments, separated by spaces and followed by a newline; `-n` \
                 omits the newline, `--` ends the options.",
            )
            .example(
                "location /hello {\n\
                 \x20   default_type text/plain;\n\
                 \x20   echo \"Hello, $remote_addr\";\n\
                 }",
            ),
        EchoRow::new("echo_duplicate", HERE, TWO, |conf, line| {
            let command =
                EchoCommand::Duplicate(ValueScript::compile(line, 0)?, ValueScript::compile(line, 1)?);
            conf.push(line, command)
        })
        .syntax("echo_duplicate count string")
        .doc("Sends the string `count` times."),
        EchoRow::new("echo_flush", HERE, NONE, |conf, line| conf.push(line, EchoCommand::Flush))
            .syntax("echo_flush")
            .doc("Sends all output so far to the client immediately."),
        EchoRow::new("echo_sleep", HERE, ONE, |conf, line| {
            let command = EchoCommand::Sleep(ValueScript::compile(line, 0)?);
            conf.push(line, command)
        })
        .syntax("echo_sleep seconds")
        .doc(
            "Waits for this time, in seconds with up to three decimal places, without \
             blocking the worker.",
        ),
        EchoRow::new("echo_blocking_sleep", HERE, ONE, |conf, line| {
            let command = EchoCommand::Block(ValueScript::compile(line, 0)?);
            conf.push(line, command)
        })
        .syntax("echo_blocking_sleep seconds")
        .doc(
            "Blocks the whole worker for this time, in seconds; for tests of what a blocked \
             event loop does.",
        ),
        EchoRow::new("echo_foreach_split", HERE, TWO, |conf, line| {
            let command =
                EchoCommand::Foreach(ValueScript::compile(line, 0)?, ValueScript::compile(line, 1)?);
            conf.push(line, command)
        })
        .syntax("echo_foreach_split delimiter string")
        .doc(
            "Executes the directives up to `echo_end` for each part of the string between \
             delimiters; the part is in `$echo_it`.",
        ),
        EchoRow::new("echo_end", HERE, NONE, |conf, line| conf.push(line, EchoCommand::End))
            .syntax("echo_end")
            .doc("Ends the body of `echo_foreach_split`."),
        EchoRow::new("echo_before_body", HERE, ANY_NUMBER, |conf, line| {
            conf.before.push(EchoLine::parse(line)?);
            Ok(())
        })
        .syntax("echo_before_body [-n] [--] [string] ...")
        .doc("Sends its arguments, as `echo` does, before the response body of any content handler."),
        EchoRow::new("echo_after_body", HERE, ANY_NUMBER, |conf, line| {
            conf.after.push(EchoLine::parse(line)?);
            Ok(())
        })
        .syntax("echo_after_body [-n] [--] [string] ...")
        .doc("Sends its arguments, as `echo` does, after the response body of any content handler."),
        EchoRow::new("echo_reset_timer", HERE, NONE, |conf, line| conf.push(line, EchoCommand::ResetTimer))
            .syntax("echo_reset_timer")
            .doc("Restarts the timer of `$echo_timer_elapsed`."),
        EchoRow::new("echo_read_request_body", HERE, NONE, |conf, line| {
            conf.push(line, EchoCommand::ReadBody)
        })
        .syntax("echo_read_request_body")
        .doc("Reads the request body, so that `$request_body` and `echo_request_body` have it."),
        EchoRow::new("echo_request_body", HERE, NONE, |conf, line| conf.push(line, EchoCommand::SayBody))
            .syntax("echo_request_body")
            .doc("Sends the request body that has been read."),
        EchoRow::new("echo_location", HERE, ONE_OR_TWO, |conf, line| {
            conf.location(line, SubrequestOrder::Waits)
        })
        .syntax("echo_location uri [arguments]")
        .doc(
            "Sends the response body of a GET subrequest; the next directive runs after \
                 the subrequest completes.",
        ),
        EchoRow::new("echo_location_async", HERE, ONE_OR_TWO, |conf, line| {
            conf.location(line, SubrequestOrder::Async)
        })
        .syntax("echo_location_async uri [arguments]")
        .doc(
            "Like `echo_location`, without waiting for the subrequest; output keeps the \
                 order of the directives.",
        ),
        EchoRow::new("echo_subrequest", HERE, MORE, |conf, line| {
            conf.subrequest(line, SubrequestOrder::Waits)
        })
        .syntax("echo_subrequest method uri [-q arguments] [-b body] [-f file]")
        .doc(
            "Like `echo_location`, with a method, and optionally query arguments and a \
                 request body, given as text or as a file.",
        ),
        EchoRow::new("echo_subrequest_async", HERE, MORE, |conf, line| {
            conf.subrequest(line, SubrequestOrder::Async)
        })
        .syntax("echo_subrequest_async method uri [-q arguments] [-b body] [-f file]")
        .doc(
            "Like `echo_subrequest`, without waiting for the subrequest; output keeps the \
                 order of the directives.",
        ),
        EchoRow::new("echo_exec", HERE, ONE_OR_TWO, |conf, line| {
            let target = ValueScript::compile(line, 0)?;
            let args = if line.args().len() > 1 { Some(ValueScript::compile(line, 1)?) } else { None };
            conf.push(line, EchoCommand::Exec(target, args))
        })
        .syntax("echo_exec uri [arguments]\necho_exec @name")
        .doc("Redirects internally to another location, by URI or by name."),
        EchoRow::new("echo_status", HERE, ONE, |conf, line| line.number(&mut conf.status, 100..=999))
            .syntax("echo_status code")
            .default("200")
            .doc("Status of the response that `echo` and its like make, 100 to 999."),
    ];
    const VARIABLES: &'static [Variable] = variables::VARIABLES;

    fn nest(conf: &mut EchoConf, parent: &EchoConf, block: UnnamedBlock) {
        if block == UnnamedBlock::If && conf.commands.is_empty() {
            conf.commands = parent.commands.clone();
        }
    }

    fn inherit(conf: &mut EchoConf, parent: &EchoConf) {
        inherit!(conf, parent, status);
        for (own, around) in [(&mut conf.before, &parent.before), (&mut conf.after, &parent.after)] {
            if own.is_empty() {
                own.clone_from(around);
            }
        }
    }

    fn install(conf: &EchoConf, plan: &mut PlanBuilder<'_>) {
        if !conf.commands.is_empty() {
            let status = conf.status.unwrap_or(200);
            plan.content(Self::NAME, EchoHandler { commands: conf.commands.as_slice().into(), status });
        }
        if !conf.before.is_empty() || !conf.after.is_empty() {
            let body = plan.site(SiteKind::BodyFilter, Self::NAME);
            plan.header_filter(FilterSlot::Aux, Self::NAME, EchoAround::new(body, &conf.before, &conf.after));
        }
    }
}

/// Gives the closures of the table the type of their argument.
type EchoRow = Directive<EchoConf>;

const HERE: Contexts = LOCATION.or(LOCATION_IF);

/// The settings of one block.
#[derive(Default)]
pub struct EchoConf {
    commands: Vec<EchoCommand>,
    before: Vec<EchoLine>,
    after: Vec<EchoLine>,
    status: Option<u16>,
}

/// One directive.
#[derive(Clone)]
enum EchoCommand {
    Echo(EchoLine),
    Duplicate(ValueScript, ValueScript),
    Flush,
    Sleep(ValueScript),
    Block(ValueScript),
    /// The delimiter and the text.
    Foreach(ValueScript, ValueScript),
    End,
    ResetTimer,
    ReadBody,
    SayBody,
    Subrequest(EchoSubrequest),
    Exec(ValueScript, Option<ValueScript>),
}

/// When the next directive runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SubrequestOrder {
    /// After the subrequest.
    Waits,
    /// At once.
    Async,
}

#[derive(Clone)]
struct EchoSubrequest {
    method: Method,
    path: ValueScript,
    args: Option<ValueScript>,
    body: Option<ValueScript>,
    /// A path below the prefix, of a file whose content is the body.
    file: Option<(PathBuf, ValueScript)>,
    order: SubrequestOrder,
}

/// The arguments of `echo` and its like.
#[derive(Clone)]
struct EchoLine {
    words: Vec<ValueScript>,
    /// A line's end is after them.
    ends: bool,
}

impl EchoLine {
    fn parse(line: &mut LineCx<'_>) -> Result<EchoLine> {
        let mut from = 0;
        let mut ends = true;
        while let Some(word) = line.args().get(from).map(|word| word.bytes()) {
            match word {
                b"-n" => ends = false,
                b"--" => {
                    from += 1;
                    break;
                }
                _ => break,
            }
            from += 1;
        }
        let words =
            (from..line.args().len()).map(|at| ValueScript::compile(line, at)).collect::<Result<_>>()?;
        Ok(EchoLine { words, ends })
    }

    fn say(&self, x: &mut Exchange, said: &mut Vec<u8>) {
        for (at, word) in self.words.iter().enumerate() {
            if at > 0 {
                said.push(b' ');
            }
            let word = word.value(x);
            said.extend_from_slice(x.text(&word));
        }
        if self.ends {
            said.push(b'\n');
        }
    }
}

impl EchoConf {
    /// The first of a block's commands makes `echo` the content handler there.
    fn push(&mut self, line: &mut LineCx<'_>, command: EchoCommand) -> Result {
        if self.commands.is_empty() {
            line.ext::<ConfRegistry>().claim_content(Echo::NAME);
        }
        self.commands.push(command);
        Ok(())
    }

    fn echo(&mut self, line: &mut LineCx<'_>) -> Result {
        let said = EchoLine::parse(line)?;
        self.push(line, EchoCommand::Echo(said))
    }

    fn location(&mut self, line: &mut LineCx<'_>, order: SubrequestOrder) -> Result {
        let path = ValueScript::compile(line, 0)?;
        let args = if line.args().len() > 1 { Some(ValueScript::compile(line, 1)?) } else { None };
        self.push(
            line,
            EchoCommand::Subrequest(EchoSubrequest {
                method: Method::Get,
                path,
                args,
                body: None,
                file: None,
                order,
            }),
        )
    }

    fn subrequest(&mut self, line: &mut LineCx<'_>, order: SubrequestOrder) -> Result {
        if line.args().len() < 2 || line.args().len() % 2 == 1 {
            return Err(line.refuse("needs a method, a path, and options with values"));
        }
        let method = Method::parse(line.bytes(0));
        let path = ValueScript::compile(line, 1)?;
        let (mut args, mut body, mut file) = (None, None, None);
        for at in (2..line.args().len()).step_by(2) {
            let value = ValueScript::compile(line, at + 1)?;
            match line.bytes(at) {
                b"-q" => args = Some(value),
                b"-b" => body = Some(value),
                b"-f" => file = Some((line.paths().prefix.clone(), value)),
                _ => return Err(line.invalid_parameter(at)),
            }
        }
        if body.is_some() && file.is_some() {
            return Err(line.refuse("takes either -b or -f"));
        }
        self.push(line, EchoCommand::Subrequest(EchoSubrequest { method, path, args, body, file, order }))
    }
}

struct EchoHandler {
    commands: Box<[EchoCommand]>,
    status: u16,
}

impl Handler for EchoHandler {
    fn handle(&self, _: &mut Exchange) -> Verdict {
        Verdict::Wait
    }

    fn wait<'x>(&'x self, x: &'x mut Exchange) -> LocalFuture<'x, Verdict> {
        Box::pin(async {
            match self.say(x).await {
                Ok(verdict) => verdict,
                Err(error) if x.response.status == 0 => Verdict::Status(error.status()),
                Err(error) => Verdict::Close(error.status()),
            }
        })
    }
}

impl EchoHandler {
    async fn say(&self, x: &mut Exchange) -> std::result::Result<Verdict, EngineError> {
        let mut each: Option<EchoLoop> = None;
        let mut at = 0;
        while let Some(command) = self.commands.get(at) {
            at += 1;
            match command {
                EchoCommand::ReadBody => x.read_body().await?,
                EchoCommand::ResetTimer => *x.state::<EchoTimer>() = EchoTimer(Some(weir_rt::now_ms())),
                EchoCommand::Sleep(seconds) => sleep(x, seconds).await,
                EchoCommand::Block(seconds) => block(x, seconds).await,
                EchoCommand::Exec(target, args) => return Ok(exec(x, target, args.as_ref())),
                EchoCommand::Flush => self.send(x, BodyChain::flush()).await?,
                EchoCommand::Subrequest(subrequest) => self.include(x, subrequest).await?,
                EchoCommand::Foreach(..) if each.is_some() => {
                    x.log_error(&"Nested echo_foreach_split not supported yet.");
                    return Ok(Verdict::Status(500));
                }
                EchoCommand::Foreach(delimiter, text) => {
                    let loop_ = EchoLoop::new(x, delimiter, text, at);
                    at = self.turn(x, &mut each, Some(loop_), at);
                }
                EchoCommand::End => {
                    let running = each.take();
                    at = self.turn(x, &mut each, running, at);
                }
                EchoCommand::Echo(..) | EchoCommand::Duplicate(..) | EchoCommand::SayBody => {
                    let mut chain = BodyChain::default();
                    chain.push(BodyBuf::Bytes(text(x, command)));
                    self.send(x, chain).await?;
                }
            }
        }
        self.send(x, BodyChain::end()).await?;
        Ok(Verdict::Done)
    }

    /// Begins the next turn of `running`, if it has one; which command is next.
    fn turn(
        &self,
        x: &mut Exchange,
        each: &mut Option<EchoLoop>,
        running: Option<EchoLoop>,
        at: usize,
    ) -> usize {
        let Some(mut running) = running else { return at };
        let Some(part) = running.parts.pop_front() else {
            *x.state::<EchoIt>() = EchoIt(None);
            let ends = |command: &EchoCommand| matches!(command, EchoCommand::End);
            let end = self.commands.iter().skip(running.first).position(ends);
            return end.map_or(self.commands.len(), |end| running.first + end + 1);
        };
        *x.state::<EchoIt>() = EchoIt(Some(part));
        let first = running.first;
        *each = Some(running);
        first
    }

    async fn send(&self, x: &mut Exchange, chain: BodyChain) -> std::result::Result<(), EngineError> {
        self.begin(x);
        x.send(chain).await
    }

    async fn include(
        &self,
        x: &mut Exchange,
        asked: &EchoSubrequest,
    ) -> std::result::Result<(), EngineError> {
        self.begin(x);
        let value = |x: &mut Exchange, script: &ValueScript| {
            let value = script.value(x);
            x.text(&value).to_vec()
        };
        let path = value(x, &asked.path);
        let args = asked.args.as_ref().map(|args| value(x, args));
        let Ok(target) = uri::internal_target(&path) else {
            x.log_error(&format_args!("unsafe URI \"{}\" was detected", String::from_utf8_lossy(&path)));
            return Ok(());
        };
        let args = args.unwrap_or_else(|| target.args.unwrap_or_default().to_vec());
        let mut body = asked.body.as_ref().map(|body| value(x, body));
        if let Some((prefix, name)) = &asked.file {
            let name = value(x, name);
            let Some(content) = read(x, prefix, &name).await else { return Ok(()) };
            body = Some(content);
        }
        let (uri, method, wait) =
            (target.path.to_vec(), Some(asked.method), asked.order == SubrequestOrder::Waits);
        x.include(IncludedRequest { uri, args, method, body, wait, ..IncludedRequest::default() }).await
    }

    fn begin(&self, x: &mut Exchange) {
        // Whatever a script has left there before: `echo_status` says the status, as in echo-nginx-module.
        if !x.response.header_sent {
            x.response.status = self.status;
            x.set_content_type();
        }
    }
}

/// What a command that only speaks says.
fn text(x: &mut Exchange, command: &EchoCommand) -> Vec<u8> {
    let mut said = Vec::new();
    match command {
        EchoCommand::Echo(line) => line.say(x, &mut said),
        EchoCommand::Duplicate(count, text) => {
            let (count, text) = (count.value(x), text.value(x));
            let count = std::str::from_utf8(x.text(&count))
                .ok()
                .and_then(|count| count.replace('_', "").parse().ok());
            said = x.text(&text).repeat(count.unwrap_or(0usize).min(LONGEST / x.text(&text).len().max(1)));
        }
        EchoCommand::SayBody => said.extend_from_slice(x.body.memory()),
        _ => {}
    }
    said
}

async fn sleep(x: &mut Exchange, seconds: &ValueScript) {
    if let Some(time) = time(x, seconds) {
        x.waiting_beside(Box::pin(weir_rt::sleep(time))).await;
    }
}

/// What the directive is for: the whole worker blocks. Its clock goes on with the next turn of the loop.
async fn block(x: &mut Exchange, seconds: &ValueScript) {
    if let Some(time) = time(x, seconds) {
        std::thread::sleep(time);
        x.waiting_beside(Box::pin(weir_rt::yield_now())).await;
    }
}

fn time(x: &mut Exchange, seconds: &ValueScript) -> Option<Duration> {
    let value = seconds.value(x);
    let seconds = std::str::from_utf8(x.text(&value)).ok().and_then(|text| text.parse::<f64>().ok());
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    if time.is_none() {
        x.log_error(&"invalid sleep time");
    }
    time
}

/// The content of a file below the prefix; where it can't be read that is logged.
async fn read(x: &mut Exchange, prefix: &Path, name: &[u8]) -> Option<Vec<u8>> {
    let path = prefix.join(OsStr::from_bytes(name));
    let job = {
        let path = path.clone();
        move || std::fs::read(path)
    };
    match x.waiting_beside(Box::pin(weir_rt::blocking(job))).await {
        Ok(content) => Some(content),
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(0);
            let (path, reason) = (path.display(), weir_rt::file::errno_text(errno));
            x.log_error(&format_args!("open() \"{path}\" failed ({errno}: {reason})"));
            None
        }
    }
}

fn exec(x: &mut Exchange, target: &ValueScript, args: Option<&ValueScript>) -> Verdict {
    let target = target.value(x);
    let target = x.text(&target).to_vec();
    let Some(mut redirect) = InternalRedirect::checked(x, &target) else { return Verdict::Status(500) };
    if let (InternalRedirect::Uri { args: own, .. }, Some(args)) = (&mut redirect, args) {
        let args = args.value(x);
        let args = x.text(&args).to_vec();
        *own = x.arena.push(&args);
    }
    redirect.into()
}

/// A running `echo_foreach_split`.
struct EchoLoop {
    parts: VecDeque<Vec<u8>>,
    /// The command after it.
    first: usize,
}

impl EchoLoop {
    /// The parts of `text` between `delimiter`, without empty ones.
    fn new(x: &mut Exchange, delimiter: &ValueScript, text: &ValueScript, first: usize) -> EchoLoop {
        let delimiter = delimiter.value(x);
        let delimiter = x.text(&delimiter).to_vec();
        let text = text.value(x);
        EchoLoop { parts: split(x.text(&text), &delimiter), first }
    }
}

fn split(text: &[u8], delimiter: &[u8]) -> VecDeque<Vec<u8>> {
    let mut parts = VecDeque::new();
    let mut rest = text;
    while !rest.is_empty() {
        let found = match delimiter.is_empty() {
            true => None,
            false => rest.windows(delimiter.len()).position(|part| part == delimiter),
        };
        let (part, behind) = match found {
            Some(at) => (&rest[..at], &rest[at + delimiter.len()..]),
            None => (rest, &[][..]),
        };
        if !part.is_empty() {
            parts.push_back(part.to_vec());
        }
        rest = behind;
    }
    parts
}

/// Bytes that `echo_duplicate` says at most.
const LONGEST: usize = 64 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_parts_are_left_out() {
        let parts = |text: &str, delimiter: &str| -> Vec<String> {
            let parts = split(text.as_bytes(), delimiter.as_bytes());
            parts.iter().map(|part| String::from_utf8_lossy(part).into_owned()).collect()
        };
        assert_eq!(parts("a&b&c", "&"), ["a", "b", "c"]);
        assert_eq!(parts("&&a&&b&", "&"), ["a", "b"]);
        assert_eq!(parts("a, b,c", ", "), ["a", "b,c"]);
        assert_eq!(parts("ab", ""), ["ab"]);
        assert!(parts("", "&").is_empty() && parts("&&", "&").is_empty());
    }
}
