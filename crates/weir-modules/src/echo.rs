//! `echo`: answers put together from text, sleeps, subrequests and the request itself, for tests and for looking (as
//! echo-nginx-module does).

use std::time::Duration;

use weir_conf::names::{ANY_NUMBER, LOCATION, LOCATION_IF, MORE, NONE, ONE, ONE_OR_TWO, TWO};
use weir_conf::{Contexts, Directive, LineCx, Result};
use weir_core::body::{Buf, Chain};
use weir_core::error::Error;
use weir_core::phase::LocalFuture;
use weir_core::plan::PlanBuilder;
use weir_core::redirect::Redirect;
use weir_core::subrequest::Include;
use weir_core::variable::{Script, Variable};
use weir_core::{Exchange, Handler, Module, Text, Verdict, inherit};
use weir_http::{Method, uri};

/// The module.
pub struct Echo;

impl Module for Echo {
    const NAME: &'static str = "echo";
    type Conf = EchoConf;
    const DIRECTIVES: &'static [Directive<EchoConf>] = &[
        Row::new("echo", HERE, ANY_NUMBER, EchoConf::echo)
            .doc("Says its arguments with spaces between and a line's end behind; -n without that."),
        Row::new("echo_duplicate", HERE, TWO, |conf, line| {
            let command = Command::Duplicate(Script::compile(line, 0)?, Script::compile(line, 1)?);
            conf.push(command)
        })
        .doc("Says its second argument as often as the first one says."),
        Row::new("echo_flush", HERE, NONE, |conf, _| conf.push(Command::Flush))
            .doc("What was said so far leaves now."),
        Row::new("echo_sleep", HERE, ONE, |conf, line| {
            let command = Command::Sleep(Script::compile(line, 0)?);
            conf.push(command)
        })
        .doc("Waits for so many seconds, with fractions."),
        Row::new("echo_reset_timer", HERE, NONE, |conf, _| conf.push(Command::ResetTimer))
            .doc("$echo_timer_elapsed counts from here on."),
        Row::new("echo_read_request_body", HERE, NONE, |conf, _| conf.push(Command::ReadBody))
            .doc("Reads the request's body."),
        Row::new("echo_request_body", HERE, NONE, |conf, _| conf.push(Command::SayBody))
            .doc("Says the request's body, if it was read."),
        Row::new("echo_location", HERE, ONE_OR_TWO, |conf, line| conf.location(line, true))
            .doc("Says what a subrequest for the path, with the arguments, is answered; then goes on."),
        Row::new("echo_location_async", HERE, ONE_OR_TWO, |conf, line| conf.location(line, false))
            .doc("As echo_location, going on at once; the answers stand in order."),
        Row::new("echo_subrequest", HERE, MORE, |conf, line| conf.subrequest(line, true))
            .doc("As echo_location with a method: METHOD path [-q arguments] [-b body]."),
        Row::new("echo_subrequest_async", HERE, MORE, |conf, line| conf.subrequest(line, false))
            .doc("As echo_subrequest, going on at once."),
        Row::new("echo_exec", HERE, ONE_OR_TWO, |conf, line| {
            let target = Script::compile(line, 0)?;
            let args = if line.args().len() > 1 { Some(Script::compile(line, 1)?) } else { None };
            conf.push(Command::Exec(target, args))
        })
        .doc("Goes on in another location, a path with arguments or @name."),
        Row::new("echo_status", HERE, ONE, |conf, line| line.number(&mut conf.status, 100..=999))
            .doc("The answer's status; 200."),
    ];
    const VARIABLES: &'static [Variable] = &[
        Variable::new("echo_timer_elapsed", elapsed).volatile(),
        Variable::new("echo_request_method", |x| Some(Text::Span(x.request.method_span))).volatile(),
        Variable::new("echo_request_body", request_body).volatile(),
        Variable::new("echo_client_request_headers", request_head).volatile(),
    ];

    fn inherit(conf: &mut EchoConf, parent: &EchoConf) {
        inherit!(conf, parent, status);
    }

    fn install(conf: &EchoConf, plan: &mut PlanBuilder<'_>) -> Result {
        if !conf.commands.is_empty() {
            let status = conf.status.unwrap_or(200);
            plan.content(Self::NAME, Say { commands: conf.commands.as_slice().into(), status });
        }
        Ok(())
    }
}

/// Tells the closures of the table what they are given.
type Row = Directive<EchoConf>;

const HERE: Contexts = LOCATION.or(LOCATION_IF);

/// The settings of one block.
#[derive(Default)]
pub struct EchoConf {
    commands: Vec<Command>,
    status: Option<u16>,
}

/// One directive.
#[derive(Clone)]
enum Command {
    Echo(Vec<Script>, bool),
    Duplicate(Script, Script),
    Flush,
    Sleep(Script),
    ResetTimer,
    ReadBody,
    SayBody,
    Subrequest(Subrequest),
    Exec(Script, Option<Script>),
}

#[derive(Clone)]
struct Subrequest {
    method: Method,
    path: Script,
    args: Option<Script>,
    body: Option<Script>,
    wait: bool,
}

impl EchoConf {
    fn push(&mut self, command: Command) -> Result {
        self.commands.push(command);
        Ok(())
    }

    fn echo(&mut self, line: &mut LineCx<'_>) -> Result {
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
        let words = (from..line.args().len()).map(|at| Script::compile(line, at)).collect::<Result<_>>()?;
        self.push(Command::Echo(words, ends))
    }

    fn location(&mut self, line: &mut LineCx<'_>, wait: bool) -> Result {
        let path = Script::compile(line, 0)?;
        let args = if line.args().len() > 1 { Some(Script::compile(line, 1)?) } else { None };
        self.push(Command::Subrequest(Subrequest { method: Method::Get, path, args, body: None, wait }))
    }

