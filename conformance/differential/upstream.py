"""The upstream servers of the harness: HTTP, FastCGI, SCGI and uwsgi, all with the same behaviours, and what they received.

A behaviour is named by `u=NAME` in the query. Every connection is of one of the two compared servers: it came to the
address of that one, so that what each has sent is known without a word in the request.
"""

import asyncio
import gzip
import re
import struct
import threading

OK = "Content-Type: text/plain\r\n"
VALIDATORS = 'ETag: "up"\r\nLast-Modified: Tue, 01 Jan 2019 00:00:00 GMT\r\n'
TEXT = b"upstream page a a\n"
HTML = b"<html><body>page a</body></html>\n"


class Reply:
    """A response before it is framed: status, fields, body; `raw` replaces all of it."""

    def __init__(self, status="200 OK", fields=OK, body=TEXT, framing="length", raw=None):
        self.status, self.fields, self.body, self.framing, self.raw = status, fields, body, framing, raw


def reply(name, address):
    """The reply of a behaviour. `address` is where the upstream server is."""
    plain = {
        "chunked": Reply(framing="chunked"),
        "close": Reply(framing="close"),
        "head": Reply(fields=OK + "X-Up: h\r\n"),
        "304": Reply("304 Not Modified", VALIDATORS, b"", "none"),
        "204": Reply("204 No Content", "X-Up: n\r\n", b"", "none"),
        "charset": Reply(fields="Content-Type: text/plain;charset=utf-8\r\n"),
        "html": Reply(fields="Content-Type: text/html\r\nX-Up: html\r\n", body=HTML),
        "vary": Reply(fields=OK + "Cache-Control: max-age=60\r\nVary: Accept\r\nVary: *\r\n"),
        "expires": Reply(fields=OK + "Expires: Wed, 18 AUG 2050 07:28:00 GMT\r\n"),
        "cookie": Reply(fields=OK + "Set-Cookie: one=1; path=/up; domain=up.test\r\nSet-Cookie: two=2; Path=/; Secure\r\n"),
        "accel": Reply(fields=OK + "X-Accel-Redirect: /t/page.txt\r\nX-Up: kept\r\nSet-Cookie: a=b\r\n"),
        "accelexpires": Reply(fields=OK + "X-Accel-Expires: 60\r\nX-Accel-Buffering: no\r\nX-Accel-Charset: koi8-r\r\n"),
        "cached": Reply(fields=OK + VALIDATORS + "Cache-Control: max-age=60\r\nX-Up: c\r\nAccept-Ranges: bytes\r\n"),
        "404": Reply("404 Not Found", OK + "X-Up: 404\r\n", b"upstream 404\n"),
        "500": Reply("500 Oops", OK, b"upstream 500\n"),
        "503": Reply("503 Service Unavailable", OK + "Retry-After: 5\r\n", b"upstream 503\n"),
        "redirect": Reply("302 Found", f"Location: http://{address}/up/x\r\nRefresh: 5; url=http://{address}/r\r\n", b""),
        "location": Reply("201 Created", f"Location: /relative\r\n{OK}", b"made\n"),
        "gzip": Reply(fields=OK + "Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n", body=gzip.compress(TEXT * 20, mtime=0)),
        "ssi": Reply(fields="Content-Type: text/html\r\n" + VALIDATORS, body=b'<p><!--#echo var="uri" --><!--#include virtual="/side" --></p>\n'),
        "big": Reply(fields=OK, body=b"0123456789abcdef" * 8192),
        "double": Reply(fields=OK + "X-Up: 1\r\nX-Up: 2\r\nCache-Control: private\r\nCache-Control: max-age=1\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nServer: other\r\n"),
        "hop": Reply(fields=OK + "Connection: X-Up\r\nX-Up: hop\r\nKeep-Alive: timeout=5\r\nUpgrade: h2c\r\nTE: x\r\n"),
        "control": Reply(fields=OK + "X-Up: a\x01b\r\n"),
    }
    return plain.get(name) or raw_replies(name) or Reply(fields=OK + "X-Up: ok\r\n")


