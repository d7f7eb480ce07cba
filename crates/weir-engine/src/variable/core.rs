//! nginx's core variables: what a request, its connection and its response say about themselves.
//!
//! One table, [`VARIABLES`], and a small function for each row in the files below by subject. A value that is in
//! the request's head is named by its span; everything else is written to the arena digit by digit, since access
//! logs ask for a dozen of these per request and formatting machinery costs ten times the digits. Which rows are
//! computed once and which each time (`volatile`) is nginx's choice, and so is where a row has no value at all.

mod connection;
pub mod credentials;
mod fields;
mod request;
mod response;
#[cfg(test)]
mod tests;
mod time;

use weir_http::Span;
use weir_http::h1;

use super::Variable;
use crate::exchange::Exchange;
use crate::presence::digits;
use crate::text::Text;

/// The core's variables, in the order of nginx's documentation.
pub const VARIABLES: &[Variable] = &[
    // What the client asked for.
    Variable::new("host", request::host).of_head(),
    Variable::new("request", request::line).of_head(),
    Variable::new("request_method", request::method).volatile().of_head(),
    Variable::new("request_uri", request::unparsed_uri).of_head(),
    Variable::prefix("request_uri_from_", request::uri_from).volatile(),
    Variable::new("uri", request::uri).volatile().of_head(),
    Variable::new("document_uri", request::uri).volatile().of_head(),
    Variable::new("args", request::args).volatile().of_head().settable(request::set_args),
    Variable::new("query_string", request::args).volatile().of_head(),
    Variable::new("is_args", request::is_args).volatile().of_head(),
    Variable::new("server_protocol", request::protocol).of_head(),
    Variable::new("request_port", request::port).of_head(),
    Variable::new("is_request_port", request::is_port).of_head(),
    Variable::new("request_length", request::length).volatile(),
    Variable::new("request_id", request_id),
    Variable::new("request_body", request::body),
    Variable::new("request_body_file", request::body_file),
    Variable::new("content_length", request::content_length).volatile(),
    Variable::new("content_type", fields::content_type).of_head(),
    Variable::new("remote_user", credentials::remote_user),
    // Where it leads to.
    Variable::new("server_name", request::server_name).of_head(),
    Variable::new("document_root", request::document_root).volatile(),
    Variable::new("realpath_root", request::realpath_root).volatile(),
    Variable::new("request_filename", request::filename).volatile(),
    // Fields of the request that have a row of their own in nginx; all others come by prefix.
    Variable::new("http_host", fields::host).of_head(),
    Variable::new("http_user_agent", fields::user_agent).of_head(),
    Variable::new("http_referer", fields::referer).of_head(),
    Variable::new("http_via", fields::via).of_head(),
    Variable::new("http_x_forwarded_for", fields::x_forwarded_for).of_head(),
    Variable::new("http_cookie", fields::cookies).of_head(),
    Variable::prefix("http_", fields::request_field).of_head().kept(),
    Variable::prefix("cookie_", fields::cookie).of_head().kept(),
    Variable::prefix("arg_", fields::argument).of_head(),
    // The connection.
    Variable::new("remote_addr", connection::remote_addr).of_connection(),
    Variable::new("remote_port", connection::remote_port),
    Variable::new("binary_remote_addr", connection::binary_remote_addr),
    Variable::new("server_addr", connection::server_addr).of_connection(),
    Variable::new("server_port", connection::server_port).of_connection(),
    Variable::new("scheme", connection::scheme).of_connection(),
    Variable::new("https", connection::https).of_connection(),
    Variable::new("connection", connection::number),
    Variable::new("connection_requests", connection::requests),
    Variable::new("connection_time", time::connection).volatile(),
    Variable::new("pipe", connection::pipe),
    Variable::new("proxy_protocol_addr", connection::proxy_protocol_addr),
    Variable::new("proxy_protocol_port", connection::proxy_protocol_port),
    Variable::new("proxy_protocol_server_addr", connection::proxy_protocol_server_addr),
    Variable::new("proxy_protocol_server_port", connection::proxy_protocol_server_port),
    Variable::prefix("proxy_protocol_tlv_", connection::proxy_protocol_tlv).kept(),
    Variable::new("tcpinfo_rtt", connection::tcpinfo_rtt).volatile(),
    Variable::new("tcpinfo_rttvar", connection::tcpinfo_rttvar).volatile(),
    Variable::new("tcpinfo_snd_cwnd", connection::tcpinfo_snd_cwnd).volatile(),
    Variable::new("tcpinfo_rcv_space", connection::tcpinfo_rcv_space).volatile(),
    // The response.
    Variable::new("status", response::status).volatile(),
    Variable::new("bytes_sent", response::bytes_sent),
    Variable::new("body_bytes_sent", response::body_bytes_sent),
    Variable::new("request_completion", response::completion),
    Variable::new("limit_rate", response::limit_rate).volatile().settable(response::set_limit_rate),
    Variable::new("sent_http_content_type", response::content_type),
    Variable::new("sent_http_content_length", response::content_length),
    Variable::new("sent_http_location", response::location),
    Variable::new("sent_http_last_modified", response::last_modified),
    Variable::new("sent_http_connection", response::connection),
    Variable::new("sent_http_keep_alive", response::keep_alive),
    Variable::new("sent_http_transfer_encoding", response::transfer_encoding),
    Variable::prefix("sent_http_", fields::response_field).kept(),
    Variable::prefix("sent_trailer_", fields::response_trailer).kept(),
    // The moment and the process.
    Variable::new("request_time", time::request).volatile(),
    Variable::new("msec", time::msec).volatile(),
    Variable::new("time_iso8601", time::iso8601).volatile(),
    Variable::new("time_local", time::local).volatile(),
    Variable::new("nginx_version", connection::version),
    Variable::new("hostname", connection::hostname).of_head(),
    Variable::new("pid", connection::pid),
];

/// `$request_id`, `$trace_id`: the request's number in 32 hexadecimal digits, the same for its subrequests and after
/// internal redirects.
pub(crate) fn request_id(x: &mut Exchange) -> Option<Text> {
    let digits = digits(x.id());
    Some(Text::Span(x.arena.push(&digits)))
}

/// `span`, or nothing where nginx has "not found": a part of the request that was never there has the default span,
/// and one that is there but empty does not end at the arena's very start.
fn present(span: Span) -> Option<Text> {
    (span.end > 0).then_some(Text::Span(span))
}

/// `number` in decimal digits.
fn number(x: &mut Exchange, number: u64) -> Option<Text> {
    Some(Text::Span(x.arena.write(|out| h1::number(out, number))))
}

/// `bytes`, copied to the arena.
fn copied(x: &mut Exchange, bytes: &[u8]) -> Option<Text> {
    Some(Text::Span(x.arena.push(bytes)))
}
