"""What `run-kong --mode database` asks: Kong with PostgreSQL, to which everything comes by the Admin API."""

import base64
import json
import re
import socket
import ssl
import subprocess

import running
from kong_postgres import Postgres
from kong_server import Kong, count, reload_under_load, token, until

# What changes is to be seen soon.
SOON = {"KONG_WORKER_STATE_UPDATE_FREQUENCY": "0.1", "KONG_DB_UPDATE_FREQUENCY": "0.1"}


class Writer:
    """The Admin API, for what must succeed."""

    def __init__(self, kong, upstream):
        self.kong, self.upstream = kong, upstream

    def make(self, path, value):
        status, made = self.kong.admin(path, "POST", value)
        if status not in (200, 201):
            raise ValueError(f"POST {path}: {status} {made}")
        return made

    def route(self, name, plugins=(), url=None, **more):
        """A service with one route of its name, and plugins; its path is `/name`."""
        self.make("/services", {"name": name, "url": url or f"http://127.0.0.1:{self.upstream}", "retries": 1, **more})
        self.make(f"/services/{name}/routes", {"name": name, "paths": [f"/{name}"]})
        for plugin, config in plugins:
            self.make(f"/services/{name}/plugins", {"name": plugin, "config": config})

    def settles(self, what, condition):
        """Whether eight requests in a row, which go to all workers, have it so soon."""
        return until(what, lambda: all(condition() for _ in range(8)), 15)


def entities(kong, writer):
    admin = kong.admin
    writer.route("plain")
    yield "a service and a route", writer.settles("the route", lambda: kong.ask("/plain")[0] == 200)
    yield "of a name that is taken", admin("/services", "POST", {"name": "plain", "url": "http://127.0.0.1:1"})[0] == 409
    status, said = admin("/services", "POST", {"name": "x", "host": "a", "port": 99999})
    yield "with a port that is none", status == 400 and said["name"] == "schema violation"
    yield "a service that has a route is not deleted", admin("/services/plain", "DELETE")[0] == 400
    yield "PATCH", admin("/routes/plain", "PATCH", {"paths": ["/plain", "/moved"]})[1]["paths"] == ["/plain", "/moved"]
    yield "the route is changed on all workers", writer.settles("the path", lambda: kong.ask("/moved")[0] == 200)
    yield "PUT", admin("/services/put", "PUT", {"url": "http://127.0.0.1:1"})[0] == 200 and admin("/services/put", "DELETE")[0] == 204
    yield "what is not there", admin("/services/put")[0] == 404
    for number in range(5):
        writer.make("/consumers", {"username": f"page{number}"})
    status, page = admin("/consumers?size=2")
    seen = {one["username"] for one in page["data"]}
    while page.get("next"):
        page = admin(page["next"])[1]
        seen |= {one["username"] for one in page["data"]}
    yield "pages", status == 200 and seen == {f"page{number}" for number in range(5)}
    writer.make("/consumers", {"username": "tagged", "tags": ["a", "b"]})
    yield "tags", [one["username"] for one in admin("/consumers?tags=a,b")[1]["data"]] == ["tagged"]
    yield "the database is reachable", admin("/status")[1]["database"]["reachable"] is True


def who_may(kong, writer):
    ask = kong.ask
    for name in ("one", "two"):
        writer.make("/consumers", {"username": name})
    writer.make("/consumers/one/key-auth", {"key": "k1"})
    writer.make("/consumers/one/basic-auth", {"username": "user", "password": "secret"})
    writer.make("/consumers/one/jwt", {"key": "issuer", "secret": "hush", "algorithm": "HS256"})
    writer.make("/consumers/one/acls", {"group": "inner"})
    writer.make("/consumers/two/key-auth", {"key": "k2"})
    writer.route("keyed", [("key-auth", {})])
    writer.route("basic", [("basic-auth", {})])
    writer.route("tokens", [("jwt", {})])
    writer.route("listed", [("key-auth", {}), ("acl", {"allow": ["inner"]})])
    key = lambda path, value: ask(path, fields={"apikey": value})[0]
    yield "key-auth", writer.settles("key-auth", lambda: [ask("/keyed")[0], key("/keyed", "k3"), key("/keyed", "k1")] == [401, 401, 200])
    basic = lambda text: ask("/basic", fields={"Authorization": "Basic " + base64.b64encode(text).decode()})
    yield "basic-auth", writer.settles("basic-auth", lambda: [ask("/basic")[0], basic(b"user:x")[0], basic(b"user:secret")[0]] == [401, 401, 200])
    yield "basic-auth: the consumer", json.loads(basic(b"user:secret")[2])["fields"]["x-credential-identifier"] == "user"
    bearer = lambda secret: ask("/tokens", fields={"Authorization": "Bearer " + token(secret)})[0]
    yield "jwt", writer.settles("jwt", lambda: [ask("/tokens")[0], bearer("other"), bearer("hush")] == [401, 401, 200])
    yield "acl", writer.settles("acl", lambda: [key("/listed", "k2"), key("/listed", "k1")] == [403, 200])
    writer.make("/consumers/two/acls", {"group": "inner"})
    yield "acl: a group is added", writer.settles("the group", lambda: key("/listed", "k2") == 200)
    yield "a consumer is deleted", kong.admin("/consumers/two", "DELETE")[0] == 204
    yield "its key is known to no worker", writer.settles("the key's end", lambda: key("/keyed", "k2") == 401)


