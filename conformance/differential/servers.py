"""The two servers that are compared: their programs, directories, starts and checks of a configuration."""

import gzip
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

from . import configuration

FILES = {
    "page.txt": b"page text a a a.\n", "page.html": b"<html><body>page a b</body></html>\n", "empty.txt": b"", "middle.bin": b"0123456789abcdef" * 1250, "big.bin": b"0123456789abcdef" * 6250,
    "page.shtml": b'<!--#set var="v" value="1" --><p><!--#echo var="v" --><!--#echo var="none" default="d" --><!--#include virtual="/side" --></p>\n',
    "pre.txt": b"plain text that is also there compressed\n", "koi.html": "<p>да page</p>\n".encode("koi8-r"), "data.json": b'{"a": [1, 2, 3]}\n',
    "dir/index.html": b"<html>index of dir page</html>\n", "dir/x": b"no extension\n", "list/one.txt": b"one\n", "list/two & three.html": b"two\n",
    "n/page.txt": b"nested page text a\n", "n/page.html": b"<html>nested page</html>\n", "coll/member.txt": b"member\n", "index.html": b"<html>index page</html>\n",
}
MODIFIED = 1546300800
"""Tue, 01 Jan 2019: requests with conditions name it."""


class StartError(Exception):
    """A server did not start, or ended by itself."""


class Server:
    """One of the two: where its program is and where it listens."""

    def __init__(self, name, binary, address, directory, lualib="", driver=""):
        self.name, self.binary, self.address, self.driver = name, binary, address, driver
        self.directory = pathlib.Path(directory)
        self.lualib = lualib
        self.is_weir = name == "weir"
        self.ports = {}
        self.process = None
        self.log_at = 0
        self.directory.mkdir()
        self.directory.chmod(0o755)
        make_files(self.directory / "www")
        (self.directory / "users").write_text("u:{PLAIN}p\n")

    def filled(self, text, number):
        """A text with its words replaced for this server."""
        for kind, port in self.ports.items():
            text = text.replace(f"%{kind}%", f"{self.address}:{port}")
        return text.replace("%N%", str(number)).replace("%DIR%", str(self.directory)).replace("%IP%", self.address)

    def write(self, text):
        """Writes the configuration and empties what the last one left."""
        (self.directory / "server.conf").write_text(text, encoding="latin1")
        for path in self.directory.iterdir():
            if re.match(r"(dav|store|cache)\d+$", path.name):
                shutil.rmtree(path)
        if not is_untouched(self.directory / "www"):
            shutil.rmtree(self.directory / "www")
            make_files(self.directory / "www")
        for number in sorted(set(re.findall(r"/dav(\d+)", text))):
            make_files(self.directory / f"dav{number}")
        for log in ("access.log", "error.log"):
            (self.directory / log).write_text("")
        self.log_at = 0

    def head(self):
        """The configuration up to the first `server`."""
        lua = f'lua_package_path "{self.lualib}/?.lua;;";' if self.lualib and not self.is_weir else ""
        product = "server_product nginx/1.31.5;" if self.is_weir else ""
        driver = f"use {self.driver};" if self.is_weir and self.driver else ""
        return self.filled(configuration.HEAD, 0).replace("%LUA%", lua).replace("%PRODUCT%", product).replace("%DRIVER%", driver)

    def command(self, *more):
        return [self.binary, "-p", f"{self.directory}/", "-c", str(self.directory / "server.conf"), "-e", str(self.directory / "error.log"), *more]

    def check(self):
        """The first error that `-t` names, or None."""
        done = subprocess.run(self.command("-t"), capture_output=True, text=True, errors="replace", timeout=60, check=False)
        if done.returncode == 0:
            return None
        errors = [line for line in done.stderr.splitlines() if re.search(r"\[(emerg|alert|crit|error)\]", line)]
        return errors[0] if errors else done.stderr.strip() or f"status {done.returncode}"

    def start(self, port):
        """Starts the program and waits until it listens at the port."""
        with open(self.directory / "output", "wb") as output:
            self.process = subprocess.Popen(self.command(), stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise StartError(f"{self.name} ended with {self.process.returncode}: {self.last_words()}")
            try:
                socket.create_connection((self.address, port), 1).close()
                return
            except OSError:
                time.sleep(0.01)
        raise StartError(f"{self.name} does not listen: {self.last_words()}")

    def last_words(self):
        """The end of what it has written."""
        return ((self.directory / "output").read_text(errors="replace") + (self.directory / "error.log").read_text(errors="replace"))[-1500:]

    def is_alive(self):
        return self.process is not None and self.process.poll() is None

    def work(self):
        """Seconds of processor time that the process has used."""
        try:
            words = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text("latin1").rpartition(")")[2].split()
        except OSError:
            return 0
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def log_lines(self):
        """The lines of the access log since the last call."""
        with open(self.directory / "access.log", "rb") as log:
            log.seek(self.log_at)
            data = log.read()
        whole = data[:data.rfind(b"\n") + 1]
        self.log_at += len(whole)
        return whole.decode("latin1").split("\n")[:-1]


def is_untouched(folder):
    """Whether no request has written below a directory that `make_files` made: what changes has a time of now, in its directory at least."""
    return all(path.lstat().st_mtime == MODIFIED for path in [folder, *folder.rglob("*")] if not path.is_symlink())


def make_files(folder):
    """The files that both serve, with equal times."""
    for name, content in FILES.items():
        path = folder / "t" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    (folder / "t/pre.txt.gz").write_bytes(gzip.compress(FILES["pre.txt"], mtime=0))
    (folder / "t/link.txt").symlink_to("page.txt")
    for path in (folder, *sorted(folder.rglob("*"))):
        if not path.is_symlink():
            os.utime(path, (MODIFIED, MODIFIED))
            path.chmod(0o755)


def find_nginx(given):
    """nginx with ngx_lua: the one given, WEIR_TEST_NGINX, or the one in PATH; None where it has no Lua."""
    binary = given or os.environ.get("WEIR_TEST_NGINX") or shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if not binary or not os.access(binary, os.X_OK):
        return None
    said = subprocess.run([binary, "-V"], capture_output=True, text=True, timeout=20, check=False).stderr
    return binary if "lua" in said.partition("configure arguments")[2] else None


def find_weir(given):
    """Weir: the one given, WEIR_BIN, or what was built last in the project's target directory."""
    if found := given or os.environ.get("WEIR_BIN"):
        return found
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", pathlib.Path(__file__).resolve().parents[2] / "target"))
    built = [path for path in (target / "release/weir", target / "debug/weir") if os.access(path, os.X_OK)]
    return str(max(built, key=lambda path: path.stat().st_mtime)) if built else None


def free_ports(addresses, count):
    """Ports in a row that are free at all addresses."""
    for base in range(21000 + os.getpid() % 400 * 20, 32000, count):
        sockets = []
        try:
            for port in range(base, base + count):
                for address in addresses:
                    sockets.append(socket.socket())
                    sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    sockets[-1].bind((address, port))
            return list(range(base, base + count))
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise StartError("no ports are free")
