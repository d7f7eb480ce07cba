#!/usr/bin/env python3
"""A web server in Python, by ctypes: its handlers run on Python's own thread, in asyncio's loop.

    ./hello.py 127.0.0.1:8080
    curl http://127.0.0.1:8080/hello?you
    curl http://127.0.0.1:8080/slow         waits without a thread
    curl -d words http://127.0.0.1:8080/count

The library is found as libweir.so.0, or where WEIR_LIBRARY says.
"""

import asyncio
import ctypes
import os
import signal
import sys

weir = ctypes.CDLL(os.environ.get("WEIR_LIBRARY", "libweir.so.0"))
OK = 0


class Text(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    def __bytes__(self):
        return ctypes.string_at(self.bytes, self.length) if self.length else b""


Handler = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
Body = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
POINTER, SIZE, STRING = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
for name, result, arguments in [
    ("weir_error_message", STRING, []),
    ("weir_builder_new", POINTER, []),
    ("weir_builder_free", None, [POINTER]),
    ("weir_builder_listen", ctypes.c_int, [POINTER, STRING]),
    ("weir_builder_location", ctypes.c_int, [POINTER, STRING, Handler, POINTER, POINTER]),
    ("weir_builder_foreign_loop", ctypes.c_int, [POINTER, ctypes.c_int]),
    ("weir_server_start", ctypes.c_int, [POINTER, ctypes.POINTER(POINTER)]),
    ("weir_server_address", SIZE, [POINTER, ctypes.c_int, STRING, SIZE]),
    ("weir_server_fd", ctypes.c_int, [POINTER]),
    ("weir_server_turn", ctypes.c_int, [POINTER]),
    ("weir_server_free", ctypes.c_int, [POINTER]),
    ("weir_request_ref", POINTER, [POINTER]),
    ("weir_request_unref", None, [POINTER]),
    ("weir_request_query", Text, [POINTER]),
    ("weir_request_body", ctypes.c_int, [POINTER, Body, POINTER]),
    ("weir_response_end", ctypes.c_int, [POINTER, STRING, SIZE]),
]:
    function = getattr(weir, name)
    function.restype, function.argtypes = result, arguments


def must(code):
    if code < OK:
        raise RuntimeError(weir.weir_error_message().decode())
    return code


def end(request, body):
    """Ends the response. That the client has left meanwhile is no fault."""
    weir.weir_response_end(request, body, len(body))


@Handler
def hello(request, _):
    end(request, b"Hello, " + bytes(weir.weir_request_query(request)) + b"!\n")


@Handler
def slow(request, _):
    async def later(request):
        await asyncio.sleep(0.1)
        end(request, b"slept\n")
        weir.weir_request_unref(request)

    # The request is valid until this returns; later() has a reference of its own.
    tasks.append(asyncio.ensure_future(later(weir.weir_request_ref(request))))


@Body
def counted(request, code, _bytes, length, _):
    if code == OK:
        end(request, b"%d bytes\n" % length)


@Handler
def count(request, _):
    weir.weir_request_body(request, counted, None)


tasks = []


async def main():
    builder = weir.weir_builder_new()
    must(weir.weir_builder_listen(builder, (sys.argv[1:] or ["127.0.0.1:8080"])[0].encode()))
    must(weir.weir_builder_foreign_loop(builder, 1))
    for path, handler in [(b"/hello", hello), (b"/slow", slow), (b"/count", count)]:
        must(weir.weir_builder_location(builder, path, handler, None, None))
    server = POINTER()
    must(weir.weir_server_start(builder, ctypes.byref(server)))
    weir.weir_builder_free(builder)
    address = ctypes.create_string_buffer(128)
    weir.weir_server_address(server, 0, address, len(address))
    print(f"http://{address.value.decode()}/hello?you", flush=True)

    loop, done = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(weir.weir_server_fd(server), lambda: must(weir.weir_server_turn(server)))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, done.set)
    await done.wait()
    loop.remove_reader(weir.weir_server_fd(server))
    must(weir.weir_server_free(server))


asyncio.run(main())
