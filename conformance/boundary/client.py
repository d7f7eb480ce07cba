"""Sends the bytes of a case to a server and reads what comes back: the statuses, and what became of the connection."""

import dataclasses
import re
import socket
import time


@dataclasses.dataclass
class Outcome:
    """What one server did with one case."""

    statuses: list = dataclasses.field(default_factory=list)
    end: str = ""
    """closed, reset, or waits."""
    passed: list = dataclasses.field(default_factory=list)
    """The bytes of each request that came to the server behind."""
    broken: list = dataclasses.field(default_factory=list)
    """Bytes that came there and are no whole request."""

    def good(self):
        """How many requests were responded to as requests; the rest were refused."""
        return sum(1 for status in self.statuses if 200 <= status < 400)

    def refused(self):
        """Whether the server has refused something, or waits for more."""
        return self.end != "closed" or not self.statuses or any(status >= 400 for status in self.statuses)

    def __str__(self):
        return f"{self.statuses} {self.end}, passed {len(self.passed)}" + (f", broken {len(self.broken)}" if self.broken else "")


def ask(port, pieces, patience):
    """Sends the pieces and reads until the connection ends or nothing has come for `patience` seconds."""
    data, end = b"", "waits"
    with socket.create_connection(("127.0.0.1", port), 10) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.settimeout(patience)
        try:
            for number, piece in enumerate(pieces):
                if number:
                    # So that the server reads the pieces one by one; that it does is not needed.
                    time.sleep(0.002)
                wire.sendall(piece)
        except OSError:
            end = "reset"
        try:
            while piece := wire.recv(1 << 16):
                data += piece
            end = "closed"
        except TimeoutError:
            pass
        except OSError:
            end = "reset"
    return Outcome(statuses(data), end)


def statuses(data):
    """The final statuses in what came back."""
    found = []
    while data:
        head, end, rest = data.partition(b"\r\n\r\n")
        line = re.match(rb"HTTP/1\.[01] (\d{3})", head)
        if not line or not end:
            # A response of HTTP/0.9 is its body alone.
            return found + [200 if b"alone" in data or data == b"ok" else 400]
        status = int(line[1])
        length = re.search(rb"(?im)^content-length: *(\d+)", head)
        if re.search(rb"(?im)^transfer-encoding: *chunked", head):
            rest = after_chunks(rest)
        elif status >= 200 and status not in (204, 304):
            rest = rest[int(length[1]):] if length else b""
        if status >= 200:
            found.append(status)
        data = rest
    return found


def after_chunks(data):
    """What follows a chunked body."""
    while data:
        line, _, data = data.partition(b"\r\n")
        size = int(line.partition(b";")[0] or b"0", 16)
        data = data[size + 2:]
        if not size:
            break
    return data
