"""What the runners of the suites share: taking files out of a checkout, the account to run as, ending sessions."""

import os
import pathlib
import pwd
import signal
import subprocess
import sys
import tarfile
import typing


class Server(typing.NamedTuple):
    """What runs applications and libraries: Weir, or an nginx with ngx_lua and the libraries in Lua that OpenResty installs beside it."""

    name: str
    binary: pathlib.Path
    lualib: pathlib.Path | None

    def environment(self):
        """Its libraries are found after an application's own, where `;;` is."""
        if not self.lualib:
            return dict(os.environ)
        return {**os.environ, "LUA_PATH": f"{self.lualib}/?.lua;{self.lualib}/?/init.lua;;", "LUA_CPATH": f"{self.lualib}/?.so;;"}


def name_servers(parser):
    """The options that name them."""
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--openresty", type=pathlib.Path, help="an nginx with ngx_lua that runs them, too")
    parser.add_argument("--lualib", type=pathlib.Path, help="folder of the libraries of that nginx")


def servers(options):
    found = [Server("weir", options.binary.resolve(strict=True), None)]
    if options.openresty:
        found.append(Server("openresty", options.openresty.resolve(strict=True), options.lualib.resolve(strict=True)))
    return found


def extract(checkout, commit, paths, folder):
    """Writes the files and folders `paths` of a commit below `folder`: nothing else ever leaves the repository."""
    git = ["git", "-c", "safe.directory=*", "-C", str(checkout), "archive", commit, "--", *paths]
    with subprocess.Popen(git, stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            archive.extractall(folder, filter="data")
        # The padding after the archive's end: git must not find nobody reading.
        process.stdout.read()
    if process.returncode != 0:
        sys.exit(f"git archive failed: is {checkout} a copy of the suite with commit {commit}?")


def end_session(leader):
    """Ends everything that a program has started in its session."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass


def unprivileged_user():
    """The suites expect an ordinary user: as root they would see permissions that no one else has."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def is_weir(binary):
    """Weir calls itself so by default; the suites want nginx's product token."""
    said = subprocess.run([binary, "-v"], capture_output=True, text=True, timeout=20, check=False)
    return "weir" in (said.stdout + said.stderr).lower()
