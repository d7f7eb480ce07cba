//! `weir explain-config` for people.

use std::fmt::Write;

use weir_engine::rehearsal::{RehearsalEnd, RehearsalStep, RehearsedBody, RehearsedUpstream};
use weir_see::commands::TextStyle;

use super::ExplainedRequest;

/// The whole text.
pub(super) fn shown(explained: &ExplainedRequest<'_>, style: TextStyle) -> String {
    let mut out = String::new();
    let mut section = |name: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            writeln!(out, "{}", style.heading(name)).expect("writing to a String");
            for line in lines {
                writeln!(out, "  {line}").expect("writing to a String");
            }
        }
    };
    section("Request", vec![format!("{} {}", explained.request.method, url(explained))]);
    section("Server", server(explained));
    section("Way", steps(explained));
    section("Result", end(explained));
    section("Response fields", fields(explained));
    section("Not known without running it", unknown(explained));
    section("Error log", explained.evaluation.messages.clone());
    section("Handlers there", handlers(explained));
    section("Directives in force there", directives(explained));
    out
}

fn url(explained: &ExplainedRequest<'_>) -> String {
    let request = explained.request;
    let scheme = if request.tls { "https" } else { "http" };
    format!("{scheme}://{}{} from {}", request.authority, request.target, request.client)
}

fn server(explained: &ExplainedRequest<'_>) -> Vec<String> {
    let (address, course) = (&explained.evaluation.address, &explained.evaluation.course);
    let ssl = if address.ssl { " ssl" } else { "" };
    let mut lines = vec![format!("listen {}{ssl}", address.name)];
    if !address.others.is_empty() {
        lines.push(format!("  (also of this port: {}; --listen chooses)", address.others.join(", ")));
    }
    let name = if course.server.is_empty() { "without a name" } else { &course.server };
    let place = course.place.map_or_else(String::new, |place| format!("  {}", explained.plan.place(place)));
    lines.push(format!("server {name}{place}"));
    lines.push(format!("  chosen: {}", course.reason));
    lines
}

fn steps(explained: &ExplainedRequest<'_>) -> Vec<String> {
    let shown = |step: &RehearsalStep| match step {
        RehearsalStep::Entered { uri, place: Some(place), .. } => {
            Some(format!("{uri} -> {}  {}", explained.block(*place), explained.plan.place(*place)))
        }
        RehearsalStep::Entered { uri, name, place: None } => Some(format!("{uri} -> {name}")),
        RehearsalStep::Asked { verdict, .. } if verdict.is_empty() => None,
        RehearsalStep::Asked { phase, module, verdict, .. } => {
            Some(format!("  {} phase, {module}: {verdict}", phase.name()))
        }
        RehearsalStep::Skipped { phase: Some(phase), module } if module.starts_with("set_by_lua") => {
            Some(format!("  {} phase, {module}: not run, the variable is empty", phase.name()))
        }
        RehearsalStep::Skipped { phase: Some(phase), module } => {
            Some(format!("  {} phase, {module}: not run, taken to let the request pass", phase.name()))
        }
        RehearsalStep::Skipped { phase: None, .. } => None,
        RehearsalStep::Rewritten { uri } => Some(format!("  rewritten to {uri}")),
        RehearsalStep::Redirected { to, status: Some(status) } => {
            Some(format!("  error_page {status}: internal redirect to {to}"))
        }
        RehearsalStep::Redirected { to, status: None } => Some(format!("  internal redirect to {to}")),
    };
    let lines: Vec<String> = explained.steps().iter().filter_map(shown).collect();
    match lines.is_empty() {
        true => vec!["no location: the server responds by itself".to_owned()],
        false => lines,
    }
}

fn end(explained: &ExplainedRequest<'_>) -> Vec<String> {
    match &explained.evaluation.course.rehearsal.end {
        RehearsalEnd::Response { status, body } => {
            let mut lines = vec![format!("status {status}")];
            lines.extend(match body {
                RehearsedBody::Empty => None,
                RehearsedBody::Text(bytes) => {
                    Some(format!("body: {} bytes: {}", bytes.len(), beginning(bytes)))
                }
                RehearsedBody::File(path, len) => Some(format!("file {path}, {len} bytes")),
                RehearsedBody::Stream => Some("body: made while it is sent".to_owned()),
            });
            lines
        }
        RehearsalEnd::Upstream(upstream) => upstream_lines(upstream),
        RehearsalEnd::Unknown(module) => vec![format!("{module} responds: not known without running it")],
        RehearsalEnd::Closed(status) => {
            vec![format!("the connection is closed without a response ({status})")]
        }
    }
}

fn upstream_lines(upstream: &RehearsedUpstream) -> Vec<String> {
    let mut lines = vec![format!("passed to {}{}", upstream.scheme, upstream.name)];
    match upstream.method {
        Some(method) => {
            lines.push(format!("  peers: {} ({method})", upstream.peers.join(", ")));
        }
        None => lines.push("  the name is resolved for each request".to_owned()),
    }
    lines.extend(upstream.request.as_ref().map(|line| format!("  request: {line}")));
    if upstream.is_cached {
        lines.push("  a cache is asked first: what it has is not known here".to_owned());
    }
    lines.push("  the response is the upstream's: not known without running it".to_owned());
    lines
}

/// The beginning of a body, in one line.
fn beginning(bytes: &[u8]) -> String {
    let part = bytes.get(..bytes.len().min(SHOWN)).unwrap_or_default();
    let text = String::from_utf8_lossy(part).escape_debug().to_string();
    if bytes.len() > SHOWN { format!("{text}...") } else { text }
}

fn fields(explained: &ExplainedRequest<'_>) -> Vec<String> {
    let rehearsal = &explained.evaluation.course.rehearsal;
    let mut lines: Vec<String> =
        rehearsal.fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    if !lines.is_empty() && !matches!(rehearsal.end, RehearsalEnd::Response { .. }) {
        lines.push("(added to a response with status 200)".to_owned());
    }
    lines
}

fn unknown(explained: &ExplainedRequest<'_>) -> Vec<String> {
    explained.unknown().into_iter().map(|(phase, module)| format!("{module} ({phase})")).collect()
}

fn handlers(explained: &ExplainedRequest<'_>) -> Vec<String> {
    let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
    for (phase, module) in &explained.evaluation.course.handlers {
        match lines.last_mut() {
            Some((last, modules)) if last == phase => modules.push(module),
            _ => lines.push((phase, vec![module])),
        }
    }
    lines.into_iter().map(|(phase, modules)| format!("{phase:<15} {}", modules.join(", "))).collect()
}

fn directives(explained: &ExplainedRequest<'_>) -> Vec<String> {
    let shown = explained.directives.iter().map(|line| {
        let place = line.place.as_deref().unwrap_or("-");
        format!("{:<9} {:<44}  {place}", line.origin.name(), line.text)
    });
    shown.collect()
}

/// Bytes of a body that are shown.
const SHOWN: usize = 120;
