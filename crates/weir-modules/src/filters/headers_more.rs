//! `headers_more`: sets and clears any field of responses and requests, whatever the status (as
//! headers-more-nginx-module does).

use std::rc::Rc;

use weir_conf::names::{ANY_OR_IF, MORE};
use weir_conf::{Directive, LineCx, Result};
use weir_engine::exchange::FieldPattern;
use weir_engine::filter::{FilterSlot, HeaderFilter};
use weir_engine::plan::PlanBuilder;
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::variable::ValueScript;
use weir_engine::{Exchange, Handler, Module, Phase, Text, Verdict};
use weir_http::{KnownField, classify};

use crate::support::value::WorkerValue;

/// The module `headers_more`.
pub struct HeadersMore;

impl Module for HeadersMore {
    const NAME: &'static str = "headers_more";
    type Conf = HeadersMoreConf;
    const DIRECTIVES: &'static [Directive<HeadersMoreConf>] = &[
        Directive::<HeadersMoreConf>::new("more_set_headers", ANY_OR_IF, MORE, |conf, line| {
            conf.output.push(MoreCommand::parse(line, FieldAction::Set, "-t -s -a")?);
            Ok(())
        })
        .syntax("more_set_headers [-a] [-s statuses] [-t types] field ...")
        .doc(
            "Sets response header fields, each given as `Name: value`, replacing those of the \
             same name; an empty value clears the field. `-s` and `-t` limit this to statuses \
             and MIME types (lists in quotes), `-a` adds instead of replacing.",
        )
        .example("more_set_headers -s \"404 500\" \"Cache-Control: no-store\";"),
        Directive::<HeadersMoreConf>::new("more_clear_headers", ANY_OR_IF, MORE, |conf, line| {
            conf.output.push(MoreCommand::parse(line, FieldAction::Clear, "-t -s")?);
            Ok(())
        })
        .syntax("more_clear_headers [-s statuses] [-t types] name ...")
        .doc("Clears response header fields; a name may end with `*`.")
        .example("more_clear_headers \"X-Internal-*\";"),
        Directive::<HeadersMoreConf>::new("more_set_input_headers", ANY_OR_IF, MORE, |conf, line| {
            conf.input.push(MoreCommand::parse(line, FieldAction::Set, "-t -r")?);
            Ok(())
        })
        .syntax("more_set_input_headers [-r] [-t types] field ...")
        .doc(
            "Sets request header fields, each given as `Name: value`, at the end of the \
             rewrite phase. `-t` limits this to content types of the request, `-r` to fields \
             that are present.",
        ),
        Directive::<HeadersMoreConf>::new("more_clear_input_headers", ANY_OR_IF, MORE, |conf, line| {
            conf.input.push(MoreCommand::parse(line, FieldAction::Clear, "-t")?);
            Ok(())
        })
        .syntax("more_clear_input_headers [-t types] name ...")
        .doc("Clears request header fields at the end of the rewrite phase; a name may end with `*`."),
    ];

    fn inherit(conf: &mut HeadersMoreConf, parent: &HeadersMoreConf) {
        for (own, parent) in [(&mut conf.output, &parent.output), (&mut conf.input, &parent.input)] {
            // What is around comes first, so that the block's own lines have the last word.
            own.splice(0..0, parent.iter().cloned());
        }
    }

    fn install(conf: &HeadersMoreConf, plan: &mut PlanBuilder<'_>) {
        if !conf.output.is_empty() {
            plan.header_filter(FilterSlot::Aux, Self::NAME, MoreOutput::new(&conf.output));
        }
        if !conf.input.is_empty() {
            plan.handler(Phase::Rewrite, Self::NAME, MoreInput(install(&conf.input)));
        }
    }
}

/// The settings of one block.
#[derive(Default)]
pub struct HeadersMoreConf {
    output: Vec<MoreCommand>,
    input: Vec<MoreCommand>,
}

/// What a directive does with its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldAction {
    Set,
    Add,
    /// Only what is there is set.
    Replace,
    Clear,
}

/// One directive as written.
#[derive(Clone)]
struct MoreCommand {
    action: FieldAction,
    statuses: Vec<u16>,
    types: Vec<Vec<u8>>,
    /// Names and values; one without value is cleared.
    fields: Vec<(Vec<u8>, Option<ValueScript>)>,
}

