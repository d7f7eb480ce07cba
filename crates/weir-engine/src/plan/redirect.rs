//! Internal redirects: to a URI, or to a named location.

use weir_http::{Span, uri};

use crate::exchange::Exchange;

/// Where an internal redirect leads.
#[derive(Clone, Copy, Debug)]
pub enum InternalRedirect {
    /// A URI and its arguments, both in the request's arena. The location is looked up again.
    Uri {
        /// The path, as it would be in a normalised request.
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

    /// A redirect to `target` as a server or a script names it: `@name`, or a URI as it would be in a request, which is
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
