"""Configurations: sources drawn in turn, directives from the covering array, in starts that share their `http`."""

import random
import re

from . import configuration, covering, directives, request, sources

SIZE = 7
"""Directives of one configuration, beside its source and those of `http`."""
COMPANY = 0.6
"""How often a directive gets one without which it does little."""
SHARED = 2
"""Directives in `http` of one start."""


class Generator:
    """Makes starts: lists of (configuration, requests)."""

    def __init__(self, seed, requests, focus="", source=""):
        """`focus` and `source` are patterns: only directives whose text has the first, and sources of that name."""
        self.random = random.Random(seed)
        self.source = source
        self.count = requests
        self.requests = request.RequestGenerator(random.Random(seed + 1))
        self.levels = [level for level in directives.levels() if re.search(focus, level.text)]
        self.draft = None
        self.array = covering.CoveringArray(self.levels, lambda level: (level.name, level.value), seed + 2, self._fits, lambda level: level.ends)
        self.place = {level: index for index, level in enumerate(self.levels)}
        self.made = 0

    def start(self, size):
        """`size` configurations that share their directives of `http`."""
        plain = []
        shared = [level for level in self.levels if level.block == "http"]
        for level in self.random.sample(shared, min(SHARED, len(shared))):
            if all(other.name != level.name for other in plain):
                plain.append(level)
        found = []
        for _ in range(size):
            made = self._configuration(tuple(plain))
            found.append((made, self.requests.requests(made, self.count)))
        self.made += size
        return found

    def _configuration(self, plain):
        self.draft = self._frame(plain)
        row = self.array.row(SIZE, [self.place[level] for level in plain])
        made = self.draft
        for level in row[len(plain):]:
            made = configuration.dataclasses.replace(made, levels=(*made.levels, level))
            made = self._accompanied(made, level)
        return made

    def _accompanied(self, made, level):
        """The configuration with a companion of the level, in its block, if it has one, mostly."""
        text = level.text.rstrip(";")
        wanted = [pattern for about, patterns in directives.COMPANIONS if re.fullmatch(about, text) for pattern in patterns]
        if not wanted or self.random.random() > COMPANY:
            return made
        pattern = self.random.choice(wanted)
        found = [other for other in self.levels if other.block == level.block and re.fullmatch(pattern, other.text.rstrip(";"))]
        found = [other for other in found if configuration.is_sound(made, other)]
        return configuration.dataclasses.replace(made, levels=(*made.levels, self.random.choice(found))) if found else made

    def _frame(self, plain):
        """The sources: one is always there, others now and then."""
        choose = self.random

        def one_of(letter):
            found = [source for source in sources.SOURCES if letter in source.blocks]
            return choose.choice([source for source in found if re.search(self.source, source.name)] or found)

        return configuration.Configuration(
            source=one_of("l"), nested=one_of("n") if choose.random() < 0.5 else None, named=one_of("m") if choose.random() < 0.35 else None,
            inner=one_of("i") if choose.random() < 0.12 else None, beside=tuple(choose.sample(sorted(sources.SHADOWED), choose.choice((0, 0, 1, 1, 2)))), plain=plain)

    def _fits(self, row, level):
        """Whether a level may join a row: of the array, so that pairs which can't be are not counted as tried."""
        if level.block == "http":
            return False
        made = self.draft
        if not configuration.is_sound(made, level, row):
            return False
        # `break` and `return` in a server or a location hide `rewrite` below them; that is wanted. A content handler
        # beside another is a question for `-t`, and conformance/handlers asks it.
        if level.name == "content_by_lua_block" and any(word in _source_of(made, level).text for word in ("_pass", "echo", "by_lua", "empty_gif")):
            return False
        return not level.family or level.family in _source_of(made, level).families


def _source_of(made, level):
    """The source that a level's block works with."""
    source = {"nested": made.nested, "named": made.named, "if": made.inner or made.source}.get(level.block, made.source)
    return source or made.source
