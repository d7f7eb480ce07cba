"""A gRPC server and a gRPC client of Python's own library, with bytes for messages.

    grpc_peer.py serve            prints its port, serves until its input ends
    grpc_peer.py ask ADDR [CA [COUNT]]
                                  makes calls of every kind to ADDR, over TLS with a CA ("-": without), COUNT messages
                                  in a stream (1000); prints "all calls well"
"""

import sys
import threading
from concurrent import futures

import grpc

TIMEOUT = 600


def unary(request, context):
    if request == b"fail":
        context.set_trailing_metadata((("why", "asked for"),))
        context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")
    if request == b"slow":
        until_given_up(context)
        return b""
    context.send_initial_metadata((("first", "yes"),))
    context.set_trailing_metadata((("last", "yes"),))
    return request[::-1]


def until_given_up(context):
    gone = threading.Event()
    # It may have been given up already: then nobody calls back.
    if context.add_callback(gone.set):
        gone.wait(TIMEOUT)


def down(request, context):
    if request == b"hang":
        # Called at the end of the call in any case; what comes after `yield` never runs where the client left before.
        context.add_callback(lambda: print("given up", flush=True))
        yield b"begun"
        until_given_up(context)
        return
    for number in range(int(request)):
        yield b"%d" % number


def up(requests, _context):
    return b"%d" % sum(len(request) for request in requests)


def both(requests, _context):
    for request in requests:
        yield request.upper()


def check(request, context):
    """Messages of one field, as they are on the wire: HealthCheckRequest.service, HealthCheckResponse.status."""
    states = {b"\x0a\x03t.T": b"\x08\x01", b"\x0a\x07resting": b"\x08\x02"}
    if request not in states:
        context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
    return states[request]


def serve():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=32), options=(("grpc.max_receive_message_length", -1),))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Down": grpc.unary_stream_rpc_method_handler(down),
        "Up": grpc.stream_unary_rpc_method_handler(up),
        "Both": grpc.stream_stream_rpc_method_handler(both),
    }), grpc.method_handlers_generic_handler("grpc.health.v1.Health", {
        "Check": grpc.unary_unary_rpc_method_handler(check),
    })))
    port = server.add_insecure_port("127.0.0.1:" + (sys.argv[2] if len(sys.argv) > 2 else "0"))
    server.start()
    print(port, flush=True)
    sys.stdin.read()


def ask(addr, ca, count):
    options = (
        ("grpc.max_receive_message_length", -1),
        ("grpc.ssl_target_name_override", "localhost"),
        # Whatever the environment says: the server is here.
        ("grpc.enable_http_proxy", 0),
    )
    if ca != "-":
        with open(ca, "rb") as file:
            channel = grpc.secure_channel(addr, grpc.ssl_channel_credentials(file.read()), options)
    else:
        channel = grpc.insecure_channel(addr, options)
    one = channel.unary_unary("/t.T/Unary")
    answer, call = one.with_call(b"abc", timeout=TIMEOUT)
    assert answer == b"cba", answer
    assert ("first", "yes") in call.initial_metadata() and ("last", "yes") in call.trailing_metadata()
    large = bytes(range(256)) * 8192
    assert one(large, timeout=TIMEOUT) == large[::-1]
    try:
        one(b"fail", timeout=TIMEOUT)
        raise AssertionError("it should have failed")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND and error.details() == "no such thing", error
        assert ("why", "asked for") in error.trailing_metadata()
    try:
        one(b"slow", timeout=0.5)
        raise AssertionError("it should have taken too long")
    except grpc.RpcError as error:
        # A server of Go's library counts the deadline, too, and resets the stream: of which a proxy makes status 502.
        assert error.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE), error
    begun = channel.unary_stream("/t.T/Down")(b"hang", timeout=TIMEOUT)
    assert next(begun) == b"begun"
    begun.cancel()
    answers = channel.unary_stream("/t.T/Down")(b"%d" % count, timeout=TIMEOUT)
    assert [int(answer) for answer in answers] == list(range(count))
    assert channel.stream_unary("/t.T/Up")(iter([b"x" * 1000] * (count // 2)), timeout=TIMEOUT) == b"%d" % (count * 500)
    talk(channel)
    calls = [one.future(b"%d" % number, timeout=TIMEOUT) for number in range(200)]
    assert [call.result() for call in calls] == [(b"%d" % number)[::-1] for number in range(200)]
    print("all calls well")


def talk(channel):
    """Each question is asked when the one before was answered."""
    answered = threading.Semaphore(0)

    def questions():
        for number in range(50):
            yield b"q%d" % number
            assert answered.acquire(timeout=TIMEOUT)

    count = 0
    for number, answer in enumerate(channel.stream_stream("/t.T/Both")(questions(), timeout=TIMEOUT)):
        assert answer == b"Q%d" % number, answer
        answered.release()
        count += 1
    assert count == 50, count


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        addr, ca, count = [*sys.argv[2:], *("-", "1000")[len(sys.argv) - 3 :]]
        ask(addr, ca, int(count))
