//! The rows: contexts and arguments as in nginx's manual, the setter, a line for ours.

use weir_conf::Directive;
use weir_conf::names::*;

use super::{HttpCoreConf, MSIE6, NO_BROWSER, SAFARI, TempPath, set};
use crate::conf::core::{IfModifiedSince, InFileOnly, Lingering, ServerTokens};

/// The directives of [`super::HttpCore`].
pub(super) const TABLE: &[Row] = &[
    // Where files are, and what they are.
    Row::new("root", ANY_OR_IF, ONE, set::root)
        .doc("The folder that URIs are looked up in; html below the prefix."),
    Row::new("alias", LOCATION, ONE, set::alias)
        .doc("The folder that stands for the location's part of the URI."),
    Row::new("types", ANY, NONE.block(), set::types)
        .doc("Media types and the file extensions that have them."),
    Row::new("default_type", ANY, ONE, set::default_type)
        .doc("The media type of other extensions; text/plain."),
    Row::new("types_hash_max_size", ANY, ONE, |c, line| {
        line.number(&mut c.accepted.types_hash_max_size, 0..)
    })
    .doc("Accepted for nginx's files; the table of types grows by itself."),
    Row::new("types_hash_bucket_size", ANY, ONE, |c, line| {
        line.number(&mut c.accepted.types_hash_bucket_size, 0..)
    })
    .doc("Accepted for nginx's files; the table of types has no buckets."),
    Row::new("disable_symlinks", ANY, ONE_OR_TWO, set::disable_symlinks)
        .doc("Whether files are opened through symbolic links: off, on, if_not_owner, and from=PART."),
    Row::new("open_file_cache", ANY, ONE_OR_TWO, set::open_file_cache)
        .doc("Keeps files open between requests: max=N, inactive=TIME (60s), or off."),
    Row::new("open_file_cache_valid", ANY, ONE, |c, line| set::seconds(line, &mut c.open_file_cache_valid))
        .doc("After how long a cached file is looked at again; 60s."),
    Row::new("open_file_cache_min_uses", ANY, ONE, |c, line| {
        line.number(&mut c.open_file_cache_min_uses, 0..)
    })
    .doc("Uses within inactive= that keep a file open; 1."),
    Row::new("open_file_cache_errors", ANY, FLAG, |c, line| line.flag(&mut c.open_file_cache_errors))
        .doc("Caches that a file can't be opened; off."),
    Row::new("open_file_cache_events", ANY, FLAG, |c, line| line.flag(&mut c.open_file_cache_events))
        .doc("Accepted for nginx's files; it asks for events that other systems than Linux have."),
    // Who gets in, and where errors go.
    Row::new("internal", LOCATION, NONE, set::internal)
        .doc("The location answers redirects inside the server only."),
    Row::new("satisfy", ANY, ONE, |c, line| {
        line.one_of(&mut c.satisfy_any, &[("all", false), ("any", true)])
    })
    .doc("Whether all of the access modules must allow a request, or any; all."),
    Row::new("resolver", ANY, MORE, |c, line| {
        let resolver = crate::resolver::parse(line)?;
        line.once(&mut c.resolver, resolver)
    })
    .doc("The name servers that are asked for names at run time."),
    Row::new("resolver_timeout", ANY, ONE, |c, line| line.time_ms(&mut c.resolver_timeout))
        .doc("How long name servers are waited for; 30s."),
    Row::new("resolver_cache", HTTP, ONE, |c, line| crate::resolver::kept::set(&mut c.resolver_cache, line))
        .doc("Weir's own: a folder in which what is known of names outlives the server; off."),
    Row::new("auth_delay", ANY, ONE, |c, line| line.time_ms(&mut c.auth_delay))
        .doc("How long an answer 401 is held back; 0."),
    Row::new("error_page", ANY_OR_IF, TWO_OR_MORE, set::error_page)
        .doc("The URI that answers for these statuses."),
    Row::new("recursive_error_pages", ANY, FLAG, |c, line| line.flag(&mut c.recursive_error_pages))
        .doc("error_page also for what an error_page answers; off."),
    // The request's body.
    Row::new("client_max_body_size", ANY, ONE, |c, line| line.offset(&mut c.client_max_body_size))
        .doc("The longest body, above it 413; 0 is no limit; 1m."),
    Row::new("client_body_buffer_size", ANY, ONE, |c, line| line.size(&mut c.client_body_buffer_size))
        .doc("How much of a body is kept in memory, the rest in a file; two pages."),
    Row::new("client_body_timeout", ANY, ONE, |c, line| line.time_ms(&mut c.client_body_timeout))
        .doc("The longest wait between two pieces of a body, then 408; 60s."),
    Row::new("client_body_in_file_only", ANY, ONE, |c, line| {
        line.one_of(&mut c.client_body_in_file_only, IN_FILE)
    })
    .doc("Whether a body always goes to a file: off, on (it stays), clean (it goes with the request)."),
    Row::new("client_body_in_single_buffer", ANY, FLAG, |c, line| {
        line.flag(&mut c.client_body_in_single_buffer)
    })
    .doc("Keeps a body in memory in one piece; off."),
    Row::new("client_body_temp_path", ANY, ONE.or(TWO).or(THREE).or(FOUR), |c, line| {
        TempPath::set(&mut c.client_body_temp_path, line)
    })
    .doc("The folder of bodies in files, with up to three levels; client_body_temp below the prefix."),
    // The connection.
    Row::new("keepalive_timeout", ANY, ONE_OR_TWO, set::keepalive_timeout)
        .doc("How long an idle connection stays open (75s), and the Keep-Alive field that tells clients."),
    Row::new("keepalive_requests", ANY, ONE, |c, line| line.number(&mut c.keepalive_requests, 0..))
        .doc("Requests of one connection; 1000."),
    Row::new("keepalive_time", ANY, ONE, |c, line| line.time_ms(&mut c.keepalive_time))
        .doc("How long a connection takes new requests; 1h."),
    Row::new("keepalive_min_timeout", ANY, ONE, |c, line| line.time_ms(&mut c.keepalive_min_timeout))
        .doc("How long an idle connection stays open at least when the server stops; 0."),
    Row::new("keepalive_disable", ANY, ONE_OR_TWO, |c, line| line.bits(&mut c.keepalive_disable, BROWSERS))
        .doc("Browsers whose connections close: msie6 (after POST), safari, none; msie6."),
    Row::new("send_timeout", ANY, ONE, |c, line| line.time_ms(&mut c.send_timeout))
        .doc("The longest wait between two writes of a response; 60s."),
    Row::new("lingering_close", ANY, ONE, |c, line| line.one_of(&mut c.lingering_close, LINGERING))
        .doc("Whether data that a client still sends is read before its connection closes: on, off, always."),
    Row::new("lingering_time", ANY, ONE, |c, line| line.time_ms(&mut c.lingering_time))
        .doc("The longest lingering; 30s."),
    Row::new("lingering_timeout", ANY, ONE, |c, line| line.time_ms(&mut c.lingering_timeout))
        .doc("The longest wait for more data while lingering; 5s."),
    Row::new("reset_timedout_connection", ANY, FLAG, |c, line| line.flag(&mut c.reset_timedout_connection))
        .doc("Resets a connection that timed out, which frees its memory at once; off."),
    Row::new("limit_rate", ANY_OR_IF, ONE, |c, line| set::size_script(line, &mut c.limit_rate))
        .doc("Bytes of a response sent each second; 0 is no limit."),
    Row::new("limit_rate_after", ANY_OR_IF, ONE, |c, line| set::size_script(line, &mut c.limit_rate_after))
        .doc("Bytes sent before limit_rate begins; 0."),
    Row::new("early_hints", ANY, MORE, set::early_hints)
        .doc("Passes 103 (Early Hints) of servers on to clients when a value is neither empty nor 0."),
    Row::new("tcp_nodelay", ANY, FLAG, |c, line| line.flag(&mut c.tcp_nodelay))
        .doc("Sends small pieces at once (TCP_NODELAY), the address' default server decides what new connections begin with; on."),
    Row::new("tcp_nopush", ANY, FLAG, |c, line| line.flag(&mut c.tcp_nopush))
        .doc("Sends the head and the beginning of a file in one packet; off."),
    Row::new("send_lowat", ANY, ONE, |c, line| line.size(&mut c.accepted.send_lowat))
        .doc("Accepted for nginx's files; Linux has no SO_SNDLOWAT, nginx ignores it there too."),
    // Files to sockets.
    Row::new("sendfile", ANY_OR_IF, FLAG, |c, line| line.flag(&mut c.sendfile))
        .doc("Files go to the socket inside the kernel; off."),
    Row::new("sendfile_max_chunk", ANY, ONE, |c, line| line.size(&mut c.sendfile_max_chunk))
        .doc("The most that one sendfile() sends, so that a fast client does not take the worker; 2m."),
    Row::new("subrequest_output_buffer_size", ANY, ONE, |c, line| {
        line.size(&mut c.subrequest_output_buffer_size)
    })
    .doc("The longest response of a subrequest that is kept in memory; a page."),
    Row::new("output_buffers", ANY, TWO, |c, line| line.bufs(&mut c.accepted.output_buffers))
        .doc("Accepted for nginx's files; files are read into buffers of the worker's pool."),
    Row::new("postpone_output", ANY, ONE, |c, line| line.size(&mut c.accepted.postpone_output))
        .doc("Accepted for nginx's files; small pieces of one turn of the loop leave in one write."),
    Row::new("read_ahead", ANY, ONE, |c, line| line.size(&mut c.accepted.read_ahead))
        .doc("Accepted for nginx's files; how far to read ahead is the kernel's decision on Linux."),
    Row::new("directio", ANY, ONE, set::directio)
        .doc("Accepted for nginx's files; files are sent from the page cache, which direct reads go around."),
    Row::new("directio_alignment", ANY, ONE, |c, line| line.offset(&mut c.accepted.directio_alignment))
        .doc("Accepted for nginx's files; there are no direct reads."),
    Row::new("aio", ANY, ONE, set::aio)
        .doc("Accepted for nginx's files; reads that would wait never run on the loop."),
    Row::new("aio_write", ANY, FLAG, |c, line| line.flag(&mut c.accepted.aio_write))
        .doc("Accepted for nginx's files; writes to temporary files never run on the loop."),
    // What responses say.
    Row::new("server_tokens", ANY, ONE, |c, line| line.one_of(&mut c.server_tokens, TOKENS))
        .doc("Whether Server and error pages tell the version: on, off, build."),
    Row::new("if_modified_since", ANY, ONE, |c, line| line.one_of(&mut c.if_modified_since, MODIFIED))
        .doc("How If-Modified-Since compares: off, exact, before."),
    Row::new("etag", ANY, FLAG, |c, line| line.flag(&mut c.etag)).doc("ETag of files; on."),
    Row::new("max_ranges", ANY, ONE, |c, line| line.number(&mut c.max_ranges, 0..))
        .doc("Ranges that one request may ask for; 0 refuses all; no limit by default."),
    Row::new("chunked_transfer_encoding", ANY, FLAG, |c, line| line.flag(&mut c.chunked_transfer_encoding))
        .doc("Chunked responses to HTTP/1.1; off ends them with the connection; on."),
    Row::new("absolute_redirect", ANY, FLAG, |c, line| line.flag(&mut c.absolute_redirect))
        .doc("Redirects with scheme and host; on."),
    Row::new("server_name_in_redirect", ANY, FLAG, |c, line| line.flag(&mut c.server_name_in_redirect))
        .doc("Redirects to the first server_name instead of the request's host; off."),
    Row::new("port_in_redirect", ANY, FLAG, |c, line| line.flag(&mut c.port_in_redirect))
        .doc("Redirects with the port unless it is the usual one; on."),
    Row::new("msie_padding", ANY, FLAG, |c, line| line.flag(&mut c.msie_padding))
        .doc("Pads error pages to 512 bytes for old Internet Explorers; on."),
    Row::new("post_action", ANY_OR_IF, ONE, |c, line| line.text(&mut c.post_action))
        .doc("Where a request goes on when its answer is out, a URI or @name; what is answered there is dropped."),
    Row::new("msie_refresh", ANY, FLAG, |c, line| line.flag(&mut c.msie_refresh))
        .doc("Redirects old Internet Explorers by a page instead of a status; off."),
    // Logs.
    Row::new("log_not_found", ANY, FLAG, |c, line| line.flag(&mut c.log_not_found))
        .doc("Missing files in the error log; on."),
    Row::new("log_subrequest", ANY, FLAG, |c, line| line.flag(&mut c.log_subrequest))
        .doc("Subrequests in the access log; off."),
    Row::new("error_log", ANY, MORE, set::error_log)
        .doc("Where errors are written, and from which level on."),
];

// The alias tells the closures of the table what `c` is.
type Row = Directive<HttpCoreConf>;

const FOUR: weir_conf::Args = weir_conf::Args::range(4, 4);
const IN_FILE: &[(&str, InFileOnly)] =
    &[("off", InFileOnly::Off), ("on", InFileOnly::On), ("clean", InFileOnly::Clean)];
const BROWSERS: &[(&str, u32)] = &[("none", NO_BROWSER), ("msie6", MSIE6), ("safari", SAFARI)];
const LINGERING: &[(&str, Lingering)] =
    &[("off", Lingering::Off), ("on", Lingering::On), ("always", Lingering::Always)];
const TOKENS: &[(&str, ServerTokens)] =
    &[("off", ServerTokens::Off), ("on", ServerTokens::On), ("build", ServerTokens::Build)];
const MODIFIED: &[(&str, IfModifiedSince)] =
    &[("off", IfModifiedSince::Off), ("exact", IfModifiedSince::Exact), ("before", IfModifiedSince::Before)];