def plugins(kong, writer):
    ask = kong.ask
    writer.route("limited", [("rate-limiting", {"minute": 3, "policy": "local"})])
    writer.route("shared", [("cors", {"origins": ["https://a.example"], "methods": ["GET"], "max_age": 60})])
    writer.route("asked", [("request-transformer", {"add": {"headers": ["x-added:1"], "querystring": ["q:1"]}, "remove": {"headers": ["x-gone"]}})])
    writer.route("told", [("response-transformer", {"add": {"headers": ["x-told:1"], "json": ["more:1"]}})])
    writer.route("numbered", [("correlation-id", {"header_name": "X-Number", "generator": "uuid#counter", "echo_downstream": True})])
    writer.route("far", [("ip-restriction", {"deny": ["127.0.0.0/8"]})])
    writer.route("cached", [("proxy-cache", {"strategy": "memory", "content_type": ["application/json"], "cache_ttl": 60})])
    writer.make("/plugins", {"name": "prometheus", "config": {"status_code_metrics": True}})
    yield "rate-limiting", writer.settles("a limit", lambda: 429 in [ask("/limited")[0] for _ in range(5)])
    origin = lambda name: {"Origin": name, "Access-Control-Request-Method": "GET"}
    writer.settles("cors", lambda: ask("/shared", "OPTIONS", origin("https://a.example"))[0] == 200)
    status, fields, body = ask("/shared", "OPTIONS", origin("https://a.example"))
    yield "cors: a preflight", status == 200 and body == b"" and fields["access-control-allow-origin"] == "https://a.example" and fields["access-control-max-age"] == "60"
    yield "cors: a request", ask("/shared", fields={"Origin": "https://a.example"})[1]["access-control-allow-origin"] == "https://a.example"
    writer.settles("request-transformer", lambda: "q=1" in json.loads(ask("/asked")[2])["path"])
    seen = json.loads(ask("/asked?a=b", fields={"X-Gone": "1"})[2])
    yield "request-transformer", seen["fields"]["x-added"] == "1" and seen["path"] == "/?a=b&q=1" and "x-gone" not in seen["fields"]
    writer.settles("response-transformer", lambda: "x-told" in ask("/told")[1])
    yield "response-transformer", json.loads(ask("/told")[2])["more"] == "1"
    writer.settles("correlation-id", lambda: "x-number" in ask("/numbered")[1])
    numbers = [ask("/numbered")[1]["x-number"] for _ in range(4)]
    yield "correlation-id", len(set(numbers)) == 4 and all(number.count("#") == 1 for number in numbers)
    yield "ip-restriction", writer.settles("ip-restriction", lambda: ask("/far")[0] == 403)
    yield "proxy-cache", writer.settles("a hit", lambda: ask("/cached")[1].get("x-cache-status") == "Hit")
    key = ask("/cached")[1]["x-cache-key"]
    yield "proxy-cache: an entry by the Admin API", kong.admin(f"/proxy-cache/{key}", "DELETE")[0] == 204
    counted = lambda: ask("/plain")[0] == 200 and b'kong_http_requests_total{service="plain"' in ask("/metrics", port=3)[2]
    yield "prometheus", until("a count", counted, 15) and b"kong_datastore_reachable 1" in ask("/metrics", port=3)[2]
    plugin = kong.admin("/routes/limited/plugins")[1]["data"] or kong.admin("/services/limited/plugins")[1]["data"]
    kong.admin(f"/plugins/{plugin[0]['id']}", "PATCH", {"enabled": False})
    yield "a plugin is switched off", writer.settles("no limit", lambda: ask("/limited")[0] == 200)


