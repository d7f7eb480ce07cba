"""A run of the harness: starts until the budget is used, each difference allowed, explained by one before, or made small.

One process makes the starts; `--jobs` others, each with two servers and upstream servers of its own, run and judge them.
"""

import collections
import contextlib
import dataclasses
import multiprocessing
import queue
import time

from . import allowed, bench, generator, minimiser

START = 40
"""Configurations of one start."""

RAW = "new, not made small"


class Findings:
    """The reproducers of all processes of a run, and the lock under which they are numbered and shown."""

    def __init__(self, reproducers=None, lock=None):
        self.reproducers = [] if reproducers is None else reproducers
        self.lock = contextlib.nullcontext() if lock is None else lock


class Run:
    """Judges starts, keeps what was found and prints it."""

    def __init__(self, test_bench, rules, options, findings, out=print):
        self.bench, self.rules, self.options, self.findings, self.out = test_bench, rules, options, findings, out
        test_bench.meant = [rule for rule in rules if rule.always]
        self.minimiser = minimiser.Minimiser(test_bench)
        self.explained = collections.Counter()
        self.unsteady = 0
        self.counts = collections.Counter()

    def start(self, made):
        """One start: runs the configurations with their requests and judges what differed."""
        if self._is_enough():
            return
        cases = [bench.Case(*one) for one in made]
        self.bench.run(cases)
        for case in cases:
            if not self._is_enough():
                self._judge(case)

    def result(self):
        """What a process hands over at its end."""
        return Result(self.counts, self.explained, self.unsteady, [(rule.used, rule.aspects) for rule in self.rules])

    def _is_enough(self):
        return len(self.findings.reproducers) >= self.options.stop_after

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
        for number, reproducer in enumerate(self.findings.reproducers, 1):
            if reproducer.difference.key() == difference.key() and reproducer.needs() <= names:
                return number
        return None

    def _new(self, case, place, difference):
        if self.options.raw:
            self.counts[RAW] += 1
            request = case.requests[place].bytes()[:200] if place is not None and case.requests else b""
            self.out(f"{difference.aspect}: {difference.nginx[:100]} / {difference.weir[:100]}: {sorted(case.configuration.names())} {request!r}")
            return
        if self.options.progress:
            self.out(f"-- making small: {difference.aspect}: {difference.nginx[:100]} / {difference.weir[:100]}", flush=True)
        reproducer = self.minimiser.reproduce(case, place, difference)
        if reproducer is None:
            self.unsteady += 1
            self.out(f"-- did not come again: {difference.aspect} {difference.nginx[:80]} / {difference.weir[:80]}")
            return
        if rule := allowed.covering_rule(self.rules, reproducer.names(), reproducer.difference):
            self.counts["differences allowed"] += 1
            return
        with self.findings.lock:
            # Another process may have found the same meanwhile.
            if known := self._known(case.names(place), difference):
                self.explained[known] += 1
                return
            self.findings.reproducers.append(reproducer)
            self.out(self.shown(len(self.findings.reproducers), reproducer), flush=True)

    def shown(self, number, reproducer):
        """A reproducer as text: configuration, requests, and what both did."""
        zones, block = reproducer.configuration.texts(self.bench.nginx, 0)
        plain = "".join(f"{level.text}\n" for level in reproducer.configuration.plain)
        lines = [f"\n==== {number}: {reproducer.difference.aspect}", (plain + zones + "\n" + block).strip().replace("%PORT%", "8080").replace("%LISTEN%", "")]
        for request in reproducer.requests:
            data = request.bytes()
            lines.append(("h2 " if request.http2 else "") + repr(data if len(data) < 700 else data[:300] + b"..." + data[-60:])[1:])
        return "\n".join([*lines, f"nginx: {reproducer.difference.nginx}\nweir:  {reproducer.difference.weir}"])


