"""What `run-kong --mode stream` asks: Kong without a database, with addresses of `stream_listen`: routes of the protocols tcp, tls and
tls_passthrough, to servers that say who they are."""

import socket
import ssl
import threading

import running
from kong_server import Kong, count, until

PLAIN, SECURE, WAIT = 0, 1, 10


def serve(name, context=None):
    """The port of a server that puts its name before what it is sent; with a context over TLS."""
    listener = socket.create_server(("127.0.0.1", 0))

    def visit(connection):
        try:
            if context:
                connection = context.wrap_socket(connection, server_side=True)
            while text := connection.recv(4096):
                connection.sendall(name.encode() + b":" + text)
        except OSError:
            # One that asks whether the port is open says nothing.
            pass
        connection.close()

    def accept():
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=visit, args=(connection,), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


def say(port, text, name=None):
    """What a session says in response to `text`, with a name over TLS; empty where it ends."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT) as plain:
            client = ssl._create_unverified_context().wrap_socket(plain, server_hostname=name) if name else plain
            client.sendall(text)
            return client.recv(4096)
    except OSError:
        return b""


def declared(ports, servers, dead, first="one"):
    one, two, secure = servers

    def service(name, url, protocol, more, retries=1):
        return {"name": name, "url": f"tcp://127.0.0.1:{url}", "retries": retries, "connect_timeout": 2000,
                "routes": [{"name": name, "protocols": [protocol], **more}]}
    return {
        "_format_version": "3.0",
        "upstreams": [{"name": "both", "targets": [{"target": f"127.0.0.1:{port}"} for port in (one, two)]}],
        "services": [
            service("plain", {"one": one, "two": two}[first], "tcp", {"destinations": [{"port": ports[PLAIN]}], "sources": [{"ip": "127.0.0.1"}]}),
            service("tls", one, "tls", {"snis": ["tls.example"]}),
            service("dead", dead, "tls", {"snis": ["dead.example"]}),
            service("passed", secure, "tls_passthrough", {"snis": ["passed.example"]}),
            {**service("balanced", 1, "tls", {"snis": ["balanced.example"]}), "url": "tcp://both:1"},
        ],
        "plugins": [{"name": "ip-restriction", "service": "dead", "config": {"deny": ["192.0.2.1"]}, "protocols": ["tcp", "tls"]}],
    }


def checks(kong, ports, servers, dead):
    plain, secure = ports
    yield "tcp", say(plain, b"hello") == b"one:hello"
    yield "tls is ended here", say(secure, b"hello", "tls.example") == b"one:hello"
    yield "a name that no route has", say(secure, b"hello", "other.example") == b""
    yield "a server that is down", say(secure, b"hello", "dead.example") == b""
    yield "tls is passed through", say(secure, b"hello", "passed.example") == b"secure:hello"
    balanced = {say(secure, b"x", "balanced.example") for _ in range(10)}
    yield "an upstream's targets in turn", balanced == {b"one:x", b"two:x"}
    yield "HTTP beside it", kong.ask("/")[0] == 404
    status, _ = kong.admin("/config", "POST", declared(ports, servers, dead, "two"))
    yield "POST /config", status == 201 and until("the new server", lambda: all(say(plain, b"x") == b"two:x" for _ in range(8)))
    with socket.create_connection(("127.0.0.1", plain), timeout=WAIT) as session:
        session.sendall(b"before")
        before = session.recv(4096)
        reloaded = kong.command("reload").returncode == 0
        session.sendall(b"after")
        yield "a session over a reload", reloaded and (before, session.recv(4096)) == (b"two:before", b"two:after")
    yield "sessions after it", until("sessions", lambda: say(plain, b"x")[3:] == b":x") and say(secure, b"x", "passed.example") == b"secure:x"


def run(options, workers, _upstream):
    ports, dead = running.free_ports(2), running.free_ports(1)[0]
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    kong = Kong(options, workers, settings={"KONG_STREAM_LISTEN": f"127.0.0.1:{ports[PLAIN]}, 127.0.0.1:{ports[SECURE]} ssl"})
    try:
        # Any certificate: Kong's own.
        if not kong.start():
            return 0, 1
        prefix = kong.place / "prefix/ssl"
        context.load_cert_chain(prefix / "kong-default.crt", prefix / "kong-default.key")
        servers = serve("one"), serve("two"), serve("secure", context)
        status, answer = kong.admin("/config", "POST", declared(ports, servers, dead))
        if status != 201:
            print(f"not ok  POST /config: {status} {answer}")
            return 0, 1
        until("sessions", lambda: say(ports[PLAIN], b"x") == b"one:x")
        return count(kong, checks(kong, ports, servers, dead))
    finally:
        kong.end()
