"""Making a difference small: delta debugging over the requests, the configuration's parts and the request's parts.

`ddmin` tries many candidates at a time, since a start of the servers costs more than a request: all complements of one
round are run as configurations of one start.
"""

import dataclasses
import time

from . import bench, sources

PLAIN = ("static", "proxy")
"""Sources that are tried in place of others."""
SOURCE = {source.name: source for source in sources.SOURCES}

LONGEST = 180
"""Seconds that making one case small may take: where each request waits for its time-out, a small one would take an hour."""


def ddmin(parts, hold):
    """The smallest list it finds of `parts` that still holds; `hold(lists)` says of each list whether it does."""
    size = max(1, len(parts) // 2)
    while parts:
        pieces = [parts[start:start + size] for start in range(0, len(parts), size)]
        candidates = [[part for piece in pieces[:place] + pieces[place + 1:] for part in piece] for place in range(len(pieces))]
        held = hold(candidates)
        best = next((candidate for candidate, holds in zip(candidates, held) if holds), None)
        if best is not None:
            parts = best
            size = min(size, max(1, len(parts)))
        elif size == 1:
            break
        else:
            size = max(1, size // 2)
    return parts


@dataclasses.dataclass
class Reproducer:
    """The smallest case that was found for a difference."""

    configuration: object
    requests: list
    difference: object

    def names(self):
        """What it is made of."""
        return bench.Case(self.configuration, self.requests).names(len(self.requests) - 1 if self.requests else None)

    def needs(self):
        """What another case must have to be explained by this one: directives, sources, and the odd parts of the request."""
        # The plainest source is what is left where the source does not matter.
        own = {f"source: {self.configuration.source.name}"} - {f"source: {name}" for name in PLAIN} | {str(level) for level in (*self.configuration.levels, *self.configuration.plain)}
        own |= {f"beside: {name}" for name in self.configuration.beside}
        last = self.requests[-1] if self.requests else None
        if last is None:
            return own
        own |= {f"{kind}: {value}" for kind, value in last.parts() if kind in ("method", "version")}
        own |= {f"field: {name}" for kind, value in last.parts() if kind == "field" for name in [value[0]]}
        own |= {f"arg: {piece}" for piece in last.target.partition("?")[2].split("&") if piece}
        if not last.target.startswith("/t/page.txt"):
            own.add(f"path: {last.target.partition('?')[0]}")
        return own | ({"http2"} if last.http2 else set())


class Minimiser:
    """Makes cases smaller with a bench."""

    def __init__(self, test_bench):
        self.bench = test_bench
        self.end = float("inf")

    def reproduce(self, case, place, difference):
        """A small reproducer, or None where the difference does not come again."""
        requests = case.requests if place is None else case.requests[:place + 1]
        if difference.aspect in ("accepts", "starts"):
            requests = []
        key = difference.key()
        self.end = time.monotonic() + LONGEST
        # Twice: what takes long on a busy machine may not be there at once.
        if not any(self._hold([(case.configuration, requests)], key)[0] for _ in range(2)):
            return None
        made = self._fewer_requests(case.configuration, requests, key)
        made = self._plainer_source(made[0], made[1], key)
        made = self._fewer_parts(made[0], made[1], key)
        made = self._simpler_request(made[0], made[1], key)
        made = self._fewer_parts(made[0], made[1], key)
        made = self._simpler_request(made[0], made[1], key)
        shown = bench.Case(*made)
        self.bench.run([shown])
        same = [found for _, found in shown.found if found.key() == key]
        return Reproducer(made[0], made[1], same[0]) if same else None

    def _fewer_requests(self, configuration, requests, key):
        if len(requests) < 2:
            return configuration, requests
        *before, last = requests
        if self._hold([(configuration, [last])], key)[0]:
            return configuration, [last]
        kept = ddmin(before, lambda lists: self._hold([(configuration, [*some, last]) for some in lists], key))
        return configuration, [*kept, last]

    def _plainer_source(self, configuration, requests, key):
        plainer = [dataclasses.replace(configuration, source=SOURCE[name]) for name in PLAIN if name != configuration.source.name]
        held = self._hold([(candidate, requests) for candidate in plainer], key)
        return next((candidate for candidate, holds in zip(plainer, held) if holds), configuration), requests

    def _fewer_parts(self, configuration, requests, key):
        kept = ddmin(configuration.parts(), lambda lists: self._hold([(configuration.only(some), requests) for some in lists], key))
        return configuration.only(kept), requests

    def _simpler_request(self, configuration, requests, key):
        if not requests:
            return configuration, requests
        *before, last = requests
        kept = ddmin(last.parts(), lambda lists: self._hold([(configuration, [*before, last.only(some)]) for some in lists], key))
        last = last.only(kept)
        targets = dict.fromkeys(("/t/page.txt", last.target.partition("?")[0], "/t/page.txt?" + last.target.partition("?")[2]))
        simpler = [dataclasses.replace(last, target=target) for target in targets if target != last.target]
        held = self._hold([(configuration, [*before, request]) for request in simpler], key)
        better = [request for request, holds in zip(simpler, held) if holds]
        return configuration, [*before, better[0] if better else last]

    def _hold(self, candidates, key):
        """Whether each candidate still shows the difference; none does after the time. Those with equal `http` parts share a start."""
        if time.monotonic() > self.end:
            return [False] * len(candidates)
        cases = [bench.Case(*candidate) for candidate in candidates]
        groups = {}
        for case in cases:
            groups.setdefault(case.configuration.plain, []).append(case)
        for group in groups.values():
            for start in range(0, len(group), bench.PORTS):
                self.bench.run(group[start:start + bench.PORTS])
        return [any(found.key() == key and place in (None, len(case.requests) - 1) for place, found in case.found) for case in cases]
