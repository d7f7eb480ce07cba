"""The servers that are compared: their programs, configurations and starts. Each has its own recording server behind it.

`/alone/` is responded to by the server itself, `/up/` is passed on, `/stream/` too, without waiting for the body where a
server can do both.
"""

import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import time

from running import free_ports

PLACES = ("alone", "up", "stream")


class Front:
    """One server of the comparison, started."""

    def __init__(self, name, command, port, port2, directory):
        self.name, self.port, self.port2, self.directory = name, port, port2, directory
        self.output = open(directory / "output", "wb")  # pylint: disable=consider-using-with
        self.process = subprocess.Popen(command, stdout=self.output, stderr=self.output, stdin=subprocess.DEVNULL, cwd=directory)
        until = time.monotonic() + 30
        while time.monotonic() < until and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        self.stop()
        raise SystemExit(f"{name} does not start: " + (directory / "output").read_text(errors="replace")[-2000:])

    def is_alive(self):
        return self.process.poll() is None

    def stop(self):
        """Ends the server."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.output.close()


def found(name, given):
    """The program of a server: the one given, that of its variable, or the one in PATH; None where there is none."""
    program = given or os.environ.get(f"WEIR_TEST_{name.upper()}") or shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    return program if program and os.access(program, os.X_OK) else None


def start(name, program, behind, directory, driver="", more=""):
    """A server, with the port of what is behind it; `more` are directives for nginx and Weir."""
    directory = pathlib.Path(directory) / name
    directory.mkdir()
    directory.chmod(0o777)
    port, port2 = free_ports(2)
    made = {"weir": nginx_command, "nginx": nginx_command, "h2o": h2o_command, "haproxy": haproxy_command}[name]
    return Front(name, made(program, port, port2, behind, directory, *(("", "") if name in ("h2o", "haproxy") else (driver if name == "weir" else "", more))), port, port2, directory)


def nginx_command(program, port, port2, behind, directory, driver, more):
    """nginx and Weir read the same text."""
    conf = directory / "server.conf"
    temporary = " ".join(f"{kind}_temp_path {directory}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    user = f"user {pwd.getpwuid(os.getuid()).pw_name};" if os.getuid() == 0 else ""
    conf.write_text(f"""daemon off; master_process off; {user} pid {directory}/pid; error_log {directory}/error.log info;
events {{ worker_connections 4096; {f"use {driver};" if driver else ""} }}
http {{
    access_log off; {temporary} proxy_read_timeout 20s; client_body_timeout 20s; lingering_close off; {more}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        listen 127.0.0.1:{port2} backlog=4096 http2;
        location /alone/ {{ return 200 "alone\\n"; }}
        location /up/ {{ proxy_pass http://127.0.0.1:{behind}; proxy_http_version 1.1; proxy_set_header Connection ""; }}
        location /stream/ {{ proxy_pass http://127.0.0.1:{behind}; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_request_buffering off; }}
    }}
}}
""")
    return [program, "-p", f"{directory}/", "-c", str(conf), "-e", str(directory / "error.log")]


def h2o_command(program, port, port2, behind, directory, *_):
    """H2O's own text; it has no way of waiting for bodies."""
    conf = directory / "h2o.conf"
    conf.write_text(f"""num-threads: 1
{f"user: {pwd.getpwuid(os.getuid()).pw_name}" if os.getuid() == 0 else ""}
listen: {{host: 127.0.0.1, port: {port}}}
listen: {{host: 127.0.0.1, port: {port2}}}
hosts:
  default:
    paths:
      /alone/: {{redirect: {{status: 301, url: "/there/"}}}}
      /up/: {{proxy.reverse.url: "http://127.0.0.1:{behind}/up/", proxy.preserve-host: ON}}
      /stream/: {{proxy.reverse.url: "http://127.0.0.1:{behind}/stream/", proxy.preserve-host: ON}}
""")
    return [program, "-c", str(conf)]


def haproxy_command(program, port, port2, behind, directory, *_):
    """HAProxy with its defaults."""
    conf = directory / "haproxy.cfg"
    conf.write_text(f"""global
    nbthread 1
defaults
    mode http
    timeout client 20s
    timeout server 20s
    timeout connect 5s
frontend clear
    bind 127.0.0.1:{port}
    http-request return status 200 content-type text/plain string alone if {{ path_beg /alone/ }}
    default_backend behind
frontend two
    bind 127.0.0.1:{port2} proto h2
    default_backend behind
backend behind
    server one 127.0.0.1:{behind}
""")
    return [program, "-db", "-f", str(conf)]
