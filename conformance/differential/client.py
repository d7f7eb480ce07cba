"""One exchange with one server: sends a request's bytes, reads the response, and looks whether the connection was kept."""

import dataclasses
import errno
import itertools
import shutil
import socket
import subprocess

PROBE = b"GET /probe HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"
LOCAL_PORTS = itertools.cycle(range(33000, 60000))
"""The client's ports, one after another: a line of the log is found by them, so that none may come twice in a case."""


def use_ports(number):
    """Another range of ports for each process of a run, so that they do not ask for each other's."""
    global LOCAL_PORTS  # pylint: disable=global-statement
    first = 33000 + number % 8 * 3300
    LOCAL_PORTS = itertools.cycle(range(first, first + 3300))


PATIENCE = 3.0
"""Seconds without a byte after which an exchange counts as hanging, unless the server works."""


@dataclasses.dataclass
class Response:
    """What came back. Status 0 is none at all; `end` is kept, closed, reset or hangs."""

    status: int = 0
    line: str = ""
    fields: list = dataclasses.field(default_factory=list)
    body: bytes = b""
    interim: list = dataclasses.field(default_factory=list)
    end: str = "closed"
    port: int = 0
    """The client's: it is in the line of the log."""
    heads: int = 0
    """Bytes of the heads and ends of chunks."""
    whole: bool = True
    """False where the body ended before its framing said so."""

    def values(self, name):
        """The values of a field, in order."""
        return [value for at, value in self.fields if at.lower() == name]


def connected(address, port):
    """A connection from the next port that is free."""
    while True:
        try:
            return socket.create_connection((address, port), PATIENCE, ("127.0.0.1", next(LOCAL_PORTS)))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                raise


PORT_IN_USE = 45
"""curl's status where it can't have the port."""
WORKS = 0.05
"""Seconds of processor time in `PATIENCE` that show that a server works and does not wait."""


class Ended(Exception):
    """The other side has closed."""


class Wire:
    """A connection with what was read ahead."""

    def __init__(self, server, port):
        self.server = server
        self.socket = connected(server.address, port)
        self.data = b""

    def fill(self):
        while True:
            worked = self.server.work()
            try:
                piece = self.socket.recv(262144)
                break
            except TimeoutError:
                # A pattern of ten million steps takes longer than that on a busy machine.
                if self.server.work() - worked < WORKS:
                    raise
        if not piece:
            raise Ended
        self.data += piece

    def line(self):
        """The next line, without its end."""
        while b"\n" not in self.data:
            self.fill()
        line, _, self.data = self.data.partition(b"\n")
        return line.rstrip(b"\r")

    def exactly(self, size):
        while len(self.data) < size:
            self.fill()
        piece, self.data = self.data[:size], self.data[size:]
        return piece

    def rest(self):
        """All until the end."""
        try:
            while True:
                self.fill()
        except Ended:
            piece, self.data = self.data, b""
            return piece


def exchange(server, port, request):
    """Sends the request and gives what came back; errors of the connection are part of that."""
    if request.http2:
        return exchange_http2(server.address, port, request)
    response = Response()
    wire = Wire(server, port)
    response.port = wire.socket.getsockname()[1]
    with wire.socket:
        try:
            wire.socket.sendall(request.bytes() + (PROBE if request.pipelined else b""))
            read(wire, request, response)
            probe(wire, request, response)
        except Ended:
            pass
        except (ConnectionResetError, BrokenPipeError):
            response.end = "reset"
        except TimeoutError:
            response.end = "hangs"
        except ValueError:
            response.end = "garbled"
    return response


def read(wire, request, response):
    """Reads heads until a final one, and its body."""
    if not request.version:
        response.body, response.status = wire.rest(), 9
        return
    while True:
        line = wire.line().decode("latin1")
        fields = []
        while text := wire.line().decode("latin1"):
            name, _, value = text.partition(":")
            fields.append((name, value.strip(" ")))
        words = line.split(" ")
        status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 1
        if not 100 <= status < 200 or status == 101:
            break
        response.interim.append(line)
    response.status, response.line, response.fields = status, line, fields
    response.whole = False
    response.body = body(wire, request, response)
    response.whole = True


def body(wire, request, response):
    """The body, by the framing of the head."""
    if request.method == "HEAD" or response.status in (101, 204, 304):
        return b""
    if "chunked" in "".join(response.values("transfer-encoding")):
        return chunks(wire, response)
    if length := response.values("content-length"):
        response.body = b""
        while len(wire.data) < int(length[0]):
            response.body = wire.data
            wire.fill()
        return wire.exactly(int(length[0]))
    return wire.rest()


def chunks(wire, response):
    """A body in chunks; trailers go to the fields, with `trailer ` before their names."""
    response.body = b""
    while True:
        head = wire.line()
        size = int(head.split(b";")[0] or b"0", 16)
        response.heads += len(head) + 4
        if not size:
            break
        response.body += wire.exactly(size)
        wire.line()
    while text := wire.line().decode("latin1"):
        name, _, value = text.partition(":")
        response.fields.append(("trailer " + name, value.strip(" ")))
    return response.body


def probe(wire, request, response):
    """Sends the second request, if it has not gone yet, and sees whether it is answered."""
    try:
        said_close = "close" in "".join(response.values("connection")).lower()
        if not request.pipelined and not said_close:
            wire.socket.sendall(PROBE)
        response.end = "kept" if wire.rest() else "closed"
    except (ConnectionResetError, BrokenPipeError):
        # A request that crosses the end of its connection is reset by the kernel: closed, as far as servers decide it.
        response.end = "closed"


def exchange_http2(address, port, request):
    """The same by curl, over HTTP/2 with prior knowledge."""
    response = Response(end="kept")
    fields = [word for name, value in request.fields for word in ("-H", f"{name}: {value}")]
    how = ["-I"] if request.method == "HEAD" else ["-X", request.method]
    # A port of its own, as the others have: by it the line of the log is found. Whether the server works is not asked here:
    # a pattern of ten million steps has its time.
    while True:
        done = subprocess.run([shutil.which("curl"), "-s", "-i", "--noproxy", "*", "--http2-prior-knowledge", "--path-as-is", "--local-port", str(next(LOCAL_PORTS)), "--max-time", str(5 * PATIENCE), "-w", "\n%{local_port}", *how, *fields,
                               f"http://{address}:{port}{request.target.partition('#')[0]}"], capture_output=True, check=False)
        if done.returncode != PORT_IN_USE:
            break
    response.whole = done.returncode == 0
    output, _, port_text = done.stdout.rpartition(b"\n")
    response.port = int(port_text or 0)
    head, _, response.body = output.partition(b"\r\n\r\n")
    lines = head.decode("latin1").split("\r\n")
    while lines[0].startswith("HTTP/2 1"):
        response.interim.append(lines[0])
        head, _, response.body = response.body.partition(b"\r\n\r\n")
        lines = head.decode("latin1").split("\r\n")
    if len(lines[0].split(" ")) > 1:
        response.status = int(lines[0].split(" ")[1])
    response.fields = [tuple(part.strip() for part in line.split(":", 1)) for line in lines[1:] if ":" in line]
    return response
