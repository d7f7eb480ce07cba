"""What run-apicast assembles: APIcast's libraries, its services with their policies, and the checks."""

import base64
import json
import subprocess
import time

# As gateway/Roverfile.lock names them; where it names a release, its commit or the newest one.
LIBRARIES = {
    "3scale/liquid-lua": ("HEAD", "lib", "."),
    "3scale/lua-resty-env": ("HEAD", "src", "."),
    "3scale/lua-resty-execvp": ("HEAD", "src", "."),
    "3scale/lua-resty-url": ("HEAD", "src", "."),
    "APItools/router.lua": ("HEAD", "router.lua", "."),
    "api7/jsonschema": ("c1d72d86bb3dc5b33da57d47febc47657d29ea74", "lib", "."),
    "api7/lua-resty-ipmatcher": ("62d4c44d67227e8f3fe02331c2f8b90fe0d7ccd1", "resty", "resty"),
    "cdbattags/lua-resty-jwt": ("HEAD", "lib", "."),
    "fffonion/lua-resty-openssl": ("HEAD", "lib", "."),
    "gvvaughan/lyaml": ("HEAD", "lib", "."),
    "hamishforbes/lua-resty-iputils": ("6110b41eaa52efd25e56f89e34412ab95f700d57", "lib", "."),
    "jkeys089/lua-resty-hmac": ("HEAD", "lib", "."),
    "kikito/inspect.lua": ("HEAD", "inspect.lua", "."),
    "knyar/nginx-lua-prometheus": ("379c0a4d4d6f3c5b0eb93691fc7e14fff498e1ca", "prometheus.lua", "nginx"),
    "ledgetech/lua-resty-http": ("4ab4269cf442ba52507aa2c718f606054452fcad", "lib", "."),
    "lunarmodules/Penlight": ("HEAD", "lua", "."),
    "mpeterv/argparse": ("HEAD", "src", "."),
    "thibaultcha/lua-resty-jit-uuid": ("64ae38de75c9d58f330d89e140ac872771c19223", "lib", "."),
    "Tieske/date": ("HEAD", "src", "."),
    # Of OpenResty's own bundle.
    "openresty/lua-resty-dns": ("HEAD", "lib", "."),
    "openresty/lua-resty-limit-traffic": ("HEAD", "lib", "."),
    "openresty/lua-resty-redis": ("HEAD", "lib", "."),
}
MODULES = ["lfs.so", "yaml.so"]


def environment(ports, workers):
    """The file in Lua that names ports; APIcast has no other setting of them. It writes an address before that of `echo`."""
    listed = ", ".join(f'{name} = "127.0.0.1:{ports[name]}"' for name in ("apicast", "management", "backend", "metrics"))
    return f"""return {{
    worker_processes = "{workers}", master_process = "on", lua_code_cache = "on",
    configuration_loader = "boot", configuration_cache = 300,
    port = {{ {listed}, echo = "{ports['echo']}" }},
}}
"""


def service(number, host, policies, upstream, backend, **more):
    """A service of one host that counts `hits`; `policies` are before APIcast's own."""
    chain = [{"name": name, "version": "builtin", "configuration": configuration} for name, configuration in policies]
    own = {"name": "apicast", "version": "builtin", "configuration": {}}
    proxy = {
        "hosts": [host], "api_backend": upstream, "backend": {"endpoint": backend, "host": "backend"}, "secret_token": "hush",
        "proxy_rules": [{"http_method": method, "pattern": "/", "metric_system_name": "hits", "delta": 1} for method in ("GET", "POST", "HEAD", "PUT", "OPTIONS")],
        "policy_chain": chain + ([own] if more.pop("counted", True) else []),
    }
    proxy.update(more.pop("proxy", {}))
    return {"id": number, "backend_version": "1", "backend_authentication_type": "service_token", "backend_authentication_value": "its-token", "proxy": proxy, **more}


def equal(left, right):
    return {"combine_op": "and", "operations": [{"left": left, "left_type": "liquid", "op": "==", "right": right, "right_type": "plain"}]}


