"""What run-applications assembles: repositories, configurations, requests with the answers they must have."""

import getpass
import json


def whole(*folders):
    """Folders of a repository whose contents go where modules are looked for."""
    return [(folder, ".") for folder in folders]


WAF_LIBRARIES = {
    "p0pr0ck5/lua-resty-waf": [("lib", "."), ("rules", "rules")],
    "p0pr0ck5/lua-resty-cookie": whole("lib"),
    "p0pr0ck5/lua-resty-logger-socket": whole("lib"),
    "p0pr0ck5/lua-ffi-libinjection": whole("lib"),
    "hamishforbes/lua-resty-iputils": whole("lib"),
    "detailyang/lua-resty-htmlentities": whole("lib"),
    "openresty/lua-resty-upload": whole("lib"),
    "openresty/lua-resty-redis": whole("lib"),
    "openresty/lua-resty-memcached": whole("lib"),
    "openresty/lua-resty-dns": whole("lib"),
}
WAF_MODULES = ["libac.so", "libinjection.so", "libhtmlentities.so", "libdecode.so", "rex_pcre2.so"]


def waf_conf(port):
    """Its README's configuration, in the mode that refuses."""
    run = 'local waf = require("resty.waf"):new() waf:exec()'
    return f"""
worker_processes 2; error_log logs/error.log info; pid logs/nginx.pid;
events {{ }}
http {{
    access_log off;
    lua_package_path "$prefix/lua/?.lua;;"; lua_package_cpath "$prefix/so/?.so;;";
    lua_shared_dict store 1m;
    init_by_lua_block {{
        package.preload.rex_pcre = function() return require "rex_pcre2" end
        require "resty.core"
        require("resty.waf").init()
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            access_by_lua_block {{
                local waf = require("resty.waf"):new()
                waf:set_option("mode", "ACTIVE") waf:set_option("storage_zone", "store") waf:set_option("score_threshold", 5)
                waf:exec()
            }}
            header_filter_by_lua_block {{ {run} }}
            body_filter_by_lua_block {{ {run} }}
            log_by_lua_block {{ {run} waf:write_log_events() }}
            content_by_lua_block {{ ngx.req.read_body() ngx.say("passed ", ngx.req.get_method(), " ", ngx.var.uri) }}
        }}
    }}
}}
"""


WAF_REQUESTS = [
    {"name": "a page", "path": "/", "status": 200, "says": "passed GET /"},
    {"name": "an argument", "path": "/?a=1", "status": 200},
    {"name": "a form", "path": "/form", "body": "name=value&other=1", "status": 200, "says": "passed POST /form"},
    {"name": "SQL in an argument", "path": "/?id=1'%20or%20'1'='1", "status": 403},
    {"name": "SQL in a form", "path": "/", "body": "id=1 union select password from users", "status": 403},
    {"name": "a script in an argument", "path": "/?q=%3Cscript%3Ealert(1)%3C/script%3E", "status": 403},
    {"name": "a path that goes up", "path": "/?f=../../../../etc/passwd", "status": 403},
    {"name": "SQL in a cookie", "path": "/", "head": {"Cookie": "a=1' or '1'='1"}, "status": 403},
    {"name": "a page behind all that", "path": "/after", "status": 200},
]

