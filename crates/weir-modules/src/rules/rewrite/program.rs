//! The instructions of a block on one worker, and their run.

use weir_engine::plan::{PlanBuilder, PlanLevel};
use weir_engine::rehearsed::HandlerRehearsal;
use weir_engine::variable::{ValueScript, VarIndex};
use weir_engine::{Exchange, Handler, Text, Verdict};

use super::answer::ReturnHandler;
use super::condition::IfCondition;
use super::replace::UriReplacement;
use super::{RewriteConf, RewriteInstruction, VariableAssignment};
use crate::support::value::WorkerValue;

/// The instructions of one block.
pub(super) struct RewriteProgram {
    steps: Box<[ProgramStep]>,
    log: bool,
    /// An `if` that holds leads into its own block: in locations, not in servers.
    enters: bool,
}

enum ProgramStep {
    Rewrite(UriReplacement),
    /// Constants for variables that are only remembered: `set` lines that follow each other.
    Constants(Box<[(VarIndex, Text)]>),
    /// A value for such a variable.
    Assign(VarIndex, ValueScript),
    /// For one whose module has to know.
    Set(VarIndex, WorkerValue),
    Break,
    Return(ReturnHandler),
    If(IfCondition, usize),
    /// Of another module.
    Inserted(weir_engine::plan::PlanInstruction),
}

/// What the instructions of a request have in common.
pub(super) struct ProgramRun {
    /// `rewrite_log` of the block in which the run began.
    pub(super) log: bool,
    /// Captures are escaped as arguments, until a `rewrite` has changed the URI.
    pub(super) quote: bool,
}

/// How a step ends.
pub(super) enum ProgramFlow {
    /// On to the next.
    Next,
    /// The instructions are over, also those of the block around.
    End(Verdict),
}

impl ProgramStep {
    fn set(set: &VariableAssignment) -> ProgramStep {
        match (WorkerValue::new(&set.value), set.is_remembered) {
            (WorkerValue::Constant(text), true) => ProgramStep::Constants([(set.variable, text)].into()),
            (WorkerValue::Script(script), true) => ProgramStep::Assign(set.variable, script),
            (value, false) => ProgramStep::Set(set.variable, value),
        }
    }
}

/// The steps, of which constants that follow each other are one: gateways have dozens.
fn joined(steps: impl Iterator<Item = ProgramStep>) -> Box<[ProgramStep]> {
    let mut joined: Vec<ProgramStep> = Vec::new();
    for step in steps {
        match (joined.last_mut(), step) {
            (Some(ProgramStep::Constants(before)), ProgramStep::Constants(more)) => {
                *before = std::mem::take(before).into_iter().chain(more).collect();
            }
            (_, step) => joined.push(step),
        }
    }
    for step in &mut joined {
        if let ProgramStep::Constants(constants) = step {
            // The highest number last; of one that is given two the second stays the second.
            constants.sort_by_key(|(variable, _)| variable.0);
        }
    }
    joined.into()
}

/// What `set` gives a variable.
fn set_value(x: &mut Exchange, script: &ValueScript, run: &ProgramRun) -> Text {
    match run.quote && script.has_captures() && is_quoted(x) {
        true => script.value_escaped(x),
        false => script.value(x),
    }
}

impl RewriteProgram {
    /// The block's instructions, with those of other modules at their places.
    pub(super) fn new(conf: &RewriteConf, plan: &PlanBuilder<'_>) -> RewriteProgram {
        let step = |instruction: &RewriteInstruction| match instruction {
            RewriteInstruction::Rewrite(replace) => ProgramStep::Rewrite(replace.clone()),
            RewriteInstruction::Set(set) => ProgramStep::set(set),
            RewriteInstruction::Break => ProgramStep::Break,
            RewriteInstruction::Return(answer) => ProgramStep::Return(ReturnHandler::new(answer)),
            RewriteInstruction::If(condition, index) => ProgramStep::If(condition.clone(), *index),
        };
        let mut steps: Vec<(u32, ProgramStep)> = conf.code.iter().map(|(at, one)| (*at, step(one))).collect();
        for other in plan.instructed {
            steps.push((other.order, ProgramStep::Inserted(other.instruction.install(plan))));
        }
        steps.sort_by_key(|(at, _)| *at);
        RewriteProgram {
            steps: joined(steps.into_iter().map(|(_, step)| step)),
            log: conf.log == Some(true),
            enters: plan.level != PlanLevel::Server,
        }
    }

