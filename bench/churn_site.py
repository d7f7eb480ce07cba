"""The server that `bench/soak --hours` wears out, its upstream servers, and what can be done to them."""

import collections
import hashlib
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

import measure
import peers

SIZES = [6, 10_000, 300_000]
BACKEND = """
daemon off; master_process off; worker_processes 1; pid {folder}/{name}.pid; error_log {folder}/{name}.log;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    server {{
        listen 127.0.0.1:{port};
        client_max_body_size 16m;
        client_body_buffer_size 2m;
        keepalive_requests 50;
        location /up/ {{ alias {folder}/www/; }}
        location /upload {{ content_by_lua_block {{
            ngx.req.read_body()
            local data = ngx.req.get_body_data() or ''
            ngx.print(#data, ' ', ngx.md5(data))
        }} }}
    }}
}}
"""
SERVER = """
user root; daemon off; master_process on; worker_processes 2; pid {folder}/weir.pid; error_log {folder}/error.log info;
events {{ use {driver}; worker_connections 2048; }}
http {{
    log_format wear '$connection "$request" $status $body_bytes_sent $upstream_addr $upstream_status $cause';
    access_log {folder}/access.log wear;
    admin unix:{folder}/admin.sock;
    lua_shared_dict churn 2m;
    proxy_cache_path {folder}/cache levels=1:2 keys_zone=kept:1m max_size=4m inactive=20s;
    limit_req_zone $binary_remote_addr zone=rate:1m rate=100000r/s;
    upstream behind {{
        server 127.0.0.1:{backends[0]} max_fails=1 fail_timeout=1s;
        server 127.0.0.1:{backends[1]} max_fails=1 fail_timeout=1s;
        keepalive 8;
    }}
    init_worker_by_lua_block {{
        ngx.timer.every(0.1, function()
            local dict = ngx.shared.churn
            for n = 1, 20 do
                dict:set('timer' .. math.random(5000), string.rep('x', math.random(400)), math.random() * 5)
            end
        end)
    }}
    server {{
        listen 127.0.0.1:{port};
        listen 127.0.0.1:{tls_port} ssl;
        http2 on;
        ssl_certificate {folder}/site.crt;
        ssl_certificate_key {folder}/site.key;
        keepalive_requests {keepalive};
        client_max_body_size 16m;
        client_body_buffer_size 16k;
        gzip {gzip}; gzip_types *;
        limit_req zone=rate burst=100000 nodelay;
        location /file/ {{ alias {folder}/www/; access_log off; }}
        location /up/ {{ proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection ''; }}
        location /upload {{
            proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection '';
            proxy_next_upstream error timeout non_idempotent;
        }}
        location /cached/ {{
            rewrite ^/cached/[0-9]+/(.*) /up/$1 break;
            proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection '';
            proxy_cache kept; proxy_cache_key $request_uri; proxy_cache_valid 200 10s; proxy_cache_lock on;
        }}
        location /lua {{ content_by_lua_file {folder}/churn.lua; }}
        location = /figures {{ content_by_lua_block {{
            ngx.print(collectgarbage('count'), ' ', ngx.timer.pending_count(), ' ', ngx.timer.running_count())
        }} }}
        # configuration {generation}
    }}
}}
"""
SCRIPT = """
local n = tonumber(ngx.var.arg_n)
local dict = ngx.shared.churn
local kind = n % 6
if kind == 0 then
    local chunk = loadstring('local t = {...}; return t[1] + ' .. n)
    ngx.print(chunk(1) - 1)
elseif kind == 1 then
    dict:set('k' .. n, string.rep('v', n % 1000), 3)
    dict:incr('count', 1, 0, 60)
    ngx.timer.at(0.01 * (n % 10), function(premature, value) dict:set('t' .. value % 50, value) end, n)
    ngx.print(n)
elseif kind == 2 then
    local slow = ngx.thread.spawn(function() ngx.sleep(60) end)
    local fast = ngx.thread.spawn(function() ngx.sleep(0.001) return n end)
    local ok, value = ngx.thread.wait(fast, slow)
    ngx.thread.kill(slow)
    ngx.print(value)
elseif kind == 3 then
    local sock = ngx.socket.tcp()
    sock:settimeout(5000)
    local ok, err
    for _, port in ipairs({ PORTS }) do
        ok, err = sock:connect('127.0.0.1', port)
        if ok then
            sock:send('GET /up/6 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')
            local line = sock:receive('*l')
            if line then
                repeat line = sock:receive('*l') until not line or line == ''
                if line and sock:receive(6) then sock:setkeepalive(1000, 4) break end
            end
            sock:close()
            sock = ngx.socket.tcp()
        end
    end
    ngx.print(n)
elseif kind == 4 then
    local text = ngx.re.gsub('a' .. n .. 'b', '([0-9])', '<$1>')
    text = ngx.re.gsub(text, '[<>]|x' .. n % 997, '')
    ngx.print(text:sub(2, -2))
else
    local response = ngx.location.capture('/file/6')
    local wrapped = coroutine.wrap(function() for at = 1, 3 do coroutine.yield(at) end end)
    wrapped()
    pcall(error, { response.body })
    ngx.print(n)
end
"""