def raw_replies(name):
    """Replies that no framing makes."""
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
    texts = {
        "early": head + "Content-Length: 100\r\n\r\nonly ten.\n",
        "101": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        "badfield": head + "no colon here\r\nX-Up: b\r\nContent-Length: 3\r\n\r\nbad",
        "empty": "",
        "trailer": head + "Transfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n4\r\npage\r\n0\r\nX-T: t\r\n\r\n",
        "interim": "HTTP/1.1 103 Early Hints\r\nLink: </s>; rel=preload\r\n\r\n" + head + "Content-Length: 4\r\n\r\npage",
        "bareline": "HTTP/1.1 200 OK\nContent-Type: text/plain\nContent-Length: 4\n\npage",
        "old": "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nold page",
        "badlength": head + "Content-Length: 4x\r\n\r\npage",
        "badchunk": head + "Transfer-Encoding: chunked\r\n\r\nzz\r\npage\r\n0\r\n\r\n",
    }
    return Reply(raw=texts[name].encode("latin1")) if name in texts else None


class Upstream:
    """All servers at both addresses, in a thread; `received` is what came, for each address."""

    KINDS = ("UP", "FCGI", "SCGI", "UWSGI")

    def __init__(self, addresses, ports):
        self.addresses = addresses
        self.ports = dict(zip(self.KINDS, ports))
        self.received = {address: [] for address in addresses}
        self.loop = asyncio.new_event_loop()
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self.ready.wait(10)

    def _run(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._listen())
        self.ready.set()
        self.loop.run_forever()

    async def _listen(self):
        handlers = {"UP": serve_http, "FCGI": serve_fastcgi, "SCGI": serve_scgi, "UWSGI": serve_uwsgi}
        for address in self.addresses:
            for kind, port in self.ports.items():
                await asyncio.start_server(self._handler(handlers[kind], address, f"{address}:{self.ports['UP']}"), address, port, limit=1 << 22)

    def _handler(self, serve, address, name):
        async def handle(reader, writer):
            try:
                await asyncio.wait_for(serve(reader, writer, self.received[address], name), 20)
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, ValueError, struct.error):
                pass
            finally:
                writer.close()
        return handle

    def take(self, address):
        """What came from one server since the last call."""
        found = self.received[address][:]
        del self.received[address][:len(found)]
        return found

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)


def behaviour(target):
    """The name in `u=NAME`."""
    found = re.search(r"[?&]u=(\w+)", target)
    return found[1] if found else "ok"


async def serve_http(reader, writer, received, name):
    """Requests of one connection, until it ends or a behaviour ends it."""
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        line, *fields = head.decode("latin1")[:-4].split("\r\n")
        body = await read_body(reader, fields)
        method, target = (line.split(" ") + [""])[:2]
        received.append({"line": line, "fields": fields, "body": body})
        closes = http_reply(writer, reply(behaviour(target), name), method, line, fields)
        await writer.drain()
        if closes:
            return


async def read_body(reader, fields):
    """The body that a request's fields announce."""
    values = {field.partition(":")[0].lower(): field.partition(":")[2].strip() for field in fields}
    if "chunked" in values.get("transfer-encoding", "").lower():
        body = b""
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += (await reader.readexactly(size + 2))[:-2]
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
        return b"chunked:" + body
    return await reader.readexactly(int(values.get("content-length") or 0))


def http_reply(writer, what, method, line, fields):
    """Writes a reply as HTTP; true where the connection ends after it."""
    if what.raw is not None:
        writer.write(what.raw)
        return True
    old = line.endswith("HTTP/1.0")
    framing = "close" if what.framing == "chunked" and old else what.framing
    length = {"length": f"Content-Length: {len(what.body)}\r\n", "chunked": "Transfer-Encoding: chunked\r\n"}.get(framing, "")
    body = what.body if framing != "chunked" else b"%x\r\n%s\r\n0\r\n\r\n" % (len(what.body), what.body)
    closes = old or framing == "close" or any(re.match(r"(?i)connection:.*close", field) for field in fields)
    connection = "Connection: close\r\n" if closes else ""
    head = f"HTTP/1.1 {what.status}\r\n{what.fields}{length}{connection}\r\n".encode("latin1")
    writer.write(head + (b"" if method == "HEAD" else body))
    return closes


