"""What `-t` says of single directives: every value of the table, and wrong ones, in every block, wrong ones among them."""

import random

from . import comparison, directives

FRAMES = {
    "http": "%D%\nserver { listen %IP%:%PORT%; }", "server": "server { listen %IP%:%PORT%; %D% }", "location": "server { listen %IP%:%PORT%; location / { %D% } }",
    "nested": "server { listen %IP%:%PORT%; location / { location /n/ { %D% } } }", "if": "server { listen %IP%:%PORT%; location / { if ($arg_a) { %D% } } }",
    "server if": "server { listen %IP%:%PORT%; if ($arg_a) { %D% } }", "limit_except": "server { listen %IP%:%PORT%; location / { limit_except GET { %D% } } }",
    "named": "server { listen %IP%:%PORT%; location @n { %D% } }", "upstream": "upstream u { server 127.0.0.1:1; %D% } server { listen %IP%:%PORT%; }",
    "events": "", "main": "",
}


def cases(seed):
    """All (directive's text, block), in the order of a seed."""
    found = {(level.text, block) for level in directives.levels() for block in FRAMES if block not in ("main", "events")}
    for row in directives.TABLE:
        if "block" not in row[0] and row[0] not in ("if", "types"):
            found |= {(f"{row[0]} {value};", block) for value in directives.WRONG for block in ("http", "server", "location")}
            found |= {(f"{row[0]} {row[2][0]}; {row[0]} {row[2][-1]};", "location")}
    found = sorted(found)
    random.Random(seed).shuffle(found)
    return found


def run(bench, options):
    """Checks as many as the budget says; true where both say the same of all."""
    differing, asked = {}, 0
    for text, block in cases(options.seed)[:options.acceptance]:
        frame = FRAMES[block].replace("%D%", text.replace("%N%", "0")).replace("%PORT%", str(bench.ports[0]))
        for side in bench.sides:
            side.write(side.head() + side.filled(ZONES + frame, 0) + "}\n")
        said = [side.check() for side in bench.sides]
        classes = [comparison.message_class(message) for message in said]
        asked += 1
        if classes[0] != classes[1]:
            differing.setdefault((text.split()[0].rstrip(";"), *classes), []).append((text, block, said))
    for (name, *classes), rows in sorted(differing.items()):
        text, block, said = rows[0]
        print(f"{name}: {classes[0]} / {classes[1]}, {len(rows)} times: {block}: {text}\n  nginx: {said[0]}\n  weir:  {said[1]}")
    print(f"{asked} directives in blocks, {sum(map(len, differing.values()))} with another verdict or kind of error, of {len(differing)} kinds")
    return not differing


ZONES = """proxy_cache_path %DIR%/cache keys_zone=cache0:128k; limit_req_zone $server_port zone=req0:64k rate=1r/m;
limit_conn_zone $server_port zone=conn0:64k; map $arg_c $map0 { default 1h; } upstream up0 { server %UP%; }
"""