def declared(ports, keys, names):
    """The configuration: `names` are the ports of what is behind, `keys` files and texts of certificates and keys."""
    upstream, other, backend = (f"http://127.0.0.1:{names[name]}" for name in ("upstream", "other", "backend"))
    routing = {"rules": [
        {"url": other, "condition": {"operations": [{"match": "path", "op": "matches", "value": "^/other"}]}},
        {"url": other, "replace_path": "/replaced", "host_header": "there.example",
         "condition": {"operations": [{"match": "header", "header_name": "X-To", "op": "==", "value": "other"}]}},
        {"url": other, "condition": {"operations": [{"match": "query_arg", "query_arg_name": "to", "op": "==", "value": "other"}]}},
    ]}
    headers = {
        "request": [{"op": "set", "header": "X-Set", "value": "{{ uri }}", "value_type": "liquid"}, {"op": "delete", "header": "X-Gone"}, {"op": "add", "header": "X-More", "value": "two"}],
        "response": [{"op": "set", "header": "X-Said", "value": "yes"}, {"op": "push", "header": "X-Upstream", "value": "2"}],
    }
    limits = {"fixed_window_limiters": [{"key": {"name": "{{ remote_addr }}", "name_type": "liquid", "scope": "service"}, "count": 2, "window": 3600}], "limits_exceeded_error": {"status_code": 429, "error_handling": "exit"}}
    bucket = {"leaky_bucket_limiters": [{"key": {"name": "all"}, "rate": 1, "burst": 1}]}
    connections = {"connection_limiters": [{"key": {"name": "all"}, "conn": 1, "burst": 0, "delay": 1}]}
    rewriting = {
        "commands": [{"op": "sub", "regex": "^/old", "replace": "/new", "break": True}, {"op": "gsub", "regex": "a", "replace": "b"}],
        "query_args_commands": [{"op": "set", "arg": "added", "value": "{{ http_method }}", "value_type": "liquid"}, {"op": "delete", "arg": "gone"}],
    }
    mutual = {"certificate_type": "path", "certificate": keys["client.crt"], "certificate_key_type": "path", "certificate_key": keys["client.key"],
              "ca_certificates": [keys["text"]], "verify": True}
    embedded = {"certificate_type": "embedded", "certificate": keys["url.crt"], "certificate_key_type": "embedded", "certificate_key": keys["url.key"]}
    conditional = {"condition": equal("{{ headers['X-Broken'] }}", "1"),
                   "policy_chain": [{"name": "maintenance_mode", "version": "builtin", "configuration": {"status": 503, "message": "now and then"}}]}
    listed = [
        ("plain", [], {}),
        ("headers", [("headers", headers)], {}),
        ("routing", [("routing", routing)], {}),
        ("upstreams", [("upstream", {"rules": [{"regex": "^/there", "url": other}]})], {}),
        ("limited", [("rate_limit", limits)], {}),
        ("bucket", [("rate_limit", bucket)], {}),
        ("connections", [("rate_limit", connections)], {}),
        ("rewriting", [("url_rewriting", rewriting)], {}),
        ("captures", [("rewrite_url_captures", {"transformations": [{"match_rule": "/users/{id}/orders/{order}", "template": "/o?user={id}&order={order}"}]})], {}),
        ("cors", [("cors", {"allow_origin": "https://a.example", "allow_methods": ["GET", "POST"], "allow_headers": ["X-A"], "allow_credentials": True, "max_age": 60})], {}),
        ("refused", [("ip_check", {"check_type": "blacklist", "ips": ["127.0.0.0/8"], "error_msg": "not you"})], {}),
        ("forwarded", [("ip_check", {"check_type": "whitelist", "ips": ["10.0.0.0/8"], "client_ip_sources": ["X-Forwarded-For"]})], {}),
        ("echoed", [("echo", {"status": 202, "exit": "request"})], {}),
        ("closed", [("maintenance_mode", {"status": 503, "message": "be back soon"})], {}),
        ("now-and-then", [("conditional", conditional)], {}),
        ("anonymous", [("default_credentials", {"auth_type": "user_key", "user_key": "good"})], {}),
        ("overwritten", [("statuscode_overwrite", {"http_statuses": [{"upstream": 418, "apicast": 503}]})], {}),
        ("sized", [("payload_limits", {"request": 10, "response": 100_000})], {}),
        ("resilient", [("caching", {"caching_type": "resilient"})], {}),
        ("cached", [("content_caching", {"rules": [{"cache": True, "header": "X-Cache-Status", "condition": equal("{{ http_method }}", "GET")}]})], {}),
        ("socket", [("websocket", {})], {}),
        ("filtered", [("nginx_filters", {"headers": [{"name": "If-Match", "append": False}]})], {}),
        ("timed", [("upstream_connection", {"read_timeout": 1})], {}),
        ("retried", [("retry", {"retries": 2})], {}),
        ("unbuffered", [("request_unbuffered", {})], {}),
        ("seen", [("liquid_context_debug", {})], {"counted": False}),
        ("measured", [("custom_metrics", {"rules": [{"metric": "answered", "increment": "1", "condition": {"combine_op": "and", "operations": [{"left": "{{ status }}", "left_type": "liquid", "op": "==", "right": "200"}]}}]})], {}),
        ("dead", [], {"proxy": {"api_backend": f"http://127.0.0.1:{names['dead']}"}}),
        ("secure", [], {"proxy": {"api_backend": f"https://127.0.0.1:{names['tls']}"}}),
        ("mutual", [("upstream_mtls", mutual)], {"proxy": {"api_backend": f"https://127.0.0.1:{names['mutual']}"}}),
        ("embedded", [("upstream_mtls", embedded)], {"proxy": {"api_backend": f"https://127.0.0.1:{names['mutual']}"}}),
        ("ids", [], {"backend_version": "2"}),
        ("fields", [], {"proxy": {"credentials_location": "headers", "auth_user_key": "X-Key"}}),
        ("strict", [], {"proxy": {"proxy_rules": [{"http_method": "GET", "pattern": "/api/{id}?kind={kind}", "metric_system_name": "hits", "delta": 3}]}}),
        ("tokens", [("jwt_claim_check", {"error_message": "not yours", "rules": [{"methods": ["ANY"], "resource": "/mine", "operations": [{"jwt_claim": "role", "jwt_claim_type": "plain", "op": "==", "value": "owner"}]}]})],
         {"backend_version": "oauth", "proxy": {"authentication_method": "oidc", "oidc_issuer_endpoint": "https://issuer.example", "credentials_location": "headers"}}),
        ("validated", [("tls_validation", {"whitelist": [{"pem_certificate": keys["text"]}]})], {}),
        ("named", [("tls", {"certificates": [{"certificate_path": keys["named.crt"], "certificate_key_path": keys["named.key"]}]})], {}),
    ]
    services = [service(number + 1, f"{name}.example", policies, upstream, backend, **more) for number, (name, policies, more) in enumerate(listed)]
    # One for each service, by its place.
    oidc = [{"service_id": one["id"]} for one in services]
    for place, one in enumerate(services):
        if one["backend_version"] == "oauth":
            oidc[place] = {"service_id": one["id"], "issuer": "https://issuer.example", "config": {"id_token_signing_alg_values_supported": ["RS256"]}, "keys": {"one": {"pem": keys["public"], "alg": "RS256"}}}
    return {"services": services, "oidc": oidc}


def token(key, **claims):
    """A token signed with a private key (RS256)."""
    part = lambda value: base64.urlsafe_b64encode(value).rstrip(b"=")
    now = int(time.time())
    payload = {"iss": "https://issuer.example", "sub": "s", "aud": "a", "exp": now + 300, "iat": now, "azp": "client", "typ": "Bearer", **claims}
    text = part(b'{"alg":"RS256","typ":"JWT","kid":"one"}') + b"." + part(json.dumps(payload).encode())
    signed = subprocess.run(["openssl", "dgst", "-sha256", "-sign", key], input=text, capture_output=True, check=True).stdout
    return (text + b"." + part(signed)).decode()
