//! What one configuration makes of a request, as far as two are compared.

use weir_conf::Span;
use weir_engine::rehearsal::{RehearsalEnd, RehearsalStep, RehearsedBody};

use crate::tools::plan::{LoadedPlan, PlanRequest};

/// What one configuration makes of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PlanVerdict {
    /// Aspects of it with their values, in the order in which they are compared.
    pub(super) aspects: Vec<(&'static str, String)>,
    /// The fields of the response.
    pub(super) fields: Vec<(String, String)>,
    /// What was not run: `access_by_lua (access)`.
    pub(super) unknown: Vec<String>,
    /// The status, where it is the server's own.
    pub(super) status: Option<u16>,
    /// It is passed to an upstream.
    pub(super) is_passed: bool,
    /// Where the request ended.
    pub(super) place: VerdictPlace,
    /// The path that it ended with; after a rewrite with its arguments.
    pub(super) uri: String,
}

/// Where a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct VerdictPlace {
    /// The server's block.
    pub(super) server: Option<Span>,
    /// The location's.
    pub(super) location: Option<Span>,
    /// The port of the address, where that is no file.
    pub(super) port: Option<u16>,
}

impl PlanVerdict {
    /// What `plan` makes of `request`.
    pub(super) async fn of(plan: &LoadedPlan, request: &PlanRequest) -> PlanVerdict {
        let evaluation = match plan.evaluate(request).await {
            Ok(evaluation) => evaluation,
            Err(message) => {
                return PlanVerdict { aspects: vec![("listen", message)], ..PlanVerdict::default() };
            }
        };
        let course = evaluation.course;
        let mut verdict = PlanVerdict { fields: course.rehearsal.fields, ..PlanVerdict::default() };
        let address = plan.configuration.addresses.get(evaluation.address.index);
        verdict.place.port = address.and_then(|address| address.addr.port());
        verdict.place.server = course.place;
        verdict.aspects.push(("server", course.server));
        verdict.steps(plan, course.rehearsal.steps);
        verdict.end(course.rehearsal.end);
        verdict
    }

    fn steps(&mut self, plan: &LoadedPlan, steps: Vec<RehearsalStep>) {
        let mut location = "none".to_owned();
        let mut decisions = Vec::new();
        for step in steps {
            match step {
                RehearsalStep::Entered { name, place, uri } => {
                    if self.uri.split('?').next() != Some(&*uri) {
                        self.uri = uri;
                    }
                    location = place.map_or_else(|| name.to_string(), |place| plan.opening(place));
                    self.place.location = place;
                }
                RehearsalStep::Asked { phase, module, verdict, .. } if !verdict.is_empty() => {
                    decisions.push(format!("{} {module}: {verdict}", phase.name()));
                }
                RehearsalStep::Skipped { phase, module } => {
                    let phase = phase.map_or("header filter", |phase| phase.name());
                    self.unknown.push(format!("{module} ({phase})"));
                }
                RehearsalStep::Redirected { to, .. } => decisions.push(format!("internal redirect to {to}")),
                RehearsalStep::Rewritten { uri } => self.uri = uri,
                RehearsalStep::Asked { .. } => {}
            }
        }
        self.aspects.push(("location", location));
        self.aspects.push(("decisions", decisions.join("; ")));
    }

    fn end(&mut self, end: RehearsalEnd) {
        match end {
            RehearsalEnd::Response { status, body } => {
                self.status = Some(status);
                self.aspects.push(("result", status.to_string()));
                match body {
                    RehearsedBody::File(path, _) => self.aspects.push(("file", path)),
                    // Pages of errors have the product's name, which is a field's matter.
                    RehearsedBody::Text(bytes) if status < 300 => {
                        self.aspects.push(("body", String::from_utf8_lossy(&bytes).into_owned()));
                    }
                    RehearsedBody::Text(_) | RehearsedBody::Empty | RehearsedBody::Stream => {}
                }
            }
            RehearsalEnd::Upstream(upstream) => {
                self.is_passed = true;
                self.aspects.push(("result", format!("upstream {}{}", upstream.scheme, upstream.name)));
                self.aspects.push(("peers", upstream.peers.join(", ")));
                self.aspects.push(("balancing", upstream.method.unwrap_or_default().to_owned()));
                self.aspects.push(("cache", if upstream.is_cached { "on" } else { "" }.to_owned()));
                // FastCGI and its like get no line, and the path as rewrites leave it.
                let uri = std::mem::take(&mut self.uri);
                self.aspects.push(upstream.request.map_or(("uri", uri), |line| ("request", line)));
            }
            RehearsalEnd::Unknown(module) => {
                self.aspects.push(("result", module.clone()));
                self.unknown.push(format!("{module} (content)"));
            }
            RehearsalEnd::Closed(status) => {
                self.status = Some(status);
                self.aspects.push(("result", format!("closed ({status})")));
            }
        }
    }

    /// The value of an aspect; empty where it has none.
    pub(super) fn aspect(&self, name: &str) -> &str {
        self.aspects.iter().find(|(aspect, _)| *aspect == name).map_or("", |(_, value)| value)
    }
}