def balancing(kong, writer, others, dead):
    """Two targets and one that is down; of two more a health check that asks finds one out."""
    writer.make("/upstreams", {"name": "several", "healthchecks": {"passive": {"unhealthy": {"tcp_failures": 1}}}})
    for port in (*others, dead):
        writer.make("/upstreams/several/targets", {"target": f"127.0.0.1:{port}", "weight": 100})
    writer.route("several", url="http://several")
    kong.admin("/services/several", "PATCH", {"retries": 5})
    writer.settles("the upstream", lambda: kong.ask("/several")[0] == 200)
    statuses = [kong.ask("/several")[0] for _ in range(30)]
    yield "a target that is down is not noticed", statuses == [200] * 30

    def health(name):
        return {one["target"]: one.get("health") for one in kong.admin(f"/upstreams/{name}/health")[1].get("data", [])}
    yield "passive health checks", until("it is unhealthy", lambda: health("several").get(f"127.0.0.1:{dead}") == "UNHEALTHY", 15)
    yield "the others are healthy", all(health("several")[f"127.0.0.1:{port}"] != "UNHEALTHY" for port in others)
    writer.make("/upstreams", {"name": "probed", "healthchecks": {"active": {"http_path": "/", "healthy": {"interval": 0.2, "successes": 1}, "unhealthy": {"interval": 0.2, "tcp_failures": 1}}}})
    for port in (others[0], dead):
        writer.make("/upstreams/probed/targets", {"target": f"127.0.0.1:{port}"})
    writer.route("probed", url="http://probed")
    yield "active health checks", until("both are found out", lambda: health("probed") == {f"127.0.0.1:{others[0]}": "HEALTHY", f"127.0.0.1:{dead}": "UNHEALTHY"}, 20)
    yield "requests to the healthy one", writer.settles("the healthy one", lambda: kong.ask("/probed")[0] == 200)
    yield "a target's health by hand", kong.admin(f"/upstreams/probed/targets/127.0.0.1:{others[0]}/unhealthy", "PUT")[0] == 204


