"""HTTP/1 requests with something odd about where they end: a table of oddities by name, and requests made of them.

A request is named by its framing and its oddities, `chunked; size: +%x; Host: twice`: the same text gives the same bytes.
Its body is itself a request, so that whoever splits it differently sees one more.
"""

import dataclasses

from . import fronts, judge

FRAMINGS = ("none", "length", "chunked", "both")


@dataclasses.dataclass
class Draft:
    """A request while oddities are put into it. `%d` in a value is the length of the body."""

    body: bytes
    place: bytes
    lead: bytes = b""
    method: bytes = b"POST"
    target: bytes = b""
    before_target: bytes = b" "
    after_target: bytes = b" "
    version: bytes = b"HTTP/1.1"
    line_end: bytes = b"\r\n"
    host: list = dataclasses.field(default_factory=lambda: [b"Host: a.test"])
    framing: list = dataclasses.field(default_factory=list)
    fields: list = dataclasses.field(default_factory=list)
    eol: bytes = b"\r\n"
    end: bytes = b"\r\n"
    chunked: bool = False
    size: bytes = b"%x"
    extension: bytes = b""
    size_end: bytes = b"\r\n"
    data_end: bytes = b"\r\n"
    last: bytes = b"0"
    last_end: bytes = b"\r\n"
    trailers: bytes = b""
    body_end: bytes = b"\r\n"
    pieces: int = 1

    def bytes(self):
        """What goes over the wire."""
        line = self.lead + self.method + self.before_target + self.target + self.after_target + self.version + self.line_end
        lines = [*self.host, *self.framing, *self.fields]
        body = self.body
        if self.chunked:
            size = self.size.replace(b"%x", b"%x" % len(body)).replace(b"%X", b"%X" % len(body))
            body = size + self.extension + self.size_end + body + self.data_end + self.last + self.last_end + self.trailers + self.body_end
        head = b"".join(text.replace(b"%d", b"%d" % len(self.body)).replace(b"%w", b"%d" % len(body)) + self.eol for text in lines)
        return line + head + self.end + body


def attribute(name, *values):
    """Oddities that set one part of the draft."""
    return {f"{name}: {shown(value)}": (lambda draft, value=value: setattr(draft, name, value)) for value in values}


def shown(value):
    """Bytes as text that stays on one line: without the `;` that is between names, and with spaces at its ends seen."""
    if not isinstance(value, bytes):
        return str(value)
    text = repr(value)[2:-1].replace(";", "\\x3b")
    left, right = len(text) - len(text.lstrip(" ")), len(text) - len(text.rstrip(" "))
    return "nothing" if not text else "\\x20" * len(text) if text.isspace() else "\\x20" * left + text.strip(" ") + "\\x20" * right


def field(group, *lines):
    """Oddities that add a line to one of the lists."""
    return {f"{group} + {shown(line)}": (lambda draft, line=line: getattr(draft, group).append(line)) for line in lines}


def instead(group, *lines):
    """Oddities that put lines in place of those of a list."""
    return {f"{group} = {shown(line)}": (lambda draft, line=line: setattr(draft, group, [line])) for line in lines}


def before(group, *lines):
    """Oddities that put a line before those of a list."""
    return {f"{group} < {shown(line)}": (lambda draft, line=line: getattr(draft, group).insert(0, line)) for line in lines}


def targets(*forms):
    """Oddities of the target; `%s` is where it is usual."""
    return {f"target: {shown(form)}": (lambda draft, form=form: setattr(draft, "target", form.replace(b"%s", draft.place))) for form in forms}


LENGTHS = (b"+%d", b"-%d", b"0%d", b"0000000000000000000000%d", b"  %d", b"%d ", b"\t%d\t", b"\x0b%d", b"%d\x0b", b"%d\x0c", b"%d\x85", b"\xa0%d", b"0x%d", b"%d, %d", b"%d,%d",
           b"%d %d", b"%d, 0", b"0, %d", b"%d;", b"%d,", b",%d", b"%d.0", b"%de0", b"", b" ", b'"%d"', b"%d\x00", b"\x00%d", b"1_0", b"18446744073709551616", b"18446744073709551617",
           b"9223372036854775808", b"9223372036854775807", b"4294967296", b"4294967297", b"\xd9\xa1", b"%d\r", b"%dx", b"-0", b"+0", b"00", b"0x0", b"%d\n ", b"\n %d")
