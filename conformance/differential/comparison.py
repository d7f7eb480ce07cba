"""Comparing what the two servers did with one request: response, connection, what their upstream servers got, log."""

import dataclasses
import email.utils
import re
import zlib

IGNORED = {"date", "keep-alive", "transfer-encoding", "content-length"}
"""`Date` is of the moment; framing is compared by itself."""
CLOCK = 5
"""Seconds by which times may differ that servers compute from now."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """One aspect in which the two differ: `status`, `field:vary`, `body`, `end`, `upstream:fields`, `log:sent`, `accepts` ..."""

    aspect: str
    nginx: str
    weir: str

    def key(self):
        """What stays the same while a case is made smaller."""
        exact = self.aspect in ("status", "end", "framing", "whole", "accepts", "upstream:count", "starts")
        return (self.aspect, self.nginx, self.weir) if exact else (self.aspect, bool(self.nginx), bool(self.weir))


class Comparison:
    """Knows what is of one server and not of the other: addresses and directories."""

    def __init__(self, nginx, weir):
        self.servers = (nginx, weir)

    def neutral(self, text):
        """A text with the servers' own words taken out."""
        for server in self.servers:
            text = text.replace(str(server.directory), "/DIR").replace(server.address, "127.0.0.9")
        # userid's cookies are no two alike; they are in bodies where the client got no head (HTTP/0.9).
        text = re.sub(r"(?<=\bu=)[\w+/=]{24}|(?<=\buid=)[\w+/=]{24}", "UID", text)
        return re.sub(r"boundary=[0-9]+", "boundary=B", text)

    def neutral_body(self, body):
        text = self.neutral(body.decode("latin1"))
        return re.sub(r"[0-9]{20}", "BOUNDARY", text)

    def responses(self, one, other, request):
        """The differences of two responses; one that explains the others comes alone."""
        if one.status != other.status:
            return [Difference("status", str(one.status), str(other.status))]
        found = [Difference("interim", str(one.interim), str(other.interim))] if one.interim != other.interim else []
        if one.line != other.line:
            found.append(Difference("line", one.line, other.line))
        found += self.fields(one, other)
        if one.whole != other.whole:
            return [*found, Difference("whole", f"{one.whole}, {one.end}", f"{other.whole}, {other.end}")]
        if framing(one) != framing(other):
            found.append(Difference("framing", framing(one), framing(other)))
        if not request.http2 or request.method != "HEAD":
            ours, theirs = (self.neutral_body(unpacked(side)) for side in (one, other))
            if ours != theirs:
                found.append(Difference("body", *shortened(ours, theirs)))
        if one.end != other.end:
            found.append(Difference("end", one.end, other.end))
        return found

    def fields(self, one, other):
        """Fields that one has and the other not, or with other values; framing counts by itself."""
        names = dict.fromkeys(name.lower() for name, _ in one.fields + other.fields)
        found = []
        for name in names:
            if name in IGNORED:
                continue
            theirs, ours = ([self.neutral(value) for value in side.values(name)] for side in (one, other))
            if theirs != ours and not same_times(name, theirs, ours):
                found.append(Difference(f"field:{name}", " | ".join(theirs), " | ".join(ours)))
        return found

    def upstream(self, one, other):
        """What the upstream servers got."""
        if len(one) != len(other):
            return [Difference("upstream:count", str(len(one)), str(len(other)))]
        found = []
        # Which of a request and its copies comes first is chance.
        one, other = (sorted(side, key=lambda record: self.neutral(record["line"])) for side in (one, other))
        for theirs, ours in zip(one, other):
            if self.neutral(theirs["line"]) != self.neutral(ours["line"]):
                found.append(Difference("upstream:line", self.neutral(theirs["line"]), self.neutral(ours["line"])))
            before, after = ([self.neutral(field) for field in record["fields"]] for record in (theirs, ours))
            if sorted(before) != sorted(after):
                only = [" | ".join(field for field in side if field not in rest) for side, rest in ((before, after), (after, before))]
                name = sorted(field.partition(":")[0].lower() for field in set(before) ^ set(after))
                found.append(Difference(f"upstream:{name[0] if name else 'order'}", *only))
            if theirs["body"] != ours["body"]:
                found.append(Difference("upstream:body", *shortened(theirs["body"].decode("latin1"), ours["body"].decode("latin1"))))
        return found

    def log_lines(self, one, other):
        """Lines of the access logs of one request, in their order."""
        theirs, ours = ([self.neutral(line) for line in side] for side in (one, other))
        # Which of a request and its copies or subrequests ends first is chance.
        if sorted(theirs) == sorted(ours):
            return []
        theirs, ours = (sorted(side, key=logged_uri) for side in (theirs, ours))
        pairs, missing, more = list(zip(theirs, ours)), [], []
        if len(theirs) != len(ours):
            pairs, missing, more = paired_by_path(theirs, ours)
        found = [difference for line, twin in pairs for difference in log_fields(line, twin)]
        found += [Difference("log:missing", line[:300], "") for line in missing]
        return found + [Difference("log:more", "", line[:300]) for line in more]


