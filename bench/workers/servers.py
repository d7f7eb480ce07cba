"""The servers of bench/workers: configurations that say which worker responds, and that block one of them."""

import pathlib
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import measure  # noqa: E402

KINDS = ("execute", "loop", "disk")
"""How a worker is blocked: by a process it waits for, by a loop that never yields, by a file whose open(2) never
returns (a FIFO that has no writer, which is what a hung network file system looks like to the thread)."""

LUA_BLOCKS = """
local function mark(folder) local file = assert(io.open(folder .. "/blocking", "w")) file:close() end
function block_execute(folder, seconds) mark(folder) os.execute("sleep " .. seconds) end
function block_loop(folder, seconds, now)
    mark(folder)
    local till = now() + seconds
    while now() < till do end
end
function block_disk(folder) mark(folder) local file = io.open(folder .. "/fifo", "r") if file then file:close() end end
"""


class Contender:
    """A server program with one way to run it."""

    def __init__(self, name, program, binary, driver="", reuseport=False, extra=""):
        self.name, self.program, self.binary = name, program, binary
        self.driver, self.reuseport, self.extra = driver, reuseport, extra
        self.lua = program != "nginx"
        """Whether its scripts can block a worker; nginx has to be asked."""

    def start(self, workers, folder, seconds=4, cores=None):
        return Running(self, workers, folder, seconds, cores)

    def command(self, workers, folder, port, seconds):
        (folder / "block.lua").write_text(LUA_BLOCKS)
        if self.program == "haproxy":
            (folder / "service.lua").write_text(haproxy_lua(folder, seconds))
            (folder / "haproxy.cfg").write_text(haproxy_conf(workers, folder, port))
            return [self.binary, "-db", "-f", str(folder / "haproxy.cfg")]
        conf = weir_conf if self.program == "weir" else nginx_conf
        (folder / "nginx.conf").write_text(conf(self, workers, folder, port, seconds))
        return [self.binary, "-p", f"{folder}/", "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]

    def test_lua(self, folder):
        """Finds out whether an nginx has its Lua module."""
        if self.program != "nginx":
            return
        self.lua = True
        folder.mkdir()
        command = self.command(1, folder, measure.free_port(), 1)
        done = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
        self.lua = done.returncode == 0


class Running:
    """A server that accepts on `port`."""

    def __init__(self, contender, workers, folder, seconds, cores):
        self.name, self.port, self.folder = contender.name, measure.free_port(), folder
        folder.mkdir()
        folder.chmod(0o755)
        (folder / "static").write_text("hello\n")
        command = contender.command(workers, folder, self.port, seconds)
        if cores:
            command = ["taskset", "-c", ",".join(map(str, cores)), *command]
        with open(folder / "output.log", "wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        end = time.monotonic() + measure.START_LIMIT
        while True:
            try:
                measure.ask(self.port, "/id")
                return
            except (OSError, RuntimeError):
                if self.process.poll() is not None or time.monotonic() > end:
                    self.stop()
                    said = (folder / "output.log").read_text(errors="replace")[-2000:]
                    raise SystemExit(f"{self.name} does not start: {said}") from None
                time.sleep(0.02)

    def cpu(self):
        return sum(measure.process_cpu(pid) for pid in measure.tree(self.process.pid))

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            # A worker that is still blocked does not hear it.
            for pid in reversed(measure.tree(self.process.pid)):
                subprocess.run(["kill", "-9", str(pid)], check=False, stderr=subprocess.DEVNULL)
            self.process.wait()


def weir_conf(contender, workers, folder, port, seconds):
    return nginx_like(
        contender, workers, folder, port, seconds, identity="content_by_lua_block { ngx.print(ngx.worker.id()) }",
        main="master_process off;", use=f"use {contender.driver};")


def nginx_conf(contender, workers, folder, port, seconds):
    temporary = " ".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    return nginx_like(
        contender, workers, folder, port, seconds, identity='return 200 "$pid";', main="user root;", use="",
        http=temporary)


def nginx_like(contender, workers, folder, port, seconds, identity, main, use, http=""):
    module = "".join(line for line in contender.extra.splitlines() if line.startswith("load_module"))
    path = "".join(line for line in contender.extra.splitlines() if not line.startswith("load_module"))
    scripts = "" if not contender.lua else f"""
        {path}
        lua_shared_dict words 10m;
        init_by_lua_file {folder}/block.lua;"""
    places = "" if not contender.lua else f"""
        location = /block/execute {{ content_by_lua_block {{ block_execute("{folder}", {seconds}) ngx.print("done") }} }}
        location = /block/loop {{ content_by_lua_block {{
            block_loop("{folder}", {seconds}, function() ngx.update_time() return ngx.now() end) ngx.print("done") }} }}
        location = /block/disk {{ content_by_lua_block {{ block_disk("{folder}") ngx.print("done") }} }}
        location = /words {{ content_by_lua_block {{
            local words, random = ngx.shared.words, math.random
            for _ = 1, 20 do local key = "key" .. random(1000) words:set(key, key) words:get(key) end
            ngx.print("done") }} }}"""
    return f"""\
{module}
{main}
daemon off;
worker_processes {workers};
pid {folder}/nginx.pid;
error_log {folder}/error.log crit;
events {{ {use} worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
    {http}{scripts}
    server {{
        listen 127.0.0.1:{port} backlog=4096{" reuseport" if contender.reuseport else ""};
        root {folder};
        location = /id {{ {identity} }}
        location = /return {{ return 200 "hello\\n"; }}{places}
    }}
}}
"""


def haproxy_lua(folder, seconds):
    services = "".join(f"""
core.register_service("block_{kind}", "http", function(applet)
    local till = {seconds}
    block_{kind}("{folder}", till, function() local now = core.now() return now.sec + now.usec / 1000000 end)
    applet:set_status(200)
    applet:add_header("content-length", "4")
    applet:start_response()
    applet:send("done")
end)""" for kind in KINDS)
    return (folder / "block.lua").read_text() + services


def haproxy_conf(workers, folder, port):
    rules = "".join(f"    http-request use-service lua.block_{kind} if {{ path /block/{kind} }}\n" for kind in KINDS)
    return f"""\
global
    maxconn 4096
    nbthread {workers}
    insecure-fork-wanted
    tune.lua.service-timeout 60s
    tune.lua.session-timeout 60s
    lua-load-per-thread {folder}/service.lua
defaults
    mode http
    timeout client 60s
    timeout connect 5s
    timeout server 60s
frontend bench
    bind 127.0.0.1:{port} backlog 4096
    http-request return status 200 content-type text/plain lf-string "%[thread]" if {{ path /id }}
{rules}    http-request return status 200 content-type text/plain string "hello\\n"
"""
