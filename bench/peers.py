"""The servers of the bench: where their programs are, and their configurations.

Every server answers the same paths: `/6b.txt`, `/10k.txt`, `/1m.bin` from one folder, and `/return` from its
configuration. One worker each. nginx and Weir read the same text, apart from `use` and what a contender is for.
"""

import dataclasses
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
FILES = {"/6b.txt": 6, "/10k.txt": 10 * 1024, "/1m.bin": 1024 * 1024}
RETURN = "/return"
FILTERS = "/filters/"
"""Below it the same files, through twelve filters (Weir alone has all of them)."""
CACHED = "/cached/"
"""Below it the same files, out of a response cache (Weir and nginx have one)."""
PROXIED = "/proxied/"
"""Below it the answers of a server behind (`floor`): nginx_conf's `behind` says at which port (Weir and nginx)."""
GATEWAY = "/gateway/"
"""Below it the same as a gateway asks for them: with 40 `set` lines, an address that is computed, and ten fields that have variables."""
RETURN_BODY = b"hello\n"


@dataclasses.dataclass(frozen=True)
class Peer:
    """A contender: a program with one way to configure it."""

    name: str
    program: str
    """weir, nginx, h2o, haproxy or floor."""
    variant: str = ""
    """What its configuration is for: a driver, `best`."""
    locations: str = ""
    """Further locations of a configuration in nginx's language."""

    def serves(self, path, log):
        """False for what this server cannot be asked."""
        if path.startswith((CACHED, PROXIED, GATEWAY)) and self.program not in ("weir", "nginx"):
            return False
        if self.name == "weir-8":
            return path == "/6b.txt" and not log
        if self.program == "haproxy":
            return path == RETURN and not log
        if self.program == "h2o":
            return path != RETURN
        return self.program != "floor" or not log


class Tls:
    """A second address, with TLS: of a peer with `tls=PATH` among its variants, certificate and key without their endings."""

    def __init__(self, peer, port, key="", more=""):
        words = [word.removeprefix("tls=") for word in peer.variant.split() if word.startswith("tls=")]
        self.path = words[0] if words else None
        self.port = port
        self.key = key or f"{self.path}.key"
        self.more = more

    def nginx(self):
        if not self.path:
            return "", ""
        return (f"ssl_certificate {self.path}.crt; ssl_certificate_key {self.key}; {self.more}",
                f"listen 127.0.0.1:{self.port} ssl backlog=4096;")

    def h2o(self):
        return "" if not self.path else f"""\
listen:
  host: 127.0.0.1
  port: {self.port}
  ssl:
    certificate-file: {self.path}.crt
    key-file: {self.key}
"""


PEERS = [
    Peer("weir-uring", "weir", "io_uring"),
    Peer("weir-epoll", "weir", "epoll"),
    Peer("weir-best", "weir", "io_uring best"),
    Peer("weir-8", "weir", "io_uring workers=8"),
    Peer("nginx", "nginx"),
    Peer("nginx-best", "nginx", "best"),
    Peer("h2o", "h2o"),
    Peer("haproxy", "haproxy"),
    Peer("floor-uring", "floor", "io_uring"),
    Peer("floor-epoll", "floor", "epoll"),
]


NEEDED = {
    "nginx": ("-v", r"nginx/([\d.]+)", "1.19.5", "-e on its command line"),
    "haproxy": ("-v", r"version ([\d.]+)", "2.2", "`http-request return`"),
}
"""What prints a program's version, the version in it, the first that takes the configurations here, and what in them needs it."""
NEEDED_BY = {"h2": {"nginx": ("1.25.1", "`http2 on`")}, "lua": {"haproxy": ("2.4", "`lua-load-per-thread`")}}
"""The same of words of a contender's variant."""


LEFT_OUT = set()
"""What was said about contenders: once is enough."""


def version(program, binary):
    """The program's version; None where it prints none."""
    option, pattern, *_ = NEEDED[program]
    said = subprocess.run([binary, option], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False).stdout
    found = re.search(pattern, said)
    return found and found[1].strip(".")


