//! Rows of directives that several `*_pass` modules have under their own prefixes: setter, syntax, default and description
//! are written once here, and each module names its directives in its own table: `family_row!(buffering, "uwsgi_buffering")`.
//!
//! They are for the table of a `Module`, whose configuration has the fields `family` and, where servers may
//! speak TLS, `ssl`.

/// The row of a directive of the family: what it is, and its name in the module that lists it. Whatever is different there
/// follows: `family_row!(cache_key, "proxy_cache_key").default("$scheme$proxy_host$request_uri")`.
macro_rules! family_row {
    (bind, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE_OR_TWO, |c, l| weir_upstream::UpstreamFamily::set_bind(&mut c.family.bind, l))
            .syntax(concat!($name, " address [transparent]", "\n", $name, " off"))
            .doc("Local address, with an optional port, of connections to upstream servers; it may contain variables. `transparent` allows an address that is not this machine's. `off` cancels an inherited address.")
    };
    (socket_keepalive, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::FLAG, |c, l| l.flag(&mut c.family.socket_keepalive))
            .syntax(concat!($name, " on | off"))
            .default("off")
            .doc("Turns TCP keepalive probes (`SO_KEEPALIVE`) on for connections to upstream servers.")
    };
    (socket_rcvbuf, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| l.size(&mut c.family.socket_rcvbuf))
            .syntax(concat!($name, " size"))
            .default("0")
            .doc("Receive buffer size (`SO_RCVBUF`) of upstream connections; 0 leaves the system default.")
    };
    (socket_sndbuf, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| l.size(&mut c.family.socket_sndbuf))
            .syntax(concat!($name, " size"))
            .default("0")
            .doc("Send buffer size (`SO_SNDBUF`) of upstream connections; 0 leaves the system default.")
    };
    (send_lowat, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| c.family.set_lowat(l))
            .syntax(concat!($name, " size"))
            .doc("Accepted for compatibility: it has no effect on Linux, and a warning says so.")
    };
    (connect_timeout, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| l.time_ms(&mut c.family.connect_timeout))
            .syntax(concat!($name, " time"))
            .default("60s")
            .doc("Timeout for establishing a connection with an upstream server.")
    };
    (send_timeout, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| l.time_ms(&mut c.family.send_timeout))
            .syntax(concat!($name, " time"))
            .default("60s")
            .doc("Timeout between two successive writes of a request to the upstream server.")
    };
    (read_timeout, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| l.time_ms(&mut c.family.read_timeout))
            .syntax(concat!($name, " time"))
            .default("60s")
            .doc("Timeout between two successive reads of a response from the upstream server.")
    };
    (buffering, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::FLAG, |c, l| l.flag(&mut c.family.buffering))
            .syntax(concat!($name, " on | off"))
            .default("on")
            .doc("Reads responses from the upstream server as fast as it sends them, into buffers and then a temporary file; `off` reads them at the client's pace.")
    };
    (request_buffering, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::FLAG, |c, l| l.flag(&mut c.family.request_buffering))
            .syntax(concat!($name, " on | off"))
            .default("on")
            .doc("Buffers the whole client request body before contacting the upstream.")
    };
    (buffer_size, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| {
            c.family.sizes_at = Some(l.line().name.span);
            l.size(&mut c.family.buffer_size)
        })
            .syntax(concat!($name, " size"))
            .default("4k")
            .doc("Size of the buffer for the upstream response header.")
    };
    (buffers, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::TWO, |c, l| {
            c.family.sizes_at = Some(l.line().name.span);
            l.bufs(&mut c.family.buffers)
        })
            .syntax(concat!($name, " number size"))
            .default("8 4k")
            .doc("Number and size of the buffers that a response is read into, for one connection.")
    };
    (busy_buffers_size, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| {
            c.family.sizes_at = Some(l.line().name.span);
            l.size(&mut c.family.busy_buffers_size)
        })
            .syntax(concat!($name, " size"))
            .default("8k")
            .doc("How much of a response may be on its way to the client while more is read from the upstream server.")
    };
    (max_temp_file_size, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| {
            c.family.sizes_at = Some(l.line().name.span);
            l.offset(&mut c.family.max_temp_file_size)
        })
            .syntax(concat!($name, " size"))
            .default("1024m")
            .doc("Maximum size of the temporary file for a response that does not fit in the buffers; 0 turns such files off.")
    };
    (temp_file_write_size, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| {
            c.family.sizes_at = Some(l.line().name.span);
            l.size(&mut c.family.temp_file_write_size)
        })
            .syntax(concat!($name, " size"))
            .default("8k")
            .doc("How much is written to the temporary file at a time.")
    };
    (temp_path, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::ArgCount::range(1, 4), |c, l| weir_engine::conf::temp_path::TempPath::set(&mut c.family.temp_path, l))
            .syntax(concat!($name, " path [level1 [level2 [level3]]]"))
            .doc("Directory of temporary files with responses, and the levels of its subdirectories.")
    };
    (next_upstream, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::MORE, |c, l| l.bits(&mut c.family.next_upstream, &weir_upstream::FailureReason::WORDS))
            .syntax(concat!($name, " error | timeout | invalid_header | http_500 | http_502 | http_503 | http_504 | http_403 | http_404 | http_429 | non_idempotent | off ..."))
            .default("error timeout")
            .doc("Conditions under which a request is passed to the next upstream server.")
    };
    (next_upstream_tries, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| l.number(&mut c.family.next_tries, ..))
            .syntax(concat!($name, " number"))
            .default("0")
            .doc("Maximum number of upstream servers that a request is tried at; 0 is no limit.")
    };
    (next_upstream_timeout, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| l.time_ms(&mut c.family.next_timeout))
            .syntax(concat!($name, " time"))
            .default("0")
            .doc("Time within which a request can be passed to the next upstream server; 0 is no limit.")
    };
    (ignore_client_abort, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::FLAG, |c, l| l.flag(&mut c.family.ignore_client_abort))
            .syntax(concat!($name, " on | off"))
            .default("off")
            .doc("Keeps the upstream connection when the client closes its connection without waiting for the response.")
    };
    (intercept_errors, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::FLAG, |c, l| l.flag(&mut c.family.intercept_errors))
            .syntax(concat!($name, " on | off"))
            .default("off")
            .doc("Applies `error_page` to upstream responses with a status of 300 and above.")
    };
    (pass_request_headers, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::FLAG, |c, l| l.flag(&mut c.family.pass_request_headers))
            .syntax(concat!($name, " on | off"))
            .default("on")
            .doc("Passes the header fields of the client's request to the upstream server.")
    };
    (pass_request_body, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::FLAG, |c, l| l.flag(&mut c.family.pass_request_body))
            .syntax(concat!($name, " on | off"))
            .default("on")
            .doc("Passes the body of the client's request to the upstream server.")
    };
    (pass_header, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| l.push(&mut c.family.pass_headers))
            .syntax(concat!($name, " field"))
            .doc("Passes a response header field to the client that is hidden otherwise.")
    };
    (hide_header, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| l.push(&mut c.family.hide_headers))
            .syntax(concat!($name, " field"))
            .doc("Hides a header field of upstream responses from the client.")
    };
    (ignore_headers, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::MORE, |c, l| l.bits(&mut c.family.ignore_headers, &weir_upstream::config::directives::IGNORED))
            .syntax(concat!($name, " field ..."))
            .doc("Response header fields of the upstream server that are not acted on: `X-Accel-Redirect`, `X-Accel-Expires`, `X-Accel-Limit-Rate`, `X-Accel-Buffering`, `X-Accel-Charset`, `Expires`, `Cache-Control`, `Set-Cookie`, `Vary`.")
    };
    (limit_rate, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| weir_upstream::UpstreamFamily::set_rate(&mut c.family.limit_rate, l))
            .syntax(concat!($name, " rate"))
            .default("0")
            .doc("Maximum rate, in bytes per second, at which a buffered response is read from the upstream server; it may contain variables. 0 is no limit.")
    };
    (force_ranges, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::FLAG, |c, l| l.flag(&mut c.family.force_ranges))
            .syntax(concat!($name, " on | off"))
            .default("off")
            .doc("Serves byte ranges of responses whatever their `Accept-Ranges` field says.")
    };
    (cache_path, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::HTTP, weir_conf::names::TWO_OR_MORE, |_, l| weir_upstream::cache::CacheZone::set(l))
            .syntax(concat!($name, " path [levels=levels] [use_temp_path=on|off] keys_zone=name:size [inactive=time] [max_size=size] [min_free=size] [manager_files=number] [manager_sleep=time] [manager_threshold=time] [loader_files=number] [loader_sleep=time] [loader_threshold=time]"))
            .doc("Declares a cache: its directory, and the zone of its keys.")
    };
    (cache, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| c.family.cache.set_zone(l))
            .syntax(concat!($name, " zone", "\n", $name, " off"))
            .default("off")
            .doc("Zone of the cache for responses; it may contain variables. `off` cancels an inherited cache.")
    };
    (cache_key, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| c.family.cache.set_key(l))
            .syntax(concat!($name, " string"))
            .doc("Key of a response in the cache.")
    };
    (cache_valid, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::MORE, |c, l| c.family.cache.set_valid(l))
            .syntax(concat!($name, " [code ...] time"))
            .doc("How long responses with these status codes are cached where their header does not say; without a code those with 200, 301 and 302, and `any` matches every code.")
    };
    (cache_min_uses, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| l.number(&mut c.family.cache.min_uses, ..))
            .syntax(concat!($name, " number"))
            .default("1")
            .doc("Number of requests after which a response is cached.")
    };
    (cache_methods, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::MORE, |c, l| l.bits(&mut c.family.cache.methods, &weir_upstream::config::cache_directives::METHODS))
            .syntax(concat!($name, " GET | HEAD | POST ..."))
            .default("GET HEAD")
            .doc("Request methods whose responses are cached; GET and HEAD always are.")
    };
    (cache_bypass, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::MORE, |c, l| weir_upstream::config::cache_directives::CacheFamily::set_tests(&mut c.family.cache.bypass, l))
            .syntax(concat!($name, " string ..."))
            .doc("Conditions under which a response is not taken from the cache: a string that is neither empty nor `0`.")
    };
    (cache_purge, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::MORE, |c, l| weir_upstream::config::cache_directives::CacheFamily::set_tests(&mut c.family.cache.purge, l))
            .syntax(concat!($name, " string ..."))
            .doc("Conditions under which a request removes a response from the cache: a string that is neither empty nor `0`.")
    };
    (cache_use_stale, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::MORE, |c, l| l.bits(&mut c.family.cache.use_stale, &weir_upstream::config::cache_directives::STALE))
            .syntax(concat!($name, " error | timeout | invalid_header | updating | http_500 | http_502 | http_503 | http_504 | http_403 | http_404 | http_429 | off ..."))
            .default("off")
            .doc("Conditions under which a stale response is served.")
    };
    (cache_background_update, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::FLAG, |c, l| l.flag(&mut c.family.cache.background_update))
            .syntax(concat!($name, " on | off"))
            .default("off")
            .doc("Updates an expired cache entry in a background request while the stale response is served.")
    };
    (cache_revalidate, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::FLAG, |c, l| l.flag(&mut c.family.cache.revalidate))
            .syntax(concat!($name, " on | off"))
            .default("off")
            .doc("Revalidates expired cache entries with conditional requests (`If-Modified-Since`, `If-None-Match`).")
    };
    (cache_lock, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::FLAG, |c, l| l.flag(&mut c.family.cache.lock))
            .syntax(concat!($name, " on | off"))
            .default("off")
            .doc("Allows only one request at a time to populate a cache entry; others wait.")
    };
    (cache_lock_age, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| l.time_ms(&mut c.family.cache.lock_age))
            .syntax(concat!($name, " time"))
            .default("5s")
            .doc("Time after which one more request is passed to the upstream server although an earlier one still populates the entry.")
    };
    (cache_lock_timeout, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| l.time_ms(&mut c.family.cache.lock_timeout))
            .syntax(concat!($name, " time"))
            .default("5s")
            .doc("Time that a request waits for the cache lock; after it the request is passed to the upstream server and its response is not cached.")
    };
    (cache_max_range_offset, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| l.offset(&mut c.family.cache.max_range_offset))
            .syntax(concat!($name, " number"))
            .doc("Offset in bytes beyond which a range request is passed to the upstream server and its response is not cached.")
    };
    (no_cache, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::MORE, |c, l| weir_upstream::config::cache_directives::CacheFamily::set_tests(&mut c.family.cache.no_cache, l))
            .syntax(concat!($name, " string ..."))
            .doc("Conditions under which a response is not cached: a string that is neither empty nor `0`.")
    };
    (store, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| c.family.cache.set_store(l))
            .syntax(concat!($name, " on | off | string"))
            .default("off")
            .doc("Saves responses to files: `on` at the path that `root` or `alias` gives, else at the path of the string.")
    };
    (store_access, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE_TO_THREE, |c, l| l.access(&mut c.family.cache.store_access))
            .syntax(concat!($name, " users:permissions ..."))
            .default("user:rw")
            .doc("Access permissions of the files of `store` and their directories.")
    };
    (pass_trailers, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::FLAG, |c, l| l.flag(&mut c.family.pass_trailers))
            .syntax(concat!($name, " on | off"))
            .default("off")
            .doc("Passes the trailer fields of a response to the client.")
    };
    (ssl_session_reuse, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::FLAG, |c, l| l.flag(&mut c.ssl.session_reuse))
            .syntax(concat!($name, " on | off"))
            .default("on")
            .doc("Reuses TLS sessions with upstream servers.")
    };
    (ssl_protocols, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::MORE, |c, l| c.ssl.set_protocols(l))
            .syntax(concat!($name, " TLSv1.2 | TLSv1.3 ..."))
            .default("TLSv1.2 TLSv1.3")
            .doc("TLS versions that are offered to upstream servers.")
    };
    (ssl_ciphers, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| c.ssl.set_ciphers(l))
            .syntax(concat!($name, " ciphers"))
            .default("DEFAULT")
            .doc("Ciphers of TLS 1.2 that are offered to upstream servers, in OpenSSL's format.")
    };
    (ssl_name, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| c.ssl.set_name(l))
            .syntax(concat!($name, " name"))
            .doc("Name that is sent in SNI and that the certificate of the upstream server must have; by default the host of the `*_pass` directive.")
    };
    (ssl_server_name, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::FLAG, |c, l| l.flag(&mut c.ssl.server_name))
            .syntax(concat!($name, " on | off"))
            .default("off")
            .doc("Sends the name of the upstream server in the TLS extension Server Name Indication (SNI, RFC 6066).")
    };
    (ssl_verify, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::FLAG, |c, l| l.flag(&mut c.ssl.verify))
            .syntax(concat!($name, " on | off"))
            .default("off")
            .doc("Verifies the certificate of the upstream server: its chain and its name.")
    };
    (ssl_verify_depth, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| l.number(&mut c.ssl.verify_depth, ..))
            .syntax(concat!($name, " number"))
            .default("1")
            .doc("Maximum number of certificates between that of the upstream server and a trusted one.")
    };
    (ssl_trusted_certificate, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| l.conf_path(&mut c.ssl.trusted_certificate))
            .syntax(concat!($name, " file"))
            .doc("File with trusted CA certificates, in PEM, that certificates of upstream servers are verified with.")
    };
    (ssl_crl, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| l.conf_path(&mut c.ssl.crl))
            .syntax(concat!($name, " file"))
            .doc("File with certificate revocation lists, in PEM, that certificates of upstream servers are verified with.")
    };
    (ssl_certificate, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| c.ssl.set_certificate(l))
            .syntax(concat!($name, " file"))
            .doc("File with the client certificate, in PEM, for upstream servers; the name may contain variables.")
    };
    (ssl_certificate_key, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| c.ssl.set_certificate_key(l))
            .syntax(concat!($name, " file"))
            .doc("File with the private key, in PEM, of the client certificate; the name may contain variables.")
    };
    (ssl_certificate_cache, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::ArgCount::range(1, 3), |c, l| c.ssl.set_certificate_cache(l))
            .syntax(concat!($name, " off", "\n", $name, " max=N [inactive=time] [valid=time]"))
            .default("off")
            .doc("Caches certificates and keys whose file names contain variables.")
    };
    (ssl_password_file, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::ONE, |c, l| l.conf_path(&mut c.ssl.password_file))
            .syntax(concat!($name, " file"))
            .doc("File with passphrases for private keys, one on a line, which are tried in turn.")
    };
    (ssl_conf_command, $name:literal) => {
        weir_conf::Directive::<Self::Conf>::new($name, weir_conf::names::ANY, weir_conf::names::TWO, |c, l| c.ssl.set_conf_command(l))
            .syntax(concat!($name, " name value"))
            .doc("OpenSSL configuration command, after all other directives. The names are `MinProtocol`, `MaxProtocol`, `Protocol`, `CipherString`, `Ciphersuites`, `Groups` (`Curves`), `SignatureAlgorithms`, and `Certificate` with `PrivateKey`. `Options` takes `SessionTicket` (`-` for its opposite). `VerifyMode Peer` is accepted with verification on.")
    };
}

pub(crate) use family_row;
