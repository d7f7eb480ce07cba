"""As much of a MongoDB as lua-resty-mongol's README asks for: documents in memory, over the wire protocol of MongoDB up to 5 (OP_INSERT,
OP_QUERY, OP_GET_MORE, OP_DELETE). Selectors compare fields with values; a query for several documents gives two at a time."""
import socketserver
import struct
import threading

REPLY, INSERT, QUERY, GET_MORE, DELETE = 1, 2002, 2004, 2005, 2006


def document(data, at):
    """The elements of a BSON document: {name: (type, bytes)}, and where it ends."""
    size = struct.unpack_from("<i", data, at)[0]
    end, at, elements = at + size, at + 4, {}
    while data[at]:
        kind = data[at]
        close = data.index(0, at + 1)
        name, at = data[at + 1:close].decode(), close + 1
        width = {1: 8, 7: 12, 8: 1, 9: 8, 10: 0, 16: 4, 18: 8}.get(kind)
        if width is None:
            length = struct.unpack_from("<i", data, at)[0]
            width = length if kind in (3, 4) else length + 4 if kind == 2 else length + 5
        elements[name] = (kind, data[at:at + width])
        at += width
    return elements, end


def made(**values):
    """A BSON document of numbers, truths and texts."""
    body = b""
    for name, value in values.items():
        key = name.encode() + b"\0"
        if isinstance(value, bool):
            body += b"\x08" + key + bytes([value])
        elif isinstance(value, (int, float)):
            body += b"\x01" + key + struct.pack("<d", value)
        else:
            body += b"\x02" + key + struct.pack("<i", len(value) + 1) + value.encode() + b"\0"
    return struct.pack("<i", len(body) + 5) + body + b"\0"


class Connection(socketserver.BaseRequestHandler):
    def handle(self):
        self.last, self.rest = 0, {}
        while head := self.exactly(16):
            length, identity, _, opcode = struct.unpack("<iiii", head)
            self.message(identity, opcode, self.exactly(length - 16))

    def exactly(self, count):
        data = b""
        while len(data) < count:
            part = self.request.recv(count - len(data))
            if not part:
                return None
            data += part
        return data

    def message(self, identity, opcode, data):
        close = data.index(0, 4)
        name, at = data[4:close].decode(), close + 1
        stored = self.server.collections.setdefault(name, [])
        if opcode == INSERT:
            self.last = 0
            while at < len(data):
                _, end = document(data, at)
                stored.append(data[at:end])
                at = end
        elif opcode == DELETE:
            selector, _ = document(data, at + 4)
            found = [each for each in stored if matches(each, selector)]
            self.last = len(found)
            stored[:] = [each for each in stored if each not in found]
        elif opcode == QUERY:
            _, count = struct.unpack_from("<ii", data, at)
            selector, _ = document(data, at + 8)
            if name.endswith(".$cmd"):
                self.reply(identity, [self.command(name.removesuffix("$cmd"), selector)], 0)
                return
            found = [each for each in stored if matches(each, selector)]
            if count in (1, -1):
                self.reply(identity, found[:1], 0)
            else:
                self.rest[7] = found[2:]
                self.reply(identity, found[:2], 7 if found[2:] else 0)
        elif opcode == GET_MORE:
            self.reply(identity, self.rest.pop(7, []), 0)

    def command(self, database, asked):
        name = next(iter(asked))
        if name == "getlasterror":
            return made(ok=1, n=self.last)
        if name == "count":
            return made(ok=1, n=len(self.server.collections.get(database + asked["count"][1][4:-1].decode(), [])))
        if name.lower() == "ismaster":
            return made(ok=1, ismaster=True)
        return made(ok=0, errmsg=f"no such command: {name}")

    def reply(self, to, documents, cursor):
        body = struct.pack("<iqii", 8, cursor, 0, len(documents)) + b"".join(documents)
        self.request.sendall(struct.pack("<iiii", 16 + len(body), 1, to, REPLY) + body)


def matches(each, selector):
    elements, _ = document(each, 0)
    return all(elements.get(name) == value for name, value in selector.items())


def start():
    """A server of its own; its port."""
    socketserver.ThreadingTCPServer.daemon_threads = True
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection)
    server.collections = {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]
