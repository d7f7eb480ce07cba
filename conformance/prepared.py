"""Makes public configurations such that a server can read them here: certificates, includes, names and zones supplied."""
import glob
import pathlib
import re
import shutil

import certificates
from nginx_text import Broken, parse, replace, walk

CERTIFICATES = re.compile(r"(?:(?:proxy|grpc|uwsgi|lua)_)?ssl_(certificate|certificate_key|trusted_certificate|client_certificate|crl|dhparam"
                          r"|session_ticket_key|password_file|stapling_file)$")
PATHS = re.compile(r"(access_log|error_log|pid|lock_file|\w+_temp_path|\w+_cache_path|dav_access_log|slow_log)$")
KNOWN = ("mime.types", "fastcgi_params", "fastcgi.conf", "uwsgi_params", "scgi_params", "proxy_params", "koi-utf", "koi-win", "win-utf")
TEMPLATE = re.compile(r"\{\{|\{%|<%|%[a-z_]+%|^\s*\{[a-z]+\b.*\}\s*$|@@\w+@@|__[A-Z_]+__|<[A-Z_]{3,}>", re.M)
FIXES = 60


class Sandbox:
    """A directory in which a server starts, with what configurations need beside themselves."""

    def __init__(self, directory, lua_path):
        self.directory, self.lua_path = directory, lua_path
        root = certificates.Authority(directory, "root")
        pair = root.issue("site.test")
        self.files = {"certificate": pair.path, "certificate_key": pair.key, "trusted_certificate": root.path, "client_certificate": root.path,
                      "crl": root.list(), "dhparam": directory / "dh.pem", "session_ticket_key": directory / "ticket.key",
                      "password_file": directory / "password", "stapling_file": directory / "password"}
        self.files["session_ticket_key"].write_bytes(bytes(range(48)))
        self.files["password_file"].write_text("secret\n")
        certificates.openssl("dhparam", "-dsaparam", "-out", self.files["dhparam"], "2048")
        self.empty = directory / "empty.conf"
        for name in ("empty.conf", "empty.lua"):
            directory.joinpath(name).write_text("")
        self.clear()

    def clear(self):
        """As it was made, for another configuration."""
        for name in ("logs", "temp", "conf"):
            shutil.rmtree(self.directory / name, ignore_errors=True)
            self.directory.joinpath(name).mkdir()
        for name in KNOWN:
            found, to = pathlib.Path("/etc/nginx") / name, self.directory / "conf" / name
            to.write_bytes(found.read_bytes() if found.exists() else b"")


class Project:
    """The files of one project, by their names."""

    def __init__(self, directory):
        self.directory = directory
        self.files = sorted(it for it in directory.rglob("*") if it.is_file())

    def include(self, beside, pattern):
        """The files that an `include` means: beside the file, or by the longest end of a path that is alike."""
        here = sorted(pathlib.Path(it) for it in glob.glob(str(beside.parent / pattern)) if pathlib.Path(it).is_file()) if not pattern.startswith("/") else []
        parts = pathlib.PurePath(pattern.lstrip("/")).parts
        for n in range(len(parts)):
            if here or (len(parts) - n < 2 and len(parts) > 1):
                break
            end = "/".join(parts[n:])
            here = [it for it in self.files if it.relative_to(self.directory).match(end)]
        return [it for it in here if it != beside][:60]


