"""Reading the Test Anything Protocol: which assertions of a file passed.

>>> result = parse(["1..4", "ok 1 - a", "not ok 2 - b", "ok 3 # skip no ssl", "ok 4 - c # TODO later"])
>>> sorted(result.passed), sorted(result.failed), result.skipped, result.todo
([1], [2], 1, 1)
>>> result.complete
True
"""

import dataclasses
import re

_PLAN = re.compile(r"1\.\.(\d+)(?:\s*#\s*skip\S*\s*(.*))?\s*$", re.IGNORECASE)
_LINE = re.compile(r"(not )?ok\b(?:\s+(\d+))?(.*)$")
_ENDING = re.compile(r" - no (alerts|sanitizer errors)$")
_BLOCK = re.compile(r"TEST\s+(\d+(?:\.\d+)?)")
_DIRECTIVE = re.compile(r"(?<!\\)#\s*(skip|todo)", re.IGNORECASE)


@dataclasses.dataclass
class Result:
    """What one file said."""

    planned: int | None = None
    """Assertions announced; None without a plan."""
    skip_all: str | None = None
    """Why the whole file was skipped."""
    passed: set = dataclasses.field(default_factory=set)
    """Numbers of the assertions that passed: neither skipped nor marked TODO."""
    failed: set = dataclasses.field(default_factory=set)
    skipped: int = 0
    todo: int = 0

    @property
    def complete(self):
        """True when as many assertions came as were announced."""
        seen = len(self.passed) + len(self.failed) + self.skipped + self.todo
        return self.skip_all is not None or (self.planned is not None and seen == self.planned)


def parse(lines):
    """Reads the lines a test file printed.

    A skipped file announces no assertions:

    >>> parse(["1..0 # SKIP no such module"]).skip_all
    'no such module'

    A number that is left out is the next one, and a file that dies is not complete:

    >>> result = parse(["1..3", "ok", "ok - second"])
    >>> sorted(result.passed), result.complete
    ([1, 2], False)

    What the suite itself asserts when a file ends has other numbers when the file dies, and does not count then:

    >>> sorted(parse(["1..4", "ok 1 - a", "ok 2 - no alerts", "ok 3 - no sanitizer errors"]).passed)
    [1]
    >>> sorted(parse(["1..3", "ok 1 - a", "ok 2 - no alerts", "ok 3 - no sanitizer errors"]).passed)
    [1, 2, 3]

    An assertion that fails once has failed:

    >>> sorted(parse(["ok 1", "not ok 1"]).passed)
    []
    """
    result = Result()
    number = 0
    ending = set()
    for line in lines:
        line = line.rstrip("\r\n")
        if plan := _PLAN.match(line):
            result.planned = int(plan[1])
            if result.planned == 0:
                result.skip_all = plan[2] or "no reason given"
        elif found := _LINE.match(line):
            number = int(found[2]) if found[2] else number + 1
            _count(result, number, failed=bool(found[1]), text=found[3])
            if _ENDING.match(found[3]):
                ending.add(number)
    result.passed -= result.failed
    if not result.complete:
        result.passed -= ending
    return result


def blocks(text):
    """The blocks of what a file of a suite of blocks printed: (passed, failed), as sets of their numbers.

    A block has passed when all of its assertions have, and one was not skipped:

    >>> blocks("ok 1 - a.t TEST 1: x - status\\nnot ok 2 - a.t TEST 1: x - body\\nok 3 - a.t TEST 2: y - body")
    ({'2'}, {'1'})
    >>> blocks("ok 1 # skip a.t TEST 1: x\\nok 2 - a.t TEST 10.5: y - body")
    ({'10.5'}, set())
    """
    passed, failed = set(), set()
    for line in text.splitlines():
        if (found := _LINE.match(line)) and (block := _BLOCK.search(found[3])):
            if found[1]:
                failed.add(block[1])
            elif not _DIRECTIVE.search(found[3]):
                passed.add(block[1])
    return passed - failed, failed


def _count(result, number, failed, text):
    directive = _DIRECTIVE.search(text)
    if directive and directive[1].lower() == "todo":
        result.todo += 1
    elif directive:
        result.skipped += 1
    elif failed:
        result.failed.add(number)
    else:
        result.passed.add(number)


def ranges(numbers):
    """Writes a set of numbers shortly.

    >>> ranges({1, 2, 3, 7, 9, 10})
    '1-3,7,9-10'
    >>> ranges(set())
    '-'
    """
    parts = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts) or "-"


def numbers(text):
    """Reads what `ranges` wrote.

    >>> sorted(numbers('1-3,7'))
    [1, 2, 3, 7]
    >>> numbers('-')
    set()
    """
    found = set()
    for part in text.split(",") if text != "-" else []:
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
