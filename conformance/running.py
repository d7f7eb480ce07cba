"""A server that `mutual-tls` and `upstream-tls` start, and free ports for all."""
import socket
import subprocess
import time

TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [it.getsockname()[1] for it in sockets]
    for it in sockets:
        it.close()
    return ports


class Running:
    """One process with the text of an `http` block; it listens on `ports`."""

    def __init__(self, binary, directory, text, ports, lua_path=""):
        self.directory, self.ports = directory, ports
        directory.mkdir()
        conf = directory / "nginx.conf"
        lua = f'lua_package_path "{lua_path}/?.lua;;";' if lua_path else ""
        temporary = " ".join(f"{kind}_temp_path {directory}/{kind};" for kind in TEMPORARY)
        conf.write_text(f"worker_processes 1; daemon off; master_process off; pid {directory}/pid; error_log {directory}/error.log;\n"
                        f"events {{ worker_connections 4096; }}\nhttp {{ access_log off; {lua} {temporary}\n{text}\n}}\n")
        self.process = subprocess.Popen([binary, "-p", str(directory), "-c", str(conf), "-e", f"{directory}/error.log"], stderr=subprocess.DEVNULL)
        self.wait()

    def wait(self):
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", self.ports[-1]), 1).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        self.stop()
        raise SystemExit("did not start:\n" + (self.directory / "error.log").read_text()[-3000:])

    def stop(self):
        self.process.terminate()
        self.process.wait()
