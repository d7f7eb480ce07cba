"""Requests over HTTP/3 by aioquic, for end-to-end tests.

Reads a list of steps as JSON from standard input and writes one line of JSON for each response:

    {"port": 443, "name": "a.example", "steps": [[request, ...], ...], "sessions": 1}

The requests of a step are sent at once, each on a stream of its own; the next step begins when all of them have ended. A request:

    {"method": "GET", "path": "/", "authority": "…", "headers": [["a", "b"]], "body": "…", "repeat": 1, "end": true,
     "trailers": [...], "reset": false, "stop": false, "stall": false}

A response: {"step": 0, "at": 0, "status": 200, "headers": {...}, "length": 3, "body": "…" or null, "sum": "sha256", "ended": true,
"reset": code or null}. Bodies beyond 4 KB come as their length and sum alone; `behind` is what all other responses had when this
one ended. The window of a stream with "stall" stays as it is. `is_reset`: a stateless reset has come. With "await" in the plan the second step waits for a file of that name.
"""

import asyncio
import hashlib
import json
import os
import ssl
import sys
import time

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset

LONGEST = 4096


class Response:
    def __init__(self):
        self.status, self.headers, self.trailers = None, {}, None
        self.length, self.sum, self.body = 0, hashlib.sha256(), b""
        self.interim, self.ended, self.reset, self.took = [], False, None, None
        self.done, self.behind = asyncio.get_running_loop().create_future(), None

    def take(self, event):
        if isinstance(event, HeadersReceived):
            fields = {name.decode(): value.decode("latin-1") for name, value in event.headers}
            status = fields.pop(":status", None)
            if status is None:
                self.trailers = fields
            elif status.startswith("1"):
                self.interim.append([int(status), fields])
            else:
                self.status, self.headers = int(status), fields
        elif isinstance(event, DataReceived):
            self.length += len(event.data)
            self.sum.update(event.data)
            if self.length <= LONGEST:
                self.body += event.data
        if event.stream_ended:
            self.ended = True
            self.finish()

    def finish(self):
        if not self.done.done():
            self.done.set_result(None)


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http, self.responses, self.closed = H3Connection(self._quic), {}, None
        self.is_reset, self.stalled = False, set()
        limits = self._quic._write_stream_limits

        def write_limits(builder, space, stream):
            if stream.stream_id not in self.stalled:
                limits(builder, space, stream)

        self._quic._write_stream_limits = write_limits

    def datagram_received(self, data, addr):
        # What aioquic does not look for: a stateless reset (RFC 9000 section 10.3).
        known = [self._quic._peer_cid, *self._quic._peer_cid_available]
        if any(cid.stateless_reset_token and data.endswith(cid.stateless_reset_token) for cid in known):
            self.is_reset = True
            for response in self.responses.values():
                response.finish()
        super().datagram_received(data, addr)

    def quic_event_received(self, event):
        for http in self.http.handle_event(event):
            response = self.responses.get(getattr(http, "stream_id", None))
            if response is not None:
                response.take(http)
                if response.ended and response.behind is None:
                    response.behind = sum(it.length for it in self.responses.values() if it is not response)
        if isinstance(event, StreamReset) and event.stream_id in self.responses:
            response = self.responses[event.stream_id]
            response.reset = event.error_code
            response.finish()
        if isinstance(event, ConnectionTerminated):
            self.closed = event
            for response in self.responses.values():
                response.finish()

    def send(self, request, authority):
        stream = self._quic.get_next_available_stream_id()
        response = self.responses[stream] = Response()
        if request.get("stall"):
            self.stalled.add(stream)
        body = request.get("body", "").encode() * request.get("repeat", 1)
        has_body = bool(body) or not request.get("end", True)
        headers = [
            (b":method", request.get("method", "GET").encode()),
            (b":scheme", b"https"),
            (b":authority", request.get("authority", authority).encode()),
            (b":path", request.get("path", "/").encode()),
        ] + [(name.encode(), value.encode()) for name, value in request.get("headers", [])]
        trailers = request.get("trailers")
        self.http.send_headers(stream, headers, end_stream=not has_body and trailers is None)
        if has_body:
            self.http.send_data(stream, body, end_stream=request.get("end", True) and trailers is None)
        if trailers is not None:
            self.http.send_headers(stream, [(n.encode(), v.encode()) for n, v in trailers], end_stream=True)
        if request.get("reset"):
            self._quic.reset_stream(stream, 0x10C)
        if request.get("stop"):
            self._quic.stop_stream(stream, 0x10C)
        if request.get("reset") or request.get("stop"):
            response.finish()
        return response


async def session(plan, ticket):
    tickets = []
    configuration = QuicConfiguration(alpn_protocols=plan.get("alpn", H3_ALPN), is_client=True)
    configuration.verify_mode = ssl.CERT_NONE
    configuration.server_name = plan.get("name")
    configuration.session_ticket = ticket
    configuration.max_data = configuration.max_stream_data = plan.get("window", 16 << 20)
    configuration.idle_timeout = 30
    if "certificate" in plan:
        configuration.load_cert_chain(*plan["certificate"])
    early = ticket is not None and plan.get("early", False)
    opening = connect(
        plan.get("host", "127.0.0.1"), plan["port"], configuration=configuration, create_protocol=Client,
        session_ticket_handler=tickets.append, wait_connected=not early,
    )
    async with opening as client:
        authority = plan.get("name") or "localhost"
        for number, step in enumerate(plan["steps"]):
            begun = time.monotonic()
            responses = [client.send(request, authority) for request in step]
            client.transmit()
            await asyncio.wait_for(asyncio.gather(*[it.done for it in responses]), plan.get("patience", 60))
            for at, it in enumerate(responses):
                write(number, at, it, client, time.monotonic() - begun)
            await asyncio.sleep(plan.get("pause", 0))
            while number == 0 and "await" in plan and not os.path.exists(plan["await"]):
                await asyncio.sleep(0.02)
        if plan.get("linger"):
            await asyncio.wait_for(client.wait_closed(), plan["linger"])
            closed = client.closed
            print(json.dumps({"closed": closed.error_code, "reason": closed.reason_phrase}), flush=True)
    return tickets[-1] if tickets else None


def write(step, at, it, client, took):
    body = it.body.decode("latin-1") if it.length <= LONGEST else None
    closed = client.closed and client.closed.error_code
    line = {"step": step, "at": at, "status": it.status, "headers": it.headers, "trailers": it.trailers, "interim": it.interim}
    line |= {"length": it.length, "body": body, "sum": it.sum.hexdigest(), "ended": it.ended, "reset": it.reset}
    line |= {"closed": closed, "resumed": client._quic.tls.session_resumed, "took": took}
    line |= {"behind": it.behind, "is_reset": client.is_reset}
    line |= {"early": client._quic.tls.early_data_accepted}
    print(json.dumps(line), flush=True)


async def main():
    plan, ticket = json.load(sys.stdin), None
    for _ in range(plan.get("sessions", 1)):
        ticket = await session(plan, ticket)


try:
    asyncio.run(main())
except (ConnectionError, asyncio.TimeoutError) as error:
    print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
