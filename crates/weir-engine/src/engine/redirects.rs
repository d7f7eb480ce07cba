//! Follows internal redirects.

use weir_http::Span;

use crate::exchange::Exchange;
use crate::phase::Phase;
use crate::redirect::InternalRedirect;
use crate::transport::keepalive;

/// Points `x` at the redirect's goal and says where its phases go on; `Err` is the status for a goal that is not
/// there, or for the eleventh redirect.
pub(crate) fn follow(x: &mut Exchange, redirect: InternalRedirect) -> Result<Phase, u16> {
    if !x.may_change_uri() {
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
            // The way leads through the server, whose settings count, too, as in nginx.
            keepalive::update(x);
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