APISIX_LIBRARIES = {
    "api7/lua-resty-radixtree": whole("lib"),
    "api7/jsonschema": whole("lib"),
    "starwing/lua-protobuf": [("protoc.lua", "."), ("serpent.lua", ".")],
    "api7/lua-resty-etcd": whole("lib"),
    "iresty/lua-typeof": whole("lib"),
    "api7/lua-resty-healthcheck": whole("lib"),
    "api7/lua-resty-ipmatcher": [("resty", "resty")],
    "api7/lua-resty-expr": whole("lib"),
    "thibaultcha/lua-resty-jit-uuid": whole("lib"),
    "api7/lua-var-nginx-module": whole("lib"),
    "api7/nginx-lua-prometheus": [(f"prometheus{part}.lua", ".") for part in ("", "_keys", "_resty_counter")],
    "api7/lua-resty-dns-client": whole("src"),
    "api7/lua-resty-http": whole("lib"),
    "openresty/lua-tablepool": whole("lib"),
    "openresty/lua-resty-signal": whole("lib"),
    "golgote/neturl": whole("lib"),
    "bjornbytes/graphql-lua": [("graphql", "graphql"), ("graphql.lua", ".")],
    "iskolbin/lbase64": [("base64.lua", ".")],
    "LuaDist/dkjson": [("dkjson.lua", ".")],
    "Tieske/binaryheap.lua": whole("src"),
    "mpeterv/argparse": whole("src"),
    "bungle/lua-resty-session": whole("lib"),
    "openresty/lua-resty-dns": whole("lib"),
    "openresty/lua-resty-limit-traffic": whole("lib"),
    "openresty/lua-resty-balancer": whole("lib"),
    "openresty/lua-resty-redis": whole("lib"),
    "openresty/lua-resty-websocket": whole("lib"),
    "openresty/lua-resty-shell": whole("lib"),
    "lunarmodules/Penlight": whole("lua"),
    "kikito/inspect.lua": [("inspect.lua", ".")],
    "tokers/lua-resty-ctxdump": whole("lib"),
    "bungle/lua-resty-template": whole("lib"),
    "cloudflare/lua-resty-cookie": whole("lib"),
    "cloudflare/lua-resty-logger-socket": whole("lib"),
    "fffonion/lua-resty-openssl": whole("lib"),
    "LuaDist-testing/lua-resty-mediador": whole("lib"),
    "hy05190134/lua-jsonpath": [("jsonpath.lua", ".")],
    "Kong/lua-multipart": whole("src"),
    "api7/lua-resty-jwt": whole("lib"),
    "jkeys089/lua-resty-hmac": whole("lib"),
    "hamishforbes/lua-ffi-zlib": whole("lib"),
    "manoelcampos/xml2lua": [("xml2lua.lua", "."), ("XmlParser.lua", "."), ("xmlhandler", "xmlhandler")],
    "steve0511/resty-redis-cluster": whole("lib"),
    "api7/lua-resty-redis-connector": whole("lib"),
    "doujiang24/lua-resty-kafka": whole("lib"),
    "yangxikun/opentelemetry-lua": whole("lib"),
    "google/flatbuffers": whole("lua"),
    "api7/ext-plugin-proto": whole("lua"),
}
# lyaml, lpeg, LuaFileSystem, LuaSocket, LuaSec and luaposix are packages of distributions, with their own modules in Lua.
APISIX_MODULES = [
    "librestyradixtree.so", "librestychash.so", "librestysignal.so", "pb.so", "yaml.so", "lpeg.so", "lfs.so",
    "socket/core.so", "posix.so",
]

PLUGINS = """real-ip client-control cors ip-restriction ua-restriction referer-restriction uri-blocker
request-validation consumer-restriction key-auth basic-auth jwt-auth proxy-rewrite redirect response-rewrite limit-count
limit-req limit-conn traffic-split mocking echo fault-injection serverless-pre-function prometheus public-api""".split()


ADMIN_KEY = "of-this-run"


