//! The rows: contexts and arguments as in nginx's manual, the setter, a line for ours.

use weir_conf::Directive;
use weir_conf::names::*;

use super::{HttpCoreConf, MSIE6, NO_BROWSER, SAFARI, TempPath, set};
use crate::settings::location::{IfModifiedSince, InFileOnly, LingeringClose, ServerTokens, SmallWrites};

/// The directives of [`super::HttpCore`].
pub(super) const TABLE: &[HttpCoreRow] = &[
    // Where files are, and what they are.
    HttpCoreRow::new("root", ANY_OR_IF, ONE, set::root)
        .syntax("root path")
        .default("html")
        .doc(
            "Sets the root directory for requests: the request URI is appended to it. The \
             path may contain variables.",
        )
        .example("location /images/ {\n    root /srv/www;\n}"),
    HttpCoreRow::new("alias", LOCATION, ONE, set::alias)
        .syntax("alias path")
        .doc(
            "Replaces the part of the URI that the location matches by this path. In a \
             location given by a regular expression the path may refer to its captures.",
        )
        .example("location /images/ {\n    alias /srv/pictures/;\n}"),
    HttpCoreRow::new("types", ANY, NONE.block(), set::types)
        .syntax("types")
        .doc(
            "Maps file name extensions to MIME types of responses; a line is a type and its \
             extensions.",
        )
        .example("types {\n    text/html html htm;\n    image/svg+xml svg;\n}"),
    HttpCoreRow::new("default_type", ANY, ONE, set::default_type)
        .syntax("default_type mime-type")
        .default("text/plain")
        .doc("MIME type of responses whose file name extension is not in `types`."),
    HttpCoreRow::new("types_hash_max_size", ANY, ONE, |c, line| {
        line.number(&mut c.accepted.types_hash_max_size, 0..)
    })
    .syntax("types_hash_max_size size")
    .default("1024")
    .doc("Accepted for compatibility with nginx, without effect: the table of types grows as needed."),
    HttpCoreRow::new("types_hash_bucket_size", ANY, ONE, |c, line| {
        line.number(&mut c.accepted.types_hash_bucket_size, 0..)
    })
    .syntax("types_hash_bucket_size size")
    .default("64")
    .doc("Accepted for compatibility with nginx, without effect: the table of types has no buckets."),
    HttpCoreRow::new("disable_symlinks", ANY, ONE_OR_TWO, set::disable_symlinks)
        .syntax("disable_symlinks off\ndisable_symlinks on | if_not_owner [from=part]")
        .default("off")
        .doc(
            "Denies access to files through symbolic links: any with `on`, with \
             `if_not_owner` those whose owner is not the owner of the file. `from` is the \
             leading part of the path that is not checked.",
        ),
    HttpCoreRow::new("open_file_cache", ANY, ONE_OR_TWO, set::open_file_cache)
        .syntax("open_file_cache off\nopen_file_cache max=number [inactive=time]")
        .default("off")
        .doc(
            "Caches open files, their sizes and modification times: at most `max`; those not \
             used for `inactive` (60s) are removed.",
        )
        .example(
            "open_file_cache max=10000 inactive=30s;\n\
             open_file_cache_valid 60s;\n\
             open_file_cache_min_uses 2;",
        ),
    HttpCoreRow::new("open_file_cache_valid", ANY, ONE, |c, line| {
        set::seconds(line, &mut c.open_file_cache_valid)
    })
    .syntax("open_file_cache_valid time")
    .default("60s")
    .doc("Time after which a cached file is checked for changes."),
    HttpCoreRow::new("open_file_cache_min_uses", ANY, ONE, |c, line| {
        line.number(&mut c.open_file_cache_min_uses, 0..)
    })
    .syntax("open_file_cache_min_uses number")
    .default("1")
    .doc("Minimum number of uses within `inactive` for a file to stay open."),
    HttpCoreRow::new("open_file_cache_errors", ANY, FLAG, |c, line| line.flag(&mut c.open_file_cache_errors))
        .syntax("open_file_cache_errors on | off")
        .default("off")
        .doc("Caches errors of opening files, too."),
    HttpCoreRow::new("open_file_cache_events", ANY, FLAG, |c, line| line.flag(&mut c.open_file_cache_events))
        .syntax("open_file_cache_events on | off")
        .default("off")
        .doc(
            "Accepted for compatibility with nginx, without effect: it is for systems other \
             than Linux.",
        ),
    // Access control, and where errors go.
    HttpCoreRow::new("internal", LOCATION, NONE, set::internal).syntax("internal").doc(
        "Allows only internal requests in this location: of redirects inside the server, \
             `error_page`, `try_files`, subrequests. Others get 404.",
    ),
    HttpCoreRow::new("satisfy", ANY, ONE, |c, line| {
        line.one_of(&mut c.satisfy_any, &[("all", false), ("any", true)])
    })
    .syntax("satisfy all | any")
    .default("all")
    .doc(
        "Allows access if all access modules (`allow` and `deny`, `auth_basic`, \
         `auth_request`, Lua) allow it, or any of them.",
    )
    .example(
        "location / {\n\
         \x20   satisfy any;\n\
         \x20   allow 192.168.1.0/24;\n\
         \x20   deny all;\n\
         \x20   auth_basic \"Staff only\";\n\
         \x20   auth_basic_user_file conf/htpasswd;\n\
         }",
    ),
    HttpCoreRow::new("resolver", ANY_OR_STREAM, MORE, |c, line| {
        let resolver = crate::resolver::parse(line)?;
        line.once(&mut c.resolver, resolver)
    })
    .syntax(
        "resolver address ... [valid=time] [ipv4=on|off] [ipv6=on|off] [status_zone=zone] \
              [backup=address] [stale=time] [confirm=number] [heartbeat=time] [local=on|off]",
    )
    .doc(
        "Name servers that resolve host names at run time, with an optional port (53). \
         `valid` overrides the TTL of answers; `ipv4=off` and `ipv6=off` disable one kind of \
         address. Weir's own parameters are described in docs/explanation/names.md.",
    )
    .example("resolver 127.0.0.53 valid=30s;\nresolver_timeout 5s;"),
    HttpCoreRow::new("resolver_timeout", ANY_OR_STREAM, ONE, |c, line| line.time_ms(&mut c.resolver_timeout))
        .syntax("resolver_timeout time")
        .default("30s")
        .doc("Timeout for resolving a host name."),
    HttpCoreRow::new("resolver_cache", HTTP, ONE, |c, line| set::resolver_cache(&mut c.resolver_cache, line))
        .syntax("resolver_cache path | off")
        .default("off")
        .doc("Directory in which the resolver's cache survives restarts. Weir's own."),
    HttpCoreRow::new("auth_delay", ANY, ONE, |c, line| line.time_ms(&mut c.auth_delay))
        .syntax("auth_delay time")
        .default("0")
        .doc("Delays responses with status 401, against timing attacks on passwords."),
    HttpCoreRow::new("error_page", ANY_OR_IF, TWO_OR_MORE, set::error_page)
        .syntax("error_page code ... [=[response]] uri")
        .doc(
            "URI that is shown for these status codes: by an internal redirect, to a location \
             with `@name`, or by a redirect to an absolute URL. `=response` changes the \
             status; `=` alone takes that of the response for the URI.",
        )
        .example("error_page 404 /404.html;\nerror_page 502 503 504 =200 @fallback;"),
    HttpCoreRow::new("recursive_error_pages", ANY, FLAG, |c, line| line.flag(&mut c.recursive_error_pages))
        .syntax("recursive_error_pages on | off")
        .default("off")
        .doc("Applies `error_page` also to errors of a request that an `error_page` has redirected."),
    // The request's body.
    HttpCoreRow::new("client_max_body_size", ANY, ONE, |c, line| line.offset(&mut c.client_max_body_size))
        .syntax("client_max_body_size size")
        .default("1m")
        .doc("Maximum size of the request body; larger ones get 413. 0 disables the check.")
        .example("client_max_body_size 20m;"),
    HttpCoreRow::new("client_body_buffer_size", ANY, ONE, |c, line| {
        line.size(&mut c.client_body_buffer_size)
    })
    .syntax("client_body_buffer_size size")
    .default("8k")
    .doc(
        "Size of the buffer for the request body; what is larger is written to a \
             temporary file. The default is two memory pages.",
    ),
    HttpCoreRow::new("client_body_timeout", ANY, ONE, |c, line| line.time_ms(&mut c.client_body_timeout))
        .syntax("client_body_timeout time")
        .default("60s")
        .doc("Timeout between two successive reads of the request body; then the response is 408."),
    HttpCoreRow::new("client_body_in_file_only", ANY, ONE, |c, line| {
        line.one_of(&mut c.client_body_in_file_only, IN_FILE)
    })
    .syntax("client_body_in_file_only on | clean | off")
    .default("off")
    .doc(
        "Writes every request body to a file: `on` keeps the file, `clean` removes it after \
         the request.",
    ),
    HttpCoreRow::new("client_body_in_single_buffer", ANY, FLAG, |c, line| {
        line.flag(&mut c.client_body_in_single_buffer)
    })
    .syntax("client_body_in_single_buffer on | off")
    .default("off")
    .doc("Keeps a request body that is in memory in one buffer."),
    HttpCoreRow::new("client_body_temp_path", ANY, ONE.or(TWO).or(THREE).or(FOUR), |c, line| {
        TempPath::set(&mut c.client_body_temp_path, line)
    })
    .syntax("client_body_temp_path path [level1 [level2 [level3]]]")
    .default("client_body_temp")
    .doc(
        "Directory for temporary files of request bodies, with up to three levels of \
         subdirectories.",
    ),
    // The connection.
    HttpCoreRow::new("keepalive_timeout", ANY, ONE_OR_TWO, set::keepalive_timeout)
        .syntax("keepalive_timeout timeout [header_timeout]")
        .default("75s")
        .doc(
            "Timeout during which an idle client connection stays open; 0 disables \
             keep-alive. The second time is sent in the `Keep-Alive: timeout=time` response \
             field.",
        ),
    HttpCoreRow::new("keepalive_requests", ANY, ONE, |c, line| line.number(&mut c.keepalive_requests, 0..))
        .syntax("keepalive_requests number")
        .default("1000")
        .doc("Maximum number of requests on one client connection, after which it is closed."),
    HttpCoreRow::new("keepalive_time", ANY, ONE, |c, line| line.time_ms(&mut c.keepalive_time))
        .syntax("keepalive_time time")
        .default("1h")
        .doc(
            "Maximum time during which a client connection accepts new requests; it is closed \
             after the request that follows.",
        ),
    HttpCoreRow::new("keepalive_min_timeout", ANY, ONE, |c, line| line.time_ms(&mut c.keepalive_min_timeout))
        .syntax("keepalive_min_timeout timeout")
        .default("0")
        .doc(
            "Minimum time during which an idle client connection stays open when a worker \
             shuts down.",
        ),
    HttpCoreRow::new("keepalive_disable", ANY, ONE_OR_TWO, |c, line| {
        line.bits(&mut c.keepalive_disable, BROWSERS)
    })
    .syntax("keepalive_disable none | browser ...")
    .default("msie6")
    .doc(
        "Disables keep-alive for misbehaving browsers: `msie6` (after POST), `safari`, or \
             `none` of them.",
    ),
    HttpCoreRow::new("send_timeout", ANY, ONE, |c, line| line.time_ms(&mut c.send_timeout))
        .syntax("send_timeout time")
        .default("60s")
        .doc(
            "Timeout between two successive writes of a response to the client; then the \
             connection is closed.",
        ),
    HttpCoreRow::new("lingering_close", ANY, ONE, |c, line| line.one_of(&mut c.lingering_close, LINGERING))
        .syntax("lingering_close on | off | always")
        .default("on")
        .doc(
            "Reads what the client still sends before closing the connection: `on` when it is \
             likely that there is more, `always`, or `off` never.",
        ),
    HttpCoreRow::new("lingering_time", ANY, ONE, |c, line| line.time_ms(&mut c.lingering_time))
        .syntax("lingering_time time")
        .default("30s")
        .doc("Maximum time of reading and dropping further data of the client."),
    HttpCoreRow::new("lingering_timeout", ANY, ONE, |c, line| line.time_ms(&mut c.lingering_timeout))
        .syntax("lingering_timeout time")
        .default("5s")
        .doc("Timeout between two reads of further data of the client."),
    HttpCoreRow::new("reset_timedout_connection", ANY, FLAG, |c, line| {
        line.flag(&mut c.reset_timedout_connection)
    })
    .syntax("reset_timedout_connection on | off")
    .default("off")
    .doc("Resets connections that time out, which frees the kernel's memory of them at once."),
    HttpCoreRow::new("limit_rate", ANY_OR_IF, ONE, |c, line| set::size_script(line, &mut c.limit_rate))
        .syntax("limit_rate rate")
        .default("0")
        .doc(
            "Limits the rate of a response to the client, in bytes per second; 0 disables the \
             limit. The value may contain variables.",
        )
        .example("location /download/ {\n    limit_rate_after 1m;\n    limit_rate 200k;\n}"),
    HttpCoreRow::new("limit_rate_after", ANY_OR_IF, ONE, |c, line| {
        set::size_script(line, &mut c.limit_rate_after)
    })
    .syntax("limit_rate_after size")
    .default("0")
    .doc(
        "Amount of a response that is sent without the limit of `limit_rate`. The value \
             may contain variables.",
    ),
    HttpCoreRow::new("early_hints", ANY, MORE, set::early_hints).syntax("early_hints string ...").doc(
        "Passes 103 (Early Hints) responses of upstream servers to the client if one of \
             the values is neither empty nor `0`.",
    ),
    HttpCoreRow::new("tcp_nodelay", ANY_OR_STREAM, FLAG, |c, line| line.flag(&mut c.tcp_nodelay))
        .syntax("tcp_nodelay on | off")
        .default("on")
        .doc(
            "Sets `TCP_NODELAY` on client connections; new connections take the setting of \
             the address's default server.",
        ),
    HttpCoreRow::new("tcp_nopush", ANY, FLAG, |c, line| line.flag(&mut c.tcp_nopush))
        .syntax("tcp_nopush on | off")
        .default("off")
        .doc(
            "Sends the response header and the beginning of a file in one packet \
             (`TCP_CORK`), with `sendfile`.",
        ),
    HttpCoreRow::new("send_lowat", ANY, ONE, |c, line| line.size(&mut c.accepted.send_lowat))
        .syntax("send_lowat size")
        .default("0")
        .doc("Accepted for compatibility with nginx, without effect: Linux has no `SO_SNDLOWAT`."),
    // Files to sockets.
    HttpCoreRow::new("sendfile", ANY_OR_IF, FLAG, |c, line| line.flag(&mut c.sendfile))
        .syntax("sendfile on | off")
        .default("off")
        .doc("Sends files by `sendfile()`, without copying them through the process."),
    HttpCoreRow::new("sendfile_max_chunk", ANY, ONE, |c, line| line.size(&mut c.sendfile_max_chunk))
        .syntax("sendfile_max_chunk size")
        .default("2m")
        .doc(
            "Maximum amount of data in one `sendfile()` call, so that one fast client does \
             not occupy a worker.",
        ),
    HttpCoreRow::new("subrequest_output_buffer_size", ANY, ONE, |c, line| {
        line.size(&mut c.subrequest_output_buffer_size)
    })
    .syntax("subrequest_output_buffer_size size")
    .default("4k")
    .doc(
        "Size of the buffer for the response body of a subrequest that is buffered in memory. The \
         default is one memory page.",
    ),
    HttpCoreRow::new("output_buffers", ANY, TWO, |c, line| line.bufs(&mut c.accepted.output_buffers))
        .syntax("output_buffers number size")
        .default("2 32k")
        .doc(
            "Accepted for compatibility with nginx, without effect: files are read into \
             buffers of the worker's pool.",
        ),
    HttpCoreRow::new("postpone_output", ANY, ONE, |c, line| line.size(&mut c.accepted.postpone_output))
        .syntax("postpone_output size")
        .default("1460")
        .doc(
            "Accepted for compatibility with nginx, without effect: small pieces are sent in \
             one write anyway.",
        ),
    HttpCoreRow::new("read_ahead", ANY, ONE, |c, line| line.size(&mut c.accepted.read_ahead))
        .syntax("read_ahead size")
        .default("0")
        .doc(
            "Accepted for compatibility with nginx, without effect: the kernel decides how \
             far to read ahead.",
        ),
    HttpCoreRow::new("directio", ANY, ONE, set::directio).syntax("directio size | off").default("off").doc(
        "Accepted for compatibility with nginx, without effect: files are sent from the \
             page cache.",
    ),
    HttpCoreRow::new("directio_alignment", ANY, ONE, |c, line| {
        line.offset(&mut c.accepted.directio_alignment)
    })
    .syntax("directio_alignment size")
    .default("512")
    .doc("Accepted for compatibility with nginx, without effect: there are no direct reads."),
    HttpCoreRow::new("aio", ANY, ONE, set::aio).syntax("aio on | off | threads[=pool]").default("off").doc(
        "Accepted for compatibility with nginx: reads that would block never run on the event \
             loop. With `threads`, no writes do: as `small_file_writes threads`.",
    ),
    HttpCoreRow::new("aio_write", ANY, FLAG, |c, line| line.flag(&mut c.aio_write))
        .syntax("aio_write on | off")
        .default("off")
        .doc("Writes files on threads of the pool only, as `small_file_writes threads`."),
    HttpCoreRow::new("small_file_writes", ANY, ONE, |c, line| {
        line.one_of(&mut c.small_file_writes, SMALL_WRITES)
    })
    .syntax("small_file_writes auto | threads | loop")
    .default("auto")
    .doc(
        "Where files of at most 128 KB are written: request bodies, WebDAV uploads, `proxy_store`, \
         the cache. `threads`: on threads of the pool, as larger ones are. `loop`: on the event loop, \
         whatever the disk. `auto`: on the event loop while the recent writes to the file system were \
         quick. When one takes more than a millisecond, threads write for a growing time, and until \
         their writes are quick again. Network file systems and FUSE always have threads. Weir's own.",
    ),
    // What responses say.
    HttpCoreRow::new("server_tokens", ANY, ONE, |c, line| line.one_of(&mut c.server_tokens, TOKENS))
        .syntax("server_tokens on | off | build")
        .default("on")
        .doc("Shows the version in the `Server` field and on error pages."),
    HttpCoreRow::new("if_modified_since", ANY, ONE, |c, line| {
        line.one_of(&mut c.if_modified_since, MODIFIED)
    })
    .syntax("if_modified_since off | exact | before")
    .default("exact")
    .doc(
        "How the modification time is compared with `If-Modified-Since`: never, for \
             equality, or for being at most that time.",
    ),
    HttpCoreRow::new("etag", ANY, FLAG, |c, line| line.flag(&mut c.etag))
        .syntax("etag on | off")
        .default("on")
        .doc("Adds `ETag` to responses that are files."),
    HttpCoreRow::new("max_ranges", ANY, ONE, |c, line| line.number(&mut c.max_ranges, 0..))
        .syntax("max_ranges number")
        .doc(
            "Maximum number of ranges in a request; 0 disables ranges. By default there is no \
             limit.",
        ),
    HttpCoreRow::new("chunked_transfer_encoding", ANY, FLAG, |c, line| {
        line.flag(&mut c.chunked_transfer_encoding)
    })
    .syntax("chunked_transfer_encoding on | off")
    .default("on")
    .doc(
        "Sends responses of unknown length in chunks to HTTP/1.1 clients; `off` ends them \
             by closing the connection.",
    ),
    HttpCoreRow::new("absolute_redirect", ANY, FLAG, |c, line| line.flag(&mut c.absolute_redirect))
        .syntax("absolute_redirect on | off")
        .default("on")
        .doc("Makes redirects of the server absolute; `off` sends only the path."),
    HttpCoreRow::new("server_name_in_redirect", ANY, FLAG, |c, line| {
        line.flag(&mut c.server_name_in_redirect)
    })
    .syntax("server_name_in_redirect on | off")
    .default("off")
    .doc(
        "Uses the first `server_name` in absolute redirects, instead of the host of the \
             request.",
    ),
    HttpCoreRow::new("port_in_redirect", ANY, FLAG, |c, line| line.flag(&mut c.port_in_redirect))
        .syntax("port_in_redirect on | off")
        .default("on")
        .doc("Adds the port to absolute redirects, if it is not the usual one."),
    HttpCoreRow::new("file_lookup_first", ANY, FLAG, |c, line| line.flag(&mut c.file_lookup_first))
        .syntax("file_lookup_first on | off")
        .default("off")
        .doc(
            "Looks for a file before the method of the request is judged, as H2O does. What is not there \
             is 404 for every method; so is a directory without index file. A 405 has an `Allow` field.",
        ),
    HttpCoreRow::new("text_error_pages", ANY, FLAG, |c, line| line.flag(&mut c.text_error_pages))
        .syntax("text_error_pages on | off")
        .default("off")
        .doc(
            "Sends errors as a line of plain text and redirects as a page with a link, in the words of \
             H2O, instead of the pages of nginx. H2O's configuration files turn it on.",
        ),
    HttpCoreRow::new("msie_padding", ANY, FLAG, |c, line| line.flag(&mut c.msie_padding))
        .syntax("msie_padding on | off")
        .default("on")
        .doc("Pads error pages to 512 bytes for old versions of Internet Explorer."),
    HttpCoreRow::new("post_action", ANY_OR_IF, ONE, |c, line| line.text(&mut c.post_action))
        .syntax("post_action uri | @name")
        .doc(
            "Processes the request in another location after its response is sent; the \
             response of that is dropped.",
        ),
    HttpCoreRow::new("msie_refresh", ANY, FLAG, |c, line| line.flag(&mut c.msie_refresh))
        .syntax("msie_refresh on | off")
        .default("off")
        .doc("Redirects old versions of Internet Explorer by a page instead of a status."),
    // Logs.
    HttpCoreRow::new("log_not_found", ANY, FLAG, |c, line| line.flag(&mut c.log_not_found))
        .syntax("log_not_found on | off")
        .default("on")
        .doc("Logs missing files to the error log."),
    HttpCoreRow::new("log_subrequest", ANY, FLAG, |c, line| line.flag(&mut c.log_subrequest))
        .syntax("log_subrequest on | off")
        .default("off")
        .doc("Logs subrequests to the access log."),
    HttpCoreRow::new("error_log", ANY_OR_STREAM, MORE, set::error_log)
        .syntax("error_log file [level]")
        .default("logs/error.log error")
        .doc(
            "Error log of this block: a file, `stderr`, or `syslog:...`. Level: `debug`, \
             `info`, `notice`, `warn`, `error`, `crit`, `alert` or `emerg`. Several lines \
             write to several logs.",
        ),
];

// The alias gives the closures of the table what `c` is.
type HttpCoreRow = Directive<HttpCoreConf>;

const FOUR: weir_conf::ArgCount = weir_conf::ArgCount::range(4, 4);
const IN_FILE: &[(&str, InFileOnly)] =
    &[("off", InFileOnly::Off), ("on", InFileOnly::On), ("clean", InFileOnly::Clean)];
const SMALL_WRITES: &[(&str, SmallWrites)] =
    &[("auto", SmallWrites::Auto), ("threads", SmallWrites::Threads), ("loop", SmallWrites::Loop)];
const BROWSERS: &[(&str, u32)] = &[("none", NO_BROWSER), ("msie6", MSIE6), ("safari", SAFARI)];
const LINGERING: &[(&str, LingeringClose)] =
    &[("off", LingeringClose::Off), ("on", LingeringClose::On), ("always", LingeringClose::Always)];
const TOKENS: &[(&str, ServerTokens)] =
    &[("off", ServerTokens::Off), ("on", ServerTokens::On), ("build", ServerTokens::Build)];
const MODIFIED: &[(&str, IfModifiedSince)] =
    &[("off", IfModifiedSince::Off), ("exact", IfModifiedSince::Exact), ("before", IfModifiedSince::Before)];
