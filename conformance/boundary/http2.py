"""HTTP/2 requests that say odd things about HTTP/1: a table of oddities, a client that sends any bytes, and its reading of responses."""

import dataclasses
import re
import socket
import struct

from . import client, judge
from .oddities import shown

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
DATA, HEADERS, RESET, SETTINGS, PING, AWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
DIGITS = {"00000": "0", "00001": "1", "00010": "2", "011001": "3", "011010": "4", "011011": "5", "011100": "6", "011101": "7", "011110": "8", "011111": "9"}
INDEXED = {0x88: 200, 0x89: 204, 0x8A: 206, 0x8B: 304, 0x8C: 400, 0x8D: 404, 0x8E: 500}


@dataclasses.dataclass
class Draft2:
    """A request while oddities are put into it."""

    body: bytes
    place: bytes
    pseudo: list = dataclasses.field(default_factory=list)
    fields: list = dataclasses.field(default_factory=list)
    trailers: list = dataclasses.field(default_factory=list)
    frames: str = "one"
    """How the body is sent: one frame, split, padded, ended by an empty one."""

    def set(self, name, value):
        """Gives a pseudo field another value."""
        self.pseudo = [(at, value if at == name else kept) for at, kept in self.pseudo]

    def drop(self, name):
        """Takes a pseudo field away."""
        self.pseudo = [pair for pair in self.pseudo if pair[0] != name]

    def bytes(self, stream):
        """The frames of the request."""
        head = block([*self.pseudo, *self.fields], len(self.body))
        if not self.body and not self.trailers and self.frames == "one":
            return frame(HEADERS, 5, stream, head)
        out = frame(HEADERS, 4, stream, head)
        last = 0 if self.trailers else 1
        half = len(self.body) // 2
        if self.frames == "split":
            out += frame(DATA, 0, stream, self.body[:half]) + frame(DATA, last, stream, self.body[half:])
        elif self.frames == "padded":
            out += frame(DATA, 8 | last, stream, b"\x05" + self.body + b"\0" * 5)
        elif self.frames == "empty end":
            out += frame(DATA, 0, stream, self.body) + frame(DATA, last, stream, b"")
        else:
            out += frame(DATA, last, stream, self.body)
        return out + (frame(HEADERS, 5, stream, block(self.trailers, len(self.body))) if self.trailers else b"")


def frame(kind, flags, stream, payload):
    return struct.pack("!I", len(payload))[1:] + bytes((kind, flags)) + struct.pack("!I", stream) + payload


def block(fields, size):
    """Fields as HPACK's literals without a table and without Huffman's code, so that any byte may be in them."""
    out = b""
    for name, value in fields:
        value = value.replace(b"%d", b"%d" % size)
        out += b"\x10" + integer(len(name)) + name + integer(len(value)) + value
    return out


def integer(value):
    """HPACK's integer with a prefix of seven bits."""
    if value < 127:
        return bytes((value,))
    out, value = b"\x7f", value - 127
    while value > 127:
        out += bytes((value % 128 + 128,))
        value //= 128
    return out + bytes((value,))


def pseudo(name, *values):
    """Oddities that give a pseudo field another value; `%s` is the place."""
    return {f"{name}: {shown(value)}": (lambda draft, value=value: draft.set(name.encode(), value.replace(b"%s", draft.place))) for value in values}


def fields(group, *pairs):
    """Oddities that add a field."""
    return {f"{group} + {shown(name)}: {shown(value)}": (lambda draft, pair=(name, value): getattr(draft, group).append(pair)) for name, value in pairs}


INJECTED = (b"a\r\nX-Injected: 1", b"a\nX-Injected: 1", b"a\rX-Injected: 1", b"a\r\n\r\nGET /up/0/injected HTTP/1.1\r\nHost: x\r\n\r\n", b"a\0b", b" a", b"a ", b"\ta", b"", b"a\x01", b"a\x7f", b"\xff", b"a\r", b"a\n", b"\r\n a")
ODD_NAMES = (b"X-Upper", b"x y", b"x:y", b"x\r\nx-injected", b"x\nx-injected", b"x\0y", b"", b"x: 1\r\nx-injected", b"transfer-encoding ", b" transfer-encoding", b"transfer_encoding", b"content_length", b"Transfer-Encoding", b"\xe9", b"x\x7f",
             b"transfer-encoding\0", b":unknown", b"x(", b"Content-Length", b"host ", b"connection", b"keep-alive", b"proxy-connection", b"upgrade", b"te", b"http2-settings", b"expect")
