"""What bench/lua asks: the locations, in a text that both servers read."""

import dataclasses

NAMES = "abcdefghijklmnopqrstuvwxyz"
# 4 KB of JSON, made in the worker so that both decode the same text.
INIT = """
    local records = {}
    for at = 1, 24 do
        records[at] = { id = at, name = "user " .. at, mail = "user" .. at .. "@example.com", active = at % 2 == 0,
            balance = at * 12.5, tags = { "lorem", "ipsum", "dolor" }, about = ("x"):rep(40) }
    end
    document = require("cjson").encode(records)
    page = ("the quick brown fox jumps over the lazy dog "):rep(373)
"""


@dataclasses.dataclass(frozen=True)
class Case:
    """One line of the table."""

    name: str
    text: str
    """The location's directives."""
    connections: int = 64
    wanted: float = 0
    """OpenResty's time through Weir's that must be reached."""
    aim: float = 0
    fields: int = 0
    """Fields that the client adds to its requests."""
    workers: int = 1
    library: str = ""
    """The repository whose modules it needs."""
    times: int = 1
    """What a request does so often that its own cost is nothing beside: figures are of one."""


def through(table):
    """26 values through `ngx.ctx` or `ngx.var`, from rewrite to content."""
    given = " ".join(f'{table}.v_{name} = "value of {name}"' for name in NAMES)
    taken = ", ".join(f"{table}.v_{name}" for name in NAMES)
    sets = " ".join(f'set $v_{name} "";' for name in NAMES) if table == "v" else ""
    of = "ngx.ctx" if table == "c" else "ngx.var"
    return (f"{sets} rewrite_by_lua_block {{ local {table} = {of} {given} }} "
            f"content_by_lua_block {{ local {table} = {of} ngx.print({taken}) }}")


DICT = """content_by_lua_block {
    local dict, out = ngx.shared.bench, {}
    for at = 1, 20 do dict:set("key" .. at, "value" .. at) end
    for at = 1, 20 do out[at] = dict:get("key" .. at) end
    ngx.print(table.concat(out))
}"""
HEADERS = """content_by_lua_block {
    local headers, size = ngx.req.get_headers(), 0
    for at = 1, 20 do size = size + #headers["x-field-" .. at] end
    local header = ngx.header
    for at = 1, 10 do header["X-Answer-" .. at] = "value" end
    ngx.print(size)
}"""
NOTHING = """rewrite_by_lua_block { } access_by_lua_block { } header_filter_by_lua_block { }
    body_filter_by_lua_block { } log_by_lua_block { }"""
SERVICE = """set $service_name ""; set $masked "";
    rewrite_by_lua_block { local c = ngx.ctx c.name = settings.name c.tries = settings.retries
        ngx.var.service_name = c.name }
    access_by_lua_block { local c = ngx.ctx c.strategy = settings.strategies[c.name] or "round robin"
        ngx.var.masked = ngx.re.sub(ngx.var.uri, "[0-9]+", "*", "jo") }
    header_filter_by_lua_block { ngx.header["X-Service"] = ngx.ctx.name }
    log_by_lua_block { local c = ngx.ctx if ngx.status >= 500 and c.tries > 0 then c.failed = true end }"""
GATEWAY = """{sets} set $target_uri /return; set $target_host $http_host;
    access_by_lua_block {{ local c, var = ngx.ctx, ngx.var c.name = settings.name var.v_a = c.name var.v_b = var.remote_addr
        if var.request_method ~= "GET" or var.http_x_none then ngx.exit(403) end ngx.req.set_header("X-Service", c.name) }}
    header_filter_by_lua_block {{ ngx.header["X-Service"] = ngx.ctx.name }}
    log_by_lua_block {{ local c = ngx.ctx c.status, c.took = ngx.status, ngx.var.upstream_response_time }}
    proxy_http_version 1.1; proxy_set_header Host $target_host; proxy_set_header Connection $v_c; proxy_set_header Upgrade $v_d;
    proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Host $host;
    proxy_set_header X-Forwarded-Port $server_port; proxy_set_header X-Forwarded-Path $request_uri; proxy_set_header X-Name $v_a;
    proxy_pass http://balanced$target_uri;""".format(sets=" ".join(f'set $v_{name} "";' for name in NAMES))