def apisix_config(ports):
    """conf/config.yaml: the plugins are those that the requests use; routes come from a file, from etcd where `ports` has it."""
    etcd = "etcd" in ports
    deployment = f"""
  role: traditional
  role_traditional: {{config_provider: etcd}}
  admin:
    admin_key: [{{name: admin, key: {ADMIN_KEY}, role: admin}}]
    allow_admin: [127.0.0.0/24]
    admin_listen: {{ip: 127.0.0.1, port: {ports["admin"]}}}
    enable_admin_ui: false
  etcd: {{host: ["http://127.0.0.1:{ports["etcd"]}"], prefix: /apisix, timeout: 30}}""" if etcd else """
  role: data_plane
  role_data_plane: {config_provider: yaml}"""
    return f"""
apisix:
  node_listen: {ports["main"]}
  enable_admin: {str(etcd).lower()}
  enable_control: true
  control: {{ip: 127.0.0.1, port: {ports["control"]}}}
  ssl: {{enable: false}}
nginx_config:
  user: {getpass.getuser()}
  worker_processes: 2
  http:
    access_log_format: '$remote_addr "$request" $status $upstream_addr'
    custom_lua_shared_dict: {{prometheus-cache: 10m}}
deployment:{deployment}
plugins: [{", ".join(PLUGINS)}]
stream_plugins: []
plugin_attr:
  prometheus:
    export_addr: {{ip: 127.0.0.1, port: {ports["prometheus"]}}}
"""


def route(number, uri, plugins, more=""):
    return f"""  - id: {number}
    uri: {uri}
    upstream_id: 1
    plugins: {{{plugins}}}
{more}"""


def apisix_routes(first, second):
    """conf/apisix.yaml"""
    return "routes:\n" + "".join([
        route(1, "/hello", ""),
        route(2, "/key", "key-auth: {}"),
        route(3, "/limited", "limit-count: {count: 2, time_window: 60, rejected_code: 429, key: remote_addr}"),
        route(4, "/rewritten/*", 'proxy-rewrite: {regex_uri: ["^/rewritten/(.*)", "/new/$1"], headers: {set: {X-Api: one}}}'),
        route(5, "/basic", "basic-auth: {}"),
        route(6, "/moved", "redirect: {uri: /elsewhere, ret_code: 302}"),
        route(7, "/answer", 'response-rewrite: {status_code: 203, body: "another\\n", headers: {set: {X-Done: "1"}}}'),
        route(8, "/closed", 'ip-restriction: {blacklist: ["127.0.0.0/8"]}'),
        route(9, "/cors", "cors: {}"),
        route(10, "/blocked", 'uri-blocker: {block_rules: ["root.exe"]}'),
        route(11, "/faulty", 'fault-injection: {abort: {http_status: 418, body: "tea"}}'),
        route(12, "/mocked", 'mocking: {response_example: "{\\"a\\":1}", response_status: 200, content_type: application/json}'),
        route(13, "/lua", "serverless-pre-function: {phase: access, functions: "
              "[\"return function(conf, ctx) ngx.header['X-Lua'] = ngx.var.uri end\"]}"),
        route(14, "/split", "traffic-split: {rules: [{weighted_upstreams: [{upstream_id: 2, weight: 1}]}]}"),
        route(15, "/valid", "request-validation: {header_schema: {type: object, required: [x-must]}}"),
    ]) + f"""upstreams:
  - id: 1
    type: roundrobin
    nodes: {{"127.0.0.1:{first}": 1}}
  - id: 2
    type: chash
    key: uri
    nodes: {{"127.0.0.1:{second}": 1}}
global_rules:
  - id: 1
    plugins: {{prometheus: {{}}}}
consumers:
  - username: jack
    plugins: {{key-auth: {{key: secret}}, basic-auth: {{username: jack, password: pass}}}}
#END
"""


