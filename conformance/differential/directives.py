"""The table of directives: the values that matter of each, and the blocks where it is tried.

From nginx's documentation of each directive and from Weir's own tables (docs/reference/modules). A value is chosen because it
turns a feature on, off or around, or because it is at the edge of a size; values that only tune memory are few. What
`%N%` and the other words stand for is in `configuration.py`; a zone, map or upstream that a value names is made there.
"""

import dataclasses
import functools

BLOCKS = {"h": "http", "s": "server", "l": "location", "n": "nested", "i": "if", "j": "server if", "e": "limit_except",
          "m": "named"}
"""Letters of the table: `nested` is a location in the location, `if` one in the location, `named` its error page."""


@dataclasses.dataclass(frozen=True)
class Level:
    """One directive with one value in one block: what the covering array is made of."""

    name: str
    value: str
    block: str
    family: str = ""
    """The kind of content source without which the directive does nothing (`proxy`, `cache`, `cgi`, `dav`)."""
    repeats: bool = False
    """It may come more than once in a block."""
    ends: bool = False
    """It answers or refuses most requests, so that other directives of its row are hardly seen."""

    @functools.cached_property
    def text(self):
        """The directive as it is in the file."""
        if self.value.endswith("}"):
            return f"{self.name} {self.value}"
        return f"{self.name} {self.value};" if self.value else f"{self.name};"

    @functools.cached_property
    def shown(self):
        """The directive with its block: the name that rules may ask for."""
        return f"{self.block}: {self.text}"

    def __str__(self):
        return self.shown


def levels():
    """All levels of the table, in its order."""
    found = []
    for row in TABLE:
        name, blocks, values, *rest = row
        options = rest[0] if rest else {}
        for value in values:
            ends = options.get("ends", False) or value in options.get("ending", ())
            found += [Level(name, value, BLOCKS[letter], options.get("family", ""), options.get("repeats", False), ends)
                      for letter in blocks]
    return found


ON_OFF = ("on", "off")
MANY = {"repeats": True}
PROXY = {"family": "proxy"}
PROXY_MANY = {"family": "proxy", "repeats": True}
CACHE = {"family": "cache"}
CGI = {"family": "cgi"}

HEADERS = [
    ("add_header", "hslnim", ('X-A "a"', "X-B $uri always", "Cache-Control no-store", 'X-E ""', "ETag '\"own\"'",
                                         "Last-Modified 'Thu, 01 Jan 1970 00:00:01 GMT'"), MANY),
    ("add_trailer", "slni", ("X-T t", "X-U $status always"), MANY),
    ("add_header_inherit", "lnim", ("merge", "off")),
    ("expires", "hslni", ("1h", "-1", "epoch", "max", "off", "@15h30m", "modified +2h", "$map%N%")),
    ("more_set_headers", "slnim", ("'X-M: m'", "-s '404 403' 'X-Bad: b'", "-t text/plain 'X-Text: t'", "'Server: s'", "'Content-Type: text/x'"), MANY),
    ("more_clear_headers", "slni", ("Content-Type", "'X-*'", "Last-Modified ETag", "Content-Length"), MANY),
    ("more_set_input_headers", "slni", ("'Host: other.test'", "'X-In: i'", "'Range: bytes=0-1'", "-r 'Accept-Encoding: gzip'"), MANY),
    ("more_clear_input_headers", "slni", ("Range", "If-Modified-Since", "Cookie Accept-Encoding"), MANY),
    ("server_tokens", "hsln", ("on", "off")),
    ("etag", "hsln", ON_OFF),
    ("if_modified_since", "hsln", ("off", "exact", "before")),
    ("max_ranges", "hsln", ("0", "1", "3")),
    ("userid", "sln", ("on", "v1", "log")),
    ("userid_name", "sl", ("u",)),
    ("userid_path", "sl", ("/t",)),
    ("userid_flags", "l", ("secure httponly samesite=lax",)),
]

