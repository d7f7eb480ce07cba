"""Many connections from one thread: opened together or on a plan, each asked, each response timed."""

import collections
import selectors
import socket
import time

LIMIT = 30
"""Seconds after which a response is given up."""


class Connection:
    """A connection that asks for one path at a time."""

    def __init__(self, port):
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port, self.input, self.request, self.asked = port, b"", b"", 0.0
        self.socket.connect_ex(("127.0.0.1", port))

    def ask(self, path):
        """Sends a request as soon as there is a connection; the clock starts now."""
        self.asked = time.monotonic()
        self.request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        self.input = b""

    def step(self):
        """Goes on; the body once the response is complete."""
        if self.request:
            error = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, "connect")
            try:
                self.socket.send(self.request)
                self.request = b""
            except (BlockingIOError, InterruptedError):
                return None
        try:
            piece = self.socket.recv(65536)
        except (BlockingIOError, InterruptedError):
            return None
        if not piece:
            raise OSError("closed before a response")
        self.input += piece
        return body(self.input)

    def wants(self):
        return selectors.EVENT_WRITE if self.request else selectors.EVENT_READ

    def close(self):
        self.socket.close()


def body(data):
    """The body of a complete response, None of one that is not."""
    head, end, rest = data.partition(b"\r\n\r\n")
    if not end:
        return None
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
    if b"content-length" in fields:
        return rest if len(rest) >= int(fields[b"content-length"]) else None
    if not rest.endswith(b"0\r\n\r\n"):
        return None
    said = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        size = int(size, 16)
        said, rest = said + rest[:size], rest[size + 2:]
    return said


class Crowd:
    """Connections that are waited for together."""

    def __init__(self):
        self.selector = selectors.DefaultSelector()
        self.waiting = set()

    def ask(self, connection, path):
        connection.ask(path)
        self.selector.register(connection.socket, connection.wants(), connection)
        self.waiting.add(connection)

    def step(self, timeout):
        """Waits for events until `timeout` seconds from now at most: (connection, body or None, seconds) of what ended."""
        ended = []
        for key, _ in self.selector.select(max(timeout, 0)):
            connection = key.data
            try:
                said = connection.step()
            except OSError:
                said = b""
            if said is None:
                if key.events != connection.wants():
                    self.selector.modify(connection.socket, connection.wants(), connection)
                continue
            self.selector.unregister(connection.socket)
            self.waiting.discard(connection)
            ended.append((connection, said or None, time.monotonic() - connection.asked))
        return ended

    def drain(self, limit=LIMIT):
        """All that still waits, as `step`; what never ends counts as failed after `limit`."""
        ended, end = [], time.monotonic() + limit
        while self.waiting and time.monotonic() < end:
            ended += self.step(end - time.monotonic())
        for connection in list(self.waiting):
            self.selector.unregister(connection.socket)
            self.waiting.discard(connection)
            ended.append((connection, None, time.monotonic() - connection.asked))
        return ended


def open_at_once(port, count):
    """`count` connections, each with one request: {connection: worker}."""
    crowd = Crowd()
    for connection in [Connection(port) for _ in range(count)]:
        crowd.ask(connection, "/id")
    return identities(crowd.drain())


def open_by_rate(port, count, rate):
    """The same, one by one at `rate` a second."""
    crowd, ended, begin = Crowd(), [], time.monotonic()
    for number in range(count):
        while (left := begin + number / rate - time.monotonic()) > 0:
            ended += crowd.step(left)
        crowd.ask(Connection(port), "/id")
    return identities(ended + crowd.drain())


def ask_again(connections):
    """The workers that serve these connections now."""
    crowd = Crowd()
    for connection in connections:
        crowd.ask(connection, "/id")
    return identities(crowd.drain())


def identities(ended):
    failed = sum(said is None for _, said, _ in ended)
    if failed:
        raise SystemExit(f"{failed} of {len(ended)} connections had no response")
    return {connection: said.decode().strip() for connection, said, _ in ended}


def shares(owners):
    return collections.Counter(owners.values())