LENGTHS = (b"%d", b"0", b"1", b"9", b"9999", b"+%d", b"-%d", b"0%d", b"%d, %d", b"%d,0", b" %d", b"%d ", b"", b"0x10", b"18446744073709551617", b"%d\0", b"1_0", b"%d\r\n", b"x")
TABLE = {
    **fields("fields", *((b"x-a", value) for value in INJECTED), *((name, b"x") for name in ODD_NAMES), *((b"content-length", value) for value in LENGTHS),
             (b"transfer-encoding", b"chunked"), (b"transfer-encoding", b"identity"), (b"transfer-encoding", b""), (b"transfer-encoding", b"\0chunked"), (b"transfer_encoding", b"chunked"), (b"connection", b"close"), (b"connection", b"content-length"),
             (b"connection", b"keep-alive"), (b"connection", b"upgrade"), (b"upgrade", b"websocket"), (b"upgrade", b"h2c"), (b"te", b"trailers"), (b"te", b"chunked"), (b"keep-alive", b"300"), (b"expect", b"100-continue"),
             (b"trailer", b"content-length"), (b"host", b"a.test"), (b"host", b"b.test"), (b"host", b""), (b"host", b"a.test\r\nX-Injected: 1"), (b"host", b"b test"), (b"cookie", b"a=1"), (b"cookie", b"b=2\r\nX-Injected: 1"),
             (b":path", b"/up/0/second"), (b":authority", b"b.test"), (b":method", b"GET"), (b":scheme", b"https"), (b":protocol", b"websocket"), (b":status", b"200"), (b"x-forwarded-for", b"1.2.3.4\r\nX-Injected: 1"), (b"user-agent", b"a\r\n\r\n")),
    **fields("trailers", (b"x-t", b"t"), (b"content-length", b"0"), (b"transfer-encoding", b"chunked"), (b"x-t", b"t\r\nX-Injected: 1"), (b":path", b"/"), (b"host", b"b.test"), (b"X-T", b"t"), (b"x\r\ny", b"t"), (b"connection", b"close"), (b"te", b"x")),
    **pseudo(":method", b"GET", b"get", b"", b"HEAD", b"PUT", b"P T", b"POST /up/0/m HTTP/1.1\r\nX-Injected: 1\r\n\r\nGET", b"GET\r\n", b"GET\0", b"GET\n", b"G(T", b"OPTIONS", b"TRACE", b"CONNECT", b" GET", b"POST\t"),
    **pseudo(":path", b"", b"*", b"up", b"%s b", b"%s HTTP/1.1\r\nX-Injected: 1\r\n\r\n", b"%s\r\nX-Injected: 1", b"%s\nX: y", b"%s\rX: y", b"%s\0", b"%s\t", b"%s#frag", b"http://b.test%s", b"//b.test%s", b"%s\xe9", b"%s\x7f", b" %s", b"%s ", b"%s?a b", b"%s?\r\nx", b"%s%%0d%%0aX: y", b"%s\\x", b"x%s",
             b"%s/../x", b"/%s", b"%s HTTP/1.0"),
    **pseudo(":authority", b"", b"b.test", b"a.test, b.test", b"a.test\r\nX-Injected: 1", b"a.test\n", b"a.test\0", b"a test", b"u@a.test", b"a.test/x", b"a.test?x", b"a.test#x", b"a.test:80", b"a.test:x", b"a.test:", b"[::1", b"a..test", b"a\\b", b"\xe9", b" a.test", b"a.test ", b"a.test\t", b"A.TEST"),
    **pseudo(":scheme", b"https", b"", b"ftp", b"http://x/", b"ht tp", b"http\r\nX: y", b"HTTP", b"http\0"),
    **{f"no {name}": (lambda draft, name=name: draft.drop(name.encode())) for name in (":method", ":path", ":authority", ":scheme")},
    "authority as host": lambda draft: (draft.drop(b":authority"), draft.fields.append((b"host", b"a.test"))),
    "pseudo last": lambda draft: (draft.fields.extend(draft.pseudo), draft.pseudo.clear(), draft.fields.insert(0, (b"x-first", b"1"))),
    **{f"frames: {how}": (lambda draft, how=how: setattr(draft, "frames", how)) for how in ("split", "padded", "empty end")},
    "body: empty": lambda draft: setattr(draft, "body", b""),
}


