//! The instructions of a block on one worker, and their run.

use weir_conf::Result;
use weir_engine::plan::{Level, PlanBuilder};
use weir_engine::variable::VarIndex;
use weir_engine::{Exchange, Handler, Verdict};

use super::answer::Return;
use super::condition::Condition;
use super::replace::Replace;
use super::{Instruction, RewriteConf};
use crate::support::value::Value;

/// The instructions of one block.
pub(super) struct Program {
    steps: Box<[Step]>,
    log: bool,
    /// An `if` that holds leads into its own block: in locations, not in servers.
    enters: bool,
}

enum Step {
    Rewrite(Replace),
    Set(VarIndex, Value),
    Break,
    Return(Return),
    If(Condition, usize),
    /// Of another module.
    Inserted(weir_engine::plan::Instruction),
}

/// What the instructions of a request have in common.
pub(super) struct Run {
    /// `rewrite_log` of the block in which the run began.
    pub(super) log: bool,
    /// Captures are escaped as arguments, until a `rewrite` has changed the URI.
    pub(super) quote: bool,
}

/// How a step ends.
pub(super) enum Flow {
    /// On to the next.
    Next,
    /// The instructions are over, also those of the block around.
    End(Verdict),
}

impl Program {
    /// The block's instructions, with those of other modules at their places.
    ///
    /// # Errors
    /// Of other modules' installation.
    pub(super) fn new(conf: &RewriteConf, plan: &PlanBuilder<'_>) -> Result<Program> {
        let step = |instruction: &Instruction| match instruction {
            Instruction::Rewrite(replace) => Step::Rewrite(replace.clone()),
            Instruction::Set(variable, value) => Step::Set(*variable, Value::new(value)),
            Instruction::Break => Step::Break,
            Instruction::Return(answer) => Step::Return(Return::new(answer)),
            Instruction::If(condition, index) => Step::If(condition.clone(), *index),
        };
        let mut steps: Vec<(u32, Step)> = conf.code.iter().map(|(at, one)| (*at, step(one))).collect();
        for other in plan.instructed {
            steps.push((other.order, Step::Inserted(other.instruction.install(plan)?)));
        }
        steps.sort_by_key(|(at, _)| *at);
        Ok(Program {
            steps: steps.into_iter().map(|(_, step)| step).collect(),
            log: conf.log == Some(true),
            enters: plan.level != Level::Server,
        })
    }

    fn run(&self, x: &mut Exchange, run: &mut Run) -> Flow {
        // An `if` may change the request's plan; those behind it are still of this one.
        let mut plan = None;
        for step in &self.steps {
            let flow = match step {
                Step::Rewrite(replace) => replace.run(x, run),
                Step::Set(variable, value) => {
                    let value = match value {
                        Value::Script(script) if run.quote && script.has_captures() && is_quoted(x) => {
                            script.value_escaped(x)
                        }
                        value => value.get(x),
                    };
                    x.set_variable(*variable, value);
                    Flow::Next
                }
                Step::Break => {
                    x.valid_location &= !x.uri_changed;
                    x.uri_changed = false;
                    Flow::End(Verdict::Declined)
                }
                Step::Return(answer) => Flow::End(answer.answer(x)),
                Step::Inserted(run) => match run(x) {
                    Verdict::Declined => Flow::Next,
                    verdict => Flow::End(verdict),
                },
                Step::If(condition, index) => match condition.holds(x, run) {
                    Ok(true) => {
                        let plan = plan.get_or_insert_with(|| x.plan.clone());
                        let Some(inner) = plan.nested.get(*index) else { continue };
                        if self.enters {
                            x.enter_nested(inner);
                        }
                        match inner.kept::<Program>() {
                            Some(program) => program.run(x, run),
                            None => Flow::Next,
                        }
                    }
                    Ok(false) => Flow::Next,
                    Err(status) => Flow::End(Verdict::Status(status)),
                },
            };
            if let Flow::End(_) = flow {
                return flow;
            }
        }
        Flow::Next
    }
}

impl Handler for Program {
    fn handle(&self, x: &mut Exchange) -> Verdict {
        match self.run(x, &mut Run { log: self.log, quote: true }) {
            Flow::Next => Verdict::Declined,
            Flow::End(verdict) => verdict,
        }
    }
}

/// Whether the path was received with `%` or `+` in it; only then are captures escaped (nginx's `quoted_uri` and
/// `plus_in_uri`).
pub(super) fn is_quoted(x: &Exchange) -> bool {
    let target = x.arena.get(x.request.unparsed_uri);
    !x.is_subrequest() && target.iter().take_while(|b| **b != b'?').any(|b| matches!(b, b'%' | b'+'))
}

/// A pattern that did not match leaves no captures behind.
pub(super) fn clear_captures(x: &mut Exchange) {
    x.captures.groups.clear();
}