FILTERS = [
    ("gzip", "hslni", ON_OFF),
    ("gzip_types", "sln", ("text/plain", "*", "application/json text/x")),
    ("gzip_min_length", "sln", ("0", "1k")),
    ("gzip_vary", "sln", ("on",)),
    ("gzip_http_version", "sl", ("1.0",)),
    ("gzip_proxied", "sln", ("any", "no-cache no-store private", "expired auth", "no_etag no_last_modified")),
    ("gzip_disable", "sl", ("msie6", "~curl", "Mozilla/4")),
    ("gzip_static", "hsln", ("on", "always")),
    ("gunzip", "sln", ("on",)),
    ("charset", "hslni", ("utf-8", "koi8-r", "off")),
    # Not a variable: with an empty value nginx 1.31.5 ends with SIGSEGV.
    ("source_charset", "sl", ("koi8-r", "utf-8")),
    ("override_charset", "sl", ("on",)),
    ("charset_types", "sl", ("text/plain", "*")),
    ("sub_filter", "hsln", ("page UNIT", "'a' ''", "$arg_c x", "</html> <i>x</i></html>"), MANY),
    ("sub_filter_once", "sln", ("off",)),
    ("sub_filter_types", "sln", ("text/plain", "*")),
    ("sub_filter_last_modified", "sl", ("on",)),
    ("ssi", "hslni", ON_OFF),
    ("ssi_types", "sl", ("text/plain", "*")),
    ("ssi_silent_errors", "sl", ("on",)),
    ("ssi_last_modified", "l", ("on",)),
    ("ssi_value_length", "l", ("4",)),
    ("add_before_body", "sln", ("/side", "/missing-side")),
    ("add_after_body", "sln", ("/side",)),
    ("addition_types", "l", ("text/plain", "*")),
    ("default_type", "hslnm", ("text/plain", "application/json", "''")),
    ("types", "sln", ("{ text/x txt html; }", "{ }")),
    ("chunked_transfer_encoding", "hsl", ("off",)),
    ("limit_rate", "lni", ("0", "1m", "$arg_c")),
    ("echo_before_body", "lni", ("before", "$uri"), MANY),
    ("echo_after_body", "lni", ("after $arg_c",), MANY),
]

ACCESS = [
    ("allow", "hslne", ("127.0.0.1", "127.0.0.0/8", "::1", "all"), MANY),
    ("deny", "slne", ("127.0.0.1", "10.0.0.0/8", "all"), {"repeats": True, "ending": ("127.0.0.1", "all")}),
    ("satisfy", "hsln", ("any", "all")),
    ("auth_basic", "slne", ("realm", "off", "$arg_c"), {"ending": ("realm",)}),
    ("auth_basic_user_file", "hslne", ("%DIR%/users", "%DIR%/missing")),
    ("auth_request", "sln", ("/auth_yes", "/auth_no", "/auth_proxy", "/auth_error", "off"), {"ending": ("/auth_no", "/auth_error")}),
    ("auth_request_set", "sl", ("$got $upstream_status", "$got $sent_http_x_auth"), MANY),
    ("limit_req", "sln", ("zone=req%N%", "zone=req%N% burst=2 nodelay"), {"ends": True}),
    ("limit_req_status", "sl", ("429",)),
    ("limit_req_dry_run", "l", ("on",)),
    ("limit_conn", "sl", ("conn%N% 1",)),
    ("limit_conn_status", "sl", ("429",)),
    ("internal", "ln", ("",), {"ends": True}),
    ("valid_referers", "sl", ("none blocked *.test", "server_names ~evil")),
    ("secure_link", "sl", ("$arg_m,$arg_e",)),
    ("secure_link_md5", "sl", ("'$uri secret'",)),
    ("set_real_ip_from", "hsl", ("127.0.0.0/8", "10.0.0.0/8"), MANY),
    ("real_ip_header", "sl", ("X-Forwarded-For", "X-Real-IP", "Forwarded")),
    ("real_ip_recursive", "sl", ("on",)),
    ("client_max_body_size", "hsln", ("0", "8", "4k")),
    ("client_body_in_single_buffer", "l", ("on",)),
    ("client_body_buffer_size", "sl", ("16", "64k")),
    ("client_body_in_file_only", "sl", ("on", "clean")),
    ("disable_symlinks", "sl", ("on", "if_not_owner from=$document_root")),
]