@dataclasses.dataclass(frozen=True)
class Case2:
    """A request by name."""

    framing: str
    oddities: tuple = ()

    def __str__(self):
        return "; ".join((self.framing, *self.oddities))

    def places(self):
        """Where it is asked for."""
        return ("up", "stream")

    def stream(self, place):
        """The frames: the request, then another one on the next stream."""
        place = place.encode()
        hidden = b"GET " + place + b"/hidden HTTP/1.1\r\nHost: a.test\r\n\r\n"
        first = Draft2(b"" if self.framing == "h2 none" else hidden, place, usual(b"GET" if self.framing == "h2 none" else b"POST", place))
        for name in self.oddities:
            TABLE[name](first)
        return PREFACE, first.bytes(1) + Draft2(b"", place, usual(b"GET", place + b"/after")).bytes(3)

    def beside(self, place, one, others):
        """Faults by what was sent, and beside other servers. Streams are independent: their order says nothing."""
        passed, lists = sorted(judge.read(one)), {name: sorted(judge.read(other)) for name, other in others.items()}
        for data in one.passed:
            head = data.partition(b"\r\n\r\n")[0]
            if re.search(rb"(?im)^x-injected|/injected|/second", head):
                yield judge.Fault("ambiguous", place, f"a field that was not one: {head!r}")
        odd = [request for request in passed if request[1] != b"/after"]
        if len(odd) > 1 or len(passed) > 2:
            yield judge.Fault("ambiguous", place, f"it passed {passed}")
        if odd and lists and all(request[1] == b"/after" for other in lists.values() for request in other):
            yield judge.Fault("looser", place, f"it passed {passed}, others { {name: len(other) for name, other in lists.items()} }")
        for name, other in lists.items():
            if len(other) == len(passed) == 2 and other != passed:
                yield judge.Fault("other", place, f"it passed {passed}, {name} {other}")


def usual(method, place):
    return [(b":method", method), (b":scheme", b"http"), (b":path", place), (b":authority", b"a.test")]


def parsed(text):
    """A case from its name."""
    framing, *names = text.strip().split("; ")
    if framing not in ("h2 none", "h2 body") or any(name not in TABLE for name in names):
        raise ValueError(f"no such request: {text}")
    return Case2(framing, tuple(names))


def singles():
    """Each oddity with and without a body."""
    return [Case2(framing, names) for framing in ("h2 none", "h2 body") for names in [(), *((name,) for name in TABLE)]]


def drawn(random):
    """A case with two or three oddities."""
    return Case2(random.choice(("h2 none", "h2 body")), tuple(sorted(random.sample(list(TABLE), random.choice((2, 2, 3))))))


def ask(port, stream, patience):
    """Sends frames and reads until both streams have ended, or the connection has, or nothing comes any more."""
    found = client.Outcome(end="waits")
    ended, buffer = {}, b""
    with socket.create_connection(("127.0.0.1", port), 10) as wire:
        wire.settimeout(patience)
        try:
            wire.sendall(b"".join(stream))
            while len(ended) < 2:
                piece = wire.recv(1 << 16)
                if not piece:
                    found.end = "closed"
                    break
                buffer = taken(buffer + piece, ended, wire)
            else:
                found.end = "closed"
        except TimeoutError:
            pass
        except OSError:
            found.end = "reset"
    found.statuses = [ended[number] for number in sorted(ended)]
    return found


def taken(data, ended, wire):
    """Takes whole frames from the bytes; `ended` gets the status of a stream that has one, or 599 for a reset."""
    while len(data) >= 9:
        size = int.from_bytes(data[:3], "big")
        if len(data) < 9 + size:
            break
        kind, flags, stream, payload = data[3], data[4], int.from_bytes(data[5:9], "big"), data[9:9 + size]
        data = data[9 + size:]
        if kind == SETTINGS and not flags & 1:
            wire.sendall(frame(SETTINGS, 1, 0, b""))
        elif kind == HEADERS and stream not in ended:
            ended[stream] = status(payload)
        elif kind == RESET and stream not in ended:
            ended[stream] = 599
        elif kind == AWAY:
            wire.shutdown(socket.SHUT_WR)
    return data


def status(payload):
    """The status that a header block begins with, as far as it can be read without a table."""
    at = 0
    while at < len(payload) and payload[at] & 0xE0 == 0x20:
        at += 1
    first = payload[at] if at < len(payload) else 0
    if first in INDEXED:
        return INDEXED[first]
    if (first & 0xC0 == 0x40 and first & 0x3F in range(8, 15)) or (first & 0xF0 in (0, 0x10) and first & 0x0F in range(8, 15)):
        size, text = payload[at + 1] & 0x7F, payload[at + 2:at + 2 + (payload[at + 1] & 0x7F)]
        return int(huffman(text)) if payload[at + 1] & 0x80 else int(text[:size] or b"0")
    return 0


def huffman(text):
    """Digits in Huffman's code."""
    bits, out, code = "".join(f"{byte:08b}" for byte in text), "", ""
    for bit in bits:
        code += bit
        if code in DIGITS:
            out, code = out + DIGITS[code], ""
    return out or "0"


