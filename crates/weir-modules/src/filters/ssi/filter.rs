//! The body filter: carries out the commands of one page.

use std::rc::Rc;

use weir_engine::body::{BodyBuf, BodyChain};
use weir_engine::error::EngineError;
use weir_engine::filter::{BodyFilter, FilterStep, ROOM};
use weir_engine::{Exchange, subrequest::IncludedRequest};
use weir_http::escape::{self, EscapeSet};
use weir_http::ssi::{SsiCommand, SsiItem, SsiParser};

use super::command::{self, CommandEntry, CommandName};
use super::evaluate::{self, CommandError};
use super::include::{self, PendingInclude};
use super::state::SsiState;
use super::timefmt::TimeFormat;

/// One page on its way out.
pub(super) struct SsiPage {
    parser: SsiParser,
    state: Rc<SsiState>,
    silent: bool,
    errmsg: Vec<u8>,
    encoding: EchoEncoding,
    /// Text goes out.
    output: bool,
    /// Text goes to the block that was begun.
    block: bool,
    condition: PageCondition,
    /// What was included last, until it is known what became of it.
    pending: Option<PendingInclude>,
}

/// Where in an `if` the page is.
#[derive(Default)]
struct PageCondition {
    /// 0 outside, 1 after `if` or `elif`, 2 after `else`: the commands' table says where each is allowed.
    at: u8,
    /// One of the branches was taken.
    chosen: bool,
}

/// What `echo` does to what it says.
#[derive(Clone, Copy)]
enum EchoEncoding {
    None,
    Url,
    Entity,
}

/// What a command came to.
enum CommandOutcome {
    Nothing,
    Said(Vec<u8>),
    Include(Box<IncludedRequest>),
}

impl SsiPage {
    pub(super) fn new(x: &mut Exchange, longest: usize, silent: bool) -> SsiPage {
        *x.state::<TimeFormat>() = TimeFormat::default();
        SsiPage {
            parser: SsiParser::new(longest),
            state: SsiState::of(x),
            silent,
            errmsg: b"[an error occurred while processing the directive]".to_vec(),
            encoding: EchoEncoding::Entity,
            output: true,
            block: false,
            condition: PageCondition::default(),
            pending: None,
        }
    }

    /// Text of the page, `buf`.
    fn text(&self, buf: BodyBuf, output: &mut BodyChain) {
        if self.output {
            output.push(buf);
        } else if self.block {
            self.state.add_to_block(buf.memory().unwrap_or_default());
        }
    }

    fn command(
        &mut self,
        x: &mut Exchange,
        written: SsiCommand,
        output: &mut BodyChain,
    ) -> Option<Box<IncludedRequest>> {
        match self.carry_out(x, written) {
            Ok(CommandOutcome::Nothing) => None,
            Ok(CommandOutcome::Said(said)) => {
                output.push(BodyBuf::Bytes(said));
                None
            }
            Ok(CommandOutcome::Include(include)) => Some(include),
            Err(wrong) => {
                if !wrong.is_empty() {
                    complain(x, &wrong);
                }
                self.error(output);
                None
            }
        }
    }

    fn error(&self, output: &mut BodyChain) {
        if !self.silent {
            output.push(BodyBuf::Bytes(self.errmsg.clone()));
        }
    }

    fn carry_out(&mut self, x: &mut Exchange, written: SsiCommand) -> Result<CommandOutcome, CommandError> {
        let name = written.name.clone();
        let Some(entry) = CommandEntry::find(&name) else {
            let wrong = [b"invalid SSI command: \"", &name[..], b"\""].concat();
            return if self.output { Err(wrong) } else { Ok(CommandOutcome::Nothing) };
        };
        if !self.output && !entry.ends_block() {
            if self.block {
                self.state.add_to_block(&command::text(&written));
                return Ok(CommandOutcome::Nothing);
            }
            if entry.conditional == 0 {
                return Ok(CommandOutcome::Nothing);
            }
        }
        if entry.conditional > 0 && (self.condition.at == 0 || self.condition.at > entry.conditional) {
            return Err([b"invalid context of SSI command: \"", &name[..], b"\""].concat());
        }
        let mut params = entry.arrange(written)?.into_iter();
        let mut param = || params.next().flatten();
        match entry.name {
            CommandName::Include => {
                let params = include::CommandParams {
                    uri: param(),
                    file: param(),
                    wait: param(),
                    set: param(),
                    stub: param(),
                };
                let (include, pending) = include::prepare(x, &self.state, params)?;
                self.pending = Some(pending);
                return Ok(CommandOutcome::Include(Box::new(include)));
            }
            CommandName::Echo => return Ok(self.echo(x, param().unwrap_or_default(), param(), param())),
            CommandName::Config => self.config(x, param(), param()),
            CommandName::Set => {
                let (name, value) = (param().unwrap_or_default(), param().unwrap_or_default());
                let value = evaluate::text(x, &self.state, &value)?;
                self.state.set(&name, value);
            }
            CommandName::If | CommandName::Elif => {
                self.condition(x, entry.name, &param().unwrap_or_default())?;
            }
            CommandName::Else => {
                self.output = !self.condition.chosen;
                self.condition.at = 2;
            }
            CommandName::Endif => {
                self.output = true;
                self.condition = PageCondition::default();
            }
            CommandName::Block => {
                self.state.begin_block(&param().unwrap_or_default());
                (self.output, self.block) = (false, true);
            }
            CommandName::Endblock => (self.output, self.block) = (true, false),
        }
        Ok(CommandOutcome::Nothing)
    }