REWRITES = [
    ("rewrite", "slnijm", ("^/t/old(.*)$ /t/page$1 last", "^(.*)page.txt$ $1page.html break", "^/t/(red) /$1 redirect", "^/t/(.+)/x$ http://b.test/$1 permanent",
                           "(?:^/t/(?:[a-z]+/?)+-$|/admin$) /denied last", "^/t/q(.*) /t/page.txt? last", "/loop /t/loop/loop", "^ /t/page.txt break"), MANY),
    ("return", "slnijm", ("200 body-$uri", "204", "301 /moved?$args", "302 http://$host$uri", "403", "404", "444", "402 text", "307 page", "500", "''", "599 x"),
     {"ends": True}),
    ("break", "slnij", ("",)),
    ("set", "slnijm", ("$y $uri", "$y 'x$arg_c'", "$args a=1", "$limit_rate 0"), MANY),
    ("if", "sln", ("($arg_c) { set $y c; }", "($uri ~* \"(?:(?:[a-z]+ ?)+/crawl|evil)\") { return 403; }", "(-f $request_filename) { set $y f; }",
                   "(!-e $request_filename) { return 404 none; }", "($request_method = POST) { return 405; }", "($http_cookie ~ 's=(.)') { set $y $1; }",
                   "($invalid_referer) { return 403 referer; }", "($arg_c = x) { break; }"), MANY),
    ("try_files", "sln", ("$uri $uri/ =404", "$uri $uri/index.html /t/page.txt", "/nothing @named", "$uri.txt $uri =403", "$uri /t/list/ =404")),
    ("index", "hsln", ("page.txt", "missing.html index.html", "/t/page.txt", "$arg_c index.html")),
    ("autoindex", "hsln", ON_OFF),
    ("autoindex_exact_size", "sl", ("off",)),
    ("autoindex_format", "sl", ("json", "xml", "jsonp")),
    ("error_page", "hslnim", ("404 /side", "404 =200 /side", "403 404 405 = @named", "404 http://b.test/e", "500 502 503 504 /side", "412 416 /side", "401 =403 /side",
                              "404 = /t/upstream?u=cookie", "400 413 414 /side", "418 301 302 /side"), MANY),
    ("recursive_error_pages", "sln", ("on",)),
    ("absolute_redirect", "hsln", ("off",)),
    ("server_name_in_redirect", "sl", ("on",)),
    ("port_in_redirect", "sl", ("off",)),
    ("merge_slashes", "s", ("off",)),
    ("underscores_in_headers", "s", ("on",)),
    ("ignore_invalid_headers", "s", ("off",)),
    ("large_client_header_buffers", "s", ("2 1k", "4 8k")),
    ("client_header_buffer_size", "s", ("128", "4k")),
    ("max_headers", "s", ("4", "1000")),
    ("keepalive_timeout", "sl", ("0", "60s 30s")),
    ("keepalive_requests", "sl", ("1", "2")),
    ("keepalive_disable", "sl", ("none", "msie6 safari")),
    ("lingering_close", "sl", ("always", "off")),
    ("reset_timedout_connection", "sl", ("on",)),
    ("msie_padding", "l", ("off",)),
    ("post_action", "l", ("/side",)),
    ("sendfile", "sl", ON_OFF),
    ("directio", "l", ("4k",)),
    ("open_file_cache", "sl", ("max=10",)),
    ("open_file_cache_errors", "sl", ("on",)),
    ("output_buffers", "l", ("1 512",)),
    ("postpone_output", "l", ("0",)),
    ("access_log", "sln", ("off", "%DIR%/access.log differ if=$arg_c")),
    ("log_subrequest", "sl", ("on",)),
    ("mirror", "sln", ("/mirrored", "off"), MANY),
    ("mirror_request_body", "sl", ("off",)),
    ("slice", "l", ("1k", "0")),
    ("alias", "n", ("%DIR%/www/t/", "%DIR%/www/t/page.txt")),
    ("root", "lni", ("%DIR%/www", "%DIR%/www/t", "%DIR%/$arg_c")),
]