impl MoreCommand {
    /// Reads a line whose options are `allowed`.
    fn parse(line: &mut LineCx<'_>, action: FieldAction, allowed: &str) -> Result<MoreCommand> {
        let mut command = MoreCommand { action, statuses: Vec::new(), types: Vec::new(), fields: Vec::new() };
        let mut at = 0;
        while at < line.args().len() {
            let word = line.bytes(at);
            match word {
                [b'-', ..] if !allowed.split(' ').any(|option| option.as_bytes() == word) => {
                    let message = format!("{}: invalid option name: \"{}\"", line.name(), line.arg(at));
                    return Err(line.fail_arg(at, message));
                }
                b"-a" => command.action = FieldAction::Add,
                b"-r" => command.action = FieldAction::Replace,
                b"-s" => {
                    at += 1;
                    command.add_statuses(line, at)?;
                }
                b"-t" => {
                    at += 1;
                    let types =
                        option(line, at, "-t")?.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
                    command.types.extend(types.map(<[u8]>::to_ascii_lowercase));
                }
                _ => command.add_field(line, at)?,
            }
            at += 1;
        }
        Ok(command)
    }

    fn add_statuses(&mut self, line: &LineCx<'_>, at: usize) -> Result {
        for word in option(line, at, "-s")?.split(|byte| *byte == b' ').filter(|word| !word.is_empty()) {
            let status = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
            let Some(status) = status else {
                let word = String::from_utf8_lossy(word);
                return Err(line.fail_arg(at, format!("{}: invalid status code: \"{word}\"", line.name())));
            };
            self.statuses.push(status);
        }
        Ok(())
    }

    /// `Name: value`, `Name:` or `Name`.
    fn add_field(&mut self, line: &mut LineCx<'_>, at: usize) -> Result {
        let word = line.bytes(at);
        let cut = word.iter().position(|byte| *byte == b':').unwrap_or(word.len());
        let name = word[..cut].trim_ascii().to_vec();
        let value = word.get(cut + 1..).unwrap_or_default().trim_ascii().to_vec();
        if name.is_empty() {
            return Err(line.fail_arg(at, format!("{}: empty header name", line.name())));
        }
        let clears = self.action == FieldAction::Clear || value.is_empty();
        let value = if clears { None } else { Some(ValueScript::compile_text(line, at, &value)?) };
        self.fields.push((name, value));
        Ok(())
    }
}

fn option<'l>(line: &LineCx<'l>, at: usize, name: &str) -> Result<&'l [u8]> {
    match line.args().get(at) {
        Some(word) => Ok(word.bytes()),
        None => Err(line.fail(format!("{}: option {name} takes an argument", line.name()))),
    }
}

/// A field's name and its value on one worker.
struct MoreField {
    name: Box<[u8]>,
    known: KnownField,
    value: Option<WorkerValue>,
}

/// A [`MoreCommand`] on one worker.
struct InstalledCommand {
    action: FieldAction,
    statuses: Box<[u16]>,
    types: Box<[Vec<u8>]>,
    fields: Box<[MoreField]>,
}

fn install(commands: &[MoreCommand]) -> Rc<[InstalledCommand]> {
    let field = |(name, value): &(Vec<u8>, Option<ValueScript>)| MoreField {
        name: name.as_slice().into(),
        known: classify(name),
        value: value.as_ref().map(WorkerValue::new),
    };
    let command = |command: &MoreCommand| InstalledCommand {
        action: command.action,
        statuses: command.statuses.as_slice().into(),
        types: command.types.as_slice().into(),
        fields: command.fields.iter().map(field).collect(),
    };
    commands.iter().map(command).collect()
}

impl InstalledCommand {
    /// `kind`: the message's type, which is looked for only where types are named.
    fn is_meant<'k>(&self, status: u16, kind: impl FnOnce() -> &'k [u8]) -> bool {
        (self.statuses.is_empty() || self.statuses.contains(&status))
            && (self.types.is_empty() || self.has_type(kind()))
    }

    fn has_type(&self, kind: &[u8]) -> bool {
        let end = kind.iter().position(|byte| *byte == b';').unwrap_or(kind.len());
        let kind = kind[..end].trim_ascii();
        self.types.iter().any(|wanted| wanted.eq_ignore_ascii_case(kind))
    }
}

/// The name, or what names begin with.
fn named(name: &[u8], wild: bool) -> FieldPattern<'_> {
    match name {
        [prefix @ .., b'*'] if wild => FieldPattern::Prefix(prefix),
        name => FieldPattern::Exactly(name),
    }
}

struct MoreOutput {
    commands: Rc<[InstalledCommand]>,
    /// No more is done than to set a field.
    is_brief: bool,
}

