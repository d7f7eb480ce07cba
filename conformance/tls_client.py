"""One request over TLS, by HTTP/1.1 or HTTP/2, as `mutual-tls` needs it."""
import dataclasses
import socket
import ssl
import struct

DIGITS = {code: digit for digit, code in enumerate(("00000", "00001", "00010", *(f"{n:06b}" for n in range(25, 32))))}
INDEXED = dict(zip(range(0x88, 0x8F), (200, 204, 206, 304, 400, 404, 500)))
TIMEOUT = 30


@dataclasses.dataclass(frozen=True)
class Response:
    """Status 0: there was none; the text says why."""
    status: int
    text: str
    resumed: bool = False


def context(tls13, http2, certificate=None):
    """What a client of one version, protocol and certificate (a file with its key) is made of."""
    it = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    it.check_hostname, it.verify_mode = False, ssl.CERT_NONE
    it.minimum_version = it.maximum_version = ssl.TLSVersion.TLSv1_3 if tls13 else ssl.TLSVersion.TLSv1_2
    it.set_alpn_protocols(["h2" if http2 else "http/1.1"])
    if certificate:
        it.load_cert_chain(certificate)
    return it


def ask(port, of, name, host, session=None):
    """What `GET /` for `host` brings, with `name` in the handshake, and the session for another connection."""
    try:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT) as plain, \
                of.wrap_socket(plain, server_hostname=name, session=session, suppress_ragged_eofs=True) as to:
            resumed = bool(to.session_reused)
            over = over_http2 if to.selected_alpn_protocol() == "h2" else over_http1
            status, body = over(to, host)
            return Response(status, body.decode("latin1"), resumed), to.session
    except (ssl.SSLError, OSError) as why:
        if isinstance(why, TimeoutError):
            raise
        return Response(0, getattr(why, "reason", None) or type(why).__name__), None


def over_http1(to, host):
    to.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    got = b""
    while piece := read(to):
        got += piece
    if not got:
        return 0, b"closed"
    head, _, body = got.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def read(to):
    """The next bytes; nothing where the connection is at its end, however that came."""
    try:
        return to.recv(65536)
    except (ssl.SSLEOFError, ConnectionResetError):
        return b""


def over_http2(to, host):
    fields = b"\x82\x87\x84\x01" + bytes([len(host)]) + host.encode()
    to.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + frame(1, 5, 1, fields))
    status, body, got = 0, b"", b""
    while piece := read(to):
        got += piece
        while len(got) >= 9 and len(got) >= 9 + int.from_bytes(got[:3], "big"):
            size = int.from_bytes(got[:3], "big")
            kind, flags, stream = got[3], got[4], int.from_bytes(got[5:9], "big")
            payload, got = got[9:9 + size], got[9 + size:]
            if kind == 1:
                status = status_of(payload)
            elif kind == 0:
                body += payload
            elif kind in (3, 7) and stream in (0, 1) and not status:
                return 0, f"frame {kind}, error {int.from_bytes(payload[-4:], 'big')}".encode()
            if stream == 1 and flags & 1 and kind in (0, 1):
                return status, body
    return status, body or b"closed"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def status_of(block):
    """The status of a header block, which is its first field.

    >>> status_of(b"\\x88"), status_of(b"\\x48\\x03421"), status_of(b"\\x3f\\xe1\\x1f\\x08\\x83\\x68\\x4e\\xff")
    (200, 421, 427)
    """
    at = 0
    while block[at] & 0xE0 == 0x20:
        at += 1 if block[at] != 0x3F else 2 + next(n for n, byte in enumerate(block[at + 1:]) if byte < 0x80)
    if block[at] in INDEXED:
        return INDEXED[block[at]]
    size, text = block[at + 1], block[at + 2:]
    if not size & 0x80:
        return int(text[:size])
    bits, status = "".join(f"{byte:08b}" for byte in text[:size & 0x7F]), ""
    while len(status) < 3:
        length = 5 if bits[:5] in DIGITS else 6
        status, bits = status + str(DIGITS[bits[:length]]), bits[length:]
    return int(status)
