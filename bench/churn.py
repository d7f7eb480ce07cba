"""Hours of everything that wears a server out, and whether it keeps anything: `bench/soak --hours`.

A server with a master and two workers serves files, scripts, proxied and cached responses and uploads, plain and over TLS. Clients
ask all the time and judge each response byte by byte. Every few seconds something happens: a reload (every other one with another
configuration), a certificate is rotated, one of the two upstream servers is killed and comes back, logs are renamed. In the last
tenth of the time the binary is upgraded and the server process is killed, again and again.

Every five seconds the server process is looked at: memory, descriptors, threads, mappings, what its Lua VMs hold, pending timers.
Through each of these a line is fitted, from the end of the first quarter to the first upgrade. It has failed when a slope is above
zero beyond its interval of 95% and what it would add in a day is more than a tenth of the mean, when a request was lost, or when
descriptors, threads or timers at the end are more than at the beginning.
"""

import asyncio
import os
import pathlib
import random
import signal
import ssl
import sys
import threading
import time

import churn_site
import measure
import peers

LOOK_SECONDS = 5
EVENT_SECONDS = 4
CLIENTS = 8
WARM = 0.25
"""The part of the run in which caches, dictionaries and the allocator fill."""
CALM = 0.9
"""After this part of the run processes change."""
BLOCKS = 24
T_95 = 2.07
"""Student's t for 22 degrees of freedom, of two sides."""


class Loss:
    """A request that was lost, or a response that was wrong."""

    def __init__(self, what, why):
        self.at, self.what, self.why = time.monotonic(), what, why


