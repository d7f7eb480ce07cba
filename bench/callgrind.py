"""Counting user-space instructions: a server under callgrind, and what it is asked meanwhile."""

import re
import socket
import subprocess
import time

import measure


class Server:
    """A contender under callgrind."""

    def __init__(self, folder, port, command, extra=()):
        self.folder, self.dumps = folder, 0
        self.port = port
        with open(folder / "output.log", "wb") as output:
            self.process = subprocess.Popen(
                ["valgrind", "--tool=callgrind", "--instr-atstart=no", *extra,
                 f"--callgrind-out-file={folder / 'callgrind.out'}", *command],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        end = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    self.stop()
                    raise RuntimeError(self.said()) from None
                time.sleep(0.1)

    @property
    def dump(self):
        """The last report."""
        return self.folder / f"callgrind.out.{self.dumps}"

    def tell(self, *order):
        """A monitor command, by valgrind's own channel: signals do not reach a process that waits in io_uring_enter."""
        done = subprocess.run(
            ["vgdb", f"--pid={self.process.pid}", "--wait=10", *order], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"vgdb {order}: {done.stdout}{done.stderr}")

    def instructions(self):
        """All since counting is on, or the last report; callgrind's report is at `dump` then."""
        self.tell("dump")
        self.dumps += 1
        found = re.search(r"^(?:summary|totals): (\d+)", self.dump.read_text(errors="replace"), re.MULTILINE)
        if not found:
            raise RuntimeError("callgrind wrote no sum")
        return int(found[1])

    def said(self):
        """The end of what it and valgrind have printed."""
        return (self.folder / "output.log").read_text(errors="replace")[-3000:]

    def stop(self):
        self.process.kill()
        self.process.wait()


def talk(port, request, depth, connections, requests):
    """Sends `requests` in all, `depth` at a time on each connection in turn."""
    sockets = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(connections)]
    answer = ask_alone(sockets[0], request)
    batch = request.encode() * depth
    for _ in range(requests // (depth * connections)):
        for one in sockets:
            one.sendall(batch)
        for one in sockets:
            read_exactly(one, answer * depth)
    for one in sockets:
        one.close()


def ask_alone(connection, request):
    """Length in bytes of one answer; all are alike but for the date."""
    connection.sendall(request.encode())
    data = b""
    while b"\r\n\r\n" not in data:
        data += measure.receive(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    if b"\r\ntransfer-encoding: chunked" in head.lower():
        while not data.endswith(b"\r\n0\r\n\r\n"):
            data += measure.receive(connection)
        return len(data)
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    total = len(head) + 4 + (int(length[1]) if length else 0)
    while len(data) < total:
        data += measure.receive(connection)
    return total


def read_exactly(connection, count):
    while count > 0:
        count -= len(measure.receive(connection))
    if count < 0:
        raise RuntimeError("the answers are longer than the first one")


def by_function(file):
    """Functions and what they took themselves, from callgrind's own report, the most first."""
    said = subprocess.run(
        ["callgrind_annotate", "--auto=no", "--threshold=100", str(file)], capture_output=True, text=True, check=True).stdout
    lines = re.findall(r"^\s*([\d,]+) \(\s*[\d.]+%\)\s+(.*)$", said, re.MULTILINE)
    # A function has a line for each file that something inlined in it comes from.
    sums = {}
    for own, name in lines:
        if name != "PROGRAM TOTALS":
            name = re.sub(r"^.*?:(?=[^:])| \[.*\]$", "", name)
            sums[name] = sums.get(name, 0) + int(own.replace(",", ""))
    return sorted(sums.items(), key=lambda item: -item[1])


def annotate(file, top):
    """Prints the functions that take most."""
    for name, own in by_function(file)[:top]:
        print(f"      {own:12,}  {name[:150]}")
