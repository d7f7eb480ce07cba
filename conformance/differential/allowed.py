"""The list of differences that are meant (`allowed.toml`), each with its reason, and whether one of them covers a difference."""

import dataclasses
import pathlib
import re
import tomllib

LIST = pathlib.Path(__file__).resolve().parent / "allowed.toml"


@dataclasses.dataclass
class Rule:
    """One meant difference. All that it says must hold; what it must say is checked by `problems`."""

    reason: str
    aspect: str
    """A pattern for the whole aspect."""
    having: list = dataclasses.field(default_factory=list)
    """Patterns; each must match one name of the configuration or the request as a whole."""
    without: list = dataclasses.field(default_factory=list)
    """Patterns of names that must not be there."""
    nginx: str = ""
    """A pattern to be found in what nginx did; the same for Weir. Empty: not looked at."""
    weir: str = ""
    always: bool = False
    """Where nginx has such a status the difference must be there: Weir is meant to be stricter, and one day may not be."""
    used: int = 0
    aspects: set = dataclasses.field(default_factory=set)
    """Those that it covered: what of `aspect` is needed."""

    def covers(self, names, difference):
        """Whether this rule is about the difference."""
        if not re.fullmatch(self.aspect, difference.aspect):
            return False
        if not (re.search(self.nginx, difference.nginx) and re.search(self.weir, difference.weir)):
            return False
        return self.is_about(names)

    def is_about(self, names):
        """Whether a case with these names is one of the rule's."""
        found = all(any(re.fullmatch(pattern, name, re.DOTALL) for name in names) for pattern in self.having)
        return found and not any(re.fullmatch(pattern, name, re.DOTALL) for pattern in self.without for name in names)

    def problems(self):
        """What is too broad, or missing."""
        if len(self.reason) < 20:
            yield "a reason is missing"
        if self.aspect in ("", ".*", ".+") or re.fullmatch(self.aspect, "no such aspect"):
            yield f"the aspect {self.aspect!r} is any"
        if not self.having and not (self.nginx and self.weir):
            yield f"{self.aspect}: neither names of configurations and requests, nor what both did"
        if self.always and (self.aspect != "status" or not self.nginx):
            yield f"{self.aspect}: only a status, of a status of nginx, can be meant always"
        if any(re.fullmatch(pattern, "no such name") for pattern in self.having):
            yield f"{self.aspect}: a pattern of `having` is any"


def read(path=LIST, doubted=""):
    """The rules of the file, without those whose reason has the pattern `doubted`."""
    with open(path, "rb") as file:
        rules = [Rule(**row) for row in tomllib.load(file).get("allowed", [])]
    return [rule for rule in rules if not doubted or not re.search(doubted, rule.reason)]


def covering_rule(rules, names, difference):
    """The first rule that covers a difference; it is counted."""
    for rule in rules:
        if rule.covers(names, difference):
            rule.used += 1
            rule.aspects.add(difference.aspect)
            return rule
    return None