LUA = [
    ("content_by_lua_block", "lnm", ("{ ngx.say('lua ', ngx.var.uri) }", "{ ngx.header.etag = '\"own\"' ngx.say('x') }", "{ ngx.exit(404) }",
                                     "{ ngx.req.read_body() ngx.print(ngx.req.get_body_data() or 'none') }", "{ ngx.say(ngx) }", "{ error('no') }", "{ ngx.redirect('/moved') }",
                                     "{ ngx.send_headers() ngx.flush(true) ngx.print('flushed') }", "{ ngx.exec('/t/page.txt') }", "{ ngx.status = 404 ngx.say('own') }",
                                     "{ local r = ngx.location.capture('/side') ngx.print(r.status, r.body) }", "{ ngx.sleep(0.001) }"), {"ends": True}),
    ("rewrite_by_lua_block", "slni", ("{ ngx.req.set_uri('/t/page.html') }", "{ ngx.req.set_uri('/t/page.txt', true) }", "{ ngx.req.set_header('X-L', 'l') }",
                                           "{ ngx.exit(403) }", "{ ngx.req.set_uri_args('c=x') }", "{ ngx.ctx.a = 1 }"), {"ending": ("{ ngx.exit(403) }",)}),
    ("access_by_lua_block", "slni", ("{ return }", "{ ngx.exit(ngx.OK) }", "{ ngx.exit(403) }", "{ ngx.exit(ngx.DECLINED) }", "{ if ngx.var.arg_c then ngx.exit(401) end }", "{ ngx.say(ngx) }",
                                     "{ ngx.req.read_body() }", "{ ngx.sleep(0.001) }"), {"ending": ("{ ngx.exit(403) }", "{ ngx.say(ngx) }")}),
    ("header_filter_by_lua_block", "hslni", ("{ ngx.header['X-F'] = ngx.status }", "{ ngx.header.content_length = nil }", "{ ngx.header.content_type = 'text/x' }",
                                                  "{ ngx.header['Cache-Control'] = {'a', 'b'} }", "{ ngx.status = 202 }", "{ ngx.header.server = 's' }", "{ ngx.header.location = nil }")),
    ("body_filter_by_lua_block", "slni", ("{ if ngx.arg[1] then ngx.arg[1] = ngx.arg[1]:upper() end }", "{ ngx.arg[2] = true }")),
    # Shortens bodies whose length was said before: clients wait, on both sides, so it is tried in one block alone.
    ("body_filter_by_lua_block", "l", ("{ ngx.arg[1] = nil }",)),
    ("log_by_lua_block", "sli", ("{ local a = ngx.var.status }",)),
    ("set_by_lua_block", "slni", ("$y { return ngx.var.uri }", "$y { return nil }", "$args { return 'a=1' }"), MANY),
    ("lua_need_request_body", "sl", ("on",)),
    ("lua_code_cache", "l", ("on",)),
    ("server_rewrite_by_lua_block", "s", ("{ ngx.ctx.s = 1 }", "{ if ngx.var.arg_c then ngx.exit(402) end }")),
]

