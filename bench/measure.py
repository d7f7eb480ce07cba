"""Starting servers, asking them, and reading what they cost."""

import os
import pathlib
import re
import resource
import socket
import subprocess
import time

import peers

START_LIMIT = 20
"""Seconds a server may take to answer its first request."""


class Server:
    """A running contender, on cores of its own."""

    def __init__(self, peer, binary, folder, root, cores, log, path, connections=4096, key="", more=""):
        self.peer = peer
        self.port, self.tls_port = free_port(), free_port()
        folder.mkdir()
        tls = peers.Tls(peer, self.tls_port, key, more)
        command = peers.command(peer, binary, folder, root, self.port, log, path, connections, tls)
        with open(folder / "output.log", "wb") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )
        self.folder = folder
        try:
            self._wait_until_it_accepts()
        except BaseException:
            self.stop()
            raise

    def _wait_until_it_accepts(self):
        end = time.monotonic() + START_LIMIT
        while time.monotonic() < end and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.01)
        said = (self.folder / "output.log").read_text(errors="replace")[-2000:]
        raise SystemExit(f"{self.peer.name} does not start: {said}")

    def cpu_seconds(self):
        """User and system time of all its threads and children so far."""
        return sum(process_cpu(pid) for pid in tree(self.process.pid))

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def tree(pid):
    """The process and its children, by /proc."""
    found = [pid]
    for parent in found:
        for task in pathlib.Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                continue
    return found


def process_cpu(pid):
    """utime + stime of /proc/PID/stat in seconds, or finer where the kernel has it: the time on a CPU of its threads.

    stat counts in ticks of 10 ms but keeps the time of threads that are gone; schedstat counts nanoseconds of those
    that live, io_uring's own workers included. None of these servers ends threads while it works.
    """
    try:
        threads = list(pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"))
        if threads:
            return sum(int(path.read_text().split()[0]) for path in threads) / 1e9
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid):
    """Bytes of the process and its children that are in RAM and not shared with files."""
    total = 0
    for one in tree(pid):
        for line in pathlib.Path(f"/proc/{one}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                total += int(line.split()[1]) * 1024
    return total


def ended_children_cpu():
    """Seconds of user and system time of the load clients so far: children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ask(port, path):
    """One request as the load client sends it: (status, fields, body)."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += receive(connection)
        head, _, body = data.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(body) < int(fields.get("content-length", 0)):
            body += receive(connection)
    return int(status.split()[1]), fields, body


def receive(connection):
    piece = connection.recv(1 << 20)
    if not piece:
        raise RuntimeError("closed inside a response")
    return piece


class Wrk:
    """The load client wrk, one thread."""

    def __init__(self, binary):
        self.binary = binary

    def run(self, port, path, connections, depth, seconds, cores, more=()):
        """One run: (requests, seconds it took, errors, median latency in microseconds). `more`: further options."""
        said = client(
            [self.binary, "-t1", f"-c{connections}", f"-d{max(1, int(seconds))}s", "-s", str(peers.HERE / "wrk.lua"),
             *more, f"http://127.0.0.1:{port}{path}", "--", str(depth)], cores)
        found = re.search(r"FIGURES (\d+) (\d+) (\d+) (\d+) (\d+)", said)
        if not found:
            raise RuntimeError(f"wrk says: {said[-500:]}")
        requests, micros, errors, median, _ = map(int, found.groups())
        return requests, micros / 1e6, errors, median


class H2load:
    """The load client h2load in HTTP/1.1, one thread."""

    def __init__(self, binary):
        self.binary = binary

    def run(self, port, path, connections, depth, seconds, cores, more=()):
        said = client(
            [self.binary, "--h1", "-t1", f"-c{connections}", f"-m{depth}", f"-D{max(1, int(seconds))}", *more,
             f"http://127.0.0.1:{port}{path}"], cores)
        found = re.search(r"requests: \d+ total, \d+ started, \d+ done, (\d+) succeeded, (\d+) failed", said)
        took = re.search(r"finished in ([\d.]+)s", said)
        if not found or not took:
            raise RuntimeError(f"h2load says: {said[-500:]}")
        return int(found[1]), float(took[1]), int(found[2]), 0


def client(command, cores):
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    return done.stdout
