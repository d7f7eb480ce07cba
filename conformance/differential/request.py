"""Requests: made from a seed, in parts that can be taken away one by one, and their bytes."""

import dataclasses
import re

BEHAVIOURS = ("ok", "chunked", "close", "head", "304", "204", "early", "101", "charset", "html", "vary", "expires", "cookie",
              "badfield", "accel", "accelexpires", "cached", "404", "500", "503", "redirect", "location", "gzip", "ssi",
              "empty", "trailer", "interim", "big", "double", "bareline", "old", "hop", "badlength", "badchunk", "control")
"""What the upstream servers can do: `u=NAME` in the query (upstream.py)."""


@dataclasses.dataclass(frozen=True)
class Request:
    """One request. `fields` are pairs; `body` None is none; `framing` length, chunked, or none of them."""

    method: str = "GET"
    target: str = "/t/page.txt"
    version: str = "HTTP/1.1"
    fields: tuple = (("Host", "a.test"),)
    body: bytes | None = None
    framing: str = "length"
    pipelined: bool = False
    """The request that looks whether the connection was kept comes with this one, not after its response."""
    http2: bool = False
    """Sent by curl, over HTTP/2 without TLS."""

    def bytes(self):
        """What goes over the wire."""
        line = f"{self.method} {self.target}" + (f" {self.version}" if self.version else "")
        fields, body = list(self.fields), b""
        if self.body is not None and self.framing == "length":
            fields.append(("Content-Length", str(len(self.body))))
            body = self.body
        elif self.body is not None:
            fields.append(("Transfer-Encoding", "chunked"))
            body = self.framed()
        head = "".join(f"{name}: {value}\r\n" if name else f"{value}\r\n" for name, value in fields)
        end = "" if not self.version else head + "\r\n"
        return f"{line}\r\n{end}".encode("latin1") + body

    def framed(self):
        """The body in chunks, well-formed or not."""
        half = len(self.body) // 2
        pieces = [piece for piece in (self.body[:half], self.body[half:]) if piece]
        extension = b";a=b" if self.framing == "extension" else b""
        chunks = b"".join(b"%x%s\r\n%s\r\n" % (len(piece), extension, piece) for piece in pieces)
        if self.framing == "bad":
            return b"zz\r\n" + self.body
        return chunks + (b"0\r\nX-Trailer: t\r\n\r\n" if self.framing == "trailers" else b"0\r\n\r\n")

    def parts(self):
        """What the minimiser may take away, or make ordinary."""
        found = [("field", field) for field in self.fields if field != ("Host", "a.test")]
        ordinary = Request()
        for name in ("method", "version", "pipelined", "http2", "framing"):
            if getattr(self, name) != getattr(ordinary, name):
                found.append((name, getattr(self, name)))
        if self.body is not None:
            found.append(("body", self.body))
        return found

    def only(self, kept):
        """The request with these of its parts."""
        ordinary = Request()
        names = {name: getattr(self, name) if any(at == name for at, _ in kept) else getattr(ordinary, name)
                 for name in ("method", "version", "pipelined", "http2", "framing", "body")}
        fields = tuple(field for field in self.fields if field == ("Host", "a.test") or ("field", field) in kept)
        return dataclasses.replace(self, fields=fields, **names)

    def names(self):
        """What a rule may ask for."""
        found = {f"method: {self.method}", f"version: {self.version}", f"target: {self.target}"}
        path, _, query = self.target.partition("?")
        found |= {"empty body"} if self.body == b"" else set()
        found |= {f"path: {path}", f"framing: {self.framing}" if self.body is not None else "no body"}
        found |= {f"arg: {piece}" for piece in query.split("&") if piece}
        found |= {f"field: {name}: {value}" for name, value in self.fields} | {f"field: {name}" for name, _ in self.fields}
        return found | ({"pipelined"} if self.pipelined else set()) | ({"http2"} if self.http2 else set())


PATHS = ("/t/page.txt", "/t/page.html", "/t/", "/t/dir", "/t/dir/", "/t/list/", "/t/missing", "/t/big.bin", "/t/middle.bin", "/t/empty.txt", "/t/pre.txt",
         "/t/page.shtml", "/t/n/page.txt", "/t/n/", "/t/n/missing", "/t", "/t/n", "/", "/other", "/slash", "/slash/x", "/p", "/p/x",
         "/t/pair", "/t/pair/x", "/t/koi.html", "/t/old", "/t/q1", "/t/red1", "/t/dir/x", "/t/new.txt", "/t/coll/", "/t/link.txt", "/t/data.json")