class Askers:
    """Clients that ask and judge, on a thread of their own."""

    def __init__(self, site, seed):
        self.site, self.draw = site, random.Random(seed)
        self.requests, self.races, self.losses = 0, 0, []
        self.begin, self.trouble_until = time.monotonic(), 0.0
        self.loop = asyncio.new_event_loop()
        self.is_over = False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        self.loop.run_until_complete(self._all())

    async def _all(self):
        await asyncio.gather(*(self._one(which) for which in range(CLIENTS)))

    def stop(self):
        self.is_over = True
        self.thread.join()

    async def _one(self, which):
        """One client: connections of 1 to 200 requests."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        while not self.is_over:
            tls = which % 2 == 1
            port = self.site.tls_port if tls else self.site.port
            reader, writer = None, None
            try:
                for at in range(self.draw.choice([1, 5, 200])):
                    if self.is_over:
                        break
                    asked = self.site.draw_request(self.draw)
                    if reader is None:
                        opening = asyncio.open_connection("127.0.0.1", port, ssl=context if tls else None, limit=1 << 22)
                        reader, writer = await asyncio.wait_for(opening, 30)
                    if not await self._ask(reader, writer, asked, at):
                        break
                    await asyncio.sleep(self.draw.choice([0, 0, 0.001, 0.02, 0.3]))
            except (OSError, asyncio.TimeoutError, ssl.SSLError) as error:
                self._lost("connection", f"{type(error).__name__}: {error}")
                await asyncio.sleep(0.2)
            if writer:
                writer.close()

    async def _ask(self, reader, writer, asked, at):
        """Asks once; whether the connection may be used again. A kept connection may close before a response begins."""
        method, path, body, wanted = asked
        head = f"{method} {path} HTTP/1.1\r\nHost: soak.test\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            writer.write(head.encode() + body)
            await asyncio.wait_for(writer.drain(), 60)
            line = await asyncio.wait_for(reader.readline(), 60)
            if not line:
                raise ConnectionResetError("closed before the response")
        except (ConnectionError, BrokenPipeError) as error:
            if at > 0:
                self.races += 1
            else:
                self._lost(path, str(error))
            return False
        fields = {}
        while (field := await asyncio.wait_for(reader.readline(), 60)) not in (b"\r\n", b""):
            name, _, value = field.decode("latin-1").partition(":")
            fields[name.lower()] = value.strip()
        got = await asyncio.wait_for(self._body(reader, fields), 60)
        self.requests += 1
        status = int(line.split()[1]) if len(line.split()) > 1 else 0
        if status != 200 or got != wanted:
            self._lost(path, f"status {status}, {len(got)} bytes of {len(wanted)}: {got[:60]!r}")
        return fields.get("connection", "").lower() != "close"

    async def _body(self, reader, fields):
        if fields.get("transfer-encoding", "").lower() != "chunked":
            try:
                return await reader.readexactly(int(fields.get("content-length", 0)))
            except asyncio.IncompleteReadError as cut:
                return cut.partial
        pieces = []
        while size := int((await reader.readline()).split(b";")[0] or b"0", 16):
            pieces.append(await reader.readexactly(size))
            await reader.readline()
        await reader.readline()
        return b"".join(pieces)

    def _lost(self, what, why):
        if time.monotonic() > self.trouble_until:
            self.losses.append(Loss(what, why))

    def expect_trouble(self, seconds):
        """Requests may be lost for so long: the process that had them was killed."""
        self.trouble_until = max(self.trouble_until, time.monotonic() + seconds)


def look(site):
    """What the server process has now; `None`: it is being replaced."""
    try:
        pid = site.server_pid()
        found = {"memory KB": measure.resident(pid) // 1024}
        found["descriptors"] = len(os.listdir(f"/proc/{pid}/fd"))
        found["threads"] = len(os.listdir(f"/proc/{pid}/task"))
        found["mappings"] = pathlib.Path(f"/proc/{pid}/maps").read_text().count("\n")
        for name, value in site.lua_figures().items():
            found[name] = value
        return pid, found
    except (OSError, IndexError, ValueError, StopIteration):
        return None


def fitted(points):
    """The slope of a line through (hours, value), half of its interval of 95%, and the mean: of averages of blocks, since
    samples that follow each other are alike."""
    size = max(1, len(points) // BLOCKS)
    blocks = [points[at:at + size] for at in range(0, size * (len(points) // size), size)]
    xs = [sum(x for x, _ in block) / len(block) for block in blocks]
    ys = [sum(y for _, y in block) / len(block) for block in blocks]
    count, mean_x, mean_y = len(xs), sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    if count < 4 or spread == 0:
        return 0.0, float("inf"), mean_y
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / spread
    rest = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in zip(xs, ys)) / (count - 2)
    return slope, T_95 * (rest / spread) ** 0.5, mean_y


def bursts(site, wrk, over, cores):
    """wrk as fast as it goes, two seconds in ten."""
    while not over.wait(8):
        try:
            wrk.run(site.port, "/file/6", 32, 1, 2, cores)
        except RuntimeError:
            pass  # a killed process; the askers judge


CALM_EVENTS = ["reload", "reload", "change", "rotate", "backend", "logs"]


def calm_event(site, askers, draw, events):
    """Something that nobody may notice: one of `events`, "nothing" among what can be asked for."""
    event = draw.choice(events)
    if event == "reload":
        site.reload()
    elif event == "change":
        site.change()
        site.reload()
    elif event == "rotate":
        site.rotate_certificate()
        site.reload()
        wanted = site.serial
        if not site.serves_certificate(wanted):
            askers.losses.append(Loss("certificate", f"{wanted} is not served after a reload"))
    elif event == "nothing":
        pass
    elif event == "backend":
        site.kill_backend(draw.randrange(2), draw.choice([0.1, 1, 3]))
    else:
        site.rename_logs()
    return event


def hard_event(site, askers, draw):
    """Processes change: an upgrade loses nothing, a killed process takes what it had."""
    if draw.choice(["upgrade", "crash"]) == "upgrade":
        site.upgrade()
        return "upgrade"
    askers.expect_trouble(5)
    os.kill(site.server_pid(), signal.SIGKILL)
    site.wait_until_served()
    return "crash"


def watch(site, askers, hours, seed, only):
    """Has things happen until the time is over: (samples of the calm part, how often what happened, first and last look)."""
    draw, events, samples = random.Random(seed + 1), {}, []
    begin, first, begun, kinds = time.monotonic(), None, {}, {}
    next_look, next_event, next_line = begin + 20, begin + 10, begin + 600
    while (part := (time.monotonic() - begin) / (hours * 3600)) < 1:
        now = time.monotonic()
        if now >= next_look:
            next_look = now + LOOK_SECONDS
            seen = look(site)
            if seen and WARM <= part < CALM:
                first = first or seen[1]
                kinds = site.memory_kinds()
                begun = begun or kinds
                samples.append(((now - begin) / 3600, seen[1]))
            if seen and now >= next_line:
                next_line = now + 600
                print(f"    {part:4.0%}  {askers.requests:>9} judged  {seen[1]}", flush=True)
        if now >= next_event:
            if part < CALM or only:
                event = calm_event(site, askers, draw, only or CALM_EVENTS)
            else:
                event = hard_event(site, askers, draw)
            events[event] = events.get(event, 0) + 1
            next_event = time.monotonic() + EVENT_SECONDS * draw.uniform(0.5, 1.5)
        time.sleep(0.2)
    print_kinds(begun, kinds)
    return samples, events, first


def print_kinds(first, last):
    """What the server says its memory was for, where that has changed by most."""
    changes = sorted(((last.get(kind, 0) - first.get(kind, 0), kind) for kind in {*first, *last}), key=lambda one: -abs(one[0]))
    for change, kind in changes[:6]:
        print(f"    of {kind:<24} {first.get(kind, 0):>10.1f} KB at first {change:+9.1f}")


def judged(samples, askers, first, last):
    """Prints the lines; what is wrong."""
    same = {}
    for one in askers.losses:
        same.setdefault(f"{one.what.split('?')[0]}: {one.why}"[:120], []).append(one.at - askers.begin)
    bad = [f"{what} ({len(times)} times, first after {times[0]:.1f} s)" for what, times in same.items()]
    for name in samples[0][1]:
        slope, half, mean = fitted([(hour, values[name]) for hour, values in samples if name in values])
        grows = slope - half > 0 and slope * 24 > mean / 10
        print(f"    {name:<14} mean {mean:>10.1f}  {slope:+9.2f} ± {half:.2f} an hour{'  GROWS' if grows else ''}")
        if grows:
            bad.append(f"{name} grows by {slope:.2f} ± {half:.2f} an hour")
    for name in ("descriptors", "threads", "timers"):
        if last and last.get(name, 0) > first.get(name, 0) + 4:
            bad.append(f"{name}: {first.get(name)} at first, {last.get(name)} at the end")
    return bad


def soak_for(hours, binary, driver, folder, seed, cores, only=()):
    """One server for so many hours; what is wrong with it. `only`: these events alone, to the end."""
    site = churn_site.Site(binary, driver, folder, seed)
    wrk = measure.Wrk(peers.find("wrk") or sys.exit("wrk is not installed"))
    over = threading.Event()
    askers = Askers(site, seed)
    burst = threading.Thread(target=bursts, args=(site, wrk, over, cores))
    burst.start()
    try:
        samples, events, first = watch(site, askers, hours, seed, only)
    finally:
        over.set()
        burst.join()
        askers.stop()
    try:
        time.sleep(3)
        seen = look(site)
        print(f"    {askers.requests} responses judged, {len(askers.losses)} lost or wrong, {askers.races} closed before the "
              f"next request; {', '.join(f'{count} {event}' for event, count in sorted(events.items()))}")
        bad = judged(samples, askers, first, seen and seen[1]) + site.complaints()
    finally:
        site.stop()
    return bad
