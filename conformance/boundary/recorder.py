"""The HTTP/1 server behind: it records every byte, reads strictly, and responds 200 to each request."""

import asyncio
import re
import threading

from . import readers

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
NUMBER = re.compile(rb"/(?:alone|up|stream)/(\d+)")


class Recorder:
    """Servers at several ports of 127.0.0.1, one for each front, in a thread of their own."""

    def __init__(self, count):
        self.lock = threading.Lock()
        self.whole, self.broken, self.writers = {}, {}, set()
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        self.ports = []
        self.thread = threading.Thread(target=self._run, args=(count, ready), daemon=True)
        self.thread.start()
        if not ready.wait(10):
            raise RuntimeError("the recording servers do not start")

    def _run(self, count, ready):
        asyncio.set_event_loop(self.loop)
        for _ in range(count):
            server = self.loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 22))
            self.ports.append(server.sockets[0].getsockname()[1])
        ready.set()
        self.loop.run_forever()

    async def _serve(self, reader, writer):
        port = writer.get_extra_info("sockname")[1]
        data = b""
        self.writers.add(writer)
        try:
            while piece := await reader.read(1 << 16):
                data += piece
                data = self._take(port, data, writer)
                if data is None:
                    break
        except OSError:
            pass
        finally:
            if data:
                self._keep(self.broken, port, data)
            self.writers.discard(writer)
            writer.close()

    def _take(self, port, data, writer):
        """Takes whole requests from the bytes; what is left, or None where no request can come any more."""
        while data:
            try:
                _, size = readers.STRICT.one(data)
            except readers.More:
                return data
            except readers.Bad:
                self._keep(self.broken, port, data)
                return None
            self._keep(self.whole, port, data[:size])
            data = data[size:]
            writer.write(RESPONSE)
        return data

    def _keep(self, where, port, data):
        found = NUMBER.search(data)
        with self.lock:
            where.setdefault((port, int(found[1]) if found else -1), []).append(data)

    def take(self, port, number):
        """What came for a case: whole requests, and bytes that are none."""
        with self.lock:
            return self.whole.pop((port, number), []), self.broken.pop((port, number), [])

    def unclaimed(self, port):
        """What came to a port without the number of a case."""
        with self.lock:
            return [data for kept in (self.whole, self.broken) for (at, number), pieces in kept.items() if number == -1 and at == port for data in pieces]

    def close(self):
        """Ends all connections and the thread."""
        asyncio.run_coroutine_threadsafe(self._end(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)

    async def _end(self):
        for writer in list(self.writers):
            writer.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks, timeout=5)
