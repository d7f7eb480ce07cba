"""Real h2o.conf files made to run on this machine: their ports, certificates, directories and servers become a test's own.

A file stays as it is but for the values that name something of its machine. What cannot run here is named by `refused`.
"""

import os
import pathlib
import re

PAGES = {
    "index.html": "<!DOCTYPE html><title>index</title>\n" + "<p>some words of a page</p>\n" * 40,
    "index.txt": "an index\n",
    "plain.txt": "text\n" * 300,
    "style.css": "a { color: red }\n" * 30,
    "script.js": "var a = 1;\n" * 30,
    "data.json": '{"a": 1}\n',
    "picture.png": "not a picture\n",
    "no-extension": "bytes\n",
    "with space.txt": "spaced\n",
    "empty.txt": "",
    "inner/index.html": "<title>inner</title>\n",
    "inner/other.html": "<title>other</title>\n",
    "bare/file.txt": "in a directory without an index\n",
    "index.php": "<?php\n",
    "script.php": "<?php\n",
    "dir.php/inside.txt": "in a directory named like a script\n",
}

def refused(text):
    """Why a file is not run, or None."""
    if re.search(r"\{\{|%%[A-Z]", text):
        return "a template"
    if not re.search(r"^hosts\s*:", text, re.M):
        return "a part of a configuration"
    active = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    if "mruby.handler" in active:
        return "mruby.handler: Ruby"
    if "fastcgi.spawn" in active:
        return "fastcgi.spawn: a program of its machine"
    return None

class Adapted:
    """A file's text for this machine, and what is to be asked of it."""

    def __init__(self, text, directory, certificate, key, backend, fastcgi, port):
        self.directory, self.backend, self.fastcgi, self.next_port = directory, backend, fastcgi, port
        self.ports, self.roots = {}, {}
        self.certificate, self.key = certificate, key
        self.text = "".join(self.line(line) for line in text.splitlines(keepends=True))
        if not re.search(r"^pid-file", self.text, re.M):
            self.text = self.text.rstrip() + f"\npid-file: {directory}/h2o.pid\n"
        if os.getuid() == 0:
            self.text = self.text.rstrip() + "\nuser: root\n"

    def port(self, number):
        if number not in self.ports:
            self.ports[number] = self.next_port()
        return str(self.ports[number])

    def root(self, path):
        """A directory of the test for one of the file's, with pages in it."""
        name = re.sub(r"\W+", "_", path.strip("/\"'")) or "root"
        target = pathlib.Path(self.directory) / "roots" / name
        if name not in self.roots:
            self.roots[name] = target
            for page, text in PAGES.items():
                (target / page).parent.mkdir(parents=True, exist_ok=True)
                (target / page).write_text(text)

                os.utime(target / page, (1_700_000_000, 1_700_000_000))
        return target

    def line(self, line):
        key, colon, value = line.partition(":")
        name = key.strip().lstrip("- ").strip("\"'")
        bare = value.split(" #")[0].strip().strip("\"'")
        keep = lambda new: f"{key}: {new}\n"  # noqa: E731
        if line.lstrip().startswith("#"):
            return line
        if name in ("port", "listen") and bare.isdigit() and self.is_listening(line, bare):
            return keep(self.port(bare))
        if name == "port" and (bare.startswith("/") or bare.isdigit()):
            return keep(self.fastcgi if bare.startswith("/") else self.fastcgi_port)
        if name == "host":
            return keep("127.0.0.1")
        if name in ("certificate-file", "dh-file", "key-file"):
            return "" if name == "dh-file" else keep(self.key if name == "key-file" else self.certificate)
        if name == "file.dir":
            return keep(f'"{self.root(bare)}"')
        if name == "file.file":
            page = "index.html" if bare.endswith("html") else "picture.png"
            return keep(f'"{self.root(str(pathlib.PurePath(bare).parent)) / page}"')
        if name == "proxy.reverse.url":
            return keep(re.sub(r"http://(\[[^\]]*\]|[^/\s]*)", f"http://127.0.0.1:{self.backend}", bare))
        if name in ("user", "temp-buffer-path"):
            return ""
        if name == "pid-file":
            return keep(f"{self.directory}/h2o.pid")
        if name == "error-log":
            return keep(f"{self.directory}/error.log")
        if name == "access-log" and bare:
            return keep(f'"|cat >> {self.directory}/access.log"' if bare.startswith("|") else f"{self.directory}/access.log")
        if name == "path" and ("log" in bare or bare.startswith("|") or "/fd/" in bare):
            return keep(f"{self.directory}/access.log")
        if name == "num-threads" and not bare.isdigit():
            return keep("1")
        hosted = re.match(r"^(\s*\"?[^\s\"]*?):(\d+)(\"?):\s*$", line)
        if hosted and hosted[2] in self.ports:
            return f"{hosted[1]}:{self.ports[hosted[2]]}{hosted[3]}:\n"
        if hosted:
            return f"{hosted[1]}:{self.port(hosted[2])}{hosted[3]}:\n"
        return line

    fastcgi_port = 9

    def is_listening(self, line, number):
        """Whether a port is one to listen on; that of a FastCGI server is not."""
        return int(number) not in (9000,)

    def hosts(self):
        """Names and ports of the hosts, and their paths."""
        found, host, inside = [], None, False
        indent = paths_at = None
        for line in self.text.splitlines():
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            depth = len(line) - len(line.lstrip())
            name = line.strip().rstrip(":").strip("\"'")
            if re.match(r"^hosts\s*:", line):
                inside, indent = True, None
            elif inside and depth == 0:
                inside = False
            elif inside and (indent is None or depth == indent):
                indent, host = depth, [name, []]
                found.append(host)
            elif inside and line.strip().startswith("paths:"):
                paths_at = depth
            elif inside and paths_at is not None and line.strip().startswith(("/", '"/')) and depth > paths_at:
                path = re.match(r"^\s*[\"']?(/[^\"':\s]*)[\"']?\s*:", line)
                if path:
                    host[1].append(path[1])
        return found
