//! `rewrite`: instructions that run one after the other, in a server block and in the location it leads to (nginx's
//! `ngx_http_rewrite_module`).
//!
//! All instructions of a block, including those inside its `if`s, are one program, and a program has one state, as in
//! nginx. An `if` in a location is also a location of its own, which inherits everything: when its condition is true
//! the request continues there, whatever the instructions inside do. The last `if` that is true is where it stays.

mod answer;
mod condition;
mod program;
mod replace;
#[cfg(test)]
mod tests;

use weir_conf::names::{
    FLAG, HTTP, LOCATION, LOCATION_IF, MORE, NONE, ONE_OR_TWO, SERVER, SERVER_IF, STREAM_SERVER, TWO,
    TWO_OR_THREE,
};
use weir_conf::{Contexts, Directive, LineCx, Result};
use weir_engine::conf::registry::ConfRegistry;
use weir_engine::log::LogLevel;
use weir_engine::plan::{PlanBuilder, PlanLevel};
use weir_engine::variable::{ValueScript, VarIndex, VariableGetter};
use weir_engine::{Exchange, Module, Phase, Text, inherit};

use answer::{ReturnHandler, WrittenReturn};
use condition::IfCondition;
use program::RewriteProgram;
use replace::UriReplacement;

/// The module `rewrite`.
pub struct Rewrite;

impl Module for Rewrite {
    const NAME: &'static str = "rewrite";
    type Conf = RewriteConf;
    const DIRECTIVES: &'static [Directive<RewriteConf>] = &[
        Directive::new("rewrite", BLOCKS, TWO_OR_THREE, RewriteConf::rewrite)
            .syntax("rewrite regex replacement [last | break | redirect | permanent]")
            .doc(
                "Changes the request URI if it matches the regular expression. `last` stops \
                 and searches a location for the new URI, `break` stops and stays, `redirect` \
                 returns 302, `permanent` 301. A replacement that begins with `http://`, \
                 `https://` or `$scheme` is a redirect.",
            )
            .example("rewrite ^/user/(\\d+)$ /profile?id=$1 last;"),
        Directive::new("return", BLOCKS, ONE_OR_TWO, RewriteConf::answer)
            .syntax("return code [text]\nreturn code URL\nreturn URL")
            .doc(
                "Stops processing and returns the status, with a text as the body. 301, 302, 303, \
                 307 and 308 redirect to the URL; with only a URL the status is 302. 444 closes the connection without a response.",
            )
            .example("return 301 https://$host$request_uri;"),
        Directive::new("break", BLOCKS, NONE, RewriteConf::end).syntax("break").doc(
            "Stops processing the directives of this module; the request continues in its \
                 location.",
        ),
        Directive::new("if", SERVER.or(LOCATION), MORE.block(), RewriteConf::condition)
            .syntax("if (condition)")
            .doc(
                "Contains directives for requests that meet the condition. That is a variable that \
                 is neither empty nor `0`, a comparison (`=`, `!=`), or a match with a regular \
                 expression (`~`, `~*`, `!~`, `!~*`). Tests of a file are `-f`, `-d`, `-e` and \
                 `-x`, each with `!` for its opposite.",
            )
            .example("if ($request_method = POST) {\n    return 405;\n}"),
        Directive::new("set", BLOCKS.or(STREAM_SERVER), TWO, RewriteConf::set)
            .syntax("set $variable value")
            .doc("Sets a variable; the value may contain text and variables."),
        Directive::new("rewrite_log", HTTP_AND_BLOCKS, FLAG, |conf: &mut RewriteConf, line| {
            line.flag(&mut conf.log)
        })
        .syntax("rewrite_log on | off")
        .default("off")
        .doc("Logs the processing of this module's directives to the error log at level `notice`."),
        Directive::new(
            "uninitialized_variable_warn",
            HTTP_AND_BLOCKS,
            FLAG,
            |conf: &mut RewriteConf, line| line.flag(&mut conf.warn),
        )
        .syntax("uninitialized_variable_warn on | off")
        .default("on")
        .doc("Logs a warning for the use of variables that have not been set."),
    ];

    /// Instructions are not inherited: each block has its own.
    fn inherit(conf: &mut RewriteConf, parent: &RewriteConf) {
        inherit!(conf, parent, log, warn);
    }

    fn resolve(conf: &mut RewriteConf, _: &mut ConfRegistry) -> Result {
        // There may be very many servers, with a `return` each.
        conf.code.shrink_to_fit();
        Ok(())
    }

    fn install(conf: &RewriteConf, plan: &mut PlanBuilder<'_>) {
        if conf.warn == Some(false) {
            plan.keep(NoWarnings);
        }
        let phase = match plan.level {
            PlanLevel::Server | PlanLevel::Session => Phase::ServerRewrite,
            _ => Phase::Rewrite,
        };
        match conf.code.first() {
            None if plan.instructed.is_empty() => {}
            // The program of the block around runs it.
            _ if plan.level == PlanLevel::Nested => {
                let program = RewriteProgram::new(conf, plan);
                plan.keep(program);
            }
            Some((_, RewriteInstruction::Return(answer))) if plan.instructed.is_empty() => {
                plan.handler(phase, Self::NAME, ReturnHandler::new(answer));
            }
            _ => {
                let program = RewriteProgram::new(conf, plan);
                plan.handler(phase, Self::NAME, program);
            }
        }
    }
}

