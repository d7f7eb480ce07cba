//! `weir explain-config`: what would become of a request, and why.

mod json;
mod text;

use std::process::ExitCode;

use weir_conf::Span;
use weir_engine::rehearsal::RehearsalStep;
use weir_see::commands::{CommandLine as ToolLine, TextStyle};

use super::plan::{AppliedDirective, LoadedPlan, PlanEvaluation, PlanRequest, within};
use super::print;

/// `weir explain-config --url URL`
pub(super) fn run(asked: &ToolLine) -> Result<ExitCode, String> {
    asked.at_most(1)?;
    let request = request(asked)?;
    let text = within(async || {
        let plan = LoadedPlan::load(asked.place.conf.as_deref(), asked.place.prefix.as_deref())?;
        let evaluation = plan.evaluate(&request).await?;
        let explained = ExplainedRequest::new(&plan, &request, evaluation, asked.has("--defaults"));
        Ok::<_, String>(match asked.has("--json") {
            true => json::shown(&explained) + "\n",
            false => text::shown(&explained, TextStyle::of_stdout()),
        })
    })??;
    print(&text)
}

/// The request that the command line describes.
fn request(asked: &ToolLine) -> Result<PlanRequest, String> {
    let url = asked.value("--url").or(asked.words.first().map(String::as_str));
    let url = url.ok_or("which request? --url https://example.com/path")?;
    let mut request = PlanRequest::of_url(url)?;
    for field in asked.values("--header") {
        request.add_field(field)?;
    }
    if let Some(method) = asked.value("--method") {
        request.set_method(method)?;
    }
    if let Some(client) = asked.value("--from") {
        request.set_client(client)?;
    }
    request.listen = asked.value("--listen").map(str::to_owned);
    Ok(request)
}

/// What is said of a request.
struct ExplainedRequest<'e> {
    plan: &'e LoadedPlan,
    request: &'e PlanRequest,
    evaluation: PlanEvaluation,
    /// The lines in force where the request ends.
    directives: Vec<AppliedDirective>,
}

impl<'e> ExplainedRequest<'e> {
    fn new(
        plan: &'e LoadedPlan,
        request: &'e PlanRequest,
        evaluation: PlanEvaluation,
        defaults: bool,
    ) -> ExplainedRequest<'e> {
        let course = &evaluation.course;
        let place = last_place(&course.rehearsal.steps);
        let directives = plan.directives(course.place, place, defaults);
        ExplainedRequest { plan, request, evaluation, directives }
    }

    fn steps(&self) -> &[RehearsalStep] {
        &self.evaluation.course.rehearsal.steps
    }

    /// The line that opens the block at `span`, as it is written.
    fn block(&self, span: Span) -> String {
        self.plan.opening(span)
    }

    /// What cannot be known without running it: a phase in words, and a module.
    fn unknown(&self) -> Vec<(&'static str, String)> {
        let skipped = self.steps().iter().filter_map(|step| match step {
            RehearsalStep::Skipped { phase, module } => {
                Some((phase.map_or("header filter", |phase| phase.name()), module.clone()))
            }
            _ => None,
        });
        let mut found: Vec<_> = skipped.collect();
        found.dedup();
        found
    }
}

/// Where the block is that the request came to last; `None`: it came to no location.
fn last_place(steps: &[RehearsalStep]) -> Option<Span> {
    steps.iter().rev().find_map(|step| match step {
        RehearsalStep::Entered { place, .. } => *place,
        _ => None,
    })
}