class Text:
    """One configuration on its way to what a server reads."""

    def __init__(self, project, path, sandbox):
        self.project, self.path, self.sandbox = project, path, sandbox
        self.seen, self.taken_out = {path}, set()
        self.whole = self.text_of(path, 0)
        self.prelude, self.around = [], self.guess()

    def text_of(self, path, depth):
        text = path.read_text(errors="replace")
        return self.edited(text, path, depth)

    def edited(self, text, path, depth):
        edits = []
        for it in walk(parse(text)):
            edits += self.edits(it, path, depth, text)
        return replace(text, edits)

    def edits(self, it, path, depth, text):
        words, name = it.arguments, it.name
        kind = CERTIFICATES.match(name)
        if name == "include" and len(words) == 1:
            return self.included(it, path, depth)
        if name == "load_module":
            self.taken_out.add("load_module")
            return [(it.words[0].start, text.index(";", words[-1].end) + 1, "")]
        if kind and words and "$" not in words[0].text and not words[0].text.startswith(("data:", "engine:", "off")):
            return [(words[0].start, words[0].end, str(self.sandbox.files[kind[1]]))]
        if name == "user" and words:
            return [(words[0].start, words[-1].end, "nobody nogroup")]
        if PATHS.match(name) and words and not re.match(r"off$|syslog:|memory:|stderr$|/dev/|.*\$", words[0].text):
            place = self.sandbox.directory / "temp" / re.sub(r"\W+", "_", words[0].text) if "log" not in name else self.sandbox.directory / "logs" / pathlib.Path(words[0].text).name
            return [(words[0].start, words[0].end, str(place))]
        return self.lua(it, text)

    def lua(self, it, text):
        """Libraries are not here, so nothing is run when a configuration is read."""
        name, words = it.name, it.arguments
        if name in ("lua_package_path", "lua_package_cpath") and words:
            return [(it.words[0].start, text.index(";", words[-1].end) + 1, "")]
        if name in ("init_by_lua", "init_by_lua_file") and words:
            new = "''" if name == "init_by_lua" else str(self.sandbox.directory / "empty.lua")
            return [(words[0].start, words[0].end, new)]
        if name == "init_by_lua_block":
            return [(it.body, it.end - 1, " ")]
        return []

    def included(self, it, path, depth):
        word = it.arguments[0]
        known = pathlib.PurePath(word.text).name
        if known in KNOWN:
            files = [self.sandbox.directory / "conf" / known]
        else:
            files = [self.copy(file, depth) for file in self.project.include(path, word.text)] if depth < 6 else []
        new = f"; include ".join(str(file) for file in files or [self.sandbox.empty])
        return [(word.start, word.end, new)]

    def copy(self, path, depth):
        """A prepared copy of a file that is included."""
        self.seen.add(path)
        to = self.sandbox.directory / "conf" / re.sub(r"\W+", "_", str(path.relative_to(self.project.directory)))
        try:
            to.write_text(self.text_of(path, depth + 1))
        except Broken:
            to.write_text(path.read_text(errors="replace"))
        return to

    def guess(self):
        """How many blocks the file wants around it: none, `http`, `server`, `location`."""
        names = {it.name for it in parse(self.whole)}
        if names & {"events", "http"}:
            return 0
        if names & {"server", "upstream", "map", "geo", "log_format", "types", "proxy_cache_path", "limit_req_zone"}:
            return 1
        return 2 if names & {"location", "listen", "server_name"} else 3

    def final(self):
        """What the servers read."""
        text = self.whole
        lua = f'lua_package_path "{self.sandbox.lua_path}/?.lua;;";' if self.sandbox.lua_path else ""
        prelude = " ".join((lua, *self.prelude))
        if not self.around:
            http = next((it for it in parse(text) if it.name == "http" and it.inside is not None), None)
            text = replace(text, [(http.body, http.body, f" {prelude} ")]) if http else text
            return text if any(it.name == "events" for it in parse(text)) else f"events {{ }}\n{text}"
        for block in ("location /it {{ {} }}", "server {{ listen 127.0.0.1:8099; {} }}", "http {{ %s {} }}")[3 - self.around:]:
            text = block.format(f"\n{text}\n")
        return "events { }\n" + text.replace("%s", prelude, 1)

    def fix(self, error):
        """Supplies what a server's first error says is missing here; whether there was something to do."""
        for pattern, do in FIX:
            if found := re.search(pattern, error):
                return do(self, *found.groups())
        return False

    def swap(self, old, new):
        """A word of the configuration, and of what it includes, by another one."""
        files = [it for it in self.sandbox.directory.joinpath("conf").iterdir() if it.name not in KNOWN]
        pattern = re.compile(rf"(?<![\w.-]){re.escape(old)}(?![\w.-])")
        changed = bool(pattern.search(self.whole))
        self.whole = pattern.sub(lambda _: new, self.whole)
        for file in files:
            text = file.read_text(errors="replace")
            if pattern.search(text):
                file.write_text(pattern.sub(lambda _: new, text))
                changed = True
        return changed

    def further_out(self):
        """For lines that are not allowed where they were put."""
        self.around -= 1
        return self.around > 0

    def supply(self, line):
        if line in self.prelude:
            return False
        self.prelude.append(line)
        return True


def zone(text, name):
    """A zone by what uses it."""
    everything = text.whole + "".join(it.read_text(errors="replace") for it in text.sandbox.directory.joinpath("conf").iterdir())
    quoted = re.escape(name)
    if re.search(rf"limit_req\s[^;]*zone={quoted}\b", everything):
        return text.supply(f"limit_req_zone $binary_remote_addr zone={name}:1m rate=10r/s;")
    if re.search(rf"limit_conn\s+{quoted}\s", everything):
        return text.supply(f"limit_conn_zone $binary_remote_addr zone={name}:1m;")
    return text.supply(f"proxy_cache_path {text.sandbox.directory}/temp/cache_{name} keys_zone={name}:1m;")


FIX = (
    (r'host not found in (?:upstream|resolver|"[^"]*"|\w+) "([^":]+)', lambda text, host: text.swap(host, "127.0.0.1")),
    (r'host not found in "([^":]+)', lambda text, host: text.swap(host, "127.0.0.1")),
    (r"bind\(\) to ([0-9.]+):\d+ failed", lambda text, address: text.swap(address, "127.0.0.1")),
    (r"bind\(\) to \[([0-9a-f:]+)\]:\d+ failed", lambda text, address: text.swap(address, "::1")),
    (r'no port in upstream "([^"]+)"', lambda text, name: text.supply(f"upstream {name} {{ server 127.0.0.1:9000; }}")),
    (r'"aio (\w+)" is unsupported', lambda text, word: text.swap(f"aio {word};", "")),
    (r"directive is not allowed here", lambda text: text.further_out()),
    (r'zero size shared memory zone "([^"]+)"', zone),
    (r'"proxy_cache" zone "([^"]+)" is unknown', zone),
    (r'unknown log format "([^"]+)"', lambda text, name: text.supply(f"log_format {name} $remote_addr;")),
    (r'unknown "(\w+)" variable', lambda text, name: text.supply(f'map "" ${name} {{ default ""; }}')),
)
