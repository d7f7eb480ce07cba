"""What cases need beside the two servers: libraries out of their repositories, and Redis."""

import os
import pathlib
import shutil
import subprocess
import time

import measure

LIBRARIES = ("lua-resty-redis", "lua-resty-http")


def libraries(folder):
    """Modules of LIBRARIES out of WEIR_BENCH_CHECKOUTS, in `folder`; those that are there."""
    checkouts = os.environ.get("WEIR_BENCH_CHECKOUTS")
    if not checkouts:
        return set()
    found = set()
    for library in LIBRARIES:
        places = [pathlib.Path(checkouts) / library, *pathlib.Path(checkouts).glob(f"*+{library}/repo")]
        for place in places:
            if place.exists():
                git = ["git", "-c", "safe.directory=*", "-C", str(place), "archive", "HEAD", "lib"]
                modules = subprocess.run(git, capture_output=True, check=True).stdout
                subprocess.run(["tar", "-x", "-C", str(folder), "--strip-components=1"], input=modules, check=True)
                found.add(library)
                break
    return found


class Redis:
    """A Redis with one value, on the client's core."""

    def __init__(self, folder):
        program = shutil.which("redis-server")
        self.port, self.process = measure.free_port(), None
        if not program:
            return
        with open(folder / "redis.log", "wb") as output:
            self.process = subprocess.Popen(
                [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                preexec_fn=lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}))
        end = time.monotonic() + measure.START_LIMIT
        while True:
            done = subprocess.run(["redis-cli", "-p", str(self.port), "set", "given", "a value"],
                                  capture_output=True, check=False)
            if done.stdout.strip() == b"OK":
                return
            if time.monotonic() > end:
                self.stop()
                raise SystemExit("redis-server does not start")
            time.sleep(0.05)

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