/// The settings of one block.
#[derive(Default)]
pub struct RewriteConf {
    code: Vec<(u32, RewriteInstruction)>,
    /// `rewrite_log`
    log: Option<bool>,
    /// `uninitialized_variable_warn`
    warn: Option<bool>,
}

/// One instruction as written.
enum RewriteInstruction {
    Rewrite(UriReplacement),
    Set(VariableAssignment),
    Break,
    Return(WrittenReturn),
    /// The index is that of the block among those nested in the one around.
    If(IfCondition, usize),
}

/// `set $variable value`
struct VariableAssignment {
    variable: VarIndex,
    value: ValueScript,
    /// No module has to know the value.
    is_remembered: bool,
}

impl RewriteConf {
    fn add(&mut self, line: &mut LineCx<'_>, instruction: RewriteInstruction) {
        self.code.push((line.ext::<ConfRegistry>().order(), instruction));
    }

    fn rewrite(&mut self, line: &mut LineCx<'_>) -> Result {
        let instruction = RewriteInstruction::Rewrite(UriReplacement::parse(line)?);
        self.add(line, instruction);
        Ok(())
    }

    fn answer(&mut self, line: &mut LineCx<'_>) -> Result {
        let instruction = RewriteInstruction::Return(WrittenReturn::parse(line)?);
        self.add(line, instruction);
        Ok(())
    }

    fn end(&mut self, line: &mut LineCx<'_>) -> Result {
        let instruction = RewriteInstruction::Break;
        self.add(line, instruction);
        Ok(())
    }

    fn condition(&mut self, line: &mut LineCx<'_>) -> Result {
        let condition = IfCondition::parse(line)?;
        let inside = if line.here() == SERVER { SERVER_IF } else { LOCATION_IF };
        let index = line.ext::<ConfRegistry>().nest(inside);
        let instruction = RewriteInstruction::If(condition, index);
        self.add(line, instruction);
        Ok(())
    }

    fn set(&mut self, line: &mut LineCx<'_>) -> Result {
        let name = match line.arg(0).strip_prefix('$') {
            Some(name) if !name.is_empty() => name,
            _ => return Err(line.fail_arg(0, format!("invalid variable name \"{}\"", line.arg(0)))),
        };
        let registry = line.ext::<ConfRegistry>();
        let variable = registry.define_set(name, unset(name));
        let is_remembered = variable.as_ref().is_ok_and(|variable| registry.is_assigned(*variable));
        let variable = variable.map_err(|message| line.fail_arg(0, message))?;
        let value = ValueScript::compile(line, 1)?;
        self.add(line, RewriteInstruction::Set(VariableAssignment { variable, value, is_remembered }));
        Ok(())
    }
}

/// The plan's location has `uninitialized_variable_warn off`.
struct NoWarnings;

/// What variable `name` is before something sets it: empty, and worth a warning.
fn unset(name: &str) -> VariableGetter {
    let name = name.to_ascii_lowercase();
    VariableGetter::Computed(std::sync::Arc::new(move |x: &mut Exchange| {
        if x.plan.kept::<NoWarnings>().is_none() {
            x.log(LogLevel::Warn, &format_args!("using uninitialized \"{name}\" variable"));
        }
        Some(Text::EMPTY)
    }))
}

const BLOCKS: Contexts = SERVER.or(LOCATION).or(SERVER_IF).or(LOCATION_IF);
const HTTP_AND_BLOCKS: Contexts = HTTP.or(BLOCKS);