APISIX_REQUESTS = [
    {"name": "a route", "path": "/hello", "status": 200, "says": "GET /hello "},
    {"name": "no route", "path": "/nothere", "status": 404, "says": "404 Route Not Found"},
    {"name": "key-auth without a key", "path": "/key", "status": 401, "says": "Missing API key"},
    {"name": "key-auth with a key", "path": "/key", "head": {"apikey": "secret"}, "status": 200, "says": "GET /key "},
    {"name": "key-auth with another key", "path": "/key", "head": {"apikey": "no"}, "status": 401},
    {"name": "basic-auth refuses", "path": "/basic", "status": 401},
    {"name": "basic-auth", "path": "/basic", "head": {"Authorization": "Basic amFjazpwYXNz"}, "status": 200},
    {"name": "limit-count, first", "path": "/limited", "status": 200},
    {"name": "limit-count, second", "path": "/limited", "status": 200},
    {"name": "limit-count, third", "path": "/limited", "status": 429},
    {"name": "proxy-rewrite", "path": "/rewritten/a%20b?c=d", "status": 200, "says": "GET /new/a%20b?c=d "},
    {"name": "proxy-rewrite, a header", "path": "/rewritten/x", "status": 200, "says": " x=one"},
    {"name": "redirect", "path": "/moved", "status": 302, "heads": {"Location": "/elsewhere"}},
    {"name": "response-rewrite", "path": "/answer", "status": 203, "says": "another", "heads": {"X-Done": "1"}},
    {"name": "ip-restriction", "path": "/closed", "status": 403},
    {"name": "cors", "path": "/cors", "status": 200, "heads": {"Access-Control-Allow-Origin": "*"}},
    {"name": "uri-blocker", "path": "/blocked?name=root.exe", "status": 403},
    {"name": "fault-injection", "path": "/faulty", "status": 418, "says": "tea"},
    {"name": "mocking", "path": "/mocked", "status": 200, "says": '"a":1'},
    {"name": "serverless-pre-function", "path": "/lua", "status": 200, "heads": {"X-Lua": "/lua"}},
    {"name": "traffic-split to a consistent hash", "path": "/split", "status": 200, "says": "GET /split "},
    {"name": "request-validation refuses", "path": "/valid", "status": 400},
    {"name": "request-validation", "path": "/valid", "head": {"x-must": "1"}, "status": 200},
    {"name": "a body", "path": "/hello", "body": "x" * 100_000, "status": 200, "says": "POST /hello "},
    {"name": "the control interface", "port": "control", "path": "/v1/schema", "status": 200, "says": "key-auth"},
    {"name": "prometheus", "port": "prometheus", "path": "/apisix/prometheus/metrics", "status": 200, "says": "apisix_http_requests_total",
     # The privileged agent gathers it, in a process that begins beside the workers.
     "awaited": True},
]


def stored(kind, what, value, status):
    """A `PUT` to the Admin API."""
    return {"name": f"Admin API: {kind} {what}", "port": "admin", "method": "PUT", "path": f"/apisix/admin/{kind}/{what}",
            "head": ADMIN_HEAD, "body": json.dumps(value), "status": status}


ADMIN_HEAD = {"X-API-KEY": ADMIN_KEY, "Content-Type": "application/json"}
LIMIT = {"count": 2, "time_window": 60, "rejected_code": 429, "key": "remote_addr"}


