//! Basic authentication (RFC 7617): user and password in the Authorization field, for `$remote_user` and the modules
//! that check them. A client that asks for a tunnel shows them to this server as a proxy, in Proxy-Authorization.

use weir_http::{KnownField, Method, base64};

use crate::exchange::Exchange;
use crate::text::{Span, Text};

/// User and password as decoded, in the request's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasicCredentials {
    /// What precedes the first colon; may be empty.
    pub user: Span,
    /// What follows it; may be empty.
    pub password: Span,
}

/// The credentials that `x` was sent with. `None`: there is no such field, it is of another scheme, or it
/// is no base64 of a text with a colon.
pub fn basic(x: &mut Exchange) -> Option<BasicCredentials> {
    let known = match x.request.head.method {
        Method::Connect => KnownField::ProxyAuthorization,
        _ => KnownField::Authorization,
    };
    let field = x.request.span(known)?;
    let value = x.arena.get(field);
    let encoded =
        value.split_at_checked(SCHEME.len()).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(SCHEME))?.1;
    let decoded = base64::decode(encoded.trim_ascii_start())?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    let all = x.arena.push(&decoded);
    let middle = all.start + colon as u32;
    Some(BasicCredentials {
        user: Span { start: all.start, end: middle },
        password: Span { start: middle + 1, end: all.end },
    })
}

/// `$remote_user`.
pub(super) fn remote_user(x: &mut Exchange) -> Option<Text> {
    basic(x).map(|credentials| Text::Span(credentials.user))
}

const SCHEME: &[u8] = b"Basic ";
