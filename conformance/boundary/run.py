"""A run: all cases to all servers, each outcome judged, each fault looked at again before it is reported."""

import collections
import concurrent.futures
import dataclasses
import itertools
import pathlib
import random
import time

from . import client, fronts, http2, judge, oddities

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus.txt"
PATIENCE, MORE_PATIENCE = 0.4, 2.5
"""Seconds without a byte after which a server counts as waiting; the second before a fault is reported."""


class Run:
    """The servers, the recorder behind them, and what was found."""

    def __init__(self, servers, recorder, ports, subject="weir", out=print):
        self.servers, self.recorder, self.ports, self.subject, self.out = servers, recorder, ports, subject, out
        self.rules = judge.rules()
        self.numbers = itertools.count(1)
        self.counts = collections.Counter()
        self.faults = []

    def outcome(self, name, case, place, patience):
        """What a server does with a case."""
        number = next(self.numbers)
        where = f"/{place}/{number:07}"
        server = self.servers[name]
        if isinstance(case, http2.Case2):
            found = http2.ask(server.port2, case.stream(where), patience)
        else:
            found = client.ask(server.port, case.stream(where), patience)
        found.passed, found.broken = self.recorder.take(self.ports[name], number)
        return found

    def faults_of(self, case, patience):
        """All that is wrong with a case, whether meant or not."""
        found = []
        subject = {}
        for place in case.places():
            outcomes = {name: self.outcome(name, case, place, patience) for name in self.servers}
            subject[place] = outcomes.pop(self.subject)
            if not self.servers[self.subject].is_alive():
                return [judge.Fault("dead", place, f"{self.subject} has ended")]
            found += judge.alone(place, subject[place])
            found += case.beside(place, subject[place], outcomes)
            taken = [len(other.passed) for other in outcomes.values()]
            self.counts["that it alone refused"] += bool(taken) and place == "up" and len(subject[place].passed) < min(taken)
        return found + list(judge.places(subject))

    def judge(self, case):
        """Judges a case; a fault is one that comes again with more patience."""
        self.counts["cases"] += 1
        faults = self.faults_of(case, PATIENCE)
        if faults:
            again = {(fault.aspect, fault.place) for fault in self.faults_of(case, MORE_PATIENCE)}
            self.counts["did not come again"] += sum((fault.aspect, fault.place) not in again for fault in faults)
            faults = [fault for fault in faults if (fault.aspect, fault.place) in again and not self.is_sum(case, fault)]
        for fault in faults:
            rule = next((rule for rule in self.rules if rule.covers(case, fault)), None)
            if rule:
                rule.used += 1
                self.counts["meant"] += 1
            elif any(fault.aspect == known.aspect and {of.framing, *of.oddities} <= {case.framing, *case.oddities} for of, known in self.faults):
                self.counts["explained"] += 1
            else:
                self.faults.append((case, fault))
                self.out(f"== {case}\n   {fault}", flush=True)

    def is_sum(self, case, fault):
        """Whether a case of several oddities is taken by nobody else only since each other server refuses another of them."""
        if fault.aspect != "looser" or len(case.oddities) < 2:
            return False
        for name in case.oddities:
            single = dataclasses.replace(case, oddities=(name,))
            if any(other.aspect == "looser" for other in self.faults_of(single, PATIENCE)):
                return False
        self.counts["sums"] += 1
        return True

    def cases(self, options):
        """The corpus, each oddity by itself, and what is drawn until the time is over."""
        if options.case:
            yield from (parsed(text) for text in options.case)
            return
        yield from corpus()
        if options.corpus:
            return
        yield from oddities.singles()
        yield from http2.singles()
        draw = random.Random(options.seed)
        until = time.monotonic() + options.minutes * 60
        for _ in range(options.budget):
            if time.monotonic() > until:
                break
            yield oddities.drawn(draw) if draw.random() < 0.75 else http2.drawn(draw)

    def run(self, options):
        """All of it; true where nothing was found that is not meant."""
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            pending = set()
            for case in self.cases(options):
                pending.add(pool.submit(self.judge, case))
                if len(pending) > 2 * options.jobs:
                    done, pending = concurrent.futures.wait(pending, return_when=concurrent.futures.FIRST_COMPLETED)
                    for one in done:
                        one.result()
            for one in pending:
                one.result()
        strange = self.recorder.unclaimed(self.ports[self.subject])
        for data in strange[:20]:
            self.out(f"== came without a case's number: {data[:300]!r}")
        if not options.case and not options.corpus:
            for rule in self.rules:
                if not rule.used:
                    self.out(f"-- not used: {rule.aspect} {rule.having}")
        self.out(f"{self.subject}: {self.counts['cases']} cases beside {', '.join(name for name in self.servers if name != self.subject)} in {time.monotonic() - began:.0f} s: "
                 f"{len(self.faults)} faults ({self.counts['explained']} that these explain), {self.counts['meant']} differences that are meant, {self.counts['did not come again']} did not come again, "
                 f"{self.counts['sums']} that others refuse for another oddity each, "
                 f"{self.counts['that it alone refused']} that it alone refused")
        return not self.faults and not strange


def parsed(text):
    """A case of either protocol from its name."""
    return http2.parsed(text) if text.startswith("h2") else oddities.parsed(text)


def corpus():
    """The cases that are kept in the repository."""
    lines = CORPUS.read_text().splitlines()
    return [parsed(line) for line in lines if line and not line.startswith("#")]