    fn run(&self, x: &mut Exchange, run: &mut ProgramRun) -> ProgramFlow {
        // An `if` may change the request's plan; those after it are still of this one.
        let mut plan = None;
        for step in &self.steps {
            let flow = match step {
                ProgramStep::Rewrite(replace) => replace.run(x, run),
                ProgramStep::Constants(constants) => {
                    x.assign_variables(constants);
                    ProgramFlow::Next
                }
                ProgramStep::Assign(variable, script) => {
                    let value = set_value(x, script, run);
                    x.assign_variable(*variable, value);
                    ProgramFlow::Next
                }
                ProgramStep::Set(variable, value) => {
                    let value = match value {
                        WorkerValue::Constant(text) => text.clone(),
                        WorkerValue::Script(script) => set_value(x, script, run),
                    };
                    x.set_variable(*variable, value);
                    ProgramFlow::Next
                }
                ProgramStep::Break => {
                    x.valid_location &= !x.uri_changed;
                    x.uri_changed = false;
                    ProgramFlow::End(Verdict::Declined)
                }
                ProgramStep::Return(answer) => ProgramFlow::End(answer.answer(x)),
                ProgramStep::Inserted(run) => match run(x) {
                    Verdict::Declined => ProgramFlow::Next,
                    verdict => ProgramFlow::End(verdict),
                },
                ProgramStep::If(condition, index) => match condition.holds(x, run) {
                    Ok(true) => {
                        let plan = plan.get_or_insert_with(|| x.plan.clone());
                        let Some(inner) = plan.nested.get(*index) else { continue };
                        if self.enters {
                            x.enter_nested(inner);
                        }
                        match inner.kept::<RewriteProgram>() {
                            Some(program) => program.run(x, run),
                            None => ProgramFlow::Next,
                        }
                    }
                    Ok(false) => ProgramFlow::Next,
                    Err(status) => ProgramFlow::End(Verdict::Status(status)),
                },
            };
            if let ProgramFlow::End(_) = flow {
                return flow;
            }
        }
        ProgramFlow::Next
    }
}

impl Handler for RewriteProgram {
    fn rehearsal(&self, _x: &mut Exchange) -> HandlerRehearsal {
        HandlerRehearsal::Ask
    }

    /// A `return` that nothing comes before.
    fn is_fixed(&self, _x: &Exchange) -> bool {
        matches!(&*self.steps, [ProgramStep::Return(response), ..] if response.is_fixed())
    }

    fn handle(&self, x: &mut Exchange) -> Verdict {
        match self.run(x, &mut ProgramRun { log: self.log, quote: true }) {
            ProgramFlow::Next => Verdict::Declined,
            ProgramFlow::End(verdict) => verdict,
        }
    }
}

/// Whether the path was received with `%` or `+` in it; only then are captures escaped (nginx's `quoted_uri` and
/// `plus_in_uri`).
pub(super) fn is_quoted(x: &Exchange) -> bool {
    let target = x.arena.get(x.request.unparsed_uri);
    !x.is_subrequest() && target.iter().take_while(|b| **b != b'?').any(|b| matches!(b, b'%' | b'+'))
}

/// A pattern that did not match leaves no captures.
pub(super) fn clear_captures(x: &mut Exchange) {
    x.captures.groups.clear();
}