def apisix_etcd_requests(first, second):
    """Routes that are made, changed and taken away by the Admin API, while they are asked for."""
    one = {"type": "roundrobin", "nodes": {f"127.0.0.1:{first}": 1}}
    both = {"type": "roundrobin", "nodes": {f"127.0.0.1:{first}": 1, f"127.0.0.1:{second}": 1}}

    def route(number, uri, plugins, status=201):
        return stored("routes", number, {"uri": uri, "upstream_id": "1", "plugins": plugins}, status)

    return [
        {"name": "the Admin API", "port": "admin", "path": "/apisix/admin/routes", "head": ADMIN_HEAD, "status": 200, "says": '"total":0',
         "awaited": True},
        {"name": "the Admin API without a key", "port": "admin", "path": "/apisix/admin/routes", "status": 401},
        {"name": "no route yet", "path": "/hello", "status": 404},
        stored("upstreams", "1", one, 201),
        route("1", "/hello", {}),
        {"name": "the route, once both workers watch", "path": "/hello", "status": 200, "says": f"port={first}", "awaited": True, "times": 20},
        route("2", "/limited", {"limit-count": LIMIT}),
        {"name": "the limited route is there", "path": "/limited", "method": "GET", "status": 200, "awaited": True},
        {"name": "limit-count, second", "path": "/limited", "status": 200},
        {"name": "limit-count, third", "path": "/limited", "status": 429, "times": 10},
        stored("consumers", "jack", {"username": "jack", "plugins": {"key-auth": {"key": "secret"}}}, 201),
        route("3", "/key", {"key-auth": {}}),
        {"name": "key-auth of a consumer", "path": "/key", "head": {"apikey": "secret"}, "status": 200, "awaited": True, "times": 10},
        {"name": "key-auth refuses", "path": "/key", "status": 401, "times": 10},
        route("1", "/hello", {"response-rewrite": {"headers": {"set": {"X-Changed": "1"}}}}, 200),
        {"name": "the changed route", "path": "/hello", "status": 200, "heads": {"X-Changed": "1"}, "awaited": True, "times": 20},
        stored("upstreams", "1", both, 200),
        {"name": "a second server", "path": "/hello", "status": 200, "says": f"port={second}", "awaited": True},
        {"name": "a route that is wrong", "port": "admin", "method": "PUT", "path": "/apisix/admin/routes/9", "head": ADMIN_HEAD,
         "body": '{"uri": 5}', "status": 400},
        {"name": "a plugin's settings that are wrong", "port": "admin", "method": "PUT", "path": "/apisix/admin/routes/9",
         "head": ADMIN_HEAD, "body": '{"uri": "/x", "upstream_id": "1", "plugins": {"limit-count": {"count": -1}}}', "status": 400},
        {"name": "the route is taken away", "port": "admin", "method": "DELETE", "path": "/apisix/admin/routes/1", "head": ADMIN_HEAD,
         "status": 200},
        {"name": "it is gone", "path": "/hello", "status": 404, "awaited": True, "times": 20},
        {"name": "a global rule", "port": "admin", "method": "PUT", "path": "/apisix/admin/global_rules/1", "head": ADMIN_HEAD,
         "body": '{"plugins": {"cors": {}}}', "status": 201},
        {"name": "it is in force", "path": "/key", "status": 401, "heads": {"Access-Control-Allow-Origin": "*"}, "awaited": True, "times": 10},
        {"name": "the control interface", "port": "control", "path": "/v1/schema", "status": 200, "says": "key-auth"},
    ]


LAPIS_LIBRARIES = {
    "leafo/lapis": [("lapis", "lapis")],
    "leafo/etlua": [("etlua.lua", ".")],
    "leafo/loadkit": [("loadkit.lua", ".")],
    "openresty/lua-resty-upload": whole("lib"),
    "openresty/lua-resty-string": whole("lib"),
    "Tieske/date": whole("src"),
    "kikito/ansicolors.lua": [("ansicolors.lua", ".")],
    "mpeterv/argparse": whole("src"),
}
LAPIS_MODULES = ["_openssl.so", "lpeg.so", "socket/core.so"]