class Site:
    """The server with its upstream servers."""

    def __init__(self, binary, driver, folder, seed):
        self.binary, self.driver, self.folder = binary, driver, pathlib.Path(folder)
        self.port, self.tls_port = measure.free_port(), measure.free_port()
        self.backend_ports = [measure.free_port(), measure.free_port()]
        self.generation, self.serial, self.logs = 0, "", 0
        self.failures = []
        self.returning = threading.Lock()
        (self.folder / "www").mkdir()
        for size in SIZES:
            (self.folder / f"www/{size}").write_bytes(peers.content(size))
        ports = ", ".join(map(str, self.backend_ports))
        (self.folder / "churn.lua").write_text(SCRIPT.replace("PORTS", ports))
        self.backends = [self._start_backend(which) for which in range(2)]
        self.rotate_certificate()
        self._write()
        self.process = self._start()
        self.wait_until_served()

    # --- processes ---

    def _start(self):
        conf = str(self.folder / "weir.conf")
        with open(self.folder / "output.log", "ab") as output:
            return subprocess.Popen(
                [self.binary, "-p", f"{self.folder}/", "-c", conf, "-e", str(self.folder / "error.log")],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def _start_backend(self, which):
        name = f"backend{which}"
        conf = self.folder / f"{name}.conf"
        conf.write_text(BACKEND.format(folder=self.folder, name=name, port=self.backend_ports[which]))
        with open(self.folder / "output.log", "ab") as output:
            process = subprocess.Popen([self.binary, "-p", f"{self.folder}/", "-c", str(conf)],
                                       stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        awaited(lambda: accepts(self.backend_ports[which]), "an upstream server")
        return process

    def master_pid(self):
        return int((self.folder / "weir.pid").read_text())

    def server_pid(self):
        """The newest child of the master that is in charge."""
        children = pathlib.Path(f"/proc/{self.master_pid()}/task/{self.master_pid()}/children").read_text().split()
        return int(children[-1])

    def wait_until_served(self):
        awaited(lambda: accepts(self.port) and self._child_is_alive(), "the server")

    def _child_is_alive(self):
        try:
            return self.server_pid() > 0
        except (OSError, IndexError, ValueError):
            return False

    def stop(self):
        for pid in (self.process.pid, *(backend.pid for backend in self.backends)):
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        try:
            os.kill(self.master_pid(), signal.SIGTERM)
        except (OSError, ValueError):
            pass
        for process in (self.process, *self.backends):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()

    # --- what happens ---

    def _write(self):
        text = SERVER.format(folder=self.folder, driver=self.driver, port=self.port, tls_port=self.tls_port,
                             backends=self.backend_ports, generation=self.generation,
                             keepalive=[1000, 100][self.generation % 2], gzip=["on", "off"][self.generation % 2])
        (self.folder / "weir.conf").write_text(text)

    def change(self):
        self.generation += 1
        self._write()

    def reload(self):
        told = subprocess.run([self.binary, "-p", f"{self.folder}/", "-c", str(self.folder / "weir.conf"), "-s", "reload"],
                              capture_output=True, text=True, timeout=120)
        if told.returncode:
            self.failures.append(f"reload: {told.stderr[-300:]}")

    def rotate_certificate(self):
        peers.make_certificate(self.folder / "next")
        for kind in ("key", "crt"):
            (self.folder / f"next.{kind}").rename(self.folder / f"site.{kind}")
        self.serial = ssl.PEM_cert_to_DER_cert((self.folder / "site.crt").read_text())

    def serves_certificate(self, wanted):
        return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", self.tls_port))) == wanted

    def kill_backend(self, which, seconds):
        """The other one is left alone until this one is back."""
        if self.returning.locked():
            return
        self.returning.acquire()
        self.backends[which].kill()
        self.backends[which].wait()

        def back():
            time.sleep(seconds)
            self.backends[which] = self._start_backend(which)
            time.sleep(1.5)  # its fail_timeout: the group knows again that it is there
            self.returning.release()

        threading.Thread(target=back, daemon=True).start()

    def rename_logs(self):
        self.logs += 1
        for name in ("access.log", "error.log"):
            (self.folder / name).rename(self.folder / f"{name}.{self.logs}")
            (self.folder / f"{name}.{self.logs - 5}").unlink(missing_ok=True)
        os.kill(self.master_pid(), signal.SIGUSR1)
        awaited(lambda: (self.folder / "access.log").exists() and (self.folder / "error.log").exists(), "logs after USR1")
        self.failures += self.bad_lines(self.folder / f"error.log.{self.logs}")

    def upgrade(self):
        """The same binary again, as docs/reference/process.md has it."""
        old = self.master_pid()
        os.kill(old, signal.SIGUSR2)
        awaited(lambda: (self.folder / "weir.pid.oldbin").exists() and self._new_master(old), "the new master")
        os.kill(old, signal.SIGWINCH)
        time.sleep(1)
        os.kill(old, signal.SIGQUIT)
        awaited(lambda: not (self.folder / "weir.pid.oldbin").exists(), "the old master's end")

    def _new_master(self, old):
        try:
            return self.master_pid() != old and self._child_is_alive()
        except (OSError, ValueError):
            return False

    # --- what is asked and looked at ---

    def draw_request(self, draw):
        """(method, path, body, the body that is wanted)."""
        size = draw.choice(SIZES)
        match draw.choice(["file", "lua", "lua", "up", "cached", "upload"]):
            case "file":
                return "GET", f"/file/{size}", b"", peers.content(size)
            case "lua":
                number = draw.randrange(1_000_000)
                return "GET", f"/lua?n={number}", b"", str(number).encode()
            case "up":
                return "GET", f"/up/{size}", b"", peers.content(size)
            case "cached":
                return "GET", f"/cached/{draw.randrange(300)}/{size}", b"", peers.content(size)
        body = peers.content(draw.choice([0, 10, 20_000, 1_000_000]))
        return "POST", "/upload", body, f"{len(body)} {hashlib.md5(body).hexdigest()}".encode()

    def lua_figures(self):
        """KB of one worker's VM, and its timers."""
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                f"http://127.0.0.1:{self.port}/figures", timeout=10) as response:
            used, pending, running = response.read().split()
        return {"Lua KB": float(used), "timers": int(pending) + int(running)}

    def memory_kinds(self):
        """KB by what the server says to hold them for, all workers together."""
        with socket.socket(socket.AF_UNIX) as admin:
            admin.settimeout(10)
            admin.connect(str(self.folder / "admin.sock"))
            admin.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            text = b"".join(iter(lambda: admin.recv(65536), b"")).decode()
        kinds = collections.Counter()
        for line in text.splitlines():
            if found := re.match(r'(weir_memory_bytes|weir_lua_memory_bytes|weir_dict_used_bytes)\{(.*)\} (\d+)$', line):
                kind = re.search(r'kind="([^"]*)"', found[2])
                kinds[kind[1] if kind else found[1]] += int(found[3]) / 1024
        return kinds

    def bad_lines(self, log):
        words = ("[emerg]", "[alert]", "[crit]", "panicked")
        lines = log.read_text(errors="replace").splitlines()
        # A process that was killed on purpose.
        return [line for line in lines if any(word in line for word in words) and "exited on signal 9" not in line]

    def complaints(self):
        return self.failures + self.bad_lines(self.folder / "error.log")


def accepts(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def awaited(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"{what} did not come within {seconds} s")
        time.sleep(0.02)
