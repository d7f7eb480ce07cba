"""The clients that `run-clients` runs: how each is made ready, what it speaks, its command."""

import json
import os
import pathlib
import re
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
CLIENTS = HERE / "clients"
GRPC_PEER = HERE.parent / "crates" / "weir" / "tests" / "data" / "grpc_peer.py"
# Versions of HTTP with the scheme that they are asked for by.
HTTP_1 = [("1.1", "http"), ("1.1", "https")]
HTTP_2_TLS = [("2", "https")]
HTTP_2 = [("2", "http"), *HTTP_2_TLS]

# What .NET's client uses of its runtime.
ASSEMBLIES = [f"System.{name}" for name in (
    "Private.CoreLib Runtime Runtime.Extensions Net.Http Net.Primitives Console Linq Threading Threading.Tasks IO.FileSystem "
    "Collections Private.Uri").split()]


class Missing(Exception):
    """What a client needs is not on this machine."""


def program(name):
    found = shutil.which(name)
    if not found:
        raise Missing(f"no {name} here")
    return found


def build(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing(f"{command[0]} builds nothing: {(done.stdout + done.stderr).strip().splitlines()[-1]}")


class Client:
    """A program with the words `get VERSION COUNT WORKERS URL SHA1` and `put VERSION COUNT WORKERS URL FILE`."""

    # Whether it reads a large file in seconds; the others get fewer of them.
    fast = True
    uploads = True

    def __init__(self, name, versions):
        self.name, self.versions = name, versions

    def prepare(self, _folder):
        raise NotImplementedError

    def command(self, *words):
        return [*self.start, *words]


class Go(Client):
    def prepare(self, folder):
        build([program("go"), "build", "-o", folder / "http-go", CLIENTS / "http.go"], folder)
        self.start = [folder / "http-go"]


class Java(Client):
    def prepare(self, folder):
        build([program("javac"), "-d", folder / "java", CLIENTS / "Http.java"], folder)
        unchecked = "-Djdk.internal.httpclient.disableHostnameVerification=true"
        self.start = [program("java"), unchecked, "-cp", folder / "java", "Http"]


class Node(Client):
    def prepare(self, _folder):
        self.start = [program("node"), CLIENTS / "http.mjs"]


class Python(Client):
    def __init__(self, library, versions, fast, python):
        super().__init__(library, versions)
        self.fast, self.python = fast, python

    def prepare(self, _folder):
        imports = "import httpx, h2" if self.name == "httpx" else f"import {self.name}"
        if subprocess.run([self.python, "-c", imports], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            raise Missing(f"{self.python} has no {self.name}")
        self.start = [self.python, "-W", "ignore", CLIENTS / "http_client.py", self.name]


class DotNet(Client):
    """Compiled by Mono's compiler against the runtime that `dotnet` finds: so it needs no SDK."""

    def prepare(self, folder):
        dotnet, compiler = program("dotnet"), program("mcs")
        listed = subprocess.run([dotnet, "--list-runtimes"], capture_output=True, text=True, check=False).stdout
        found = re.findall(r"Microsoft\.NETCore\.App ([0-9.]+) \[(.+)\]", listed)
        if not found:
            raise Missing("dotnet has no runtime")
        version, place = found[-1]
        names = [pathlib.Path(place) / version / f"{name}.dll" for name in ASSEMBLIES]
        (folder / "dotnet").mkdir()
        to = folder / "dotnet" / "Http.dll"
        build([compiler, "-nostdlib", "-noconfig", f"-out:{to}", *(f"-r:{name}" for name in names), CLIENTS / "Http.cs"], folder)
        runtime = {"framework": {"name": "Microsoft.NETCore.App", "version": version},
                   "configProperties": {"System.Globalization.Invariant": True}}
        to.with_suffix(".runtimeconfig.json").write_text(json.dumps({"runtimeOptions": runtime}))
        self.start = [dotnet, to]


class Curl(Client):
    """Its bodies go through sha1sum, or as many files at once as there are workers."""

    def prepare(self, _folder):
        self.start = ["sh", CLIENTS / "curl.sh", program("curl")]


class Load(Client):
    """nghttp and h2load: they count, and look at no bytes."""

    uploads = False

    def prepare(self, _folder):
        self.start = ["sh", CLIENTS / f"{self.name}.sh", program(self.name)]


def clients(python):
    return [
        Go("go", HTTP_1 + HTTP_2),
        Java("java", HTTP_1 + HTTP_2_TLS),
        Node("node", HTTP_1 + HTTP_2),
        DotNet("dotnet", [("1.1", "http"), ("2", "http")]),
        Python("requests", HTTP_1, True, python),
        Python("aiohttp", HTTP_1, True, python),
        Python("httpx", HTTP_1 + HTTP_2, False, python),
        Curl("curl", HTTP_1 + HTTP_2),
        Load("nghttp", HTTP_2),
        Load("h2load", HTTP_1 + HTTP_2),
    ]


class GrpcPeer:
    """A program with the words `serve`, which prints its port, and `ask ADDR CA COUNT`."""

    def __init__(self, name, prepare):
        self.name, self._prepare = name, prepare

    def prepare(self, folder):
        self.start, self.environment = self._prepare(folder)

    def command(self, *words):
        return [*self.start, *words]


def grpc_go(folder):
    build([program("go"), "build", "-o", folder / "grpc-go", "."], CLIENTS / "go-grpc")
    return [folder / "grpc-go"], {}


def grpc_node(folder):
    node = program("node")
    places = [os.environ.get("NODE_PATH", ""), "/usr/share/nodejs", "/usr/lib/node_modules"]
    environment = {"NODE_PATH": os.pathsep.join(filter(None, places))}
    probe = [node, "-e", "require('@grpc/grpc-js')"]
    if subprocess.run(probe, env=os.environ | environment, cwd=folder, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        raise Missing("Node has no @grpc/grpc-js (NODE_PATH)")
    return [node, CLIENTS / "grpc.mjs"], environment


def grpc_python(python):
    def prepare(_folder):
        if subprocess.run([python, "-c", "import grpc"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            raise Missing(f"{python} has no grpc")
        return [python, GRPC_PEER], {}

    return prepare


def grpc_peers(python):
    return [GrpcPeer("grpc-go", grpc_go), GrpcPeer("grpc-node", grpc_node), GrpcPeer("grpc-python", grpc_python(python))]