LAPIS_APP = """local lapis = require("lapis")
local csrf = require("lapis.csrf")
local capture_errors_json = require("lapis.application").capture_errors_json
local respond_to = require("lapis.application").respond_to
local app = lapis.Application()
app:enable("etlua")
app:get("/", function(self) return "the index of " .. self.route_name or "" end)
app:get("named", "/named/:name[a-z]", function(self) return "hello " .. self.params.name .. " " .. self:url_for("named", { name = "b" }) end)
app:get("/splat/*", function(self) return "splat " .. self.params.splat end)
app:get("/optional/:a(/:b)", function(self) return tostring(self.params.a) .. " " .. tostring(self.params.b) end)
app:get("/json", function(self) return { json = { sum = tonumber(self.params.a) + 1, list = { 1, 2 } } } end)
app:get("/status", function() return { status = 418, "tea", headers = { ["X-Lapis"] = "1" } } end)
app:get("/redirect", function(self) return { redirect_to = self:build_url("json") } end)
app:get("/count", function(self) self.session.count = (self.session.count or 0) + 1 return "count " .. self.session.count end)
app:match("/form", respond_to({
    GET = function(self) return csrf.generate_token(self) end,
    POST = capture_errors_json(function(self) csrf.assert_token(self) return "sent " .. self.params.field end),
}))
app:post("/upload", function(self) local file = self.params.file return file.filename .. " " .. #file.content end)
app:get("/html", function(self) return self:html(function() div({ class = "a" }, function() text("<b>") raw("<i>") end) end) end)
app:get("/view", function(self) self.items = { "one", "<two>" } return { render = "list" } end)
app:get("/fails", function() error("on purpose") end)
app.handle_404 = function() return { status = 404, "nothing here" } end
app.handle_error = function(self, err) return { status = 500, "handled: " .. err } end
return app
"""
LAPIS_VIEW = "<ul><% for _, item in ipairs(items) do %><li><%= item %></li><% end %></ul>"


def lapis_conf(port):
    """As its template nginx.conf, without what `lapis server` fills in."""
    return f"""
worker_processes 2; error_log logs/error.log notice; pid logs/nginx.pid;
events {{ }}
http {{
    access_log off;
    lua_package_path "$prefix/?.lua;$prefix/lua/?.lua;$prefix/lua/?/init.lua;;"; lua_package_cpath "$prefix/so/?.so;;";
    init_by_lua_block {{ require "lapis" }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ default_type text/html; content_by_lua_block {{ require("lapis").serve("app") }} }}
    }}
}}
"""


LAPIS_UPLOAD = '--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\n' + "x" * 5_000 + "\r\n--b--\r\n"
LAPIS_REQUESTS = [
    {"name": "a parameter of the path", "path": "/named/a", "status": 200, "says": "hello a /named/b"},
    {"name": "a parameter that is none", "path": "/named/5", "status": 404, "says": "nothing here"},
    {"name": "the rest of a path", "path": "/splat/x/y%20z", "status": 200, "says": "splat x/y%20z"},
    {"name": "an optional part, without", "path": "/optional/1", "status": 200, "says": "1 nil"},
    {"name": "an optional part", "path": "/optional/1/2", "status": 200, "says": "1 2"},
    {"name": "JSON", "path": "/json?a=41", "status": 200, "says": '"sum":42', "heads": {"Content-Type": "application/json"}},
    {"name": "a status and a field", "path": "/status", "status": 418, "says": "tea", "heads": {"X-Lapis": "1"}},
    {"name": "a redirect", "path": "/redirect", "status": 302},
    {"name": "a session", "path": "/count", "status": 200, "says": "count 1"},
    {"name": "a form without its token", "path": "/form", "body": "field=1", "status": 200, "says": "missing csrf token"},
    {"name": "an upload", "path": "/upload", "body": LAPIS_UPLOAD, "head": {"Content-Type": "multipart/form-data; boundary=b"}, "status": 200,
     "says": "a.txt 5000"},
    {"name": "HTML", "path": "/html", "status": 200, "says": '<div class="a">&lt;b&gt;<i></div>'},
    {"name": "a view", "path": "/view", "status": 200, "says": "<li>one</li><li>&lt;two&gt;</li>"},
    {"name": "an error", "path": "/fails", "status": 500, "says": "on purpose"},
    {"name": "no route", "path": "/nothing", "status": 404, "says": "nothing here"},
]

# As its image has them; the tests are its own.
INGRESS_LIBRARIES = {
    "openresty/lua-resty-balancer": whole("lib"),
    "cloudflare/lua-resty-cookie": whole("lib"),
    "openresty/lua-resty-dns": whole("lib"),
    "ledgetech/lua-resty-http": whole("lib"),
    "openresty/lua-resty-lock": whole("lib"),
}
INGRESS_MODULES = ["librestychash.so"]
