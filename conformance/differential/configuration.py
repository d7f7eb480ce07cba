"""A generated configuration: a source, directives in blocks, and its text for one of the two servers.

Words in values: `%N%` the configuration's number (for zones and names of its own), `%DIR%` the server's directory,
`%UP%`, `%FCGI%`, `%SCGI%`, `%UWSGI%` upstream servers of the harness.
"""

import dataclasses

from . import sources


@dataclasses.dataclass(frozen=True)
class Configuration:
    """What one `server` block is made of. Its parts can be taken away one by one: see `parts` and `without`."""

    source: sources.Source
    nested: sources.Source | None = None
    named: sources.Source | None = None
    inner: sources.Source | None = None
    """The content of the `if` in the location."""
    beside: tuple = ()
    """Names of `sources.SHADOWED`."""
    levels: tuple = ()
    plain: tuple = ()
    """Directives of `http`, shared with the other configurations of a start."""

    def parts(self):
        """What the minimiser may take away."""
        optional = [name for name in ("nested", "named", "inner") if getattr(self, name) is not None]
        return ([("field", name) for name in optional] + [("beside", name) for name in self.beside]
                + [("levels", level) for level in self.levels] + [("plain", level) for level in self.plain])

    def only(self, kept):
        """The configuration with these of its parts."""
        chosen = {kind: tuple(value for at, value in kept if at == kind) for kind in ("field", "beside", "levels", "plain")}
        # Without the block there is no place for its directives.
        optional = {name: getattr(self, name) if name in chosen["field"] else None for name in ("nested", "named", "inner")}
        return dataclasses.replace(self, beside=chosen["beside"], levels=chosen["levels"], plain=chosen["plain"], **optional)

    def names(self):
        """Everything that a rule may ask for: directives with value and block, sources, locations beside."""
        found = {f"source: {self.source.name}"}
        for kind in ("nested", "named", "inner"):
            if getattr(self, kind) is not None:
                found.add(f"{kind}: {getattr(self, kind).name}")
        found |= {f"beside: {name}" for name in self.beside}
        return found | {str(level) for level in (*self.levels, *self.plain)}

    def has_upstream(self):
        """Whether any of its content comes from the harness's upstream servers."""
        return any(source is not None and "_pass" in source.text for source in (self.source, self.nested, self.named, self.inner))

    def texts(self, server, number):
        """The text for `http` and the `server` block."""
        block = self._server_block()
        zones = [text for word, text in sources.ZONES.items() if word in block]
        shared = " ".join(level.text for level in self.plain)
        places = [text for word, text in sources.PLACES.items() if _mentions(block + shared, word)]
        zones += [text for word, text in sources.ZONES.items() if word in " ".join(places) and text not in zones]
        block = block.replace("%PLACES%", "\n    ".join(places))
        return server.filled("\n".join(zones), number), server.filled(block, number)

    def _lines(self, block):
        return [level.text for level in self.levels if level.block == block]

    def _server_block(self):
        lines = ["listen %IP%:%PORT%;", "%LISTEN%server_name a.test *.b.test;", "%PLACES%", *self._lines("server")]
        if conditions := self._lines("server if"):
            lines.append(f"if ($arg_c = x) {{ {' '.join(conditions)} }}")
        lines.append("location = /probe { return 200 probe; }")
        lines += [sources.SHADOWED[name] for name in self.beside]
        lines.append("location /t/ {\n" + "".join(f"        {line}\n" for line in self._location()) + "    }")
        if self.named is not None:
            lines.append(f"location @named {{ {' '.join([*self._lines('named'), self.named.text])} }}")
        return "server {\n" + "".join(f"    {line}\n" for line in lines) + "}\n"

    def _location(self):
        own = self._lines("location")
        lines = [*own, *_without_repeats(self.source.text, own)]
        if self.named is not None and not any("@named" in line for line in own):
            lines.append("error_page 404 403 418 = @named;")
        conditions = self._lines("if")
        if conditions or self.inner is not None:
            lines.append(f"if ($arg_a = 1) {{ {' '.join([*conditions, self.inner.text if self.inner else ''])} }}")
        if refused := self._lines("limit_except"):
            lines.append(f"limit_except GET {{ {' '.join(refused)} }}")
        if self.nested is not None:
            own = self._lines("nested")
            lines.append(f"location /t/n/ {{ {' '.join([*own, *_without_repeats(self.nested.text, own)])} }}")
        return lines


def _mentions(text, word):
    return word in text


def _without_repeats(text, lines):
    """A source's directives, less those that the location has of its own."""
    if "{" in text:
        return [text]
    own = {line.split()[0].rstrip(";") for line in lines} - {"set", "proxy_set_header"}
    pieces = [piece.strip() + ";" for piece in text.split(";") if piece.strip()]
    repeated = {"root", "alias", "dav_methods", "proxy_cache", "autoindex", "proxy_http_version", "proxy_pass_request_body"}
    return [piece for piece in pieces if not (piece.split()[0] in repeated and piece.split()[0] in own)]


def is_sound(configuration, level, beside=None):
    """Whether a level may join: no second one where one is allowed, and the blocks it wants are there. `beside`: the levels
    in place of the configuration's own."""
    for other in (*(configuration.levels if beside is None else beside), *configuration.plain):
        if other.name == level.name and other.block == level.block and (not level.repeats or other.value == level.value):
            return False
    if level.block == "nested" and configuration.nested is None:
        return False
    return level.block != "named" or configuration.named is not None


HEAD = """\
worker_processes 1;
daemon off;
master_process off;
pid %DIR%/pid;
error_log %DIR%/error.log info;
events { worker_connections 1024; %DRIVER% }
http {
%LUA%
%PRODUCT%
variables_hash_max_size 8192; variables_hash_bucket_size 128;
server_names_hash_bucket_size 128; types_hash_max_size 4096;
log_format differ '$realip_remote_port|"$request"|status=$status|sent=$bytes_sent|body=$body_bytes_sent|uri=$uri|args=$args|host=$host'
                  '|length=$request_length|completion=$request_completion|user=$remote_user|up=$upstream_status|cache=$upstream_cache_status'
                  '|type=$sent_http_content_type|http=$server_protocol|address=$remote_addr|y=$document_uri';
access_log %DIR%/access.log differ;
client_body_temp_path %DIR%/body; proxy_temp_path %DIR%/proxy; fastcgi_temp_path %DIR%/fastcgi;
uwsgi_temp_path %DIR%/uwsgi; scgi_temp_path %DIR%/scgi;
"""
