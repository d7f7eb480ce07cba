"""Readers of HTTP/1 requests: one that follows RFC 9112, and others with the liberties that servers are known to take.

What a proxy sends must end at the same byte for all of them: bytes that two of them split differently can hide a request
from the one that checks it.
"""

import dataclasses
import re

TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
NEXT = b"GET /next HTTP/1.1\r\nHost: next.test\r\n\r\n"


class More(Exception):
    """The bytes end inside a request."""


class Bad(Exception):
    """The bytes are no request for this reader."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """A request as a reader sees it."""

    method: bytes
    target: bytes
    fields: tuple
    body: bytes
    trailers: tuple = ()

    def values(self, name):
        """The values of a field, in order."""
        return [value for at, value in self.fields if at.lower() == name]


@dataclasses.dataclass(frozen=True)
class Reader:
    """One way to read. The defaults are RFC 9112 at its strictest."""

    name: str
    line: str = "crlf"
    """What ends a line: crlf, lf (LF with or without CR), cr (CR alone, too)."""
    wins: str = "none"
    """Which of Content-Length and Transfer-Encoding counts where both are there; none: such a request is refused."""
    length: str = "only"
    """Which of several Content-Length counts: only (one may be there), first, last."""
    number: str = "digits"
    """How a length is read: digits, prefix (as far as there are digits), python (signs, spaces, underscores)."""
    size: str = "digits"
    """How the size of a chunk is read: the same."""
    names: str = "token"
    """token, or trim (white space around names is taken away), or under (and `_` is `-`), or nul (what follows a NUL is nothing)."""
    fold: bool = False
    """A line that begins with white space goes on with the one before."""
    coding: str = "exact"
    """What is chunked: exact, contains (the word anywhere), last (the last of a list), none (this reader knows no chunks)."""

    def requests(self, data):
        """All requests of the bytes, and the bytes that are left."""
        found, rest = [], data
        while rest:
            try:
                seen, size = self.one(rest)
            except (More, Bad):
                break
            found.append(seen)
            rest = rest[size:]
        return found, rest

    def one(self, data):
        """The first request, and how many bytes it has."""
        lines, at = self._section(data, 0)
        if not lines:
            raise Bad("no line")
        parts = lines[0].split(b" ")
        if len(parts) != 3 or not TOKEN.fullmatch(parts[0]) or not re.fullmatch(rb"HTTP/1\.[01]", parts[2]) or re.search(rb"[\x00-\x20\x7f]", parts[1]) or not parts[1]:
            raise Bad("line")
        fields = self._fields(lines[1:])
        body, at, trailers = self._body(data, at, fields)
        return Seen(parts[0], parts[1], fields, body, trailers), at

    def _line(self, data, at):
        pattern = {"crlf": rb"\r\n", "lf": rb"\r?\n", "cr": rb"\r\n|\r|\n"}[self.line]
        found = re.compile(pattern).search(data, at)
        if not found:
            raise More()
        if self.line == "crlf" and re.search(rb"[\r\n]", data[at:found.start()]):
            raise Bad("CR or LF alone")
        return data[at:found.start()], found.end()

    def _section(self, data, at):
        lines = []
        while True:
            line, at = self._line(data, at)
            if not line:
                return lines, at
            if line[:1] in (b" ", b"\t") and len(lines) > 1 and self.fold:
                lines[-1] += b" " + line.strip()
            else:
                lines.append(line)

    def _fields(self, lines):
        found = []
        for line in lines:
            name, colon, value = line.partition(b":")
            if self.names != "token":
                name = name.strip(b" \t\x0b\x0c")
            if self.names == "under":
                name = name.replace(b"_", b"-")
            if self.names == "nul":
                name, value = name.partition(b"\0")[0], value.partition(b"\0")[0]
            if self.names == "token" and (not colon or not TOKEN.fullmatch(name) or re.search(rb"[\x00\r\n]", value)):
                raise Bad("field")
            found.append((name, value.strip(b" \t")))
        return tuple(found)

    def _body(self, data, at, fields):
        lengths = [value for name, value in fields if name.lower() == b"content-length"]
        codings = [value.lower() for name, value in fields if name.lower() == b"transfer-encoding"]
        chunked = bool(codings) and self._is_chunked(codings)
        if self.wins == "none" and (len(lengths) > 1 or (lengths and codings)):
            raise Bad("two lengths")
        if chunked and not (lengths and self.wins == "length"):
            return self._chunks(data, at)
        if codings and not chunked and self.coding == "exact":
            raise Bad("coding")
        if not lengths:
            return b"", at, ()
        size = self._number(lengths[-1 if self.length == "last" else 0], self.number, 10)
        if len(data) - at < size:
            raise More()
        return data[at:at + size], at + size, ()

    def _is_chunked(self, codings):
        whole = b",".join(codings)
        return {"exact": whole == b"chunked", "contains": b"chunked" in whole, "last": whole.split(b",")[-1].strip() == b"chunked", "none": False}[self.coding]

    def _number(self, text, how, base):
        digits = rb"[0-9]+" if base == 10 else rb"[0-9A-Fa-f]+"
        if how == "python":
            try:
                return max(int(text.decode("latin1"), base), 0)
            except ValueError:
                raise Bad("number") from None
        found = re.match(digits, text) if how == "prefix" else re.fullmatch(digits, text)
        if not found:
            raise Bad("number")
        return int(found[0], base)

    def _chunks(self, data, at):
        body = b""
        while True:
            line, at = self._line(data, at)
            size = self._number(line.partition(b";")[0], self.size, 16)
            if not size:
                lines, at = self._section(data, at)
                return body, at, self._fields(lines)
            if len(data) - at < size + 2:
                raise More()
            body += data[at:at + size]
            at += size
            end = re.compile(rb"\r\n" if self.line == "crlf" else rb"\r?\n").match(data, at)
            if not end:
                raise Bad("end of a chunk")
            at = end.end()


STRICT = Reader("RFC 9112")
LENIENT = (
    Reader("LF ends lines", line="lf", wins="chunked", length="first"),
    Reader("CR ends lines", line="cr", wins="chunked", length="first"),
    Reader("the length wins", wins="length", length="first", coding="last"),
    Reader("the last length wins", wins="length", length="last", coding="last"),
    Reader("knows no chunks with a length", wins="length", length="first", coding="none"),
    Reader("names are trimmed", wins="chunked", length="first", names="trim", line="lf", fold=True),
    Reader("names have no underscores", wins="chunked", length="last", names="under", fold=True, coding="contains"),
    Reader("the length of names without underscores", wins="length", length="last", names="under", fold=True),
    Reader("C strings", wins="chunked", length="first", names="nul", number="prefix", size="prefix", coding="contains"),
    Reader("Python's numbers", wins="chunked", length="first", names="trim", number="python", size="python", coding="contains"),
    Reader("folds", wins="chunked", length="first", fold=True, coding="contains"),
)


def disagreement(data):
    """How two readers split bytes differently, that one request and nothing else must be; None where none does."""
    try:
        strict, size = STRICT.one(data)
    except More:
        return "it ends before its end"
    except Bad as bad:
        return f"it is malformed ({bad})"
    if size != len(data):
        return "bytes follow it"
    for reader in LENIENT:
        # A reader without chunks is right to differ where chunks are all there is: no sender can help that.
        if reader.coding == "none" and not strict.values(b"content-length"):
            continue
        found, rest = reader.requests(data + NEXT)
        if rest or len(found) != 2 or found[1].target != b"/next" or found[0].body != strict.body:
            return f"{reader.name}: {len(found)} requests, {len(rest)} bytes left"
    return None