PROXY = "proxy_http_version 1.1; proxy_set_header Connection ''; proxy_pass http://{}/return;"
BACKEND = PROXY.format("backend")
REDIS = """content_by_lua_block {
    local redis = require("resty.redis"):new()
    redis:set_timeouts(10000, 10000, 10000)
    assert(redis:connect("127.0.0.1", {redis}))
    local value = assert(redis:get("given"))
    redis:set_keepalive(10000, 256)
    ngx.print(value)
}"""
HTTP = """content_by_lua_block {
    local http = require("resty.http").new()
    local options = { keepalive_timeout = 10000, keepalive_pool = 256 }
    ngx.print(assert(http:request_uri("http://127.0.0.1:{backend}/return", options)).body)
}"""
BALANCED = """upstream balanced {
        server 0.0.0.1;
        balancer_by_lua_block { assert(require("ngx.balancer").set_current_peer("127.0.0.1", {backend})) }
        keepalive 128; keepalive_requests 1000000000;
    }"""


def call(name, before, text):
    """A loop of one call, in a request that sends a field and has an argument."""
    loop = f"{before} local value for at = 1, {TIMES} do {text} end ngx.print(tostring(value))"
    return Case(f"call-{name}", f'set $given "a value"; content_by_lua_block {{ {loop} }}', fields=1, times=TIMES)


TIMES = 5000
CALLS = [
    call("nothing", "", "value = at"),
    call("var", "local var = ngx.var", "value = var.given"),
    call("var-uri", "local var = ngx.var", "value = var.uri"),
    call("var-set", "local var = ngx.var", 'var.given = "a value" value = true'),
    call("header", "local header = ngx.header header['X-Given'] = 'a value'", "value = header['X-Given']"),
    call("header-set", "local header = ngx.header", "header['X-Given'] = 'a value' value = true"),
    call("http-var", "local var = ngx.var", "value = var.http_x_field_1"),
    call("ctx", "ngx.ctx.given = 1", "value = ngx.ctx.given"),
    call("dict-get", "local dict = ngx.shared.bench dict:set('given', 'a value')", "value = dict:get('given')"),
    call("dict-set", "local dict = ngx.shared.bench", "value = dict:set('given', 'a value')"),
    call("dict-incr", "local dict = ngx.shared.bench dict:set('count', 0)", "value = dict:incr('count', 1) and true"),
    call("now", "", "value = ngx.now() and true"),
    call("md5", "", "value = ngx.md5('a value')"),
]
CASES = [
    Case("hello", r'content_by_lua_block { ngx.print("hello\n") }', wanted=1.2, aim=1.3),
    Case("dict", DICT, connections=192, wanted=2, aim=2.5),
    Case("dict-2", DICT, connections=192, wanted=2.5, aim=4, workers=2),
    Case("ctx", through("c"), connections=128, wanted=1.4, aim=1.6),
    Case("var", through("v"), connections=128, wanted=1.4, aim=1.6),
    Case("headers", HEADERS, wanted=1.4, aim=2, fields=20),
    Case("gsub", 'content_by_lua_block { ngx.print(#ngx.re.gsub(page, "fox", "cat", "jo")) }', wanted=1, aim=1.3),
    Case("base64", "content_by_lua_block { ngx.print(#ngx.encode_base64(page)) }", wanted=1, aim=1.3),
    Case("json", 'content_by_lua_block { local json = require "cjson" '
                 "ngx.print(#json.encode(json.decode(document))) }", wanted=1, aim=1.3),
    Case("hooks", NOTHING + " root {root}; try_files /6b.txt =404;", wanted=1.5, aim=2),
    Case("proxy", BACKEND),
    Case("service", SERVICE + BACKEND),
    Case("redis", REDIS, wanted=1.2, aim=1.3, library="lua-resty-redis"),
    Case("http", HTTP, wanted=1.3, aim=1.5, library="lua-resty-http"),
    Case("balancer", PROXY.format("balanced"), wanted=1.3, aim=1.5),
    Case("gateway", GATEWAY),
    *CALLS,
]