CODINGS = (b"Chunked", b"CHUNKED", b"  chunked", b"chunked  ", b"\tchunked", b"chunked\t", b"\x0bchunked", b"chunked\x0b", b"chunked\x0c", b"\x00chunked", b"chunked\x00", b"chunked\x00x", b'"chunked"',
           b"'chunked'", b"chunked;", b"chunked;q=1", b"chunked,", b",chunked", b", , chunked", b"chunked, chunked", b"chunked,chunked", b"identity", b"identity, chunked", b"chunked, identity",
           b"gzip, chunked", b"chunked, gzip", b"gzip", b"xchunked", b"chunkedx", b"chunk", b"", b" ", b"chu\rnked", b"chunked\r", b"chunked\xff", b"\xa0chunked", b"chun\xe2\x84\xaaed", b"\r\n chunked", b"chunked\r\n ",
           b"x\r\n chunked", b"chunked\r\n x", b"chunked\n", b"trailers", b"compress", b"chunked x", b"x chunked", b"chunked\x85")
NAMES = (b"Content_Length: %d", b"Content-Length : %d", b"Content-Length\t: %d", b" Content-Length: %d", b"\tContent-Length: %d", b"Content-Length\x00: %d", b"Content-Length\x0b: %d", b"\x00Content-Length: %d",
         b"Content-Length:%d", b"cONTENT-lENGTH: %d", b"Content-Length\r: %d", b"Content-Length\xa0: %d", b"Content-Length", b"Content-Length:", b"Content Length: %d", b"Content-Length;: %d", b"X: x\nContent-Length: %d",
         b"X: x\rContent-Length: %d", b"X: x\r\r\nContent-Length: %d", b"X: \x00\nContent-Length: %d", b"Content-Length: %d\r\n 0", b"Content-Length: 0\r\n%d", b"Content.Length: %d", b":Content-Length: %d",
         b"Transfer_Encoding: chunked", b"Transfer-Encoding : chunked", b"Transfer-Encoding\t: chunked", b" Transfer-Encoding: chunked", b"Transfer-Encoding\x00: chunked", b"Transfer-Encoding\x0b: chunked",
         b"\x0bTransfer-Encoding: chunked", b"Transfer-Encoding\r: chunked", b"Transfer-Encoding\n: chunked", b"Transfer-Encoding\r\n: chunked", b"Transfer-Encoding:\r\n chunked", b"Transfer-Encoding:\n chunked",
         b"X: x\nTransfer-Encoding: chunked", b"X: x\rTransfer-Encoding: chunked", b"X: x\r\r\nTransfer-Encoding: chunked", b"Transfer-Encoding", b"Transfer-Encoding:chunked", b"Transfer.Encoding: chunked",
         b"X-Transfer-Encoding: chunked", b"Transfer-Encoding\xa0: chunked", b"Transfer Encoding: chunked", b"TRANSFER-ENCODING: chunked", b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity",
         b"Transfer-Encoding: gzip", b"Content-Length: %d", b"Content-Length: 0", b"Content-Length: 1", b"Content-Length: %w", b"Content-Length: 7")
SIZES = (b"0x%x", b"0X%x", b"+%x", b"-%x", b" %x", b"\t%x", b"%x ", b"%x\t", b"%x  ", b"%X", b"0%x", b"00000000000000%x", b"0000000000000000000000%x", b"%x\x00", b"%x,", b"%x_", b"0_%x", b"%x.0", b"%xg", b"%x h",
         b"10000000000000000%x", b"8000000000000000", b"7fffffffffffffff", b"ffffffffffffffff", b"10000000000000027", b"100000027", b"80000000", b"", b"g", b'"%x"', b"%x\r", b"\n%x", b"\r\n%x", b"%x\x0b", b"%x\xa0", b"\x0b%x")
EXTENSIONS = (b";", b";a", b";a=b", b' ; a = "b"', b';a="x;y"', b';a="\r\n"', b";a\n", b";a\nb", b";a\rb", b";a\x00b", b";\r", b" ;a", b"\t;a", b";a=\xff", b";" + b"e" * 300, b";a\r\n", b";a;a;a", b"; \x7f", b";\n")
ENDS = (b"\n", b"\r", b"", b"\r\r\n", b"\n\r\n", b"\r\n\r\n", b"x\r\n", b" \r\n", b"\x00\r\n", b"\r\n ", b"\n\n")
LASTS = (b"00", b"0000000000000000000000", b"0 ", b" 0", b"+0", b"-0", b"0x0", b"0;a", b"0;a=b", b"0\t", b"0\x00", b"0,", b"", b"0;a\nb", b"0;a\rb", b"0x", b"00x", b"0;\n")
TRAILERS = (b"X-T: t\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: evil.test\r\n", b"nocolon\r\n", b"X: a\r\n b\r\n", b"X: a\n", b"X: a\rb\r\n", b": x\r\n", b"X : y\r\n", b"X: \x00\r\n", b" X: y\r\n",
            b"X: a\n\n", b"X: a\r\r\n", b"X: a\n\r\n", b"Connection: close\r\n", b"X_Y: z\r\n", b"\xe9: z\r\n", b"X: a\nContent-Length: 0\r\n")