def lacks(peer, binary):
    """Why the program can't be this contender; None: it can."""
    if peer.program not in NEEDED:
        return None
    has = version(peer.program, binary)
    if not has:
        return f"{binary} does not print its version"
    number = lambda text: tuple(map(int, text.split(".")))
    wanted = [NEEDED[peer.program][2:], *(NEEDED_BY.get(word, {}).get(peer.program) for word in peer.variant.split())]
    for least, what in filter(None, wanted):
        if number(has) < number(least):
            return f"{binary} is {peer.program} {has}, {what} needs {least}"
    return None


def find_peer(peer):
    """The contender's program; None, with a line that says why, where there is none that can be it."""
    binary = find(peer.program)
    why = lacks(peer, binary) if binary else f"{peer.program} not found: WEIR_BENCH_{peer.program.upper()}, or in PATH"
    if not why:
        return binary
    if (peer.name, why) not in LEFT_OUT:
        LEFT_OUT.add((peer.name, why))
        print(f"left out: {peer.name} ({why})", file=sys.stderr, flush=True)
    return None


def find(program):
    """The program's path: WEIR_BENCH_NAME, else where it is built, else PATH; None when it is nowhere."""
    if given := os.environ.get(f"WEIR_BENCH_{program.upper()}"):
        if not os.access(given, os.X_OK):
            raise SystemExit(f"WEIR_BENCH_{program.upper()}={given}: no program")
        return given
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target"))
    dist = target / "dist" / "weir"
    built = {"weir": dist if dist.exists() else target / "release" / "weir", "floor": HERE / "floor" / "target" / "release" / "floor"}
    if program in built:
        return str(built[program]) if os.access(built[program], os.X_OK) else None
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin:/usr/local/bin")


def content(size):
    """So many bytes, as all files and bodies have them."""
    return (b"hello\n" * (size // 6 + 1))[:size]


def make_files(folder):
    """The folder that all servers serve."""
    root = folder / "www"
    root.mkdir()
    for path, size in FILES.items():
        (root / path[1:]).write_bytes(content(size))
    root.chmod(0o755)
    return root


def make_certificate(path, kind=("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")):
    """`path`.crt and `path`.key, for bench.example.com, signed by itself."""
    openssl = shutil.which("openssl")
    if not openssl:
        raise SystemExit("openssl is not installed")
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", *kind, "-nodes", "-days", "30", "-subj", "/CN=bench.example.com",
         "-addext", "subjectAltName=DNS:bench.example.com", "-keyout", f"{path}.key", "-out", f"{path}.crt"],
        check=True, stderr=subprocess.DEVNULL)


def command(peer, binary, folder, root, port, log, path, connections=4096, tls=None, behind=None):
    """Writes the configuration below `folder` and gives the command line. `behind`: the port of the server behind."""
    tls = tls or Tls(peer, 0)
    if peer.program == "floor":
        return [binary, peer.variant, str(port), str(FILES.get(path, len(RETURN_BODY)))]
    if peer.program == "h2o":
        conf = folder / "h2o.conf"
        conf.write_text(h2o_conf(folder, root, port, log, connections, tls))
        return [binary, "-c", str(conf)]
    if peer.program == "haproxy":
        conf = folder / "haproxy.cfg"
        conf.write_text(haproxy_conf(port, connections))
        return [binary, "-db", "-f", str(conf)]
    conf = folder / "nginx.conf"
    conf.write_text(nginx_conf(peer, folder, root, port, log, connections, tls, behind))
    return [binary, "-p", f"{folder}/", "-c", str(conf), "-e", str(folder / "error.log")]