def cgi_reply(what, method):
    """A reply in CGI's way: `Status` in place of the line."""
    if what.raw is not None:
        head = what.raw.replace(b"HTTP/1.1 ", b"Status: ", 1).replace(b"HTTP/1.0 ", b"Status: ", 1)
        return head if head.startswith(b"Status: 200") else b"Status: 200 OK\r\nX-Up: raw\r\n\r\n" + what.raw
    status = "" if what.status == "200 OK" else f"Status: {what.status}\r\n"
    length = f"Content-Length: {len(what.body)}\r\n" if what.framing == "length" else ""
    return f"{status}{what.fields}{length}\r\n".encode("latin1") + (b"" if method == "HEAD" else what.body)


def cgi_received(kind, parameters, body):
    """What is kept of a request with parameters, in their order."""
    fields = [f"{name}: {value}" for name, value in parameters]
    return {"line": kind, "fields": fields, "body": body}


def cgi_answer(parameters, name):
    """The bytes that go back for these parameters."""
    values = dict(parameters)
    target = values.get("REQUEST_URI") or "?" + values.get("QUERY_STRING", "")
    return cgi_reply(reply(behaviour(target), name), values.get("REQUEST_METHOD", "GET"))


async def serve_fastcgi(reader, writer, received, name):
    """FastCGI's responder, one request at a time on a connection."""
    while True:
        parameters, body, kept, number = b"", b"", False, 1
        while True:
            _, kind, number, length, padding = struct.unpack("!BBHHBx", await reader.readexactly(8))
            content = (await reader.readexactly(length + padding))[:length]
            if kind == 1:
                kept = bool(content[2] & 1)
            elif kind == 4:
                parameters += content
            elif kind == 5 and content:
                body += content
            elif kind == 5:
                break
        pairs = fastcgi_pairs(parameters)
        received.append(cgi_received("fastcgi", pairs, body))
        out = cgi_answer(pairs, name)
        # In one write: where the end comes apart, curl may be gone by then (it has all of Content-Length).
        records = b""
        for start in range(0, len(out), 65528):
            piece = out[start:start + 65528]
            records += struct.pack("!BBHHBx", 1, 6, number, len(piece), 0) + piece
        writer.write(records + struct.pack("!BBHHBx", 1, 3, number, 8, 0) + b"\0" * 8)
        await writer.drain()
        if not kept:
            return


def fastcgi_pairs(data):
    """Names and values of FastCGI's parameters."""
    found, at = [], 0
    while at < len(data):
        lengths = []
        for _ in range(2):
            wide = data[at] & 0x80
            lengths.append(struct.unpack_from("!I", data, at)[0] & 0x7FFFFFFF if wide else data[at])
            at += 4 if wide else 1
        name, value = data[at:at + lengths[0]], data[at + lengths[0]:at + sum(lengths)]
        found.append((name.decode("latin1"), value.decode("latin1")))
        at += sum(lengths)
    return found


async def serve_scgi(reader, writer, received, name):
    """SCGI: a netstring of names and values, then the body."""
    size = int((await reader.readuntil(b":"))[:-1])
    words = (await reader.readexactly(size + 1))[:-2].decode("latin1").split("\0")
    pairs = list(zip(words[::2], words[1::2]))
    body = await reader.readexactly(int(dict(pairs).get("CONTENT_LENGTH") or 0))
    received.append(cgi_received("scgi", pairs, body))
    writer.write(cgi_answer(pairs, name))
    await writer.drain()


async def serve_uwsgi(reader, writer, received, name):
    """uwsgi: modifiers, a size, names and values with 16-bit lengths, then the body."""
    modifier1, size, modifier2 = struct.unpack("<BHB", await reader.readexactly(4))
    data, words, at = await reader.readexactly(size), [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<H", data, at)
        words.append(data[at + 2:at + 2 + length].decode("latin1"))
        at += 2 + length
    pairs = list(zip(words[::2], words[1::2]))
    body = await reader.readexactly(int(dict(pairs).get("CONTENT_LENGTH") or 0))
    received.append(cgi_received(f"uwsgi {modifier1} {modifier2}", pairs, body))
    writer.write(cgi_answer(pairs, name))
    await writer.drain()
