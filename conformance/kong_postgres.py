"""A PostgreSQL of its own in a temporary directory, on 127.0.0.1."""

import os
import pathlib
import pwd
import shutil
import subprocess
import tempfile

import running
from services import PATH, answers


class Postgres:
    def __init__(self):
        initdb, server = shutil.which("initdb", path=PATH), shutil.which("postgres", path=PATH)
        if not (initdb and server):
            raise SystemExit("PostgreSQL's initdb and postgres are not installed")
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="weir-postgres-"))
        self.port = running.free_ports(1)[0]
        # It does not run as root.
        user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        how = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
        if user:
            os.chown(self.place, user.pw_uid, user.pw_gid)
        data = str(self.place / "data")
        subprocess.run([initdb, "-D", data, "-U", "kong", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync"], check=True, capture_output=True, cwd=self.place, **how)
        self.process = subprocess.Popen([server, "-D", data, "-k", str(self.place), "-h", "127.0.0.1", "-p", str(self.port), "-F"],
                                        stderr=(self.place / "log").open("w"), cwd=self.place, **how)
        answers("127.0.0.1", self.port)

    def settings(self):
        """Kong's environment for it."""
        return {"KONG_DATABASE": "postgres", "KONG_PG_HOST": "127.0.0.1", "KONG_PG_PORT": str(self.port), "KONG_PG_USER": "kong", "KONG_PG_DATABASE": "postgres"}

    def end(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.place, ignore_errors=True)
