"""A pairwise covering array over directives and their values, made greedily from a seed.

A row is what one configuration has. A pair is two (directive, value) that are in one row; rows are built so that each
new member covers as many pairs as possible that no row has had yet: pairs of directives first, then those of values.
Rows where a directive ends most requests (`return`, `deny`) count only the pairs with that one: the others hide.
"""

import random

SAMPLE = 48
"""Members that are weighed for each place of a row: more cover a little better and cost more time."""


class CoveringArray:
    """Makes rows on request and counts what they have covered."""

    def __init__(self, members, key, seed, compatible=lambda row, member: True, ends=lambda member: False):
        """`members` are what rows are made of; `key(member)` is (directive, value); `compatible` may refuse one."""
        self.random = random.Random(seed)
        self.members = members
        self.compatible, self.ends = compatible, ends
        values, names = {}, {}
        for member in members:
            name, value = key(member)
            names.setdefault(name, len(names))
            values.setdefault((name, value), len(values))
        self.value_of = [values[key(member)] for member in members]
        self.name_of = [names[key(member)[0]] for member in members]
        self.values = PairSet(len(values))
        self.names = PairSet(len(names))

    def row(self, size, begin=()):
        """The next row, of at most `size` members beside those of `begin`."""
        chosen = list(begin)
        wants_end = self.random.random() < 0.15
        while len(chosen) - len(begin) < size:
            candidates = self._candidates(chosen, wants_end)
            if not candidates:
                break
            best = max(candidates, key=lambda index: self._gain(chosen, index))
            chosen.append(best)
            wants_end = wants_end and not self.ends(self.members[best])
        self._count(chosen)
        return [self.members[index] for index in chosen]

    def _candidates(self, chosen, wants_end):
        found = []
        row = [self.members[index] for index in chosen]
        ended = any(self.ends(member) for member in row)
        for index in self.random.sample(range(len(self.members)), min(SAMPLE * 2, len(self.members))):
            ends = self.ends(self.members[index])
            if index in chosen or (ends and (ended or not wants_end)):
                continue
            if self.compatible(row, self.members[index]):
                found.append(index)
            if len(found) == SAMPLE:
                break
        return found

    def _gain(self, chosen, index):
        names = self.names.new(self.name_of[index], [self.name_of[other] for other in chosen])
        values = self.values.new(self.value_of[index], [self.value_of[other] for other in chosen])
        return 4 * names + values + 4 * self.ends(self.members[index]) + self.random.random()

    def _count(self, chosen):
        ending = [index for index in chosen if self.ends(self.members[index])]
        for place, one in enumerate(chosen):
            for other in chosen[:place]:
                if not ending or one in ending or other in ending:
                    self.names.add(self.name_of[one], self.name_of[other])
                    self.values.add(self.value_of[one], self.value_of[other])


class PairSet:
    """Which pairs of `size` things were together: an integer of bits for each."""

    def __init__(self, size):
        self.size = size
        self.with_ = [0] * size

    def new(self, one, others):
        """How many pairs of `one` with `others` are new."""
        mask = 0
        for other in others:
            mask |= 1 << other
        return (mask & ~self.with_[one] & ~(1 << one)).bit_count()

    def add(self, one, other):
        self.with_[one] |= 1 << other
        self.with_[other] |= 1 << one

    def covered(self):
        """Pairs of two different things that were together."""
        return sum((bits & ~(1 << place)).bit_count() for place, bits in enumerate(self.with_)) // 2

    def possible(self):
        """All pairs, those that no configuration may have among them."""
        return self.size * (self.size - 1) // 2