def is_of_framing(difference, more):
    """Whether a difference of bytes in the log is that of the chunks' heads: `more` is how many nginx has sent beyond Weir's."""
    if difference.aspect not in ("log:sent", "log:body") or not more:
        return False
    return difference.nginx.isdigit() and difference.weir.isdigit() and int(difference.nginx) - int(difference.weir) == more


def unpacked(response):
    """A body without gzip: how well it is packed is each server's own. As far as it can be read, where it is cut or broken."""
    if [value.lower() for value in response.values("content-encoding")] != ["gzip"] or response.status == 206:
        return response.body
    try:
        return b"gzip:" + zlib.decompressobj(31).decompress(response.body)
    except zlib.error:
        return response.body


def framing(response):
    """How the length of a response's body is said; the length itself where no body shows it."""
    if "chunked" in response.values("transfer-encoding"):
        return "chunked"
    length = response.values("content-length")
    return f"length{'' if response.body else ' ' + ' '.join(length)}" if length else "none"


def logged_uri(line):
    """The path of a line of the log: lines of one request and its copies are compared path by path."""
    return line.partition("|uri=")[2].partition("|")[0]


def paired_by_path(theirs, ours):
    """Lines of the same path, in pairs, and those of either side that have none."""
    rest, pairs, missing = list(ours), [], []
    for line in theirs:
        twin = next((other for other in rest if logged_uri(other) == logged_uri(line)), None)
        if twin is None:
            missing.append(line)
        else:
            rest.remove(twin)
            pairs.append((line, twin))
    return pairs, missing, rest


def log_fields(one, other):
    """The fields in which two lines of the log differ."""
    for theirs, ours in zip(one.split("|"), other.split("|")):
        if theirs != ours:
            yield Difference(f"log:{theirs.partition('=')[0]}", theirs.partition("=")[2], ours.partition("=")[2])


def same_times(name, one, other):
    """Whether values that are computed from the clock are near enough."""
    if len(one) != len(other) or name not in ("expires", "cache-control", "last-modified", "etag", "set-cookie"):
        return False
    return all(_near(theirs, ours) for theirs, ours in zip(one, other))


def _near(one, other):
    if one == other or (cookie := re.match(r"\w+=[\w+/=]{20,}", one)) and re.match(r"\w+=[\w+/=]{20,}", other) and one.partition(";")[2] == other.partition(";")[2]:
        return True
    ages = [re.fullmatch(r"max-age=([0-9]+)", value) for value in (one, other)]
    if all(ages):
        return abs(int(ages[0][1]) - int(ages[1][1])) <= CLOCK
    tags = [re.fullmatch(r'(?:W/)?"([0-9a-f]+)-([0-9a-f]+)"', value) for value in (one, other)]
    if all(tags):
        return tags[0][2] == tags[1][2] and abs(int(tags[0][1], 16) - int(tags[1][1], 16)) <= CLOCK
    try:
        times = [email.utils.parsedate_to_datetime(value) for value in (one, other)]
    except (TypeError, ValueError):
        return False
    return abs((times[0] - times[1]).total_seconds()) <= CLOCK


def shortened(one, other):
    """The two texts around the first place where they differ."""
    at = next((place for place, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    start = max(0, at - 60)
    return tuple(f"{len(text)} bytes: {'...' if start else ''}{text[start:at + 160]!r}" for text in (one, other))


CLASSES = (
    ("unknown directive", r"unknown directive"), ("not allowed here", r"directive is not allowed here"), ("number of arguments", r"invalid number of arguments"),
    ("duplicate", r"is duplicate|duplicate "), ("value", r"invalid value|invalid (?:parameter|number|condition|arguments|time|size|port|variable name|URL|address|status|return code)"),
    ("conflict", r"conflicts with|can ?not be (?:used|specified)|cannot be"), ("unknown variable", r"unknown \"\w*\" variable"), ("unknown zone", r"zone \"\w+\" is unknown|unknown (?:limit_)?\w* ?zone"),
    ("no block", r"has no (?:opening|closing) \"[{}]\"|unexpected"), ("host", r"host not found|no host|no port|no resolver"), ("file", r"\(2: No such|open\(\)|stat\(\)"), ("pattern", r"pcre"),
)


def message_class(message):
    """What kind of error a message of `-t` is; its text, less places and values, where it is of no known kind."""
    if message is None:
        return "accepted"
    for name, pattern in CLASSES:
        if re.search(pattern, message):
            return name
    return re.sub(r"\s+in /\S+:\d+.*|\"[^\"]*\"|\d+", "", re.split(r"\[(?:emerg|alert|crit|error)\]", message)[-1]).strip()[:120]
