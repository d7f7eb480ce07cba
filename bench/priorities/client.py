"""An HTTP/2 client that counts: when each stream's content comes, in which order, and what others had by then.

    python3 client.py ADDRESS PORT CASE [--window BYTES]

Prints one JSON object: `ended`, the order in which streams ended; `other`, for the case's first stream, the bytes of each other
stream when it ended; `seconds`; for `late`, `wait_ms`, from the urgent request to its first and last byte."""

import argparse
import json
import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def text(value):
    value = value.encode()
    return bytes((len(value),)) + value if len(value) < 127 else b"\x7f" + bytes((len(value) - 127,)) + value


def dependency(parent, weight, exclusive=False):
    return struct.pack(">IB", parent | (0x80000000 if exclusive else 0), weight - 1)


class Client:
    def __init__(self, address, port, window):
        self.socket = socket.create_connection((address, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.window, self.next, self.buffer = window, 1, b""
        self.got, self.first, self.ended, self.marks = {}, {}, [], {}
        settings = struct.pack(">HIHI", 2, 0, 4, window)
        self.socket.sendall(PREFACE + frame(4, 0, 0, settings) + frame(8, 0, 0, struct.pack(">I", (1 << 30))))

    def send(self, *frames):
        self.socket.sendall(b"".join(frames))

    def get(self, path, priority=None, depends=None):
        stream, self.next = self.next, self.next + 2
        block = b"\x82\x86\x04" + text(path) + b"\x01" + text("a")
        if priority:
            block += b"\x00" + text("priority") + text(priority)
        flags = 0x5 | (0x20 if depends else 0)
        self.got[stream] = 0
        return stream, frame(1, flags, stream, (depends or b"") + block)

    def read(self, until):
        """Reads until `until()`."""
        while not until():
            more = self.socket.recv(1 << 18)
            if not more:
                raise SystemExit("the server has closed the connection")
            self.buffer += more
            self.frames()

    def frames(self):
        at, credit = 0, 0
        while len(self.buffer) - at >= 9:
            length = int.from_bytes(self.buffer[at:at + 3], "big")
            if len(self.buffer) - at < 9 + length:
                break
            kind, flags = self.buffer[at + 3], self.buffer[at + 4]
            stream = int.from_bytes(self.buffer[at + 5:at + 9], "big")
            payload = self.buffer[at + 9:at + 9 + length]
            at += 9 + length
            if kind == 0:
                self.first.setdefault(stream, time.monotonic())
                self.got[stream] += length
                credit += length
            if kind == 4 and not flags & 1:
                self.send(frame(4, 1, 0))
            if kind == 6 and not flags & 1:
                self.send(frame(6, 1, 0, payload))
            if kind in (3, 7):
                raise SystemExit(f"frame {kind} on {stream}: {payload!r}")
            if kind in (0, 1) and flags & 1:
                self.ended.append((stream, time.monotonic()))
                self.marks[stream] = dict(self.got)
        self.buffer = self.buffer[at:]
        if credit:
            self.send(frame(8, 0, 0, struct.pack(">I", credit)))


def ends(client, count):
    return lambda: len(client.ended) >= count


def pair(client, fields, size="2m"):
    """Two files at once."""
    frames = [client.get(f"/{size}", **field) for field in fields]
    client.send(*(f for _, f in frames))
    client.read(ends(client, len(frames)))
    return frames[0][0]


def late(client):
    """An urgent small file amid a large one."""
    large, first = client.get("/8m", priority="u=7")
    client.send(first)
    client.read(lambda: client.got[large] > 2_000_000)
    before = client.got[large]
    began = time.monotonic()
    urgent, second = client.get("/50k", priority="u=0")
    client.send(second)
    client.read(lambda: urgent in client.marks)
    waits = [client.first[urgent] - began, client.ended[-1][1] - began]
    return {"behind": client.got[large] - before, "wait_ms": [round(wait * 1000) for wait in waits]}


def page(client):
    """A browser's page of 200 objects: a document, 150 images, 10 urgent styles, 39 scripts; at most 100 at a time."""
    document, first = client.get("/50k", priority="u=0, i")
    client.send(first)
    client.read(lambda: client.got[document] > 20_000)
    wanted = ["u=5, i"] * 60 + ["u=0"] * 10 + ["u=1"] * 39 + ["u=5, i"] * 90
    urgent, images = [], []

    def more():
        frames = []
        while wanted and len(client.got) - len(client.ended) < 100:
            priority = wanted.pop(0)
            stream, head = client.get("/20k", priority=priority)
            (images if priority.startswith("u=5") else urgent).append(stream)
            frames.append(head)
        client.send(*frames)

    def all_ended(streams):
        more()
        return not wanted and all(stream in client.marks for stream in streams)

    more()
    client.read(lambda: more() or len(urgent) == 49 and all(stream in client.marks for stream in urgent))
    last = max(at for stream, at in client.ended if stream in urgent)
    behind = sum(client.marks[max(urgent, key=lambda s: list(client.marks).index(s))].get(stream, 0) for stream in images)
    client.read(lambda: all_ended(images))
    return {"behind": behind, "urgent_ms": round((last - client.first[document]) * 1000)}


CASES = {
    "urgency": lambda client: pair(client, [{"priority": "u=7"}, {"priority": "u=0"}][::-1]),
    "urgency-after": lambda client: pair(client, [{"priority": "u=7"}, {"priority": "u=0"}]),
    "incremental": lambda client: pair(client, [{"priority": "u=3, i"}] * 4, "500k"),
    "ordered": lambda client: pair(client, [{"priority": "u=3"}] * 4, "500k"),
    "weights": lambda client: pair(client, [{"depends": dependency(0, 256)}, {"depends": dependency(0, 1)}]),
    "weights-3-1": lambda client: pair(client, [{"depends": dependency(0, 240)}, {"depends": dependency(0, 80)}]),
    "dependency": lambda client: pair(client, [{}, {"depends": dependency(1, 256)}]),
    "late": late,
    "page": page,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--window", type=int, default=6 << 20)
    args = parser.parse_args()
    client = Client(args.address, args.port, args.window)
    began = time.monotonic()
    result = CASES[args.case](client)
    if not isinstance(result, dict):
        first = client.ended[0][0]
        result = {"first": first, "behind": sum(v for k, v in client.marks[first].items() if k != first)}
    result["seconds"] = round(time.monotonic() - began, 2)
    result["ended"] = [stream for stream, _ in client.ended][:12]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
