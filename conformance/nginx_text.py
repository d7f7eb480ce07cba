"""Directives of a configuration and where they are, so that words can be replaced and all else stays byte for byte."""
import dataclasses
import re

SPACE = " \t\r\n"
LUA = re.compile(r".*_by_lua_block$")


@dataclasses.dataclass
class Word:
    text: str
    start: int
    end: int


@dataclasses.dataclass
class Directive:
    words: list
    inside: list = None
    body: int = 0
    end: int = 0

    @property
    def name(self):
        return self.words[0].text

    @property
    def arguments(self):
        return self.words[1:]


class Broken(Exception):
    """Not nginx's syntax."""


def parse(text):
    """The tree of directives.

    >>> [(it.name, len(it.inside or ())) for it in parse('a b; # c\\nserver { x "y z"; access_by_lua_block { a = "}" } }')]
    [('a', 0), ('server', 2)]
    """
    directives, at = block(text, 0)
    if at < len(text):
        raise Broken(f"unexpected }} at {at}")
    return directives


def block(text, at):
    found, words = [], []
    while True:
        at = blank(text, at)
        if at >= len(text) or text[at] == "}":
            if words:
                raise Broken(f"a directive without end at {words[0].start}")
            return found, at
        if text[at] == ";":
            if words:
                found.append(Directive(words))
            words, at = [], at + 1
        elif text[at] == "{" and words:
            directive = Directive(words, body=at + 1)
            if LUA.match(directive.name):
                at = lua(text, at + 1)
            else:
                directive.inside, at = block(text, at + 1)
                if at >= len(text):
                    raise Broken(f"a block without end at {words[0].start}")
                at += 1
            directive.end = at
            found.append(directive)
            words = []
        else:
            it = word(text, at)
            words.append(it)
            at = it.end


def blank(text, at):
    while at < len(text) and (text[at] in SPACE or text[at] == "#"):
        at = at + 1 if text[at] != "#" else (text.find("\n", at) if "\n" in text[at:] else len(text))
    return at


def word(text, at):
    start = at
    if text[at] in "\"'":
        quote, at = text[at], at + 1
        while at < len(text) and text[at] != quote:
            at += 2 if text[at] == "\\" else 1
        if at >= len(text):
            raise Broken(f"a quote without end at {start}")
        return Word(text[start + 1:at], start, at + 1)
    while at < len(text) and text[at] not in SPACE and text[at] != ";":
        if text[at] == "{" and text[at - 1] != "$":
            break
        if text[at:at + 2] == "${":
            at = text.find("}", at)
            if at < 0:
                raise Broken(f"a variable without end at {start}")
        at += 2 if text[at] == "\\" else 1
    if at == start:
        raise Broken(f"unexpected {text[at]} at {at}")
    return Word(text[start:at], start, min(at, len(text)))


def lua(text, at):
    """The end of a block of Lua: quotes, long brackets and comments may hold braces."""
    depth = 1
    while at < len(text):
        long = re.compile(r"(?:--)?\[(=*)\[").match(text, at)
        if long:
            at = text.find(f"]{long[1]}]", at)
            if at < 0:
                break
        elif text.startswith("--", at):
            at = text.find("\n", at)
            if at < 0:
                break
        elif text[at] in "\"'":
            at = word(text, at).end - 1
        elif text[at] in "{}":
            depth += 1 if text[at] == "{" else -1
            if not depth:
                return at + 1
        at += 1
    raise Broken("a Lua block without end")


def walk(directives):
    for directive in directives:
        yield directive
        yield from walk(directive.inside or ())


def replace(text, edits):
    """Text with spans replaced: a list of (start, end, text)."""
    for start, end, new in sorted(set(edits), reverse=True):
        text = text[:start] + new + text[end:]
    return text