UPSTREAM = [
    ("proxy_buffering", "sln", ("off",), PROXY),
    ("proxy_request_buffering", "sl", ("off",), PROXY),
    ("proxy_buffer_size", "sl", ("512", "32k"), PROXY),
    ("proxy_http_version", "sln", ("1.0", "1.1"), PROXY),
    ("proxy_set_header", "sln", ("Host $host", "X-Up $uri", "Connection ''", "Accept-Encoding ''", "Upgrade $http_upgrade", "X-Fwd $proxy_add_x_forwarded_for"), PROXY_MANY),
    ("proxy_set_body", "ln", ("own-$uri", "''"), PROXY),
    ("proxy_method", "ln", ("PUT", "$arg_c"), PROXY),
    ("proxy_pass_request_headers", "sl", ("off",), PROXY),
    ("proxy_pass_request_body", "sl", ("off",), PROXY),
    ("proxy_hide_header", "sln", ("X-Up", "Set-Cookie", "Content-Type", "Vary"), PROXY_MANY),
    ("proxy_pass_header", "sln", ("Server", "Date", "X-Accel-Expires", "Status"), PROXY_MANY),
    ("proxy_ignore_headers", "sl", ("X-Accel-Redirect", "Cache-Control Expires Vary", "Set-Cookie"), PROXY),
    ("proxy_intercept_errors", "sln", ("on",), PROXY),
    ("proxy_redirect", "sln", ("off", "default", "http://%UP%/ /up/", "~^http://[^/]+(.*)$ /re$1", "/ http://$host/"), PROXY_MANY),
    ("proxy_cookie_path", "sln", ("/ /t/", "off", "~^/(.*)$ /q/$1"), PROXY_MANY),
    ("proxy_cookie_domain", "sl", ("up.test a.test", "off"), PROXY_MANY),
    ("proxy_cookie_flags", "sl", ("one httponly secure", "~ samesite=strict", "off"), PROXY_MANY),
    ("proxy_next_upstream", "sl", ("off", "http_500 http_503", "http_404 non_idempotent", "error timeout invalid_header"), PROXY),
    ("proxy_next_upstream_tries", "sl", ("1",), PROXY),
    ("proxy_force_ranges", "sl", ("on",), PROXY),
    ("proxy_max_temp_file_size", "sl", ("0",), PROXY),
    ("proxy_ignore_client_abort", "l", ("on",), PROXY),
    ("proxy_limit_rate", "l", ("1m",), PROXY),
    ("proxy_cache", "sln", ("cache%N%", "off"), CACHE),
    ("proxy_cache_valid", "sln", ("1h", "200 404 1m", "any 1m", "301 0", "304 1m"), {"family": "cache", "repeats": True}),
    ("proxy_cache_key", "sl", ("$uri", "$request_method$uri$is_args$args"), CACHE),
    ("proxy_cache_methods", "sl", ("GET HEAD POST",), CACHE),
    ("proxy_cache_bypass", "sl", ("$arg_c $http_pragma",), CACHE),
    ("proxy_no_cache", "sl", ("$arg_c", "$http_cookie"), CACHE),
    ("proxy_cache_min_uses", "sl", ("2",), CACHE),
    ("proxy_cache_use_stale", "sl", ("error http_500 updating",), CACHE),
    ("proxy_cache_revalidate", "sl", ("on",), CACHE),
    ("proxy_cache_convert_head", "sl", ("off",), CACHE),
    ("proxy_cache_lock", "sl", ("on",), CACHE),
    ("proxy_cache_max_range_offset", "sl", ("0", "10"), CACHE),
    ("proxy_store", "l", ("%DIR%/store%N%$uri",), PROXY),
    ("proxy_bind", "l", ("off",), PROXY),
    ("fastcgi_param", "sln", ("X_P p", "HTTP_PROXY ''", "HTTP_X_NEW $uri if_not_empty", "HTTP_HOST $host", "SCRIPT_FILENAME $document_root$fastcgi_script_name",
                              "PATH_INFO $fastcgi_path_info", "SERVER_SOFTWARE nginx/$nginx_version"), {"family": "fastcgi", "repeats": True}),
    ("fastcgi_index", "sl", ("index.php",), {"family": "fastcgi"}),
    ("fastcgi_split_path_info", "ln", ("^(.+\\.txt)(.*)$",), {"family": "fastcgi"}),
    ("fastcgi_keep_conn", "sl", ("on",), {"family": "fastcgi"}),
    ("fastcgi_catch_stderr", "l", ("PHP",), {"family": "fastcgi"}),
    ("fastcgi_intercept_errors", "sl", ("on",), {"family": "fastcgi"}),
    ("fastcgi_hide_header", "sl", ("X-Up", "Status"), {"family": "fastcgi", "repeats": True}),
    ("fastcgi_pass_request_headers", "l", ("off",), {"family": "fastcgi"}),
    ("fastcgi_buffering", "l", ("off",), {"family": "fastcgi"}),
    ("fastcgi_request_buffering", "l", ("off",), {"family": "fastcgi"}),
    ("scgi_param", "sln", ("X_P p", "HTTP_PROXY ''", "SCGI 1", "HTTP_HOST $host"), {"family": "scgi", "repeats": True}),
    ("scgi_intercept_errors", "l", ("on",), {"family": "scgi"}),
    ("uwsgi_param", "sln", ("X_P p", "HTTP_PROXY ''", "HTTP_HOST $host"), {"family": "uwsgi", "repeats": True}),
    ("uwsgi_modifier1", "l", ("5",), {"family": "uwsgi"}),
    ("uwsgi_intercept_errors", "l", ("on",), {"family": "uwsgi"}),
]