LINES = (b"X: y\r\n folded", b"X: y\r\n\tfolded", b"X: y\n folded", b"X:\r\n \r\n folded", b"nocolon", b": empty", b"X Y: z", b"X\x00: y", b"X: a\x00b", b"X: a\rb", b"X: a\nb", b"X: a\x7fb", b"X: a\x01b", b"X: \xe9", b"\xe9: y",
         b"X(: y", b"X_Y: z", b'"X": y', b"X@Y: z", b"X: y\r", b"X: y\r\n\r", b"\r", b"\rX: y", b"\x0bX: y", b"X: y\x0b", b"X:", b"X: " + b"y" * 5000, b"Connection: Content-Length", b"Connection: Transfer-Encoding",
         b"Connection: close, Content-Length", b"Connection: Host", b"Connection: keep-alive, X", b"Connection: close", b"Connection: keep-alive", b"Connection: close\r\nConnection: keep-alive", b"Connection: clos\x00e",
         b"Connection: Upgrade\r\nUpgrade: websocket", b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__", b"Upgrade: h2c", b"Expect: 100-continue", b"Expect: 100-Continue", b"Expect: x",
         b"Expect: 100-continue, x", b"Expect : 100-continue", b"Expect: 100-continue\r\nExpect: 100-continue", b"Keep-Alive: 300", b"TE: chunked", b"TE: trailers\r\nConnection: TE", b"Trailer: Content-Length",
         b"Proxy-Connection: close", b"Max-Forwards: 0", b"Range: bytes=0-0", b"X-HTTP-Method-Override: GET", b"Content-Encoding: gzip", b"Content-Type: multipart/form-data; boundary=x", b"Transfer-Encoding\r\n\r\n")
HOSTS = (b"Host: b.test", b"Host:", b"Host: a test", b"Host: a.test, b.test", b"Host: a.test@b.test", b"Host: b.test@a.test", b"Host: a.test\x00", b"Host: a.test:80:80", b"Host: a.test/x", b"Host: a.test?x", b"Host: a.test#x",
         b"Host : a.test", b" Host: a.test", b"Host: a.test\r\n b.test", b"Host: a.test\tb", b"Host: [::1", b"Host: [::1]", b"Host: a_b.test", b"Host: a..test", b"Host: a.test.", b"Host: a\\b", b"Host: %61.test", b"Host: \xe9.test",
         b"Host: a.test:x", b"Host: a.test:", b"Host: a.test:99999", b"X: y", b"H\x00ost: a.test", b"Host\x00: a.test", b"Host:\ta.test", b"Host: a.test\rHost: b.test", b"Host: a.test\nHost: b.test", b"Host: 127.1", b"Host: -")

