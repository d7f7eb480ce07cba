//! Internal redirects: to a URI, or to a named location.

use weir_http::{Span, uri};

use crate::exchange::Exchange;
use crate::phase::Phase;
use crate::transport::keepalive;

/// Where an internal redirect leads.
#[derive(Clone, Copy, Debug)]
pub enum InternalRedirect {
    /// A URI and its arguments, both in the request's arena. The location is looked up again.
    Uri {
        /// The path, as it would stand in a normalised request.
        uri: Span,
        /// The arguments, without `?`; empty for none.
        args: Span,
    },
    /// `@name`, with the `@`, in the request's arena. The URI stays.
    Named(Span),
}

impl InternalRedirect {
    /// A redirect to `target`: `@name`, or a path with or without `?args`.
    pub fn to(x: &mut Exchange, target: &[u8]) -> InternalRedirect {
        if target.first() == Some(&b'@') {
            return InternalRedirect::Named(x.arena.push(target));
        }
        let cut = target.iter().position(|&b| b == b'?');
        let (path, args) = cut.map_or((target, &b""[..]), |at| (&target[..at], &target[at + 1..]));
        InternalRedirect::Uri { uri: x.arena.push(path), args: x.arena.push(args) }
    }

    /// A redirect to `target` as a server or a script names it: `@name`, or a URI as it would stand in a request, which is
    /// unescaped. `None`, and a line in the log, for one that holds NUL or leads upwards.
    pub fn checked(x: &mut Exchange, target: &[u8]) -> Option<InternalRedirect> {
        if target.first() == Some(&b'@') {
            return Some(InternalRedirect::Named(x.arena.push(target)));
        }
        let Ok(uri::InternalTarget { path, args }) = uri::internal_target(target) else {
            x.log_error(&format_args!("unsafe URI \"{}\" was detected", String::from_utf8_lossy(target)));
            return None;
        };
        Some(InternalRedirect::Uri { uri: x.arena.push(&path), args: x.arena.push(args.unwrap_or_default()) })
    }
}

/// Points `x` at the redirect's goal and says where its phases go on; `Err` is the status for a goal that is not
/// there, or for the eleventh redirect.
pub(crate) fn follow(x: &mut Exchange, redirect: InternalRedirect) -> Result<Phase, u16> {
    if x.uri_changes == 0 {
        let message = [
            b"rewrite or internal redirection cycle while ",
            cycle(&redirect),
            b" \"",
            x.arena.get(goal(&redirect)),
            b"\"",
        ]
        .concat();
        x.log_error(&String::from_utf8_lossy(&message));
        return Err(500);
    }
    x.uri_changes -= 1;
    x.internal = true;
    x.add_uri_to_alias = false;
    x.uri_changed = false;
    x.reset_states();
    match redirect {
        InternalRedirect::Uri { uri, args } => {
            x.request.set_uri(&x.arena, uri);
            x.request.args = args;
            x.valid_location = true;
            x.plan = x.server.plan.clone();
            Ok(Phase::ServerRewrite)
        }
        InternalRedirect::Named(name) => named(x, name),
    }
}

fn named(x: &mut Exchange, name: Span) -> Result<Phase, u16> {
    let found = x.server.named(x.arena.get(name));
    let Some(plan) = found else {
        let message = format!("could not find named location \"{}\"", x.arena.get(name).escape_ascii());
        x.log_error(&message);
        return Err(500);
    };
    x.plan = plan;
    keepalive::update(x);
    Ok(Phase::Rewrite)
}

fn goal(redirect: &InternalRedirect) -> Span {
    match *redirect {
        InternalRedirect::Uri { uri, .. } => uri,
        InternalRedirect::Named(name) => name,
    }
}

fn cycle(redirect: &InternalRedirect) -> &'static [u8] {
    match redirect {
        InternalRedirect::Uri { .. } => b"internally redirecting to",
        InternalRedirect::Named(_) => b"redirect to named location",
    }
}
