"""The servers that libraries are tested with: Debian's Redis, memcached, MariaDB and PostgreSQL, Apache Kafka, Pebble, and a name server.

They run in a network of their own (run-libraries makes one), on the ports that the libraries' tests expect, with their
data in a temporary folder; with the network they end.
"""

import gzip
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

from certificates import Authority

HERE = pathlib.Path(__file__).resolve().parent
# Where the libraries' tests expect a name server.
NAMESERVERS = ("8.8.8.8", "8.8.4.4")
# Seconds until a server answers that makes its files first.
PATIENCE = 120


class Services:
    """Starts each of them once, when it is first asked for."""

    def __init__(self, folder, user, kafka=None):
        self.folder, self.user, self.started, self.kept, self.kafka = folder, user, {}, [], kafka
        for address in NAMESERVERS:
            subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)

    def start(self, name, library):
        """Has the server running; `False` where it is not installed. In the folder `library` are its tests' files."""
        if name == "mariadb":
            self._certificates(library / "t" / "data")
        if name not in self.started:
            self.started[name] = getattr(self, f"_{name}")(library)
        if name == "pebble" and self.started[name]:
            self._acme_files(library / "t" / "fixtures")
        if name == "kafka" and self.started[name]:
            self._topics()
        if name in REDIS and self.started[name]:
            self._empty(*REDIS[name])
        return self.started[name]

    def release(self):
        """Gives up the ports that other libraries' tests use themselves."""
        for each in self.kept:
            each.close()
        self.kept.clear()
        self.started.pop("silent", None)
        if self.started.get("pebble"):
            for path in ACME_FILES:
                path.unlink(missing_ok=True)

    def environment(self):
        """What tests are told of the servers."""
        return {"TEST_NGINX_MYSQL_PATH": str(self.folder / "mariadb" / "socket"), "DB_VERSION": "mariadb:11.4"}

    def _spawn(self, command, name, privileged=False, variables=()):
        if not shutil.which(command[0], path=PATH):
            return False
        (self.folder / name).mkdir(exist_ok=True)
        os.chown(self.folder / name, self.user.pw_uid, self.user.pw_gid)
        account = {} if privileged else self._account()
        with open(self.folder / f"{name}.log", "ab") as log:
            subprocess.Popen(command, cwd=self.folder / name, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                             env={"PATH": PATH, "HOME": str(self.folder / name), **dict(variables)}, start_new_session=True, **account)
        return True

    def _account(self):
        return {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}

    def _run(self, command, name, text=None):
        """A command to its end, as the servers' user."""
        done = subprocess.run(command, input=text, cwd=self.folder / name, capture_output=True, **self._account(),
                              env={"PATH": PATH, "HOME": str(self.folder / name)}, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)}: {done.stderr.decode(errors='replace')}")

    def _names(self, _):
        return all([self._spawn([str(HERE / "nameserver"), address], "names", privileged=True) and answers(address, 53)
                    for address in NAMESERVERS])

    def _silent(self, _):
        """Where packets get lost: nobody takes connections there, and the queue of those that wait is full."""
        for port in (12345, 11211):
            self.kept.append(socket.create_server(("127.0.0.2", port), backlog=0))
            for _ in range(2):
                waiting = socket.socket()
                waiting.setblocking(False)
                waiting.connect_ex(("127.0.0.2", port))
                self.kept.append(waiting)
        return True

    def _redis(self, _):
        command = ["redis-server", "--port", "6379", "--bind", "127.0.0.1", "--save", ""]
        return self._spawn(command, "redis") and answers("127.0.0.1", 6379)

    def _redis_auth(self, _):
        command = ["redis-server", "--port", "6380", "--bind", "127.0.0.1", "--save", "", "--requirepass", "passdefault"]
        return self._spawn(command, "redis_auth") and answers("127.0.0.1", 6380)

    def _empty(self, port, login):
        """What another server's run has left there is gone."""
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(f"{login}FLUSHALL\r\n".encode())
            said = b""
            while said.count(b"+OK") < 1 + bool(login):
                part = connection.recv(4096)
                if not part or part.startswith(b"-"):
                    sys.exit(f"Redis on port {port} is not emptied: {said + part!r}")
                said += part

    def _memcached(self, library):
        command = ["memcached", "-l", "127.0.0.1", "-o", "track_sizes"]
        pair = f"ssl_chain_cert={library}/t/cert/server.crt,ssl_key={library}/t/cert/server.key"
        plain = self._spawn([*command, "-p", "11211", "-U", "11211"], "memcached")
        return (plain and answers("127.0.0.1", 11211)
                and self._spawn([*command, "-p", "11212", "-Z", "-o", pair], "memcached-tls")
                and answers("127.0.0.1", 11212))

    def _certificates(self, files):
        """Those of the database, which its tests look for, too."""
        for kind in ("crt", "key", "pub"):
            shutil.copy(files / f"test-sha256.{kind}", files / f"test.{kind}")
            os.chown(files / f"test.{kind}", self.user.pw_uid, self.user.pw_gid)

    def _mariadb(self, library):
        if not shutil.which("mariadbd", path=PATH):
            return False
        data, at = self.folder / "mariadb" / "data", self.folder / "mariadb" / "socket"
        (self.folder / "mariadb").mkdir()
        os.chown(self.folder / "mariadb", self.user.pw_uid, self.user.pw_gid)
        self._run(["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal",
                   "--skip-test-db"], "mariadb")
        files = library / "t" / "data"
        self._spawn(["mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={at}", "--bind-address=127.0.0.1",
                     "--port=3306", f"--ssl-ca={files}/test.crt", f"--ssl-cert={files}/test.crt",
                     f"--ssl-key={files}/test.key", "--secure-auth=0"], "mariadb")
        answers("127.0.0.1", 3306)
        client = ["mariadb", "--no-defaults", f"--socket={at}", "-uroot"]
        self._run(client, "mariadb", gzip.decompress((files / "world.sql.gz").read_bytes()))
        self._run(client, "mariadb", DATABASES.encode())
        return True

    def _kafka(self, _):
        """A broker that is its own controller, with the listeners and users that lua-resty-kafka's CI makes."""
        if not self.kafka or not shutil.which("java", path=PATH):
            return False
        (self.folder / "kafka").mkdir()
        os.chown(self.folder / "kafka", self.user.pw_uid, self.user.pw_gid)
        settings, keys = (self.folder / "kafka" / name for name in ("server.properties", "keys.p12"))
        settings.write_text(KAFKA.format(folder=self.folder / "kafka", keys=keys))
        self._run(["keytool", "-genkeypair", "-keyalg", "RSA", "-dname", "CN=127.0.0.1", "-alias", "kafka", "-keystore", str(keys),
                   "-storetype", "PKCS12", "-storepass", "changeit"], "kafka")
        users = [word for kind in ("256", "512") for word in ("-S", f"SCRAM-SHA-{kind}=[name=admin,password=admin-secret]")]
        self._run([*self._java(), "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(settings), *users], "kafka")
        return self._spawn([*self._java(), "kafka.Kafka", str(settings)], "kafka") and answers("127.0.0.1", 9092)

    def _topics(self):
        """Empty ones: what another server's run has sent is gone."""
        command = [*self._java(), "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", "127.0.0.1:9092"]
        self._run([*command, "--delete", "--if-exists", "--topic", "test.*"], "kafka")
        for topic in ("test", "test2", "test3", "test4", "test5", "test-consumer"):
            self._run([*command, "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1"], "kafka")

    def _java(self):
        return ["java", "-Xmx512m", "-cp", f"{self.kafka}/*"]

    def _pebble(self, _):
        """Let's Encrypt's server for tests; all names are of this machine."""
        authority = Authority(self.folder, "minica")
        own = authority.issue("pebble", "localhost", ("subjectAltName=DNS:localhost",))
        for path in (own.path, own.key):
            path.chmod(0o644)
        self.authority = authority.path
        settings = self.folder / "pebble.json"
        settings.write_text(json.dumps({"pebble": {
            "listenAddress": "127.0.0.1:14000", "managementListenAddress": "127.0.0.1:15000", "certificate": str(own.path), "privateKey": str(own.key),
            "httpPort": 5002, "tlsPort": 5001, "profiles": {"default": {"description": "as its tests want it", "promoteCommonName": True, "validityPeriod": 7776000}}}}))
        names = ["pebble-challtestsrv", "-defaultIPv6", "", "-defaultIPv4", "127.0.0.1", *(word for kind in ("http01", "https01", "tlsalpn01", "doh") for word in (f"-{kind}", ""))]
        pebble = ["pebble", "-config", str(settings), "-strict", "-dnsserver", "127.0.0.1:8053"]
        # Without, it waits up to 15 seconds before it asks for what a challenge has put in place.
        return (self._spawn(names, "challenges") and self._spawn(pebble, "pebble", variables={"PEBBLE_VA_NOSLEEP": "1"})
                and answers("127.0.0.1", 14000))

    def _acme_files(self, fixtures):
        """Where lua-resty-acme's tests expect keys, and what they are to trust."""
        account, key, certificate, ecc_key, ecc = map(str, ACME_FILES)
        for command in (["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:4096", "-out", account],
                        ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-x509", "-days", "365", "-out", certificate, "-subj", "/"],
                        ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", ecc_key, "-x509", "-days", "365", "-out", ecc, "-subj", "/"]):
            subprocess.run(command, check=True, capture_output=True)
        for path in ACME_FILES:
            path.chmod(0o644)
        shutil.copy(self.authority, fixtures / "pebble.minica.pem")

    def _postgresql(self, _):
        if not shutil.which("initdb", path=PATH):
            return False
        (self.folder / "postgresql").mkdir()
        os.chown(self.folder / "postgresql", self.user.pw_uid, self.user.pw_gid)
        data = str(self.folder / "postgresql" / "data")
        self._run(["initdb", "-D", data, "-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C"], "postgresql")
        logins = self.folder / "postgresql" / "data" / "pg_hba.conf"
        logins.write_text("host all guest all md5\nhost all postgres all trust\n")
        command = ["postgres", "-D", data, "-k", str(self.folder / "postgresql"), "-h", "127.0.0.1", "-p", "5432"]
        return self._spawn(command, "postgresql") and answers("127.0.0.1", 5432)


def answers(host, port):
    """Waits until somebody listens there."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            socket.create_connection((host, port), timeout=5).close()
            return True
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nobody listens on {host}:{port}")


PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin",
                        *map(str, sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin")))])
# Ports, and what a client says first.
REDIS = {"redis": (6379, ""), "redis_auth": (6380, "AUTH passdefault\r\n")}
ACME_FILES = [pathlib.Path("/tmp") / name for name in ("account.key", "default.key", "default.pem", "default-ecc.key", "default-ecc.pem")]
KAFKA = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9095
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9093,SASL_PLAINTEXT://127.0.0.1:9094,CONTROLLER://127.0.0.1:9095
advertised.listeners=PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9093,SASL_PLAINTEXT://127.0.0.1:9094
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
ssl.keystore.location={keys}
ssl.keystore.type=PKCS12
ssl.keystore.password=changeit
ssl.key.password=changeit
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin-secret" user_admin="admin-secret";
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
log.dirs={folder}/data
offsets.topic.replication.factor=1
auto.create.topics.enable=false
"""
# What lua-resty-mysql's tests expect of a database: its users, with the ways to log in that MariaDB has.
DATABASES = """\
create database ngx_test character set utf8mb4 collate utf8mb4_unicode_ci;
create user ngx_test@'%' identified by 'ngx_test';
grant all on ngx_test.* to ngx_test@'%';
create user user_native@'%' identified by 'pass_native';
grant all on ngx_test.* to user_native@'%';
create user nopass_native@'%' identified by '';
grant all on ngx_test.* to nopass_native@'%';
set old_passwords = 1;
create user user_old@'%' identified via mysql_old_password;
set password for user_old@'%' = old_password('pass_old');
grant all on ngx_test.* to user_old@'%';
create user nopass_old@'%' identified via mysql_old_password;
grant all on ngx_test.* to nopass_old@'%';
set old_passwords = 0;
install soname 'auth_ed25519';
create user ed25519_user@'%' identified via ed25519 using 'STIwVk/F6qiXJuOr8AgPSWVxmiN3rUjEX5DfzGAJ32A';
grant all on ngx_test.* to ed25519_user@'%';
create user ed25519_nopass@'%' identified via ed25519 using '4LH+dBF+G5W2CKTyId8xR3SyDqZoQjUNUVNxx8aWbG4';
grant all on ngx_test.* to ed25519_nopass@'%';
grant all on world.* to ngx_test@'%';
flush privileges;
"""