def pair(place, name, authority=None):
    """A certificate and its key, of an authority or of itself."""
    key, certificate = place / f"{name}.key", place / f"{name}.crt"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9", "-subj", f"/CN={name}",
               "-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(certificate)]
    if authority:
        command += ["-CA", str(place / f"{authority}.crt"), "-CAkey", str(place / f"{authority}.key"), "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run(command, check=True, capture_output=True)
    return {"cert": certificate.read_text(), "key": key.read_text()}


def shown(kong, name):
    """The certificate that Kong shows to a client that asks for `name`; `None`: the handshake fails."""
    context = ssl._create_unverified_context()
    try:
        with context.wrap_socket(socket.create_connection(("127.0.0.1", kong.ports[1]), 10), server_hostname=name) as connection:
            return connection.getpeercert(True)
    except ssl.SSLError:
        return None


def certificates(kong, writer, demanding):
    """Names that Kong serves, and how it shows itself to a server that demands a certificate."""
    ours = pair(kong.place, "kong.example")
    writer.make("/certificates", {**ours, "snis": ["kong.example", "*.kong.example"]})
    same = lambda name: shown(kong, name) == ssl.PEM_cert_to_DER_cert(ours["cert"])
    yield "a certificate by its name", writer.settles("the certificate", lambda: same("kong.example"))
    yield "by a name with a wildcard", writer.settles("the wildcard", lambda: same("a.kong.example"))
    yield "others have Kong's own", not same("other.example") and shown(kong, "other.example") is not None
    yield "a request with it", kong.ask("/plain", tls=True)[0] == 200
    place = demanding.directory.parent
    authority = writer.make("/ca_certificates", {"cert": (place / "ca.crt").read_text()})
    client = writer.make("/certificates", {"cert": (place / "client.crt").read_text(), "key": (place / "client.key").read_text()})
    url = f"https://upstream.example:{demanding.ports[0]}"
    writer.make("/upstreams", {"name": "upstream.example", "host_header": "upstream.example"})
    writer.make("/upstreams/upstream.example/targets", {"target": f"127.0.0.1:{demanding.ports[0]}"})
    writer.route("bare", url=url)
    yield "a server that demands a certificate", writer.settles("400", lambda: kong.ask("/bare")[0] == 400)
    writer.route("mutual", url=url, client_certificate={"id": client["id"]}, tls_verify=True, ca_certificates=[authority["id"]])
    yield "a client certificate of a service, which verifies its server", writer.settles("mTLS", lambda: kong.ask("/mutual")[::2] == (200, b"CN=client"))
    kong.admin("/services/mutual", "PATCH", {"ca_certificates": []})
    yield "without an authority it is not trusted", writer.settles("502", lambda: kong.ask("/mutual")[0] == 502)


def grpc(kong, writer, server):
    """A service of gRPC, which is asked by HTTP/2 and asked so itself (nghttp shows trailers)."""
    port = server.ports[0]
    writer.make("/services", {"name": "grpc", "url": f"grpc://127.0.0.1:{port}"})
    writer.make("/services/grpc/routes", {"name": "grpc", "protocols": ["grpc", "grpcs"], "paths": ["/hello.Greeter/"]})
    writer.make("/services", {"name": "kept", "url": f"grpc://127.0.0.1:{port}"})
    writer.make("/services/kept/routes", {"name": "kept", "protocols": ["grpcs"], "paths": ["/kept.Greeter/"], "preserve_host": True})

    body = kong.place / "body"
    body.write_text("0123456789")

    def call(path):
        command = ["nghttp", "-v", "-n", "-H", "content-type: application/grpc", "-H", "te: trailers", "-d", str(body), f"https://127.0.0.1:{kong.ports[1]}{path}"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
        # Fields of the response and its trailers.
        return dict(re.findall(r"recv \(stream_id=\d+\) (\S+): (.*)", said))
    writer.settles("gRPC", lambda: call("/hello.Greeter/SayHello").get(":status") == "200")
    seen = call("/hello.Greeter/SayHello")
    yield "gRPC: a call, with its trailer", seen[":status"] == "200" and seen.get("grpc-status") == "0" and seen["content-type"] == "application/grpc"
    yield "gRPC: path and body", (seen["x-path"], seen["x-body"]) == ("/hello.Greeter/SayHello", "0123456789")
    yield "gRPC: its authority is the service's", seen["x-authority"] == f"127.0.0.1:{port}"
    yield "gRPC: the client's authority is passed on", call("/kept.Greeter/SayHello")["x-authority"] == f"127.0.0.1:{kong.ports[1]}"
    yield "gRPC: no route", call("/nothing.Greeter/SayHello").get("grpc-status", "0") != "0"


GRPC = """server { listen %d; http2 on; location / { default_type application/grpc; add_trailer grpc-status 0;
    content_by_lua_block { ngx.req.read_body()
        ngx.header["x-path"], ngx.header["x-authority"], ngx.header["x-body"] = ngx.var.request_uri, ngx.var.http_host, ngx.req.get_body_data()
        ngx.print(ngx.req.get_body_data()) } } }"""
DEMANDING = """server { listen %d ssl; ssl_certificate %s/upstream.example.crt; ssl_certificate_key %s/upstream.example.key;
    ssl_verify_client on; ssl_client_certificate %s/ca.crt; return 200 $ssl_client_s_dn; }"""
PLAIN = "server { listen %d; return 200 ok; }"


def commands(kong):
    yield "kong migrations up-to-date", kong.command("migrations", "status").returncode == 0
    yield "kong health", kong.command("health").returncode == 0
    exported = kong.command("config", "db_export", str(kong.place / "all.yml"))
    yield "kong config db_export", exported.returncode == 0 and "key-auth" in (kong.place / "all.yml").read_text()
    yield "kong config db_import", kong.command("config", "db_import", str(kong.place / "all.yml")).returncode == 0


def again(kong):
    stopped = kong.command("stop")
    yield "kong stop", stopped.returncode == 0 and until("the end", lambda: kong.command("health").returncode != 0)
    yield "kong start again", kong.start()
    yield "what was written is there", until("the route", lambda: kong.ask("/plain")[0] == 200)


def run(options, workers, upstream):
    database = Postgres()
    kong = Kong(options, workers, settings={**database.settings(), **SOON})
    servers = []
    try:
        made = kong.command("migrations", "bootstrap")
        print(f"{'ok    ' if made.returncode == 0 else 'not ok'}  kong migrations bootstrap")
        if made.returncode != 0 or not kong.start():
            print(made.stderr[-2000:])
            return 0, 1
        place = kong.place / "servers"
        place.mkdir()
        for name, authority in (("ca", None), ("client", "ca"), ("upstream.example", "ca")):
            pair(place, name, authority)
        ports = running.free_ports(5)
        for number, text in enumerate((GRPC % ports[0], DEMANDING % (ports[1], place, place, place), PLAIN % ports[2], PLAIN % ports[3])):
            servers.append(running.Running(options.binary, place / str(number), text, [ports[number]]))
        writer = Writer(kong, upstream)
        until("Kong", lambda: kong.admin("/status")[0] == 200)

        def all_checks():
            yield "kong start", True
            yield from entities(kong, writer)
            yield from who_may(kong, writer)
            yield from plugins(kong, writer)
            yield from balancing(kong, writer, ports[2:4], ports[4])
            yield from certificates(kong, writer, servers[1])
            yield from grpc(kong, writer, servers[0])
            yield from commands(kong)
            yield "reloads under load", reload_under_load(kong, options.reloads)
            yield from again(kong)
        good, bad = count(kong, all_checks())
        return good + 1, bad
    finally:
        kong.end()
        for server in servers:
            server.stop()
        database.end()