DAV = [
    ("dav_methods", "ln", ("PUT DELETE MKCOL COPY MOVE", "PUT", "off"), {"family": "dav"}),
    ("create_full_put_path", "sl", ("on",), {"family": "dav"}),
    ("min_delete_depth", "l", ("3",), {"family": "dav"}),
    ("dav_access", "l", ("group:rw all:r",), {"family": "dav"}),
]

TABLE = HEADERS + FILTERS + ACCESS + REWRITES + LUA + UPSTREAM + DAV

COMPANIONS = [
    (r"satisfy any", (r"deny all", r"deny 127.0.0.1", r"auth_basic realm", r"auth_request /auth_no", r"access_by_lua_block .*")),
    (r"access_by_lua_block .*", (r"satisfy any", r"deny all")),
    (r"auth_basic (realm|\$arg_c)", (r"auth_basic_user_file %DIR%/users",)), (r"auth_basic_user_file .*", (r"auth_basic realm",)),
    (r"limit_req_.*", (r"limit_req zone.*",)), (r"limit_conn_.*", (r"limit_conn conn.*",)), (r"auth_request_set .*", (r"auth_request /auth_(yes|proxy)",)),
    (r"real_ip_.*", (r"set_real_ip_from 127.*",)), (r"secure_link .*", (r"secure_link_md5 .*",)), (r"log_subrequest .*", (r"mirror /mirrored",)),
    (r"gzip_(types|vary|min|proxied|disable|http).*", (r"gzip on",)), (r"(source|override)_charset.*|charset_types .*", (r"charset (utf-8|koi8-r)",)),
    (r"sub_filter_.*", (r"sub_filter .*",)), (r"ssi_.*", (r"ssi on",)), (r"addition_types .*", (r"add_(after|before)_body /side",)), (r"userid_.*", (r"userid (on|v1)",)),
    (r"autoindex_.*", (r"autoindex on",)), (r"recursive_error_pages on", (r"error_page 403.*", r"error_page 404 .*")), (r"proxy_intercept_errors on", (r"error_page 50.*", r"error_page 404 .*")),
    (r"(fastcgi|scgi|uwsgi)_intercept_errors on", (r"error_page 50.*", r"error_page 404 .*")), (r"add_header (ETag|Last-Modified).*", (r"if_modified_since .*",)),
]
"""What a directive does little without: patterns of its text, and of the ones that are put beside it now and then."""

WRONG = ("", "on off", "-1", "maybe", "$arg_a", "1z", "a b c d e f g h i")
"""Values that most directives refuse: for the comparison of what `-t` says."""