    fn condition(&mut self, x: &mut Exchange, name: CommandName, expr: &[u8]) -> Result<(), CommandError> {
        if name == CommandName::If && self.condition.at > 0 {
            return Err(b"the \"if\" command inside the \"if\" command".to_vec());
        }
        if self.condition.chosen {
            self.output = false;
            return Ok(());
        }
        let holds = evaluate::condition(x, &self.state, expr)?;
        self.output = holds;
        self.condition = PageCondition { at: 1, chosen: holds };
        Ok(())
    }

    fn echo(
        &mut self,
        x: &mut Exchange,
        name: Vec<u8>,
        default: Option<Vec<u8>>,
        encoding: Option<Vec<u8>>,
    ) -> CommandOutcome {
        let value = evaluate::variable(x, &self.state, &name);
        let value = value.unwrap_or_else(|| default.unwrap_or_else(|| b"(none)".to_vec()));
        if value.is_empty() {
            return CommandOutcome::Nothing;
        }
        match encoding.as_deref() {
            None => {}
            Some(b"none") => self.encoding = EchoEncoding::None,
            Some(b"url") => self.encoding = EchoEncoding::Url,
            Some(b"entity") => self.encoding = EchoEncoding::Entity,
            Some(other) => {
                complain(x, &[b"unknown encoding \"", other, b"\" in the \"echo\" command"].concat());
            }
        }
        let mut said = Vec::with_capacity(value.len());
        match self.encoding {
            EchoEncoding::None => said = value,
            EchoEncoding::Url => escape::escape(&mut said, &value, EscapeSet::Html),
            EchoEncoding::Entity => escape::html(&mut said, &value),
        }
        CommandOutcome::Said(said)
    }

    fn config(&mut self, x: &mut Exchange, errmsg: Option<Vec<u8>>, timefmt: Option<Vec<u8>>) {
        if let Some(timefmt) = timefmt {
            x.state::<TimeFormat>().0 = Some(timefmt);
        }
        if let Some(errmsg) = errmsg {
            self.errmsg = errmsg;
        }
    }

    /// What was found at the beginning of `buf` from `at` on, and how far it reaches.
    fn item(
        &mut self,
        x: &mut Exchange,
        buf: &BodyBuf,
        at: usize,
        output: &mut BodyChain,
    ) -> (usize, Option<Box<IncludedRequest>>) {
        let bytes = buf.memory().unwrap_or_default();
        let (used, item) = self.parser.step(&bytes[at..]);
        let mut include = None;
        match item {
            None => {}
            Some(SsiItem::Text(len)) => self.text(part(buf, at, at + len), output),
            Some(SsiItem::Held(held)) => self.text(BodyBuf::Static(held), output),
            Some(SsiItem::Command(command)) => include = self.command(x, command, output),
            Some(SsiItem::Wrong(reason)) => complain(x, &reason),
            Some(SsiItem::Error) => self.error(output),
        }
        (at + used, include)
    }
}

impl BodyFilter for SsiPage {
    fn step(
        &mut self,
        x: &mut Exchange,
        input: &mut BodyChain,
        output: &mut BodyChain,
    ) -> Result<FilterStep, EngineError> {
        if let Some(pending) = self.pending.take()
            && pending.finish(&self.state).is_err()
        {
            self.error(output);
        }
        while let Some(buf) = input.pop() {
            let buf = shared(buf);
            let len = buf.len() as usize;
            let mut at = 0;
            while at < len {
                let (reached, include) = self.item(x, &buf, at, output);
                at = reached;
                if let Some(include) = include {
                    input.unpop(buf.slice(at as u64, len as u64));
                    return Ok(FilterStep::Include(include));
                }
                if output.len() >= ROOM && at < len {
                    input.unpop(buf.slice(at as u64, len as u64));
                    return Ok(FilterStep::Full);
                }
            }
        }
        if input.last {
            let held = self.parser.finish();
            self.text(BodyBuf::Static(held), output);
        }
        output.flush |= std::mem::take(&mut input.flush);
        output.last |= std::mem::take(&mut input.last);
        Ok(FilterStep::More)
    }
}

/// Logs what is wrong with a command, and as nginx does, when that was seen.
fn complain(x: &Exchange, wrong: &[u8]) {
    let wrong = String::from_utf8_lossy(wrong);
    x.log_error(&format_args!("{wrong} while sending response to client"));
}

/// Bytes that will be taken apart are shared by their parts instead of copied for each.
fn shared(buf: BodyBuf) -> BodyBuf {
    match buf {
        BodyBuf::Bytes(bytes) if bytes.contains(&b'<') => BodyBuf::shared(Rc::from(bytes)),
        other => other,
    }
}

fn part(buf: &BodyBuf, from: usize, to: usize) -> BodyBuf {
    if from == 0 && to as u64 == buf.len() { buf.clone() } else { buf.slice(from as u64, to as u64) }
}