    fn subrequest(&mut self, line: &mut LineCx<'_>, wait: bool) -> Result {
        if line.args().len() < 2 || line.args().len() % 2 == 1 {
            return Err(line.refuse("needs a method, a path, and options with values"));
        }
        let method = Method::parse(line.bytes(0));
        let path = Script::compile(line, 1)?;
        let (mut args, mut body) = (None, None);
        for at in (2..line.args().len()).step_by(2) {
            let slot = match line.bytes(at) {
                b"-q" => &mut args,
                b"-b" => &mut body,
                _ => return Err(line.invalid_parameter(at)),
            };
            *slot = Some(Script::compile(line, at + 1)?);
        }
        self.push(Command::Subrequest(Subrequest { method, path, args, body, wait }))
    }
}

/// When the timer was set, in the worker's milliseconds.
#[derive(Default)]
struct Timer(Option<u64>);

struct Say {
    commands: Box<[Command]>,
    status: u16,
}

impl Handler for Say {
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

impl Say {
    async fn say(&self, x: &mut Exchange) -> std::result::Result<Verdict, Error> {
        for command in &self.commands {
            match command {
                Command::ReadBody => x.read_body().await?,
                Command::ResetTimer => *x.state::<Timer>() = Timer(Some(weir_rt::now_ms())),
                Command::Sleep(seconds) => sleep(x, seconds).await,
                Command::Exec(target, args) => return Ok(exec(x, target, args.as_ref())),
                Command::Flush => self.send(x, Chain::flush()).await?,
                Command::Subrequest(subrequest) => self.include(x, subrequest).await?,
                Command::Echo(..) | Command::Duplicate(..) | Command::SayBody => {
                    let mut chain = Chain::default();
                    chain.push(Buf::Bytes(text(x, command)));
                    self.send(x, chain).await?;
                }
            }
        }
        self.send(x, Chain::end()).await?;
        Ok(Verdict::Done)
    }

    async fn send(&self, x: &mut Exchange, chain: Chain) -> std::result::Result<(), Error> {
        self.begin(x);
        x.send(chain).await
    }

    async fn include(&self, x: &mut Exchange, asked: &Subrequest) -> std::result::Result<(), Error> {
        self.begin(x);
        let value = |x: &mut Exchange, script: &Script| {
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
        let body = asked.body.as_ref().map(|body| value(x, body));
        let (uri, method, wait) = (target.path.to_vec(), Some(asked.method), asked.wait);
        x.include(Include { uri, args, method, body, wait, ..Include::default() }).await
    }

    fn begin(&self, x: &mut Exchange) {
        if x.response.status == 0 {
            x.response.status = self.status;
            x.set_content_type();
        }
    }
}

/// What a command that only speaks says.
fn text(x: &mut Exchange, command: &Command) -> Vec<u8> {
    let mut said = Vec::new();
    match command {
        Command::Echo(words, ends) => {
            for (at, word) in words.iter().enumerate() {
                if at > 0 {
                    said.push(b' ');
                }
                let word = word.value(x);
                said.extend_from_slice(x.text(&word));
            }
            if *ends {
                said.push(b'\n');
            }
        }
        Command::Duplicate(count, text) => {
            let (count, text) = (count.value(x), text.value(x));
            let count = std::str::from_utf8(x.text(&count))
                .ok()
                .and_then(|count| count.replace('_', "").parse().ok());
            said = x.text(&text).repeat(count.unwrap_or(0usize).min(LONGEST / x.text(&text).len().max(1)));
        }
        Command::SayBody => said.extend_from_slice(x.body.memory()),
        _ => {}
    }
    said
}

async fn sleep(x: &mut Exchange, seconds: &Script) {
    let value = seconds.value(x);
    let seconds = std::str::from_utf8(x.text(&value)).ok().and_then(|text| text.parse::<f64>().ok());
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match time {
        Some(time) => x.waiting_beside(Box::pin(weir_rt::sleep(time))).await,
        None => x.log_error(&"invalid sleep time"),
    }
}

fn exec(x: &mut Exchange, target: &Script, args: Option<&Script>) -> Verdict {
    let target = target.value(x);
    let mut target = x.text(&target).to_vec();
    if let Some(args) = args {
        let args = args.value(x);
        target.push(b'?');
        target.extend_from_slice(x.text(&args));
    }
    Redirect::to(x, &target).into()
}

/// Seconds since the request began, or the timer was reset.
fn elapsed(x: &mut Exchange) -> Option<Text> {
    let since = x.state_if::<Timer>().and_then(|timer| timer.0).unwrap_or(x.start_ms);
    let ms = weir_rt::now_ms().saturating_sub(since);
    let text = format!("{}.{:03}", ms / 1000, ms % 1000);
    Some(Text::Span(x.arena.push(text.as_bytes())))
}

fn request_body(x: &mut Exchange) -> Option<Text> {
    let body = x.body.memory().to_vec();
    (!body.is_empty()).then(|| Text::Span(x.arena.push(&body)))
}

/// The request line and the fields as they came, without the empty line.
fn request_head(x: &mut Exchange) -> Option<Text> {
    let mut head = x.arena.get(x.request.line).to_vec();
    head.extend_from_slice(b"\r\n");
    for field in &x.request.fields {
        let line = [x.arena.get(field.name), b": ", x.arena.get(field.value), b"\r\n"];
        head.extend_from_slice(&line.concat());
    }
    Some(Text::Span(x.arena.push(&head)))
}

/// Bytes that `echo_duplicate` says at most.
const LONGEST: usize = 64 * 1024 * 1024;
