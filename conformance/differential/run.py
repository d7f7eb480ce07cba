"""A run of the harness: starts until the budget is used, each difference allowed, explained by one before, or made small."""

import collections
import functools
import time

from . import allowed, bench, generator, minimiser

START = 40
"""Configurations of one start."""


class Run:
    """Keeps what was found and prints it."""

    def __init__(self, test_bench, rules, options, out=print):
        self.bench, self.rules, self.options, self.out = test_bench, rules, options, out
        test_bench.meant = [rule for rule in rules if rule.always]
        self.minimiser = minimiser.Minimiser(test_bench)
        self.generator = generator.Generator(options.seed, options.requests, options.focus, options.source)
        self.reproducers = []
        self.explained = collections.Counter()
        self.unsteady = []
        self.counts = collections.Counter()

    def all(self):
        """All starts of the budget; true where nothing is left that is not allowed."""
        began = time.monotonic()
        while self.generator.made < self.options.budget:
            size = min(START, self.options.budget - self.generator.made)
            cases = [bench.Case(made, requests) for made, requests in self.generator.start(size)]
            self.bench.run(cases)
            for case in cases:
                if not self._is_enough():
                    self._judge(case)
            self._progress(began)
            if self._is_enough() or time.monotonic() - began > self.options.minutes * 60:
                self.out("stopped before the budget was used")
                break
        self.summary(time.monotonic() - began)
        return not self.reproducers

    def _is_enough(self):
        return len(self.reproducers) >= self.options.stop_after

    def _judge(self, case):
        self.counts["configurations"] += case.is_valid
        self.counts["refused by one or both"] += not case.is_valid
        self.counts["requests"] += case.done
        differing = set()
        for place, difference in case.found:
            names = case.names(place)
            differing.add(place)
            if allowed.covering_rule(self.rules, names, difference):
                self.counts["differences allowed"] += 1
            elif known := self._known(names, difference):
                self.explained[known] += 1
            elif not self._is_enough():
                self._new(case, place, difference)
        self.counts["requests alike"] += case.done - len(differing - {None})

    def _known(self, names, difference):
        """The number of the reproducer that explains a difference: the same kind, and all it is made of is there."""
        for number, reproducer in enumerate(self.reproducers, 1):
            if reproducer.difference.key() == difference.key() and reproducer.needs() <= names:
                return number
        return None

    def _new(self, case, place, difference):
        if self.options.raw:
            self.counts["new, not made small"] += 1
            request = case.requests[place].bytes()[:200] if place is not None and case.requests else b""
            self.out(f"{difference.aspect}: {difference.nginx[:100]} / {difference.weir[:100]}: {sorted(case.configuration.names())} {request!r}")
            return
        reproducer = self.minimiser.reproduce(case, place, difference)
        if reproducer is None:
            self.unsteady.append((case.configuration, place, difference))
            self.out(f"-- did not come again: {difference.aspect} {difference.nginx[:80]} / {difference.weir[:80]}")
            return
        if rule := allowed.covering_rule(self.rules, reproducer.names(), reproducer.difference):
            self.counts["differences allowed"] += 1
            return
        self.reproducers.append(reproducer)
        self.show(len(self.reproducers), reproducer)

    def show(self, number, reproducer):
        """Prints a reproducer: configuration, requests, and what both did."""
        zones, block = reproducer.configuration.texts(self.bench.nginx, 0)
        plain = "".join(f"{level.text}\n" for level in reproducer.configuration.plain)
        self.out(f"\n==== {number}: {reproducer.difference.aspect}")
        self.out((plain + zones + "\n" + block).strip().replace("%PORT%", "8080").replace("%LISTEN%", ""))
        for request in reproducer.requests:
            data = request.bytes()
            self.out(("h2 " if request.http2 else "") + repr(data if len(data) < 700 else data[:300] + b"..." + data[-60:])[1:])
        self.out(f"nginx: {reproducer.difference.nginx}\nweir:  {reproducer.difference.weir}", flush=True)

    def _progress(self, began):
        if self.options.progress:
            self.out(f"-- {self.generator.made} configurations, {self.counts['requests']} requests, {len(self.reproducers)} differences, {time.monotonic() - began:.0f} s", flush=True)

    def summary(self, seconds):
        """The counts."""
        array = self.generator.array
        self.out(f"\nseed {self.options.seed}, budget {self.options.budget} configurations: {self.generator.made} made in {seconds:.0f} s")
        self.out(f"pairs of directives covered: {array.names.covered()} of {array.names.possible()}; of directives with values: {array.values.covered()} of {array.values.possible()}")
        for name, count in self.counts.items():
            self.out(f"{name}: {count}")
        for number, count in sorted(self.explained.items()):
            self.out(f"difference {number} ({self.reproducers[number - 1].difference.aspect}) came {count} more times")
        self.out(f"did not come again: {len(self.unsteady)}")
        for rule in self.rules:
            if rule.used:
                self.out(f"allowed {rule.used} times ({', '.join(sorted(rule.aspects))}): {rule.reason}")
        self.out(f"differences that are not allowed: {len(self.reproducers)}")