ODD_PATHS = ("/t/../t/page.txt", "/t/./page.txt", "/t//page.txt", "/t/%70age.txt", "/t/%2e%2e/t/page.txt", "/t/page.txt%00", "/t/page%20x", "/t/dir%2f", "//t/page.txt",
             "/t/../../x", "http://a.test/t/page.txt", "http://b.test:81/t/page.txt?a=1", "*", "/t/page.txt#frag", "/T/PAGE.txt", "/t/" + "a" * 40 + "/private/y",
             "/t/" + "a" * 40 + ".bak", "/t/%0d%0aX:y", "/t/x%0ay", "/t/caf%C3%A9", "/t/%", "/t/%zz", "/t/a b", "/t/\x01", "/als../page.txt", "/als/page.txt", "t/page.txt",
             "/t/page.txt/", "/t/page.txt/x", "/t/" + "b" * 1200, "/t/..", "/..", "/t/page.txt?", "/t/n/../page.txt", "/t/dir/../page.txt", "/t/;x", "/t/\xe9",
             "/t/n/" + "a" * 40 + "-old")
METHODS = ("OPTIONS", "PUT", "DELETE", "MKCOL", "COPY", "MOVE", "PROPFIND", "TRACE", "CONNECT", "PATCH", "get", "B@D", "PURGE", "LONGMETHODNAME", "")
HOSTS = ("b.test", "A.TEST", "a.test:80", "x.b.test", "", "a..test", "[::1]", "a.test:x", "a test", "a.test.", "-", "a.test/x", "a.test@b.test")
FIELDS = [
    ("Range", ("bytes=0-3", "bytes=-4", "bytes=2-", "bytes=0-1,3-4", "bytes=9999-", "bytes=4-2", "bytes=0-0,-1", "items=0-1", "bytes=0-1,2-3,4-5,6-7", "bytes=x-y")),
    ("If-Range", ('"own"', "Tue, 01 Jan 2019 00:00:00 GMT", '"5c2aad80-11"', "Thu, 01 Jan 1970 00:00:01 GMT")),
    ("If-Modified-Since", ("Tue, 01 Jan 2019 00:00:00 GMT", "Wed, 01 Jan 2020 00:00:00 GMT", "Mon, 01 Jan 2018 00:00:00 GMT", "nonsense")),
    ("If-Unmodified-Since", ("Mon, 01 Jan 2018 00:00:00 GMT", "Wed, 01 Jan 2020 00:00:00 GMT")),
    ("If-None-Match", ("*", '"own"', 'W/"own"', '"lua", "x"', '"up"', '"none"')),
    ("If-Match", ("*", '"no"', '"own"', '"up"', 'W/"own"')),
    ("Accept-Encoding", ("gzip", "gzip;q=0", "deflate, gzip;q=0.5", "identity", "br, gzip", "*", "gzip;q=0.0, x")),
    ("Authorization", ("Basic dTpw", "Basic dTp4", "Bearer x", "Basic !", "basic dTpw")),
    ("Connection", ("close", "keep-alive", "Upgrade, HTTP2-Settings", "upgrade", "x, close", "te")),
    ("Expect", ("100-continue", "nonsense")),
    ("Upgrade", ("h2c", "websocket")),
    ("HTTP2-Settings", ("AAMAAABkAAQAAP__",)),
    ("Cookie", ("s=1", "u=FwAAAWdmZmZm; s=2", "a=b")),
    ("Referer", ("http://a.test/", "http://evil.org/", "nonsense")),
    ("User-Agent", ("Mozilla/4.0 (compatible; MSIE 6.0)", "curl/8", "Mozilla/5.0 Chrome/100", "a" * 40 + " evil")),
    ("X-Forwarded-For", ("1.2.3.4", "1.2.3.4, 127.0.0.9", "nonsense", "::ffff:5.6.7.8, 10.1.1.1")),
    ("X-Real-IP", ("9.8.7.6", "9.8.7.6:90")),
    ("Pragma", ("no-cache",)),
    ("Cache-Control", ("no-cache", "max-age=0")),
    ("Via", ("1.1 proxy",)),
    ("TE", ("trailers", "gzip")),
    ("Content-Type", ("text/plain", "application/x-www-form-urlencoded")),
    ("Destination", ("/t/copy.txt", "http://a.test/t/new2.txt", "/abcd../www/t/evil.txt", "http://a.test.evil/t/x.txt", "/other/x", "/t/coll2/", "http://a.test@e/t/y.txt", "")),
    ("Overwrite", ("F", "T")),
    ("Depth", ("0", "1", "infinity")),
    ("X_Under", ("u",)),
    ("Bad Name", ("x",)),
    ("", ("nocolon", " folded: x", ": empty")),
    ("X-Control", ("a\x01b", "a\tb", "\xe9", "a\x00b")),
    ("Content-Length", ("0", "5x", "-1", "3, 3")),
    ("Transfer-Encoding", ("gzip", "chunked, chunked", "identity")),
    ("Keep-Alive", ("300",)),
    ("X-Long", ("l" * 900,)),
    ("Proxy", ("http://evil/",)),
    ("Host", ("a.test", "c.test")),
]


