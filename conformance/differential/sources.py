"""Content sources: what makes a location's response, and the places around it that values of directives name."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Source:
    """A way to make content; `families` are the directives that mean something with it."""

    name: str
    text: str
    families: tuple = ()
    blocks: str = "lnm"
    """l: the location, n: the one nested in it, m: the named one, i: `if`."""


CGI_PARAMETERS = " ".join(f"%K%_param {name} {value};" for name, value in (
    ("QUERY_STRING", "$query_string"), ("REQUEST_METHOD", "$request_method"), ("CONTENT_TYPE", "$content_type"),
    ("CONTENT_LENGTH", "$content_length"), ("REQUEST_URI", "$request_uri"), ("DOCUMENT_URI", "$document_uri"),
    ("SERVER_PROTOCOL", "$server_protocol"), ("SCRIPT_NAME", "$%S%"), ("SERVER_NAME", "$server_name")))


def _cgi(kind, script="uri"):
    return CGI_PARAMETERS.replace("%K%", kind).replace("%S%", script)


SOURCES = [
    Source("static", "root %DIR%/www;"),
    Source("inherited", "", blocks="ln"),
    Source("autoindex", "root %DIR%/www; autoindex on;", blocks="l"),
    Source("alias", "alias %DIR%/www/t/;", blocks="l"),
    Source("return", 'return 200 "returned $uri $args\\n";'),
    Source("empty_gif", "empty_gif;"),
    Source("echo", "echo said $uri;", blocks="lnmi"),
    Source("lua", "content_by_lua_block { ngx.say('lua ', ngx.var.request_uri) }"),
    Source("lua length", "content_by_lua_block { ngx.header.content_length = 6 ngx.print('length') }"),
    Source("lua file fields", "content_by_lua_block { ngx.header['ETag'] = '\"lua\"' ngx.header.last_modified = 'Tue, 01 Jan 2019 00:00:00 GMT' ngx.say('page') }"),
    Source("lua body", "content_by_lua_block { ngx.req.read_body() ngx.say(ngx.req.get_body_data() or 'none') }"),
    Source("proxy", "proxy_pass http://%UP%;", ("proxy",), "lnmi"),
    Source("proxy uri", "proxy_pass http://%UP%/up/;", ("proxy",), "l"),
    Source("proxy variables", "proxy_pass http://%UP%$request_uri;", ("proxy",), "lnm"),
    Source("proxy upstream", "proxy_pass http://up%N%;", ("proxy",), "lnm"),
    Source("proxy cached", "proxy_pass http://%UP%; proxy_cache cache%N%; proxy_cache_valid 1h;", ("proxy", "cache"), "ln"),
    Source("proxy cache", "proxy_pass http://%UP%;", ("proxy", "cache"), "ln"),
    Source("proxy upgrade", 'proxy_pass http://%UP%; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade";', ("proxy",), "l"),
    Source("fastcgi", f"fastcgi_pass %FCGI%; {_cgi('fastcgi', 'fastcgi_script_name')}", ("fastcgi", "cgi"), "lnm"),
    Source("fastcgi bare", "fastcgi_pass %FCGI%;", ("fastcgi", "cgi"), "l"),
    Source("scgi", f"scgi_pass %SCGI%; {_cgi('scgi')}", ("scgi", "cgi"), "lnm"),
    Source("uwsgi", f"uwsgi_pass %UWSGI%; {_cgi('uwsgi')}", ("uwsgi", "cgi"), "lnm"),
    Source("dav", "root %DIR%/dav%N%; dav_methods PUT DELETE MKCOL COPY MOVE;", ("dav",), "l"),
    Source("dav alias", "alias %DIR%/dav%N%/t/;  dav_methods PUT DELETE MKCOL COPY MOVE;", ("dav",), "l"),
]

SHADOWED = {
    "pair": "location = /t/pair { return 200 pair; } location /t/pair/ { proxy_pass http://%UP%; add_header X-Pair p; }",
    "prefix pair": "location /p { return 200 'p $uri'; } location /p/ { proxy_pass http://%UP%; add_header X-Pair p; }",
    "two prefixes": "location /q { return 200 'q $uri'; } location /q/ { proxy_pass http://%UP%; add_header X-Pair q; }",
    "pattern": "location ~ (?:^/t/(?:[a-z]+/?)+-old$|\\.bak$|/private/) { return 403 denied; }",
    "pattern file": "location ~ \\.txt$ { root %DIR%/www; add_header X-Pattern $uri; }",
    "caret": "location ^~ /t/dir/ { root %DIR%/www; add_header X-Caret c; }",
    "redirected": "location /slash/ { proxy_pass http://%UP%; add_header X-Slash s always; access_log off; }",
    "beside": "location /als { alias %DIR%/www/t/; }",
}
"""Locations beside the main one, for how a location is chosen."""

ZONES = {
    "cache%N%": "proxy_cache_path %DIR%/cache%N% keys_zone=cache%N%:128k;",
    "req%N%": "limit_req_zone $server_port zone=req%N%:64k rate=1r/m;",
    "conn%N%": "limit_conn_zone $server_port zone=conn%N%:64k;",
    "up%N%": "upstream up%N% { server %UP%; keepalive 4; }",
    "$map%N%": "map $arg_c $map%N% { default 1h; x epoch; '' off; }",
}
"""What must be in `http` when a configuration's text has the word."""

PLACES = {
    "/side": "location = /side { return 200 'side $status\\n'; }",
    "/mirrored": "location = /mirrored { internal; proxy_pass http://%UP%/mirrored?u=ok; }",
    "/auth_yes": "location = /auth_yes { add_header X-Auth yes; return 204; }",
    "/auth_no": "location = /auth_no { return 401; }",
    "/auth_error": "location = /auth_error { return 500; }",
    "/auth_proxy": "location = /auth_proxy { internal; proxy_pass http://%UP%/auth?u=ok; proxy_pass_request_body off; proxy_set_header Content-Length ''; }",
    "$invalid_referer": "valid_referers none blocked *.test;",
    "$y": "set $y '';",
    "$got": "set $got '';",
}
"""The same for `server`."""