TABLE = {
    **instead("framing", *(b"Content-Length: " + value for value in LENGTHS), *(b"Transfer-Encoding: " + value for value in CODINGS)),
    **field("framing", *NAMES), **before("framing", *NAMES),
    **field("framing", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x"),
    **attribute("size", *SIZES), **attribute("extension", *EXTENSIONS), **attribute("size_end", *ENDS), **attribute("data_end", *ENDS),
    **attribute("last", *LASTS), **attribute("last_end", *ENDS), **attribute("trailers", *TRAILERS), **attribute("body_end", *ENDS),
    **attribute("lead", b"\r\n", b"\n", b"\r", b"\r\n\r\n", b" ", b"\t", b"\x00", b"\r\r\n", b"\xef\xbb\xbf", b"X\r\n", b"\r\n \r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    **attribute("method", b"GET", b"DELETE", b"TRACE", b"OPTIONS", b"PUT", b"get", b"Post", b"G\x00T", b"G\x01T", b"G(T", b"POST\x00", b"POST:", b"P\rT", b"", b"B@D", b"LONGMETHODNAME", b"X-Y", b"GET\xa0", b"P_T", b"P1"),
    **attribute("before_target", b"  ", b"\t", b"", b"\x0b", b"\xa0", b"\r ", b"\n", b"\r\n"),
    **attribute("after_target", b"  ", b"\t", b" \t", b"\x0b", b" x ", b"\r ", b"\n", b"\r\n", b"\x00 "),
    **attribute("version", b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/0.9", b"", b"HTTP/1.01", b"HTTP/01.1", b"http/1.1", b"HTTP/1.1 ", b"HTTP/1.1\t", b"HTTP/ 1.1", b"HTTP/1,1", b"HTTP/11", b"HTTP/1.", b"HTTP/1.1x", b"HTTP/1.1\x00",
                b"HTTP/1.10", b"HTTP/3.0", b"HTTP/1.1\r", b"HTTPS/1.1", b"XTTP/1.1", b"HTTP/1.9", b"HTTP/1", b"HTTP/1.1 HTTP/1.1", b"HTTP/+1.1"),
    **attribute("line_end", b"\n", b"\r", b"\r\r\n", b"\n\r\n", b"\r\n ", b"\r\n\t", b"\r\n \r\n", b"\n\n", b"\r\n\r", b" \r\n"),
    **attribute("eol", b"\n", b"\r", b"\r\r\n", b"\n\r", b" \r\n", b"\x00\r\n", b"\x0b\r\n"),
    **attribute("end", b"\n", b"\r", b"\r\r\n", b" \r\n", b"\t\r\n", b"\x00\r\n", b"\r \n", b"\r\n\r\n", b"\n\r\n", b"\n\n", b"\x0b\r\n", b"."),
    **field("fields", *LINES), **before("host", *LINES[:28]),
    **field("host", *HOSTS), **instead("host", *HOSTS), "host: none": lambda draft: setattr(draft, "host", []),
    **targets(b"http://a.test%s", b"http://b.test%s", b"HTTP://a.test%s", b"https://a.test%s", b"http://%s", b"http:%s", b"http://u@a.test%s", b"http://a.test:80%s", b"http://a.test?%s", b"http://a.test#%s", b"ftp://a.test%s", b"/%s", b"//b.test%s",
              b"%s b", b"%s\tb", b"%s\x00b", b"%s\x7f", b"%s\x01", b"%s\xe9", b"%s#frag", b"%s?a b", b"%s?\xff", b"%s%%00", b"%s%%0d%%0aX:y", b"%s%%0a", b"%s%%", b"%s%%zz", b"%s/../x", b"%s/%%2e%%2e/x", b"%s/..%%2fx", b"*%s", b"*", b"a.test:80%s",
              b"%s HTTP/1.1", b"%s\\x", b"%s?a=HTTP/1.1", b"%s\r\nX: y", b"%s\nX: y", b"%s\rX", b"%s|<>", b"%s;a", b"%s//x", b"%s%%2f", b"x%s"),
    **attribute("pieces", 2, 3, 7),
    "body: empty": lambda draft: setattr(draft, "body", b""),
    "body: ends in CRLF": lambda draft: setattr(draft, "body", draft.body + b"\r\n"),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A request by name."""

    framing: str
    oddities: tuple = ()

    def __str__(self):
        return "; ".join((self.framing, *self.oddities))

    def places(self):
        """Where it is asked for."""
        return fronts.PLACES

    def beside(self, place, weir, others):
        """Faults beside other servers."""
        return judge.beside(place, weir, others)

    def drafted(self, place):
        """The draft for a place, `/up/7`."""
        place = place.encode()
        hidden = b"GET " + place + b"/hidden HTTP/1.1\r\nHost: a.test\r\n\r\n"
        draft = Draft(body=b"" if self.framing == "none" else hidden, place=place, target=place)
        if self.framing == "none":
            draft.method = b"GET"
        if self.framing in ("length", "both"):
            draft.framing.append(b"Content-Length: %d")
        if self.framing in ("chunked", "both"):
            draft.framing.append(b"Transfer-Encoding: chunked")
            draft.chunked = True
        for name in self.oddities:
            TABLE[name](draft)
        return draft

    def stream(self, place):
        """All that a client sends, in the pieces in which it does: the request, then two others."""
        draft = self.drafted(place)
        data = draft.bytes()
        after = b"GET %s/after HTTP/1.1\r\nHost: a.test\r\n\r\n" % place.encode()
        last = b"GET %s/last HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n" % place.encode()
        step = max(-(-len(data) // draft.pieces), 1)
        pieces = [data[at:at + step] for at in range(0, len(data), step)]
        return [*pieces[:-1], pieces[-1] + after + last]


def parsed(text):
    """A case from its name."""
    framing, *names = text.strip().split("; ")
    if framing not in FRAMINGS or any(name not in TABLE for name in names):
        raise ValueError(f"no such request: {text}")
    return Case(framing, tuple(names))


def singles():
    """Each oddity with each framing."""
    return [Case(framing, names) for framing in FRAMINGS for names in [(), *((name,) for name in TABLE)]]


def drawn(random):
    """A case with two or three oddities."""
    return Case(random.choice(FRAMINGS), tuple(sorted(random.sample(list(TABLE), random.choice((2, 2, 3))))))