def nginx_conf(peer, folder, root, port, log, connections, tls, behind=None):
    certificate, listen = tls.nginx()
    use = f"use {peer.variant.split()[0]};" if peer.program == "weir" else ""
    # What a server records of itself (bench/tls/run keys).
    admin = f"admin unix:{folder}/admin.sock;" if peer.program == "weir" else ""
    if peer.program == "weir" and "unsampled" in peer.variant.split():
        admin += " profile_cpu off; profile_blocked 60s;"
    best = "best" in peer.variant
    http2 = "http2 on;" if "h2" in peer.variant.split() else ""
    workers = 8 if "workers=8" in peer.variant else 1
    # For bench/soak: a handler that waits for minutes and reads no body meanwhile.
    zone = "limit_req_zone all zone=all:1m rate=1r/m;" if "soak" in peer.variant else ""
    waits = "location = /waits { limit_req zone=all burst=1000; client_max_body_size 0; }" if zone else ""
    # Twelve filters: these ten, and not_modified and range, which run everywhere. Half of them have nothing to do for a
    # small text without conditions; sub looks through the body, too.
    filters = "" if peer.program != "weir" else f"""location {FILTERS} {{
            alias {root}/;
            more_set_headers "X-More: 1";
            add_header X-Added 1;
            expires 1h;
            userid log;
            gunzip on;
            sub_filter_types text/plain;
            sub_filter none nothing;
            charset utf-8;
            ssi on;
            gzip on;
            brotli on;
            zstd on;
        }}"""
    files = "sendfile off; open_file_cache max=1000 inactive=60s;" if best else "sendfile on;"
    temporary = "" if peer.program == "weir" else " ".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    servers = "" if behind is None else f"""upstream behind {{
        server 127.0.0.1:{behind};
        keepalive 256;
        keepalive_requests 1000000000;
    }}"""
    proxied = "" if behind is None else f"""location {PROXIED} {{
            proxy_pass http://behind;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffers 16 8k;
            proxy_max_temp_file_size 0;
        }}"""
    gateway = "" if behind is None else gateway_location()
    return f"""\
daemon off;
master_process off;
worker_processes {workers};
pid {folder}/nginx.pid;
error_log {folder}/error.log;
{admin}
events {{ {use} worker_connections {connections}; }}
http {{
    types {{ text/plain txt; application/octet-stream bin; }}
    default_type text/plain;
    access_log {f"{folder}/access.log" if log else "off"};
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
    {files}
    {temporary}
    {zone}
    proxy_cache_path {folder}/cache keys_zone=bench:1m;
    {servers}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        {listen}
        {certificate}
        {http2}
        root {root};
        location = {RETURN} {{ return 200 "hello\\n"; }}
        location {CACHED} {{
            proxy_pass http://127.0.0.1:{port}/;
            proxy_cache bench;
            proxy_cache_valid 1h;
        }}
        {proxied}
        {gateway}
        {filters}
        {waits}
        {peer.locations}
    }}
}}
"""


def gateway_location():
    """As the configurations of APISIX and Kong have it."""
    sets = " ".join(f'set $given_{at} "{"" if at % 4 else "value"}";' for at in range(34))
    return f"""location {GATEWAY} {{
            {sets}
            set $target_scheme http; set $target_uri /; set $target_host $http_host;
            set $before_proto $http_x_forwarded_proto; set $before_host $http_x_forwarded_host; set $before_port $http_x_forwarded_port;
            proxy_http_version 1.1;
            proxy_max_temp_file_size 0;
            proxy_set_header Host $target_host;
            proxy_set_header Connection $given_1;
            proxy_set_header Upgrade $given_2;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host $host;
            proxy_set_header X-Forwarded-Port $server_port;
            proxy_set_header X-Forwarded-Path $request_uri;
            proxy_set_header X-Given "$given_0, $given_4";
            proxy_pass $target_scheme://behind$target_uri;
        }}"""


def h2o_conf(folder, root, port, log, connections, tls):
    account = f"user: {pwd.getpwuid(0).pw_name}\n" if os.geteuid() == 0 else ""
    access = f"access-log: {folder}/access.log\n" if log else ""
    return f"""\
{account}{access}num-threads: 1
http1-request-timeout: 600
max-connections: {connections}
error-log: {folder}/error.log
pid-file: {folder}/h2o.pid
listen:
  host: 127.0.0.1
  port: {port}
{tls.h2o()}file.mime.settypes:
  text/plain: [.txt]
  application/octet-stream: [.bin]
hosts:
  default:
    paths:
      /:
        file.dir: {root}
"""


def haproxy_conf(port, connections):
    return f"""\
global
    maxconn {connections}
    nbthread 1
defaults
    mode http
    timeout client 60s
    timeout connect 5s
    timeout server 60s
frontend bench
    bind 127.0.0.1:{port} backlog 4096
    http-request return status 200 content-type text/plain string "hello\\n"
"""