impl MoreOutput {
    fn new(commands: &[MoreCommand]) -> MoreOutput {
        let commands = install(commands);
        let constant = |field: &MoreField| matches!(field.value, Some(WorkerValue::Constant(_)));
        let is_brief =
            matches!(&*commands, [one] if one.fields.len() == 1 && one.fields.iter().all(constant));
        MoreOutput { commands, is_brief }
    }
}

impl HeaderFilter for MoreOutput {
    fn is_rehearsable(&self) -> bool {
        true
    }

    fn filter(&self, x: &mut Exchange) -> Verdict {
        for command in &*self.commands {
            let kind = || x.response.content_type.as_ref().map(|kind| x.text(kind)).unwrap_or_default();
            if !command.is_meant(x.response.status, kind) {
                continue;
            }
            for MoreField { name, known, value } in &command.fields {
                let value =
                    value.as_ref().map(|value| value.field(x)).filter(|value| !x.text(value).is_empty());
                match value {
                    Some(value) if command.action == FieldAction::Add => x.add_response_field(name, value),
                    Some(value) => x.set_known_response_field(*known, name, value),
                    None => x.remove_response_fields(named(name, command.action == FieldAction::Clear)),
                }
            }
        }
        if self.is_brief { Verdict::Passed } else { Verdict::Ok }
    }

    fn is_plain(&self) -> bool {
        true
    }
}

struct MoreInput(Rc<[InstalledCommand]>);

impl Handler for MoreInput {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        for command in &*self.0 {
            if !command.is_meant(0, || x.request_field(b"Content-Type").unwrap_or_default()) {
                continue;
            }
            for MoreField { name, known, value } in &command.fields {
                if command.action == FieldAction::Replace && x.request_field(name).is_none() {
                    continue;
                }
                let value = value.as_ref().map_or(Text::EMPTY, |value| value.field(x));
                if x.text(&value).is_empty() {
                    x.remove_request_fields(named(name, command.action == FieldAction::Clear));
                } else {
                    let value = x.arena.keep(value);
                    x.set_known_request_field(*known, name, value);
                }
            }
        }
        Verdict::Declined
    }
}

#[cfg(test)]
mod tests {
    use weir_engine::ModuleDef;
    use weir_engine::conf::{self, LocationConf};

    use super::*;
    use crate::testing::core_and;

    static MODULES: [ModuleDef; 4] = core_and::<HeadersMore>();

    #[test]
    fn lines_of_the_block_around_come_first() {
        let text = "events { } http { more_set_headers 'A: 1'; server {
            more_set_headers -s '404 500' -t 'text/plain text/html' -a 'B: $uri' C: 'D'; location / { more_clear_headers 'E*'; } } }";
        let configuration = conf::test::load(text, &MODULES).unwrap_or_else(|errors| panic!("{errors}"));
        let location: &LocationConf = &configuration.servers()[0].locations[0];
        let commands = &location.confs.get::<HeadersMoreConf>().output;
        let actions: Vec<_> = commands.iter().map(|command| command.action).collect();
        assert_eq!(actions, [FieldAction::Set, FieldAction::Add, FieldAction::Clear]);
        assert_eq!(commands[1].statuses, [404, 500]);
        assert_eq!(commands[1].types, [b"text/plain".to_vec(), b"text/html".to_vec()]);
        let valued: Vec<_> =
            commands[1].fields.iter().map(|(name, value)| (&name[..], value.is_some())).collect();
        assert_eq!(valued, [(&b"B"[..], true), (b"C", false), (b"D", false)]);
    }

    #[test]
    fn wrong_lines_are_refused() {
        for (line, message) in [
            (
                "more_set_headers -x 'A: 1';",
                "more_set_headers: invalid option name: \"-x\" in weir.conf:2:18",
            ),
            ("more_clear_headers -a A;", "more_clear_headers: invalid option name: \"-a\" in weir.conf:2:20"),
            ("more_set_headers -s;", "more_set_headers: option -s takes an argument in weir.conf:2:1"),
            (
                "more_set_headers -s '4x4' A;",
                "more_set_headers: invalid status code: \"4x4\" in weir.conf:2:21",
            ),
            ("more_set_input_headers ': a';", "more_set_input_headers: empty header name in weir.conf:2:24"),
        ] {
            let text = format!("events {{ }} http {{ server {{ }}\n{line} }}");
            let lines = conf::test::headlines(&text, &MODULES);
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].ends_with(message), "{}", lines[0]);
        }
    }
}