class RequestGenerator:
    """Requests from one source of randomness."""

    def __init__(self, random):
        self.random = random
        self.aimed = []

    def requests(self, configuration, count):
        """`count` requests for a configuration; the first are what most clients ask."""
        self.aimed = aimed(configuration)
        found = [Request(), Request(target=self._target(configuration, plain=True))]
        while len(found) < count:
            # What a cache or a limit has of a request shows with the next one for the same.
            repeats = self.random.random() < 0.15
            made = self.request(configuration)
            found.append(dataclasses.replace(made, target=found[-1].target) if repeats else made)
        return found

    def request(self, configuration):
        """One request with nothing, one or a few things odd about it."""
        choose = self.random
        method = choose.choices(("GET", "HEAD", "POST", "other"), (62, 12, 12, 14))[0]
        if method == "other":
            method = choose.choice(METHODS)
        version = choose.choices(("HTTP/1.1", "HTTP/1.0", "", "HTTP/1.2", "HTTP/2.0", "HTTP/1.1x", "HTTP/0.9"), (83, 11, 1, 1, 1, 1, 1))[0]
        host = "a.test" if choose.random() < 0.9 else choose.choice(HOSTS)
        fields = [("Host", host)] if choose.random() < 0.96 else []
        for name, values in choose.sample(FIELDS, choose.choices((0, 1, 2, 3), (30, 40, 20, 10))[0]):
            fields.append((name, choose.choice(values)))
        body, framing = self._body(method, fields)
        http2 = choose.random() < 0.05 and method in ("GET", "HEAD", "POST") and body is None and host == "a.test"
        if http2:
            fields = [("Host", "a.test")] + [field for field in fields if field[0] in HTTP2_FIELDS]
        return Request(method, self._target(configuration), "HTTP/1.1" if http2 else version, tuple(fields), body, framing, choose.random() < 0.12, http2)

    def _body(self, method, fields):
        sized = any(name in ("Content-Length", "Transfer-Encoding") for name, _ in fields)
        if sized or self.random.random() > (0.85 if method in ("POST", "PUT", "PATCH") else 0.06):
            return None, "length"
        text = self.random.choice((b"", b"body", b"a=1&b=2", b"x" * 3000, b"y" * 20000))
        return text, self.random.choices(("length", "chunked", "extension", "trailers", "bad"), (60, 25, 5, 5, 5))[0]

    def _target(self, configuration, plain=False):
        choose = self.random
        if self.aimed and not plain and choose.random() < 0.3:
            return choose.choice(self.aimed)
        path = choose.choice(PATHS if plain or choose.random() < 0.8 else ODD_PATHS)
        if choose.random() < 0.3:
            path = "/t/page.txt"
        arguments = []
        if choose.random() < 0.25:
            arguments.append("a=1")
        if choose.random() < 0.2:
            arguments.append("c=" + choose.choice(("x", "", "utf-8", "page", "GET", "%0d%0aZ:z")))
        if configuration.has_upstream() and choose.random() < 0.8:
            arguments.append("u=" + choose.choice(BEHAVIOURS))
        if "?" in path or "#" in path or path == "*":
            arguments = []
        return path + ("?" + "&".join(arguments) if arguments else "")


def aimed(configuration):
    """The targets that reach what a configuration has."""
    names = configuration.names()
    return [target for pattern, targets in AIMED if any(re.fullmatch(pattern, name) for name in names) for target in targets]


AIMED = [
    (r"beside: pattern", ("/t/" + "a" * 40 + "/private/y", "/t/" + "a" * 40 + ".bak", "/t/n/" + "a" * 40 + "-old")),
    (r".*: rewrite \(\?:.*|.*crawl.*", ("/t/" + "a" * 40 + "/private/y", "/t/" + "a" * 40 + ".bak")),
    (r"beside: pair", ("/t/pair", "/t/pair/x", "/t/pair?x")), (r"beside: prefix pair", ("/p", "/p/x", "/p?x")), (r"beside: redirected", ("/slash", "/slash/x")),
    (r"beside: two prefixes", ("/q", "/q?x", "/q/x")), (r"beside: beside", ("/als../page.txt", "/als/page.txt")), (r"beside: caret", ("/t/dir/x", "/t/dir/")), (r"nested: .*", ("/t/n/page.txt", "/t/n/missing", "/t/n/")),
    (r".*: rewrite \^/t/old.*", ("/t/old", "/t/old.txt")), (r".*: rewrite \^/t/q.*", ("/t/q1",)), (r".*: rewrite \^/t/\(red.*", ("/t/red1",)),
    (r"inner: .*|if: .*", ("/t/page.txt?a=1", "/t/missing?a=1", "/t/page.txt?a=1&c=x")), (r"server if: .*", ("/t/page.txt?c=x", "/t/missing?c=x")),
]
"""Requests that reach what a configuration has: patterns of its names, and targets."""

HTTP2_FIELDS = {"Range", "If-Range", "If-Modified-Since", "If-None-Match", "If-Match", "Accept-Encoding", "Cookie", "Referer", "User-Agent", "Authorization"}
