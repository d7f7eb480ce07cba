"""Two servers with many configurations at a time: each a `server` block at a port of its own, equal on both sides."""

import concurrent.futures
import dataclasses
import re
import time

from . import client, comparison, servers

PORTS = 60
"""Configurations of one start, at the most."""


COPIES = 0.25
"""Seconds without a request of the servers after which all copies (`mirror`) of the last one have come."""


CHANGING = ("PUT", "DELETE", "MKCOL", "COPY", "MOVE")
"""Methods that change files."""


@dataclasses.dataclass
class Case:
    """A configuration with the requests that it gets, in order, and what came out."""

    configuration: object
    requests: list
    found: list = dataclasses.field(default_factory=list)
    """Pairs of (place of the request or None, Difference)."""
    is_valid: bool = True
    done: int = 0
    """How many requests were compared."""

    def names(self, place):
        """What rules may ask for at a request: the configuration's names, its own, and those before it, marked `before: `."""
        found = self.configuration.names()
        if place is None or not self.requests:
            return found
        before = {f"before: {name}" for request in self.requests[:place] for name in request.names()}
        return found | self.requests[place].names() | before


class Bench:
    """The two servers and their upstream servers."""

    def __init__(self, nginx, weir, upstream, ports):
        self.nginx, self.weir, self.upstream, self.ports = nginx, weir, upstream, ports
        self.sides = (nginx, weir)
        self.comparison = comparison.Comparison(nginx, weir)
        self.together = concurrent.futures.ThreadPoolExecutor(2)
        self.starts = 0
        self.meant = []
        """Rules whose difference must be there (`Rule.always`)."""

    def run(self, cases):
        """Runs cases that share their directives of `http`."""
        for case in cases:
            case.found, case.is_valid, case.done = [], True, 0
        left = self._accepted(list(cases))
        if not left:
            return
        try:
            self.starts += 1
            for side in self.sides:
                side.start(self.ports[0])
            for place, case in enumerate(left):
                self._ask(case, self.ports[place])
        except servers.StartError as error:
            self._not_started(left, error)
        finally:
            for side in self.sides:
                side.stop()

    def prove(self):
        """Starts both servers with an empty `server`, so that one which never starts is not taken for one that refuses all."""
        for side in self.sides:
            side.write(f"{side.head()}server {{ listen {side.address}:{self.ports[0]}; }}\n}}\n")
            if (message := side.check()) is not None:
                raise servers.StartError(f"{side.name} refuses an empty server: {message}")
            try:
                side.start(self.ports[0])
            finally:
                side.stop()

    def _not_started(self, cases, error):
        """A start that fails after a good `-t`, or a server that ended: each case by itself, to know whose it is."""
        for side in self.sides:
            side.stop()
        if len(cases) > 1:
            for case in cases:
                self.run([case])
            return
        alive = [str(side.is_alive()) for side in self.sides]
        cases[0].found.append((None, comparison.Difference("starts", alive[0], f"{alive[1]} {str(error)[:60]}")))

    def write(self, cases):
        """Writes the configurations of both sides; gives for each side which lines are whose."""
        places = []
        for side in self.sides:
            plain = [side.filled(level.text, 0) for level in cases[0].configuration.plain] if cases else []
            text, lines = side.head() + "".join(f"{line}\n" for line in plain), []
            for number, case in enumerate(cases):
                zones, block = case.configuration.texts(side, number)
                http2 = "http2 on; " if any(request.http2 for request in case.requests) else ""
                block = block.replace("%PORT%", str(self.ports[number])).replace("%LISTEN%", http2)
                first = text.count("\n") + 1
                text += f"{zones}\n{block}"
                lines.append((first, text.count("\n")))
            side.write(text + "}\n")
            places.append(lines)
        return places

    def _accepted(self, cases):
        """Takes out what either side refuses, and compares what they say of it."""
        while cases:
            places = self.write(cases)
            for side, lines in zip(self.sides, places):
                if (message := side.check()) is not None:
                    self._refused(cases, lines, message)
                    break
            else:
                return cases
        return cases

    def _refused(self, cases, lines, message):
        """Finds whose the error is and takes it out of `cases`."""
        number = re.search(r"server\.conf:(\d+)", message)
        places = [place for place, (first, last) in enumerate(lines) if number and first <= int(number[1]) <= last]
        if not places and len(cases) > 1:
            places = [self._bisected(cases)]
        case = cases.pop(places[0] if places else 0)
        case.is_valid = False
        self.write([case])
        said = [side.check() for side in self.sides]
        classes = [comparison.message_class(text) for text in said]
        if classes[0] != classes[1]:
            case.found.append((None, comparison.Difference("accepts", *classes)))

    def _bisected(self, cases):
        """The place of a case that is refused by itself, or with those before it."""
        low, high = 0, len(cases)
        while high - low > 1:
            middle = (low + high) // 2
            self.write(cases[:middle])
            if any(side.check() is not None for side in self.sides):
                high = middle
            else:
                low = middle
        return low

    def _ask(self, case, port):
        """All requests of a case, one at a time, and its log."""
        for side in self.sides:
            side.log_lines()
        clients, more = ({}, {}), {}
        is_mirrored = any("mirror /mirrored;" in name for name in case.configuration.names())
        for place, request in enumerate(case.requests):
            responses = list(self.together.map(lambda side: client.exchange(side, port, request), self.sides))
            for ports, response in zip(clients, responses):
                ports[str(response.port)] = place
            more[place] = responses[0].heads - responses[1].heads
            differences = self.comparison.responses(*responses, request) + self._not_met(case, request, *responses)
            received = self._received(is_mirrored)
            if not any(difference.aspect == "status" for difference in differences):
                differences += self.comparison.upstream(*received)
            case.found += [(place, difference) for difference in differences]
            case.done += 1
            for side in self.sides:
                if not side.is_alive():
                    raise servers.StartError(f"{side.name} died at {request.method} {request.target}: {side.last_words()}")
            if request.method in CHANGING and responses[0].status != responses[1].status:
                # What follows would see other files on the two sides.
                break
        self._compare_logs(case, clients, more)

    def _not_met(self, case, request, one, other):
        """Differences that are meant always, and are not there."""
        if one.status != other.status:
            return []
        names = case.configuration.names() | request.names()
        missing = (rule for rule in self.meant if re.search(rule.nginx, str(one.status)) and rule.is_about(names))
        return [comparison.Difference("meant", f"{one.status}: {rule.reason}", str(other.status)) for rule in missing]

    def _received(self, is_mirrored):
        """What both upstream servers got. A copy comes after the response, and is not to be taken for one of the next request's:
        where there may be some, the end is when nothing has come for `COPIES`."""
        found = [self.upstream.take(side.address) for side in self.sides]
        began = last = time.monotonic()
        while len(found[0]) != len(found[1]) and time.monotonic() < began + 1.5 or is_mirrored and time.monotonic() < last + COPIES:
            time.sleep(0.01)
            for place, side in enumerate(self.sides):
                more = self.upstream.take(side.address)
                found[place] += more
                last = time.monotonic() if more else last
        return found

    def _compare_logs(self, case, clients, more):
        """The lines of each request, found by the ports of its two connections. `more`: bytes around chunks that nginx has sent
        beyond Weir's."""
        lines = [side.log_lines() for side in self.sides]
        until = time.monotonic() + 2
        while len(lines[0]) != len(lines[1]) and time.monotonic() < until:
            time.sleep(0.02)
            for place, side in enumerate(self.sides):
                lines[place] += side.log_lines()
        logged = [by_request(side, ports) for side, ports in zip(lines, clients)]
        # What differs in the response is not told a second time from the log.
        whole = {place for place, difference in case.found if difference.aspect in ("status", "body", "end", "whole")}
        head = {place for place, difference in case.found if difference.aspect.startswith(("framing", "field:", "interim", "line"))}
        for place in range(len(case.requests)):
            for difference in self.comparison.log_lines(logged[0].get(place, []), logged[1].get(place, [])):
                if place not in whole and not comparison.is_of_framing(difference, more.get(place)) and not (place in head and difference.aspect in ("log:sent", "log:type", "log:body")):
                    case.found.append((place, difference))


def by_request(lines, ports):
    """The lines of the log, without the client's port and without those of the probe, by the place of their request."""
    found = {}
    for line in lines:
        port, _, rest = line.partition("|")
        if not rest.startswith('"GET /probe HTTP/1.1"'):
            found.setdefault(ports.get(port), []).append(rest)
    return found
