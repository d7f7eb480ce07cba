//! Internal redirects: to a URI, or to a named location.

use weir_http::{Method, Span, uri};

use crate::body::ResponseBody;
use crate::exchange::{Exchange, FieldPattern};

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

impl Exchange {
    /// Gives up the response that is being made, of which nothing was sent, so that a redirect makes another one: a GET or
    /// HEAD without a body, whatever the client has sent. What is left of the client's body is dropped.
    pub fn start_over(&mut self) {
        self.response.clear();
        self.response.body = ResponseBody::Empty;
        if self.request.head.method != Method::Head {
            self.request.head.method = Method::Get;
            self.request.head.method_span = self.arena.push(b"GET");
        }
        self.body.leave_out();
        let head = &mut self.request.head;
        (head.content_length, head.chunked, head.expect_continue) = (None, false, false);
        for name in BODY_FIELDS {
            self.remove_request_fields(FieldPattern::Exactly(name));
        }
    }
}

/// What says something of a request's body.
const BODY_FIELDS: [&[u8]; 7] = [
    b"Content-Length",
    b"Transfer-Encoding",
    b"Content-Type",
    b"Content-Encoding",
    b"Content-Language",
    b"Expect",
    b"Trailer",
];
