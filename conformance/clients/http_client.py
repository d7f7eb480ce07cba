"""Python's requests, aiohttp and httpx (with h2) as clients that read and send as fast as they can.

    http_client.py LIBRARY get VERSION COUNT WORKERS URL SHA1    so many GETs in all, each body with this digest
    http_client.py LIBRARY put VERSION COUNT WORKERS URL FILE    so many PUTs of a file to URL0, URL1, ...

VERSION is 1.1, or with httpx 2; without TLS 2 is by prior knowledge. Certificates are not checked. It prints "all well", or
what failed.
"""

import asyncio
import concurrent.futures
import hashlib
import sys

PIECE = 1 << 16


def check(status, version, found, wanted):
    if status // 100 != 2:
        raise ValueError(f"the response is {status}")
    if version not in (None, wanted["version"]):
        raise ValueError(f"the response came over {version}")
    if wanted["digest"] not in (None, found):
        raise ValueError(f"the digest is {found}, not {wanted['digest']}")


def with_requests(kind, url, last, wanted, turns, workers):
    import requests

    session = requests.Session()
    session.trust_env = False
    session.verify = False
    session.mount(url, requests.adapters.HTTPAdapter(pool_maxsize=workers))

    def once(turn):
        digest = hashlib.sha1()
        if kind == "get":
            response = session.get(url, stream=True)
            for piece in response.iter_content(PIECE):
                digest.update(piece)
        else:
            with open(last, "rb") as file:
                response = session.put(f"{url}{turn}", data=file)
        check(response.status_code, {11: "1.1"}.get(response.raw.version), digest.hexdigest(), wanted)

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return [error for error in pool.map(caught(once), turns) if error]


def caught(ask):
    def attempt(turn):
        try:
            ask(turn)
        except Exception as error:  # counted and shown, whatever the library raises
            return repr(error)
        return None

    return attempt


async def at_once(once, turns, workers):
    """Asks from `workers` tasks; what went wrong."""
    waiting, failures = iter(turns), []

    async def work():
        for turn in waiting:
            try:
                await once(turn)
            except Exception as error:  # counted and shown, whatever the library raises
                failures.append(repr(error))

    await asyncio.gather(*(work() for _ in range(workers)))
    return failures


async def with_aiohttp(kind, url, last, wanted, turns, workers):
    import aiohttp

    connector, endless = aiohttp.TCPConnector(limit=workers, ssl=False), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=endless) as session:

        async def once(turn):
            digest = hashlib.sha1()
            if kind == "get":
                async with session.get(url) as response:
                    async for piece in response.content.iter_chunked(PIECE):
                        digest.update(piece)
            else:
                with open(last, "rb") as file:
                    async with session.put(f"{url}{turn}", data=file) as response:
                        await response.read()
            version = f"{response.version.major}.{response.version.minor}"
            check(response.status, version, digest.hexdigest(), wanted)

        return await at_once(once, turns, workers)


async def pieces(path):
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            yield piece


async def with_httpx(kind, url, last, wanted, turns, workers):
    import httpx

    two = wanted["version"] == "2"
    limits = httpx.Limits(max_connections=workers, max_keepalive_connections=workers)
    async with httpx.AsyncClient(verify=False, trust_env=False, http1=not two, http2=two, timeout=None, limits=limits) as client:

        async def once(turn):
            digest = hashlib.sha1()
            if kind == "get":
                async with client.stream("GET", url) as response:
                    async for piece in response.aiter_bytes(PIECE):
                        digest.update(piece)
            else:
                # Without a length: chunked, or up to the end of the stream.
                response = await client.put(f"{url}{turn}", content=pieces(last))
            check(response.status_code, response.http_version.removeprefix("HTTP/"), digest.hexdigest(), wanted)

        return await at_once(once, turns, workers)


def main():
    library, kind, version, count, workers, url, last = sys.argv[1:]
    turns, workers = range(int(count)), int(workers)
    wanted = {"version": version, "digest": last if kind == "get" else None}
    arguments = kind, url, last, wanted, turns, workers
    if library == "requests":
        failures = with_requests(*arguments)
    else:
        failures = asyncio.run({"aiohttp": with_aiohttp, "httpx": with_httpx}[library](*arguments))
    for failure in failures:
        print(failure)
    print(f"{len(failures)} of {count} failed" if failures else "all well")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
