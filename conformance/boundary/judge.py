"""What is a fault in what Weir did with a case, by itself and beside the others."""

import dataclasses
import pathlib
import re
import tomllib

from . import readers

LIST = pathlib.Path(__file__).resolve().parent / "allowed.toml"


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something that is not as it must be, at one place of the configuration."""

    aspect: str
    """ambiguous, broken, dead, places, pieces, looser, other."""
    place: str
    text: str

    def __str__(self):
        return f"{self.aspect} at /{self.place}/: {self.text}"


@dataclasses.dataclass
class Rule:
    """A difference that is meant."""

    reason: str
    aspect: str
    having: list
    """Patterns; each must match an oddity, or the framing, as a whole."""
    place: str = ".*"
    used: int = 0

    def covers(self, case, fault):
        """Whether the rule is about the fault of a case."""
        names = (case.framing, *case.oddities)
        return (re.fullmatch(self.aspect, fault.aspect) and re.fullmatch(self.place, fault.place)
                and all(any(re.fullmatch(pattern, name, re.DOTALL) for name in names) for pattern in self.having))

    def problems(self):
        """What is too broad, or missing."""
        if len(self.reason) < 20:
            yield "a reason is missing"
        if self.aspect not in ("looser", "other", "broken", "ambiguous"):
            yield f"the aspect {self.aspect!r} can't be meant"
        if not self.having or any(re.fullmatch(pattern, "no such name") for pattern in self.having):
            yield "what a request must have is any"


def rules(path=LIST):
    """The list of what is meant."""
    with open(path, "rb") as file:
        return [Rule(**row) for row in tomllib.load(file).get("allowed", [])]


def read(outcome):
    """The requests behind, as the strict reader sees them: method, target without the case's place, body."""
    found = []
    for data in outcome.passed:
        try:
            seen, _ = readers.STRICT.one(data)
            found.append((seen.method, without_number(re.sub(rb"(?i)^[a-z]+://[^/]*", b"", seen.target)), without_number(seen.body)))
        except (readers.More, readers.Bad):
            found.append((b"?", b"?", without_number(data)))
    return found


def without_number(data):
    """Bytes without the place of the case, which is another one for each server."""
    return re.sub(rb"/(up|stream)/\d{7}", b"", data)


def alone(place, outcome):
    """Faults of one server by itself: what it has sent on must have one end for every reader."""
    for data in outcome.passed:
        if why := readers.disagreement(data):
            yield Fault("ambiguous", place, f"{why}: {data[:400]!r}")
    for data in outcome.broken:
        # A body that broke off behind a good head is no fault where it is streamed: its connection was closed.
        if place != "stream" or not is_begun(data):
            yield Fault("broken", place, repr(data[:400]))


def is_begun(data):
    """Whether bytes are the start of a request that every reader takes to be one, and not yet whole."""
    head, end, _ = data.partition(b"\r\n\r\n")
    if not end:
        return False
    size = re.search(rb"(?im)^content-length: (\d+)\r?$", head + b"\r")
    body = b"x" * int(size[1]) if size and int(size[1]) < 1 << 20 else b"" if size else b"0\r\n\r\n"
    return readers.disagreement(head + end + body) is None


def beside(place, one, others):
    """Faults beside other servers: requests that one server alone takes, or takes as another does not."""
    passed, good = read(one), one.good()
    if place == "alone":
        # The bodies are not seen there; how many requests there were is.
        counts = {name: other.good() for name, other in others.items()}
        if counts and good > max(counts.values()):
            yield Fault("looser", place, f"it took {good} requests, others {counts}")
        return
    lists = {name: read(other) for name, other in others.items()}
    if lists and all(len(other) < len(passed) for other in lists.values()):
        yield Fault("looser", place, f"it passed {passed}, others { {name: len(other) for name, other in lists.items()} }")
    for name, other in lists.items():
        # What one of them responds to by itself is left out of its list; what both pass must be the same.
        if not (is_within(passed, other) or is_within(other, passed)):
            yield Fault("other", place, f"it passed {passed}, {name} {other}")
        elif len(other) > len(passed) and not one.refused():
            yield Fault("other", place, f"it passed {len(passed)} requests and refused none, {name} {len(other)}")


def is_within(some, all_of_them):
    """Whether the items of one list are in the other in the same order."""
    rest = iter(all_of_them)
    return all(item in rest for item in some)


def places(found):
    """Faults between the places of one server: the same bytes are as many requests wherever they lead."""
    counts = {place: outcome.good() for place, outcome in found.items()}
    if len({counts["up"], counts["stream"]}) > 1:
        yield Fault("places", "all", f"{counts}: " + ", ".join(f"/{place}/ {outcome}" for place, outcome in found.items()))