@dataclasses.dataclass
class Result:
    """The counts of one process, or of several together."""

    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    explained: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    unsteady: int = 0
    rules: list = dataclasses.field(default_factory=list)
    """How often each rule was used, and for which aspects, in the order of the list."""

    def add(self, other):
        """Takes in the counts of another process."""
        self.counts += other.counts
        self.explained += other.explained
        self.unsteady += other.unsteady
        self.rules = [(one[0] + two[0], one[1] | two[1]) for one, two in zip(self.rules, other.rules)] if self.rules else other.rules


def run(options, make_bench):
    """All starts of the budget, in as many processes as wanted; true where nothing is left that is not allowed.
    `make_bench(number)` gives the servers of a process."""
    began = time.monotonic()
    context = multiprocessing.get_context("fork")
    with context.Manager() as manager:
        findings = Findings(manager.list(), manager.Lock())
        starts, results = context.Queue(options.jobs), context.Queue()
        workers = [context.Process(target=_work, args=(number, options, make_bench, findings, starts, results)) for number in range(options.jobs)]
        for worker in workers:
            worker.start()
        made = generator.Generator(options.seed, options.requests, options.focus, options.source)
        _feed(made, options, findings, starts, workers, began)
        total = _collected(results, workers)
        _summary(made, options, total, findings.reproducers, time.monotonic() - began)
        return total is not None and is_clean(total, findings.reproducers)


def is_clean(total, reproducers):
    """Whether nothing was found that is not allowed; where no request was compared nothing was looked for."""
    return not reproducers and not total.counts[RAW] and total.counts["requests"] > 0


def _feed(made, options, findings, starts, workers, began):
    """Hands out the starts until the budget is used, or enough was found, or the time is over."""
    while made.made < options.budget and _handed_out(made.start(min(START, options.budget - made.made)), starts, workers):
        if options.progress:
            print(f"-- {made.made} configurations made, {len(findings.reproducers)} differences, {time.monotonic() - began:.0f} s", flush=True)
        if len(findings.reproducers) >= options.stop_after or time.monotonic() - began > options.minutes * 60:
            print("stopped before the budget was used")
            break
    for _ in workers:
        _handed_out(None, starts, workers)
    # Nobody waits for what a process that has failed leaves there.
    starts.cancel_join_thread()


def _handed_out(start, starts, workers):
    """Puts a start where the processes take it from; false where one of them has failed."""
    while not any(worker.exitcode for worker in workers):
        try:
            starts.put(start, timeout=1)
            return True
        except queue.Full:
            pass
    return False


def _work(number, options, make_bench, findings, starts, results):
    """A process: judges starts until there is none left."""
    with make_bench(number) as test_bench:
        test_bench.prove()
        judge = Run(test_bench, allowed.read(doubted=options.doubt), options, findings)
        while (made := starts.get()) is not None:
            judge.start(made)
        results.put(judge.result())


def _collected(results, workers):
    """The counts of all processes together; None where one has failed."""
    total = Result()
    for _ in workers:
        while True:
            try:
                total.add(results.get(timeout=1))
                break
            except queue.Empty:
                if any(worker.exitcode for worker in workers):
                    print("a process of the harness has failed")
                    for one in workers:
                        one.terminate()
                    return None
    for worker in workers:
        worker.join()
    return total


def _summary(made, options, total, reproducers, seconds):
    """Prints the counts."""
    array = made.array
    print(f"\nseed {options.seed}, budget {options.budget} configurations: {made.made} made in {seconds:.0f} s by {options.jobs} processes")
    print(f"pairs of directives covered: {array.names.covered()} of {array.names.possible()}; of directives with values: {array.values.covered()} of {array.values.possible()}")
    if total is None:
        return
    for name, count in total.counts.items():
        print(f"{name}: {count}")
    for number, count in sorted(total.explained.items()):
        print(f"difference {number} ({reproducers[number - 1].difference.aspect}) came {count} more times")
    print(f"did not come again: {total.unsteady}")
    for rule, (used, aspects) in zip(allowed.read(doubted=options.doubt), total.rules):
        if used:
            print(f"allowed {used} times ({', '.join(sorted(aspects))}): {rule.reason}")
    print(f"differences that are not allowed: {len(reproducers)}")
