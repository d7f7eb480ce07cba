"""Hostile servers behind the measured one, and clients that ask for what they send.

Each behaviour is what a server sends on a connection once a request has come: something once, and then something again and
again until the other side closes.
"""

import socket
import threading
import time


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def record(kind, content=b"", padding=0):
    return bytes([1, kind, 0, 1]) + len(content).to_bytes(2, "big") + bytes([padding, 0]) + content + bytes(padding)


# :status 103 without a table, and a field of 3,900 bytes that enters it
FILLING = frame(1, 4, 1, b"\x08\x03103\x40\x04bomb\x7f\xbd\x1d" + b"x" * 3900)
# :status 103 and the field 250 times
BOMB = frame(1, 4, 1, b"\x08\x03103" + b"\xbe" * 250)
SETTINGS = frame(4, 0, 0)
HEAD = frame(1, 4, 1, b"\x88")

# The directive that passes requests on, what the server sends first, and what it repeats.
BEHAVIOURS = {
    "from_http_interim": ("proxy_pass http://{}", b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 500),
    "from_grpc_interim": ("grpc_pass {}", SETTINGS, frame(1, 4, 1, b"\x08\x03100") * 500),
    "from_grpc_bomb": ("grpc_pass {}", SETTINGS + FILLING, BOMB * 50),
    "from_grpc_goaways": ("grpc_pass {}", SETTINGS, frame(7, 0, 0, b"\x7f\xff\xff\xff" + bytes(4)) * 500),
    "from_grpc_bytes": ("grpc_pass {}", SETTINGS + HEAD, frame(0, 0, 1, b"x") * 500),
    "from_fastcgi_messages": ("fastcgi_pass {}", record(6, b"A: b\r\n\r\nhi"), record(7, b"x") * 4000),
    "from_fastcgi_padding": ("fastcgi_pass {}", record(6, b"A: b\r\n\r\n"), record(6, b"y", 255) * 200),
    "from_fastcgi_excess": ("fastcgi_pass {}", record(6, b"Content-Length: 1\r\n\r\nx"), record(6, b"y") * 4000),
}


class Hostile:
    """A server that behaves so."""

    def __init__(self, name):
        directive, self.first, self.again = BEHAVIOURS[name]
        self.listener = socket.create_server(("127.0.0.1", 0))
        address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.location = f"location /hostile {{ {directive.format(address)}; }}"

    def accept(self):
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(link,), daemon=True).start()

    def serve(self, link):
        with link:
            try:
                link.recv(4096)
                # What follows the request is read so that its sender never waits.
                threading.Thread(target=drain, args=(link,), daemon=True).start()
                link.sendall(self.first)
                while True:
                    link.sendall(self.again)
            except OSError:
                pass

    def close(self):
        self.listener.close()


def drain(link):
    try:
        while link.recv(65536):
            pass
    except OSError:
        pass


def ask(port, over):
    """A request for what the hostile server sends; whether it ended by itself."""
    with socket.create_connection(("127.0.0.1", port), timeout=0.5) as link:
        link.sendall(b"GET /hostile HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        while not over.is_set():
            try:
                if not link.recv(65536):
                    time.sleep(0.01)
                    return True
            except TimeoutError:
                pass
    return False
