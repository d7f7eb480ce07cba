"""Kong, started by its own command with Weir in place of nginx and resty, a service behind it, and what its checks have in common."""

import argparse
import base64
import concurrent.futures
import hashlib
import hmac
import http.client
import http.server
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import tempfile
import threading
import time

import running


class Upstream(http.server.BaseHTTPRequestHandler):
    """The service: says what it was asked."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode("latin1")
        fields = {name.lower(): value for name, value in self.headers.items()}
        text = json.dumps({"method": self.command, "path": self.path, "fields": fields, "body": body}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("X-Upstream", "1")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = answer

    def log_message(self, *_):
        pass


def serve_upstream():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


class Kong:
    """One Kong, started by its own command; `declared`: its configuration in a file, without which `settings` name a database."""

    def __init__(self, options, workers, declared=None, settings=None):
        self.ports, self.options = running.free_ports(4), options
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="weir-kong-"))
        programs = self.place / "bin"
        programs.mkdir()
        # bench/kong/run has another nginx.
        for name, program in (("nginx", getattr(options, "nginx", options.binary)), ("resty", options.binary)):
            (programs / name).symlink_to(pathlib.Path(program).resolve())
        if declared is not None:
            (self.place / "kong.json").write_text(json.dumps(declared))
        own = f"{options.kong}/?.lua;{options.kong}/?/init.lua;{options.lua_path};;"
        proxy, tls, admin, status = self.ports
        self.environment = {
            **os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "LUA_PATH": own, "LUA_CPATH": options.lua_cpath + ";;",
            "LD_LIBRARY_PATH": options.libraries or "", "WEIR_NGINX_VERSION": "openresty/1.27.1.2",
            "KONG_PREFIX": str(self.place / "prefix"), "KONG_DATABASE": "off",
            "KONG_PROXY_LISTEN": f"127.0.0.1:{proxy}, 127.0.0.1:{tls} ssl http2", "KONG_ADMIN_LISTEN": f"127.0.0.1:{admin}",
            "KONG_STATUS_LISTEN": f"127.0.0.1:{status}", "KONG_ADMIN_GUI_LISTEN": "off", "KONG_ANONYMOUS_REPORTS": "off",
            "KONG_NGINX_WORKER_PROCESSES": str(workers), "KONG_PLUGINS": options.plugins, "KONG_LUA_PACKAGE_PATH": own,
            "KONG_LUA_PACKAGE_CPATH": options.lua_cpath, "KONG_LOG_LEVEL": "notice",
        }
        if declared is not None:
            self.environment["KONG_DECLARATIVE_CONFIG"] = str(self.place / "kong.json")
        if os.geteuid() == 0:
            # Kong's init_by_lua reads a file of the user who starts it.
            self.environment["KONG_NGINX_USER"] = "root"
        self.environment.update(settings or {})

    def command(self, *words):
        return subprocess.run([str(self.options.kong / "bin/kong"), *words], cwd=self.options.kong, env=self.environment, capture_output=True, text=True, timeout=120)

    def ask(self, path, method="GET", fields=None, body=None, port=0, tls=False):
        number = self.ports[1 if tls else port]
        if tls:
            context = ssl._create_unverified_context()
            connection = http.client.HTTPSConnection("127.0.0.1", number, timeout=20, context=context)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", number, timeout=20)
        try:
            connection.request(method, path, body=body, headers=fields or {})
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        finally:
            connection.close()

    def admin(self, path, method="GET", value=None):
        body = json.dumps(value) if value is not None else None
        status, _, text = self.ask(path, method, {"Content-Type": "application/json"} if body else {}, body, port=2)
        return status, json.loads(text) if text.startswith((b"{", b"[")) else text.decode()

    def start(self):
        """Whether it has started; else says why not."""
        started = self.command("start")
        if started.returncode != 0:
            print(f"not ok  kong start: {started.stderr.strip()[:2000]}")
        return started.returncode == 0

    def grave_lines(self):
        """Lines of grave levels in its error log that no check has meant to cause."""
        log = (self.place / "prefix/logs/error.log").read_text(errors="replace").splitlines()
        return [line for line in log if any(f"[{level}]" in line for level in ("error", "crit", "alert", "emerg"))
                and not any(meant in line for meant in MEANT)]

    def end(self):
        self.command("stop")
        if not self.options.keep:
            shutil.rmtree(self.place, ignore_errors=True)


def on_nginx(options, program, lualib):
    """The options of a Kong whose nginx is `program`, with lua-resty-core and cjson in `lualib`; its commands run on Weir."""
    script = pathlib.Path(tempfile.mkdtemp(prefix="weir-kong-nginx-")) / "nginx"
    # Kong wants to see a version that it knows.
    script.write_text(f'#!/bin/sh\n[ "$1" = -v ] && {{ echo "nginx version: openresty/1.27.1.2" >&2; exit; }}\nexec {program} "$@"\n')
    script.chmod(0o755)
    return argparse.Namespace(**{**vars(options), "nginx": script, "lua_path": f"{lualib}/?.lua;{options.lua_path}", "lua_cpath": f"{lualib}/?.so;{options.lua_cpath}"})


# Of checks that ask for a server that is down, and for a name that is none; of targets that come before Kong's timer has made their
# upstream's balancer, which then reads them; of workers that poll the database while `init_by_lua` of a reload has emptied Kong's dictionary.
MEANT = ("connect() failed", "sent invalid host", "invalid host", "no live upstreams", "balancer not found", "certificate verify error",
         "no 'at' in shm")


def count(kong, checks):
    """Prints each check's name; how many were good and bad."""
    good = bad = 0
    try:
        for name, ok in checks:
            print(f"{'ok    ' if ok else 'not ok'}  {name}", flush=True)
            good, bad = good + bool(ok), bad + (not ok)
    except (KeyError, ValueError, OSError, IndexError, TypeError) as error:
        print(f"not ok  a check ended: {error!r}")
        bad += 1
    wrong = kong.grave_lines()
    print(f"        lines of grave levels in the error log: {len(wrong)}")
    for line in wrong[:10]:
        print("        " + line[:300])
    return good, bad


def until(what, condition, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    print(f"not ok  {what} did not come within {seconds} s")
    return False


def token(secret):
    part = lambda value: base64.urlsafe_b64encode(value).rstrip(b"=")
    text = part(b'{"alg":"HS256","typ":"JWT"}') + b"." + part(json.dumps({"iss": "issuer"}).encode())
    return (text + b"." + part(hmac.new(secret.encode(), text, hashlib.sha256).digest())).decode()


def under_load(ask, reloads, count):
    """Calls `reloads`, which makes `count` of them, while four clients ask for statuses; whether it is true and all were 200."""
    stop, failed, done = threading.Event(), [], [0]

    def load():
        while not stop.is_set():
            try:
                status = ask()
            except OSError as error:
                status = error
            done[0] += 1
            if status != 200:
                failed.append(status)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        loads = [pool.submit(load) for _ in range(4)]
        good = reloads()
        stop.set()
        [one.result() for one in loads]
    print(f"        {done[0]} requests during {count} reloads, {len(failed)} failed {failed[:3]}")
    return good and not failed and done[0] > 0


def reload_under_load(kong, count):
    """Requests while Kong reloads; whether none failed."""
    def reloads():
        codes = [kong.command("reload").returncode for _ in range(count)]
        return until("requests after the reloads", lambda: kong.ask("/plain")[0] == 200) and codes == [0] * count

    return under_load(lambda: kong.ask("/plain/load")[0], reloads, count)
